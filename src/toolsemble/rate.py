"""How many calls there may be in some time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator
from typing import Any

from toolsemble.context import ToolContext
from toolsemble.deadline import remaining
from toolsemble.definition import ToolDefinition
from toolsemble.errors import ToolExecutionError
from toolsemble.limits import Hold
from toolsemble.number import check_count, check_seconds, written_seconds
from toolsemble.policy import Inner, Layer
from toolsemble.waiting import Sleep, taken
from toolsemble.work import Work


class RateLimit(Layer):
    """So many calls in any stretch of so many seconds; further ones wait for their turn, first come first served.

    Tools that are given the same object share it. A call that could not begin before its deadline fails at once, and
    says when it could.

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
        self._begun: deque[float] = deque(maxlen=calls)

    def around(
        self, definition: ToolDefinition, value: Any, context: ToolContext, inner: Inner
    ) -> Generator[Work, Any, Any]:
        """Walk what is inside when it is the call's turn."""
        _ = definition, value
        # Only the one whose turn it is looks at the clock; the others stand in line behind it.
        turn = Hold([self])
        yield from taken(turn, context)
        try:
            while (pause := self._pause()) > 0:  # event loops may wake a little early
                seconds = remaining(context)
                if seconds is not None and pause > seconds:
                    when = written_seconds(pause)
                    raise ToolExecutionError(f"The {self} is used up; the next call can begin in {when}")
                yield Sleep(pause)
            self._begun.append(time.monotonic())
        finally:
            turn.leave()
        return (yield from inner(context))

    def _pause(self) -> float:
        if len(self._begun) < self.calls:
            return 0.0
        return self._begun[0] + self.per - time.monotonic()

    def __str__(self) -> str:
        return f"rate limit of {self.calls} calls in {self.per:g} s"

    def __repr__(self) -> str:
        return f"RateLimit({self.calls}, per={self.per:g})"

    def __reduce__(self) -> tuple[Any, ...]:
        return RateLimit, (self.calls, self.per)
