"""``Catalog``: a set of tools of which a model sees the ones that fit a budget and the ones that it found."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from typing import Annotated, Any, ClassVar, NoReturn, TypeAlias, TypeVar

from toolsemble._engine.context import InvocationParameters, Run
from toolsemble._engine.definition import ToolDefinition
from toolsemble._engine.execution.call import ArgumentsReport, CallPath
from toolsemble._runtime.checks import check_count
from toolsemble._runtime.event_loops import finish
from toolsemble._runtime.lru import LRUCache
from toolsemble._runtime.text import quote_text
from toolsemble._tools.collection import collect_tools
from toolsemble._tools.function import tool
from toolsemble._tools.toolbox.formats import ToolSet
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.errors import ToolDefinitionError, UnknownToolError
from toolsemble._vocabulary.param import Param
from toolsemble._vocabulary.provider_list import PROVIDERS
from toolsemble._vocabulary.result import ToolResult
from toolsemble._vocabulary.specification import ToolSpecification
from toolsemble.catalog._entry import Count, Entry, Meter, estimate_tokens, write_line
from toolsemble.catalog._search import Index
from toolsemble.catalog._sources import Listing, Sources, check_patterns, matches, read_patterns
from toolsemble.catalog._token_budget import Explanation, Offer, Plan, explain_plan, group_tools, make_plan, name_groups
from toolsemble.models._message import Message, ToolMessage, Transcript, list_messages

FIND_TOOLS = "find_tools"
"""The name of the tool that searches a catalog."""
MOST_FOUND = 20
"""The maximum number of results of a search, whatever a model requests."""
_LONGEST_QUERY = 80
_MOST_NEAR = 3
_IN_VAIN = "Say in other words what the tool should do, or go on without one."
_ATTRIBUTE = "found"
_BEGIN = "- "
_LINE = re.compile(rf"^{_BEGIN}([a-zA-Z0-9_-]{{1,64}})\(", re.MULTILINE)


Search: TypeAlias = Callable[[str, int], Sequence[Entry]]
"""Returns tools for a query, best first, up to a limit."""


def make_find_tools(search: Search, find_nearest: Search, groups: Sequence[str], limit: int) -> Entry:
    """Return the tool ``find_tools``.

    :param search: returns the tools that match a query
    :param find_nearest: returns tools that share words with it, relevant or not
    :param groups: the names of the groups of tools
    :param limit: the number of search results if the model does not say it

    >>> none = lambda query, limit: []
    >>> make_find_tools(none, none, ["crm"], 5).definition.description
    'Find further tools by what they do, and load them, so that they can be called. There are tools for: crm.'
    """
    systems = f" There are tools for: {', '.join(groups)}." if groups else ""
    described = f"Find further tools by what they do, and load them, so that they can be called.{systems}"

    @tool(FIND_TOOLS, described, effects="read")
    def find_tools(
        query: Annotated[str, Param("What the tool should do, in a few words, without names and values")],
        limit: Annotated[int, Param("The most tools to find")] = limit,
    ) -> ToolResult:
        found = search(query, max(1, min(limit, MOST_FOUND)))
        return _write_found(found) if found else _write_miss(query, find_nearest(query, _MOST_NEAR), groups)

    ((found, definition),) = collect_tools(find_tools)
    return Entry(found, definition)


def _write_found(found: Sequence[Entry]) -> ToolResult:
    names = [each.name for each in found]
    several = f"{len(found)} tools are loaded now; call by name the one that fits:"
    head = "1 tool is loaded now; call it by name:" if len(found) == 1 else several
    text = "\n".join([head, *(f"{_BEGIN}{write_line(each.specification())}" for each in found)])
    return ToolResult.success(text, names, attributes={_ATTRIBUTE: names})


def _write_miss(query: str, nearest: Sequence[Entry], groups: Sequence[str]) -> ToolResult:
    """Return the reply when no tool matches; it suggests names, because a model gives up after an empty result."""
    there = f" There are tools for: {', '.join(groups)}." if groups else ""
    names = ", ".join(each.name for each in nearest)
    near = f" Nearest by words: {names}; to load one, search for its name." if names else ""
    text = f"No tool fits {quote_text(query, _LONGEST_QUERY)}.{there}{near} {_IN_VAIN}"
    return ToolResult.success(text, [], attributes={_ATTRIBUTE: []})


@dataclass(frozen=True, slots=True)
class Found:
    """The tools that a conversation has found or called."""

    names: tuple[str, ...]
    """Their names, in the order of first mention, including names invented by a model."""
    existed: frozenset[str]
    """The names that belonged to tools when they were mentioned."""


def read_found(messages: Iterable[Message]) -> Found:
    """Return the tools that a conversation has found or called."""
    names: dict[str, bool] = {}
    for message in messages:
        if isinstance(message, ToolMessage):
            exists = not message.reply.is_error
            if message.call.name != FIND_TOOLS:
                names[message.call.name] = names.get(message.call.name, False) or exists
            elif exists:
                names |= dict.fromkeys(_read_names(message.reply.result), True)
    return Found(tuple(names), frozenset(name for name, exists in names.items() if exists))


def _read_names(result: ToolResult) -> list[str]:
    """Return the names of the tools that a search found, from its attributes.

    From its text if it has none: in conversations that older versions stored, or that came in another format. The
    search writes a line for each tool, and nothing that a tool says of itself can begin a line.
    """
    found = result.attributes.get(_ATTRIBUTE)
    if isinstance(found, (list, tuple)):
        return [name for name in found if isinstance(name, str)]
    return _LINE.findall(result.output)


Rank: TypeAlias = Callable[[str, list[ToolSpecification]], Iterable[str]]
"""Returns the names of the tools that fit a query, best first."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a catalog."""

    always: tuple[str, ...]
    """Names or patterns of the always visible tools."""
    budget: int | None
    """The maximum tokens of all definitions together; None: no limit."""
    limit: int
    """The default number of search results."""
    rank: Rank | None
    """Ranks the tools; None: use the index."""
    meter: Meter
    """Counts the tokens of definitions."""
    is_fixed: bool
    """Whether the tools never change."""


