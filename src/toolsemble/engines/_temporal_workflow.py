"""The workflow of a run on Temporal, and its activities; everything here needs the package ``temporalio``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, ApplicationErrorCategory, is_cancelled_exception
from temporalio.worker import Worker

from toolsemble._runtime.text import describe_error
from toolsemble.engines._agent_runs import MUST_CALL_AGAIN, AgentRuns

RUN = "toolsemble.run"
"""The name of the workflow, and of its main activity."""
_ANSWER, _CANCEL, _WATCH = "toolsemble.answer", "toolsemble.cancel", "toolsemble.watch"

_EVER = timedelta(days=3650)  # an activity needs a limit; the heartbeat detects a lost one
_SHORT = timedelta(seconds=60)
_BENIGN = ApplicationErrorCategory.BENIGN  # expected retries are not logged
_AGAIN = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=10))


# Not in the sandbox: it has no user code, and reloading all of its modules would take a second per run.
@workflow.defn(name=RUN, sandboxed=False)
class RunWorkflow:
    """One run: its activity is retried until the run ends; while it is parked, nothing runs."""

    def __init__(self) -> None:
        self._answers = 0
        self._waiting: list[str] = []

    @workflow.run
    async def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the outcome of a run."""
        try:
            outcome = await self._do(request)
            while "waiting" in outcome:
                await self._wait(request, outcome["waiting"])
                outcome = await self._do(request)
            await workflow.wait_condition(workflow.all_handlers_finished)
        except BaseException as error:
            if is_cancelled_exception(error):
                await self._call(_CANCEL, workflow.info().workflow_id)
            raise
        return outcome

    @workflow.signal(name="answer")
    async def answer(self, text: str) -> None:
        """Store a person's answer, and wake up the run."""
        await self._call(_ANSWER, workflow.info().workflow_id, text)
        self._answers += 1

    @workflow.query(name="waiting")
    def waiting(self) -> list[str]:
        """Return the requests that the parked run waits for, as JSON text."""
        return self._waiting

    async def _do(self, request: dict[str, Any]) -> dict[str, Any]:
        outcome: dict[str, Any] = await workflow.execute_activity(
            RUN,
            request,
            start_to_close_timeout=_EVER,
            heartbeat_timeout=timedelta(seconds=request["heartbeat"]),
            retry_policy=_AGAIN,
        )
        return outcome

    async def _wait(self, request: dict[str, Any], waiting: list[str]) -> None:
        """Wait for a signal, or until the store has an answer from elsewhere."""
        self._waiting, before = waiting, self._answers
        # The server retries: the history does not grow, however long the wait.
        poll = RetryPolicy(initial_interval=timedelta(seconds=request["poll"]), backoff_coefficient=1)
        watching = workflow.start_activity(
            _WATCH, args=[request, waiting], start_to_close_timeout=_SHORT, retry_policy=poll
        )
        await workflow.wait_condition(lambda: self._answers > before or watching.done())
        if not watching.done():
            watching.cancel()
        with suppress(ActivityError):  # cancelled or failed: the run reports the reason
            await watching
        self._waiting = []

    async def _call(self, name: str, *args: str) -> None:
        """Call a short activity on the workflow's worker, independently of its other activities."""
        await workflow.execute_local_activity(name, args=args, start_to_close_timeout=_SHORT, retry_policy=_AGAIN)


class RunActivities:
    """The activities of a worker."""

    def __init__(self, runs: AgentRuns) -> None:
        self._runs = runs

    @activity.defn(name=RUN)
    async def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Start or resume a run; errors of the run itself are not retried."""
        async with _beat(request["heartbeat"] / 3), self._drain():
            try:
                return await self._runs.do(request)
            except MUST_CALL_AGAIN as error:
                raise ApplicationError(str(error), type=type(error).__name__, category=_BENIGN) from error
            except Exception as error:
                raise ApplicationError(describe_error(error), type=type(error).__name__, non_retryable=True) from error

    @activity.defn(name=_WATCH)
    async def watch(self, request: dict[str, Any], waiting: list[str]) -> None:
        """Return if a parked run can resume; otherwise fail, so that the server retries."""
        if not await asyncio.to_thread(self._runs.is_ready, request, waiting):
            raise ApplicationError("the run still waits", category=_BENIGN)

    @activity.defn(name=_ANSWER)
    async def answer(self, run_id: str, text: str) -> None:
        """Store an answer."""
        await asyncio.to_thread(self._runs.answer, run_id, text)

    @activity.defn(name=_CANCEL)
    async def cancel(self, run_id: str) -> None:
        """Cancel a run in the journal."""
        await asyncio.to_thread(self._runs.cancel, run_id)

    @asynccontextmanager
    async def _drain(self) -> AsyncIterator[None]:
        """Stop the run before its next turn when the worker shuts down."""

        async def drain() -> None:
            await activity.wait_for_worker_shutdown()
            self._runs.drain()

        async with _background(drain()):
            yield


@asynccontextmanager
async def _beat(seconds: float) -> AsyncIterator[None]:
    """Send heartbeats to the server every few seconds; their replies say whether the activity is cancelled."""

    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(seconds)

    async with _background(beat()):
        yield


@asynccontextmanager
async def _background(work: Any) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def make_worker(client: Client, runs: AgentRuns, task_queue: str, options: dict[str, Any]) -> Worker:
    """Return a worker with the workflow and the activities."""
    activities = RunActivities(runs)
    listed: list[Any] = [activities.run, activities.watch, activities.answer, activities.cancel]
    return Worker(client, task_queue=task_queue, workflows=[RunWorkflow], activities=listed, **options)
