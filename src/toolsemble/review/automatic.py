"""Reviewers that are programs: they always agree, never agree, or ask a function."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from toolsemble.errors import ToolDefinitionError
from toolsemble.review.decision import Continue, ExitEarly, ReviewDecision
from toolsemble.review.request import ReviewRequest


@dataclass(frozen=True, slots=True)
class AutoApprove:
    """Agrees to every call, at once or after a delay; for tests, and for places where nothing can be broken.

    >>> from toolsemble.runtime.concurrency import finish
    >>> finish(AutoApprove().review(ReviewRequest("Deletes a file", "delete", "old.log")))
    Continue(always=None)
    """

    delay: float | None = None
    """How many seconds pass before the answer, as with a person; None for none."""

    def __post_init__(self) -> None:
        if self.delay is not None and not (self.delay >= 0 and math.isfinite(self.delay)):
            raise ToolDefinitionError(f"AutoApprove: delay must be a number of seconds from 0, not {self.delay}")

    async def review(self, request: ReviewRequest) -> ReviewDecision:  # noqa: ARG002 - every request gets the same
        """Give the approval, without holding a thread while it waits."""
        if self.delay:
            import asyncio  # noqa: PLC0415 - who does not wait does not pay for it

            await asyncio.sleep(self.delay)
        return Continue()


@dataclass(frozen=True, slots=True)
class AutoReject:
    """Refuses every call.

    >>> from toolsemble.runtime.concurrency import finish
    >>> finish(AutoReject("read only").review(ReviewRequest("Deletes a file", "delete", "old.log")))
    ExitEarly(reason='read only', timed_out=False)
    """

    reason: str = ""
    """Why not, for the model."""

    async def review(self, request: ReviewRequest) -> ReviewDecision:  # noqa: ARG002 - every request gets the same
        """Give the refusal."""
        return ExitEarly(self.reason)


@dataclass(frozen=True, slots=True)
class CallbackReview:
    """Asks a function, sync or async, that is given the request and gives the decision.

    What is no decision refuses the call, and so does an exception.

    >>> def decide(request):
    ...     return Continue() if request.arguments["amount"] < 10 else ExitEarly("too much")
    >>> CallbackReview(decide).review(ReviewRequest("Pays", "pay", {"amount": 50}))
    ExitEarly(reason='too much', timed_out=False)
    """

    function: Callable[[ReviewRequest], ReviewDecision | Awaitable[ReviewDecision]]
    """Who decides."""

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"CallbackReview needs a function, not {type(self.function).__name__}")

    # Not async: a function that blocks is then put into a thread, and what it gives is awaited where it has to be.
    def review(self, request: ReviewRequest) -> ReviewDecision | Awaitable[ReviewDecision]:
        """Give what the function gives."""
        return self.function(request)
