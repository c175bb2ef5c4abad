"""Runs that wait for a person: nothing is asked twice, answers count while nobody runs, and no process has to wait."""

import asyncio
import os
import signal
import threading
import time

import pytest

from helpers.journal_runs import Killed, clerk, script
from helpers.wait import auntil
from toolsemble import (
    Agent,
    RunBusyError,
    RunCancelledError,
    RunJournal,
    RunParkedError,
    Toolbox,
    ToolCall,
    ToolDefinitionError,
    ToolPipeline,
    tool,
)
from toolsemble.journal.driver import RunDriver
from toolsemble.models import ScriptedModel, UserMessage
from toolsemble.pipeline.step import Step
from toolsemble.review import Continue, Edit, ExitEarly, PauseReview, QueueReview, RememberReview, SQLiteStore
from toolsemble.testing import RecordingSink

PAY = ToolCall("pay", {"order": 7})


@pytest.fixture
def store(tmp_path):
    with SQLiteStore(tmp_path / "reviews.db") as made:
        yield made


@pytest.fixture
def paid():
    return []


@pytest.fixture
def pay(paid):
    @tool(effects="irreversible", requires_approval=True, approval_timeout=None)
    def pay(order: int) -> str:
        """Pay an order."""
        paid.append(order)
        return f"paid {order}"

    return pay


def park(tmp_path, **settings):
    return RunJournal(tmp_path / "runs.db", **{"park_after": 0, **settings})


def answer(store, decision=None):
    for request in store.pending():
        store.answer(request, decision or Continue(), person="ada")


def test_a_run_is_parked_and_continues_with_the_answer(tmp_path, store, pay, paid):
    with park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store))
        with pytest.raises(RunParkedError, match="Run 'r1' waits for approval") as parked:
            agent.run_sync("Pay order 7", run_id="r1")
        assert parked.value.run_id == "r1"
        assert runs.find("r1").state == "waiting"
        assert len(store.pending()) == 1
        answer(store)
        assert agent.run_sync("Pay order 7", run_id="r1").text == "Done."
    assert paid == [7]
    assert [event.kind for event in store.audit()] == ["asked", "answered", "asked", "used"]


def test_sinks_are_told_that_a_parked_run_is_paused_and_not_that_it_failed(tmp_path, store, pay):
    sink = RecordingSink()
    with park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store), sinks=[sink])
        with pytest.raises(RunParkedError) as parked:
            agent.run_sync("Pay order 7", run_id="r1")
        answer(store)
        agent.run_sync("Pay order 7", run_id="r1")
    ends = [event for event in sink.events if event.kind == "run_finished"]
    assert [(event.stop_reason, event.error) for event in ends] == [("paused", ""), ("answer", "")]
    assert parked.value.partial.stop_reason == "paused"


def test_a_rejection_and_an_edit_count_as_well(tmp_path, store, pay, paid):
    with park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store))
        for run_id, decision in (("r1", ExitEarly("too much")), ("r2", Edit('{"order": 8}'))):
            with pytest.raises(RunParkedError):
                agent.run_sync("Pay order 7", run_id=run_id)
            answer(store, decision)
        rejected = agent.run_sync("Pay order 7", run_id="r1")
        edited = agent.run_sync("Pay order 7", run_id="r2")
    assert rejected.tool_calls[0].reply.text == "Error: Rejected by reviewer: too much"
    assert edited.tool_calls[0].arguments == {"order": 8}
    assert "a reviewer changed the arguments of 'pay' to" in edited.tool_calls[0].reply.note
    assert paid == [8]


def test_the_other_calls_of_the_turn_end_and_are_recorded_before_a_run_is_parked(tmp_path, store, pay):
    looked = []

    @tool(effects="read")
    async def look() -> str:
        """Look."""
        await asyncio.sleep(0)
        looked.append(1)
        return "seen"

    with park(tmp_path) as runs:
        agent = clerk(runs, [pay, look], [PAY, ToolCall("look")], "Done.", review=QueueReview(store))
        with pytest.raises(RunParkedError):
            agent.run_sync("Pay order 7", run_id="r1")
        answer(store)
        result = agent.run_sync("Pay order 7", run_id="r1")
    assert looked == [1]
    assert [record.reply.text for record in result.tool_calls] == ["paid 7", "seen"]


