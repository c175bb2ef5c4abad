"""What the call path needs done, each in a sync and an async form."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Executor, Future
from contextvars import ContextVar, copy_context
from typing import Any, Protocol

from toolsemble.context import ToolContext, current_context, enter, restore
from toolsemble.definition.definition import ToolDefinition
from toolsemble.errors import ToolArgumentsError, ToolExecutionError
from toolsemble.locks.holds import kept_for
from toolsemble.masking.log_filter import REDACTION
from toolsemble.masking.secrets import secrets
from toolsemble.runtime.concurrency import (
    THREADS,
    ContextThreadPool,
    Outcome,
    SharedLoop,
    finish,
    is_awaitable,
    unwrap_outcome,
)
from toolsemble.shape import describe_error
from toolsemble.work import carried
from toolsemble.work.start import Start

_occupied: ContextVar[tuple[Executor, ...]] = ContextVar("toolsemble.occupied", default=())


class Work(Protocol):
    """One thing to be done before the call can go on."""

    def do(self) -> Any:
        """Do it in this thread, which may wait."""
        ...

    def ado(self) -> Awaitable[Any]:
        """Do it without blocking the event loop."""
        ...


class RunBody:
    """Run a tool's body with its input; whoever asks for it has entered its context."""

    __slots__ = ("_body", "_context", "_definition", "_value", "_workers")

    def __init__(self, definition: ToolDefinition, value: Any, context: ToolContext, workers: Executor) -> None:
        self._body = definition.body
        self._definition = definition
        self._value = value
        self._context = context
        self._workers = workers

    def track_start(self, start: Start) -> None:
        """Take down when the body begins, wherever it runs."""
        self._body = start.wrap(self._body, awaits=self._definition.awaits)

    def do(self) -> Any:
        """Run it here; a body that is async gets an event loop."""
        returned = self._body(self._value)
        # Text is what most bodies give, and the quickest to tell.
        return returned if type(returned) is str or not is_awaitable(returned) else finish(returned)

    def ado(self) -> Awaitable[Any]:
        """Await an async body in place, with no coroutine of ours around its own; run a blocking one in a worker."""
        if self._definition.awaits:
            return self._body(self._value)  # type: ignore[no-any-return]  # a coroutine, as it says
        return self._finished(self._here() if self._definition.inline else self._in_worker())

    async def _finished(self, work: Awaitable[Any]) -> Any:
        returned = await work
        return await returned if is_awaitable(returned) else returned

    async def _here(self) -> Any:
        return self._body(self._value)

    def begin(self, loop: SharedLoop) -> Future[Outcome]:
        """Start a blocking body in a worker; what it gives to be awaited, the worker waits for."""
        executor = choose_executor(self._workers)
        return submit_job(self._job(executor, loop.finish), executor)

    def _job(self, executor: Executor, finish: Callable[[Awaitable[Any]], Any] | None = None) -> Job:
        return Job(self._definition, self._value, self._context, executor, finish, self._body)

    async def _in_worker(self) -> Any:
        import asyncio  # noqa: PLC0415 - sync programs never pay for it

        executor = choose_executor(self._workers)
        future = submit_job(self._job(executor), executor)
        return unwrap_outcome(await asyncio.wrap_future(future))


def run_in_context(work: Work, context: ToolContext) -> Generator[Work, Any, Any]:
    """Have a body run inside a context."""
    before = current_context()
    try:
        enter(context)
        returned = yield work
    except GeneratorExit:
        restore(context, before)
        raise
    except BaseException:
        enter(before)  # one call into C: no interrupt comes before it is done
        raise
    enter(before)
    return returned


def submit_job(job: Job, executor: Executor) -> Future[Outcome]:
    """Start a body in an executor; what the call and those around it hold is kept until it has ended."""
    future = executor.submit(job)
    kept_for(future)
    return future


def choose_executor(workers: Executor) -> Executor:
    """Give the workers, or threads of our own where a body that waits for this one may fill all of them."""
    occupied = _occupied.get()
    ours = isinstance(workers, ContextThreadPool)
    return THREADS if workers in occupied or (ours and occupied) else workers


class Job:
    """A body and its input, ready for any executor; gives what was returned and what was raised.

    In another process, where context variables and live objects cannot go, it gets the detached context.
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
        self._carried: carried.Carried = ()
        self._detached = False

    def __call__(self) -> Outcome:
        """Run the body, in this thread or process."""
        return self._variables.run(self._run)

    def _run(self) -> Outcome:
        _occupied.set(self._occupied)
        enter(self._context)
        carried.restore(self._carried)
        if self._detached and secrets():
            self._context.logger.addFilter(REDACTION)  # the definition, which has done it, stayed behind
        try:
            returned = self._body(self._value)
            return [self._finish(returned) if self._finish and is_awaitable(returned) else returned, None]
        except BaseException as error:  # noqa: BLE001 - raised again by whoever asked; futures cannot carry every kind
            return [None, _portable(error) if self._detached else error]

    def __getstate__(self) -> tuple[Any, ...]:
        # Executors pickle in threads of their own, where nothing of this context is known.
        wait = self._finish is not None
        return self._body, self._value, self._context.detached(), self._variables.copy().run(carried.capture), wait

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._body, self._value, self._context, self._carried, wait = state
        self._finish = finish if wait else None
        self._occupied = ()
        self._variables = copy_context()
        self._detached = True


def _portable(error: BaseException) -> BaseException:
    """Give an exception that survives the way back to the caller's process, with its traceback as a note."""
    import pickle  # noqa: PLC0415 - only worker processes come here
    import traceback  # noqa: PLC0415 - as above

    error.add_note("In the worker process:\n" + "".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    except Exception:  # noqa: BLE001 - whatever it is, the pool would break over it
        # What the tool did not mean for the model does not become an error that is.
        declared = isinstance(error, (ToolArgumentsError, ToolExecutionError))
        return (ToolExecutionError if declared else RuntimeError)(describe_error(error))
    return error


class Apply:
    """Call a function of the program's own inside a call's context; a sync one is taken to be quick."""

    __slots__ = ("_context", "_function", "_given")

    def __init__(self, function: Callable[..., Any], context: ToolContext, *given: Any) -> None:
        self._function = function
        self._context = context
        self._given = given

    def do(self) -> Any:
        """Call it here; one that is async gets an event loop."""
        before = current_context()
        try:
            enter(self._context)
            made = self._function(*self._given)
            return finish(made) if is_awaitable(made) else made
        finally:
            enter(before)

    async def ado(self) -> Any:
        """Call it, and await what is to be awaited."""
        before = current_context()
        try:
            enter(self._context)
            made = self._function(*self._given)
            returned = await made if is_awaitable(made) else made
        except GeneratorExit:
            restore(self._context, before)
            raise
        except BaseException:
            enter(before)
            raise
        enter(before)
        return returned
