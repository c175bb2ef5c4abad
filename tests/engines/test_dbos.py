"""Runs that DBOS drives, with its database in a SQLite file."""

import logging
import sqlite3
import sys
from types import SimpleNamespace

import pytest
import pytest_asyncio
from dbos import DBOS, DBOSClient

from helpers.engine_runs import (
    EngineRuns,
    check_answers,
    check_cancels,
    check_failures,
    check_is_begun_once,
    check_runs_to_the_end,
    wait_for,
)
from toolsemble import RunJournal, ToolDefinitionError
from toolsemble.engines.dbos import DBOSEngine
from toolsemble.models._message import to_messages
from toolsemble.review import ReviewStore

# DBOS has one instance in a process, whose threads end with the event loop that it was first used in.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(
        sys.version_info >= (3, 12) and sqlite3.sqlite_version_info < (3, 42),
        reason="on this Python, DBOS needs SQLite 3.42",
    ),
]


class Journal(RunJournal):
    """A journal that counts the attempts to drive a run."""

    claims = 0

    def claim(self, *args, **kwargs):
        self.claims += 1
        return super().claim(*args, **kwargs)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def setup(tmp_path_factory):
    """Return a worker that the tests share."""
    folder = tmp_path_factory.mktemp("dbos")
    url = f"sqlite:///{folder}/dbos.sqlite"
    with Journal(folder / "runs.db", park_after=0) as journal, ReviewStore(folder / "reviews.db") as store:
        runs = EngineRuns(journal, store)
        config = {"name": "tests", "system_database_url": url, "application_version": "1", "executor_id": "one"}
        DBOS(config={**config, "log_level": "CRITICAL", "notification_listener_polling_interval_sec": 0.05})
        engine = DBOSEngine(runs.agents, journal=journal, store=store, poll=0.05)
        DBOS.launch()
        await engine.listen(at_once=8)
        client = DBOSClient(system_database_url=url)
        yield SimpleNamespace(engine=engine, runs=runs, remote=DBOSEngine(client=client))
        client.destroy()
        DBOS.destroy(destroy_registry=True)
        logging.getLogger("dbos").handlers.clear()


async def test_a_run_is_done_by_a_worker(setup):
    await check_runs_to_the_end(setup.engine, setup.runs)


async def test_a_run_is_begun_once(setup):
    await check_is_begun_once(setup.remote)


async def test_a_parked_run_continues_with_an_answer(setup):
    await check_answers(setup.remote, setup.runs)


async def test_cancelling_the_workflow_cancels_the_run(setup):
    await check_cancels(setup.remote, setup.runs)


async def test_cancelling_from_a_worker_cancels_the_run_at_once(setup):
    await setup.engine.begin("pay-10", "clerk", "Pay order 7")
    await wait_for(lambda: setup.engine.waiting("pay-10"))
    await setup.engine.cancel("pay-10")
    assert setup.runs.journal.find("pay-10").state == "cancelled"
    await setup.engine.begin("none-2", "unknown", "go")
    await setup.engine.cancel("none-2")  # it may never have begun


async def test_a_failed_run_continues_when_it_is_begun_again(setup):
    await check_failures(setup.engine)


async def test_a_run_that_another_process_drives_is_tried_again(setup):
    held = setup.runs.journal.claim("busy-1", "echo", to_messages("hello"))
    before = setup.runs.journal.claims
    await setup.engine.begin("busy-1", "echo", "hello")
    await wait_for(lambda: setup.runs.journal.claims > before + 1)
    held.finish("queued")
    held.close()
    assert (await setup.engine.result("busy-1")).text == "hello"


async def _has_status(run_id, status):
    return (await DBOS.get_workflow_status_async(run_id)).status == status


async def test_a_worker_that_stops_leaves_its_runs_to_the_next_one(setup):
    # The last test of the worker: a journal that drains does not go on.
    setup.remote.drain()  # has no runs
    setup.engine.drain()
    await setup.engine.begin("stop-1", "echo", "hello")
    await wait_for(lambda: setup.runs.journal.find("stop-1"))
    await wait_for(lambda: setup.runs.journal.find("stop-1").state == "queued")
    assert await _has_status("stop-1", "PENDING")


async def test_wrong_settings_are_refused(setup):
    with pytest.raises(ToolDefinitionError, match="A worker of DBOS needs agents by name, and journal"):
        DBOSEngine()
    with pytest.raises(ToolDefinitionError, match="DBOSEngine poll must be a number of seconds > 0"):
        DBOSEngine(poll=0)
    with pytest.raises(ToolDefinitionError, match="at_once must be an int >= 1"):
        await setup.remote.listen(at_once=0)