def test_two_questions_of_a_turn_are_parked_together(tmp_path, store, pay, paid):
    with park(tmp_path) as runs:
        agent = clerk(runs, [pay], [PAY, ToolCall("pay", {"order": 8})], "Done.", review=QueueReview(store))
        with pytest.raises(RunParkedError):
            agent.run_sync("Pay order 7", run_id="r1")
        first, second = store.pending()
        store.answer(first, Continue(), person="ada")
        with pytest.raises(RunParkedError):
            agent.run_sync("Pay order 7", run_id="r1")
        assert [request.id for request in store.pending()] == [second.id]
        assert paid == [7]
        store.answer(second, Continue(), person="ada")
        assert agent.run_sync("Pay order 7", run_id="r1").text == "Done."
    assert paid == [7, 8]


def test_a_step_of_a_pipeline_can_wait_and_the_steps_before_it_are_not_undone(tmp_path, store, pay, paid):
    undone = []

    @tool
    def reserve(order: int) -> dict:
        """Reserve an order."""
        return {"order": order}

    def undo(input, result):
        undone.append(input)

    pipeline = ToolPipeline("settle", "Settles an order", [Step(reserve, compensate=undo), pay])
    with park(tmp_path) as runs:
        agent = clerk(runs, [pipeline], ToolCall("settle", {"order": 7}), "Done.", review=QueueReview(store))
        with pytest.raises(RunParkedError):
            agent.run_sync("Pay order 7", run_id="r1")
        answer(store)
        result = agent.run_sync("Pay order 7", run_id="r1")
    assert (undone, paid) == ([], [7])
    assert result.tool_calls[0].reply.text == "paid 7"


def test_a_call_of_an_agent_inside_can_wait(tmp_path, store, pay, paid):
    with park(tmp_path) as runs:

        def make():
            inner = clerk(None, [pay], PAY, "Paid.").as_tool("helper", "Helps")
            outer = [ToolCall("helper", {"input": "Pay"}), "Done."]
            return clerk(runs, [inner], *outer, review=QueueReview(store))

        with pytest.raises(RunParkedError):
            make().run_sync("Pay order 7", run_id="r1")
        assert runs.find("r1").state == "waiting"
        answer(store)
        result = make().run_sync("Pay order 7", run_id="r1")
    assert paid == [7]
    assert result.tool_calls[0].reply.text == "Paid."
    assert result.usage.model_calls == 4


def test_a_reviewer_that_remembers_can_be_parked(tmp_path, store, pay):
    with park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=RememberReview(QueueReview(store)))
        with pytest.raises(RunParkedError):
            agent.run_sync("Pay order 7", run_id="r1")
        assert agent.find_open_requests([request.id for request in store.pending()])


def test_a_reviewer_without_a_store_is_waited_for(tmp_path, pay, paid):
    class Slow:
        async def review(self, request):
            await asyncio.sleep(0)
            return Continue()

    with park(tmp_path) as runs:
        assert clerk(runs, [pay], PAY, "Done.", review=Slow()).run_sync("Pay order 7", run_id="r1").text == "Done."
    assert paid == [7]


def test_without_park_after_the_run_waits(tmp_path, store, pay, paid):
    with park(tmp_path, park_after=None) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store, poll=0.01))
        results = []
        thread = threading.Thread(target=lambda: results.append(agent.run_sync("Pay order 7", run_id="r1")))
        thread.start()
        while not store.pending():
            time.sleep(0.01)
        answer(store)
        thread.join(60)
        assert results[0].text == "Done."
    assert paid == [7]


async def test_cancelling_the_task_leaves_the_question_open(tmp_path, store, pay, paid):
    with park(tmp_path, park_after=None) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store, poll=0.01))
        task = asyncio.create_task(agent.run("Pay order 7", run_id="r1"))
        while not store.pending():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(store.pending()) == 1
        answer(store)
        assert (await agent.run("Pay order 7", run_id="r1")).text == "Done."
    assert paid == [7]


