"""How an answer ended, and whether there is anything in it to go on with."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from toolsemble.errors import ModelError
from toolsemble.models.adapter.refusal import cut_off
from toolsemble.models.chat import StopReason


@dataclass(frozen=True, slots=True)
class Endings:
    """The words in which one provider says why an answer ended.

    >>> endings = Endings("Gemini", {"STOP": "stop", "SAFETY": "refusal"}, {"MALFORMED_FUNCTION_CALL"})
    >>> endings.stop("STOP", has_calls=True, has_text=False)
    'calls'
    >>> endings.stop("SAFETY", has_calls=False, has_text=False)
    Traceback (most recent call last):
    ...
    toolsemble.errors.ModelError: Gemini refused to answer (SAFETY)
    """

    provider: str
    """Who is named in errors."""
    stops: Mapping[str, StopReason]
    """What its words mean; any other is "other"."""
    garbled: AbstractSet[str]
    """Its words for an answer that the service itself could not read."""
    may_be_silent: bool = False
    """Whether its models end without a word when they have nothing to add, and not by mistake."""

    def stop(self, reason: str, *, has_calls: bool, has_text: bool) -> StopReason:
        """Give why an answer ended; raise a :class:`~toolsemble.ModelError` when it has no end, or nothing in it."""
        if not reason:
            raise cut_off(self.provider)
        stop = self.stops.get(reason, "other")
        if has_calls:
            return stop if stop == "length" else "calls"
        if reason in self.garbled:
            # Text beside a call that was lost is no answer.
            raise ModelError(f"{self.provider} wrote a call that cannot be read ({reason})", retryable=True)
        if not has_text:
            self._check_silence(reason, stop)
        return stop

    def _check_silence(self, reason: str, stop: StopReason) -> None:
        if stop == "refusal":
            raise ModelError(f"{self.provider} refused to answer ({reason})")
        if stop == "length":
            raise ModelError(
                f"{self.provider} used up its room before it said anything ({reason}); allow more tokens, or send less"
            )
        if not self.may_be_silent:
            raise ModelError(f"{self.provider} said nothing at all ({reason})", retryable=True)
