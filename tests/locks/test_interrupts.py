"""Ctrl-C at every point of a call where the interpreter can deliver it: nothing stays held, and later calls work."""

import asyncio
import gc
import logging
import signal
import sys
import threading
from functools import partial

import pytest

import toolsemble
from helpers.wait import LONG, until
from toolsemble import (
    Cache,
    Idempotency,
    RateLimit,
    Secret,
    Toolbox,
    ToolCall,
    tool,
)
from toolsemble._engine.context import current_context
from toolsemble._runtime.locks import TABLE, DeadlockError, Hold, Slots, current_hold
from toolsemble._runtime.watchers import watchers
from toolsemble._schema.masking import secrets

# Where an interrupt comes before a coroutine begins, or in a finalizer, Python says so.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

OURS = toolsemble.__path__[0]
THEIRS = tuple(module.__file__ for module in (threading, sys.modules["concurrent.futures._base"]))


@pytest.fixture(autouse=True)
def _collect_garbage():
    logging.disable(logging.CRITICAL)  # what is logged is kept, with its traceback, for longer than the test
    yield
    threading._limbo.clear()  # threads that were interrupted on their way to be started, which Python keeps for ever
    gc.collect()
    logging.disable(logging.NOTSET)


class Interrupt:
    """Delivers one SIGINT in this thread at the n-th point where the interpreter could.

    These are the entries of functions, and the returns of functions in C. The handler that is installed is called, as
    the interpreter does: by default it raises KeyboardInterrupt.
    """

    def __init__(self, number):
        self.left = number

    def __call__(self, frame, event, _):
        if event not in ("call", "c_return") or not frame.f_code.co_filename.startswith((OURS, *THEIRS)):
            return
        self.left -= 1
        if not self.left:
            sys.setprofile(None)
            signal.getsignal(signal.SIGINT)(signal.SIGINT, frame)

    def arm(self):
        """Begin to count."""
        gc.disable()  # what is collected meanwhile has nothing to do with it
        sys.setprofile(self)

    def run(self, work, *, armed=True):
        """Do some work; return what it gave, or the interrupt."""
        try:
            if armed:
                self.arm()
            return work()
        except KeyboardInterrupt as interrupt:
            return interrupt  # with its traceback, as a notebook keeps it
        finally:
            sys.setprofile(None)
            gc.enable()


def interrupts(most=3000):
    """Return interrupts at the first point, at the second, … until one is no longer reached."""
    for number in range(1, most):
        interrupt = Interrupt(number)
        yield interrupt
        if interrupt.left > 0:
            assert number > 10  # there was something to interrupt
            return
    pytest.fail("it never came to its end")


def run_in_thread(work):
    """Do some work in another thread; give how to wait for what it gave, which fails when it hangs."""
    done = []
    thread = threading.Thread(target=lambda: done.append(work()), daemon=True)
    thread.start()

    def joined():
        thread.join(LONG)
        assert done, "it hangs"
        return done[0]

    return joined


def call(x=1):
    return ToolCall("work", {"x": x})


def make_toolbox(function, settings, of_box):
    """A toolbox with one tool, with its own rate limit."""
    rate = {"rate_limit": RateLimit(*settings["rate_limit"])} if "rate_limit" in settings else {}
    return Toolbox([tool(name="work", **{**settings, **rate})(function)], **of_box)


def work(x: int) -> str:
    return f"did {x}"


async def work_async(x: int) -> str:
    await asyncio.sleep(0)
    return f"did {x}"


BODIES = {"sync": work, "async": work_async}
SETTINGS = {
    "plain": ({}, {}),
    "places of a toolbox": ({}, {"max_concurrency": 1}),
    "places of a tool": ({"max_concurrency": 1}, {}),
    "resources": ({"resources": lambda _: {"file:a"}}, {}),
    "rate": ({"rate_limit": (1000, 60)}, {}),
    "rate and places": ({"rate_limit": (1000, 60), "max_concurrency": 1}, {"max_concurrency": 1}),
    "cache": ({"effects": "read", "cache": True}, {}),
    "idempotency": ({"effects": "write", "idempotency": Idempotency(scope="ledger")}, {}),
    "timeout": ({"timeout": LONG}, {}),
    "timeout and places": ({"timeout": LONG, "max_concurrency": 1}, {}),
    "sinks": ({}, {"sinks": [lambda _: None]}),
}
of_every_kind = pytest.mark.parametrize(("settings", "of_box"), SETTINGS.values(), ids=SETTINGS)


