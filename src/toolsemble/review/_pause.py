"""Reviewers for runs that pause: one leaves calls open, the other applies the decisions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NoReturn

from toolsemble._runtime.text import preview
from toolsemble._vocabulary.call import new_id
from toolsemble._vocabulary.errors import CallPausedError
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.review._asking.open_question import note_stored
from toolsemble.review._request import ReviewDecision, Reviewer, ReviewRequest
from toolsemble.review._terms import ReviewTiming


@dataclass(frozen=True, slots=True)
class PauseReview(Reviewer):
    """A reviewer that does not wait: the agent's run pauses with the call open, and is resumed with a decision.

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

    sends_event = True
    """It sends ``review_requested`` itself, without a deadline."""
    pauses = True

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
        "and of its nested agents; pass a reviewer that waits, such as QueueReview"
    )


_CHANGED = "The arguments or the tool changed after the decision, which was not used; decide on the call shown here"


class DecidedReview(Reviewer):
    """A reviewer that applies earlier decisions, each to one call with the same arguments."""

    sends_event = True
    """The event that a decision is needed was sent before the pause."""
    pauses = True
    """A decision that does not fit leaves its call open."""
    decides = True
    """It answers in place of every reviewer that would leave the call open."""

    def __init__(self, decided: Iterable[tuple[ReviewRequest, ReviewDecision]]) -> None:
        self._decided = list(decided)
        self._used: dict[tuple[str, str], ReviewRequest] = {}

    async def review(self, request: ReviewRequest) -> ReviewDecision:
        """Return the decision on a call; leave the call open if there is none for it with these arguments."""
        call = request.tool_name, request.call_id
        if request.prompt and call in self._used:
            leave_open(_ask_again(self._used[call], request))
        known = next((each for each in self._decided if _is_same(each[0], request)), None)
        if known is None:
            leave_open(replace(request, prompt=_CHANGED))
        self._decided.remove(known)
        self._used[call] = known[0]
        note_stored(known[0], waits=False)
        return known[1]


def _is_same(decided: ReviewRequest, request: ReviewRequest) -> bool:
    """Return whether a decision on one request is valid for another: the same call, arguments and tool."""
    names = ("run_id", "call_id", "tool_name", "arguments_digest", "schema_digest")
    return all(getattr(decided, name) == getattr(request, name) for name in names)


def _ask_again(decided: ReviewRequest, request: ReviewRequest) -> ReviewRequest:
    """Return a request for the same arguments, with the reason why the edit was not used."""
    prompt = request.prompt
    if request.arguments_digest != decided.arguments_digest:
        shown = preview(compact_json(request.arguments))
        prompt = f"The edit was read as {shown}; write the values exactly as they are meant"
    return replace(decided, id=new_id(), prompt=prompt, asked_at=request.asked_at)
