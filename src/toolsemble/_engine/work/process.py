"""Run a body in a worker process, which is killed if the call ends first."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

from toolsemble._engine.work.body import Job, unwrap_remote_outcome
from toolsemble._engine.work.deadline import TimedOutError, check_time_left
from toolsemble._engine.work.remote import RemoteBody
from toolsemble._engine.work.timeout import DAEMON_THREADS, wait_for_job
from toolsemble._runtime.concurrency import GRACE, JobFuture, wait_for, wait_until
from toolsemble._runtime.processes.memory_limit import run_within_memory
from toolsemble._runtime.text import describe_error
from toolsemble._vocabulary.errors import ToolExecutionError


class RunInProcess(RemoteBody):
    """Run the body of a tool with its input in a worker process, until the deadline."""

    __slots__ = ()

    def do(self) -> Any:
        """Wait for it in this thread."""
        job = self._prepare()
        check_time_left(self._context)
        future: JobFuture[Any] = JobFuture()
        try:
            DAEMON_THREADS.start(future, job)
            wait_until(future, self._context.deadline)
        finally:
            late = not future.done()
            if late:
                job.cancel()
        if late:
            wait_for(future, GRACE)  # the killed process is gone when the call ends
            raise TimedOutError
        return unwrap_remote_outcome(future.result())

    async def ado(self) -> Any:
        """Wait for it, and let other tasks run."""
        job = self._prepare()
        check_time_left(self._context)
        return unwrap_remote_outcome(await wait_for_job(DAEMON_THREADS.submit(job), self._context, job.cancel))

    def _prepare(self) -> Any:
        from toolsemble._runtime.processes.pool import ProcessJob

        try:
            job = Job(self._definition, self._value, self._context, DAEMON_THREADS)
            max_memory = self._definition.policy.max_memory  # type: ignore[union-attr]  # isolation="process" is a policy
            payload = pickle.dumps(job if max_memory is None else partial(run_within_memory, job, max_memory))
        except Exception as error:
            raise ToolExecutionError(f"The call cannot be sent to a worker process: {describe_error(error)}") from error
        return ProcessJob(payload, self._sent)
