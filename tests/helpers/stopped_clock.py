"""Time that passes only when a test says so."""

import asyncio.base_events
import asyncio.events
import contextlib
import threading
import time
import weakref

import pytest

BOUND = 60.0


class StoppedClock:
    """Stands in for ``time.monotonic``, ``time.time``, ``time.sleep`` and the time of every event loop.

    A timeout can expire only after :meth:`advance`. A body that calls it has begun by then, on any machine.
    A timer that a callback of an event loop sets counts from the time that the callback has read last. A task computes
    the seconds until its deadline and then waits that long. If another thread advanced the clock between the two, and
    the timer counted from then, the deadline would never come.
    """

    def __init__(self):
        self._now = time.monotonic()
        self._ahead = time.time() - self._now
        self._callback = threading.local()
        self._changed = threading.Condition()
        self._loops = weakref.WeakSet()

    def monotonic(self):
        self._callback.read = self._now
        return self._callback.read

    def time(self):
        return self.monotonic() + self._ahead

    def advance(self, seconds):
        """Let time pass, and wake the threads and tasks that wait for it."""
        with self._changed:
            self._now += seconds
            self._callback.read = self._now
            self._changed.notify_all()
            for loop in list(self._loops):
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(int)

    def sleep(self, seconds):
        """Wait until that much time has passed."""
        with self._changed:
            ends = self._now + seconds
            assert self._changed.wait_for(lambda: self._now >= ends, BOUND)

    @contextlib.contextmanager
    def running(self):
        """Let time pass by itself, for calls during which the test cannot advance it."""
        stop = threading.Event()

        def run():
            while not stop.wait(0.001):
                self.advance(0.01)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def time_of(self, loop):
        with self._changed:
            self._loops.add(loop)
        read = getattr(self._callback, "read", None)
        return self._now if read is None else read

    def run(self, callback, handle):
        """Run a callback of an event loop."""
        self._callback.read = None
        try:
            callback(handle)
        finally:
            self._callback.read = None


def stop_time(replace):
    """Stop the time of this process; ``replace`` is ``setattr``, or a monkeypatch's."""
    made = StoppedClock()

    run = asyncio.events.Handle._run

    def loop_time(loop):
        return made.time_of(loop)

    def run_callback(handle):
        made.run(run, handle)

    for name in ("monotonic", "time", "sleep"):
        replace(time, name, getattr(made, name))
    replace(asyncio.base_events.BaseEventLoop, "time", loop_time)
    replace(asyncio.events.Handle, "_run", run_callback)
    return made


@pytest.fixture
def stopped_clock(monkeypatch):
    """Stop the time of this process for one test."""
    return stop_time(monkeypatch.setattr)


@pytest.fixture
def clock(stopped_clock):
    """Stop the time of this process for one test; modules that have another clock use the longer name."""
    return stopped_clock
