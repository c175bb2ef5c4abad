"""The queue: calls wait in a store, each for its own answer, and nothing is left behind by those who go."""

import asyncio
import logging
import os
import sqlite3
import threading
import time
from contextlib import contextmanager

import pytest

from helpers.wait import auntil
from toolsemble import Agent, Continue, Edit, ExitEarly, OnTimeout, Toolbox, ToolCall, tool
from toolsemble._runtime.watchers import unwatch, watch
from toolsemble._vocabulary.errors import ReviewTimeoutError, ToolConfigurationError, ToolDefinitionError
from toolsemble.review import (
    MemoryStore,
    QueueReview,
    RememberReview,
    ReviewRequest,
    ReviewStore,
    Rule,
    RulesReview,
)
from toolsemble.review._asking.question import Question
from toolsemble.testing import ScriptedModel

pytestmark = pytest.mark.slow

FAST = 0.005


@tool(requires_approval=True)
def delete(path: str) -> str:
    """Deletes a file."""
    return f"deleted {path}"


@pytest.fixture(params=["memory", "file"])
def store(request, tmp_path):
    made = MemoryStore() if request.param == "memory" else ReviewStore(tmp_path / "reviews.db")
    with made:
        yield made


class Answerer(threading.Thread):
    """Answers whatever is pending by a function of the request, until it has answered a number of requests."""

    def __init__(self, store, decide, count):
        super().__init__(daemon=True)
        self.store, self.decide, self.count = store, decide, count
        self.ends = time.monotonic() + 60

    def run(self):
        while self.count and time.monotonic() < self.ends:
            for request in self.store.pending():
                self.store.answer(request, self.decide(request), person="ada")
                self.count -= 1


def start_answerer(store, decide, count=1):
    thread = Answerer(store, decide, count)
    thread.start()
    return thread


def make_request(**given):
    return ReviewRequest("Deletes a file", "delete", given.pop("arguments", "old.log"), **given)


@contextmanager
def watching():
    events = []
    token = watch(events.append)
    try:
        yield events
    finally:
        unwatch(token)


def worker_threads():
    return [thread for thread in threading.enumerate() if thread.name == "toolsemble-review-store"]


def audit_kinds(store):
    return [event.kind for event in store.audit()]


@pytest.mark.parametrize(
    ("decision", "text"),
    [
        (Continue(), "deleted old.log"),
        (Edit('{"path": "older.log"}'), "deleted older.log"),
        (ExitEarly("no"), "Error: Rejected by reviewer: no"),
    ],
)
async def test_call_waits_for_the_answer_in_the_store(store, decision, text):
    box = Toolbox([delete], review=QueueReview(store, poll=FAST))
    start_answerer(store, lambda _: decision, 2)
    reply = await box.aexecute(ToolCall("delete", {"path": "old.log"}, id="c1"))
    again = await asyncio.to_thread(box.execute, ToolCall("delete", {"path": "old.log"}, id="c2"))
    assert (reply.text, again.text) == (text, text)
    assert audit_kinds(store) == ["asked", "answered", "used"] * 2


@pytest.mark.parametrize("wrap", [lambda queue: queue, RememberReview, lambda queue: RulesReview([], ask=queue)])
async def test_request_can_be_answered_at_its_event(store, wrap):
    review = wrap(QueueReview(store, poll=FAST))
    agent = Agent(ScriptedModel([ToolCall("delete", {"path": "old.log"}), "x"]), [delete], review=review)
    requests = []
    async for event in agent.stream("go"):
        if event.kind == "review_requested":
            store.answer(event.request, Continue())
        if event.kind.startswith("review_"):
            requests.append((event.kind, event.request.id))
    (asked, asked_id), (decided, decided_id) = requests
    assert (asked, decided, asked_id) == ("review_requested", "review_decided", decided_id)
    assert audit_kinds(store) == ["asked", "answered", "used"]


async def test_events_have_the_stored_id(store):
    store.ask([first := make_request(run_id="r1")])
    with watching() as events:
        asked = asyncio.create_task(Question(QueueReview(store, poll=FAST), make_request(run_id="r1")).ado())
        await auntil(lambda: events)
        store.answer(events[0].request, Continue())
        await asked
    assert [event.request.id for event in events] == [first.id, first.id]


async def test_decision_of_a_rule_has_both_events():
    review = RulesReview([Rule("deny")])
    with watching() as events:
        await Question(review, request := make_request()).ado()
    assert [(event.kind, event.request) for event in events] == [
        ("review_requested", request),
        ("review_decided", request),
    ]


async def test_failed_store_has_both_events(store):
    store.close()
    with watching() as events:
        await Question(QueueReview(store), make_request()).ado()
    assert [event.kind for event in events] == ["review_requested", "review_decided"]


