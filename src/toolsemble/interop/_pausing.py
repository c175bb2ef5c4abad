"""Approval by a framework: its run pauses with the request, and the decision is bound to the request."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from toolsemble._engine.context import ToolContext
from toolsemble._tools.toolbox.approval import check_pauses, replace_all_reviewers, replace_reviewer
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import CallPausedError
from toolsemble.review._pause import DecidedReview, PauseReview
from toolsemble.review._request import Continue, Edit, ExitEarly, ReviewDecision, ReviewRequest, digest
from toolsemble.review._terms import ReviewTiming

CHANGED = "The arguments or the tool changed after the approval, which was not used; call the tool again"
"""The failure of a call that differs from the approved one."""
UNKNOWN = "Unknown outcome: the call was cancelled while it ran, and was not repeated; check whether it took effect"
"""The failure of a call repeated by a resumed run."""
_MOST_SHOWN = 10_000


def make_pausable(box: Toolbox) -> Toolbox:
    """Return a toolbox whose gated calls raise ``CallPausedError`` instead of asking.

    Raise ToolConfigurationError for a tool that asks inside a pipeline, where a run cannot be resumed.
    """
    changed = replace_all_reviewers(box, PauseReview())
    check_pauses(changed, ToolContext(), nested=False)
    return changed


def bind_decision(box: Toolbox, request: ReviewRequest, decision: ReviewDecision) -> Toolbox:
    """Return a toolbox that applies a decision only to the request's call with its arguments."""
    return replace_reviewer(box, {request.tool_name}, DecidedReview([(request, decision)]))


def show_request(request: ReviewRequest) -> dict[str, Any]:
    """Return a request as JSON values, with its fingerprint.

    >>> show_request(ReviewRequest("Pays", "pay", {"order": 7}))["arguments"]
    {'order': 7}
    """
    shown = fingerprint_of(replace(request, prompt=""))
    return {**json.loads(request.to_json()), "fingerprint": fingerprint_of(request), "shown": shown}


def fingerprint_of(request: ReviewRequest) -> str:
    """Return a digest of everything that a decision covers: call, arguments, tool, and prompt.

    >>> one, other = (ReviewRequest("Pays", "pay", {"order": order}) for order in (7, 8))
    >>> fingerprint_of(one) == fingerprint_of(other)
    False
    """
    names = ("run_id", "call_id", "tool_name", "arguments_digest", "schema_digest", "prompt")
    return digest([getattr(request, name) for name in names])


def asks_before(paused: CallPausedError) -> bool:
    """Return whether a paused call has not started, so that it is resumable."""
    request: ReviewRequest = paused.request
    return request.timing is ReviewTiming.BEFORE_EXECUTION


class ShownRequests:
    """The requests shown for pending calls, in this process; the oldest are dropped."""

    def __init__(self) -> None:
        self._fingerprints: OrderedDict[tuple[str, str], str] = OrderedDict()

    def add(self, request: ReviewRequest) -> None:
        """Record a call's shown request."""
        self._fingerprints[request.run_id, request.call_id] = fingerprint_of(replace(request, prompt=""))
        while len(self._fingerprints) > _MOST_SHOWN:
            self._fingerprints.popitem(last=False)

    def has(self, request: ReviewRequest, metadata: Any = None) -> bool:
        """Return whether this matches the call's shown request.

        :param metadata: what :func:`show_request` returned, if the framework kept it; another process may have shown it
        """
        fingerprint = fingerprint_of(replace(request, prompt=""))
        if isinstance(metadata, Mapping) and metadata.get("shown") == fingerprint:
            return True
        return self._fingerprints.get((request.run_id, request.call_id)) == fingerprint

    def allows(self, request: ReviewRequest) -> bool:
        """Return whether no different request was shown for the call; another process may have shown it."""
        return (request.run_id, request.call_id) not in self._fingerprints or self.has(request)


def edit_arguments(request: Mapping[str, Any], arguments: Any) -> ReviewDecision:
    """Return the decision for an approval with edited arguments.

    :param request: what :func:`show_request` returned

    >>> edit_arguments(show_request(ReviewRequest("Pays", "pay", {"order": 7})), {"order": 8})
    Edit(revised='{"order": 8}')
    """
    shown, editable = request["arguments"], request["editable"]
    if arguments == shown:
        return Continue()
    if not editable:
        return Edit(arguments if isinstance(arguments, str) else json.dumps(arguments))
    given = arguments if isinstance(arguments, Mapping) else {}
    if editable not in given or {**shown, **given, editable: shown[editable]} != shown:
        return ExitEarly(f"only '{editable}' can be edited")
    return Edit(str(given[editable]))


def read_decision(value: Any) -> ReviewDecision:
    """Return the decision for an answer: a decision, or its JSON form; anything else is a rejection.

    >>> read_decision({"decision": "edit", "revised": "{}"}), read_decision({"decision": "continue"})
    (Edit(revised='{}'), Continue(always=None))
    >>> read_decision(True)
    ExitEarly(reason='the answer True is not a decision', timed_out=False)
    """
    if type(value) in (Continue, Edit, ExitEarly):
        return value  # type: ignore[no-any-return]  # one of the three
    fields = value if isinstance(value, Mapping) else {}
    kind, revised = fields.get("decision"), fields.get("revised")
    if kind == "continue":
        return Continue()
    if kind == "edit" and isinstance(revised, str | dict):
        return Edit(revised if isinstance(revised, str) else json.dumps(revised))
    if kind in ("exit_early", "reject"):
        return ExitEarly(str(fields.get("reason") or ""))
    return ExitEarly(f"the answer {value!r:.80} is not a decision")
