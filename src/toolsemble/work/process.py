"""A body that runs in a process of its own, which is killed when the call ends before it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from toolsemble.context import ToolContext
from toolsemble.definition.definition import ToolDefinition
from toolsemble.errors import ToolExecutionError
from toolsemble.processes.memory_limit import WithinMemory
from toolsemble.runtime.concurrency import GRACE, JobFuture, Outcome, unwrap_outcome, wait_for, wait_until
from toolsemble.shape import describe_error
from toolsemble.work.body import Job
from toolsemble.work.deadline import TimedOutError, check_time_left
from toolsemble.work.start import Start
from toolsemble.work.timeout import DAEMON_THREADS, wait_for_job


class RunInProcess:
    """Run a tool's body with its input in a worker process, until its deadline."""

    __slots__ = ("_context", "_definition", "_sent", "_value")

    def __init__(self, definition: ToolDefinition, value: Any, context: ToolContext) -> None:
        self._definition = definition
        self._value = value
        self._context = context
        self._sent: Callable[[], None] | None = None

    def track_start(self, start: Start) -> None:
        """Take down when the body is sent to its process: of what happens there, nothing is known here."""
        self._sent = start.begin

    def do(self) -> Any:
        """Wait for it in this thread."""
        errand = self._errand()
        check_time_left(self._context)
        future: JobFuture[Any] = JobFuture()
        try:
            DAEMON_THREADS.start(future, errand)
            wait_until(future, self._context.deadline)
        finally:
            late = not future.done()
            if late:
                errand.cancel()
        if late:
            wait_for(future, GRACE)  # what is killed is gone when the call is
            raise TimedOutError
        return self._received(future.result())

    async def ado(self) -> Any:
        """Wait for it, and let other tasks run."""
        errand = self._errand()
        check_time_left(self._context)
        return self._received(await wait_for_job(DAEMON_THREADS.submit(errand), self._context, errand.cancel))

    def _received(self, outcome: Outcome) -> Any:
        """Return what the body returned, or raise what it raised; what would end a program ended the worker's only."""
        error = outcome[1]
        if error is not None and not isinstance(error, Exception):
            outcome[1] = ToolExecutionError(f"The tool raised {_named(error)} in its worker process")
            outcome[1].__cause__ = error
        del error  # its traceback refers to this frame
        return unwrap_outcome(outcome)

    def _errand(self) -> Any:
        from toolsemble.processes.pool import ProcessJob  # noqa: PLC0415 - only tools that run apart pay for it

        try:
            job = Job(self._definition, self._value, self._context, DAEMON_THREADS)
            most = self._definition.policy.max_memory  # type: ignore[union-attr]  # without one nothing runs apart
            payload = pickle.dumps(job if most is None else WithinMemory(job, most))
        except Exception as error:
            raise ToolExecutionError(f"The call cannot be sent to a worker process: {describe_error(error)}") from error
        return ProcessJob(payload, self._sent)


def _named(error: BaseException) -> str:
    """Return the class of an exception, with its text if it has one."""
    return f"{type(error).__name__}({error})" if str(error) else type(error).__name__
