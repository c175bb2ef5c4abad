"""The working time of a run: its clock pauses while the run only waits for people."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from toolsemble._runtime.threads import fork_safe_lock


class RunDeadline(float):
    """The current deadline of a run; it moves while the run's clock is paused."""

    __slots__ = ("find",)

    find: Callable[[], float]
    """Returns the current deadline."""

    @classmethod
    def of(cls, find: Callable[[], float]) -> RunDeadline:
        """Return a deadline that a function computes.

        >>> RunDeadline.of(lambda: 5.0)
        5.0
        """
        made = cls(find())
        made.find = find
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return float, (float(self),)


def update_deadline(deadline: float | None) -> float | None:
    """Return the current deadline: a run's deadline may have moved.

    >>> update_deadline(3.0)
    3.0
    """
    return RunDeadline.of(deadline.find) if isinstance(deadline, RunDeadline) else deadline


class WorkClock:
    """Measures how long a run has waited for people while none of its calls and models worked.

    :param outer: the enclosing run's clock
    """

    def __init__(self, outer: WorkClock | None) -> None:
        self._lock = fork_safe_lock(self)
        self.clocks: tuple[WorkClock, ...] = (self,) if outer is None else (self, *outer.clocks)
        """This clock and the enclosing ones."""
        self._working = 0
        self._waiting = 0
        self._waited = 0.0
        self._stopped: float | None = None
        self.on_change: Callable[[], object] | None = None
        """Called in any thread after the clock has stopped or started."""

    @property
    def lock(self) -> threading.RLock:
        """The lock of this clock; nested runs share the outermost run's lock."""
        return self._lock

    @property
    def is_stopped(self) -> bool:
        """Whether it is paused."""
        return self._stopped is not None

    def find_waited(self) -> float:
        """Return the seconds for which it was paused."""
        with self.clocks[-1].lock:
            return self._waited + (0.0 if self._stopped is None else time.monotonic() - self._stopped)

    def working(self) -> Work:
        """Return a context manager whose block counts as work, except while it waits for a person."""
        return Work(self)

    def add(self, *, working: int = 0, waiting: int = 0) -> None:
        """Count work and questions that begin or end, in this run and the enclosing ones."""
        with self.clocks[-1].lock:
            for clock in self.clocks:
                clock.change(working, waiting)

    def change(self, working: int, waiting: int) -> None:
        """Start or stop this clock; the caller holds the lock."""
        self._working += working
        self._waiting += waiting
        is_stopped = self._waiting > 0 and self._working == 0
        if is_stopped and self._stopped is None:
            self._stopped = time.monotonic()
        elif not is_stopped and self._stopped is not None:
            self._waited += time.monotonic() - self._stopped
            self._stopped = None
        else:
            return
        if self.on_change is not None:
            self.on_change()


class Work:
    """A block that counts as work, such as a body, except while it waits for a person."""

    def __init__(self, clock: WorkClock) -> None:
        self._clock = clock
        self._questions = 0
        self._has_ended = False
        self._before: Work | None = None

    def __enter__(self) -> None:
        self._before = _current_work.get()
        _current_work.set(self)
        self._clock.add(working=1)

    def __exit__(self, *_: object) -> None:
        if _current_work.get() is self:  # the garbage collector closes a dropped coroutine in any context
            _current_work.set(self._before)
        with self._clock.clocks[-1].lock:
            self._has_ended = True
            if self._questions == 0:
                self._clock.add(working=-1)

    def ask(self, change: int) -> None:
        """Count its pending questions."""
        with self._clock.clocks[-1].lock:
            before, self._questions = self._questions, self._questions + change
            if not self._has_ended and (before == 0) != (self._questions == 0):
                self._clock.add(working=-1 if before == 0 else 1)


current_clock: ContextVar[WorkClock | None] = ContextVar("toolsemble.work_clock", default=None)
"""The clock of the current run; None if its working time is not measured."""

_current_work: ContextVar[Work | None] = ContextVar("toolsemble.current_work", default=None)


class WaitingForPerson:
    """A block that waits for a person, in the current run and the enclosing ones."""

    def __enter__(self) -> None:
        self._clock, self._work = current_clock.get(), _current_work.get()
        self._count(1)

    def __exit__(self, *_: object) -> None:
        self._count(-1)

    def _count(self, change: int) -> None:
        if self._clock is not None:
            self._clock.add(waiting=change)
            if self._work is not None:
                self._work.ask(change)