def test_an_answer_is_valid_until_the_run_ends(tmp_path, pay, paid):
    now = [time.time()]
    with SQLiteStore(tmp_path / "reviews.db", clock=lambda: now[0]) as store, park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store))
        with pytest.raises(RunParkedError):
            agent.run_sync("Pay order 7", run_id="r1")
        answer(store)
        now[0] += 7 * 24 * 3600
        assert agent.run_sync("Pay order 7", run_id="r1").text == "Done."
    assert paid == [7]


def test_the_time_for_an_answer_counts_from_the_first_question(tmp_path, monkeypatch):
    paid = []

    @tool(effects="irreversible", requires_approval=True, approval_timeout=3600)
    def pay(order: int) -> str:
        """Pay an order."""
        paid.append(order)
        return "paid"

    with SQLiteStore(tmp_path / "reviews.db") as store, park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store))
        with pytest.raises(RunParkedError):
            agent.run_sync("Pay order 7", run_id="r1")
        (first,) = store.pending()
        with pytest.raises(RunParkedError):
            agent.run_sync("Pay order 7", run_id="r1")
        (second,) = store.pending()
        assert second.id == first.id
        assert abs(second.deadline - first.deadline) < 1
        later = time.time() + 3601
        monkeypatch.setattr("toolsemble.execution.parked_question.time.time", lambda: later)
        result = agent.run_sync("Pay order 7", run_id="r1")
    assert result.tool_calls[0].reply.text == "Error: Rejected by reviewer: no answer within 3600 s"
    assert paid == []


def test_an_answer_that_was_used_before_the_kill_counts_again(tmp_path, store, pay, paid, monkeypatch):
    with park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store))
        with pytest.raises(RunParkedError):
            agent.run_sync("Pay order 7", run_id="r1")
        answer(store)

        def kill(*_, **__):
            raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(RunDriver, "begin", kill)  # the answer is used, and the body has not begun
            with pytest.raises(Killed):
                agent.run_sync("Pay order 7", run_id="r1")
        assert agent.run_sync("Pay order 7", run_id="r1").text == "Done."
    assert (paid, store.pending()) == ([7], [])


def test_an_answer_counts_for_one_call_only(tmp_path, store, pay, paid):
    with park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, PAY, "Done.", review=QueueReview(store))
        for expected in ([], [7]):
            with pytest.raises(RunParkedError):
                agent.run_sync("Pay order 7", run_id="r1")
            assert paid == expected
            answer(store)
        assert agent.run_sync("Pay order 7", run_id="r1").text == "Done."
    assert paid == [7, 7]


def test_of_two_reviewers_the_first_is_not_asked_again_while_the_second_takes_time(tmp_path, pay, paid):
    with (
        park(tmp_path) as runs,
        SQLiteStore(tmp_path / "first.db") as first,
        SQLiteStore(tmp_path / "second.db") as second,
    ):
        inner = clerk(None, [pay], PAY, "Paid.", review=QueueReview(first)).as_tool("helper", "Helps")
        box = Toolbox([inner], approve=["pay"], approval_timeout=None, review=QueueReview(second))
        agent = clerk(runs, box, ToolCall("helper", {"input": "Pay"}), "Done.")
        with pytest.raises(RunParkedError):
            agent.run_sync("Pay order 7", run_id="r1")
        answer(first)
        with pytest.raises(RunParkedError):
            agent.run_sync("Pay order 7", run_id="r1")
        with pytest.raises(RunParkedError):
            agent.run_sync("Pay order 7", run_id="r1")
        assert (len(first.pending()), len(second.pending()), paid) == (0, 1, [])
        assert [event.kind for event in first.audit()].count("answered") == 1
        answer(second)
        assert agent.run_sync("Pay order 7", run_id="r1").text == "Done."
    assert paid == [7]


def test_a_question_without_a_time_limit_stays_open_for_weeks(tmp_path, pay, paid):
    now = [time.time()]
    with SQLiteStore(tmp_path / "reviews.db", clock=lambda: now[0]) as store, park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store))
        with pytest.raises(RunParkedError):
            agent.run_sync("Pay order 7", run_id="r1")
        now[0] += 30 * 24 * 3600
        answer(store)
        assert agent.run_sync("Pay order 7", run_id="r1").text == "Done."
    assert paid == [7]


