"""Temporal drives durable runs: a run is one workflow, whose activity is retried until the run ends."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from toolsemble._runtime.checks import check_count, check_seconds
from toolsemble._runtime.extras import import_extra
from toolsemble.engines._agent_runs import CANCELLED, AgentRuns, RunEngine, read_failure

if TYPE_CHECKING:
    from temporalio.client import Client
    from temporalio.worker import Worker

    from toolsemble.agent._agent import Agent
    from toolsemble.agent._journal.journal import RunJournal
    from toolsemble.review._store.store import ReviewStoreProtocol

_NO_LIMIT = timedelta(days=3650)  # Temporal does not accept None


class TemporalEngine(RunEngine):
    """Agent runs on Temporal: its server stores them, its workers drive them, and signals carry approvals.

    A run is a workflow with the run's id. Its one activity starts or resumes the run from the journal, so Temporal only
    has to retry it when a worker dies: finished calls are not repeated. Workers on several machines need a shared
    journal and review store.

    :param client: a ``temporalio.client.Client``
    :param agents: the agents by name; only workers need them
    :param journal: the journal of the runs; only workers need it. With ``park_after``, a run that waits for a person
        occupies no worker
    :param store: the store of the agents' ``QueueReview``, to enable :meth:`answer`: any client that can send signals
        to the namespace can then approve calls, under any name
    :param task_queue: the name of the queue
    :param heartbeat: seconds without a heartbeat after which a worker is considered lost
    :param poll: seconds between polls of a parked run, if no signal arrives

    .. code-block:: python

        from temporalio.client import Client
        from toolsemble import Agent, RunJournal
        from toolsemble.engines.temporal import TemporalEngine

        agent = Agent("openai:gpt-5-mini", [order, refund], name="clerk")
        client = await Client.connect("localhost:7233")
        engine = TemporalEngine(client, {"clerk": agent}, journal=RunJournal("runs.db"))
        async with engine.worker(at_once=4):
            await engine.begin("order-7", "clerk", "Refund order 7")
            print((await engine.result("order-7")).text)
    """

    def __init__(
        self,
        client: Client,
        agents: Mapping[str, Agent[Any]] | None = None,
        *,
        journal: RunJournal | None = None,
        store: ReviewStoreProtocol | None = None,
        task_queue: str = "toolsemble",
        heartbeat: float = 30.0,
        poll: float = 5.0,
    ) -> None:
        self._package = import_extra("toolsemble.engines._temporal_workflow", extra="temporal", user="TemporalEngine")
        check_seconds("TemporalEngine heartbeat", heartbeat)
        check_seconds("TemporalEngine poll", poll)
        self._client = client
        self._queue = task_queue
        self._runs = (agents, journal, store)
        self._times = {"heartbeat": float(heartbeat), "poll": float(poll)}

    def worker(self, *, at_once: int = 4, grace: float | None = None, **options: Any) -> Worker:
        """Return a worker: ``async with`` it, or await its method ``run``.

        When it shuts down, it lets calls in flight finish, and releases the runs before their next calls.

        :param at_once: maximum concurrent runs
        :param grace: seconds until calls that are still in flight are cancelled, as in ``RunJournal.work``; None:
            no limit
        :param options: further options of ``temporalio.worker.Worker``
        """
        check_count("TemporalEngine.worker at_once", at_once, least=1)
        if grace is not None:
            check_seconds("TemporalEngine.worker grace", grace, zero=True)
        chosen = {
            "max_concurrent_activities": at_once,
            "graceful_shutdown_timeout": _NO_LIMIT if grace is None else timedelta(seconds=grace),
            **options,
        }
        worker: Worker = self._package.make_worker(
            self._client, AgentRuns("Temporal", *self._runs), self._queue, chosen
        )
        return worker

    async def cancel(self, run_id: str) -> None:
        """Cancel a run: its calls in flight are cancelled, it cannot resume, and its review requests are closed."""
        await self._client.get_workflow_handle(run_id).cancel()

    async def _begin(self, run_id: str, request: dict[str, Any]) -> Any:
        from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
        from temporalio.exceptions import WorkflowAlreadyStartedError

        try:
            handle = await self._client.start_workflow(
                self._package.RUN,
                {**request, **self._times},
                id=run_id,
                task_queue=self._queue,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                memo={"request": request},
            )
        except WorkflowAlreadyStartedError:
            handle = self._client.get_workflow_handle(run_id)
        description = await handle.describe()
        return await description.memo_value("request")

    async def _finish(self, run_id: str) -> dict[str, Any]:
        from temporalio.client import WorkflowFailureError
        from temporalio.exceptions import is_cancelled_exception

        try:
            outcome: dict[str, Any] = await self._client.get_workflow_handle(run_id).result()
        except WorkflowFailureError as failure:
            cause: Any = failure.cause
            while getattr(cause, "cause", None) is not None:
                cause = cause.cause
            kind = CANCELLED if is_cancelled_exception(cause) else getattr(cause, "type", "")
            raise read_failure(run_id, kind, str(cause)) from failure
        return outcome

    async def _find_waiting(self, run_id: str) -> list[str]:
        waiting: list[str] = await self._client.get_workflow_handle(run_id).query("waiting")
        return waiting

    async def _send_answer(self, run_id: str, request_id: str, text: str) -> None:
        await self._client.get_workflow_handle(run_id).signal("answer", text)
