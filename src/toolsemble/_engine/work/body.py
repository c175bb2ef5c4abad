"""The protocol ``Work``, and running the body of a tool: here, in a worker thread, or in an executor."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterable
from concurrent.futures import Executor, Future
from contextvars import ContextVar, copy_context
from functools import partial
from types import NoneType
from typing import Any, Protocol, TypeAlias

from toolsemble._engine.context import LOGGER, ToolContext, current_context, enter, restore
from toolsemble._engine.definition import ToolDefinition
from toolsemble._runtime.event_loops import Outcome, SharedLoop, finish, is_awaitable, unwrap_outcome
from toolsemble._runtime.locks import keep_until_done
from toolsemble._runtime.text import describe_error
from toolsemble._runtime.threads import THREADS, ContextThreadPool, running_loop
from toolsemble._runtime.watchers import ScopedWatcher, watchers
from toolsemble._runtime.work_clock import update_deadline
from toolsemble._schema.masking import REDACTION, add_secrets, known_secrets, secrets, start_masking
from toolsemble._vocabulary.errors import ToolArgumentsError, ToolExecutionError
from toolsemble._vocabulary.result import ToolResult


class TimedOutError(Exception):
    """The deadline of a call has passed; the call path turns it into a failed result."""


def remaining(context: ToolContext) -> float | None:
    """Return the seconds until the deadline of a call, at least 0; None: no deadline.

    >>> remaining(ToolContext(deadline=0.0))
    0.0
    """
    deadline = update_deadline(context.deadline)
    if deadline is None:
        return None
    return min(max(deadline - time.monotonic(), 0.0), threading.TIMEOUT_MAX)


def check_time_left(context: ToolContext) -> float | None:
    """Return the seconds until the deadline of a call; None: no deadline. Raise if it has passed.

    >>> check_time_left(ToolContext()) is None
    True
    """
    seconds = remaining(context)
    if seconds == 0:
        raise TimedOutError
    return seconds


def is_past(deadline: float | None) -> bool:
    """Return whether a deadline has passed; None never passes.

    >>> is_past(0.0), is_past(None)
    (True, False)
    """
    return deadline is not None and time.monotonic() >= (update_deadline(deadline) or 0.0)


def earliest(first: float | None, second: float | None) -> float | None:
    """Return the earlier of two deadlines; None is never.

    >>> earliest(None, 5.0), earliest(3.0, 5.0)
    (5.0, 3.0)
    """
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)


class Start:
    """The start of one body, as rate limits count it: pending, begun, or cancelled.

    A pending start counts as if it happened now, because a thread may begin at any moment. So no period of time has
    more starts than the limit, however long a call waits before its body begins.
    """

    __slots__ = ("_loop", "_ticket", "at", "wanted")

    def __init__(self) -> None:
        self.at: float | None = None
        """When the body began, on the clock of ``time.monotonic``; None if it has not."""
        self.wanted = True
        """Whether the call is still active; a plain attribute, which is set in one step that no interrupt can split."""
        self._loop = running_loop()
        # Popped either by the body, or by the call that reuses the place of a cancelled one; never by both.
        self._ticket = [None]

    def is_past(self, moment: float) -> bool:
        """Return whether the start lies before a moment, or will never happen."""
        if self.at is not None:
            return self.at <= moment
        return self._is_cancelled() and self._take()

    def begin(self) -> None:
        """Record that the body begins now; raise if its call was cancelled and another may use its place."""
        if not self._take():
            raise ToolExecutionError("The call was cancelled before its body began")
        self.at = time.monotonic()

    def wrap(self, body: Callable[[Any], Any], *, awaits: bool) -> Callable[[Any], Any]:
        """Return a body that records when it begins."""
        return (_AsyncRecorded if awaits else _Recorded)(self, body)

    def _is_cancelled(self) -> bool:
        return not self.wanted or (self._loop is not None and self._loop.is_closed())

    def _take(self) -> bool:
        try:
            self._ticket.pop()
        except IndexError:
            return False
        return True


class _Recorded:
    """A body that records when it begins."""

    __slots__ = ("_body", "_start")

    def __init__(self, start: Start, body: Callable[[Any], Any]) -> None:
        self._start = start
        self._body = body

    def __call__(self, value: Any) -> Any:
        self._start.begin()
        return self._body(value)

    def __reduce__(self) -> tuple[Any, ...]:
        # For a body in another process, only the send time is known.
        self._start.begin()
        return _identity, (self._body,)


class _AsyncRecorded(_Recorded):
    """An async body that records when it begins: when it is first awaited, not when it is called."""

    __slots__ = ()

    async def __call__(self, value: Any) -> Any:
        self._start.begin()
        return await self._body(value)


def _identity(body: Any) -> Any:
    return body


Carried: TypeAlias = tuple[Callable[[], Any], ...]
"""Picklable functions that the worker process calls before the body runs."""


def capture_state() -> Carried:
    """Return the state of this context for another process: secrets to mask, and the state of companion watchers.

    >>> capture_state()
    ()
    """
    secrets = known_secrets()
    state: list[Callable[[], Any] | None] = [partial(_restore_secrets, secrets)] if secrets else []
    state += [each.pack() for each in watchers() if isinstance(each, ScopedWatcher)]
    return tuple(each for each in state if each is not None)


def restore_state(state: Iterable[Callable[[], Any]]) -> None:
    """Restore captured state in the context of a body; errors are logged, not raised.

    >>> restore_state([partial(print, "here")])
    here
    """
    for each in state:
        try:
            each()
        except Exception:  # an incomplete trace is better than a failed call
            LOGGER.warning("State could not be restored in a worker process", exc_info=True)


def _restore_secrets(secrets: tuple[str, ...]) -> None:
    start_masking()
    add_secrets(secrets)


_occupied: ContextVar[tuple[Executor, ...]] = ContextVar("toolsemble.occupied", default=())


class Work(Protocol):
    """An operation that a call path yields to its driver."""

    def do(self) -> Any:
        """Do it in this thread, which may block."""
        ...

    def ado(self) -> Awaitable[Any]:
        """Do it without blocking the event loop."""
        ...


# The types that most bodies return: this lookup is faster than a check for awaitables.
_PLAIN = frozenset({str, int, float, bool, dict, list, NoneType, ToolResult})


class RunBody:
    """Run the body of a tool with its input; the context of the call is already current."""

    __slots__ = ("_body", "_context", "_definition", "_value", "_workers")

    def __init__(self, definition: ToolDefinition, value: Any, context: ToolContext, workers: Executor) -> None:
        self._body = definition.body
        self._definition = definition
        self._value = value
        self._context = context
        self._workers = workers

    def track_start(self, start: Start) -> None:
        """Report to a start when the body begins."""
        self._body = start.wrap(self._body, awaits=self._definition.awaits)

    def do(self) -> Any:
        """Run it here; an async body gets a new event loop."""
        returned = self._body(self._value)
        return returned if type(returned) in _PLAIN or not is_awaitable(returned) else finish(returned)

    def ado(self) -> Awaitable[Any]:
        """Return the coroutine of an async body itself; run a blocking body in a worker."""
        if self._definition.awaits:
            returned: Awaitable[Any] = self._body(self._value)  # a coroutine, as declared
            return Watched(returned, self._context) if is_debugged() else returned
        return self._finish(self._here() if self._definition.inline else self._in_worker())

    async def _finish(self, work: Awaitable[Any]) -> Any:
        returned = await work
        return await returned if is_awaitable(returned) else returned

    async def _here(self) -> Any:
        return self._body(self._value)

    def begin(self, loop: SharedLoop) -> Future[Outcome]:
        """Start a blocking body in a worker; if it returns an awaitable, the loop runs that."""
        executor = choose_executor(self._workers)
        return submit_job(self._job(executor, loop.finish), executor)

    def _job(self, executor: Executor, finish: Callable[[Awaitable[Any]], Any] | None = None) -> Job:
        return Job(self._definition, self._value, self._context, executor, finish, self._body)

    async def _in_worker(self) -> Any:
        import asyncio

        executor = choose_executor(self._workers)
        future = submit_job(self._job(executor), executor)
        return unwrap_outcome(await asyncio.wrap_future(future))


# Event loops in debug mode track where coroutines were created; calling ``get_debug`` takes three times as long.
is_debugged = sys.get_coroutine_origin_tracking_depth


class Watched:
    """Awaits a body, and logs each time that it blocks the event loop for ``slow_callback_duration`` or longer."""

    __slots__ = ("_context", "_work")

    def __init__(self, work: Awaitable[Any], context: ToolContext) -> None:
        self._work = work
        self._context = context

    def __await__(self) -> Generator[Any, Any, Any]:
        steps: Any = self._work.__await__()
        resume, value = steps.send, None
        while True:
            began = time.perf_counter()
            try:
                waits_for = resume(value)
            except StopIteration as end:
                return end.value
            finally:
                _log_blocking(self._context, time.perf_counter() - began)
            try:
                resume, value = steps.send, (yield waits_for)
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:  # the awaited code handles it
                resume, value = steps.throw, error


def _log_blocking(context: ToolContext, seconds: float) -> None:
    loop = running_loop()
    if loop is not None and seconds >= loop.slow_callback_duration:
        context.logger.warning(
            "The async body of '%s' blocked the event loop for %.3g s, and with it all other calls; await instead, or "
            "write a plain def, which runs in a thread",
            context.tool_name,
            seconds,
        )


def run_in_context(work: Work, context: ToolContext) -> Generator[Work, Any, Any]:
    """Yield a work with a context as the current one, and restore the previous context afterwards."""
    before = current_context()
    try:
        enter(context)
        returned = yield work
    except GeneratorExit:
        restore(context, before)
        raise
    except BaseException:
        enter(before)  # a single call into C, which no interrupt can split
        raise
    enter(before)
    return returned


def submit_job(job: Job, executor: Executor) -> Future[Outcome]:
    """Start a body in an executor; the locks of the call and its outer calls stay held until the body has ended."""
    future = executor.submit(job)
    keep_until_done(future)
    return future


def choose_executor(workers: Executor) -> Executor:
    """Return the executor for a body: new threads if outer bodies, which wait for this one, may occupy all workers."""
    occupied = _occupied.get()
    ours = isinstance(workers, ContextThreadPool)
    return THREADS if workers in occupied or (ours and occupied) else workers


class Job:
    """A body and its input as a job for any executor; returns an outcome: the return value and the exception.

    In another process, which cannot receive context variables or live objects, it uses the detached context.
    """

    def __init__(
        self,
        definition: ToolDefinition,
        value: Any,
        context: ToolContext,
        executor: Executor,
        finish: Callable[[Awaitable[Any]], Any] | None = None,
        body: Callable[[Any], Any] | None = None,
    ) -> None:
        self._body = body or definition.body
        self._finish = finish
        self._value = value
        self._context = context
        self._occupied = (*_occupied.get(), executor)
        self._variables = copy_context()
        self._carried: Carried = ()
        self._detached = False

    def __call__(self) -> Outcome:
        """Run the body, in this thread or process."""
        return self._variables.run(self._run)

    def run_for(self, seconds: float | None) -> Outcome:
        """Run the body with its remaining seconds: clocks of different machines cannot be compared."""
        deadline = None if seconds is None else time.monotonic() + seconds
        self._context = self._context.derive({"deadline": deadline})
        return self()

    def _run(self) -> Outcome:
        _occupied.set(self._occupied)
        enter(self._context)
        restore_state(self._carried)
        if self._detached and secrets():
            self._context.logger.addFilter(REDACTION)  # the definition adds the filter, but is not sent to the process
        try:
            returned = self._body(self._value)
            return [self._finish(returned) if self._finish and is_awaitable(returned) else returned, None]
        except BaseException as error:  # raised again by the caller; a future cannot carry every exception
            return [None, _make_picklable(error) if self._detached else error]

    def __getstate__(self) -> tuple[Any, ...]:
        # Executors pickle in other threads, without this context.
        wait = self._finish is not None
        return self._body, self._value, self._context.detach(), self._variables.copy().run(capture_state), wait

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._body, self._value, self._context, self._carried, wait = state
        self._finish = finish if wait else None
        self._occupied = ()
        self._variables = copy_context()
        self._detached = True


def _make_picklable(error: BaseException) -> BaseException:
    """Return an exception that can be sent back to the caller's process, with its traceback as a note."""
    import pickle
    import traceback

    error.add_note("In the worker process:\n" + "".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - pickled in this process
    except Exception:  # any error here would break the pool
        # An error that the model must not see must not become one that it may see.
        declared = isinstance(error, (ToolArgumentsError, ToolExecutionError))
        return (ToolExecutionError if declared else RuntimeError)(describe_error(error))
    return error


def unwrap_remote_outcome(outcome: Outcome) -> Any:
    """Return what a body returned in another process, or raise what it raised; SystemExit becomes ToolExecutionError.

    >>> unwrap_remote_outcome([42, None])
    42
    """
    error = outcome[1]
    if error is not None and not isinstance(error, Exception):
        kind = type(error).__name__
        raised = f"{kind}({error})" if str(error) else kind
        outcome[1] = ToolExecutionError(f"The tool raised {raised} in its worker process")
        outcome[1].__cause__ = error
    del error  # its traceback refers to this frame
    return unwrap_outcome(outcome)


class Apply:
    """Call a function of the program, such as a hook, in the context of a call; a sync function must be quick."""

    __slots__ = ("_args", "_context", "_function")

    def __init__(self, function: Callable[..., Any], context: ToolContext, *args: Any) -> None:
        self._function = function
        self._context = context
        self._args = args

    def do(self) -> Any:
        """Call it here; an async function gets a new event loop."""
        before = current_context()
        try:
            enter(self._context)
            returned = self._function(*self._args)
            return finish(returned) if is_awaitable(returned) else returned
        finally:
            enter(before)

    async def ado(self) -> Any:
        """Call it, and await the result if it is awaitable."""
        before = current_context()
        try:
            enter(self._context)
            returned = self._function(*self._args)
            if is_awaitable(returned):
                returned = await returned
        except GeneratorExit:
            restore(self._context, before)
            raise
        except BaseException:
            enter(before)
            raise
        enter(before)
        return returned