@pytest.mark.parametrize("days", [-1, 1])
def test_a_clock_that_is_a_day_off_does_not_take_an_answer_back(tmp_path, pay, paid, days):
    now = [time.time()]
    with SQLiteStore(tmp_path / "reviews.db", clock=lambda: now[0]) as store, park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store))
        with pytest.raises(RunParkedError):
            agent.run_sync("Pay order 7", run_id="r1")
        answer(store)
        now[0] += days * 24 * 3600
        assert agent.run_sync("Pay order 7", run_id="r1").text == "Done."
    assert paid == [7]


def test_a_changed_tool_is_asked_about_again_once(tmp_path, store, paid):
    def make(text):
        @tool(effects="irreversible", requires_approval=True, approval_timeout=None, description=text)
        def pay(order: int) -> str:
            paid.append(order)
            return "paid"

        return pay

    with park(tmp_path) as runs:
        before = clerk(runs, [make("Pay an order")], PAY, "Done.", review=QueueReview(store))
        after = clerk(runs, [make("Pay an order at once")], PAY, "Done.", review=QueueReview(store))
        with pytest.raises(RunParkedError):
            before.run_sync("Pay order 7", run_id="r1")
        answer(store)
        for _ in range(2):
            with pytest.raises(RunParkedError):
                after.run_sync("Pay order 7", run_id="r1")
            assert len(store.pending()) == 1
        answer(store)
        assert after.run_sync("Pay order 7", run_id="r1").text == "Done."
    assert paid == [7]


def test_a_fork_asks_for_itself_and_has_all_the_time_for_the_answer(tmp_path, store, paid, clock):
    @tool(effects="irreversible", requires_approval=True, approval_timeout=60)
    def pay(order: int) -> str:
        """Pay an order."""
        paid.append(order)
        return f"paid {order}"

    with park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store))
        with pytest.raises(RunParkedError):
            agent.run_sync("Pay order 7", run_id="r1")
        clock.advance(120)
        runs.fork("r1", "/1", "r2")
        with pytest.raises(RunParkedError, match="Run 'r2' waits for approval"):
            agent.run_sync("Pay order 7", run_id="r2")
        answer(store)
        assert agent.run_sync("Pay order 7", run_id="r2").text == "Done."
    assert paid == [7]


async def test_a_run_that_is_cancelled_while_it_waits_ends_and_takes_its_question_back(tmp_path, store, pay, paid):
    with park(tmp_path, park_after=None) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=RememberReview(QueueReview(store, poll=0.01)))
        task = asyncio.create_task(agent.run("Pay order 7", run_id="r1"))
        await auntil(store.pending)
        runs.cancel("r1")
        with pytest.raises(RunCancelledError):
            await task
        assert (store.pending(), paid, runs.find("r1").state) == ([], [], "cancelled")


async def test_the_question_of_a_cancelled_run_stays_if_its_reviewer_cannot_close_it(tmp_path, store, pay):
    class Simple(QueueReview):
        withdraw = None

    with park(tmp_path, park_after=None) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=Simple(store, poll=0.01))
        task = asyncio.create_task(agent.run("Pay order 7", run_id="r1"))
        await auntil(store.pending)
        runs.cancel("r1")
        with pytest.raises(RunCancelledError):
            await task
        assert len(store.pending()) == 1


async def test_a_run_that_is_taken_over_while_it_waits_leaves_its_question_to_the_next_driver(tmp_path, store, pay):
    with park(tmp_path, park_after=None) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store, poll=0.01))
        task = asyncio.create_task(agent.run("Pay order 7", run_id="r1"))
        await auntil(store.pending)
        runs.take_over("r1")
        with pytest.raises(RunBusyError):
            await task
        assert (len(store.pending()), runs.find("r1").state) == (1, "queued")


