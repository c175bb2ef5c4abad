"""A checked set of tools, and the place where their calls are executed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import Executor
from copy import copy
from dataclasses import replace
from functools import partial
from importlib import import_module  # provider modules are loaded when they are used
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, TypeAlias, get_args

from toolsemble.caching import Cache
from toolsemble.call import ToolCall, ToolReply, new_id
from toolsemble.collection import collected
from toolsemble.context import SILENT, Exposure, InvocationParameters, ToolContext, current_context
from toolsemble.definition import ReturnBehavior, ToolDefinition, dried, mapped
from toolsemble.errors import ToolArgumentsError, ToolConfigurationError, ToolDefinitionError
from toolsemble.hooks import AfterCall, BeforeCall, Sent, hooks_of, nested
from toolsemble.metrics import SilentMetrics, ToolMetrics
from toolsemble.number import check_count
from toolsemble.pages import Book, Pages, Reader
from toolsemble.policy import Layer, Policy
from toolsemble.preview import preview
from toolsemble.rate import RateLimit
from toolsemble.record import LOG_LIMIT, TRACE
from toolsemble.result import ToolResult
from toolsemble.retrying import Retries
from toolsemble.review import OnTimeout, ReviewHandler
from toolsemble.review.gate import OuterGate, Predicate, outer_gate
from toolsemble.review.request import TIMEOUT
from toolsemble.runner import CallPath, Walk, adrive, call_path, drive
from toolsemble.schema.repair import STEPS
from toolsemble.settings import BoxLimits
from toolsemble.shape import described
from toolsemble.sinks import Sink, sinks_of
from toolsemble.specification import ToolSpecification
from toolsemble.table import Seats
from toolsemble.turn import Turn
from toolsemble.workers import THREADS, ContextThreadPool, finish

if TYPE_CHECKING:
    from toolsemble.effects import EffectLedger

_POOL_THREADS = 256
_NAMES_SHOWN = 50
_LONGEST_NAME = 64
_UNKNOWN = "(unknown)"  # no tool can have this name, and a model cannot fill the metrics with names of its own


_Run: TypeAlias = dict[str, Any]  # the fields of a context that the calls of one turn share


class Toolbox:
    """A checked, immutable set of tools; its calls are executed one by one or side by side.

    Bad definitions are refused while it is built, every one of them at once. It is safe to share between
    threads and event loops.

    >>> from toolsemble import Tool
    >>> class Shout(Tool):
    ...     name = "shout"
    ...     description = "Says it louder"
    ...     def run(self, input: str) -> str:
    ...         return input.upper()
    >>> box = Toolbox([Shout()])
    >>> box.execute(ToolCall("shout", '{"input": "hello"}')).text
    'HELLO'
    >>> box.execute(ToolCall("shuot")).text
    "Error: Unknown tool 'shuot'. Available tools: shout. Did you mean 'shout'?"
    """

    __slots__ = (
        "_book",
        "_context",
        "_entries",
        "_max_output",
        "_sinks",
        "_specifications",
        "_walk",
    )

    def __init__(  # noqa: PLR0913 - settings by keyword, each with a default
        self,
        tools: Iterable[object],
        *,
        review: ReviewHandler | None = None,
        approve: Iterable[str] | Predicate | None = None,
        approval_timeout: float | None = TIMEOUT,
        approval_on_timeout: OnTimeout = OnTimeout.EXIT_EARLY,
        approval_role: str | None = None,
        metrics: ToolMetrics | None = None,
        executor: Executor | None = None,
        memory_id: str = "default",
        agent_role: str = "unknown",
        max_concurrency: int | None = None,
        max_output: int | None = None,
        timeout: float | None = None,
        retries: int | Retries = 0,
        rate_limit: RateLimit | None = None,
        cache: Cache | float | bool | None = None,
        ledger: EffectLedger | None = None,
        pages: bool | Pages = False,
        repair: bool | Iterable[str] = True,
        log_limit: int = LOG_LIMIT,
        expose_errors: Exposure = "all",
        before_call: BeforeCall | None = None,
        after_call: AfterCall | None = None,
        sinks: Iterable[Sink] = (),
    ) -> None:
        """Check the tools and take down the settings.

        :param tools: tool objects, in the order in which models are to see them
        :param review: who approves calls that need it
        :param approve: which tools need approval beside those that say so themselves: names, patterns of names such as
            ``"delete_*"``, or a predicate ``(arguments, context)``
        :param approval_timeout: how many seconds the reviewer of those has; 0 or None for any number
        :param approval_on_timeout: what becomes of their calls when nobody answers in time
        :param approval_role: the role that their reviewer must have
        :param metrics: where calls are counted
        :param executor: where blocking tools run beside each other; by default up to 256 threads of the box's own
        :param memory_id: the conversation or user that calls belong to, unless a call says otherwise
        :param agent_role: the role of the agent whose tools these are
        :param max_concurrency: how many bodies may run at the same time; calls made inside a call are not counted
        :param max_output: how many characters of a result the model gets
        :param timeout: how many seconds a call may take after its approval, where its tool says nothing of it; bodies
            that are sync and inline cannot be held to it
        :param retries: how often a call that failed is made again, or a :class:`Retries` that says more; for tools that
            may be repeated, and say nothing of it
        :param rate_limit: how many calls of all its tools together there may be in some time
        :param cache: whether results of tools that only read, and say nothing of it, are kept and given again: how many
            seconds, True for any number, or a :class:`Cache`
        :param ledger: where calls of tools with ``idempotency`` are taken down that name no ledger themselves
        :param pages: whether models can read the rest of results that were cut, page by page, with a tool
            ``read_more``; or a :class:`Pages` that says more
        :param repair: whether arguments that nearly fit are repaired; or the steps that are allowed, out of "text",
            "nested", "null", "coerce", "keys" and "extra"
        :param log_limit: how many characters of input and output a log line shows
        :param expose_errors: which errors the model is told in their own words: "all", or only those that are
            "declared" to be meant for it: ToolArgumentsError, ToolExecutionError and failures that tools return
        :param before_call: a function ``(call, context)``, sync or async, that is asked before each call is read: it
            gives None, a :class:`ToolCall` with other arguments, or a :class:`ToolResult` as the answer
        :param after_call: a function ``(call, result, context)``, sync or async, that is asked when there is a result:
            it gives None, or another :class:`ToolResult`
        :param sinks: who is told of events: functions that take one, or objects with a method ``emit`` that does
        """
        counts = {"max_concurrency": (max_concurrency, 1), "max_output": (max_output, 0), "log_limit": (log_limit, 0)}
        for setting, (value, least) in counts.items():
            if value is not None:
                check_count(f"Toolbox {setting}", value, least=least)
        _check_methods("executor", executor, "submit")
        _check_methods("metrics", metrics, *(name for name in vars(SilentMetrics) if not name.startswith("_")))
        self._context = ToolContext(
            memory_id=memory_id,
            agent_role=agent_role,
            metrics=SILENT if metrics is None else metrics,
            executor=THREADS if executor is None else executor,
            review=review,
            expose_errors=_checked_exposure(expose_errors),
        )
        gate = outer_gate(approve, approval_timeout, approval_on_timeout, approval_role)
        limits = BoxLimits.of(timeout, retries, rate_limit, cache, ledger)
        self._max_output = max_output
        sources, definitions = zip(*gated, strict=True) if (gated := _gated(_collected(tools), gate)) else ((), ())
        self._entries = {
            each.name: self._entry(tool, each) for tool, each in zip(sources, limits.given_to(definitions), strict=True)
        }
        self._book = self._offered(Pages.of(pages))
        # Bodies have a pool of their own, so that work which they submit and wait for never queues behind them.
        workers = ContextThreadPool(_POOL_THREADS) if executor is None else executor
        slots = None if max_concurrency is None else Seats(max_concurrency, box=True)
        self._walk = Walk(_steps(repair), slots, workers, log_limit, hooks_of(before_call, after_call))
        self._sinks = sinks_of("Toolbox", sinks)
        self._specifications: tuple[ToolSpecification, ...] | None = None

    @property
    def specifications(self) -> list[ToolSpecification]:
        """What models are shown, in registration order; built on first use."""
        if self._specifications is None:
            self._specifications = tuple(_specified(entry.definition) for entry in self._entries.values())
        return list(self._specifications)

    @property
    def names(self) -> list[str]:
        """The names of the tools, in registration order."""
        return list(self._entries)

    def return_behavior(self, name: str) -> ReturnBehavior:
        """Give who gets the result of a tool; of one that is not there, the model does.

        >>> Toolbox([]).return_behavior("nothing").name
        'TO_LLM'
        """
        entry = self._entries.get(name)
        return ReturnBehavior.TO_LLM if entry is None else entry.definition.return_behavior

    def is_polling(self, name: str) -> bool:
        """Whether the same call of a tool is meant to be made again and again.

        >>> Toolbox([]).is_polling("nothing")
        False
        """
        entry = self._entries.get(name)
        return entry is not None and entry.definition.policy is not None and entry.definition.policy.polling

    def execute(
        self,
        call: ToolCall,
        *,
        memory_id: str | None = None,
        parameters: MutableMapping[str, Any] | None = None,
        run_id: str | None = None,
        dry_run: bool = False,
    ) -> ToolReply:
        """Give the reply to one call, running a blocking tool in this thread.

        It raises only :class:`ToolConfigurationError`, :class:`ExitEarlyError` and what is no ``Exception``.

        :param memory_id: the conversation or user that the call belongs to; the box's own by default
        :param parameters: what the tools of the run share; the model never sees it
        :param run_id: the run that the call belongs to; a new one by default
        :param dry_run: whether the call is only read, checked, put to the reviewer and recorded, and no body runs
        """
        return self._reply(call, self._run(memory_id, parameters, run_id), dry_run=dry_run)

    async def aexecute(
        self,
        call: ToolCall,
        *,
        memory_id: str | None = None,
        parameters: MutableMapping[str, Any] | None = None,
        run_id: str | None = None,
        dry_run: bool = False,
    ) -> ToolReply:
        """Give the reply to one call, awaiting an async tool in place and running a blocking one in a worker."""
        return await self._areply(call, self._run(memory_id, parameters, run_id), dry_run=dry_run)

    def execute_all(
        self,
        calls: Sequence[ToolCall],
        *,
        memory_id: str | None = None,
        parameters: MutableMapping[str, Any] | None = None,
        run_id: str | None = None,
        dry_run: bool = False,
    ) -> list[ToolReply]:
        """Give the replies to the calls of one turn, in request order, running them side by side.

        What :meth:`execute` raises is raised when every call has ended, with the replies that were made in
        ``.replies``.

        >>> from toolsemble import Tool
        >>> class Echo(Tool):
        ...     name = "echo"
        ...     description = "Repeats its input"
        ...     async def run(self, input: str) -> str:
        ...         return input
        >>> calls = [ToolCall("echo", {"input": text}) for text in ("a", "b")]
        >>> [reply.text for reply in Toolbox([Echo()]).execute_all(calls)]
        ['a', 'b']
        """
        run = self._run(memory_id, parameters, run_id)
        with Turn(calls) as turn:
            if len(turn.calls) == 1:
                turn.answer(0, self._reply(turn.calls[0], run, dry_run=dry_run))
            elif turn.calls:
                gathered = turn.gather(lambda call: self._path(call, run, dry_run=dry_run), partial(self._told, run))
                finish(gathered if self._sinks is None else self._sinks.ado(gathered))
        return turn.made()

    async def aexecute_all(
        self,
        calls: Sequence[ToolCall],
        *,
        memory_id: str | None = None,
        parameters: MutableMapping[str, Any] | None = None,
        run_id: str | None = None,
        dry_run: bool = False,
        observe: Callable[[int, ToolReply], None] | None = None,
    ) -> list[ToolReply]:
        """Give the replies to the calls of one turn, in request order, running them side by side.

        Raises as :meth:`execute_all` does; when it is cancelled, the calls are, too.

        :param observe: is told each reply as soon as it is made, with the index of its call
        """
        run = self._run(memory_id, parameters, run_id)
        with Turn(calls, observe) as turn:
            if len(turn.calls) == 1:
                turn.answer(0, await self._areply(turn.calls[0], run, dry_run=dry_run))
            elif turn.calls:
                gathered = turn.gather(lambda call: self._path(call, run, dry_run=dry_run), partial(self._told, run))
                await (gathered if self._sinks is None else self._sinks.ado(gathered))
        return turn.made()

    def around(
        self,
        *,
        before_call: BeforeCall | None = None,
        after_call: AfterCall | None = None,
        layer: Callable[[ToolDefinition], Layer | None] | None = None,
    ) -> Toolbox:
        """Give a box of the same tools and settings with something more around each call; this one stays as it is.

        :param before_call: is asked before the hook that the box has
        :param after_call: is asked after the hook that the box has
        :param layer: gives what stands next to the body of a tool, inside of all its limits; also for the tools that
            a tool is made of

        >>> from toolsemble import ToolResult, tool
        >>> @tool
        ... def now() -> str:
        ...     return "noon"
        >>> box = Toolbox([now]).around(before_call=lambda call, context: ToolResult.success("midnight"))
        >>> box.execute(ToolCall("now")).text
        'midnight'
        """
        box = copy(self)
        hooks = nested(hooks_of(before_call, after_call), self._walk.hooks)
        box._walk = self._walk._replace(hooks=hooks)  # noqa: SLF001 - just made
        if layer is not None:
            box._entries = {  # noqa: SLF001 - as above
                name: entry._replace(definition=mapped(entry.definition, lambda part: _layered(part, layer(part))))
                for name, entry in self._entries.items()
            }
        return box

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until the sinks have seen all events, for some seconds or any number; whether they have.

        The end of a call waits for sinks that are quick; this is for the end of a program with slow ones.

        >>> Toolbox([], sinks=[print]).flush(5)
        True
        """
        return self._sinks is None or self._sinks.flush(timeout)

    @property
    def lost_events(self) -> int:
        """How many events no sink was told of, because it was too slow."""
        return 0 if self._sinks is None else self._sinks.lost

    def to_openai(
        self, api: Literal["chat", "responses"] = "chat", *, strict: bool | None = None
    ) -> list[dict[str, Any]]:
        """Give the ``tools`` argument of OpenAI's SDK; ``strict`` stands above what the tools say of themselves.

        >>> from toolsemble import tool
        >>> @tool
        ... def now() -> str:
        ...     '''The time.'''
        ...     return "noon"
        >>> Toolbox([now]).to_openai()[0]["function"]["name"]
        'now'
        """
        return self._written_for("openai", api=api, strict=strict)

    def to_anthropic(self) -> list[dict[str, Any]]:
        """Give the ``tools`` argument of Anthropic's SDK."""
        return self._written_for("anthropic")

    def to_google(self) -> list[dict[str, Any]]:
        """Give the ``tools`` argument of Google Gemini's SDK."""
        return self._written_for("google")

    def to_bedrock(self) -> list[dict[str, Any]]:
        """Give the ``tools`` argument of Amazon Bedrock's SDK."""
        return self._written_for("bedrock")

    def to_mistral(self) -> list[dict[str, Any]]:
        """Give the ``tools`` argument of Mistral's SDK."""
        return self._written_for("mistral")

    def to_ollama(self) -> list[dict[str, Any]]:
        """Give the ``tools`` argument of Ollama's SDK."""
        return self._written_for("ollama")

    def to_mcp(self) -> list[dict[str, Any]]:
        """Give the tools as an MCP server lists them."""
        return self._written_for("mcp")

    def _written_for(self, provider: str, **settings: Any) -> list[dict[str, Any]]:
        module = import_module(f"toolsemble.providers.{provider}")
        try:
            written: list[dict[str, Any]] = module.write_tools(self.specifications, **settings)
        except ValueError as problem:
            raise ToolDefinitionError(f"{provider}: {problem}") from None
        return written

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __getitem__(self, name: str) -> object:
        return self._entries[name].tool

    def __iter__(self) -> Iterator[object]:
        return iter([entry.tool for entry in self._entries.values()])

    def __repr__(self) -> str:
        return f"Toolbox({', '.join(self._entries)})"

    def _reply(self, call: ToolCall, run: _Run, *, dry_run: bool) -> ToolReply:
        path = self._path(call, run, dry_run=dry_run)
        return self._told(run, call, drive(path) if self._sinks is None else self._sinks.do(drive, path))

    async def _areply(self, call: ToolCall, run: _Run, *, dry_run: bool) -> ToolReply:
        path = adrive(self._path(call, run, dry_run=dry_run))
        return self._told(run, call, await (path if self._sinks is None else self._sinks.ado(path)))

    def _told(self, run: _Run, call: ToolCall, result: ToolResult) -> ToolReply:
        """Give the reply with as much of the result as the model gets."""
        entry = self._entries.get(call.name)
        limit = self._max_output if entry is None else entry.limit
        if self._book is None or limit is None or len(result.text) <= limit:
            return ToolReply(call, result, limit)
        named = None if isinstance(run["run_id"], _OwnRun) else run["run_id"]
        reader = Reader(run.get("memory_id", self._context.memory_id), named)
        return ToolReply(call, result, *self._book.keep(result.text, limit, reader))

    def _run(self, memory_id: str | None, parameters: MutableMapping[str, Any] | None, run_id: str | None) -> _Run:
        """Give what the contexts of one turn's calls share; inside another call they belong to its run."""
        outer = current_context()
        if outer is None and parameters is None and memory_id is None:
            return {"parameters": InvocationParameters(), "run_id": run_id or self._new_run()}
        if outer is not None and parameters is None:
            parameters = outer.parameters
        elif not isinstance(parameters, InvocationParameters):
            parameters = InvocationParameters(parameters)
        run: _Run = {"parameters": parameters}
        if outer is not None:
            run |= _inherited(self._context, outer)
        if memory_id is not None:
            run["memory_id"] = memory_id
        if run_id is not None or outer is None:
            run["run_id"] = run_id or self._new_run()
        return run

    def _new_run(self) -> str:
        # Whoever reads pages has to know whether a program named the run.
        return new_id() if self._book is None else _OwnRun(new_id())

    def _path(self, call: ToolCall, run: _Run, *, dry_run: bool) -> CallPath:
        if not isinstance(call, ToolCall):
            raise ToolConfigurationError(f"A toolbox executes ToolCall objects, not {type(call).__name__}")
        entry = self._entries.get(call.name) or self._nobody(call.name)
        context = entry.context.derive({**run, "call_id": call.id or new_id()})
        definition = dried(entry.definition) if dry_run else entry.definition
        read = definition.decode if self._walk.hooks is None else Sent(call, definition.decode)
        return call_path(definition, read, call.json, context, self._walk)

    def _nobody(self, name: str) -> _Entry:
        """Give a tool that stands in for an unknown one: it refuses every call with the names that exist."""

        def refuse(*_: object) -> NoReturn:
            raise ToolArgumentsError(_unknown_tool(name, self.names))

        return self._entry(None, ToolDefinition(_UNKNOWN, "", body=refuse, decode=refuse, accept=refuse))

    def _entry(self, tool: object, definition: ToolDefinition) -> _Entry:
        # Most of a call's context is known beforehand: the fewer fields are set at the call, the faster it is.
        context = self._context.derive({"tool_name": definition.name, "logger": definition.logger})
        own = None if definition.policy is None else definition.policy.max_output
        limits = [limit for limit in (own, self._max_output) if limit is not None]
        return _Entry(tool, definition, context, min(limits, default=None))

    def _offered(self, pages: Pages | None) -> Book | None:
        """Add the tool that gives pages, and give the book that it reads from."""
        if pages is None:
            return None
        if all(entry.limit is None for entry in self._entries.values()):
            raise ToolDefinitionError("Toolbox pages are for results that are cut: give max_output, too")
        if pages.name in self._entries:
            raise ToolDefinitionError(
                f"Toolbox pages: there is a tool '{pages.name}' already; say another name: pages=Pages(name=...)"
            )
        book = Book(pages)
        tool = book.tool()
        ((_, definition),) = collected(tool)
        self._entries[pages.name] = self._entry(tool, definition)._replace(limit=None)
        return book