def assert_nothing_held():
    until(lambda: not TABLE._claims)  # a thread may be about to end
    assert not any([TABLE._held, TABLE._queues, TABLE._nested, TABLE._loops])
    assert (current_context(), current_hold(), secrets(), watchers()) == (None, None, None, ())


@pytest.mark.parametrize("kind", ["sync", "async"])
@of_every_kind
def test_interrupt_at_any_point_of_a_call_releases_everything(settings, of_box, kind):
    for interrupt in interrupts():
        box = make_toolbox(BODIES[kind], settings, of_box)
        came = interrupt.run(partial(box.execute, call()))
        assert isinstance(came, KeyboardInterrupt) or came.text == "did 1"
        other, same = run_in_thread(lambda box=box: [box.execute(call(2)), box.execute(call(1))])()
        assert other.text == "did 2"
        assert same.text == "did 1" or ("idempotency" in settings and "Unknown outcome" in same.text)
        assert_nothing_held()


HELD = {
    "places of a toolbox": ({}, {"max_concurrency": 1}),
    "places of a tool": ({"max_concurrency": 1}, {}),
    "resources": ({"resources": lambda _: {"file:a"}}, {}),
    "rate and places": ({"rate_limit": (1000, 60), "max_concurrency": 1}, {}),
    "cache": ({"effects": "read", "cache": Cache(key=lambda _: "same", ttl=0.000001)}, {}),
    "idempotency": ({"effects": "write", "idempotency": Idempotency(lambda _: "same", scope="ledger")}, {}),
}
SOME = ["places of a toolbox", "rate and places", "cache", "timeout and places"]
of_some_kinds = pytest.mark.parametrize(("settings", "of_box"), [SETTINGS[each] for each in SOME], ids=SOME)
of_what_is_held = pytest.mark.parametrize(("settings", "of_box"), HELD.values(), ids=HELD)


@of_what_is_held
def test_interrupt_at_the_end_of_a_call_does_not_block_waiters(settings, of_box):
    def interrupted(interrupt):
        waiting = []

        def work(x: int) -> str:
            if x == 1:
                waiting.append(run_in_thread(partial(box.execute, call(2))))
                until(lambda: TABLE.waiting == 1)
                interrupt.arm()
            return "done"

        box = make_toolbox(work, settings, of_box)
        interrupt.run(partial(box.execute, call(1)), armed=False)
        return waiting[0]().text

    for interrupt in interrupts():
        text = interrupted(interrupt)
        assert text == "done" or ("idempotency" in settings and "Unknown outcome" in text)
        assert_nothing_held()


@of_what_is_held
def test_interrupt_while_waiting_leaves_the_queue(settings, of_box):
    def interrupted(interrupt):
        begun, opened = threading.Event(), threading.Event()

        def work(x: int) -> str:
            if x == 1:
                begun.set()
                until(lambda: opened.is_set() or TABLE.waiting == 1)
            return "done"

        box = make_toolbox(work, settings, of_box)
        holding = run_in_thread(partial(box.execute, call(1)))
        assert begun.wait(LONG)
        interrupt.run(partial(box.execute, call(2)))
        opened.set()
        return [holding().text, run_in_thread(partial(box.execute, call(3)))().text]

    for interrupt in interrupts():
        assert interrupted(interrupt) == ["done", "done"]
        assert_nothing_held()


@of_some_kinds
def test_interrupt_at_any_point_of_a_turn_releases_everything(settings, of_box):
    for interrupt in interrupts():
        box = make_toolbox(work_async, settings, of_box)
        came = interrupt.run(partial(box.execute_all, [call(1), call(2)]))
        assert isinstance(came, KeyboardInterrupt) or len(came) == 2
        assert run_in_thread(partial(box.execute, call(3)))().result is not None
        assert_nothing_held()


