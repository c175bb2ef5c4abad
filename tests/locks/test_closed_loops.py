"""Event loops that are stopped and closed in the middle of calls: nothing stays held for them."""

import asyncio
import gc
import logging
import threading
from concurrent.futures import Executor, Future

import pytest

from helpers.wait import LONG, auntil, until
from toolsemble import Cache, EffectLedger, Idempotency, RateLimit, Toolbox, ToolCall, ToolExecutionError, tool
from toolsemble._runtime.locks import TABLE

CLOSED = 20

# What is dropped in the middle of an await says so when it is collected.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _collect_garbage():
    logging.disable(logging.CRITICAL)  # what is logged is kept, with its traceback, for longer than the test
    yield
    gc.collect()
    logging.disable(logging.NOTSET)


class Bodies:
    """Bodies of a tool, which hang when they are called with 1."""

    def __init__(self):
        self.begun = 0
        self.opened = threading.Event()

    def sync(self, x: int) -> str:
        if x == 1:
            self.begun += 1
            assert self.opened.wait(LONG)
        return "done"

    async def asynchronous(self, x: int) -> str:
        if x == 1:
            self.begun += 1
            await asyncio.get_running_loop().create_future()
        return "done"


KINDS = {
    "async": ("asynchronous", {}),
    "timed async": ("asynchronous", {"timeout": LONG}),
    "blocking": ("sync", {}),
    "timed blocking": ("sync", {"timeout": LONG}),
}
LIMITS = {
    "places of a tool": (3, {"max_concurrency": 3}, {}),
    "places of a toolbox": (3, {}, {"max_concurrency": 3}),
    "resources": (1, {"resources": lambda _: {"file:a"}}, {}),
    "rate": (3, {"rate_limit": RateLimit(1000, per=60), "max_concurrency": 3}, {}),
    "cache": (1, {"effects": "read", "cache": Cache(key=lambda _: "same")}, {}),
    "idempotency": (1, {"effects": "write", "idempotent": True, "idempotency": Idempotency(lambda _: "same")}, {}),
}


def call(x=1):
    return ToolCall("work", {"x": x})


def call_and_close_loop(box, bodies):
    """Begin a call in an event loop, closed when the body has begun or the call waits; give the task."""
    loop, before = asyncio.new_event_loop(), bodies.begun
    task = loop.create_task(box.aexecute(call(), run_id="run"))
    task._log_destroy_pending = False
    waits = lambda: any(not claim.slots for claim in TABLE._loops.get(loop, ()))  # noqa: E731 - said once
    loop.run_until_complete(auntil(lambda: bodies.begun > before or waits()))
    for each in asyncio.all_tasks(loop):
        each._log_destroy_pending = False
    loop.close()
    return task


def execute_in_thread(box, **settings):
    """Return the reply to one more call, from another thread; fail when it hangs."""
    replies = []
    thread = threading.Thread(
        target=lambda: replies.append(box.execute(call(2), run_id="run", **settings)), daemon=True
    )
    thread.start()
    thread.join(LONG)
    assert replies, "it hangs"
    return replies[0]


