"""The form of a call that waits for approval, and the edit that a reviewer made in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from toolsemble._ui.form_field import MISSING, Field
from toolsemble._ui.forms import build_form, read_form
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.review._request import ReviewRequest
from toolsemble.review._terms import ReviewTiming


def build_request_form(request: ReviewRequest, schema: Mapping[str, Any] | None) -> Field:
    """Return the form with the arguments of a waiting call; masked secrets stand for themselves.

    :param schema: the schema of the tool, as ``store.schema(request.schema_digest)`` returns it; None: unknown, so that
        the arguments are shown by their own types

    >>> request = ReviewRequest("Pays", "pay", {"order": 7})
    >>> form = build_request_form(request, {"properties": {"order": {"type": "integer"}}})
    >>> form.fields[0].kind, form.fields[0].text
    ('integer', '7')
    """
    if request.timing is ReviewTiming.DURING_EXECUTION or request.editable or isinstance(request.arguments, str):
        return replace(build_form({"type": "string"}, request.editable_text), label=request.editable)
    return build_form({} if schema is None else schema, request.arguments, keep_hidden=True)


def write_edit(request: ReviewRequest, form: Field | Mapping[str, Any]) -> str | None:
    """Return the text for :class:`~toolsemble.review.Edit`; None if nothing was changed, so that it is an approval.

    Raise ``ValueError`` for what is not a form.

    >>> request = ReviewRequest("Pays", "pay", {"order": 7})
    >>> form = build_request_form(request, {"properties": {"order": {"type": "integer"}}})
    >>> print(write_edit(request, form))
    None
    """
    value = read_form(form)
    if value is MISSING:
        raise ValueError("the form has no arguments; reject the call instead")
    if isinstance(value, str):
        return None if value == request.editable_text else value
    same = compact_json(value, sort_keys=True) == compact_json(request.arguments, sort_keys=True, default=str)
    return None if same else compact_json(value)