@of_some_kinds
def test_interrupt_at_any_point_of_an_async_call_releases_everything(settings, of_box):
    def run(box):
        loop = asyncio.new_event_loop()  # without the handler of asyncio.run: the interrupt is raised in the middle
        try:
            return loop.run_until_complete(box.aexecute(call()))
        finally:
            sys.setprofile(None)
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()

    for interrupt in interrupts():
        box = make_toolbox(work_async, settings, of_box)
        interrupt.run(partial(run, box))
        assert run_in_thread(partial(box.execute, call(3)))().result is not None
        TABLE.release_closed_loops()  # as a call does that has to wait
        assert_nothing_held()


@pytest.mark.parametrize("given_to", [threading.main_thread, threading.current_thread], ids=["main", "other"])
@pytest.mark.parametrize("settings", [{}, {"timeout": LONG}], ids=["plain", "timeout"])
def test_interrupt_of_a_sync_call_in_a_running_loop_ends_its_async_body(settings, given_to):
    ended = []

    async def forever(x: int) -> str:
        signal.pthread_kill(given_to().ident, signal.SIGINT)  # a system may give it to any thread
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(threading.current_thread())

    async def run():
        try:
            make_toolbox(forever, settings, {"max_concurrency": 1}).execute(call())
        except KeyboardInterrupt:
            return list(ended)

    loop = asyncio.new_event_loop()
    (thread,) = loop.run_until_complete(run())
    loop.close()
    thread.join(LONG)
    assert not thread.is_alive()
    assert_nothing_held()


def test_interrupt_at_any_point_of_a_sync_call_in_a_running_loop_leaves_no_body():
    loop = asyncio.new_event_loop()

    async def inside(work):
        return work()

    def box_with(running):
        async def body(x: int) -> str:
            running.append(x)
            try:
                await asyncio.sleep(0)
            finally:
                running.pop()
            return "done"

        return make_toolbox(body, {"max_concurrency": 1}, {})

    for interrupt in interrupts():
        box = box_with(running := [])
        loop.run_until_complete(inside(partial(interrupt.run, partial(box.execute, call()))))
        assert running == []
        assert run_in_thread(partial(box.execute, call(3)))().text == "done"
        assert_nothing_held()
    loop.close()


def test_interrupt_at_any_point_removes_secrets():
    def sign_in(password: Secret[str]) -> str:
        return "signed in"

    for interrupt in interrupts():
        box = Toolbox([tool(name="sign_in")(sign_in)], sinks=[lambda _: None])
        interrupt.run(partial(box.execute, ToolCall("sign_in", {"password": "hunter2"})))
        assert_nothing_held()


def test_interrupted_table_change_is_repaired_by_the_next_one():
    outer, slots = Hold(["outer"]), Slots(1)
    claims = [
        Hold(["a"]),
        Hold(["a"]),
        Hold(["b", slots]),
        Hold(["c", slots]),
        Hold(["outer"], outer),
        Hold(["a"], outer),
    ]
    try:
        assert [TABLE.acquire(each) for each in (outer, *claims)] == [True, True, False, True, False, True, False]
        TABLE._consistent = False
        TABLE.release_closed_loops()
        assert [bool(each.slots) for each in claims] == [True, False, True, False, True, False]
        TABLE._consistent, claims[0].left, claims[2].left = False, True, True  # cut off before anything was freed
        TABLE.release_closed_loops()
        assert [bool(each.slots) for each in claims] == [False, False, False, True, True, True]
    finally:
        for each in (outer, *claims):
            TABLE.release(each)
    assert_nothing_held()


def test_call_of_a_finalizer_during_a_table_change_fails():
    claim = Hold(["a"])
    with TABLE._lock, TABLE._changing:
        TABLE.release_closed_loops()
        with pytest.raises(DeadlockError):
            TABLE.acquire(claim)
    assert_nothing_held()
