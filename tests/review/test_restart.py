"""A process dies while its call waits: the answer counts when the same run asks again, once, for the same call."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import aclosing, closing, contextmanager

import pytest

from helpers.wait import auntil, until
from toolsemble import Agent, ReviewRefusedError, Toolbox, ToolCall, ToolConfigurationError, ToolContext, tool
from toolsemble._runtime.signing import sign
from toolsemble._runtime.storage.database import ProcessIdentity
from toolsemble._runtime.watchers import unwatch, watch
from toolsemble.review import (
    Continue,
    Edit,
    ExitEarly,
    MemoryStore,
    QueueReview,
    ReviewRequest,
    ReviewStore,
)
from toolsemble.review._asking.question import Question
from toolsemble.testing import ScriptedModel

pytestmark = pytest.mark.slow

FAST = 0.01
DAY = 24 * 3600.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "reviews.db"


@contextmanager
def paying(path, run_id, *orders):
    """Start a process that asks whether it may pay, and end it by force."""
    command = [sys.executable, "-m", "tests.helpers.resume_process", str(path), run_id, *map(str, orders)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def pending(path):
    with ReviewStore(path) as store:
        return store.pending()


def kill_while_it_waits(path, run_id, *orders):
    with paying(path, run_id, *orders):
        until(lambda: path.exists() and pending(path))
    return pending(path)


def finish(path, run_id, *orders):
    with paying(path, run_id, *orders) as process:
        return process.communicate(timeout=60)[0].splitlines()


def tamper(path, statement, *values):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement, values)


def audit_kinds(store):
    return [event.kind for event in store.audit()]


def make_request(**given):
    return ReviewRequest("Pays", "pay", given.pop("arguments", {"order": 17}), run_id="r1", **given)


# The same run comes again, in another process, and its provider gives other ids to its calls.


def test_approval_for_a_dead_process_is_used_once(path):
    (request,) = kill_while_it_waits(path, "order-17", 17)
    with ReviewStore(path) as store:
        store.answer(request, Continue(), person="bob")
    assert finish(path, "order-17", 17) == ["paid 17", "done"]
    with ReviewStore(path) as store:
        assert audit_kinds(store) == ["asked", "answered", "asked", "used"]
        assert store.audit()[-1].person == "bob"
    assert [again.arguments for again in kill_while_it_waits(path, "order-17", 17)] == [{"order": 17}]


def test_rejection_for_a_dead_process_is_used(path):
    (request,) = kill_while_it_waits(path, "order-17", 17)
    with ReviewStore(path) as store:
        store.answer(request, ExitEarly("not today"))
    assert finish(path, "order-17", 17) == ["done"]


def test_repeated_restarts_keep_one_request(path):
    ids = {request.id for _ in range(3) for request in kill_while_it_waits(path, "order-17", 17)}
    assert len(ids) == 1
    with ReviewStore(path) as store:
        store.answer(store.pending()[0], Continue())
    assert finish(path, "order-17", 17) == ["paid 17", "done"]


@pytest.mark.parametrize(("run_id", "order"), [("order-17", 18), ("order-18", 17)])
def test_other_arguments_or_run_are_asked_again(path, run_id, order):
    (request,) = kill_while_it_waits(path, "order-17", 17)
    with ReviewStore(path) as store:
        store.answer(request, Continue())
    (other,) = kill_while_it_waits(path, run_id, order)
    assert (other.id != request.id, other.run_id, other.arguments) == (True, run_id, {"order": order})


def test_approval_covers_one_of_two_equal_calls(path):
    (request,) = kill_while_it_waits(path, "order-17", 17, 17)
    with ReviewStore(path) as store:
        store.answer(request, Continue())
    with paying(path, "order-17", 17, 17) as process:
        assert process.stdout.readline() == "paid 17\n"
        until(lambda: pending(path))
    (second,) = pending(path)
    assert second.id != request.id


def test_rejects_a_changed_receipt_after_a_restart(path):
    (request,) = kill_while_it_waits(path, "order-17", 17)
    with ReviewStore(path) as store:
        store.answer(request, ExitEarly("no"), person="bob")
    tamper(path, """UPDATE requests SET receipt = replace(receipt, '"exit_early"', '"continue"')""")
    assert finish(path, "order-17", 17) == ["done"]
    with ReviewStore(path) as store:
        assert [event.detail for event in store.audit() if event.kind == "refused"] == ["the signature does not match"]


async def test_earlier_answer_has_no_request_event(path):
    @tool(requires_approval=True)
    def pay(order: int) -> str:
        return f"paid {order}"

    def agent(store):
        model = ScriptedModel([ToolCall("pay", {"order": 17}), "done"])
        return Agent(model, [pay], review=QueueReview(store, poll=FAST))

    with ReviewStore(path) as store:
        async with aclosing(agent(store).stream("pay", run_id="r1")) as events:
            async for event in events:
                if event.kind == "review_requested":
                    break
    with ReviewStore(path) as store:
        store.answer(store.pending()[0], Continue())
        async with aclosing(agent(store).stream("pay", run_id="r1")) as events:
            reviews = [event async for event in events if event.kind.startswith("review_")]
    assert [(each.kind, each.request.id) for each in reviews] == [("review_decided", event.request.id)]


async def test_wrapper_sends_its_event_before_it_finds_an_earlier_answer(path):
    class Wrapper:
        def __init__(self, queue):
            self._queue = queue

        async def review(self, request):
            return await self._queue.review(request)

    events = []
    with ReviewStore(path) as store:
        store.ask([first := make_request()])
        store.answer(first, Continue())
        token = watch(events.append)
        decision = await Question(Wrapper(QueueReview(store, poll=FAST)), make_request()).ado()
        unwatch(token)
    assert decision == Continue()
    assert [event.kind for event in events] == ["review_requested", "review_decided"]


async def test_earlier_answer_is_not_announced(path):
    with ReviewStore(path) as store:
        store.ask([first := make_request()])
        store.answer(first, Continue())
        told = []

        class Telling(QueueReview):
            async def announce(self, request):
                told.append(request)

        assert await Telling(store, poll=FAST).review(make_request()) == Continue()
        assert told == []


# A run that is cancelled may be repeated, if the program chose its id.


def build_payer(store, **settings):
    @tool(requires_approval=True, **settings)
    def pay(order: int) -> str:
        return f"paid {order}"

    model = ScriptedModel([ToolCall("pay", {"order": 17}), "done"])
    return Agent(model, [pay], review=QueueReview(store, poll=FAST))


async def cancel_while_it_waits(store, run_id="r1", **settings):
    running = asyncio.create_task(build_payer(store, **settings).run("pay", run_id=run_id))
    await auntil(store.pending)
    (request,) = store.pending()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    return request


async def test_an_answer_after_a_cancelled_run_counts_when_the_run_is_repeated(path):
    with ReviewStore(path) as store, ReviewStore(path) as other:
        request = await cancel_while_it_waits(store)
        assert [each.id for each in store.pending()] == [request.id]
        store.answer(store.pending()[0], Continue(), person="bob")
        result = await build_payer(other).run("pay", run_id="r1")
        assert result.tool_calls[0].reply.text == "paid 17"
        assert audit_kinds(store) == ["asked", "answered", "asked", "used"]


async def test_a_cancelled_run_that_is_repeated_before_the_answer_keeps_its_question(path):
    with ReviewStore(path) as store:
        request = await cancel_while_it_waits(store)
        assert (await cancel_while_it_waits(store)).id == request.id


async def test_an_answer_that_a_cancelled_run_did_not_take_counts_when_the_run_is_repeated(path):
    announced = asyncio.Event()

    class Telling(QueueReview):
        async def announce(self, request):
            announced.set()

    with ReviewStore(path) as store:
        # From the announcement on, the store is not looked at for a minute.
        asked = asyncio.create_task(Question(Telling(store, poll=60), make_request()).ado())
        await announced.wait()
        store.answer(store.pending()[0], Continue())
        asked.cancel()
        await asyncio.wait([asked])
        assert await Question(QueueReview(store, poll=60), make_request()).ado() == Continue()
        assert audit_kinds(store) == ["asked", "answered", "asked", "used"]


async def test_a_cancelled_run_without_an_id_withdraws_its_question(path):
    with ReviewStore(path) as store:
        request = await cancel_while_it_waits(store, None)
        assert (store.pending(), audit_kinds(store)) == ([], ["asked", "withdrawn"])
        with pytest.raises(ReviewRefusedError, match="it was withdrawn: the answer is no longer needed"):
            store.answer(request, Continue())


async def test_a_reviewer_that_answers_before_the_queue_withdraws_its_question(path):
    class FirstOf:
        def __init__(self, queue, other):
            self._queue, self._other = queue, other

        async def review(self, request):
            asked = asyncio.create_task(self._queue.review(request))
            await self._other.wait()
            asked.cancel()
            await asyncio.wait([asked])
            return Continue()

    with ReviewStore(path) as store:
        other = asyncio.Event()
        asked = asyncio.create_task(Question(FirstOf(QueueReview(store, poll=FAST), other), make_request()).ado())
        await auntil(store.pending)
        other.set()
        assert await asked == Continue()
        assert (store.pending(), audit_kinds(store)) == ([], ["asked", "withdrawn"])


async def test_a_question_without_a_timeout_stays_open_for_a_day_after_its_run_is_cancelled(path):
    now = [time.time()]
    with ReviewStore(path, clock=lambda: now[0]) as store:
        request = await cancel_while_it_waits(store, approval_timeout=None)
        now[0] += DAY - 1
        assert [each.id for each in store.pending()] == [request.id]
        now[0] += 2
        assert store.pending() == []


async def test_a_question_with_a_timeout_keeps_its_deadline_when_its_run_is_cancelled(path):
    now = [time.time()]
    with ReviewStore(path, clock=lambda: now[0]) as store:
        await cancel_while_it_waits(store, approval_timeout=60)
        now[0] += 61
        assert (store.pending(), audit_kinds(store)) == ([], ["asked", "expired"])


async def test_a_store_that_cannot_leave_questions_open_withdraws_them():
    class Plain:
        def __init__(self, store):
            for name in ("ask", "pending", "find", "answer", "take", "withdraw", "audit"):
                setattr(self, name, getattr(store, name))

    with MemoryStore() as store:
        await cancel_while_it_waits(Plain(store))
        assert (store.pending(), audit_kinds(store)) == ([], ["asked", "withdrawn"])


@pytest.mark.parametrize(("run_id", "kinds"), [("order-17", ["asked"]), ("", ["asked", "withdrawn"])])
def test_an_interrupted_process_leaves_the_question_of_a_run_with_an_id_open(path, run_id, kinds):
    with paying(path, run_id, 17) as process:
        until(lambda: path.exists() and pending(path))
        process.send_signal(signal.SIGINT)
        process.wait(60)
    with ReviewStore(path) as store:
        assert audit_kinds(store) == kinds
        if run_id:
            store.answer(store.pending()[0], Continue(), person="bob")
    if run_id:
        assert finish(path, run_id, 17) == ["paid 17", "done"]


# A run whose id was generated cannot come again.


def test_closes_request_of_a_generated_run_after_its_process_ended(path):
    with paying(path, "", 17), ReviewStore(path) as store:
        until(store.pending)
        (request,) = store.pending()
        assert (request.chosen_run, store.pending()) == (False, [request])
    with ReviewStore(path) as store:
        assert (store.pending(), audit_kinds(store)) == ([], ["asked", "abandoned"])
        with pytest.raises(ReviewRefusedError, match=r"^the process that asked has ended, and its run cannot resume"):
            store.answer(request, Continue())
        assert store.take({request.id: request}) == {request.id: ExitEarly("the process that asked has ended")}


def test_rejects_answer_to_an_abandoned_request(path):
    with paying(path, "", 17), ReviewStore(path) as store:
        until(store.pending)
        (request,) = store.pending()
    with ReviewStore(path) as store:
        with pytest.raises(ReviewRefusedError, match=r"it has no run_id of its own$"):
            store.answer(request, Continue(), person="bob")
        assert audit_kinds(store) == ["asked", "abandoned", "refused"]


@pytest.mark.parametrize("make", ["toolbox", "agent", "tool", "pages", "during"])
async def test_request_shows_whether_the_run_id_was_chosen(make):
    with MemoryStore() as store:
        queue = QueueReview(store, poll=FAST)

        @tool(requires_approval=True)
        def pay(order: int) -> str:
            return f"paid {order}"

        @tool
        async def look(order: int, context: ToolContext) -> str:
            return str(await context.arequest_approval("Really?", arguments={"order": order}))

        async def call(run_id):
            arguments = {"order": 17}
            if make == "tool":
                context = ToolContext(run_id=run_id or "", review=queue, memory_id="ada")
                return await pay.aexecute(json.dumps(arguments), context=context)
            if make == "agent":
                model = ScriptedModel([ToolCall("pay", arguments), "done"])
                return await Agent(model, [pay], review=queue).run("pay", run_id=run_id, memory_id="ada")
            pages = {"max_output": 100, "pages": True} if make == "pages" else {}
            name = "look" if make == "during" else "pay"
            box = Toolbox([pay, look], review=queue, **pages)
            return await box.aexecute(ToolCall(name, arguments), run_id=run_id, memory_id="ada")

        for run_id in (None, "r1"):
            called = asyncio.create_task(call(run_id))
            await auntil(store.pending)
            (request,) = store.pending()
            assert (request.chosen_run, request.memory_id) == (run_id is not None, "ada")
            store.answer(request, Continue())
            await called


async def test_run_id_of_a_result_is_a_plain_str():
    result = await Agent(ScriptedModel(["done"])).run("go")
    assert type(result.run_id) is str


# A process still waits.


def test_request_of_a_running_process_is_not_reused(path):
    with paying(path, "r1", 17), ReviewStore(path) as store:
        until(store.pending)
        (first,) = store.pending()
        with paying(path, "r1", 17):
            until(lambda: len(store.pending()) == 2)
        assert first in store.pending()


async def test_equal_calls_of_two_queues_wait_separately():
    with MemoryStore() as store:
        waiting = [asyncio.create_task(QueueReview(store, poll=FAST).review(make_request())) for _ in range(2)]
        await auntil(lambda: len(store.pending()) == 2)
        first, second = store.pending()
        store.answer(first, Edit("a"))
        store.answer(second, Edit("b"))
        assert sorted([(await each).revised for each in waiting]) == ["a", "b"]


def test_request_of_another_open_store_is_not_reused(path):
    with ReviewStore(path) as one, ReviewStore(path) as other:
        one.ask([first := make_request()])
        assert other.ask([second := make_request()]) == [second.id]
        assert other.pending() == [first, second]


def test_request_of_a_closed_store_is_reused(path):
    with ReviewStore(path) as one:
        one.ask([first := make_request(), generated := make_request(chosen_run=False)])
    with ReviewStore(path) as other:
        assert other.ask([make_request()]) == [first.id]
        assert other.pending()[0].id == first.id
        with pytest.raises(ReviewRefusedError, match=r"^the process that asked has ended"):
            other.answer(generated, Continue())


@pytest.mark.parametrize("asker", ["[]", "{", "5", None, '["", 0, "", ""]', '["", "1", "", ""]', '["x", 1, "", "y"]'])
def test_request_of_an_unknown_asker_is_reused_and_stays_open(path, asker):
    with ReviewStore(path) as store:
        store.ask([first := make_request(), generated := make_request(chosen_run=False)])
        tamper(path, "UPDATE requests SET asker = ?", asker)
        assert store.pending() == [first, generated]
        assert store.ask([make_request()]) == [first.id]


@pytest.mark.parametrize("system", ["posix", "nt"])
def test_process_has_ended_only_if_certain(monkeypatch, system):
    mine = ProcessIdentity.current()
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    assert (mine.has_ended(), mine._replace(pid=gone.pid).has_ended()) == (False, True)
    assert mine._replace(place="another machine").has_ended() is False
    monkeypatch.setattr(os, "name", system)
    assert mine._replace(pid=gone.pid, started="").has_ended() is (system == "posix")


# A question without a deadline.


def test_request_without_deadline_stays_open_for_a_day_after_its_process_ended(path):
    with paying(path, "order-17", 17), ReviewStore(path) as store:
        until(store.pending)
        (request,) = store.pending()
    assert request.deadline is None
    now = [request.asked_at]
    with ReviewStore(path, clock=lambda: now[0]) as store:
        now[0] += 10 * DAY
        assert store.pending() == [request]
        now[0] += DAY - 1
        assert store.pending() == [request]
        now[0] += 1
        assert store.pending() == []
        with pytest.raises(
            ReviewRefusedError, match=r"^the process that asked has ended, and its run did not ask again"
        ):
            store.answer(request, Continue())


def test_resumed_request_has_no_deadline_again(path):
    (request,) = kill_while_it_waits(path, "order-17", 17)
    now = [request.asked_at]
    with ReviewStore(path, clock=lambda: now[0]) as store:
        assert store.pending() == [request]
        with paying(path, "order-17", 17):
            until(lambda: store.pending()[0].call_id != request.call_id)
            now[0] += 10 * DAY
            assert [each.id for each in store.pending()] == [request.id]


# Files of an earlier version.


def make_old(path):
    """Change a file to what the first version of the tables looked like."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(
            """
            DROP INDEX requests_by_state; DROP INDEX requests_by_bound;
            ALTER TABLE requests DROP COLUMN asker;
            UPDATE requests SET bound = 'old', request = replace(replace(request, ',"memory_id":""', ''),
                ',"chosen_run":true', '');
            CREATE INDEX requests_by_state ON requests (state, deadline);
            CREATE INDEX requests_by_bound ON requests (bound, state);
            PRAGMA user_version = 1;
            """
        )


