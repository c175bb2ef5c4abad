"""Events about reviews, for watchers of a run."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from toolsemble.review._decision import ReviewDecision
from toolsemble.review._request import ReviewRequest


@dataclass(frozen=True, slots=True)
class _RequestEvent:
    """An event about a request and the call that waits for the answer."""

    request: ReviewRequest
    """The request."""

    @property
    def tool_name(self) -> str:
        """The tool that is called."""
        return self.request.tool_name

    @property
    def call_id(self) -> str:
        """The call that waits."""
        return self.request.call_id

    @property
    def run_id(self) -> str:
        """The run that the call belongs to."""
        return self.request.run_id

    @property
    def agent_role(self) -> str:
        """The role of the agent that calls."""
        return self.request.agent_role


@dataclass(frozen=True, slots=True)
class ReviewRequested(_RequestEvent):
    """The event that a reviewer is asked; the call waits.

    >>> ReviewRequested(ReviewRequest("Deletes a file", "delete", "old.log")).tool_name
    'delete'
    """

    kind: ClassVar[Literal["review_requested"]] = "review_requested"

    @property
    def at(self) -> float:
        """When it was asked, in seconds since the epoch."""
        return self.request.asked_at


@dataclass(frozen=True, slots=True)
class ReviewDecided(_RequestEvent):
    """The event that a reviewer has answered, or did not in time.

    >>> from toolsemble import Continue
    >>> ReviewDecided(ReviewRequest("Deletes a file", "delete", "old.log"), Continue()).kind
    'review_decided'
    """

    decision: ReviewDecision
    """The decision; the text of an edit is masked if the arguments contain secrets."""
    at: float = field(default_factory=time.time, kw_only=True, compare=False)
    """When, in seconds since the epoch."""
    kind: ClassVar[Literal["review_decided"]] = "review_decided"
