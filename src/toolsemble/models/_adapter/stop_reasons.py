"""The stop reasons of a provider, and the errors for answers that are incomplete or empty."""

from __future__ import annotations

from collections.abc import Mapping, Set as AbstractSet
from dataclasses import dataclass

from toolsemble._vocabulary.errors import ModelError
from toolsemble.models._adapter.errors import cut_off_error
from toolsemble.models._chat import StopReason


@dataclass(frozen=True, slots=True)
class StopReasons:
    """The stop reasons of a provider.

    >>> reasons = StopReasons("Gemini", {"STOP": "stop", "SAFETY": "refusal"}, {"MALFORMED_FUNCTION_CALL"})
    >>> reasons.read("STOP", has_calls=True, has_text=False)
    'calls'
    >>> reasons.read("SAFETY", has_calls=False, has_text=False)
    Traceback (most recent call last):
    ...
    toolsemble.ModelError: Gemini refused to answer (SAFETY)
    """

    provider: str
    """The name in errors."""
    stops: Mapping[str, StopReason]
    """The meaning of each reason; unknown ones mean "other"."""
    malformed: AbstractSet[str] = frozenset()
    """Reasons for a call that the service could not parse."""
    may_be_empty: bool = False
    """Whether an empty answer is valid; otherwise it is an error."""

    def read(self, reason: str, *, has_calls: bool, has_text: bool, why: str = "") -> StopReason:
        """Return why an answer ended; raise a :class:`~toolsemble.ModelError` if it is incomplete or empty.

        :param why: the provider's explanation of a refusal
        """
        if not reason:
            raise cut_off_error(self.provider)
        stop = self.stops.get(reason, "other")
        if has_calls:
            return stop if stop == "length" else "calls"
        if reason in self.malformed:
            # The text beside a lost call is not an answer.
            raise ModelError(f"{self.provider} wrote a call that cannot be read ({reason})", retryable=True)
        if not has_text:
            self._check_empty(f"({reason}): {why}" if why else f"({reason})", stop)
        return stop

    def _check_empty(self, reason: str, stop: StopReason) -> None:
        if stop == "refusal":
            raise ModelError(f"{self.provider} refused to answer {reason}")
        if stop == "length":
            raise ModelError(
                f"{self.provider} reached the token limit before it answered {reason}; raise the limit, or send less"
            )
        if not self.may_be_empty:
            raise ModelError(f"{self.provider} sent an empty answer {reason}", retryable=True)
