"""What the program's exit code says, and what is said of an error."""

from __future__ import annotations

from enum import IntEnum

from toolsemble.errors import (
    ExitEarlyError,
    MaxIterationsExceededError,
    ToolConfigurationError,
    ToolDefinitionError,
)

_STOPPED = (ExitEarlyError, MaxIterationsExceededError)
_MISUSED = (ToolConfigurationError, ToolDefinitionError)


class Exit(IntEnum):
    """How a command ended, for the script that started it.

    >>> Exit.STOPPED.value
    3
    """

    DONE = 0
    """There is an answer; the call succeeded."""
    FAILED = 1
    """The run or the call failed."""
    MISUSED = 2
    """The command cannot be carried out as it was given: an unknown option, tool or model, a missing package."""
    STOPPED = 3
    """A budget was used up, or a reviewer ended the run or refused a call by hand; there may still be an answer."""
    INTERRUPTED = 130
    """Ctrl-C."""
    UNHEARD = 141
    """Whoever read the output has gone."""


def exit_of(error: BaseException) -> Exit:
    """Give the exit code for an error that ended a command.

    >>> exit_of(ToolConfigurationError("no model")).name
    'MISUSED'
    """
    if isinstance(error, _STOPPED):
        return Exit.STOPPED
    return Exit.MISUSED if isinstance(error, _MISUSED) else Exit.FAILED


def line_of(error: BaseException) -> str:
    r"""Give what is to be said of an error, in one line.

    >>> line_of(ToolDefinitionError("first\nsecond"))
    'first; second'
    >>> line_of(KeyError("city"))
    "KeyError: 'city'"
    """
    text = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
    if not text:
        return type(error).__name__
    ours = type(error).__module__.startswith("toolsemble.") or isinstance(error, OSError)
    return text if ours else f"{type(error).__name__}: {text}"
