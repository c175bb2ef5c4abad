"""DBOS drives durable runs: a run is one workflow, whose step is retried until the run ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolsemble._runtime.checks import check_count, check_seconds
from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.text import describe_error
from toolsemble._vocabulary.errors import AgentExecutionError, RunBusyError, RunInterruptedError
from toolsemble.engines._agent_runs import CANCELLED, AgentRuns, RunEngine, read_failure

if TYPE_CHECKING:
    from toolsemble.agent._agent import Agent
    from toolsemble.agent._journal.journal import RunJournal
    from toolsemble.review._store.store import ReviewStoreProtocol

_WAITING = "waiting"


class DBOSEngine(RunEngine):
    """Agent runs on DBOS: its database stores them, its queue distributes them, and messages carry approvals.

    A run is a workflow with the run's id. Its one step starts or resumes the run from the journal, so DBOS only has to
    retry it when a process dies: finished calls are not repeated. Processes on several machines need a shared journal
    and review store.

    Create it after ``DBOS(config=...)`` and before ``DBOS.launch()``, with the agents; then call :meth:`listen`. Set
    ``application_version`` and an ``executor_id`` for each worker in the configuration: DBOS recovers the runs of a
    killed worker when a process with the same two values starts, or when its Conductor requests it.

    :param agents: the agents by name; only workers need them
    :param journal: the journal of the runs; only workers need it
    :param store: the store of the agents' ``QueueReview``, to enable :meth:`answer`: any client that can write to the
        database can then approve calls, under any name
    :param queue: the name of the queue
    :param client: a ``DBOSClient``, for a process that only starts and follows runs
    :param poll: seconds between polls of a parked run, or of a run that another process drives

    .. code-block:: python

        from dbos import DBOS
        from toolsemble import Agent, RunJournal
        from toolsemble.engines.dbos import DBOSEngine

        agent = Agent("openai:gpt-5-mini", [order, refund], name="clerk")
        DBOS(config={"name": "shop", "application_version": "1", "executor_id": "worker-1"})
        engine = DBOSEngine({"clerk": agent}, journal=RunJournal("runs.db"))
        DBOS.launch()
        await engine.listen(at_once=4)
        await engine.begin("order-7", "clerk", "Refund order 7")
        print((await engine.result("order-7")).text)
    """

    def __init__(
        self,
        agents: Mapping[str, Agent[Any]] | None = None,
        *,
        journal: RunJournal | None = None,
        store: ReviewStoreProtocol | None = None,
        queue: str = "toolsemble",
        client: Any = None,
        poll: float = 1.0,
    ) -> None:
        self._package = import_extra("dbos", extra="dbos", user="DBOSEngine")
        check_seconds("DBOSEngine poll", poll)
        self._queue = queue
        self._client = client
        self._poll = poll
        self._runs: AgentRuns | None = None
        if client is None:
            self._runs = AgentRuns("DBOS", agents, journal, store)
            self._register(self._package.DBOS, self._runs)

    async def listen(self, *, at_once: int = 4) -> None:
        """Take runs from the queue; call it after ``DBOS.launch()``.

        :param at_once: maximum concurrent runs in this process, including runs that wait for a person
        """
        check_count("DBOSEngine.listen at_once", at_once, least=1)
        register = self._package.DBOS.register_queue_async
        await register(self._queue, worker_concurrency=at_once, polling_interval_sec=self._poll)
        await register(f"{self._queue}.answers", polling_interval_sec=self._poll)

    async def cancel(self, run_id: str) -> None:
        """Cancel a run: its calls in flight are cancelled, it cannot resume, and its review requests are closed."""
        await self._api.cancel_workflow_async(run_id)
        if self._runs is not None:
            await asyncio.to_thread(self._runs.cancel, run_id)

    def drain(self) -> None:
        """Stop this process's runs before their next turn, to be recovered by another process; for SIGTERM."""
        if self._runs is not None:
            self._runs.drain()

    async def _begin(self, run_id: str, request: dict[str, Any]) -> Any:
        await self._enqueue(self._queue, "run", run_id, request)
        status = await (await self._api.retrieve_workflow_async(run_id)).get_status()
        known = status.input["args"][0]
        if status.status == "ERROR" and known == request:
            await self._api.rewind_workflow_async(run_id, queue_name=self._queue)
        return known

    async def _finish(self, run_id: str) -> dict[str, Any]:
        handle = await self._api.retrieve_workflow_async(run_id)
        try:
            outcome: dict[str, Any] = await handle.get_result()
        except Exception as failure:
            is_cancelled = (await handle.get_status()).status == "CANCELLED"
            raise read_failure(run_id, CANCELLED if is_cancelled else "", str(failure)) from failure
        return outcome

    async def _find_waiting(self, run_id: str) -> list[str]:
        waiting: list[str] = await self._api.get_event_async(run_id, _WAITING, 0) or []
        return waiting

    async def _send_answer(self, run_id: str, request_id: str, text: str) -> None:
        await self._enqueue(f"{self._queue}.answers", "answer", f"{run_id}/answer/{request_id}", run_id, text)

    @property
    def _api(self) -> Any:
        return self._package.DBOS if self._client is None else self._client

    async def _enqueue(self, queue: str, workflow: str, workflow_id: str, *args: Any) -> None:
        options = {"queue_name": queue, "workflow_name": f"{self._queue}.{workflow}", "workflow_id": workflow_id}
        if self._client is None:
            await self._api.enqueue_workflow_with_options_async(options, *args)
        else:
            await self._client.enqueue_async(options, *args)

    def _register(self, dbos: Any, runs: AgentRuns) -> None:
        """Register the workflows and their steps."""
        cancelled = self._package.error.DBOSWorkflowCancelledError

        async def wait_until_ready(request: dict[str, Any], waiting: list[str]) -> None:
            while not await asyncio.to_thread(runs.is_ready, request, waiting):  # noqa: ASYNC110 - in a database
                await asyncio.sleep(self._poll)

        async def store_answer(run_id: str, text: str) -> None:
            await asyncio.to_thread(runs.answer, run_id, text)

        async def do_run(request: dict[str, Any]) -> dict[str, Any]:
            return await self._do(runs, request)

        async def run(request: dict[str, Any]) -> dict[str, Any]:
            try:
                outcome: dict[str, Any] = await do(request)
                while _WAITING in outcome:
                    await dbos.set_event_async(_WAITING, outcome[_WAITING])
                    await wait(request, outcome[_WAITING])
                    await dbos.set_event_async(_WAITING, [])
                    outcome = await do(request)
            except cancelled:
                await asyncio.to_thread(runs.cancel, request["run_id"])
                raise
            return outcome

        async def answer(run_id: str, text: str) -> None:
            await store(run_id, text)

        do = dbos.step(name=f"{self._queue}.do", preemptible=True)(do_run)
        wait = dbos.step(name=f"{self._queue}.wait", preemptible=True)(wait_until_ready)
        store = dbos.step(name=f"{self._queue}.store_answer")(store_answer)
        # Unlimited recoveries: a run that is killed a hundred times has made progress a hundred times.
        for name, workflow in (("run", run), ("answer", answer)):
            dbos.workflow(name=f"{self._queue}.{name}", max_recovery_attempts=None)(workflow)

    async def _do(self, runs: AgentRuns, request: dict[str, Any]) -> dict[str, Any]:
        """Start or resume a run, once no other process drives it."""
        while True:
            try:
                return await runs.do(request)
            except RunBusyError:
                await asyncio.sleep(self._poll)
            except RunInterruptedError:
                await asyncio.Event().wait()  # this process is stopping: the workflow stays pending, to be recovered
            except Exception as error:
                # DBOS pickles errors, and not every error can be pickled.
                raise AgentExecutionError(describe_error(error)) from error
