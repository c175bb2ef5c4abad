"""Deadlines of calls."""

from __future__ import annotations

import threading
import time

from toolsemble._engine.context import ToolContext
from toolsemble._runtime.work_clock import update_deadline


class TimedOutError(Exception):
    """The deadline of a call has passed; the call path turns it into a failed result."""


def remaining(context: ToolContext) -> float | None:
    """Return the seconds until the deadline of a call, at least 0; None: no deadline.

    >>> remaining(ToolContext(deadline=0.0))
    0.0
    """
    deadline = update_deadline(context.deadline)
    if deadline is None:
        return None
    return min(max(deadline - time.monotonic(), 0.0), threading.TIMEOUT_MAX)


def check_time_left(context: ToolContext) -> float | None:
    """Return the seconds until the deadline of a call; None: no deadline. Raise if it has passed.

    >>> check_time_left(ToolContext()) is None
    True
    """
    seconds = remaining(context)
    if seconds == 0:
        raise TimedOutError
    return seconds


def is_past(deadline: float | None) -> bool:
    """Return whether a deadline has passed; None never passes.

    >>> is_past(0.0), is_past(None)
    (True, False)
    """
    return deadline is not None and time.monotonic() >= (update_deadline(deadline) or 0.0)


def earliest(first: float | None, second: float | None) -> float | None:
    """Return the earlier of two deadlines; None is never.

    >>> earliest(None, 5.0), earliest(3.0, 5.0)
    (5.0, 3.0)
    """
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)
