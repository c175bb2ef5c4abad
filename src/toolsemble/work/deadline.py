"""When a call must end, and what is raised when it has not."""

from __future__ import annotations

import threading
import time

from toolsemble.context import ToolContext


class TimedOutError(Exception):
    """The time of a call is up; the path of the call makes a failed result of it."""


def remaining(context: ToolContext) -> float | None:
    """Give how many seconds a call has, from 0 on; None for any number.

    >>> remaining(ToolContext(deadline=0.0))
    0.0
    """
    if context.deadline is None:
        return None
    return min(max(context.deadline - time.monotonic(), 0.0), threading.TIMEOUT_MAX)


def check_time_left(context: ToolContext) -> float | None:
    """Give how many seconds a call may still wait; None for any number. Raise when there are none.

    >>> check_time_left(ToolContext()) is None
    True
    """
    seconds = remaining(context)
    if seconds == 0:
        raise TimedOutError
    return seconds


def is_past(deadline: float | None) -> bool:
    """Return whether a point in time has passed, where None is never.

    >>> is_past(0.0), is_past(None)
    (True, False)
    """
    return deadline is not None and time.monotonic() >= deadline


def earliest(first: float | None, second: float | None) -> float | None:
    """Give the earlier of two points in time, where None is never.

    >>> earliest(None, 5.0), earliest(3.0, 5.0)
    (5.0, 3.0)
    """
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)
