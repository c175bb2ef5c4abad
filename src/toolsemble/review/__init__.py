"""People who decide about calls: what they are asked, and what they can answer."""

from toolsemble.review.decision import Continue, Edit, ExitEarly, ReviewDecision
from toolsemble.review.request import ReviewHandler, ReviewRequest

__all__ = ["Continue", "Edit", "ExitEarly", "ReviewDecision", "ReviewHandler", "ReviewRequest"]
