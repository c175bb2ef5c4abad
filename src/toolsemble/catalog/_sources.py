"""The sources of a catalog: tools, toolboxes, MCP clients, and functions of the run with a cache."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from toolsemble._runtime.checks import check_seconds
from toolsemble._runtime.event_loops import is_awaitable
from toolsemble._runtime.lru import LRUCache
from toolsemble._runtime.text import describe_with_class
from toolsemble._tools.base import Tool
from toolsemble._tools.collection import collect_tools
from toolsemble._tools.toolbox.formats import ToolSet
from toolsemble._tools.toolbox.tool_list import collect_members
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError, ToolsembleError
from toolsemble.catalog._entry import Entry

FindTools: TypeAlias = Callable[[Any], Iterable[object] | Awaitable[Iterable[object]]]
"""Returns the tools for a :class:`~toolsemble.agent.RunView`; sync or async."""
Looking: TypeAlias = Generator[Awaitable[Any], Any, tuple[object, ...]]
"""A lookup: yields awaitables, and returns tools."""

_MOST_KEYS = 1_000
_MOST_LISTINGS = 64


@dataclass(frozen=True, slots=True)
class Source:
    """Tools that depend on the run, for a :class:`~toolsemble.Catalog`.

    >>> def find_tools_of(run):
    ...     return []
    >>> Source(find_tools_of, max_age=300, by=lambda run: run.deps.tenant, group="crm").max_age
    300

    :param find: a function from a :class:`~toolsemble.agent.RunView` to tools or a toolbox, sync or async; called
        before each turn
    :param max_age: seconds to cache its tools; 0: call it before each turn
    :param by: returns their cache key, such as the run's tenant: runs with equal keys share them; None: one cache per
    run :param group: the group name of these tools; "": by their names
    """

    find: FindTools
    max_age: float = 0.0
    by: Callable[[Any], Hashable] | None = None
    group: str = ""

    def __post_init__(self) -> None:
        check_seconds("Source max_age", self.max_age, zero=True)
        if self.by is not None and not callable(self.by):
            raise ToolDefinitionError(f"Source by must be a function of the run, not {self.by!r:.80}")
        if not isinstance(self.group, str):
            raise ToolDefinitionError(f"Source group must be a str, not {self.group!r:.80}")
        _check_function(self.find)


class Lookup:
    """The lookups of one source, with their cached results."""

    __slots__ = ("_recent", "source")

    def __init__(self, source: Source) -> None:
        self.source = source
        self._recent: LRUCache[tuple[float, tuple[object, ...]]] = LRUCache(_MOST_KEYS)

    def find(self, run: Any) -> Looking:
        """Return a run's tools, from the cache if fresh."""
        source = self.source
        if not source.max_age:
            return (yield from self._ask(run))
        key = ("run", run.run_id) if source.by is None else ("key", _check_key(source.by(run)))
        known = self._recent.get(key) if key != ("run", "") else None
        now = time.monotonic()
        if known is not None and now - known[0] < source.max_age:
            return known[1]
        return self._recent.keep(key, (now, (yield from self._ask(run))))[1]

    def _ask(self, run: Any) -> Looking:
        given: Any = self.source.find(run)
        found: Any = (yield given) if is_awaitable(given) else given
        if isinstance(found, ToolSet):
            return (found,)
        if isinstance(found, (str, bytes)) or not isinstance(found, Iterable):
            raise ToolDefinitionError(f"its function must return a list of tools, not {found!r:.80}")
        return tuple(found)


@contextmanager
def _name_failures(source: Source) -> Iterator[None]:
    """Add the source and the next step to exceptions from its function.

    A configuration error is self-explanatory, and always reaches the caller unchanged.
    """
    name = source.group or _name_function(source.find)
    try:
        yield
    except ToolConfigurationError:
        raise
    except ToolDefinitionError as error:
        raise ToolDefinitionError(f"The source {name!r:.80} of a Catalog: {error}") from error
    except Exception as error:
        raise ToolsembleError(
            f"The source {name!r:.80} of a Catalog failed: {describe_with_class(error)}. To go on without its tools, "
            "catch this in its function and return []"
        ) from error


def _name_function(find: Any) -> str:
    name, code = str(getattr(find, "__name__", find)), getattr(find, "__code__", None)
    # All lambdas have the same name.
    return f"{name} in line {code.co_firstlineno}" if code is not None and name.endswith("<lambda>") else name


def _check_key(key: object) -> Hashable:
    if not isinstance(key, Hashable):
        raise ToolDefinitionError(f"its by must return a hashable key, not {key!r:.80}")
    return key


def _check_function(find: Any) -> None:
    """Raise if this is not a function of the run, such as one intended as a tool."""
    if isinstance(find, type) or not callable(find):
        raise ToolDefinitionError(f"A Source takes a function of the run that returns tools, not {find!r:.80}")
    try:
        inspect.signature(find).bind(None)
    except TypeError:
        raise ToolDefinitionError(
            f"A function in a Catalog takes a RunView and returns tools; {find!r:.80} takes something else. To use it "
            "as a tool, decorate it with @tool"
        ) from None
    except ValueError:
        return  # its signature is unknown


class Listing:
    """The tools found in one source."""

    __slots__ = ("_tools", "entries")

    def __init__(self, tools: tuple[object, ...], entries: tuple[Entry, ...]) -> None:
        self._tools = tools  # kept, so that their ids are not reused
        self.entries = entries


