"""Runs that wait for a person: nothing is asked twice, answers count while no process runs, and none has to wait."""

import asyncio
import sqlite3
import threading
import time
from contextlib import closing

import pytest

from helpers.journal_runs import PAY, Killed, answer, clerk, do_until_parked, park
from helpers.wait import auntil
from toolsemble import (
    RunBusyError,
    RunCancelledError,
    RunParkedError,
    Toolbox,
    ToolCall,
    ToolPipeline,
    fan_out,
    tool,
)
from toolsemble._tools.pipeline.step import Step
from toolsemble._vocabulary.errors import ReviewRefusedError, ToolConfigurationError
from toolsemble.agent._journal.driver import RunDriver
from toolsemble.review import Continue, Edit, ExitEarly, QueueReview, RememberReview, ReviewStore
from toolsemble.testing import RecordingSink


def test_a_run_is_parked_and_continues_with_the_answer(tmp_path, store, pay, paid):
    with park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store))
        assert do_until_parked(agent).run_id == "r1"
        assert runs.find("r1").state == "waiting"
        assert len(store.pending()) == 1
        answer(store)
        assert agent.run_sync("Pay order 7", run_id="r1").text == "Done."
    assert paid == [7]
    assert [event.kind for event in store.audit()] == ["asked", "answered", "used"]


def test_sinks_are_told_that_a_run_is_parked_and_not_that_it_failed(tmp_path, store, pay):
    sink = RecordingSink()
    with park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store), sinks=[sink])
        parked = do_until_parked(agent)
        answer(store)
        agent.run_sync("Pay order 7", run_id="r1")
    ends = [event for event in sink.events if event.kind == "run_finished"]
    assert [(event.stop_reason, event.error) for event in ends] == [("parked", ""), ("answer", "")]
    assert parked.partial.stop_reason == "parked"


def test_a_rejection_and_an_edit_count_as_well(tmp_path, store, pay, paid):
    with park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store))
        for run_id, decision in (("r1", ExitEarly("too much")), ("r2", Edit('{"order": 8}'))):
            do_until_parked(agent, run_id)
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
        do_until_parked(agent)
        answer(store)
        result = agent.run_sync("Pay order 7", run_id="r1")
    assert looked == [1]
    assert [record.reply.text for record in result.tool_calls] == ["paid 7", "seen"]


def test_two_questions_of_a_turn_are_parked_together(tmp_path, store, pay, paid):
    with park(tmp_path) as runs:
        agent = clerk(runs, [pay], [PAY, ToolCall("pay", {"order": 8})], "Done.", review=QueueReview(store))
        do_until_parked(agent)
        first, second = store.pending()
        store.answer(first, Continue(), person="ada")
        do_until_parked(agent)
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
        do_until_parked(agent)
        answer(store)
        result = agent.run_sync("Pay order 7", run_id="r1")
    assert (undone, paid) == ([], [7])
    assert result.tool_calls[0].reply.text == "paid 7"


def test_an_undo_can_wait_for_approval(tmp_path, store, pay, paid):
    @tool
    def reserve(order: int) -> dict:
        """Reserve an order."""
        return {}

    @tool
    def fail() -> str:
        """Fail."""
        raise ValueError("no stock")

    @tool(effects="irreversible", requires_approval=True, approval_timeout=None)
    def refund(input: dict) -> str:
        """Refund an order."""
        paid.remove(input["order"])
        return "refunded"

    paid.append(7)
    pipeline = ToolPipeline("settle", "Settles an order", [Step(reserve, compensate=refund), fail])
    with park(tmp_path) as runs:
        agent = clerk(runs, [pipeline], ToolCall("settle", {"order": 7}), "Done.", review=QueueReview(store))
        do_until_parked(agent)
        assert [request.tool_name for request in store.pending()] == ["refund"]
        answer(store)
        result = agent.run_sync("Pay order 7", run_id="r1")
    assert paid == []
    assert [record.result.text for record in result.tool_calls[0].reply.result.attributes["undone"]] == ["refunded"]


def test_a_branch_can_wait_while_the_others_end_and_are_not_repeated(tmp_path, store, pay, paid):
    looked = []

    @tool
    def look(order: int) -> str:
        """Look up an order."""
        looked.append(order)
        return "seen"

    both = fan_out(pay, look, name="both")
    with park(tmp_path) as runs:
        agent = clerk(runs, [both], ToolCall("both", {"order": 7}), "Done.", review=QueueReview(store))
        do_until_parked(agent)
        answer(store)
        assert agent.run_sync("Pay order 7", run_id="r1").text == "Done."
    assert (paid, looked) == ([7], [7])


