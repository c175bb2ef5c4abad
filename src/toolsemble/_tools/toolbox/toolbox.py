"""The ``Toolbox``: a validated set of tools that executes calls."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, MutableMapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from copy import copy
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from toolsemble._engine.context import Exposure, Run, ToolContext, UnnamedRunId, choose_new_run, run_of
from toolsemble._engine.definition import Layer, ToolDefinition, add_layer, map_definition, to_dry_run
from toolsemble._engine.execution.call import ArgumentsReport, Call, CallPath, CallSettings
from toolsemble._engine.execution.call_path import adrive, drive, drive_in_worker, start_call
from toolsemble._engine.record import LOG_LIMIT
from toolsemble._runtime.checks import check_count, check_setting
from toolsemble._runtime.event_loops import SharedLoop, finish
from toolsemble._runtime.lazy import LazyModule
from toolsemble._runtime.locks import Slots
from toolsemble._runtime.metrics import ToolMetrics
from toolsemble._runtime.threads import ContextThreadPool
from toolsemble._tools.toolbox import settings as box_settings
from toolsemble._tools.toolbox.formats import ToolSet
from toolsemble._tools.toolbox.registry import register_tools
from toolsemble._tools.toolbox.tool_list import collect_members
from toolsemble._vocabulary.call import NumberedCall, ToolCall, ToolReply, new_id
from toolsemble._vocabulary.errors import CallPausedError, ToolConfigurationError, ToolDefinitionError
from toolsemble._vocabulary.result import NO_ATTRIBUTES, ToolResult
from toolsemble.review._terms import TIMEOUT, OnTimeout

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

_NONE = -1  # wakes up the waiting thread without a finished call


class Turn:
    """The calls of a turn and their replies; an exception that leaves the ``with`` block gets them as ``replies``.

    >>> turn = Turn([ToolCall("a"), ToolCall("b")])
    >>> turn.replies()
    []
    """

    def __init__(self, calls: Iterable[ToolCall], observe: Callable[[int, ToolReply], None] | None = None) -> None:
        if type(calls) is not list and (isinstance(calls, ToolCall) or not isinstance(calls, Iterable)):
            raise TypeError(f"The calls of a turn must be a list of ToolCall objects, not {calls!r:.80}")
        self.calls = list(calls)
        self._observe = observe
        self._replies: dict[int, ToolReply] = {}

    def new_report(self) -> ArgumentsReport | None:
        """Return a new arguments report for one call; None if the turn has no observer."""
        return None if self._observe is None else ArgumentsReport()

    def answer(self, index: int, reply: ToolReply) -> None:
        """Store the reply to the call at an index."""
        self._replies[index] = reply
        if self._observe is not None:
            self._observe(index, reply)

    def replies(self) -> list[ToolReply]:
        """Return the replies so far, in request order."""
        return [self._replies[index] for index in sorted(self._replies)]

    async def gather(
        self,
        start: Callable[[ToolCall, ArgumentsReport | None], CallPath],
        reply: Callable[[ToolCall, ToolResult, ArgumentsReport | None], ToolReply],
    ) -> None:
        """Run the calls concurrently on this event loop; after all have ended, raise the exception of any of them."""
        import asyncio

        turn = asyncio.current_task()
        cancelling: Callable[[], int] = int if turn is None else turn.cancelling
        before = cancelling()

        async def run(index: int, call: ToolCall) -> BaseException | None:
            # Returned, not raised: some exceptions stop the event loop immediately, which would lose the other calls.
            try:
                if cancelling() > before:
                    return asyncio.CancelledError()  # the turn was cancelled, but its task has not been notified yet
                report = self.new_report()
                self.answer(index, reply(call, await adrive(start(call, report)), report))
            except BaseException as error:
                if isinstance(error, CallPausedError):
                    error.place = index
                return error
            return None

        from toolsemble.review._asking.ask import batch_requests

        with batch_requests():
            create = asyncio.get_running_loop().create_task
            errors = await _wait_for_all([create(run(index, call)) for index, call in enumerate(self.calls)])
        _raise_first(error for error in errors if error is not None)

    def run_in_threads(
        self,
        start: Callable[[ToolCall, ArgumentsReport | None], CallPath],
        reply: Callable[[ToolCall, ToolResult, ArgumentsReport | None], ToolReply],
    ) -> None:
        """Run calls whose bodies are all blocking, each body in a worker thread; no event loop is needed."""

        def run(index: int, call: ToolCall) -> Generator[None, None, None]:
            result = yield from drive_in_worker(start(call, None), loop, lambda: ended.put(index))
            self.answer(index, reply(call, result, None))

        ended: SimpleQueue[int] = SimpleQueue()
        with SharedLoop() as loop:
            paths = _ParallelPaths([run(index, call) for index, call in enumerate(self.calls)], ended)
            paths.finish()
        _raise_first(paths.raised[index] for index in sorted(paths.raised))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            with suppress(Exception):  # a foreign exception may not allow new attributes
                error.replies = self.replies()  # type: ignore[attr-defined]  # any exception class may come here


class _ParallelPaths:
    """Call paths that run alternately in this thread while their bodies run in worker threads."""

    def __init__(self, paths: Iterable[Generator[None, None, None]], ended: SimpleQueue[int]) -> None:
        # Each has its own context, like a task: they set and reset context variables in any order.
        self._paths = [(copy_context().run, path) for path in paths]
        self._ended = ended
        self._interrupted = False
        self.raised: dict[int, BaseException] = {}

    def finish(self) -> None:
        """Run all paths to completion; throw a KeyboardInterrupt into all of them."""
        try:
            with _handle_interrupt(self._interrupt):
                left = sum(self._advance(index) for index in range(len(self._paths)) if not self._interrupted)
                while left and not self._interrupted:
                    ended = self._ended.get()
                    left -= ended != _NONE and not self._advance(ended)
            if self._interrupted:
                raise KeyboardInterrupt  # noqa: TRY301 - handled like the one raised by a second signal
        except BaseException as interruption:
            for inside, path in self._paths:
                with suppress(BaseException):  # the interruption is raised below
                    inside(path.throw, interruption)
            raise

    def _interrupt(self) -> None:
        self._interrupted = True
        self._ended.put(_NONE)

    def _advance(self, index: int) -> bool:
        """Continue one path; return whether it waits for a worker; False if it has ended."""
        inside, path = self._paths[index]
        try:
            inside(next, path)
        except StopIteration:
            return False
        except BaseException as error:  # raised when all have ended
            self.raised[index] = error
            return False
        return True


@contextmanager
def _handle_interrupt(notify: Callable[[], None]) -> Iterator[None]:
    """Call a function at the first SIGINT instead of raising KeyboardInterrupt; a second one is raised.

    Raised at an arbitrary point, it could leave a worker lock held forever, or be mistaken for a call's error.
    """
    import signal

    def handle(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        notify()

    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is handle:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _raise_first(errors: Iterable[BaseException]) -> None:
    """Raise one of several calls' exceptions, with the others as notes.

    Exceptions that are not an ``Exception`` take precedence; calls that only wait for approval come last.
    """
    raised = sorted(errors, key=_rank)
    if raised:
        first = raised[0]
        if isinstance(first, CallPausedError):  # then all of them are: they come last
            first.others = [each for other in raised for each in (other, *getattr(other, "others", ()))][1:]
        for other in raised:
            if other is not first:
                first.add_note(f"Another call of the turn raised {type(other).__name__}: {other}")
        raise first


def _rank(error: BaseException) -> int:
    return 2 if isinstance(error, CallPausedError) else int(isinstance(error, Exception))


async def _wait_for_all(tasks: list[asyncio.Task[T]]) -> list[T]:
    """Return all tasks' results; on cancellation, cancel the tasks and wait until they have ended."""
    import asyncio

    try:
        # Sequentially: gather()'s callbacks would add a tenth to the time of a turn of small tasks.
        for task in tasks:
            if not task.done():
                await asyncio.shield(task)  # a cancellation must reach all tasks at the same time
        return [task.result() for task in tasks]
    except asyncio.CancelledError:
        while waiting := [task for task in tasks if not task.done()]:
            for task in waiting:
                task.cancel()
            with suppress(asyncio.CancelledError):  # a second cancellation waits as well
                await asyncio.wait(waiting)
        raise


