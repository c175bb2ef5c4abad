"""A journal that cannot be written for a while, and runs whose tasks are cancelled while their end is written."""

import asyncio
import sqlite3
import threading
from contextlib import contextmanager
from functools import partial

import pytest

from helpers.journal_runs import LOOK, PAY, REFUND, Shop, clerk, park, script
from helpers.wait import LONG, auntil
from toolsemble import Agent, AgentExecutionError, RunJournal, RunParkedError, Toolbox, ToolCall, ToolPipeline, tool
from toolsemble._runtime.storage.opening import open_database
from toolsemble.agent._journal import storage as storage_module
from toolsemble.agent._journal.driver import RunDriver
from toolsemble.models import FunctionModel
from toolsemble.review import QueueReview

PROMPT = "Refund order 7"


@contextmanager
def unwritable(runs, kind):
    """Let all writes of a journal in a file fail."""
    database = runs._storage._database
    connection = database._connection  # without its lock: other threads write meanwhile
    if kind == "read-only":
        connection.execute("PRAGMA query_only = ON")
        yield
        connection.execute("PRAGMA query_only = OFF")
    else:
        database.busy = 0.05
        connection.execute("PRAGMA busy_timeout = 50")
        other = sqlite3.connect(runs._path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")
        other.close()


class Breaking:
    """A journal whose n-th record of a step cannot be written, and no other after it, until there is room again."""

    def __init__(self, runs, number):
        self._storage = runs._storage
        self._write = self._storage.write_step
        self._left = number
        self.is_broken = False
        self._storage.write_step = self.write

    def write(self, *arguments, **settings):
        self._left -= 1
        if self._left == 0:
            self.is_broken = True
            self._set("ON")
        return self._write(*arguments, **settings)

    def repair(self):
        self._set("OFF")

    def _set(self, value):
        with self._storage._database.reading() as connection:
            connection.execute(f"PRAGMA query_only = {value}")


def listen(told, *replies):
    """Return a model that records the replies of tools."""
    model = script(*replies)

    def reply(request):
        told.extend(message.text for message in request.messages if message.role == "tool")
        return model._function(request)

    return FunctionModel(reply)


def make_agent(runs, shop, told):
    """Return an agent that calls a tool, a pipeline, and an agent with a tool."""
    pipeline = ToolPipeline("both", "Looks, and notes", [shop.look, shop.note])
    inner = Agent(listen(told, REFUND, "Refunded."), [shop.refund]).as_tool("ask", "Asks")
    replies = (LOOK, ToolCall("both", {"order": 7}), ToolCall("ask", {"input": PROMPT}), "Done.")
    return Agent(listen(told, *replies), [shop, pipeline, inner], journal=runs, name="clerk")


def count_records(tmp_path):
    with RunJournal(tmp_path / "counted.db") as runs:
        counted = Breaking(runs, 0)
        make_agent(runs, Shop(), []).run_sync(PROMPT, run_id="r1")
        return -counted._left


def test_whichever_record_cannot_be_written_the_run_fails_there_and_goes_on_later(tmp_path):
    records = count_records(tmp_path)
    assert records > 10
    for number in range(1, records + 1):
        shop, told = Shop(), []
        with RunJournal(tmp_path / f"{number}.db") as runs:
            agent, breaking = make_agent(runs, shop, told), Breaking(runs, number)
            with pytest.raises(AgentExecutionError, match="Run 'r1' cannot continue: journal error: attempt to"):
                agent.run_sync(PROMPT, run_id="r1")
            assert breaking.is_broken
            breaking.repair()
            unknown = len(runs.unknown())
            result = agent.run_sync(PROMPT, run_id="r1")
            assert (result.text, runs.find("r1").state) == ("Done.", "done")
            assert shop.done.count("refund 7") == 1
            assert [text for text in told if "readonly" in text or "journal:" in text] == []
            assert len([text for text in told if text.startswith("Error: Unknown outcome")]) == unknown
            assert 4 <= len(shop.done) <= 5  # a call that reads is repeated if its end was not recorded


@pytest.mark.parametrize("kind", ["read-only", "locked"])
def test_without_a_record_no_body_runs_and_none_is_told_to_the_model(tmp_path, kind):
    shop, told, broken = Shop(), [], []

    with RunJournal(tmp_path / "runs.db") as runs:

        def reply(request):
            told.extend(message.text for message in request.messages if message.role == "tool")
            return "Done." if told else REFUND

        def break_(call, context):
            if not broken:
                broken.append(unwritable(runs, kind))
                broken[0].__enter__()

        box = Toolbox([shop], before_call=break_)
        agent = Agent(FunctionModel(reply), box, journal=runs, name="clerk")
        with pytest.raises(AgentExecutionError, match="journal error") as failed:
            agent.run_sync(PROMPT, run_id="r1")
        assert (shop.done, told, failed.value.partial.stop_reason) == ([], [], "error")
        broken[0].__exit__(None, None, None)
        assert runs.unknown() == []
        assert agent.run_sync(PROMPT, run_id="r1").text == "Done."
        assert (shop.done, told) == (["refund 7"], ["refunded 7"])


def test_a_body_whose_end_cannot_be_written_has_an_unknown_outcome(tmp_path):
    told, done = [], []
    with RunJournal(tmp_path / "runs.db") as runs:
        full = unwritable(runs, "read-only")

        @tool(effects="irreversible")
        def refund(order: int) -> str:
            """Refund an order."""
            done.append(order)
            full.__enter__()
            return "refunded"

        agent = Agent(listen(told, REFUND, "Done."), [refund], journal=runs, name="clerk")
        with pytest.raises(AgentExecutionError, match="journal error"):
            agent.run_sync(PROMPT, run_id="r1")
        full.__exit__(None, None, None)
        assert [(call.tool, call.place) for call in runs.unknown()] == [("refund", "/1.1")]
        assert agent.run_sync(PROMPT, run_id="r1").text == "Done."
    assert (done, told[0][:22]) == ([7], "Error: Unknown outcome")


def test_a_run_is_not_begun_if_it_cannot_be_recorded(tmp_path):
    asked = []
    with RunJournal(tmp_path / "runs.db") as runs:
        agent = clerk(runs, [], "Done.", asked=asked)
        with unwritable(runs, "locked"), pytest.raises(AgentExecutionError, match="database is locked"):
            agent.run_sync(PROMPT, run_id="r1")
        assert (asked, runs.find("r1")) == ([], None)
        assert agent.run_sync(PROMPT, run_id="r1").text == "Done."


async def test_a_worker_tries_again_until_the_journal_can_be_written(tmp_path, caplog):
    with RunJournal(tmp_path / "runs.db") as runs:
        runs.begin("r1", "clerk", PROMPT)
        with unwritable(runs, "read-only"):
            working = asyncio.create_task(runs.work({"clerk": clerk(None, [], "Done.")}, poll=0.01))
            await auntil(lambda: caplog.text.count("the worker retries in 0.01 s") > 1)
        await auntil(lambda: runs.find("r1").state == "done")
        runs.drain()
        await asyncio.wait_for(working, LONG)


def test_a_question_that_cannot_be_recorded_is_not_asked(tmp_path, store, pay, paid):
    with park(tmp_path) as runs:
        breaking = Breaking(runs, 2)
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store, poll=0.01))
        with pytest.raises(AgentExecutionError, match="journal error"):
            agent.run_sync("Pay order 7", run_id="r1")
        assert (store.pending(), paid) == ([], [])
        breaking.repair()
        with pytest.raises(RunParkedError):
            agent.run_sync("Pay order 7", run_id="r1")
        assert len(store.pending()) == 1


