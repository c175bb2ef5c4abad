"""Edits: the arguments that a reviewer wrote, read strictly, without repairs; and what a model is told of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from toolsemble._engine.definition import ToolDefinition
from toolsemble._runtime.text import preview
from toolsemble._schema.masking import mask_value
from toolsemble._vocabulary.errors import ToolArgumentsError
from toolsemble._vocabulary.result import ToolResult
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.review._request import digest

_SHOWN = 2000


class EditedArguments(dict[str, Any]):
    """The arguments of a call after a reviewer changed them, as JSON values with secrets masked.

    A type of its own, so that an attribute of the same name that a tool sets is not taken for an edit.

    >>> EditedArguments("pay", {"amount": 5})["amount"]
    5
    """

    __slots__ = ("tool_name",)

    def __init__(self, tool_name: str, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.tool_name = tool_name

    def __reduce__(self) -> tuple[Any, ...]:
        return EditedArguments, (self.tool_name, dict(self))


def show_edit(definition: ToolDefinition, before: Any, after: Any) -> EditedArguments | None:
    """Return the arguments after an edit; None if they are the same as before."""
    if digest(definition.present(before, reveal=True)) == digest(definition.present(after, reveal=True)):
        return None
    shown = mask_value(definition.present(after))
    return EditedArguments(definition.name, shown if isinstance(shown, dict) else {"input": shown})


def describe_edits(result: ToolResult) -> str:
    """Return the note for a model about the arguments that reviewers changed, in a call and in its parts; "" for none.

    >>> print(describe_edits(ToolResult.success("paid", attributes={"edited": EditedArguments("pay", {"amount": 5})})))
    Note: a reviewer changed the arguments of 'pay' to {"amount":5}
    """
    notes = [
        f"Note: a reviewer changed the arguments of '{edited.tool_name}' to {preview(compact_json(edited), _SHOWN)}"
        for edited in find_edits(result)
    ]
    # By their text: the edit of a step is also that of its pipeline, and is another object in a result from a journal.
    return "\n".join(dict.fromkeys(notes))


def find_edits(result: ToolResult) -> Iterator[EditedArguments]:
    """Return the edits of a call: its own, and those of its steps, branches and items; some more than once."""
    own = result.attributes.get("edited")
    for edited in own if isinstance(own, tuple) else (own,):
        if isinstance(edited, EditedArguments):
            yield edited
    for key in ("steps", "undone"):
        records = result.attributes.get(key)
        for record in records if isinstance(records, tuple) else ():
            if isinstance(part := getattr(record, "result", None), ToolResult):
                yield from find_edits(part)
    yield from _find_edits_in_parts(result.structured_output)


def carry_edits(merged: ToolResult, results: Iterable[ToolResult]) -> ToolResult:
    """Return a result that was made of others, with their edits."""
    found = tuple(edited for result in results for edited in find_edits(result))
    attributes = MappingProxyType({**merged.attributes, "edited": found})
    return replace(merged, attributes=attributes) if found else merged


def _find_edits_in_parts(payload: Any) -> Iterator[EditedArguments]:
    """Return the edits of branches or items; a payload of other values is not searched, because it may be large."""
    parts = payload.values() if type(payload) is dict else payload if type(payload) in (list, tuple) else ()
    if isinstance(next(iter(parts), None), ToolResult):
        for part in parts:
            if isinstance(part, ToolResult):
                yield from find_edits(part)


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
    return all(
        _digest_meaning(each) in (_digest_meaning(shown.get(key)), _digest_meaning(exact.get(key)))
        for key, each in written.items()
    )


def _digest_meaning(value: Any) -> str:
    """Return a digest of a JSON value in which 2 and 2.0 are the same: a person who writes one means the other, too."""
    return digest(_unify_numbers(value))


def _unify_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _unify_numbers(each) for key, each in value.items()}
    return [_unify_numbers(each) for each in value] if isinstance(value, list) else value


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