class TestWorker:
    async def test_a_worker_does_what_is_queued(self, runs, pay, paid):
        for number in range(5):
            runs.begin(f"r{number}", "clerk", f"Pay order {number}")
        runs.begin("other", "poet", "A poem")
        agent = clerk(None, [], "Done.")
        await runs.work({"clerk": agent}, at_once=2, until_idle=True, poll=0.01)
        assert [run.state for run in runs.list()] == ["done"] * 5 + ["queued"]

    async def test_a_run_gets_what_it_was_begun_with(self, runs):
        seen = []

        def reply(messages):
            seen.append([message.text for message in messages])
            return "Done."

        runs.begin("r1", "clerk", "And now?", history=[UserMessage("Hello")], memory_id="ada", parameters={"a": 1})
        agent = Agent(ScriptedModel([reply]))
        await runs.work({"clerk": agent}, until_idle=True, poll=0.01)
        assert seen == [["Hello", "And now?"]]

    async def test_a_failed_run_does_not_stop_the_worker(self, runs):
        runs.begin("r1", "clerk", "Fail")
        runs.begin("r2", "poet", "A poem")
        failing = clerk(None, [], RuntimeError("no credit"))
        await runs.work({"clerk": failing, "poet": clerk(None, [], "Roses")}, until_idle=True, poll=0.01)
        assert [(run.state, run.error) for run in runs.list()] == [("failed", "no credit"), ("done", "")]

    async def test_a_worker_takes_over_what_was_left_behind(self, runs):
        with pytest.raises(Killed):
            await clerk(runs, [], Killed).run("Pay order 7", run_id="r1")
        assert runs.find("r1").state == "running"
        await runs.work({"clerk": clerk(None, [], "Done.")}, until_idle=True, poll=0.01)
        assert runs.find("r1").text == "Done."

    async def test_a_worker_continues_a_run_when_it_was_answered(self, tmp_path, store, pay, paid):
        with park(tmp_path) as runs:
            agent = clerk(None, [pay], PAY, "Done.", review=QueueReview(store, poll=0.01))
            runs.begin("r1", "clerk", "Pay order 7")
            await runs.work({"clerk": agent}, until_idle=True, poll=0.01)
            assert (runs.find("r1").state, paid) == ("waiting", [])
            await runs.work({"clerk": agent}, until_idle=True, poll=0.01)
            assert [event.kind for event in store.audit()] == ["asked"]
            answer(store)
            await runs.work({"clerk": agent}, until_idle=True, poll=0.01)
            assert (runs.find("r1").state, paid) == ("done", [7])

    async def test_a_worker_waits_also_for_reviewers_that_are_not_known_in_advance(self, tmp_path, store, pay, paid):
        with park(tmp_path) as runs:
            inside = Agent(script(PAY, "Paid."), [pay], review=QueueReview(store, poll=0.01))
            ask = ToolCall("ask", {"input": "Pay order 7"})
            agent = clerk(None, [inside.as_tool("ask", "Asks")], ask, "Done.")
            runs.begin("r1", "clerk", "Pay order 7")
            await asyncio.wait_for(runs.work({"clerk": agent}, until_idle=True, poll=0.01), 60)
            assert (runs.find("r1").state, [event.kind for event in store.audit()]) == ("waiting", ["asked"])
            runs.begin("r2", "clerk", "Pay order 7")
            working = asyncio.create_task(runs.work({"clerk": agent}, poll=0.01))
            await auntil(lambda: len(store.pending()) == 2)
            await auntil(lambda: runs.find("r2").state == "waiting")
            answer(store)
            await auntil(lambda: {run.state for run in runs.list()} == {"done"})
            working.cancel()
            await asyncio.wait([working])
            assert paid == [7, 7]

    async def test_a_worker_leaves_a_run_alone_whose_reviewer_cannot_tell_what_is_open(self, tmp_path, pay):
        class Later:
            def review(self, request):
                return PauseReview().review(request)

        with park(tmp_path) as runs:
            asked = []
            agent = clerk(None, [pay], PAY, "Done.", review=Later(), asked=asked)
            runs.begin("r1", "clerk", "Pay order 7")
            await asyncio.wait_for(runs.work({"clerk": agent}, until_idle=True, poll=0.01), 60)
            assert (runs.find("r1").state, asked) == ("waiting", [0])

    async def test_a_worker_goes_on_after_a_run_that_it_has_parked_was_cancelled(self, tmp_path, store, pay, paid):
        with park(tmp_path) as runs:
            agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store, poll=0.01))
            working = asyncio.create_task(runs.work({"other": agent, "clerk": agent}, poll=0.01))
            runs.begin("r1", "clerk", "Pay order 7")
            await auntil(lambda: runs.find("r1").state == "waiting")
            runs.cancel("r1")
            runs.begin("r2", "other", "Pay order 7")
            await auntil(lambda: runs.find("r2").state == "waiting")
            working.cancel()
            await asyncio.wait([working])
            assert (runs.find("r1").state, paid) == ("cancelled", [])

    async def test_a_worker_leaves_a_run_that_is_cancelled_while_it_waits_here(self, tmp_path, store, pay, paid):
        with park(tmp_path, park_after=None) as runs:
            agent = clerk(None, [pay], PAY, "Done.", review=QueueReview(store, poll=0.01))
            runs.begin("r1", "clerk", "Pay order 7")
            working = asyncio.create_task(runs.work({"clerk": agent}, until_idle=True, poll=0.01))
            await auntil(store.pending)
            runs.cancel("r1")
            await asyncio.wait_for(working, 60)
            assert (runs.find("r1").state, store.pending(), paid) == ("cancelled", [], [])

    async def test_a_worker_runs_until_it_is_cancelled(self, runs):
        working = asyncio.create_task(runs.work({"clerk": clerk(None, [], "Done.")}, poll=0.01))
        await asyncio.sleep(0.05)
        runs.begin("r1", "clerk", "Pay order 7")
        while runs.find("r1").state != "done":
            await asyncio.sleep(0.01)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    async def test_at_sigterm_calls_end_and_runs_go_back_to_the_queue(self, runs):
        entered, free, done = asyncio.Event(), asyncio.Event(), []

        @tool(effects="irreversible")
        async def pay(order: int) -> str:
            """Pay an order."""
            entered.set()
            await free.wait()
            done.append(order)
            return "paid"

        runs.begin("r1", "clerk", "Pay order 7")
        agent = clerk(None, [pay], PAY, "Done.")
        working = asyncio.create_task(runs.work({"clerk": agent}, poll=0.01))
        await entered.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.05)
        free.set()
        await working
        assert done == [7]
        assert (runs.find("r1").state, runs.unknown()) == ("queued", [])

    async def test_at_sigterm_a_worker_without_runs_ends(self, runs):
        working = asyncio.create_task(runs.work({"clerk": clerk(None, [], "Done.")}, poll=60))
        await auntil(lambda: signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(working, 60)

    async def test_calls_that_take_longer_than_the_grace_are_cancelled_and_unknown(self, runs):
        entered = asyncio.Event()

        @tool(effects="irreversible")
        async def pay(order: int) -> str:
            """Pay an order."""
            entered.set()
            await asyncio.Event().wait()
            return "paid"

        runs.begin("r1", "clerk", "Pay order 7")
        working = asyncio.create_task(runs.work({"clerk": clerk(None, [pay], PAY, "Done.")}, poll=0.01, grace=0))
        await entered.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(working, 60)
        assert [call.place for call in runs.unknown()] == ["/1.1"]

    def test_a_worker_may_run_in_any_thread(self, runs):
        runs.begin("r1", "clerk", "Pay order 7")
        agents = {"clerk": clerk(None, [], "Done.")}
        thread = threading.Thread(target=lambda: asyncio.run(runs.work(agents, until_idle=True, poll=0.01)))
        thread.start()
        thread.join(60)
        assert runs.find("r1").text == "Done."

    async def test_at_sigterm_questions_stay_open(self, tmp_path, store, pay, paid):
        with park(tmp_path, park_after=None) as runs:
            runs.begin("r1", "clerk", "Pay order 7")
            agent = clerk(None, [pay], PAY, "Done.", review=QueueReview(store, poll=0.01))
            working = asyncio.create_task(runs.work({"clerk": agent}, poll=0.01))
            while not store.pending():
                await asyncio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGTERM)
            await working
            assert (runs.find("r1").state, len(store.pending())) == ("waiting", 1)

    async def test_only_agents_can_work(self, runs):
        with pytest.raises(ToolDefinitionError, match=r"RunJournal\.work takes agents by name; 'clerk' is 'gpt-5'"):
            await runs.work({"clerk": "gpt-5"})
        with pytest.raises(ToolDefinitionError, match=r"takes agents by name, such as {'clerk': agent}, not Agent\("):
            await runs.work(clerk(None, [], "Done."))
