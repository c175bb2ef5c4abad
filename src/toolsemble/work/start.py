"""The beginning of a body, as rate limits see it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from toolsemble.errors import ToolExecutionError
from toolsemble.runtime.wakeup import running_loop


class Start:
    """The beginning of one body, as rate limits see it: expected, come, or called off.

    Expected, it counts as if it came now: nobody knows when a thread gets to it. So whatever lies between a call and
    its body, no stretch of time has more beginnings than there may be.

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
        """When the body began, by the monotonic clock; None when it has not."""
        self.wanted = True
        """Whether the call is still there; set in one step, which no interrupt can cut off."""
        self._loop = running_loop()
        self._ticket = [None]  # taken by the body, or by whoever takes the place of a call that is gone; by one of them

    def is_past(self, moment: float) -> bool:
        """Whether it does not count for what begins later than a moment."""
        if self.at is not None:
            return self.at <= moment
        return self._is_gone() and self._take()

    def begin(self) -> None:
        """Take down that the body begins now; raise if its call is gone, and another may have its place."""
        if not self._take():
            raise ToolExecutionError("The call was given up before its body began")
        self.at = time.monotonic()

    def wrap(self, body: Callable[[Any], Any], *, awaits: bool) -> Callable[[Any], Any]:
        """Return a body that takes down when it begins."""
        return (_AsyncCounted if awaits else _Counted)(self, body)

    def _is_gone(self) -> bool:
        return not self.wanted or (self._loop is not None and self._loop.is_closed())

    def _take(self) -> bool:
        try:
            self._ticket.pop()
        except IndexError:
            return False
        return True


class _Counted:
    """A body that takes down when it begins."""

    __slots__ = ("_body", "_start")

    def __init__(self, start: Start, body: Callable[[Any], Any]) -> None:
        self._start = start
        self._body = body

    def __call__(self, value: Any) -> Any:
        self._start.begin()
        return self._body(value)

    def __reduce__(self) -> tuple[Any, ...]:
        # Of a body in another process it is known only when it is sent there.
        self._start.begin()
        return _same, (self._body,)


class _AsyncCounted(_Counted):
    """An async body that takes down when it begins: when it is first awaited, not when it is called."""

    __slots__ = ()

    async def __call__(self, value: Any) -> Any:
        self._start.begin()
        return await self._body(value)


def _same(body: Any) -> Any:
    return body
