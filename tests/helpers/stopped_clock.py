"""Time that passes only when a test says so."""

import asyncio.base_events
import contextlib
import threading
import time
import weakref

import pytest

BOUND = 60.0


class StoppedClock:
    """Stands in for ``time.monotonic``, ``time.time``, ``time.sleep`` and the time of every event loop.

    A timeout can expire only after :meth:`advance`. A body that calls it has begun by then, on any machine.
    """

    def __init__(self):
        self._now = time.monotonic()
        self._ahead = time.time() - self._now
        self._changed = threading.Condition()
        self._loops = weakref.WeakSet()

    def monotonic(self):
        return self._now

    def time(self):
        return self._now + self._ahead

    def advance(self, seconds):
        """Let time pass, and wake whoever waits for it."""
        with self._changed:
            self._now += seconds
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
        """Let time pass by itself, for calls of which nobody else would let it pass."""
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
        return self._now


def stop_time(replace):
    """Stop the time of this process; ``replace`` is ``setattr``, or that of a monkeypatch."""
    made = StoppedClock()

    def loop_time(loop):
        return made.time_of(loop)

    for name in ("monotonic", "time", "sleep"):
        replace(time, name, getattr(made, name))
    replace(asyncio.base_events.BaseEventLoop, "time", loop_time)
    return made


@pytest.fixture
def stopped_clock(monkeypatch):
    """Stop the time of this process for one test."""
    return stop_time(monkeypatch.setattr)


@pytest.fixture
def clock(stopped_clock):
    """Stop the time of this process for one test; modules that have another clock use the longer name."""
    return stopped_clock
