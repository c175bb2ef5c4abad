"""How many bodies may begin in some time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

from toolsemble.context import ToolContext
from toolsemble.errors import ToolExecutionError
from toolsemble.locks.holds import Hold
from toolsemble.runtime.checks import check_count, check_seconds, format_seconds
from toolsemble.runtime.fork_locks import fork_safe_lock
from toolsemble.work.body import Work
from toolsemble.work.deadline import remaining
from toolsemble.work.start import Start
from toolsemble.work.wait import Sleep, acquire

_LOOK = 0.1  # how many seconds pass until the next look at a body that is about to begin


class RateLimit:
    """So many calls in any stretch of so many seconds; further ones wait for their turn, first come first served.

    A call counts from the moment in which its body begins, wherever that runs; what waits for a place, or is answered
    from a cache, does not. Tools that are given the same object share it. A call that could not begin before its
    deadline fails at once, and says when it could.

    >>> from toolsemble import tool
    >>> @tool(rate_limit=RateLimit(10, per=60))
    ... def search(query: str) -> str:
    ...     return "found"
    >>> search.execute('{"query": "rome"}').output
    'found'
    """

    def __init__(self, calls: int, per: float = 1.0) -> None:
        """Take down how many calls there may be in how many seconds."""
        check_count("RateLimit calls", calls, least=1)
        check_seconds("RateLimit per", per)
        self.calls = calls
        self.per = per
        self._lock = fork_safe_lock(self)
        self._starts: deque[Start] = deque()

    def pause(self, start: Start | None = None) -> float:
        """Return how many seconds it takes at least until a body may begin.

        Where that is 0.0, and a start is given, that body may begin from now on, and others take it into account.
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
        """Wait until it is a call's turn, and a body may begin; then try to, and return whether it could.

        :param number: the call's place in the line, which it keeps when it comes back
        """
        # Only the one whose turn it is looks at the clock; the others stand in line behind it.
        turn = Hold([self])
        turn.number = number
        try:
            yield from acquire(turn, context)
            while (pause := self.pause()) > 0:  # event loops may wake a little early
                seconds = remaining(context)
                if seconds is not None and pause > seconds:
                    when = format_seconds(pause)
                    raise ToolExecutionError(f"The {self} is used up; the next call can begin in {when}")
                # A body that is about to begin may be called off instead.
                yield Sleep(min(pause, _LOOK) if pause == self.per else pause)
            return begin()
        finally:
            try:
                turn.leave()
            except BaseException:
                turn.leave()  # an interrupt came before it was done
                raise

    def __str__(self) -> str:
        return f"rate limit of {self.calls} calls in {self.per:g} s"

    def __repr__(self) -> str:
        return f"RateLimit({self.calls}, per={self.per:g})"

    def __reduce__(self) -> tuple[Any, ...]:
        return RateLimit, (self.calls, self.per)


def lined_up(
    rates: Sequence[RateLimit], start: Start, number: int, context: ToolContext, seat: Callable[[], bool]
) -> Generator[Work, Any, bool]:
    """Wait until a body may begin under all of several rate limits; return whether it may, and is counted.

    It may not where it has to wait for a place, or where another body has begun meanwhile.

    :param seat: returns whether the call has its places, without waiting for them
    """
    behind = next((rate for rate in rates if rate.pause() > 0), rates[-1])
    return (yield from behind.line_up(number, context, lambda: seat() and counted(rates, start)))


def counted(rates: Sequence[RateLimit], start: Start) -> bool:
    """Have a body counted that begins now, by all of several rate limits or by none; return whether it may begin."""
    if all(rate.pause(start) == 0 for rate in rates):
        return True
    start.wanted = False
    return False
