"""A reviewer for calls that are resumed: it has the decisions already, each bound to one call with its arguments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from toolsemble._runtime.text import preview
from toolsemble._vocabulary.call import new_id
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.review._decision import ReviewDecision
from toolsemble.review._pause import leave_open
from toolsemble.review._question import note_stored
from toolsemble.review._request import ReviewRequest

_CHANGED = "The arguments or the tool changed after the decision, which was not used; decide about what is shown here"


class DecidedReview:
    """A reviewer that answers with decisions that were made before, each for one call with these arguments."""

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
        """Return the decision about a call; leave the call open if there is none for it with these arguments."""
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
    """Return whether a decision about one request is valid for another: the same call, arguments and tool."""
    names = ("run_id", "call_id", "tool_name", "arguments_digest", "schema_digest")
    return all(getattr(decided, name) == getattr(request, name) for name in names)


def _ask_again(decided: ReviewRequest, request: ReviewRequest) -> ReviewRequest:
    """Return the question about the same arguments again, with the reason why the edit was not used."""
    prompt = request.prompt
    if request.arguments_digest != decided.arguments_digest:
        shown = preview(compact_json(request.arguments))
        prompt = f"The edit was read as {shown}; write the values exactly as they are meant"
    return replace(decided, id=new_id(), prompt=prompt, asked_at=request.asked_at)
