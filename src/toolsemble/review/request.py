"""What a reviewer is asked, and who can be one."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Protocol

from toolsemble.review.decision import ReviewDecision


@dataclass(frozen=True, slots=True)
class ReviewRequest:
    """One question to a reviewer: whether this call may run, with these arguments.

    >>> ReviewRequest(description="Deletes a file", tool_name="delete", arguments="old.log").tool_name
    'delete'
    """

    description: str
    """What the tool says of itself."""
    tool_name: str
    """The tool that is called."""
    arguments: Any
    """The final, validated arguments; for a string tool, the string."""
    call_id: str = ""
    """The call that waits for the answer."""
    run_id: str = ""
    """The run that the call belongs to."""


class ReviewHandler(Protocol):
    """Whoever answers: any object with this one method, sync or async.

    Any answer but ``Continue``, ``Edit`` or ``ExitEarly``, and any exception, is a rejection.

    >>> class Cautious:
    ...     def review(self, request):
    ...         return ExitEarly(f"not {request.tool_name}")
    >>> from toolsemble.review import ExitEarly
    >>> Cautious().review(ReviewRequest("Deletes a file", "delete", "old.log"))
    ExitEarly(reason='not delete', timed_out=False)
    """

    def review(self, request: ReviewRequest) -> ReviewDecision | Awaitable[ReviewDecision]:
        """Give the decision about one call."""
        ...