class Snapshot:
    """The tools of a catalog at one moment; derived values are computed on first use."""

    def __init__(self, listings: Sequence[Listing], settings: Settings) -> None:
        self._listings = listings  # kept, so that their ids are not reused
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
                f"The name '{FIND_TOOLS}' is reserved for the search of a catalog; rename the tool. A Catalog in a "
                "Catalog has one, too: pass its tools instead"
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
        """The names of the groups, as shown to a model."""
        if self._group_names is None:
            self._group_names = tuple(name_groups(self.groups))
        return self._group_names

    @property
    def always(self) -> list[Entry]:
        """The always visible tools."""
        return [each for each in self.entries.values() if matches(each.name, self._settings.always)]

    @property
    def plan(self) -> Plan:
        """The tools that a model sees before any search."""
        if self._plan is None:
            settings, search = self._settings, self.search_tool(self.group_names)
            self._plan = make_plan(list(self.entries.values()), self.always, search, settings.budget, settings.meter)
        return self._plan

    def search_tool(self, groups: tuple[str, ...]) -> Entry:
        """Return the tool that searches these tools; its description names some groups."""
        if groups not in self._searches:
            self._searches[groups] = make_find_tools(self.search, self.find_nearest, groups, self._settings.limit)
        return self._searches[groups]

    def search(self, query: str, limit: int) -> list[Entry]:
        """Return the tools that fit a query, best first."""
        if self._settings.rank is not None:
            return self._rank(self._settings.rank, query, limit)
        return self._pick(self._make_index().search(query, limit))

    def find_nearest(self, query: str, limit: int) -> list[Entry]:
        """Return the tools that share words with a query, relevant or not; none with a custom ranking."""
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