def test_a_server_that_is_gone_fails_the_run_which_goes_on_when_it_is_back(postgres, postgres_url, monkeypatch):
    monkeypatch.setattr(storage_module, "open_database", partial(open_database, busy=0.2))
    shop, told = Shop(), []
    with RunJournal(postgres_url) as runs:

        def reply(request):
            told.extend(message.text for message in request.messages if message.role == "tool")
            return "Done." if told else REFUND

        stopped = []

        def stop(call, context):
            if not stopped:
                stopped.append(call)
                postgres.stop()

        agent = Agent(FunctionModel(reply), Toolbox([shop], before_call=stop), journal=runs, name="clerk")
        try:
            with pytest.raises(AgentExecutionError, match=r"journal error: The run journal .* cannot be reached"):
                agent.run_sync(PROMPT, run_id="r1")
            assert (shop.done, told) == ([], [])
        finally:
            postgres.start()
        assert agent.run_sync(PROMPT, run_id="r1").text == "Done."
        assert (shop.done, told, runs.find("r1").state) == (["refund 7"], ["refunded 7"], "done")


class Ending:
    """Cancels the task of a run while its end is written, before, during or after it."""

    def __init__(self, monkeypatch, when):
        self._when = when
        self._finish = RunDriver.finish
        self.entered, self._free = threading.Event(), threading.Event()

        def finish(driver, state, **values):
            self.write(driver, state, **values)

        monkeypatch.setattr(RunDriver, "finish", finish)

    def write(self, driver, *given, **named):
        if self.entered.is_set():  # a second record
            return self._finish(driver, *given, **named)
        if self._when == "after":
            self._finish(driver, *given, **named)
        self.entered.set()
        self._free.wait(LONG)
        return None if self._when == "after" else self._finish(driver, *given, **named)

    async def cancel(self, task):
        await auntil(self.entered.is_set)
        task.cancel()
        await asyncio.sleep(0)
        self._free.set()