class _OwnRun(str):
    """The id of a run that nobody named."""

    __slots__ = ()


class _Entry(NamedTuple):
    """One tool of the box, with what can be known of its calls."""

    tool: object
    definition: ToolDefinition
    context: ToolContext
    limit: int | None
    """How many characters of a result the model gets; None for all."""


def _collected(tools: Iterable[object]) -> list[tuple[object, ToolDefinition]]:
    """Give the tools with their definitions, or refuse the list with everything that is wrong in it."""
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Iterable):
        raise ToolDefinitionError(f"A toolbox takes a list of tools, not {type(tools).__name__}: write Toolbox([...])")
    found: dict[str, tuple[object, ToolDefinition]] = {}
    problems: list[str] = []
    for index, source in enumerate(tools):
        try:
            defined = _defined(index, source)
        except ToolDefinitionError as problem:
            problems.append(str(problem))
            continue
        for tool, definition in defined:
            if definition.name in found:
                problems.append(f"Duplicate tool name: '{definition.name}'")
            found[definition.name] = tool, definition
    if problems:
        raise ToolDefinitionError("\n".join(dict.fromkeys(problems)))
    return list(found.values())


def _gated(tools: list[tuple[object, ToolDefinition]], outer: OuterGate | None) -> list[tuple[object, ToolDefinition]]:
    """Give the tools with the gate that the box puts before them."""
    if outer is None:
        return tools
    outer.check([name for _, definition in tools for name in _names_in(definition)])
    # Also before the steps of a pipeline: a tool that needs approval must not get around it by standing in one.
    return [
        (tool, mapped(each, lambda part: replace(part, gate=outer.around(part.name, part.gate))))
        for tool, each in tools
    ]


