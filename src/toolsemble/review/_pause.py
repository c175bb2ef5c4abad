"""A reviewer that leaves calls open, so that a run can end and be resumed with the decisions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NoReturn

from toolsemble._vocabulary.errors import CallPausedError
from toolsemble.review._question import note_stored
from toolsemble.review._request import ReviewRequest
from toolsemble.review._terms import ReviewTiming


@dataclass(frozen=True, slots=True)
class PauseReview:
    """A reviewer that does not wait: the run of the agent ends with the call open, and is resumed with a decision.

    The result has the ``stop_reason`` "paused", the open calls in ``pending``, and the run in ``paused``, which can be
    stored as JSON. There is no timeout.

    >>> from toolsemble import Agent, Continue, ToolCall, tool
    >>> from toolsemble.testing import ScriptedModel
    >>> @tool(requires_approval=True)
    ... def refund(order: int) -> str:
    ...     return f"refunded {order}"
    >>> model = ScriptedModel([ToolCall("refund", {"order": 7}, id="c1"), "Done."])
    >>> agent = Agent(model, [refund], review=PauseReview())
    >>> result = agent.run_sync("Refund order 7.")
    >>> result.stop_reason, [(each.call.name, each.request.arguments) for each in result.pending]
    ('paused', [('refund', {'order': 7})])
    >>> agent.run_sync(result.paused, decisions={result.pending[0].id: Continue()}).text
    'Done.'
    """

    sends_event: ClassVar[bool] = True
    """It sends ``review_requested`` itself, without a deadline."""
    pauses: ClassVar[bool] = True
    """Whether calls can be left open; a reviewer that wraps another one returns that of the other."""

    async def review(self, request: ReviewRequest) -> NoReturn:
        """Raise ``CallPausedError``, which ends the run or reaches the caller."""
        leave_open(replace(request, timeout=None))


def leave_open(request: ReviewRequest) -> NoReturn:
    """Send the event that a decision is needed, and raise CallPausedError for the call of the request."""
    note_stored(request, waits=True)
    raise CallPausedError(_explain(request), request=request)


def _explain(request: ReviewRequest) -> str:
    if request.timing is ReviewTiming.DURING_EXECUTION:
        return (
            f"Tool '{request.tool_name}' asks for approval while it runs, and PauseReview can leave a call open only "
            "before it runs; set requires_approval on the tool, or pass a reviewer that waits, such as QueueReview"
        )
    return (
        f"Tool '{request.tool_name}' waits for approval, and PauseReview can leave only the calls of an Agent open, "
        "and those of agents that are its tools; pass a reviewer that waits, such as QueueReview"
    )
