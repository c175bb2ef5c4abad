"""Time that passes only when a test says so."""

import asyncio.base_events
import contextlib
import threading
import time
import weakref

import pytest

BOUND = 60.0


class StoppedClock:
    """Stands in for ``time.monotonic``, ``time.sleep`` and the time of every event loop.

    A timeout can expire only after :meth:`advance`. A body that calls it has begun by then, on any machine.
    """

    def __init__(self):
        self._now = time.monotonic()
        self._changed = threading.Condition()
        self._loops = weakref.WeakSet()

    def monotonic(self):
        return self._now

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

    def time_of(self, loop):
        with self._changed:
            self._loops.add(loop)
        return self._now


@pytest.fixture
def clock(monkeypatch):
    """Stop the time of this process for one test."""
    made = StoppedClock()

    def loop_time(loop):
        return made.time_of(loop)

    monkeypatch.setattr(time, "monotonic", made.monotonic)
    monkeypatch.setattr(time, "sleep", made.sleep)
    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "time", loop_time)
    return made