@pytest.mark.parametrize(("name", "timed"), KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(("count", "settings", "of_box"), LIMITS.values(), ids=LIMITS)
def test_calls_of_closed_loops_release_their_locks(count, settings, of_box, name, timed):
    bodies = Bodies()
    box = Toolbox([tool(name="work", **settings, **timed)(getattr(bodies, name))], **of_box)
    kept = [call_and_close_loop(box, bodies) for _ in range(CLOSED)]
    assert bodies.begun >= count
    bodies.opened.set()
    assert execute_in_thread(box).text == "done"
    TABLE.release_closed_loops()
    until(lambda: not TABLE._claims)
    assert len(kept) == CLOSED  # they were not collected


@pytest.mark.parametrize("settings", [{}, {"max_concurrency": 1}])
def test_closed_loop_does_not_block_a_rate_limit(settings):
    bodies, rate = Bodies(), RateLimit(1, per=36_000)
    box = Toolbox([tool(name="work", rate_limit=rate, **settings)(bodies.asynchronous)])
    assert execute_in_thread(box).text == "done"
    loop = asyncio.new_event_loop()
    task = loop.create_task(box.aexecute(call()))
    task._log_destroy_pending = False
    loop.run_until_complete(auntil(lambda: rate in TABLE._held))
    loop.close()
    late = Toolbox([tool(name="work", rate_limit=rate, timeout=LONG, **settings)(bodies.asynchronous)])
    assert execute_in_thread(late).text.startswith("Error: The rate limit of 1 calls in 36000 s is used up")
    assert not task.done()


def test_body_never_started_in_a_closed_loop_does_not_count_for_the_rate():
    bodies, rate = Bodies(), RateLimit(1, per=36_000)
    pool = NoThreads()
    box = Toolbox([tool(name="work", rate_limit=rate)(bodies.sync)], executor=pool)
    loop = asyncio.new_event_loop()
    task = loop.create_task(box.aexecute(call()))
    task._log_destroy_pending = False
    loop.run_until_complete(auntil(lambda: pool.jobs))
    loop.close()
    assert execute_in_thread(box).text == "done"
    assert isinstance(pool.jobs[0]()[1], ToolExecutionError)  # its place is another call's
    assert bodies.begun == 0


class NoThreads(Executor):
    """An executor that never comes to its jobs."""

    def __init__(self):
        self.jobs = []

    def submit(self, job, /, *_, **__):
        self.jobs.append(job)
        return Future()


def test_thread_stops_waiting_for_a_call_of_a_closed_loop(monkeypatch):
    monkeypatch.setattr("toolsemble._engine.work.wait._CHECK_INTERVAL", 0.01)
    bodies = Bodies()
    box = Toolbox([tool(name="work", max_concurrency=1)(bodies.asynchronous)])
    loop, replies = asyncio.new_event_loop(), []
    task = loop.create_task(box.aexecute(call()))
    task._log_destroy_pending = False
    loop.run_until_complete(auntil(lambda: bodies.begun))
    thread = threading.Thread(target=lambda: replies.append(box.execute(call(2))), daemon=True)
    thread.start()
    until(lambda: TABLE.waiting)
    loop.close()
    thread.join(LONG)
    assert [reply.text for reply in replies] == ["done"]
    assert not task.done()


async def test_task_stops_waiting_for_a_call_of_a_closed_loop(monkeypatch):
    monkeypatch.setattr("toolsemble._engine.work.wait._CHECK_INTERVAL", 0.01)
    bodies, kept = Bodies(), []
    box = Toolbox([tool(name="work", max_concurrency=1)(bodies.asynchronous)])

    def hold():
        loop = asyncio.new_event_loop()
        kept.extend([loop, loop.create_task(box.aexecute(call()))])
        kept[1]._log_destroy_pending = False
        loop.run_until_complete(auntil(lambda: bodies.begun))

    await asyncio.to_thread(hold)
    waiting = asyncio.create_task(box.aexecute(call(2)))
    await auntil(lambda: TABLE.waiting)
    kept[0].close()
    async with asyncio.timeout(LONG):
        assert (await waiting).text == "done"


def test_ledger_entry_of_a_closed_loop_has_an_unknown_outcome():
    bodies, ledger = Bodies(), EffectLedger()
    once = Idempotency(lambda _: "same", scope="ledger")
    box = Toolbox([tool(name="work", effects="write", idempotency=once)(bodies.asynchronous)], ledger=ledger)
    kept = call_and_close_loop(box, bodies)
    assert execute_in_thread(box).text.startswith("Error: Unknown outcome")
    assert [effect.state for effect in ledger.entries()] == ["unknown"]
    assert not kept.done()
