"""What becomes of a pipeline when one of its steps fails."""

from __future__ import annotations

from enum import Enum
from typing import Any

from toolsemble.errors import ToolDefinitionError


class ErrorStrategy(Enum):
    """What becomes of a pipeline when one of its steps fails.

    >>> ErrorStrategy.FAIL_FAST.name
    'FAIL_FAST'
    """

    FAIL_FAST = "fail_fast"
    """The failing step's result is the result; what has not run does not run."""
    CONTINUE_ON_FAILURE = "continue_on_failure"
    """The others run all the same; the next step gets the error message."""


def checked_strategy(owner: str, value: Any) -> ErrorStrategy:
    """Give the strategy back, or refuse what is none.

    >>> checked_strategy("Pipeline 'p'", "stop")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: Pipeline 'p': the error strategy must be an ErrorStrategy, not 'stop'
    """
    if isinstance(value, ErrorStrategy):
        return value
    raise ToolDefinitionError(f"{owner}: the error strategy must be an ErrorStrategy, not {value!r:.80}")
