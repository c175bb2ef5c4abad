"""What a reviewer wrote in place of a call's arguments, read strictly: what a person means is not guessed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolsemble.definition.definition import ToolDefinition
from toolsemble.errors import ToolArgumentsError
from toolsemble.masking.secrets import mask_value
from toolsemble.review.request import digest


def edited_input(definition: ToolDefinition, value: Any, given: Any, revised: str, steps: frozenset[str]) -> Any:
    """Give the input that an edit means; refuse one that does not fit.

    :param value: the input that the edit is to replace
    :param given: what that was read from, with the steps of repair that were allowed
    """
    shown = mask_value(definition.present(value))
    if definition.editable:
        return _with_field(definition, value, given, revised, steps)
    if not isinstance(shown, dict):
        return value if revised == shown else definition.accept(revised, frozenset())[0]
    if not revised.strip():
        raise ToolArgumentsError("it is empty; write all arguments as a JSON object")
    exact, written = definition.present(value, reveal=True), _object(revised)
    # What was hidden from the reviewer, and left as it was shown, stays as it was.
    kept = {key: exact[key] for key in shown if exact[key] != shown[key] and (written or {}).get(key) == shown[key]}
    return definition.accept({**(written or {}), **kept} if kept else revised, frozenset())[0]


def says(definition: ToolDefinition, revised: str, edited: Any) -> bool:
    """Whether the input is, word for word, what the reviewer wrote; a validator may make something else of it."""
    shown = definition.present(edited)
    if definition.editable:
        return bool(shown[definition.editable] == revised)
    if not isinstance(shown, dict):
        return bool(shown == revised)
    exact, written = definition.present(edited, reveal=True), _object(revised) or {}
    return all(digest(each) in (digest(shown.get(key)), digest(exact.get(key))) for key, each in written.items())


def _with_field(definition: ToolDefinition, value: Any, given: Any, text: str, steps: frozenset[str]) -> Any:
    """Give the input with another text in the one field that reviewers edit, and everything else as it was."""
    exact = definition.present(value, reveal=True)
    # Read anew from what the model sent: what a validator has changed once, it would change again.
    # A step of a pipeline was given values that are not its arguments yet; there, the arguments are all there is.
    sent = _object(given) if isinstance(given, str) else given
    base = sent if sent and isinstance(sent, Mapping) else exact
    edited = definition.accept({**base, definition.editable: text}, steps)[0]
    now = definition.present(edited, reveal=True)
    if digest({**now, definition.editable: ""}) != digest({**exact, definition.editable: ""}):
        raise ToolArgumentsError("with it, other arguments would change, too; refuse the call instead")
    return edited


def _object(text: str) -> dict[str, Any] | None:
    """Give the JSON object that a text is; None when it is none. A key that is there twice is refused."""
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ToolArgumentsError(f"the key {twice!r} is there twice")
    return found
