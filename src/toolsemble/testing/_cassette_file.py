"""The JSON file of a cassette, which people can read and edit."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolsemble._runtime.text import HIDDEN
from toolsemble._schema.display import to_display_or_repr
from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble._vocabulary.result import AudioContent, Content, FileContent, ImageContent, TextContent, ToolResult
from toolsemble._vocabulary.serialization import read_content, read_error_kind, write_content

VERSION = 1
"""The version of the file format."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A recorded call and its result.

    >>> RecordedCall("weather", {"city": "Rome"}, ToolResult.success("sunny")).call
    ToolCall('weather', {'city': 'Rome'}, id=None)
    """

    tool: str
    arguments: Any
    """Its arguments, with secrets masked; a str if they were not a JSON object."""
    result: ToolResult
    """Its result, with secrets masked."""
    converted: Mapping[str, str] = field(default_factory=dict)
    """The places that JSON cannot represent exactly, and their types."""

    @property
    def call(self) -> ToolCall:
        """The call, with secrets masked."""
        return ToolCall(self.tool, self.arguments)

    @property
    def has_secrets(self) -> bool:
        """Whether a part of the arguments is masked."""
        return HIDDEN in self.call.json

    def matches(self, call: ToolCall) -> bool:
        """Return whether a call equals this one; a masked secret equals any value."""
        return self.tool == call.name and _matches(self.arguments, read_arguments(call))

    def write(self) -> dict[str, Any]:
        """Return the call as JSON values."""
        values: dict[str, Any] = {"tool": self.tool, "arguments": self.arguments}
        result = self.result
        values |= {"output": result.output} if result.is_success else {"error": result.error_message}
        if result.error_kind not in (None, "execution"):
            values["error_kind"] = result.error_kind
        if result.structured_output is not None:
            values["structured_output"] = result.structured_output
        if result.contents:
            values["contents"] = [write_content(each) for each in result.contents]
        if result.attributes:
            values["attributes"] = dict(result.attributes)
        return values | ({"converted": dict(self.converted)} if self.converted else {})


def record_call(tool: str, arguments: Any, result: ToolResult) -> RecordedCall:
    """Return a recorded call; values that JSON cannot represent are converted to their display form.

    >>> record_call("now", {}, ToolResult.success("noon", {12, 0})).converted
    {'structured_output': 'set'}
    """
    converted: dict[str, str] = {}
    payload = _convert("structured_output", result.structured_output, converted)
    attributes = {key: _convert(f"attributes.{key}", each, converted) for key, each in result.attributes.items()}
    contents = [_convert_content(index, each, converted) for index, each in enumerate(result.contents)]
    recorded = ToolResult(result.output, result.error_message, payload, tuple(contents), attributes, result.error_kind)
    return RecordedCall(tool, arguments, recorded, converted)


def read_arguments(call: ToolCall) -> Any:
    """Return the arguments of a call as a dict, or as a str if they are not a JSON object.

    >>> read_arguments(ToolCall("add", '{"a": 1}')), read_arguments(ToolCall("add", "{'a'"))
    ({'a': 1}, "{'a'")
    """
    try:
        values = json.loads(call.json)
    except (ValueError, RecursionError):
        return call.json
    return values if isinstance(values, dict) else call.json


def read_cassette(path: Path) -> list[RecordedCall]:
    """Return the calls in a file; raise ``ToolConfigurationError`` if it is not a cassette."""
    try:
        return _read_calls(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ToolConfigurationError(
            f"There is no cassette '{path}'; record it with Cassette(path, mode='record')"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise ToolConfigurationError(
            f"The cassette '{path}' cannot be read ({type(problem).__name__}: {problem}); fix it, or record it with "
            "Cassette(path, mode='record')"
        ) from problem


def write_cassette(path: Path, calls: Iterable[RecordedCall]) -> None:
    """Replace the file atomically."""
    values = {"cassette": VERSION, "calls": [call.write() for call in calls]}
    try:
        data = json.dumps(values, ensure_ascii=False, indent=2).encode()
    except UnicodeEncodeError:  # a lone surrogate, which must be escaped
        data = json.dumps(values, indent=2).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    draft = Path(name)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data + b"\n")
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _matches(recorded: Any, given: Any) -> bool:
    if isinstance(recorded, str) and HIDDEN in recorded:
        shown = given if isinstance(given, str) else json.dumps(given)
        pattern = ".*".join(map(re.escape, recorded.split(HIDDEN)))
        return re.fullmatch(pattern, shown, re.DOTALL) is not None
    if isinstance(recorded, dict) and isinstance(given, dict):
        return recorded.keys() == given.keys() and all(_matches(each, given[key]) for key, each in recorded.items())
    if isinstance(recorded, list) and isinstance(given, list):
        return len(recorded) == len(given) and all(map(_matches, recorded, given))
    # In Python True equals 1, in JSON it does not.
    return recorded == given and isinstance(recorded, bool) == isinstance(given, bool)


def _convert(place: str, value: Any, converted: dict[str, str]) -> Any:
    """Return a value as JSON represents it; add the place to ``converted`` if that differs."""
    try:
        values = json.loads(json.dumps(value, allow_nan=False))
        if values == _tuples_to_lists(value):
            return values
    except (TypeError, ValueError, RecursionError):
        pass
    converted[place] = type(value).__name__
    return to_display_or_repr(value)


def _tuples_to_lists(value: Any) -> Any:
    """Return a value with tuples replaced by lists, as in JSON."""
    if isinstance(value, dict):
        return {key: _tuples_to_lists(each) for key, each in value.items()}
    return [_tuples_to_lists(each) for each in value] if isinstance(value, (list, tuple)) else value


def _convert_content(index: int, content: Any, converted: dict[str, str]) -> Content:
    if isinstance(content, (TextContent, ImageContent, AudioContent, FileContent)):
        return content
    converted[f"contents[{index}]"] = type(content).__name__
    return TextContent(repr(content))


def _read_calls(values: dict[str, Any]) -> list[RecordedCall]:
    if values["cassette"] != VERSION:
        raise ValueError(f"its version is {values['cassette']!r:.20}, only {VERSION} is supported")
    return [_read_call(each) for each in values["calls"]]


def _read_call(values: dict[str, Any]) -> RecordedCall:
    contents = tuple(read_content(each) for each in values.get("contents", ()))
    payload, attributes = values.get("structured_output"), values.get("attributes", {})
    if "error" in values:
        kind = read_error_kind(values.get("error_kind")) or "execution"
        result = ToolResult.failure(values["error"], structured_output=payload, attributes=attributes, error_kind=kind)
    else:
        result = ToolResult.success(values["output"], payload, contents=contents, attributes=attributes)
    call = RecordedCall(values["tool"], values["arguments"], result, values.get("converted", {}))
    _ = call.call  # raises for an invalid name or arguments
    return call
