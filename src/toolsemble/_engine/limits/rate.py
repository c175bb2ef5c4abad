"""Rate limits: how many bodies may start in a period."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

from toolsemble._engine.context import ToolContext
from toolsemble._engine.work.body import Start, Work, remaining
from toolsemble._engine.work.wait import Sleep, acquire
from toolsemble._runtime.checks import check_count, check_seconds, format_seconds
from toolsemble._runtime.locks import Hold
from toolsemble._runtime.threads import fork_safe_lock
from toolsemble._vocabulary.errors import LimitReachedError

_LOOK = 0.1  # seconds between checks of a body that is about to start


class RateLimit:
    """A limit of ``calls`` calls in any period of ``per`` seconds; further calls wait, first come, first served.

    A call counts from the moment its body starts; calls that wait for a slot, or are answered from a cache, do not
    count. Tools that get the same object share the limit. A call that cannot start before its deadline fails at once,
    with the time when it could.

    >>> from toolsemble import tool
    >>> @tool(rate_limit=RateLimit(10, per=60))
    ... def search(query: str) -> str:
    ...     return "found"
    >>> search.execute('{"query": "rome"}').output
    'found'
    """

    def __init__(self, calls: int, per: float = 1.0) -> None:
        """Set the limit; raise ToolDefinitionError for values out of range."""
        check_count("RateLimit calls", calls, least=1)
        check_seconds("RateLimit per", per)
        self.calls = calls
        self.per = per
        self._lock = fork_safe_lock(self)
        self._starts: deque[Start] = deque()

    def pause(self, start: Start | None = None) -> float:
        """Return the minimum number of seconds until a body may start.

        If it is 0.0 and ``start`` is given, the body is counted from now on.
        """
        with self._lock:
            now = time.monotonic()
            while self._starts and self._starts[0].is_past(now - self.per):
                self._starts.popleft()
            if len(self._starts) >= self.calls:
                self._starts = deque(each for each in self._starts if not each.is_past(now - self.per))
            if len(self._starts) >= self.calls:
                return min(self.per if each.at is None else each.at + self.per - now for each in self._starts)
            if start is not None:
                self._starts.append(start)
            return 0.0

    def line_up(self, number: int, context: ToolContext, begin: Callable[[], bool]) -> Generator[Work, Any, bool]:
        """Wait until a body may start, then call ``begin`` and return its result.

        :param number: the position of the call in the queue, which it keeps when it queues again
        """
        # Only the first call in the queue checks the clock.
        turn = Hold([self])
        turn.number = number
        try:
            yield from acquire(turn, context)
            while (pause := self.pause()) > 0:  # event loops may wake a little early
                seconds = remaining(context)
                if seconds is not None and pause > seconds:
                    when = format_seconds(pause)
                    raise LimitReachedError(f"The {self} is used up; the next call can start in {when}")
                # A body that is about to start may be cancelled instead.
                yield Sleep(min(pause, _LOOK) if pause == self.per else pause)
            return begin()
        finally:
            try:
                turn.leave()
            except BaseException:
                turn.leave()  # an interrupt cut it off
                raise

    def __str__(self) -> str:
        return f"rate limit of {self.calls} calls in {self.per:g} s"

    def __repr__(self) -> str:
        return f"RateLimit({self.calls}, per={self.per:g})"

    def __reduce__(self) -> tuple[Any, ...]:
        return RateLimit, (self.calls, self.per)


def wait_for_turn(
    rates: Sequence[RateLimit], start: Start, number: int, context: ToolContext, has_slots: Callable[[], bool]
) -> Generator[Work, Any, bool]:
    """Wait until a body may start under all rate limits; return whether it may, and is counted.

    It may not if it has to wait for a slot, or if another body was started in the meantime.

    :param has_slots: returns whether the call has its slots, without waiting for them
    """
    behind = next((rate for rate in rates if rate.pause() > 0), rates[-1])
    return (yield from behind.line_up(number, context, lambda: has_slots() and count_start(rates, start)))


def count_start(rates: Sequence[RateLimit], start: Start) -> bool:
    """Count a body that starts now under all rate limits or under none; return whether it may start."""
    if all(rate.pause(start) == 0 for rate in rates):
        return True
    start.wanted = False
    return False
