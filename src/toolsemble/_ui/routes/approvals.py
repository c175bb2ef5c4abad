"""Endpoints of the review store: pending requests, forms, answers, and the audit."""

from __future__ import annotations

from typing import Any

from toolsemble._ui.endpoint import Asked, RefusedError, changes, expand_or_refuse, reads
from toolsemble._ui.forms import build_request_form, write_edit
from toolsemble._ui.interface import Interface
from toolsemble._ui.people import Person
from toolsemble.review._request import Continue, Edit, ExitEarly, ReviewDecision, ReviewRequest
from toolsemble.review._store.store import ReviewStore


def list_approvals(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return the pending requests, oldest first, without forms."""
    store = interface.folder.reviews()
    if store is None:
        return {"requests": [], "exists": False}
    return {"requests": [_describe(each, asked.person) for each in store.pending()], "exists": True}


def show_approval(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return one request with its form and its outcome."""
    store, request = _find(interface, asked.text("id"))
    schema = store.schema(request.schema_digest)
    return {
        "request": _describe(request, asked.person),
        "form": build_request_form(request, schema),
        "has_schema": schema is not None,
        "audit": store.audit(request.id),
    }


def expand(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return the content of a recursive field."""
    store, request = _find(interface, asked.text("id"))
    return {"field": expand_or_refuse(store.schema(request.schema_digest) or {}, asked.text("place"))}


def answer(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Answer a request as the signed-in person, and return the receipt; the store decides on validity."""
    store, request = _find(interface, asked.take("id", str, ""))
    if not asked.person.may_answer(request.required_role):
        raise RefusedError(
            403, f"The request requires the role '{request.required_role}', which '{asked.person.name}' does not have"
        )
    receipt = store.answer(
        request,
        _read_decision(request, asked),
        person=asked.person.name,
        role=request.required_role or "",
        arguments_digest=asked.take("arguments_digest", str, ""),
    )
    return {"decision": receipt.kind, "person": receipt.person, "expires_at": receipt.expires_at}


def list_audit(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return a page of the audit, newest first."""
    store = interface.folder.reviews()
    if store is None:
        return {"events": [], "more": False, "exists": False}
    limit = asked.number("limit", 100, 500)
    before = asked.number("before", 0) or None
    events = store.audit(asked.query.get("request") or None, before=before, limit=limit)
    return {"events": events, "more": len(events) == limit, "exists": True}


def _read_decision(request: ReviewRequest, asked: Asked) -> ReviewDecision:
    decision = asked.take("decision", str, "")
    if decision == "approve":
        always = asked.take("always", str, "") or None
        if always is not None and always not in request.scopes:
            raise RefusedError(400, f"This call can be approved for {', '.join(request.scopes) or 'once only'}")
        return Continue(always)
    if decision == "edit":
        form, text = asked.take("form", dict, {}), asked.take("text", str)
        revised = write_edit(request, form) if text is None else text
        return Continue() if revised is None else Edit(revised)
    if decision == "reject":
        return ExitEarly(asked.take("reason", str, ""))
    raise RefusedError(400, "'decision' must be 'approve', 'edit' or 'reject'")


def _describe(request: ReviewRequest, person: Person) -> dict[str, Any]:
    names = ("id", "tool_name", "description", "prompt", "required_role", "call_id", "run_id", "agent_role", "repairs",
             "editable", "scopes", "asked_at", "memory_id", "deadline", "arguments", "arguments_digest",
             "editable_text")  # fmt: skip
    values = {name: getattr(request, name) for name in names}
    return {
        **values,
        "is_question": request.timing.name == "DURING_EXECUTION",
        "has_secrets": bool(request.hidden_digest),
        "on_timeout": request.on_timeout.name,
        "may_answer": person.may_answer(request.required_role),
    }


def _find(interface: Interface, request_id: str) -> tuple[ReviewStore, ReviewRequest]:
    store = interface.folder.reviews()
    request = None if store is None else store.find(request_id)
    if store is None or request is None:
        raise RefusedError(404, f"The data folder has no request '{request_id:.80}'")
    return store, request


ROUTES = [
    reads("/api/approvals", list_approvals),
    reads("/api/approval", show_approval),
    reads("/api/approval/expand", expand),
    changes("/api/approval", answer),
    reads("/api/audit", list_audit),
]