def test_a_question_that_was_changed_in_the_file_is_asked_anew_and_cannot_be_answered(tmp_path, store, pay, paid):
    with park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store))
        do_until_parked(agent)
        (changed,) = store.pending()
        with closing(sqlite3.connect(tmp_path / "reviews.db", isolation_level=None)) as file:
            file.execute("UPDATE requests SET request = replace(request, '7', '8')")
        do_until_parked(agent)
        (asked,) = store.pending()
        assert (asked.id != changed.id, asked.arguments) == (True, {"order": 7})
        with pytest.raises(ReviewRefusedError, match="the request was changed in the store"):
            store.answer(changed, Continue(), person="ada")
    assert paid == []


def test_a_question_of_a_changed_tool_stays_open_if_its_reviewer_cannot_close_it(tmp_path, store, paid):
    class Simple(QueueReview):
        def withdraw(self, ids):
            return False

    def ask_with(description):
        @tool(description=description, effects="irreversible", requires_approval=True, approval_timeout=None)
        def pay(order: int) -> str:
            paid.append(order)
            return f"paid {order}"

        return clerk(runs, [pay], PAY, "Done.", review=Simple(store))

    with park(tmp_path) as runs:
        do_until_parked(ask_with("Pays an order"))
        do_until_parked(ask_with("Pays an order in dollars"))
        assert [request.description for request in store.pending()] == ["Pays an order", "Pays an order in dollars"]


def test_a_call_of_an_agent_inside_can_wait(tmp_path, store, pay, paid):
    with park(tmp_path) as runs:

        def make():
            inner = clerk(None, [pay], PAY, "Paid.").as_tool("helper", "Helps")
            outer = [ToolCall("helper", {"input": "Pay"}), "Done."]
            return clerk(runs, [inner], *outer, review=QueueReview(store))

        do_until_parked(make())
        assert runs.find("r1").state == "waiting"
        answer(store)
        result = make().run_sync("Pay order 7", run_id="r1")
    assert paid == [7]
    assert result.tool_calls[0].reply.text == "Paid."
    assert result.usage.model_calls == 4


def test_a_reviewer_that_remembers_can_be_parked(tmp_path, store, pay):
    with park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=RememberReview(QueueReview(store)))
        do_until_parked(agent)
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
    with ReviewStore(tmp_path / "reviews.db", clock=lambda: now[0]) as store, park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store))
        do_until_parked(agent)
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

    with ReviewStore(tmp_path / "reviews.db") as store, park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store))
        do_until_parked(agent)
        (first,) = store.pending()
        do_until_parked(agent)
        (second,) = store.pending()
        assert second.id == first.id
        assert abs(second.deadline - first.deadline) < 1
        later = time.time() + 3601
        monkeypatch.setattr("toolsemble._engine.execution.approval.time.time", lambda: later)
        result = agent.run_sync("Pay order 7", run_id="r1")
    assert result.tool_calls[0].reply.text == "Error: Rejected by reviewer: no answer within 3600 s"
    assert paid == []


def test_an_answer_that_was_used_before_the_kill_counts_again(tmp_path, store, pay, paid, monkeypatch):
    with park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store))
        do_until_parked(agent)
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
            do_until_parked(agent)
            assert paid == expected
            answer(store)
        assert agent.run_sync("Pay order 7", run_id="r1").text == "Done."
    assert paid == [7, 7]


def test_of_two_reviewers_the_first_is_not_asked_again_while_the_second_takes_time(tmp_path, pay, paid):
    with (
        park(tmp_path) as runs,
        ReviewStore(tmp_path / "first.db") as first,
        ReviewStore(tmp_path / "second.db") as second,
    ):
        inner = clerk(None, [pay], PAY, "Paid.", review=QueueReview(first)).as_tool("helper", "Helps")
        box = Toolbox([inner], approve=["pay"], approval_timeout=None, review=QueueReview(second))
        agent = clerk(runs, box, ToolCall("helper", {"input": "Pay"}), "Done.")
        do_until_parked(agent)
        answer(first)
        do_until_parked(agent)
        do_until_parked(agent)
        assert (len(first.pending()), len(second.pending()), paid) == (0, 1, [])
        assert [event.kind for event in first.audit()].count("answered") == 1
        answer(second)
        assert agent.run_sync("Pay order 7", run_id="r1").text == "Done."
    assert paid == [7]