def seal_again(path, secret):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for number, text in connection.execute("SELECT number, request FROM requests").fetchall():
            connection.execute("UPDATE requests SET seal = ? WHERE number = ?", (sign(secret, "request", text), number))


def test_upgrades_a_file_of_the_first_version(path):
    with ReviewStore(path, b"secret") as store:
        store.ask([first := make_request(call_id="a"), second := make_request(call_id="b", arguments={"order": 18})])
        store.answer(first, Continue(), person="bob")
    make_old(path)
    seal_again(path, b"secret")
    with ReviewStore(path, b"secret") as store:
        assert store.pending() == [second]
        assert store.ask([again := make_request(call_id="c")]) == [first.id]
        assert store.take({first.id: again}) == {first.id: Continue()}
        store.answer(second, Continue())
    with ReviewStore(path, b"secret") as store:
        assert audit_kinds(store).count("answered") == 2


def test_upgrade_keeps_rows_beside_a_damaged_one(path):
    with ReviewStore(path, b"secret") as store:
        store.ask([first := make_request(), other := make_request(arguments={"order": 18})])
    make_old(path)
    seal_again(path, b"secret")
    tamper(path, "UPDATE requests SET request = '{' WHERE id = ?", first.id)
    with ReviewStore(path, b"secret") as store:
        assert store.pending() == [other]


def test_concurrent_processes_upgrade_a_file_once(path):
    with ReviewStore(path) as store:
        store.ask([make_request(arguments={"order": number}) for number in range(500)])
    make_old(path)
    script = "import sys; from toolsemble.review import ReviewStore; sys.stdin.read(); ReviewStore(sys.argv[1]).close()"
    command = [sys.executable, "-c", script, path]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(4)]
    for process in processes:
        process.stdin.close()
    assert [process.wait(60) for process in processes] == [0] * 4


def test_rejects_a_file_of_a_later_version(path):
    ReviewStore(path).close()
    tamper(path, "PRAGMA user_version = 99")
    with pytest.raises(ToolConfigurationError, match="not a review store of this version"):
        ReviewStore(path)