class CatalogBox(Toolbox):
    """A toolbox with some tools of a catalog. A call of any other tool loads it instead of running it.

    :param snapshot: the tools of the catalog
    :param offer: the tools visible to the model
    :param search: the tool that searches the catalog
    :param gone: the names of found tools that no longer exist
    :param settings: the toolbox settings
    """

    __slots__ = ("_gone", "_snapshot")

    def __init__(self, snapshot: Snapshot, offer: Offer, search: Entry, gone: Collection[str], **settings: Any) -> None:
        self._snapshot = snapshot
        self._gone = frozenset(gone)
        known = {**snapshot.entries, FIND_TOOLS: search}
        # A tool set keeps its definitions.
        super().__init__([ToolSet({name: known[name].register(cuts) for name, cuts in offer})], **settings)

    def definitions(self) -> Iterable[ToolDefinition]:
        """Return the definitions of all tools in the catalog, so that errors are found before a tool is loaded."""
        shown = super().definitions()
        return [*shown, *(each.definition for name, each in self._snapshot.entries.items() if name not in self)]

    def _refuse(self, call: ToolCall, report: ArgumentsReport | None, run: Run) -> CallPath:
        from toolsemble._tools.toolbox.unknown import refused_path, unknown_path

        shown = list(super().definitions())
        # A call with a misspelled name may contain any tool's secrets.
        tools = [*shown, *(each for each in self.definitions() if each.secret and each.name not in self)]
        if call.name in self._snapshot.entries:
            definition = _refuse_hidden(self._snapshot.entries[call.name])
        elif call.name in self._gone:
            definition = _refuse_with(call.name, f"The tool '{call.name}' is no longer available")
        else:
            members = [each.tool for each in self._snapshot.entries.values()]
            return unknown_path(call, self._context, run, tools, self._settings, report, members)
        return refused_path(call, definition, self._context, run, tools, self._settings, report)


def _refuse_hidden(entry: Entry) -> ToolDefinition:
    """Return a definition that tells the model how to call a tool that it has not seen yet."""
    line = write_line(entry.specification())
    told = f"'{entry.name}' was not loaded, so it was not run; it is loaded now, call it again: {line}"
    return _refuse_with(entry.name, told)


def _refuse_with(name: str, message: str) -> ToolDefinition:
    def refuse(*_: object) -> NoReturn:
        raise UnknownToolError(message)

    return ToolDefinition(name, "", body=refuse, decode=refuse, accept=refuse)


T = TypeVar("T")

_MOST_BOXES = 64
_MOST_RUNS = 256
_MOST_SNAPSHOTS = 32


@dataclass(frozen=True, slots=True)
class LoopView:
    """The state of a custom loop for functions of the run, with the fields of a RunView."""

    messages: Sequence[Message] = ()
    """The conversation so far."""
    memory_id: str = "default"
    """The id of the conversation or user."""
    deps: Any = None
    """The dependencies of the run."""
    parameters: InvocationParameters = field(default_factory=InvocationParameters)
    """The parameters shared by the run's tools."""
    run_id: str = ""
    """The id of the run; "" if it has none."""
    turn: int = 0
    """The number of the model's replies so far."""
    role: str = ""
    """The role of the agent."""


