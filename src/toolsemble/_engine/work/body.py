"""The protocol ``Work``, and running the body of a tool: here, in a worker thread, or in an executor."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Executor, Future
from contextvars import ContextVar, copy_context
from typing import Any, Protocol

from toolsemble._engine.context import ToolContext, current_context, enter, restore
from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble._engine.work.carried_state import Carried, capture_state, restore_state
from toolsemble._engine.work.start import Start
from toolsemble._runtime.concurrency import (
    THREADS,
    ContextThreadPool,
    Outcome,
    SharedLoop,
    finish,
    is_awaitable,
    unwrap_outcome,
)
from toolsemble._runtime.locks.holds import keep_until_done
from toolsemble._runtime.text import describe_error
from toolsemble._runtime.wakeup import running_loop
from toolsemble._schema.masking.log_filter import REDACTION
from toolsemble._schema.masking.secrets import secrets
from toolsemble._vocabulary.errors import ToolArgumentsError, ToolExecutionError

_occupied: ContextVar[tuple[Executor, ...]] = ContextVar("toolsemble.occupied", default=())


class Work(Protocol):
    """An operation that a call path yields to its driver."""

    def do(self) -> Any:
        """Do it in this thread, which may block."""
        ...

    def ado(self) -> Awaitable[Any]:
        """Do it without blocking the event loop."""
        ...


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
        # Most bodies return a str, and this check is the fastest.
        return returned if type(returned) is str or not is_awaitable(returned) else finish(returned)

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
        """Start a blocking body in a worker; if it returns an awaitable, the worker runs that in the loop."""
        executor = choose_executor(self._workers)
        return submit_job(self._job(executor, loop.finish), executor)

    def _job(self, executor: Executor, finish: Callable[[Awaitable[Any]], Any] | None = None) -> Job:
        return Job(self._definition, self._value, self._context, executor, finish, self._body)

    async def _in_worker(self) -> Any:
        import asyncio

        executor = choose_executor(self._workers)
        future = submit_job(self._job(executor), executor)
        return unwrap_outcome(await asyncio.wrap_future(future))


# Event loops in debug mode track where coroutines were created; to ask the loop itself takes three times as long.
is_debugged = sys.get_coroutine_origin_tracking_depth


class Watched:
    """Awaits a body, and logs each time that it blocks the event loop for as long as asyncio's debug mode reports."""

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
            except BaseException as error:  # the awaited code decides what becomes of it
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

    In another process, which cannot receive context variables and live objects, it uses the detached context.
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
        """Run the body with so many seconds until its deadline: the clock of another machine says something else."""
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
        # An error that was not meant for the model must not become one that is.
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
