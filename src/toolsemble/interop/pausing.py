"""Approval by a framework: its run pauses with the request, and the decision is bound to what was shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolsemble.context import ToolContext
from toolsemble.review.decided import DecidedReview
from toolsemble.review.decision import Continue, Edit, ExitEarly, ReviewDecision
from toolsemble.review.pause import PauseReview
from toolsemble.review.request import ReviewRequest, digest
from toolsemble.toolbox.decided_calls import replace_all_reviewers, replace_reviewer
from toolsemble.toolbox.reviewer_check import check_pauses
from toolsemble.toolbox.toolbox import Toolbox


def make_pausable(box: Toolbox) -> Toolbox:
    """Return a toolbox whose gated calls raise :class:`~toolsemble.errors.CallPausedError` instead of asking.

    Raise ToolConfigurationError for a tool that asks where a run cannot be resumed, inside of a pipeline.
    """
    changed = replace_all_reviewers(box, PauseReview())
    check_pauses(changed, ToolContext(), nested=False)
    return changed


def bind_decision(box: Toolbox, request: ReviewRequest, decision: ReviewDecision) -> Toolbox:
    """Return a toolbox that gives a decision to the call of a request with its arguments, and to no other."""
    return replace_reviewer(box, {request.tool_name}, DecidedReview([(request, decision)]))


def show_request(request: ReviewRequest) -> dict[str, Any]:
    """Return a request as JSON values, with the fingerprint of what is shown.

    >>> show_request(ReviewRequest("Pays", "pay", {"order": 7}))["arguments"]
    {'order': 7}
    """
    return {**json.loads(request.to_json()), "fingerprint": fingerprint_of(request)}


def fingerprint_of(request: ReviewRequest) -> str:
    """Return a digest of all that a decision is about: the call, its arguments, the tool, and the remark to the person.

    >>> one, other = (ReviewRequest("Pays", "pay", {"order": order}) for order in (7, 8))
    >>> fingerprint_of(one) == fingerprint_of(other)
    False
    """
    names = ("run_id", "call_id", "tool_name", "arguments_digest", "schema_digest", "prompt")
    return digest([getattr(request, name) for name in names])


def read_decision(value: Any) -> ReviewDecision:
    """Return the decision for what a person answered: a decision, or its JSON form; anything else is a rejection.

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