class Catalog:
    """Any number of tools, of which a model sees only the ones that it needs; for an agent or a custom loop.

    While all definitions together fit the budget, a model sees all tools. Above it, definitions are shortened; if that
    is not enough, tools are hidden, and the model finds them with a tool ``find_tools``. Found tools are read from the
    conversation, so a stored conversation continues with the same tools. Calls are always validated against the full
    schema.

    >>> from toolsemble import tool
    >>> @tool
    ... def close_ticket(number: int) -> str:
    ...     '''Close a ticket of the help desk.'''
    ...     return "closed"
    >>> @tool
    ... def forecast(city: str) -> str:
    ...     '''The weather in a city.'''
    ...     return "sunny"
    >>> catalog = Catalog([close_ticket, forecast], budget=120)
    >>> catalog.box().names
    ['find_tools']
    >>> [each.name for each in catalog.search("close a ticket")]
    ['close_ticket']

    :param tools: tools, toolboxes, MCP clients, and functions from a :class:`~toolsemble.agent.RunView` to tools, which
        are called before each turn; a :class:`~toolsemble.catalog.Source` caches its function's result for a while
    :param always: names or patterns of tools that are never hidden
    :param budget: the maximum tokens of all definitions together; None: no limit
    :param limit: the number of search results
    :param rank: a function ``(query, specifications)`` that returns the names of relevant tools, best first, instead of
        this class's ranking
    :param count: a function that returns the token count of a text; default: an estimate
    :param include: names or patterns of the tools to include; None: all
    :param exclude: names or patterns of the tools to exclude
    :param provider: the provider whose format is used for counting tokens
    """

    lists_all: ClassVar[bool] = True
    """Its toolboxes have the definitions of all its tools, including hidden ones."""

    def __init__(  # noqa: PLR0913 - keyword settings, each with a default
        self,
        tools: Iterable[object] | Callable[[Any], Any],
        *,
        always: Iterable[str] = (),
        budget: int | None = None,
        limit: int = 5,
        rank: Rank | None = None,
        count: Count | None = None,
        include: Iterable[str] | None = None,
        exclude: Iterable[str] = (),
        provider: str = "openai",
    ) -> None:
        if budget is not None:
            check_count("Catalog budget", budget, least=1)
        check_count("Catalog limit", limit, least=1)
        _check_callable("rank", rank)
        _check_callable("count", count)
        self._sources = Sources(tools, include, exclude)
        meter = Meter(provider, estimate_tokens if count is None else count)
        self._settings = Settings(read_patterns("always", always), budget, limit, rank, meter, self._sources.is_fixed)
        self._snapshots: LRUCache[Snapshot] = LRUCache(_MOST_SNAPSHOTS)
        self._boxes: LRUCache[CatalogBox] = LRUCache(_MOST_BOXES)
        self._runs: LRUCache[tuple[Offer, tuple[str, ...]]] = LRUCache(_MOST_RUNS)
        if self._sources.is_fixed:
            _ = _finish(self._find(LoopView())).plan  # report an impossible budget now

    def __call__(self, run: Any) -> Toolbox | Awaitable[Toolbox]:
        """Return the tools for a run's next turn; an :class:`~toolsemble.Agent` calls this before each turn.

        :param run: a :class:`~toolsemble.agent.RunView`
        """
        finding = self._find(run)
        try:
            waiting = next(finding)
        except StopIteration as found:
            return self._offer(found.value, run)
        return self._offer_later(finding, waiting, run)

    async def _offer_later(self, finding: Generator[Any, Any, Snapshot], waiting: Any, run: Any) -> Toolbox:
        """Await the async functions of the run."""
        return self._offer(await _afinish(finding, waiting), run)

    def box(
        self,
        messages: Iterable[Message] = (),
        *,
        deps: Any = None,
        parameters: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Toolbox:
        """Return the toolbox for the next turn of a custom loop.

        It is rebuilt for each turn, from the conversation so far.

        :param messages: the conversation so far, with a reply to each call
        :param deps: passed to functions of the run
        :param parameters: likewise
        :param settings: settings of the :class:`~toolsemble.Toolbox`

        >>> Catalog([], budget=1_000).box([], memory_id="ada").names
        []
        """
        listed = list_messages("catalog.box", messages)
        memory_id = settings.get("memory_id", "default")
        view = LoopView(Transcript(listed), memory_id, deps, InvocationParameters(dict(parameters or {})))
        snapshot = _finish(self._find(view, reviewed=settings.get("review") is None))
        found = read_found(listed)
        offer, gone = self._choose(snapshot, found), _find_gone(snapshot, found)
        return CatalogBox(snapshot, offer, snapshot.search_tool(snapshot.group_names), gone, **settings)

    def search(self, query: str, limit: int | None = None, *, run: Any = None) -> list[ToolSpecification]:
        """Return the tools that match a query, best first; an empty list if none does.

        :param limit: the maximum number of tools; None: the catalog's limit
        :param run: a :class:`~toolsemble.agent.RunView` for functions of the run
        """
        if not isinstance(query, str):
            raise TypeError(f"catalog.search takes a str, not {query!r:.80}")
        if limit is not None:
            check_count("catalog.search limit", limit, least=1)
        snapshot = self._find_for(run)
        return [
            each.specification() for each in snapshot.search(query, self._settings.limit if limit is None else limit)
        ]

    @property
    def groups(self) -> dict[str, list[str]]:
        """The tool names by group: their server or source, else a common name prefix.

        >>> from toolsemble.builtin import CalculatorTool
        >>> Catalog([CalculatorTool()]).groups
        {'other': ['calculator']}
        """
        return {group: list(names) for group, names in self._find_for(None).groups.items()}

    def explain(self, *, providers: Iterable[str] = tuple(PROVIDERS), run: Any = None) -> Explanation:
        """Return what was shortened or hidden to fit the budget, and each tool's token cost.

        :param providers: the provider or providers to count tokens for
        :param run: a :class:`~toolsemble.agent.RunView` for functions of the run

        >>> from toolsemble.builtin import CalculatorTool
        >>> Catalog([CalculatorTool()], budget=1_000).explain().hidden
        []
        """
        named = (providers,) if isinstance(providers, str) else tuple(providers)
        snapshot = self._find_for(run)
        settings, groups = self._settings, snapshot.groups
        return explain_plan(snapshot.plan, snapshot.entries, groups, settings.budget, settings.meter, named)

    def _find_for(self, run: Any) -> Snapshot:
        return _finish(self._find(LoopView() if run is None else run))

    def _find(self, run: Any, *, reviewed: bool = True) -> Generator[Awaitable[Any], Any, Snapshot]:
        """Return a run's tools; the same object while the sources return the same tools."""
        listings = yield from self._sources.find(run, reviewed=reviewed)
        key = tuple(map(id, listings))
        return self._snapshots.get(key) or self._snapshots.keep(key, Snapshot(listings, self._settings))

    def _offer(self, snapshot: Snapshot, run: Any) -> Toolbox:
        found = read_found(run.messages)
        offer, groups = self._choose(snapshot, found), snapshot.group_names
        if not self._sources.is_fixed:
            offer, groups = self._extend(run.run_id, snapshot, offer, groups)
        gone = _find_gone(snapshot, found)
        key = (snapshot, offer, groups, gone, run.role)
        box = self._boxes.get(key)
        if box is None:
            box = CatalogBox(snapshot, offer, snapshot.search_tool(groups), gone, agent_role=run.role or "unknown")
        return self._boxes.keep(key, box)

    def _choose(self, snapshot: Snapshot, found: Found) -> Offer:
        known = [snapshot.entries[name] for name in found.names if name in snapshot.entries]
        return snapshot.plan.offer(known, self._settings.meter)

    def _extend(
        self, run_id: str, snapshot: Snapshot, offer: Offer, groups: tuple[str, ...]
    ) -> tuple[Offer, tuple[str, ...]]:
        """Return the offer, starting with the run's earlier offer, so that changed sources do not change the order."""
        before = self._runs.get(run_id)
        if before is not None:
            kept = {name: cuts for name, cuts in before[0] if name in snapshot.entries or name == FIND_TOOLS}
            offer, groups = tuple((kept | dict(offer) | kept).items()), before[1]
        return self._runs.keep(run_id, (offer, groups))

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A Catalog cannot be pickled or deep-copied: it has locks and the connections of its sources; make the "
            "catalog where it is used"
        )

    def __repr__(self) -> str:
        budget = "no budget" if self._settings.budget is None else f"budget {self._settings.budget}"
        return f"<Catalog, {budget}>"