Listings: TypeAlias = Generator[Awaitable[Any], Any, tuple[Listing, ...]]
"""Yields awaitables, and returns the tools of all sources."""


class Sources:
    """All sources of a catalog's tools.

    :param tools: tools, toolboxes, MCP clients and functions of the run
    :param include: names or patterns of the tools to include; None: all
    :param exclude: names or patterns of the tools to exclude
    """

    def __init__(self, tools: object, include: Iterable[str] | None, exclude: Iterable[str]) -> None:
        self._include = None if include is None else read_patterns("include", include)
        self._exclude = read_patterns("exclude", exclude)
        members = [_read_member(each) for each in _list_members(tools)]
        # A lookup is replaced by an empty list, so that errors name the tools by their index.
        self._fixed = tuple([] if isinstance(each, Source) else each for each in members)
        self._lookups = [Lookup(each) for each in members if isinstance(each, Source)]
        self._known: LRUCache[Listing] = LRUCache(_MOST_LISTINGS)

    @property
    def is_fixed(self) -> bool:
        """Whether the tools never change."""
        return not self._lookups

    def find(self, run: Any, *, reviewed: bool) -> Listings:
        """Return a run's tools: listed ones first, then looked-up ones, in order.

        :param reviewed: whether toolboxes' tools keep their toolbox's reviewer
        """
        listings = [self._list(0, self._fixed, "", reviewed=reviewed)]
        for number, lookup in enumerate(self._lookups, start=1):
            with _name_failures(lookup.source):
                found = yield from lookup.find(run)
                listings.append(self._list(number, found, lookup.source.group, reviewed=reviewed))
        return tuple(listings)

    def _list(self, number: int, tools: tuple[object, ...], group: str, *, reviewed: bool) -> Listing:
        """Return a source's tools; the same object while it returns the same tools."""
        key = (number, reviewed, *map(id, tools))
        known = self._known.get(key)
        if known is not None:
            return known
        found = collect_members(tools, reviewed=reviewed)
        if self.is_fixed:
            self._check_patterns([definition.name for _, definition in found])
        entries = [Entry(tool, each, group) for tool, each in found if self._takes(each.name)]
        return self._known.keep(key, Listing(tools, tuple(entries)))

    def _takes(self, name: str) -> bool:
        if self._include is not None and not matches(name, self._include):
            return False
        return not matches(name, self._exclude)

    def _check_patterns(self, names: list[str]) -> None:
        """Raise if a pattern matches no tool, because a typo would void its effect."""
        for setting, patterns in (("include", self._include or ()), ("exclude", self._exclude)):
            check_patterns(setting, patterns, names)


def read_patterns(setting: str, patterns: Any) -> tuple[str, ...]:
    """Return names or patterns as a tuple; raise for anything else.

    >>> read_patterns("always", "now"), read_patterns("always", ["crm_*"])
    (('now',), ('crm_*',))
    """
    listed = (patterns,) if isinstance(patterns, str) or not isinstance(patterns, Iterable) else tuple(patterns)
    for each in listed:
        if not isinstance(each, str):
            raise ToolDefinitionError(f"Catalog {setting} takes names or patterns such as 'crm_*', not {each!r:.80}")
    return listed


def check_patterns(setting: str, patterns: Iterable[str], names: list[str]) -> None:
    """Raise if a pattern matches none of the names.

    >>> check_patterns("always", ["nwo"], ["now"])
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Catalog always: no tool is 'nwo'. Did you mean 'now'?
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            from difflib import get_close_matches

            near = get_close_matches(pattern[:64], names, n=1)
            hint = f". Did you mean {near[0]!r}?" if near else ""
            raise ToolDefinitionError(f"Catalog {setting}: no tool is {pattern!r:.80}{hint}")


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name is one of these names or matches one of these patterns.

    >>> matches("crm_find", ["crm_*"])
    True
    """
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _list_members(tools: Any) -> Iterator[object]:
    """Return the members of a list, or a single toolbox, client or function passed instead."""
    if isinstance(tools, (Tool, ToolSet, Source)) or _has_current(tools):
        return iter([tools])
    if isinstance(tools, Iterable) and not isinstance(tools, (str, bytes, Mapping, type)):
        return iter(tools)
    if callable(tools) and not isinstance(tools, type):
        return iter([tools])
    raise ToolDefinitionError(
        f"A Catalog takes a list of tools, toolboxes, MCP clients and functions of the run, not {tools!r:.80}"
    )


def _read_member(member: Any) -> object:
    """Return a member's meaning: a lookup source, or the tools themselves."""
    if isinstance(member, (Source, Tool, ToolSet, type, list, tuple)) or member is None:
        return member
    if _has_current(member):
        name = getattr(member, "name", "")
        return Source(member.current, group=name if isinstance(name, str) else "")
    return Source(member) if callable(member) and not _is_tool(member) else member


def _has_current(member: object) -> bool:
    """Return whether this is a server's client, whose tools can change at any time."""
    return not isinstance(member, (type, Tool, ToolSet)) and callable(getattr(member, "current", None))


def _is_tool(member: object) -> bool:
    try:
        return bool(collect_tools(member))
    except Exception:  # a foreign object can raise anything; the toolbox explains it
        return True
