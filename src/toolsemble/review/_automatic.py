"""Reviewers without a person: approve all, reject all, or call a function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from toolsemble._runtime.checks import check_seconds
from toolsemble.review._decision import Continue, ExitEarly, ReviewDecision
from toolsemble.review._request import ReviewRequest


@dataclass(frozen=True, slots=True)
class AutoApprove:
    """A reviewer that approves every call, optionally after a delay; for tests and sandboxes.

    >>> from toolsemble._runtime.concurrency import finish
    >>> finish(AutoApprove().review(ReviewRequest("Deletes a file", "delete", "old.log")))
    Continue(always=None)
    """

    delay: float | None = None
    """Seconds before the answer; None: no delay."""

    def __post_init__(self) -> None:
        if self.delay is not None:
            check_seconds("AutoApprove: delay", self.delay, zero=True)

    async def review(self, request: ReviewRequest) -> ReviewDecision:
        """Return the approval; the delay blocks no thread."""
        if self.delay:
            import asyncio

            await asyncio.sleep(self.delay)
        return Continue()


@dataclass(frozen=True, slots=True)
class AutoReject:
    """A reviewer that rejects every call.

    >>> from toolsemble._runtime.concurrency import finish
    >>> finish(AutoReject("read only").review(ReviewRequest("Deletes a file", "delete", "old.log")))
    ExitEarly(reason='read only', timed_out=False)
    """

    reason: str = ""
    """The reason, for the model."""

    async def review(self, request: ReviewRequest) -> ReviewDecision:
        """Return the rejection."""
        return ExitEarly(self.reason)


@dataclass(frozen=True, slots=True)
class CallbackReview:
    """A reviewer that calls a function, sync or async, with the request; it returns the decision.

    An exception, or a return value that is not a decision, rejects the call.

    >>> def decide(request):
    ...     return Continue() if request.arguments["amount"] < 10 else ExitEarly("too much")
    >>> CallbackReview(decide).review(ReviewRequest("Pays", "pay", {"amount": 50}))
    ExitEarly(reason='too much', timed_out=False)
    """

    function: Callable[[ReviewRequest], ReviewDecision | Awaitable[ReviewDecision]]
    """The function that decides."""

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"CallbackReview needs a function, not {type(self.function).__name__}")

    # Not async: a blocking function then runs in a thread, and its return value is awaited if necessary.
    def review(self, request: ReviewRequest) -> ReviewDecision | Awaitable[ReviewDecision]:
        """Return what the function returns."""
        return self.function(request)
