"""Edits: the arguments that a reviewer wrote, read strictly, without repairs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolsemble.definition.definition import ToolDefinition
from toolsemble.errors import ToolArgumentsError
from toolsemble.masking.secrets import mask_value
from toolsemble.review.request import digest


def apply_edit(definition: ToolDefinition, value: Any, given: Any, revised: str, steps: frozenset[str]) -> Any:
    """Return the input after an edit; raise ToolArgumentsError for an edit that does not fit.

    :param value: the input that the edit replaces
    :param given: what the model sent; it was read with the repair steps in ``steps``
    """
    shown = mask_value(definition.present(value))
    if definition.editable:
        return _replace_field(definition, value, given, revised, steps)
    if not isinstance(shown, dict):
        return value if revised == shown else definition.accept(revised, frozenset())[0]
    if not revised.strip():
        raise ToolArgumentsError("it is empty; write all arguments as a JSON object")
    exact, written = definition.present(value, reveal=True), _parse_object(revised)
    # Values that were masked for the reviewer, and not edited, keep their real value.
    kept = {key: exact[key] for key in shown if exact[key] != shown[key] and (written or {}).get(key) == shown[key]}
    return definition.accept({**(written or {}), **kept} if kept else revised, frozenset())[0]


def matches_edit(definition: ToolDefinition, revised: str, edited: Any) -> bool:
    """Return whether the input equals what the reviewer wrote: a validator may have changed it."""
    shown = definition.present(edited)
    if definition.editable:
        return bool(shown[definition.editable] == revised)
    if not isinstance(shown, dict):
        return bool(shown == revised)
    exact, written = definition.present(edited, reveal=True), _parse_object(revised) or {}
    return all(digest(each) in (digest(shown.get(key)), digest(exact.get(key))) for key, each in written.items())


def _replace_field(definition: ToolDefinition, value: Any, given: Any, text: str, steps: frozenset[str]) -> Any:
    """Return the input with the one editable field replaced, and all other fields unchanged."""
    exact = definition.present(value, reveal=True)
    # Read again from what the model sent: a validator would change its own output a second time.
    # A pipeline step was handed values instead of arguments; there, only the read arguments exist.
    sent = _parse_object(given) if isinstance(given, str) else given
    base = sent if sent and isinstance(sent, Mapping) else exact
    edited = definition.accept({**base, definition.editable: text}, steps)[0]
    now = definition.present(edited, reveal=True)
    if digest({**now, definition.editable: ""}) != digest({**exact, definition.editable: ""}):
        raise ToolArgumentsError("with it, other arguments would change, too; refuse the call instead")
    return edited


def _parse_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object in a text, or None; raise ToolArgumentsError for a duplicate key."""
    try:
        value = json.loads(text, object_pairs_hook=_refuse_duplicates)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ToolArgumentsError(f"the key {twice!r} is there twice")
    return found
