"""Record which arguments a reviewer changed, and report it to the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from toolsemble._engine.definition import ToolDefinition
from toolsemble._runtime.text import preview
from toolsemble._schema.masking import mask_value
from toolsemble._vocabulary.result import ToolResult
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.review._request import digest

_SHOWN = 2000


class EditedArguments(dict[str, Any]):
    """The arguments of a call after a reviewer changed them, as JSON values with secrets masked.

    A separate type, so that a tool's attribute of the same name is not mistaken for an edit.

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
    """Return the note for a model about the arguments that reviewers changed, in a call and its parts; "" for none.

    >>> print(describe_edits(ToolResult.success("paid", attributes={"edited": EditedArguments("pay", {"amount": 5})})))
    Note: a reviewer changed the arguments of 'pay' to {"amount":5}
    """
    notes = [
        f"Note: a reviewer changed the arguments of '{edited.tool_name}' to {preview(compact_json(edited), _SHOWN)}"
        for edited in find_edits(result)
    ]
    # By text: a step's edit is also its pipeline's, and is a different object in a result from a journal.
    return "\n".join(dict.fromkeys(notes))


def find_edits(result: ToolResult) -> Iterator[EditedArguments]:
    """Yield the edits of a call and of its steps, branches and items; some more than once."""
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
    """Yield the edits of branches or items; a payload of other values is not searched, because it may be large."""
    parts = payload.values() if type(payload) is dict else payload if type(payload) in (list, tuple) else ()
    if isinstance(next(iter(parts), None), ToolResult):
        for part in parts:
            if isinstance(part, ToolResult):
                yield from find_edits(part)