def _find_gone(snapshot: Snapshot, found: Found) -> frozenset[str]:
    """Return the names of found tools that no longer exist."""
    return frozenset(name for name in found.existed if name not in snapshot.entries)


def _check_callable(setting: str, value: object) -> None:
    if value is not None and (isinstance(value, type) or not callable(value)):
        raise ToolDefinitionError(f"Catalog {setting} must be a function, not {value!r:.80}")
    if iscoroutinefunction(value):
        raise ToolDefinitionError(f"Catalog {setting} must not be async: it is called in the thread of the search")


def _finish(finding: Generator[Awaitable[Any], Any, T]) -> T:
    """Return a generator's result, blocking on each yielded wait."""
    try:
        waiting = next(finding)
    except StopIteration as found:
        return found.value  # type: ignore[no-any-return]  # the generator's type says so, StopIteration's does not
    return finish(_afinish(finding, waiting))


async def _afinish(finding: Generator[Awaitable[Any], Any, T], waiting: Awaitable[Any]) -> T:
    """Return a generator's result, awaiting each yielded awaitable."""
    try:
        while True:
            try:
                awaited = await waiting
            except Exception as error:  # its message names the source of the tools
                waiting = finding.throw(error)
            else:
                waiting = finding.send(awaited)
    except StopIteration as found:
        return found.value  # type: ignore[no-any-return]  # as above
