"""Recording and replay of the results of tools, in a JSON file that people can read and edit."""

from __future__ import annotations

import difflib
import json
import logging
import os
import re
import tempfile
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from toolsemble._engine.context import ToolContext
from toolsemble._runtime.text import HIDDEN, preview
from toolsemble._schema.display import to_display_or_repr
from toolsemble._schema.masking import add_secrets, mask_result, mask_value, start_masking, stop_masking
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError
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
    """The paths that JSON cannot represent exactly, and their types."""

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


LOGGER = logging.getLogger("toolsemble.testing")
LOGGER.addHandler(logging.NullHandler())  # a program that has not set up logging gets nothing printed

Mode = Literal["once", "record", "replay"]

_MAX_SHOWN = 200  # maximum characters of arguments in messages and comparisons


class _OpenCall(NamedTuple):
    """A call that is being recorded."""

    call: ToolCall
    place: tuple[str, str]  # the ids of the run and the call


class Cassette:
    """A recording of the results of a box's tools; during replay no tool runs and no reviewer is asked.

    Calls are matched by tool and arguments, regardless of the order of keys; the second of two equal calls gets the
    second result. Secrets are masked in the file, and a masked value matches any other. A call that was not recorded
    raises a :class:`~toolsemble.ToolConfigurationError`, which reaches the test.

    >>> import tempfile
    >>> from toolsemble import tool
    >>> @tool
    ... def roll() -> int:
    ...     return __import__("random").randrange(1_000_000)
    >>> path = Path(tempfile.mkdtemp()) / "dice.json"
    >>> first = Cassette(path).around(Toolbox([roll])).execute(ToolCall("roll"))
    >>> again = Cassette(path).around(Toolbox([roll])).execute(ToolCall("roll"))
    >>> first.result == again.result
    True
    """

    def __init__(self, path: str | os.PathLike[str], mode: Mode = "once", *, hide: Iterable[str] = ()) -> None:
        """Set the path and the mode; read the file if it is replayed.

        :param path: a JSON file, written after each recorded call; for one process at a time
        :param mode: ``"once"`` replays the file if it exists and records it otherwise, ``"record"`` always records,
            ``"replay"`` always replays
        :param hide: texts to mask in the file, such as a key that a result repeats; ``Secret`` parameters are masked
            anyway
        """
        if mode not in get_args(Mode):
            raise ToolDefinitionError(f"Cassette mode must be one of {', '.join(get_args(Mode))}, not {mode!r:.80}")
        self._path = Path(path)
        self._is_replaying = mode == "replay" or (mode == "once" and self._path.exists())
        self._hide = [hide] if isinstance(hide, str) else list(hide)
        self._lock = threading.RLock()
        self._calls = read_cassette(self._path) if self._is_replaying else []
        self._by_arguments: dict[tuple[str, str], list[int]] = {}
        for index, recorded in enumerate(self._calls):
            self._by_arguments.setdefault((recorded.tool, recorded.call.canonical), []).append(index)
        self._with_secrets = [index for index, recorded in enumerate(self._calls) if recorded.has_secrets]
        self._played: set[int] = set()
        self._open: dict[int, _OpenCall] = {}

    @property
    def is_playing(self) -> bool:
        """Whether calls are replayed; otherwise they are recorded."""
        return self._is_replaying

    @property
    def unplayed(self) -> list[ToolCall]:
        """The recorded calls that were not made, in order; empty while recording."""
        with self._lock:
            left = [each for index, each in enumerate(self._calls) if self._is_replaying and index not in self._played]
        return [each.call for each in left]

    @property
    def converted(self) -> list[str]:
        """The paths of results that JSON cannot represent exactly, and that are replayed in JSON form.

        >>> Cassette("there_is_none.json").converted
        []
        """
        with self._lock:
            found = [(recorded, place, kind) for recorded in self._calls for place, kind in recorded.converted.items()]
        return [f"{recorded.tool}: {place} ({kind})" for recorded, place, kind in found]

    def around(self, box: Toolbox) -> Toolbox:
        """Return a box of the same tools whose calls are recorded or replayed, outside the box's hooks."""
        return box.around(before_call=self.before_call, after_call=self.after_call)

    def before_call(self, call: ToolCall, context: ToolContext) -> ToolResult | None:
        """Return the recorded result during replay: a hook for a :class:`~toolsemble.Toolbox`."""
        with self._lock:
            if self._is_replaying:
                return self._replay(call)
            self._open[id(context)] = _OpenCall(call, (context.run_id, context.call_id))
        return None

    def after_call(self, call: ToolCall, result: ToolResult, context: ToolContext) -> None:
        """Record the result: the other hook."""
        with self._lock:
            opened = self._open.pop(id(context), None)
            around = (context.run_id, context.parent_id)
            # Sub-calls are not recorded: the enclosing call has the result.
            if opened is None or any(each.place == around for each in self._open.values()):
                return
            recorded = self._record(opened.call, result)
            self._calls.append(recorded)
            write_cassette(self._path, self._calls)
        for place, kind in recorded.converted.items():
            LOGGER.warning("The cassette '%s' has %s of %s (%s) as JSON only", self._path, place, recorded.tool, kind)

    def _record(self, call: ToolCall, result: ToolResult) -> RecordedCall:
        token = start_masking()
        try:
            add_secrets(self._hide)
            return record_call(call.name, mask_value(read_arguments(call)), mask_result(result))
        finally:
            stop_masking(token)

    def _replay(self, call: ToolCall) -> ToolResult:
        matching = list(self._by_arguments.get((call.name, call.canonical), ()))
        secret = (index for index in self._with_secrets if self._calls[index].matches(call))
        matching += [index for index in secret if index not in matching]
        for index in matching:
            if index not in self._played:
                self._played.add(index)
                return self._calls[index].result
        raise ToolConfigurationError(self._explain_missing(call, len(matching)))

    def _explain_missing(self, call: ToolCall, times: int) -> str:
        shown = _show(call.name, self._mask(call))
        again = "record it again with Cassette(path, mode='record')"
        if times:
            known = "once" if times == 1 else f"{times} times"
            return f"The cassette '{self._path}' has {shown} {known}, and this is one more; {again}"
        nearest = self._find_nearest(call)
        hint = "it is empty" if nearest is None else f"the nearest is {_show(nearest.tool, nearest.arguments)}"
        return f"The cassette '{self._path}' has no {shown}; {hint}; {again}"

    def _find_nearest(self, call: ToolCall) -> RecordedCall | None:
        text = call.canonical[:_MAX_SHOWN]

        def near(recorded: RecordedCall) -> tuple[float, float]:
            other = recorded.call.canonical[:_MAX_SHOWN]
            names = difflib.SequenceMatcher(None, recorded.tool, call.name[:_MAX_SHOWN]).ratio()
            return names, difflib.SequenceMatcher(None, other, text).ratio()

        return max(self._calls, key=near, default=None)

    def _mask(self, call: ToolCall) -> Any:
        """Return a call's arguments, masked wherever another call's arguments are masked."""
        arguments = read_arguments(call)
        if not isinstance(arguments, dict):
            return arguments
        hidden = {
            key
            for recorded in self._calls
            if recorded.tool == call.name and isinstance(recorded.arguments, dict)
            for key, each in recorded.arguments.items()
            if HIDDEN in json.dumps(each)
        }
        return {key: HIDDEN if key in hidden else each for key, each in arguments.items()}


def _show(tool: str, arguments: Any) -> str:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f"{preview(tool, _MAX_SHOWN)}({preview(text, _MAX_SHOWN)})"
