"""What to do when a step of a pipeline fails."""

from __future__ import annotations

from enum import Enum
from typing import Any

from toolsemble._vocabulary.errors import ToolDefinitionError


class ErrorStrategy(Enum):
    """The ways to handle the failure of a step, a branch or an item.

    >>> ErrorStrategy.FAIL_FAST.name
    'FAIL_FAST'
    """

    FAIL_FAST = "fail_fast"
    """Stop: the failed step's result is the result of the pipeline."""
    CONTINUE_ON_FAILURE = "continue_on_failure"
    """Continue: the next step gets the error message."""


def check_strategy(owner: str, value: Any) -> ErrorStrategy:
    """Return the strategy, or raise :class:`ToolDefinitionError` if it is not an :class:`ErrorStrategy`.

    >>> check_strategy("Pipeline 'p'", "stop")
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Pipeline 'p': the error strategy must be an ErrorStrategy, not 'stop'
    """
    if isinstance(value, ErrorStrategy):
        return value
    raise ToolDefinitionError(f"{owner}: the error strategy must be an ErrorStrategy, not {value!r:.80}")
