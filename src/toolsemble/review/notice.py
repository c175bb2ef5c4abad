"""What those who watch a run are told of its reviews."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from toolsemble.review.decision import ReviewDecision
from toolsemble.review.request import ReviewRequest


@dataclass(frozen=True, slots=True)
class ReviewRequested:
    """A reviewer is asked; the call waits.

    >>> ReviewRequested(ReviewRequest("Deletes a file", "delete", "old.log")).request.tool_name
    'delete'
    """

    request: ReviewRequest
    """What is asked."""
    kind: ClassVar[str] = "review_requested"


@dataclass(frozen=True, slots=True)
class ReviewDecided:
    """A reviewer has answered, or did not in time.

    >>> from toolsemble import Continue
    >>> ReviewDecided(ReviewRequest("Deletes a file", "delete", "old.log"), Continue()).kind
    'review_decided'
    """

    request: ReviewRequest
    """What was asked."""
    decision: ReviewDecision
    """What came of it."""
    kind: ClassVar[str] = "review_decided"
