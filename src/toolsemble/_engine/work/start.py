"""The start of a body, as rate limits count it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from toolsemble._runtime.wakeup import running_loop
from toolsemble._vocabulary.errors import ToolExecutionError


class Start:
    """The start of one body, as rate limits count it: pending, begun, or cancelled.

    A pending start counts as if it happened now, because a thread may begin at any moment. So no period of time has
    more starts than the limit, however long a call waits before its body begins.

    >>> start = Start()
    >>> start.is_past(time.monotonic())
    False
    >>> start.begin()
    >>> start.is_past(time.monotonic())
    True
    """

    __slots__ = ("_loop", "_ticket", "at", "wanted")

    def __init__(self) -> None:
        self.at: float | None = None
        """When the body began, on the clock of ``time.monotonic``; None if it has not."""
        self.wanted = True
        """Whether the call is still active; a plain attribute, which is set in one step that no interrupt can split."""
        self._loop = running_loop()
        # Popped either by the body, or by the call that reuses the place of a cancelled one; never by both.
        self._ticket = [None]

    def is_past(self, moment: float) -> bool:
        """Return whether the start lies before a moment, or will never happen."""
        if self.at is not None:
            return self.at <= moment
        return self._is_cancelled() and self._take()

    def begin(self) -> None:
        """Record that the body begins now; raise if its call was cancelled and another may use its place."""
        if not self._take():
            raise ToolExecutionError("The call was cancelled before its body began")
        self.at = time.monotonic()

    def wrap(self, body: Callable[[Any], Any], *, awaits: bool) -> Callable[[Any], Any]:
        """Return a body that records when it begins."""
        return (_AsyncRecorded if awaits else _Recorded)(self, body)

    def _is_cancelled(self) -> bool:
        return not self.wanted or (self._loop is not None and self._loop.is_closed())

    def _take(self) -> bool:
        try:
            self._ticket.pop()
        except IndexError:
            return False
        return True


class _Recorded:
    """A body that records when it begins."""

    __slots__ = ("_body", "_start")

    def __init__(self, start: Start, body: Callable[[Any], Any]) -> None:
        self._start = start
        self._body = body

    def __call__(self, value: Any) -> Any:
        self._start.begin()
        return self._body(value)

    def __reduce__(self) -> tuple[Any, ...]:
        # For a body in another process only the time of sending is known.
        self._start.begin()
        return _identity, (self._body,)


class _AsyncRecorded(_Recorded):
    """An async body that records when it begins: when it is first awaited, not when it is called."""

    __slots__ = ()

    async def __call__(self, value: Any) -> Any:
        self._start.begin()
        return await self._body(value)


def _identity(body: Any) -> Any:
    return body
