"""The outcome of a finished call, for sinks that accompany calls."""

from __future__ import annotations

from typing import Any

from toolsemble._engine.definition import ToolDefinition
from toolsemble._engine.record import determine_outcome, input_text, is_unfinished
from toolsemble._runtime.metrics import Outcome
from toolsemble._runtime.text import describe_error
from toolsemble._schema.masking import mask_result, mask_text, mask_value
from toolsemble._vocabulary.errors import CallPausedError, RejectedError, RunParkedError
from toolsemble._vocabulary.result import ToolResult


class FinishedCall:
    """A finished call: outcome, arguments and result, without secrets; computed on access."""

    __slots__ = ("_definition", "_given", "_raised", "_read", "_refusal", "_result", "duration")

    def __init__(
        self,
        definition: ToolDefinition,
        given: Any,
        result: ToolResult | None,
        raised: BaseException | None,
        refusal: BaseException | None,
        duration: float,
        *,
        read: bool,
    ) -> None:
        """Store the facts.

        :param given: the body's input; for invalid arguments, the input as sent
        :param refusal: why the body did not run
        :param duration: seconds of work, without time in review
        :param read: whether the arguments were valid
        """
        self.duration = duration
        self._definition = definition
        self._given = given
        self._result = result
        self._raised = raised
        self._refusal = refusal
        self._read = read

    @property
    def outcome(self) -> Outcome:
        """Whether the call succeeded, returned a failed result, raised, or was cancelled."""
        return determine_outcome(self._result, self._raised)

    @property
    def is_paused(self) -> bool:
        """Whether the call waits for a decision about it or about a nested call."""
        return isinstance(self._raised, (CallPausedError, RunParkedError))

    @property
    def is_interrupted(self) -> bool:
        """Whether the call has not ended because its run continues elsewhere or later."""
        return self._raised is not None and is_unfinished(self._raised) and not self.is_paused

    @property
    def reason(self) -> str:
        """Why it failed: the class of the exception, or the kind of failure."""
        if self._raised is not None:
            return get_class_name(self._raised)
        if self._refusal is None:
            return "failure"
        return "rejected" if isinstance(self._refusal, RejectedError) else "invalid_arguments"

    @property
    def message(self) -> str:
        """The error message; empty on success."""
        if self._raised is not None:
            return mask_text(describe_error(self._raised))
        return mask_text((self._result and self._result.error_message) or "")

    @property
    def arguments(self) -> Any:
        """The arguments as a reviewer sees them; if they were invalid, as they were sent."""
        return mask_value(
            self._definition.present(self._given, best_effort=True) if self._read else input_text(self._given)
        )

    @property
    def result(self) -> ToolResult | None:
        """The result; None if an exception reaches the caller."""
        return None if self._result is None else mask_result(self._result)


def get_class_name(error: BaseException) -> str:
    """Return the name of an exception class, with its module unless it is a builtin.

    >>> import json
    >>> get_class_name(json.JSONDecodeError("", "", 0))
    'json.decoder.JSONDecodeError'
    """
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
