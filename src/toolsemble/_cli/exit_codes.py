"""The exit codes, and the one-line messages of errors."""

from __future__ import annotations

from enum import IntEnum

from toolsemble._vocabulary.errors import (
    ExitEarlyError,
    MaxIterationsExceededError,
    RunParkedError,
    ToolConfigurationError,
    ToolDefinitionError,
)

_STOPPED = (ExitEarlyError, MaxIterationsExceededError, RunParkedError)
_USAGE_ERRORS = (ToolConfigurationError, ToolDefinitionError)


class Exit(IntEnum):
    """The exit codes of the program.

    >>> Exit.STOPPED.value
    3
    """

    DONE = 0
    """The command succeeded."""
    FAILED = 1
    """The run or the call failed."""
    USAGE_ERROR = 2
    """The command is not valid: an unknown option, tool or model, or a missing package."""
    STOPPED = 3
    """A budget was exhausted, a reviewer stopped the run or rejected a call, or the run waits for a person; there may
    still be an answer."""
    INTERRUPTED = 130
    """Ctrl-C."""
    BROKEN_PIPE = 141
    """The reader of the output has closed it."""


def exit_code_for(error: BaseException) -> Exit:
    """Return the exit code for an error.

    >>> exit_code_for(ToolConfigurationError("no model")).name
    'USAGE_ERROR'
    """
    if isinstance(error, _STOPPED):
        return Exit.STOPPED
    return Exit.USAGE_ERROR if isinstance(error, _USAGE_ERRORS) else Exit.FAILED


def format_error(error: BaseException) -> str:
    r"""Return the message of an error in one line.

    >>> format_error(ToolDefinitionError("first\nsecond"))
    'first; second'
    >>> format_error(KeyError("city"))
    "KeyError: 'city'"
    """
    text = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
    if not text:
        return type(error).__name__
    is_self_explanatory = type(error).__module__.partition(".")[0] == "toolsemble" or isinstance(error, OSError)
    return text if is_self_explanatory else f"{type(error).__name__}: {text}"
