"""Results and records of steps as JSON values for a journal, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from toolsemble._engine.execution.edits import EditedArguments
from toolsemble._schema.shape import to_json_value
from toolsemble._vocabulary.result import ToolResult
from toolsemble._vocabulary.serialization import read_content, read_error_kind, write_content


class StepRecord(NamedTuple):
    """The record of one step of a pipeline.

    >>> StepRecord("search", "rome", ToolResult.success("3 hits"), 0.25).result.output
    '3 hits'
    """

    name: str
    """The name of the step's tool."""
    input: Any
    """The input of its body, or the handoff if that did not fit; None if it is not known."""
    result: ToolResult
    """Its result."""
    duration: float
    """The seconds that the work took, without the time of a reviewer."""


_TAG = "$toolsemble"


def write_recorded(result: ToolResult) -> dict[str, Any]:
    """Return a result as JSON values, for :func:`read_recorded`; objects of programs become what people are shown.

    >>> write_recorded(ToolResult.success("21 C"))
    {'output': '21 C'}
    """
    written: dict[str, Any] = {"output": result.output}
    if result.error_message is not None:
        written["error"] = result.error_message
        written["error_kind"] = result.error_kind
    if result.structured_output is not None:
        written["payload"] = _write(result.structured_output)
    if result.contents:
        written["contents"] = [write_content(content) for content in result.contents]
    if result.attributes:
        written["attributes"] = {name: _write(value) for name, value in result.attributes.items()}
    return written


def read_recorded(data: Mapping[str, Any]) -> ToolResult:
    """Return the result that :func:`write_recorded` wrote.

    >>> read_recorded({"output": "", "error": "no such city"})
    ToolResult.failure('no such city')
    """
    contents = tuple(map(read_content, data.get("contents", ())))
    attributes = MappingProxyType({name: _read(value) for name, value in data.get("attributes", {}).items()})
    kind = read_error_kind(data.get("error_kind"))
    return ToolResult(data["output"], data.get("error"), _read(data.get("payload")), contents, attributes, kind)


def _write(value: Any) -> Any:
    kind = type(value)
    if kind is dict and _TAG not in value and all(type(key) is str for key in value):
        return {key: _write(each) for key, each in value.items()}
    if kind is list:
        return [_write(each) for each in value]
    if kind is tuple:
        return {_TAG: "tuple", "items": [_write(each) for each in value]}
    if isinstance(value, ToolResult):
        return {_TAG: "result", **write_recorded(value)}
    if kind is EditedArguments:
        return {_TAG: "edited", "tool": value.tool_name, "values": dict(value)}
    if kind is StepRecord:
        return {_TAG: "step", "items": [_write(each) for each in value]}
    return to_json_value(value)


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(each) for each in value]
    if not isinstance(value, dict):
        return value
    read = _READERS.get(value.get(_TAG, ""))
    return {key: _read(each) for key, each in value.items()} if read is None else read(value)


_READERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "tuple": lambda value: tuple(map(_read, value["items"])),
    "result": read_recorded,
    "edited": lambda value: EditedArguments(value["tool"], value["values"]),
    "step": lambda value: StepRecord(*map(_read, value["items"])),
}