ENDS = {"done": "Done.", "failed": RuntimeError("no credit"), "waiting": PAY}


@pytest.mark.parametrize("state", ENDS)
@pytest.mark.parametrize("when", ["during", "after"])
async def test_a_run_that_has_ended_stays_so_when_its_task_is_cancelled(place, store, pay, monkeypatch, state, when):
    with RunJournal(place, park_after=0) as runs:
        review = QueueReview(store, poll=0.01)
        agent = clerk(runs, [pay], ENDS[state], "Done.", review=review)
        ending = Ending(monkeypatch, when)
        task = asyncio.create_task(agent.run("Pay order 7", run_id="r1"))
        await ending.cancel(task)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert runs.find("r1").state == state


async def test_a_run_that_is_cancelled_right_before_its_end_is_written_ends(runs):
    def reply(request):
        task.cancel()
        return "Done."

    agent = Agent(FunctionModel(reply), journal=runs, name="clerk")
    task = asyncio.create_task(agent.run(PROMPT, run_id="r1"))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (runs.find("r1").state in ("done", "queued"), runs.find("r1").error) == (True, "")
    result = await Agent(FunctionModel(reply), journal=runs, name="clerk").run(PROMPT, run_id="r1")
    assert result.text == "Done."


async def test_a_worker_that_is_cancelled_while_runs_end_loses_no_result(runs, monkeypatch):
    for number in range(8):
        runs.begin(f"r{number}", "clerk", PROMPT)
    finish, ended = RunDriver.finish, []

    def note(driver, state, **values):
        finish(driver, state, **values)
        if state == "done":
            ended.append(driver.run_id)
            loop.call_soon_threadsafe(working.cancel)

    monkeypatch.setattr(RunDriver, "finish", note)
    loop, asked = asyncio.get_running_loop(), []
    agent = clerk(None, [], "Done.", asked=asked)
    while len(ended) < 8:
        working = asyncio.create_task(runs.work({"clerk": agent}, at_once=8, poll=0.01))
        await asyncio.wait([working])
        assert {run.run_id for run in runs.list("done")} == set(ended)
    assert (len(ended), len(asked)) == (8, 8)