# Rarely used features are loaded on first use.
if TYPE_CHECKING:
    from toolsemble._engine.execution import edits, hooks
    from toolsemble._engine.execution.hooks import AfterCall, BeforeCall
    from toolsemble._engine.limits.cache import Cache
    from toolsemble._engine.limits.effect_ledger import EffectLedger
    from toolsemble._engine.limits.rate import RateLimit
    from toolsemble._engine.limits.retries import Retries
    from toolsemble._runtime.sinks import SinkLike
    from toolsemble._tools.toolbox.pages import Pages
    from toolsemble.review._gate import Predicate
    from toolsemble.review._request import ReviewHandler
else:
    edits, hooks = LazyModule("toolsemble._engine.execution.edits"), LazyModule("toolsemble._engine.execution.hooks")

_POOL_THREADS = 256


class _CheckedArguments:
    """Validation of a toolbox's arguments; in a base class, so that the signature stays ``__init__``'s."""

    __slots__ = ()

    def __new__(cls, *tools: Any, **settings: Any) -> Self:
        made_by: Any = cls.__init__
        own: Any = Toolbox.__init__
        if made_by is own:
            if len(tools) > 1:
                raise ToolDefinitionError(f"A toolbox takes one list, not {len(tools)} tools; write Toolbox([a, b])")
            known = {"tools", *own.__kwdefaults__}
            for name in settings:
                check_setting("A toolbox", name, known)
        return object.__new__(cls)