def _layered(definition: ToolDefinition, layer: Layer | None) -> ToolDefinition:
    if layer is None:
        return definition
    policy = definition.policy or Policy()
    return replace(definition, policy=replace(policy, layers=(layer, *policy.layers)))


def _names_in(definition: ToolDefinition) -> list[str]:
    parts = () if definition.flow is None else definition.flow.tools()
    return [definition.name, *(name for part in parts for name in _names_in(part))]


def _defined(index: int, source: object) -> list[tuple[object, ToolDefinition]]:
    if source is None:
        raise ToolDefinitionError(f"Tool at index {index} is None; pass a tool object")
    if isinstance(source, type):
        name = source.__name__
        raise ToolDefinitionError(f"Tool at index {index} ({name}) is a class; pass an instance: {name}(...)")
    place = f"Tool at index {index} ({type(source).__name__})"
    try:
        defined = collected(source)
    except Exception as problem:
        # A property of somebody else's object can raise anything.
        raise ToolDefinitionError(f"{place}: {described(problem)}") from problem
    if not defined:
        raise ToolDefinitionError(f"{place} is neither an AgentTool nor has @tool methods")
    return defined


def _specified(definition: ToolDefinition) -> ToolSpecification:
    specification = definition.specification()
    if definition.logger.isEnabledFor(TRACE):
        definition.logger.log(TRACE, "%s", specification.to_json())
    return specification


