"""The terms of a review: when a reviewer is asked, how long the call waits, and what happens then."""

from __future__ import annotations

import time
from enum import Enum
from typing import Any, TypedDict

from toolsemble._runtime.work_clock import RunDeadline
from toolsemble._vocabulary.errors import ToolDefinitionError

TIMEOUT = 300.0
"""The default number of seconds to wait for a reviewer."""

_SHORTEST = 0.001  # a timeout of 0 would wait forever


class OnTimeout(Enum):
    """The outcome of a request that nobody answered in time.

    >>> OnTimeout.EXIT_EARLY.name
    'EXIT_EARLY'
    """

    CONTINUE = "continue"
    """The call is approved."""
    EXIT_EARLY = "exit_early"
    """The call is rejected."""
    FAIL = "fail"
    """Raise :class:`~toolsemble.ReviewTimeoutError`."""


class ReviewTiming(Enum):
    """The time at which a reviewer is asked.

    >>> ReviewTiming.BEFORE_EXECUTION.name
    'BEFORE_EXECUTION'
    """

    BEFORE_EXECUTION = "before_execution"
    """Before the body runs: whether it may run."""
    DURING_EXECUTION = "during_execution"
    """While the body runs: the tool itself asks."""
    AFTER_EXECUTION = "after_execution"
    """After the body has run: a program asks about its result."""


class ReviewTerms(TypedDict, total=False):
    """The terms of a request that a tool makes while it runs."""

    arguments: Any
    """Shown to the reviewer with the description, a dict or a str; nothing by default."""
    timeout: float | None
    """Seconds to wait for the reviewer; 0 or None waits forever."""
    on_timeout: OnTimeout
    """What happens to the call on a timeout."""
    required_role: str | None
    """The required role of the reviewer; None: any."""


def check_terms(place: str, timeout: object, on_timeout: object, role: object = None) -> None:
    """Raise ToolDefinitionError for terms that are not valid.

    >>> check_terms("deploy: ", -1, OnTimeout.CONTINUE)
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: deploy: timeout must be a number of seconds >= 0, or None, not -1
    """
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0):
        raise ToolDefinitionError(f"{place}timeout must be a number of seconds >= 0, or None, not {timeout!r}")
    if not isinstance(on_timeout, OnTimeout):
        raise ToolDefinitionError(f"{place}on_timeout must be an OnTimeout, not {on_timeout!r}")
    if role is not None and not isinstance(role, str):
        raise ToolDefinitionError(f"{place}role must be a str or None, not {role!r}")


def fit_to_deadline(deadline: float | None, timeout: float | None, on_timeout: OnTimeout) -> dict[str, Any]:
    """Return the timeout of a request as its fields; the deadline of the call takes precedence.

    The budget of a run does not count here: its clock stands still while a person is waited for.
    """
    if deadline is not None and not isinstance(deadline, RunDeadline):
        left = max(deadline - time.monotonic(), _SHORTEST)
        if not timeout or left < timeout:
            # The request's on_timeout does not apply to a call that has ended.
            timeout, on_timeout = left, OnTimeout.EXIT_EARLY
    return {"timeout": timeout, "on_timeout": on_timeout, "asked_at": time.time()}