class Toolbox(_CheckedArguments, ToolSet):
    """A validated, immutable set of tools; executes calls one at a time or concurrently.

    Invalid definitions are reported when it is built, all in one error. It is safe to share between threads and event
    loops.

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

    :param tools: tools, and lists and toolboxes of tools, in the order in which models see them; a toolbox in the list
        keeps its approval and limits
    :param review: the review handler that approves calls
    :param approve: additional tools that need approval: names, patterns such as ``"delete_*"``, or a predicate
        ``(arguments, context)``
    :param approval_timeout: seconds to wait for the reviewer of ``approve``; 0 or None: no limit
    :param approval_on_timeout: what happens to these calls on a review timeout
    :param approval_role: the role that the reviewer of ``approve`` must have
    :param metrics: counts calls and measures their duration
    :param executor: runs blocking tools of concurrent calls; by default a pool of up to 256 threads
    :param memory_id: the conversation or user of calls; a call can override it
    :param agent_role: the role of the agent with these tools
    :param max_concurrency: the maximum number of concurrent bodies; nested calls are not counted
    :param max_output: the maximum length of a result for the model; None: no limit
    :param timeout: timeout of a call in seconds after its approval, for tools without a timeout; not enforced for
        inline sync bodies
    :param retries: retries of a failed call after the first attempt, or a :class:`Retries`; for repeatable tools
    :param rate_limit: the rate limit of call starts for all tools together
    :param cache: caches the results of read-only tools without a setting: seconds, True for no expiry, or a
        :class:`Cache`
    :param ledger: records the calls of tools with ``idempotency`` that have no ledger
    :param pages: True, or a :class:`Pages`: models can read the rest of truncated results with a tool ``read_more``
    :param repair: whether arguments that almost fit are repaired; or the enabled steps: "text", "nested", "null",
        "coerce", "keys", "extra"
    :param log_limit: the maximum length of input and output in a log line
    :param expose_errors: which error messages the model sees: "all", or only "declared" ones: ToolArgumentsError,
        ToolExecutionError and failures that tools return
    :param before_call: a function ``(call, context)``, sync or async, called before the arguments are parsed: it
        returns None, a :class:`ToolCall` with other arguments, or a :class:`ToolResult` as the answer
    :param after_call: a function ``(call, result, context)``, sync or async, called with the result: it returns None,
        or another :class:`ToolResult`
    :param sinks: receive events: functions that take an event, or objects with a method ``emit(event)``
    """

    __slots__ = ("_context", "_cuts", "_is_plain", "_max_output", "_new_run", "_pages", "_settings", "_sinks")

    def __init__(  # noqa: PLR0913 - keyword settings, each with a default
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
        sinks: Iterable[SinkLike] = (),
    ) -> None:
        box_settings.check_counts(max_concurrency=(max_concurrency, 1), max_output=(max_output, 0))
        check_count("Toolbox log_limit", log_limit, least=0)
        self._context = box_settings.context_of(
            memory_id=memory_id,
            agent_role=agent_role,
            metrics=metrics,
            executor=executor,
            review=review,
            expose_errors=expose_errors,
        )
        gate = box_settings.gate_of(approve, approval_timeout, approval_on_timeout, approval_role)
        if gate is not None:
            self._context = box_settings.pass_on_gate(self._context, gate)
        limits = box_settings.limits_of(timeout, retries, rate_limit, cache, ledger)
        found = collect_members(tools, reviewed=review is None)
        if executor is not None:
            found = box_settings.place_tools(found, executor)
        super().__init__(register_tools(found, gate, limits, self._context, max_output))
        self._max_output = max_output
        self._cuts = max_output is not None or any(entry.limit is not None for entry in self._entries.values())
        has_flows = any(entry.definition.flow is not None for entry in self._entries.values())
        self._is_plain = not (self._cuts or has_flows)  # replies need neither limits nor notes about edits of steps
        self._pages = box_settings.pages_of(pages, self._entries, self._context, truncates=self._cuts)
        # Reviews and paging need to know whether the program set the run id.
        self._new_run = choose_new_run(reviews=review is not None, pages=self._pages is not None)
        # Bodies have a separate pool, so that jobs that they submit and await never queue behind them.
        workers = ContextThreadPool(_POOL_THREADS) if executor is None else executor
        slots = None if max_concurrency is None else Slots(max_concurrency, box=True)
        steps, own_hooks = box_settings.repair_steps(repair), box_settings.hooks_of(before_call, after_call)
        self._settings = CallSettings(steps, slots, workers, log_limit, own_hooks)
        self._sinks = box_settings.sinks_of(sinks)

    def __copy__(self) -> Self:
        made = object.__new__(type(self))
        state: Any = object.__getstate__(self)
        fields, slots = state if isinstance(state, tuple) else (state, None)
        for name, value in ((fields or {}) | (slots or {})).items():
            object.__setattr__(made, name, value)
        return made

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"A {type(self).__name__} cannot be pickled or deep-copied: it has locks, threads and the connections of "
            "its tools; pickle the tools, and make the toolbox where it is used"
        )

    def execute(
        self,
        call: ToolCall,
        *,
        memory_id: str | None = None,
        parameters: MutableMapping[str, Any] | None = None,
        deps: Any = None,
        run_id: str | None = None,
        dry_run: bool = False,
    ) -> ToolReply:
        """Execute one call and return the reply; a blocking tool runs in this thread.

        It raises only :class:`ToolConfigurationError`, :class:`ExitEarlyError` and exceptions that are not an
        ``Exception``, such as ``KeyboardInterrupt``.

        :param memory_id: the call's conversation or user; default: the toolbox's
        :param parameters: values shared by the run's tools; hidden from the model
        :param deps: the tools' ``ToolContext.deps`` object; hidden from the model
        :param run_id: the call's run; default: a new one
        :param dry_run: validate, review and record the call, but do not run the body
        """
        run = run_of(self._context, memory_id, parameters, deps, run_id, self._new_run)
        return self._reply(call, run, dry_run=dry_run)

    async def aexecute(
        self,
        call: ToolCall,
        *,
        memory_id: str | None = None,
        parameters: MutableMapping[str, Any] | None = None,
        deps: Any = None,
        run_id: str | None = None,
        dry_run: bool = False,
    ) -> ToolReply:
        """Execute one call and return the reply; an async tool is awaited, a blocking one runs in a worker thread."""
        run = run_of(self._context, memory_id, parameters, deps, run_id, self._new_run)
        return await self._areply(call, run, None, dry_run=dry_run)

    def execute_all(
        self,
        calls: Sequence[ToolCall],
        *,
        memory_id: str | None = None,
        parameters: MutableMapping[str, Any] | None = None,
        deps: Any = None,
        run_id: str | None = None,
        dry_run: bool = False,
    ) -> list[ToolReply]:
        """Execute the calls of one turn concurrently and return the replies in request order.

        An exception that :meth:`execute` would raise is raised after every call has ended, with the replies in
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
        run = run_of(self._context, memory_id, parameters, deps, run_id, self._new_run)
        with Turn(calls) as turn:
            if len(turn.calls) == 1:
                turn.answer(0, self._reply(turn.calls[0], run, dry_run=dry_run))
            elif turn.calls:
                start, reply = partial(self._path, run=run, dry_run=dry_run), partial(self._make_reply, run)
                if self._only_blocks(turn.calls, run):
                    execute = partial(turn.run_in_threads, start, reply)
                    execute() if self._sinks is None else self._sinks.do(execute)
                else:
                    gathered = turn.gather(start, reply)
                    finish(gathered if self._sinks is None else self._sinks.ado(gathered))
        return turn.replies()

    async def aexecute_all(
        self,
        calls: Sequence[ToolCall],
        *,
        memory_id: str | None = None,
        parameters: MutableMapping[str, Any] | None = None,
        deps: Any = None,
        run_id: str | None = None,
        dry_run: bool = False,
        observe: Callable[[int, ToolReply], None] | None = None,
    ) -> list[ToolReply]:
        """Execute the calls of one turn concurrently and return the replies in request order.

        Raises as :meth:`execute_all` does; cancelling it cancels the calls.

        :param observe: called with the index of a call and its reply as soon as there is one
        """
        run = run_of(self._context, memory_id, parameters, deps, run_id, self._new_run)
        with Turn(calls, observe) as turn:
            if len(turn.calls) == 1:
                turn.answer(0, await self._areply(turn.calls[0], run, turn.new_report(), dry_run=dry_run))
            elif turn.calls:
                gathered = turn.gather(partial(self._path, run=run, dry_run=dry_run), partial(self._make_reply, run))
                await (gathered if self._sinks is None else self._sinks.ado(gathered))
        return turn.replies()

    def around(
        self,
        *,
        before_call: BeforeCall | None = None,
        after_call: AfterCall | None = None,
        layer: Callable[[ToolDefinition], Layer | None] | None = None,
        approve: Iterable[str] | Predicate | None = None,
    ) -> Toolbox:
        """Return a toolbox with the same tools and settings, and additional hooks, layers or gates.

        :param before_call: called before this toolbox's hook
        :param after_call: called after this toolbox's hook
        :param layer: returns a layer around a tool's body, inside all limits; also called for tools inside flows
        :param approve: additional tools that need approval: names, patterns or a predicate

        >>> from toolsemble import ToolResult, tool
        >>> @tool
        ... def now() -> str:
        ...     return "noon"
        >>> box = Toolbox([now]).around(before_call=lambda call, context: ToolResult.success("midnight"))
        >>> box.execute(ToolCall("now")).text
        'midnight'
        """
        box = copy(self)
        combined = hooks.nest_hooks(box_settings.hooks_of(before_call, after_call), self._settings.hooks)
        box._settings = replace(self._settings, hooks=combined)
        if layer is not None:
            box._entries = {
                name: replace(
                    entry, definition=map_definition(entry.definition, lambda part: add_layer(part, layer(part)))
                )
                for name, entry in self._entries.items()
            }
        if approve is not None:
            box._entries, box._context = box_settings.add_approval(box._entries, box._context, approve)
        return box

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until the sinks have received all events, at most ``timeout`` seconds; return whether they have.

        Calls wait for fast sinks automatically; use this at the end of a program with slow sinks.

        >>> Toolbox([], sinks=[print]).flush(5)
        True
        """
        return self._sinks is None or self._sinks.flush(timeout)

    @property
    def lost_events(self) -> int:
        """The number of events dropped because a sink was too slow."""
        return 0 if self._sinks is None else self._sinks.lost

    def list_reviewers(self) -> list[ReviewHandler]:
        """Return the toolbox's and its tools' reviewers, except the run's.

        >>> Toolbox([]).list_reviewers()
        []
        """
        gates = [entry.definition.gate for entry in self._entries.values()]
        return [each for each in (self._context.review, *(gate.review for gate in gates if gate)) if each is not None]

    def _reply(self, call: ToolCall, run: Run, *, dry_run: bool) -> ToolReply:
        path = self._path(call, None, run=run, dry_run=dry_run)
        result = drive(path) if self._sinks is None else self._sinks.do(drive, path)
        if self._is_plain and result.attributes is NO_ATTRIBUTES:
            return ToolReply(call, result)  # the common case
        return self._make_reply(run, call, result, None)

    async def _areply(self, call: ToolCall, run: Run, report: ArgumentsReport | None, *, dry_run: bool) -> ToolReply:
        path = adrive(self._path(call, report, run=run, dry_run=dry_run))
        return self._make_reply(run, call, await (path if self._sinks is None else self._sinks.ado(path)), report)

    def _make_reply(self, run: Run, call: ToolCall, result: ToolResult, report: ArgumentsReport | None) -> ToolReply:
        """Return the reply with its text limit, and notes about more pages and reviewers' edits."""
        has_edits = not self._is_plain or "edited" in result.attributes
        noted = edits.describe_edits(result) if has_edits else ""
        limit, more = self._truncate(run, call, result) if self._cuts else (None, "")
        return ToolReply(call, result, limit, more, "", noted, None if report is None else report.arguments)

    def _truncate(self, run: Run, call: ToolCall, result: ToolResult) -> tuple[int | None, str]:
        """Return a result's text limit, and the note about more pages."""
        entry = self._entries.get(call.name)
        limit = self._max_output if entry is None else entry.limit
        if self._pages is None or limit is None or len(result.text) <= limit:
            return limit, ""
        run_id = None if isinstance(run["run_id"], UnnamedRunId) else run["run_id"]
        text_id = None if run.get("place") is None else _derive_page_id(run, call)
        return self._pages.keep(result.text, limit, run.get("memory_id", self._context.memory_id), run_id, text_id)

    def _path(self, call: ToolCall, report: ArgumentsReport | None, *, run: Run, dry_run: bool) -> CallPath:
        if not isinstance(call, ToolCall):
            raise ToolConfigurationError(
                f"A toolbox executes ToolCall objects, not {type(call).__name__}; pass ToolCall(name, arguments), or "
                "ToolCall.from_openai(call) for a provider's call"
            )
        entry = self._entries.get(call.name)
        if "place" in run:
            run = _enter_place(run, call, delegates=entry is not None and entry.definition.delegates)
        if entry is None:
            return self._refuse(call, report, run)
        context = entry.context.of_call(run, call.id or new_id())
        definition = entry.definition
        if "gates" in run:
            definition = self._add_outer_gates(definition, context)
        if dry_run:
            definition = to_dry_run(definition)
        if report is not None:
            report.definition = definition
        read = definition.decode if self._settings.hooks is None else hooks.CallReader(call, definition.decode)
        return start_call(Call(definition, read, call.json, context, self._settings, report))

    def _refuse(self, call: ToolCall, report: ArgumentsReport | None, run: Run) -> CallPath:
        """Return the call path for an unknown tool."""
        from toolsemble._tools.toolbox.unknown import unknown_path

        return unknown_path(call, self._context, run, list(self.definitions()), self._settings, report, self)

    def _add_outer_gates(self, definition: ToolDefinition, context: ToolContext) -> ToolDefinition:
        """Return the definition with the enclosing toolboxes' gates added to its own."""
        if self._pages is not None and definition.name == self._pages.name:
            return definition  # the result that it pages was approved
        return box_settings.add_gates_around(definition, self._context, context)

    def _only_blocks(self, calls: Iterable[object], run: Run) -> bool:
        """Return whether a turn needs no event loop: all bodies are blocking, and nothing else is awaited."""
        context = self._context.derive(run)
        if self._settings.hooks or self._settings.slots or context.deadline is not None or context.review is not None:
            return False
        if "gates" in run:
            return False
        names = {call.name for call in calls if isinstance(call, ToolCall)}
        return all(self._entries[name].definition.only_blocks for name in names & self._entries.keys())


def _enter_place(run: Run, call: ToolCall, *, delegates: bool) -> Run:
    """Return the fields of a journaled run's call; a call made by a program within a turn is not recorded."""
    place = run["place"].inner(call.number, is_scope=delegates) if isinstance(call, NumberedCall) else None
    return {**run, "place": place}


def _derive_page_id(run: Run, call: ToolCall) -> str | None:
    """Return an id for a long result that stays the same when the run resumes in another process."""
    if not isinstance(call, NumberedCall):
        return None
    return hashlib.sha256(f"{run['run_id']}{run['place'].path}.{call.number}".encode()).hexdigest()[:32]