def test_a_question_without_a_time_limit_stays_open_for_weeks(tmp_path, pay, paid):
    now = [time.time()]
    with ReviewStore(tmp_path / "reviews.db", clock=lambda: now[0]) as store, park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store))
        do_until_parked(agent)
        now[0] += 30 * 24 * 3600
        answer(store)
        assert agent.run_sync("Pay order 7", run_id="r1").text == "Done."
    assert paid == [7]


@pytest.mark.parametrize("days", [-1, 1])
def test_a_clock_that_is_a_day_off_does_not_take_an_answer_back(tmp_path, pay, paid, days):
    now = [time.time()]
    with ReviewStore(tmp_path / "reviews.db", clock=lambda: now[0]) as store, park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store))
        do_until_parked(agent)
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
        do_until_parked(before)
        for _ in range(2):
            do_until_parked(after)
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
        do_until_parked(agent)
        clock.advance(120)
        runs.fork("r1", "/1", "r2")
        do_until_parked(agent, "r2")
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
        def withdraw(self, ids):
            return False

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


def test_each_question_of_a_parked_run_is_announced_and_audited_once(tmp_path, store, pay, paid):
    class Announcing(QueueReview):
        async def announce(self, request):
            announced.append(request.arguments["order"])

    announced, sink = [], RecordingSink()
    with park(tmp_path) as runs:
        calls = [PAY, ToolCall("pay", {"order": 8})]
        agent = clerk(runs, [pay], calls, "Done.", review=Announcing(store), sinks=[sink])
        do_until_parked(agent)
        for request in store.pending():
            store.answer(request, Continue(), person="ada")
            if request.arguments["order"] == 7:
                do_until_parked(agent)
        agent.run_sync("Pay order 7", run_id="r1")
    kinds = [event.kind for event in store.audit()]
    assert (announced, paid, kinds.count("asked"), kinds.count("used")) == ([7, 8], [7, 8], 2, 2)
    asked = [event.request.arguments["order"] for event in sink.events if event.kind == "review_requested"]
    assert (asked, [event.kind for event in sink.events].count("review_decided")) == ([7, 8], 2)


class SlowlyAnnouncing(QueueReview):
    """A reviewer whose first question is lost."""

    def __init__(self, store):
        super().__init__(store)
        self.announced = []

    async def announce(self, request):
        self.announced.append(request.id)
        if len(self.announced) == 1:
            await asyncio.Event().wait()


async def stop_while_announcing(agent, review):
    """Do a run until it announces a question, and cancel its task."""
    task = asyncio.create_task(agent.run("Pay order 7", run_id="r1"))
    await auntil(lambda: review.announced)
    task.cancel()
    await asyncio.wait([task])


async def test_a_question_without_an_announcement_is_announced_by_the_next_process(tmp_path, store, pay):
    review = SlowlyAnnouncing(store)
    with park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=review)
        await stop_while_announcing(agent, review)
        with pytest.raises(RunParkedError):
            await agent.run("Pay order 7", run_id="r1")
    assert review.announced == [store.pending()[0].id] * 2


def test_a_question_that_cannot_be_announced_is_closed(tmp_path, store, pay):
    class Unreachable(QueueReview):
        async def announce(self, request):
            raise OSError("no route to host")

    with park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=Unreachable(store))
        result = agent.run_sync("Pay order 7", run_id="r1")
    assert result.tool_calls[0].reply.text == "Error: Rejected by reviewer: the reviewer failed to answer"
    assert store.pending() == []


