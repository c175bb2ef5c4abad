"""A checked set of tools, and the place where their calls are executed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from concurrent.futures import Executor
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from toolsemble.call import ToolCall, ToolReply, new_id
from toolsemble.context import Exposure, ToolContext
from toolsemble.definition.definition import Names, ToolDefinition, map_definition, to_dry_run
from toolsemble.definition.policy import Layer, Policy
from toolsemble.errors import ToolConfigurationError, ToolDefinitionError
from toolsemble.execution.drivers import adrive, drive
from toolsemble.execution.hooks import AfterCall, BeforeCall, Sent, hooks_of, nested
from toolsemble.execution.path import Call, CallPath, Walk, call_path
from toolsemble.limits.cache import Cache
from toolsemble.limits.declared import BoxLimits
from toolsemble.limits.rate import RateLimit
from toolsemble.limits.retries import Retries
from toolsemble.locks.claims import Seats
from toolsemble.metrics import ToolMetrics
from toolsemble.observers.sinks import Sink, sinks_of
from toolsemble.record import LOG_LIMIT
from toolsemble.result import ToolResult
from toolsemble.review import OnTimeout, ReviewHandler
from toolsemble.review.gate import Predicate, outer_gate
from toolsemble.review.inherited import InheritedGate, gate_within
from toolsemble.review.request import TIMEOUT
from toolsemble.runtime.checks import check_count
from toolsemble.runtime.concurrency import ContextThreadPool, finish
from toolsemble.toolbox.formats import ToolSet
from toolsemble.toolbox.pages import Pages, PageStore, Reader
from toolsemble.toolbox.registry import names_in, register_tool, register_tools, unknown_tool
from toolsemble.toolbox.run import Run, UnnamedRunId, new_unnamed_run, run_of
from toolsemble.toolbox.settings import check_counts, context_of, repair_steps
from toolsemble.toolbox.turn import Turn
from toolsemble.tools.collection import collect_tools

if TYPE_CHECKING:
    from toolsemble.limits.ledger import EffectLedger

_POOL_THREADS = 256


class Toolbox(ToolSet):
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

    __slots__ = ("_book", "_context", "_cuts", "_max_output", "_new_run", "_sinks", "_walk")

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
        check_counts(max_concurrency=(max_concurrency, 1), max_output=(max_output, 0))
        check_count("Toolbox log_limit", log_limit, least=0)
        self._context = context_of(
            memory_id=memory_id,
            agent_role=agent_role,
            metrics=metrics,
            executor=executor,
            review=review,
            expose_errors=expose_errors,
        )
        gate = outer_gate(approve, approval_timeout, approval_on_timeout, approval_role)
        if gate is not None:
            self._context = self._context.derive({"gates": (InheritedGate(gate, review),)})
        limits = BoxLimits.of(timeout, retries, rate_limit, cache, ledger)
        super().__init__(register_tools(tools, gate, limits, self._context, max_output))
        self._max_output = max_output
        self._cuts = max_output is not None or any(entry.limit is not None for entry in self._entries.values())
        self._book = self._opened(Pages.of(pages))
        # Whoever reads pages has to know whether a program named the run.
        self._new_run = new_id if self._book is None else new_unnamed_run
        # Bodies have a pool of their own, so that work which they submit and wait for never queues behind them.
        workers = ContextThreadPool(_POOL_THREADS) if executor is None else executor
        slots = None if max_concurrency is None else Seats(max_concurrency, box=True)
        self._walk = Walk(repair_steps(repair), slots, workers, log_limit, hooks_of(before_call, after_call))
        self._sinks = sinks_of("Toolbox", sinks)

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
        return self._reply(call, run_of(self._context, memory_id, parameters, run_id, self._new_run), dry_run=dry_run)

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
        return await self._areply(
            call, run_of(self._context, memory_id, parameters, run_id, self._new_run), dry_run=dry_run
        )

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
        run = run_of(self._context, memory_id, parameters, run_id, self._new_run)
        with Turn(calls) as turn:
            if len(turn.calls) == 1:
                turn.answer(0, self._reply(turn.calls[0], run, dry_run=dry_run))
            elif turn.calls:
                start, told = partial(self._path, run=run, dry_run=dry_run), partial(self._told, run)
                if self._only_blocks(turn.calls, run):
                    spread = partial(turn.run_in_threads, start, told)
                    spread() if self._sinks is None else self._sinks.do(spread)
                else:
                    gathered = turn.gather(start, told)
                    finish(gathered if self._sinks is None else self._sinks.ado(gathered))
        return turn.replies()

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
        run = run_of(self._context, memory_id, parameters, run_id, self._new_run)
        with Turn(calls, observe) as turn:
            if len(turn.calls) == 1:
                turn.answer(0, await self._areply(turn.calls[0], run, dry_run=dry_run))
            elif turn.calls:
                gathered = turn.gather(partial(self._path, run=run, dry_run=dry_run), partial(self._told, run))
                await (gathered if self._sinks is None else self._sinks.ado(gathered))
        return turn.replies()

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
        box._walk = replace(self._walk, hooks=hooks)  # noqa: SLF001 - just made
        if layer is not None:
            box._entries = {  # noqa: SLF001 - as above
                name: replace(
                    entry, definition=map_definition(entry.definition, lambda part: _layered(part, layer(part)))
                )
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

    def _reply(self, call: ToolCall, run: Run, *, dry_run: bool) -> ToolReply:
        path = self._path(call, run, dry_run=dry_run)
        return self._told(run, call, drive(path) if self._sinks is None else self._sinks.do(drive, path))

    async def _areply(self, call: ToolCall, run: Run, *, dry_run: bool) -> ToolReply:
        path = adrive(self._path(call, run, dry_run=dry_run))
        return self._told(run, call, await (path if self._sinks is None else self._sinks.ado(path)))

    def _told(self, run: Run, call: ToolCall, result: ToolResult) -> ToolReply:
        """Give the reply with as much of the result as the model gets."""
        if not self._cuts:
            return ToolReply(call, result)
        entry = self._entries.get(call.name)
        limit = self._max_output if entry is None else entry.limit
        if self._book is None or limit is None or len(result.text) <= limit:
            return ToolReply(call, result, limit)
        named = None if isinstance(run["run_id"], UnnamedRunId) else run["run_id"]
        reader = Reader(run.get("memory_id", self._context.memory_id), named)
        return ToolReply(call, result, *self._book.keep(result.text, limit, reader))

    def _path(self, call: ToolCall, run: Run, *, dry_run: bool) -> CallPath:
        if not isinstance(call, ToolCall):
            raise ToolConfigurationError(f"A toolbox executes ToolCall objects, not {type(call).__name__}")
        entry = self._entries.get(call.name)
        if entry is None:
            return self._refused(call, run)
        context = entry.context.of_call(run, call.id or new_id())
        definition = entry.definition
        if "gates" in run:
            definition = self._within(definition, context)
        if dry_run:
            definition = to_dry_run(definition)
        read = definition.decode if self._walk.hooks is None else Sent(call, definition.decode)
        return call_path(Call(definition, read, call.json, context, self._walk))

    def _within(self, definition: ToolDefinition, context: ToolContext) -> ToolDefinition:
        """Return a tool behind the gates of the boxes around this one as well; it stands behind its own already."""
        if self._book is not None and definition.name == self._book.name:
            return definition  # what it gives has been agreed to
        own = {id(each.outer) for each in self._context.gates}
        around = [each for each in context.gates if id(each.outer) not in own]
        if not around:
            return definition
        return map_definition(
            definition,
            lambda part: replace(part, gate=gate_within(around, part.name, part.gate, context.review)),
        )

    def _only_blocks(self, calls: Iterable[object], run: Run) -> bool:
        """Whether no call of a turn needs an event loop: there is nothing but bodies that block."""
        context = self._context.derive(run)
        if self._walk.hooks or self._walk.slots or context.deadline is not None or context.review is not None:
            return False
        if "gates" in run:
            return False
        asked = {call.name for call in calls if isinstance(call, ToolCall)}
        return all(self._entries[name].definition.only_blocks for name in asked & self._entries.keys())

    def _refused(self, call: ToolCall, run: Run) -> CallPath:
        """Return the path of a call of a tool that the box does not have."""
        from toolsemble.toolbox.unknown import has_secret_parameters, masked_path  # noqa: PLC0415 - only a model's mistake comes here

        definition = unknown_tool(call.name, self.names)
        context = register_tool(None, definition, self._context, None).context.of_call(run, call.id or new_id())
        tools = [entry.definition for entry in self._entries.values()]
        if has_secret_parameters(tools):
            return masked_path(call, definition, tools, context, self._walk)
        read = definition.decode if self._walk.hooks is None else Sent(call, definition.decode)
        return call_path(Call(definition, read, call.json, context, self._walk))

    def _opened(self, pages: Pages | None) -> PageStore | None:
        """Add the tool that gives pages, and give the book that it reads from."""
        if pages is None:
            return None
        if not self._cuts:
            raise ToolDefinitionError("Toolbox pages are for results that are cut: give max_output, too")
        if pages.name in self._entries:
            raise ToolDefinitionError(
                f"Toolbox pages: there is a tool '{pages.name}' already; say another name: pages=Pages(name=...)"
            )
        book = PageStore(pages)
        tool = book.tool()
        ((_, definition),) = collect_tools(tool)
        self._entries[pages.name] = register_tool(tool, definition, self._context, None)
        return book


def names_inside(box: Toolbox) -> Names:
    """Return the names of the tools of a toolbox, and of those that they can call.

    >>> names_inside(Toolbox([])).found
    ()
    """
    return names_in(entry.definition for entry in box._entries.values())  # noqa: SLF001 - of this module


def _layered(definition: ToolDefinition, layer: Layer | None) -> ToolDefinition:
    if layer is None:
        return definition
    policy = definition.policy or Policy()
    return replace(definition, policy=replace(policy, nearest=(*policy.nearest, layer)))
