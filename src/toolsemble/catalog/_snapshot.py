"""``Snapshot``: the tools of a catalog at one moment, to search and to offer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.specification import ToolSpecification
from toolsemble.catalog._budget import Plan, make_plan
from toolsemble.catalog._entry import Entry
from toolsemble.catalog._find_tools import FIND_TOOLS, make_find_tools
from toolsemble.catalog._groups import group_tools, name_groups
from toolsemble.catalog._index import Index
from toolsemble.catalog._sources import Listing, check_patterns, matches
from toolsemble.catalog._tokens import Meter

Rank: TypeAlias = Callable[[str, list[ToolSpecification]], Iterable[str]]
"""Returns the names of the tools that fit a query, best first."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a catalog."""

    always: tuple[str, ...]
    """Names or patterns of the tools that are always shown."""
    budget: int | None
    """The most tokens of all definitions together; None: any number."""
    limit: int
    """How many tools a search finds if nobody says it."""
    rank: Rank | None
    """Ranks the tools; None: the index does."""
    meter: Meter
    """Counts the tokens of definitions."""
    is_fixed: bool
    """Whether the tools never change."""


class Snapshot:
    """The tools of a catalog at one moment; what is derived from them is made when it is first needed."""

    def __init__(self, listings: Sequence[Listing], settings: Settings) -> None:
        self._listings = listings  # kept, so that their ids are not those of other objects
        self._settings = settings
        self.entries: dict[str, Entry] = {}
        """The tools by name."""
        for entry in (each for listing in listings for each in listing.entries):
            self._check_name(entry.name)
            self.entries[entry.name] = entry
        if settings.is_fixed:
            check_patterns("always", settings.always, list(self.entries))
        self._groups: dict[str, list[str]] | None = None
        self._group_names: tuple[str, ...] | None = None
        self._index: Index | None = None
        self._plan: Plan | None = None
        self._specifications: list[ToolSpecification] | None = None
        self._searches: dict[tuple[str, ...], Entry] = {}

    def _check_name(self, name: str) -> None:
        if name == FIND_TOOLS:
            raise ToolDefinitionError(
                f"The name '{FIND_TOOLS}' is that of the search of a catalog; rename the tool. A Catalog in a Catalog "
                "has one, too: pass its tools in place of it"
            )
        if name in self.entries:
            raise ToolDefinitionError(
                f"Duplicate tool name: '{name}'; rename one of them, or pass prefix= to one MCPClient"
            )

    @property
    def groups(self) -> Mapping[str, Sequence[str]]:
        """The names of the tools by group."""
        if self._groups is None:
            self._groups = group_tools(self.entries.values())
        return self._groups

    @property
    def group_names(self) -> tuple[str, ...]:
        """The names of the groups, as a model is shown them."""
        if self._group_names is None:
            self._group_names = tuple(name_groups(self.groups))
        return self._group_names

    @property
    def always(self) -> list[Entry]:
        """The tools that are always shown."""
        return [each for each in self.entries.values() if matches(each.name, self._settings.always)]

    @property
    def plan(self) -> Plan:
        """What a model sees before it has searched."""
        if self._plan is None:
            settings, search = self._settings, self.search_tool(self.group_names)
            self._plan = make_plan(list(self.entries.values()), self.always, search, settings.budget, settings.meter)
        return self._plan

    def search_tool(self, groups: tuple[str, ...]) -> Entry:
        """Return the tool that searches these tools; its text names some groups."""
        if groups not in self._searches:
            self._searches[groups] = make_find_tools(self.search, self.find_nearest, groups, self._settings.limit)
        return self._searches[groups]

    def search(self, query: str, limit: int) -> list[Entry]:
        """Return the tools that fit a query, best first."""
        if self._settings.rank is not None:
            return self._rank(self._settings.rank, query, limit)
        return self._pick(self._make_index().search(query, limit))

    def find_nearest(self, query: str, limit: int) -> list[Entry]:
        """Return the tools that share words with a query, whether they fit or not; none if there is another ranking."""
        return [] if self._settings.rank is not None else self._pick(self._make_index().rank(query, limit).numbers)

    def _make_index(self) -> Index:
        if self._index is None:
            self._index = Index([each.document() for each in self.entries.values()])
        return self._index

    def _pick(self, numbers: Iterable[int]) -> list[Entry]:
        entries = list(self.entries.values())
        return [entries[number] for number in numbers]

    def _rank(self, rank: Rank, query: str, limit: int) -> list[Entry]:
        if self._specifications is None:
            self._specifications = [each.specification() for each in self.entries.values()]
        ranked: Any = rank(query, list(self._specifications))
        if isinstance(ranked, str) or not isinstance(ranked, Iterable):
            raise TypeError(f"Catalog rank must return a list of names, not {ranked!r:.80}")
        names = dict.fromkeys(name for name in ranked if isinstance(name, str) and name in self.entries)
        return [self.entries[name] for name in list(names)[:limit]]
