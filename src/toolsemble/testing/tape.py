"""Calls and their results as JSON, in a file that people can read and edit."""

from __future__ import annotations

import base64
import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolsemble.call import ToolCall
from toolsemble.errors import ToolConfigurationError
from toolsemble.result import AudioContent, Content, FileContent, ImageContent, TextContent, ToolResult
from toolsemble.schema.display import HIDDEN, presented
from toolsemble.serialization import read_typed_content, type_name

VERSION = 1
"""The form of the file."""


@dataclass(frozen=True, slots=True)
class Track:
    """One call, and what came of it.

    >>> Track("weather", {"city": "Rome"}, ToolResult.success("sunny")).fits(ToolCall("weather", {"city": "Rome"}))
    True
    """

    tool: str
    """The tool that was called."""
    arguments: Any
    """Its arguments, with secrets hidden; as text where they were no JSON object."""
    result: ToolResult
    """What came of it, with secrets hidden."""
    converted: Mapping[str, str] = field(default_factory=dict)
    """What JSON cannot hold as it was, and of what type that was."""

    @property
    def call(self) -> ToolCall:
        """The call, as far as it is not secret."""
        return ToolCall(self.tool, self.arguments)

    @property
    def has_secrets(self) -> bool:
        """Whether something in the arguments is hidden."""
        return HIDDEN in self.call.json

    def fits(self, call: ToolCall) -> bool:
        """Whether a call is this one; a secret may be any value."""
        return self.tool == call.name and _alike(self.arguments, read_arguments(call))

    def written(self) -> dict[str, Any]:
        """Give the track as JSON values."""
        said: dict[str, Any] = {"tool": self.tool, "arguments": self.arguments}
        result = self.result
        said |= {"output": result.output} if result.is_success else {"error": result.error_message}
        if result.structured_output is not None:
            said["structured_output"] = result.structured_output
        if result.contents:
            said["contents"] = [_written_content(each) for each in result.contents]
        if result.attributes:
            said["attributes"] = dict(result.attributes)
        return said | ({"converted": dict(self.converted)} if self.converted else {})


def track_of(tool: str, arguments: Any, result: ToolResult) -> Track:
    """Give the track of a call: what JSON cannot hold is kept as people would be shown it.

    >>> track_of("now", {}, ToolResult.success("noon", {12, 0})).converted
    {'structured_output': 'set'}
    """
    converted: dict[str, str] = {}
    payload = _kept("structured_output", result.structured_output, converted)
    attributes = {key: _kept(f"attributes.{key}", each, converted) for key, each in result.attributes.items()}
    contents = [_kept_content(index, each, converted) for index, each in enumerate(result.contents)]
    kept = ToolResult(result.output, result.error_message, payload, tuple(contents), attributes)
    return Track(tool, arguments, kept, converted)


def read_arguments(call: ToolCall) -> Any:
    """Give the arguments of a call as a dict; as text where they are no JSON object.

    >>> read_arguments(ToolCall("add", '{"a": 1}')), read_arguments(ToolCall("add", "{'a'"))
    ({'a': 1}, "{'a'")
    """
    try:
        said = json.loads(call.json)
    except (ValueError, RecursionError):
        return call.json
    return said if isinstance(said, dict) else call.json


def read_tape(path: Path) -> list[Track]:
    """Give the tracks of a file; refuse a file that is no cassette."""
    try:
        return _read_tracks(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ToolConfigurationError(
            f"There is no cassette '{path}'; record it with Cassette(path, mode='record')"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise ToolConfigurationError(
            f"The cassette '{path}' cannot be read ({type(problem).__name__}: {problem}); mend it, or record it with "
            "Cassette(path, mode='record')"
        ) from problem


def write_tape(path: Path, tracks: Iterable[Track]) -> None:
    """Write the file whole: whoever reads it finds the old one or the new one."""
    said = {"cassette": VERSION, "calls": [track.written() for track in tracks]}
    try:
        data = json.dumps(said, ensure_ascii=False, indent=2).encode()
    except UnicodeEncodeError:  # half a surrogate pair, which only ASCII can spell
        data = json.dumps(said, indent=2).encode()
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


def _alike(kept: Any, given: Any) -> bool:
    if isinstance(kept, str) and HIDDEN in kept:
        shown = given if isinstance(given, str) else json.dumps(given)
        pattern = ".*".join(map(re.escape, kept.split(HIDDEN)))
        return re.fullmatch(pattern, shown, re.DOTALL) is not None
    if isinstance(kept, dict) and isinstance(given, dict):
        return kept.keys() == given.keys() and all(_alike(each, given[key]) for key, each in kept.items())
    if isinstance(kept, list) and isinstance(given, list):
        return len(kept) == len(given) and all(map(_alike, kept, given))
    # True is 1 for Python, and not for JSON.
    return kept == given and isinstance(kept, bool) == isinstance(given, bool)


def _kept(place: str, value: Any, converted: dict[str, str]) -> Any:
    """Give a value as JSON holds it; take down where it is not the same any more."""
    try:
        said = json.loads(json.dumps(value, allow_nan=False))
        if said == _listed(value):
            return said
    except (TypeError, ValueError, RecursionError):
        pass
    converted[place] = type(value).__name__
    try:
        shown = presented(value)
        return json.loads(json.dumps(shown, allow_nan=False))
    except Exception:  # noqa: BLE001 - an object of somebody's own can raise anything; the rest is still worth keeping
        return repr(value)


def _listed(value: Any) -> Any:
    """Give a value with lists in place of tuples, which JSON cannot tell apart."""
    if isinstance(value, dict):
        return {key: _listed(each) for key, each in value.items()}
    return [_listed(each) for each in value] if isinstance(value, (list, tuple)) else value


def _kept_content(index: int, content: Any, converted: dict[str, str]) -> Content:
    if isinstance(content, (TextContent, ImageContent, AudioContent, FileContent)):
        return content
    converted[f"contents[{index}]"] = type(content).__name__
    return TextContent(repr(content))


def _written_content(content: Content) -> dict[str, Any]:
    kind = type_name(content)
    if isinstance(content, TextContent):
        return {"type": kind, "text": content.text}
    named = {"name": content.name} if isinstance(content, FileContent) else {}
    return {"type": kind, **named, "mime_type": content.mime_type, "data": base64.b64encode(content.data).decode()}


def _read_tracks(said: dict[str, Any]) -> list[Track]:
    if said["cassette"] != VERSION:
        raise ValueError(f"it is of form {said['cassette']!r:.20}, and only {VERSION} is known")
    return [_read_track(each) for each in said["calls"]]


def _read_track(said: dict[str, Any]) -> Track:
    contents = tuple(read_typed_content(each) for each in said.get("contents", ()))
    payload, attributes = said.get("structured_output"), said.get("attributes", {})
    if "error" in said:
        result = ToolResult.failure(said["error"], structured_output=payload, attributes=attributes)
    else:
        result = ToolResult.success(said["output"], payload, contents=contents, attributes=attributes)
    track = Track(said["tool"], said["arguments"], result, said.get("converted", {}))
    _ = track.call  # refuses a name or arguments that no call can have
    return track