async def test_each_call_of_a_turn_continues_at_its_own_answer(store):
    box = Toolbox([delete], review=QueueReview(store, poll=FAST))
    calls = [ToolCall("delete", {"path": f"{number}"}, id=f"c{number}") for number in range(2)]
    turn = asyncio.create_task(box.aexecute_all(calls))
    await auntil(lambda: len(store.pending()) == 2)
    first, second = store.pending()
    store.answer(second, Continue())
    await auntil(lambda: "used" in audit_kinds(store))  # although nobody has answered the first
    store.answer(first, ExitEarly(first.arguments["path"]))
    replies = await turn
    by_path = {reply.call.arguments["path"]: reply.text for reply in replies}
    assert by_path[first.arguments["path"]] == f"Error: Rejected by reviewer: {first.arguments['path']}"
    assert by_path[second.arguments["path"]] == f"deleted {second.arguments['path']}"


@pytest.mark.parametrize("number", [1, 200])
async def test_concurrent_calls_share_transactions_and_the_thread_ends(number):
    with MemoryStore() as store:
        transactions = []
        ask = store.ask
        store.ask = lambda requests, **given: transactions.append(len(requests)) or ask(requests, **given)
        queue = QueueReview(store, poll=FAST)
        start_answerer(store, lambda request: Edit(request.arguments), number)
        requests = [make_request(arguments=f"{n}") for n in range(number)]
        decisions = await asyncio.gather(*(queue.review(request) for request in requests))
        assert decisions == [Edit(f"{n}") for n in range(number)]
        assert sum(transactions) == number
        assert len(transactions) <= max(1, number / 4)
        await auntil(lambda: not worker_threads())


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize(
    ("on_timeout", "decision"),
    [
        (OnTimeout.EXIT_EARLY, ExitEarly("no answer within 0.1 s", timed_out=True)),
        (OnTimeout.CONTINUE, Continue()),
        (OnTimeout.FAIL, None),
    ],
)
async def test_unanswered_request_expires(store, on_timeout, decision, sync, clock):
    question = Question(QueueReview(store, poll=FAST), make_request(timeout=0.1, on_timeout=on_timeout))
    asked = asyncio.create_task(asyncio.to_thread(question.do) if sync else question.ado())
    await auntil(lambda: "expired" in audit_kinds(store))
    clock.advance(0.1)  # for whoever waits; the store has a clock of its own
    try:
        answer = await asked
    except ReviewTimeoutError:
        answer = None
    assert answer == decision
    assert (audit_kinds(store), store.pending()) == (["asked", "expired"], [])


async def test_timeout_without_a_toolbox_is_a_rejection(store):
    decision = await QueueReview(store, poll=FAST).review(make_request(timeout=0.01))
    assert decision == ExitEarly("nobody answered in time", timed_out=True)


async def test_cancellation_withdraws_the_request(store):
    queue = QueueReview(store, poll=FAST)
    asked = asyncio.create_task(Question(queue, make_request()).ado())
    await auntil(store.pending)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert audit_kinds(store) == ["asked", "withdrawn"]
    await auntil(lambda: not worker_threads())


async def test_cancellation_before_the_request_is_stored_leaves_none(store):
    with store._database.lock:  # the store is busy
        queue = QueueReview(store, poll=60)
        first = asyncio.create_task(queue.review(make_request(arguments="first")))
        await auntil(worker_threads)
        await auntil(lambda: not queue._worker._new)
        second = asyncio.create_task(queue.review(make_request(arguments="second")))
        await auntil(lambda: queue._worker._new)
        for task in (first, second):
            task.cancel()
        await auntil(lambda: queue._worker._left)
    await asyncio.wait([first, second], timeout=60)
    assert [request.arguments for request in store.pending()] == []
    assert "second" not in [event.detail for event in store.audit()]
    await auntil(lambda: not worker_threads())


async def test_dropped_coroutine_withdraws_the_request(store):
    coroutine = QueueReview(store, poll=FAST).review(make_request())
    future = coroutine.send(None)
    await auntil(store.pending)
    coroutine.close()
    assert not future.done() or not future.cancelled()
    await auntil(lambda: audit_kinds(store) == ["asked", "withdrawn"])


async def test_failed_store_of_one_request_leaves_the_others(store):
    queue = QueueReview(store, poll=FAST)
    start_answerer(store, lambda _: Continue())
    bad, good = await asyncio.gather(
        Question(queue, make_request(arguments="half \ud800")).ado(), Question(queue, make_request()).ado()
    )
    assert (bad, good) == (ExitEarly("the reviewer failed to answer"), Continue())


class Failing(MemoryStore):
    """A store that fails a number of times in one of its methods."""

    def __init__(self, method, times=1):
        super().__init__()
        works = getattr(self, method)

        def fails(*args, **given):
            nonlocal times
            times -= 1
            if times >= 0:
                raise sqlite3.OperationalError("database or disk is full")
            return works(*args, **given)

        setattr(self, method, fails)


