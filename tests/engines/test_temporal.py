"""Runs that Temporal drives, with its development server."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from temporalio.client import Client

from helpers.engine_runs import (
    EngineRuns,
    check_answers,
    check_cancels,
    check_failures,
    check_is_begun_once,
    check_runs_to_the_end,
    wait_for,
)
from helpers.journal_runs import clerk
from toolsemble import RunJournal, ToolCall, ToolDefinitionError, tool
from toolsemble.engines.temporal import TemporalEngine
from toolsemble.models._message import to_messages
from toolsemble.review import ReviewStore

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("temporal")
    command = [program, "server", "start-dev", "--headless", "--log-level", "never", "--ip", "127.0.0.1"]
    server = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield f"127.0.0.1:{port}"
    server.terminate()
    server.wait()


@pytest.fixture
async def client(address):
    async def connect():
        try:
            return await Client.connect(address)
        except RuntimeError:  # the server is not ready yet
            return None

    return await wait_for(connect)


@pytest.fixture
def runs(tmp_path):
    with RunJournal(tmp_path / "runs.db", park_after=0) as journal, ReviewStore(tmp_path / "reviews.db") as store:
        yield EngineRuns(journal, store)


@pytest.fixture
def engine(client, runs, request):
    queue = request.node.name
    return TemporalEngine(
        client, runs.agents, journal=runs.journal, store=runs.store, task_queue=queue, heartbeat=1, poll=0.1
    )


async def test_a_run_is_done_by_a_worker(engine, runs):
    async with engine.worker():
        await check_runs_to_the_end(engine, runs)


async def test_a_run_is_begun_once(engine):
    async with engine.worker():
        await check_is_begun_once(engine)


async def test_a_parked_run_continues_with_an_answer(engine, runs):
    async with engine.worker():
        await check_answers(engine, runs)


async def test_cancelling_the_workflow_cancels_the_run(engine, runs):
    async with engine.worker(grace=0):
        await check_cancels(engine, runs)


async def test_a_failed_run_continues_when_it_is_begun_again(engine):
    async with engine.worker():
        await check_failures(engine)


async def test_a_run_that_another_process_drives_is_tried_again(engine, runs, client):
    held = runs.journal.claim("busy-1", "echo", to_messages("hello"))
    async with engine.worker():
        await engine.begin("busy-1", "echo", "hello")
        handle = client.get_workflow_handle("busy-1")

        async def is_retried():
            pending = (await handle.describe()).raw_description.pending_activities
            return any(each.attempt > 1 for each in pending)

        await wait_for(is_retried)
        held.finish("queued")
        held.close()
        assert (await engine.result("busy-1")).text == "hello"


async def test_a_worker_that_stops_gives_its_runs_back_before_their_next_turn(client, tmp_path):
    begun, draining, paid = asyncio.Event(), asyncio.Event(), []

    class Journal(RunJournal):
        def drain(self):
            super().drain()
            draining.set()

    @tool(effects="irreversible")
    async def pay() -> str:
        """Pay, when the worker is about to stop."""
        begun.set()
        await draining.wait()
        paid.append(7)
        return "paid"

    agents = {"clerk": clerk(None, [pay], ToolCall("pay"), "Done.")}
    with Journal(tmp_path / "runs.db") as journal:
        first = TemporalEngine(client, agents, journal=journal, task_queue="stops", heartbeat=1)
        await first.begin("stop-1", "clerk", "Pay")
        async with first.worker(grace=60):
            await begun.wait()
        assert journal.find("stop-1").state == "queued"
    with RunJournal(tmp_path / "runs.db") as journal:
        second = TemporalEngine(client, agents, journal=journal, task_queue="stops", heartbeat=1)
        async with second.worker():
            assert (await second.result("stop-1")).text == "Done."
    assert paid == [7]


def test_wrong_settings_are_refused(runs):
    with pytest.raises(ToolDefinitionError, match="A worker of Temporal needs agents by name, and journal"):
        TemporalEngine(None).worker()
    with pytest.raises(ToolDefinitionError, match="Temporal takes agents by name; 'clerk' is 7"):
        TemporalEngine(None, {"clerk": 7}, journal=runs.journal).worker()
    with pytest.raises(ToolDefinitionError, match="TemporalEngine heartbeat must be a number of seconds > 0"):
        TemporalEngine(None, heartbeat=0)
    with pytest.raises(ToolDefinitionError, match="at_once must be an int >= 1"):
        TemporalEngine(None, runs.agents, journal=runs.journal).worker(at_once=0)