class TestCancelledRun:
    def test_its_question_is_closed_by_the_process_that_has_parked_it(self, tmp_path, store, pay):
        with park(tmp_path) as runs:
            do_until_parked(clerk(runs, [pay], PAY, "Done.", review=QueueReview(store)))
            (request,) = store.pending()
            runs.cancel("r1")
            assert store.pending() == []
        with pytest.raises(ReviewRefusedError, match="it was withdrawn: the answer is no longer needed"):
            store.answer(request, Continue())

    def test_its_question_is_closed_in_a_given_store(self, tmp_path, store, pay):
        with park(tmp_path) as here, park(tmp_path) as elsewhere:
            do_until_parked(clerk(here, [pay], PAY, "Done.", review=QueueReview(store)))
            elsewhere.cancel("r1", store=store)
            assert store.pending() == []

    async def test_its_question_is_closed_by_a_worker(self, tmp_path, store, pay, paid):
        with park(tmp_path) as runs, park(tmp_path) as elsewhere:
            agent = clerk(None, [pay], PAY, "Done.", review=QueueReview(store))
            for run_id in ("r1", "r2"):
                runs.begin(run_id, "clerk", "Pay order 7")
            await runs.work({"clerk": agent}, until_idle=True, poll=0.01)
            elsewhere.cancel("r1")
            assert len(store.pending()) == 2
            await runs.work({"poet": clerk(None, [], "Roses")}, until_idle=True, poll=0.01)
            assert len(store.pending()) == 1  # this process has parked it
            elsewhere.cancel("r2")
            with park(tmp_path) as others:
                await others.work({"poet": clerk(None, [], "Roses")}, until_idle=True, poll=0.01)
                assert len(store.pending()) == 1  # it does not know the reviewers of that agent
                await others.work({"clerk": agent}, until_idle=True, poll=0.01)
            assert (store.pending(), paid) == ([], [])

    async def test_the_question_of_a_run_that_was_not_parked_is_closed_as_well(self, tmp_path, store, pay):
        review = SlowlyAnnouncing(store)
        with park(tmp_path) as runs:
            await stop_while_announcing(clerk(runs, [pay], PAY, "Done.", review=review), review)
            assert len(store.pending()) == 1
            runs.cancel("r1", store=store)
        assert store.pending() == []

    def test_a_store_that_fails_does_not_keep_it_from_being_cancelled(self, tmp_path, store, pay, caplog):
        class Full:
            def withdraw(self, ids):
                raise OSError("the disk is full")

        with park(tmp_path) as runs, park(tmp_path) as elsewhere:
            do_until_parked(clerk(runs, [pay], PAY, "Done.", review=QueueReview(store)))
            elsewhere.cancel("r1", store=Full())
            assert "could not be closed: the disk is full" in caplog.text
            assert (runs.find("r1").state, len(store.pending())) == ("cancelled", 1)
            runs.cancel("r1")  # closes what is still open
            assert store.pending() == []


async def test_a_run_that_ends_without_an_answer_closes_its_question(tmp_path, store, pay):
    with park(tmp_path, park_after=None) as runs:

        @tool(effects="read")
        async def look() -> str:
            """Look for a long time."""
            await auntil(store.pending)
            await asyncio.Event().wait()
            return "never"

        both = [PAY, ToolCall("look")]
        agent = clerk(runs, [pay, look], both, "Too late.", review=QueueReview(store, poll=0.01), max_seconds=0.5)
        result = await agent.run("Pay order 7", run_id="r1")
        assert (result.stop_reason, runs.find("r1").state, store.pending()) == ("max_seconds", "done", [])


def test_a_run_that_fails_closes_its_question_and_a_retry_asks_anew(tmp_path, store, pay, paid):
    is_open = False

    @tool(effects="read")
    def look() -> str:
        """Look into a shop."""
        if not is_open:
            raise ToolConfigurationError("no shop")
        return "tea"

    with park(tmp_path) as runs:
        agent = clerk(runs, [pay, look], [PAY, ToolCall("look")], "Done.", review=QueueReview(store))
        with pytest.raises(ToolConfigurationError, match="no shop"):
            agent.run_sync("Pay order 7", run_id="r1")
        assert (runs.find("r1").state, store.pending()) == ("failed", [])
        is_open = True
        runs.retry("r1")
        do_until_parked(agent)
        answer(store)
        assert agent.run_sync("Pay order 7", run_id="r1").text == "Done."
    assert paid == [7]


async def test_another_process_can_continue_a_run_whose_task_was_cancelled(tmp_path, store, pay, paid):
    with park(tmp_path, park_after=None) as runs:
        task = asyncio.create_task(
            clerk(runs, [pay], PAY, "Done.", review=QueueReview(store)).run("Pay order 7", run_id="r1")
        )
        await auntil(store.pending)
        task.cancel()
        await asyncio.wait([task])
        assert (task.cancelled(), runs.find("r1").state) == (True, "queued")


def test_a_waiting_run_says_what_it_waits_for(tmp_path, store, pay):
    with park(tmp_path) as runs:
        agent = clerk(runs, [pay], [PAY, ToolCall("pay", {"order": 8})], "Done.", review=QueueReview(store))
        do_until_parked(agent)
        assert runs.find("r1").waits_for == 'pay({"order": 7}), pay({"order": 8})'
        answer(store)
        agent.run_sync("Pay order 7", run_id="r1")
        assert runs.find("r1").waits_for == ""


def test_reviewers_are_told_the_name_of_an_agent_without_a_role(tmp_path, store, pay):
    with park(tmp_path) as runs:
        do_until_parked(clerk(runs, [pay], PAY, "Done.", review=QueueReview(store)))
        do_until_parked(clerk(runs, [pay], PAY, "Done.", review=QueueReview(store), role="a cashier"), "r2")
    assert [request.agent_role for request in store.pending()] == ["clerk", "a cashier"]