def _unknown_tool(name: str, known: list[str]) -> str:
    import difflib  # noqa: PLC0415 - only a model's mistake comes here

    shown = ", ".join(known[:_NAMES_SHOWN]) or "none"
    more = f" and {len(known) - _NAMES_SHOWN} more" if len(known) > _NAMES_SHOWN else ""
    # Comparing is quadratic in the length, and a name longer than any tool's is near to none.
    folded = {each.casefold(): each for each in reversed(known)}
    near = difflib.get_close_matches(name.casefold(), folded, n=1) if len(name) <= _LONGEST_NAME else []
    hint = f". Did you mean '{folded[near[0]]}'?" if near else ""
    return f"Unknown tool '{preview(name, _LONGEST_NAME)}'. Available tools: {shown}{more}{hint}"


def _check_methods(setting: str, value: object, *methods: str) -> None:
    missing = [name for name in methods if not callable(getattr(value, name, None))]
    if value is not None and missing:
        raise ToolDefinitionError(f"Toolbox {setting} has no method {missing[0]!r}: {value!r:.80}")


def _checked_exposure(said: Any) -> Exposure:
    if said not in get_args(Exposure):
        raise ToolDefinitionError(f"Toolbox expose_errors must be 'all' or 'declared', not {said!r:.80}")
    exposure: Exposure = said
    return exposure


def _steps(repair: Any) -> frozenset[str]:
    if isinstance(repair, bool):
        return STEPS if repair else frozenset()
    steps = frozenset([repair] if isinstance(repair, str) else repair)
    if unknown := sorted(steps - STEPS):
        raise ToolDefinitionError(f"Toolbox repair: unknown step {unknown[0]!r}; known are {', '.join(sorted(STEPS))}")
    return steps


def _inherited(own: ToolContext, outer: ToolContext) -> _Run:
    """Give what a call inside another call takes over from it, where the box says nothing of its own."""
    run: _Run = {"run_id": outer.run_id, "deadline": outer.deadline, "parent_id": outer.call_id}
    if outer.expose_errors == "declared":
        run["expose_errors"] = "declared"  # what is hidden around it stays hidden
    if own.memory_id == _DEFAULTS.memory_id:
        run["memory_id"] = outer.memory_id
    if own.agent_role == _DEFAULTS.agent_role:
        run["agent_role"] = outer.agent_role
    if own.review is None:
        run["review"] = outer.review
    return run


_DEFAULTS = ToolContext()
