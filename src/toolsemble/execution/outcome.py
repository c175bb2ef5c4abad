"""How a call ended, for those who went along with it."""

from __future__ import annotations

from typing import Any

from toolsemble.definition.definition import ToolDefinition
from toolsemble.execution.approval import RejectedError
from toolsemble.masking.secrets import masked, masked_result, masked_value
from toolsemble.metrics import Outcome
from toolsemble.record import outcome_of
from toolsemble.result import ToolResult
from toolsemble.shape import describe_error


class FinishedCall:
    """The end of one call; what is shown of it has no secrets, and is made only when it is asked for."""

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
        """Take down what is known.

        :param given: what the body got; where the arguments did not fit, what was sent
        :param refusal: why the body was not run
        :param duration: how many seconds the work took, without the time of a reviewer
        :param read: whether the arguments did fit
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
        """Whether the call succeeded, gave a failed result, or its tool raised an exception."""
        return outcome_of(self._result, self._raised)

    @property
    def reason(self) -> str:
        """Why it did not succeed, in a word: the class of what was raised, or what kind of failure it is."""
        if self._raised is not None:
            return class_name(self._raised)
        if self._refusal is None:
            return "failure"
        return "rejected" if isinstance(self._refusal, RejectedError) else "invalid_arguments"

    @property
    def message(self) -> str:
        """What went wrong, for people; empty when nothing did."""
        if self._raised is not None:
            return masked(describe_error(self._raised))
        return masked((self._result and self._result.error_message) or "")

    @property
    def arguments(self) -> Any:
        """The arguments, as a reviewer would see them; where they did not fit, as they came."""
        return masked_value(self._definition.present(self._given, glance=True) if self._read else str(self._given))

    @property
    def result(self) -> ToolResult | None:
        """The whole result; None when an exception passes through to the caller."""
        return None if self._result is None else masked_result(self._result)


def class_name(error: BaseException) -> str:
    """Give the name of an exception's class, with its module where that says more.

    >>> class_name(ValueError())
    'ValueError'
    >>> import json
    >>> class_name(json.JSONDecodeError("", "", 0))
    'json.decoder.JSONDecodeError'
    """
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