@pytest.mark.parametrize("method", ["ask", "take"])
async def test_store_failure_rejects_and_the_queue_continues(method):
    with Failing(method) as store:
        queue = QueueReview(store, poll=FAST)
        assert await Question(queue, make_request()).ado() == ExitEarly("the reviewer failed to answer")
        await auntil(lambda: store.pending() == [])
        start_answerer(store, lambda _: Continue())
        assert await Question(queue, make_request()).ado() == Continue()


async def test_failed_withdrawal_is_logged(caplog):
    with Failing("withdraw") as store, caplog.at_level(logging.WARNING, "toolsemble.review"):
        asked = asyncio.create_task(QueueReview(store, poll=FAST).review(make_request()))
        await auntil(store.pending)
        asked.cancel()
        await asyncio.wait([asked], timeout=60)
        assert [record.getMessage() for record in caplog.records] == ["Requests could not be withdrawn"]
        await auntil(lambda: not worker_threads())


async def test_closed_store_rejects(store):
    queue = QueueReview(store, poll=FAST)
    asked = asyncio.create_task(Question(queue, make_request()).ado())
    await auntil(store.pending)
    store.close()
    assert await asked == ExitEarly("the reviewer failed to answer")
    with pytest.raises(ToolConfigurationError, match=r"^The review store is closed"):
        await queue.review(make_request())


async def test_cancellation_at_the_answer_stays_cancelled():
    with MemoryStore() as store:
        queue = QueueReview(store, poll=FAST)
        taken, go_on, take = threading.Event(), threading.Event(), store.take

        def slow(requests):
            decisions = take(requests)
            if decisions:
                taken.set()
                go_on.wait(60)
            return decisions

        store.take = slow
        asked = asyncio.create_task(queue.review(make_request()))
        await auntil(store.pending)
        store.answer(store.pending()[0], Continue())
        await auntil(taken.is_set)
        asked.cancel()
        await auntil(lambda: queue._worker._left)
        go_on.set()
        await asyncio.wait([asked], timeout=60)
        assert asked.cancelled()
        assert audit_kinds(store) == ["asked", "answered", "used"]


async def test_cancellation_at_a_failure_stays_cancelled():
    with MemoryStore() as store:
        queue = QueueReview(store, poll=FAST)
        inside, go_on = threading.Event(), threading.Event()

        def failing(requests):
            inside.set()
            go_on.wait(60)
            raise sqlite3.OperationalError("database or disk is full")

        store.take = failing
        asked = asyncio.create_task(queue.review(make_request()))
        await auntil(inside.is_set)
        asked.cancel()
        await auntil(lambda: queue._worker._left)
        go_on.set()
        await asyncio.wait([asked], timeout=60)
        assert asked.cancelled()
        assert audit_kinds(store) == ["asked", "withdrawn"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # the process has threads of earlier tests
async def test_new_process_continues_requests_of_a_dead_one(tmp_path):
    path = tmp_path / "reviews.db"
    call = ToolCall("delete", {"path": "old.log"}, id="c1")
    with ReviewStore(path) as store:
        child = os.fork()
        if child == 0:
            Toolbox([delete], review=QueueReview(store, poll=FAST)).execute(call, run_id="r1")
            os._exit(1)  # never reached: nobody answers in time
        await auntil(store.pending)
        os.kill(child, 9)
        await asyncio.to_thread(os.waitpid, child, 0)
        store.answer(store.pending()[0], Continue(), person="ada")
        reply = await Toolbox([delete], review=QueueReview(store, poll=FAST)).aexecute(call, run_id="r1")
    assert reply.text == "deleted old.log"
    with ReviewStore(path) as store:
        assert audit_kinds(store) == ["asked", "answered", "asked", "used"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # forking with threads is what is tested
async def test_fork_starts_its_own_store_worker(tmp_path):
    with ReviewStore(tmp_path / "reviews.db") as store:
        queue = QueueReview(store, poll=FAST)
        asked = asyncio.create_task(queue.review(make_request(arguments="parent")))
        await auntil(store.pending)
        child = os.fork()
        if child == 0:
            threading.Thread(
                target=lambda: os._exit(Question(queue, make_request(arguments="child")).do() != Edit("child"))
            ).start()
            threading.Event().wait(60)
            os._exit(1)
        await auntil(lambda: len(store.pending()) == 2)
        for request in store.pending():
            store.answer(request, Edit(request.arguments))
        assert await asked == Edit("parent")
        assert (await asyncio.to_thread(os.waitpid, child, 0))[1] == 0


@pytest.mark.parametrize("store", [None, "reviews.db", object()])
def test_rejects_invalid_store(store):
    with pytest.raises(ToolDefinitionError, match=r"^QueueReview needs a store, such as ReviewStore\(path\), not "):
        QueueReview(store)


@pytest.mark.parametrize("poll", [0, -1, float("nan")])
def test_rejects_invalid_poll_interval(poll):
    with MemoryStore() as store, pytest.raises(ToolDefinitionError, match=r"^poll must be a number of seconds > 0"):
        QueueReview(store, poll=poll)
