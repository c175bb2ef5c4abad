"""The terms of a request: its timeout, what a timeout means, and when a reviewer is asked.

Every toolbox has them, and most never make a request: they are apart, so that these do not load it.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, TypedDict

from toolsemble._vocabulary.errors import ToolDefinitionError

TIMEOUT = 300.0
"""The default number of seconds to wait for a reviewer."""


class OnTimeout(Enum):
    """The outcome of a request that times out.

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
    """After the body has run: whether its result is acceptable."""


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
