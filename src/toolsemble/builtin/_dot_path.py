"""Dot paths such as ``users[1].name``, which select one value of a JSON document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from toolsemble._runtime.text import preview
from toolsemble._vocabulary.errors import ToolExecutionError

_TYPE_NAMES = {bool: "a boolean", str: "a string", int: "a number", float: "a number", type(None): "null"}
_SEGMENT = re.compile(
    r"""
    \[ \s* (?P<index>-?[0-9]{1,4000}) \s* \]
    | \[ \s* (?P<double>"(?:[^"\\]|\\.)*") \s* \]
    | \[ \s* '(?P<single>(?:[^'\\]|\\.)*)' \s* \]
    | (?P<dot>\.?) (?P<name>[^.\[\]]+)
    """,
    re.VERBOSE | re.DOTALL,
)
_KEYS_SHOWN = 20
_SHOWN = 80


def get_value(path: str, document: Any) -> Any:
    """Return the value at a path; raise if there is none, naming the keys that exist.

    >>> document = {"users": [{"name": "Ada"}, {"name": "Bob", "e.mail": "bob@example.org"}]}
    >>> get_value("users[1].name", document), get_value('users[-1]["e.mail"]', document)
    ('Bob', 'bob@example.org')
    >>> get_value("users[0].age", document)
    Traceback (most recent call last):
    ...
    toolsemble.ToolExecutionError: Path not found: 'age'. Keys there: name
    """
    value = document
    for segment in _parse_path(path):
        value = _get_item(value, segment) if isinstance(segment, int) else _get_member(value, segment)
    return value


def _parse_path(path: str) -> Iterator[str | int]:
    """Return the keys and indices of a path, after checking all of it."""
    position, found = 0, []
    while position < len(path):
        match = _SEGMENT.match(path, position)
        if match is None or (match["name"] is not None and bool(match["dot"]) is (position == 0)):
            raise ToolExecutionError(
                f"Invalid path: {path!r:.200} at position {position}; write keys with dots, indices as [0] "
                'and other keys as ["a.b"]'
            )
        found.append(_parse_segment(match))
        position = match.end()
    return iter(found)


def _parse_segment(match: re.Match[str]) -> str | int:
    if match["name"] is not None:
        return match["name"]
    if match["index"] is not None:
        return int(match["index"])
    if match["single"] is not None:
        return re.sub(r"\\(.)", r"\1", match["single"], flags=re.DOTALL)
    try:
        return str(json.loads(match["double"], strict=False))
    except ValueError as problem:
        raise ToolExecutionError(f"Invalid path: the key {match['double']:.80}: {problem}") from None


def _get_item(value: Any, index: int) -> Any:
    if not isinstance(value, list):
        raise ToolExecutionError(f"Path not found: '[{_format_index(index)}]'. {_describe(value)}")
    if not -len(value) <= index < len(value):
        raise ToolExecutionError(
            f"Array index out of bounds: index {_format_index(index)} is out of bounds for array of size {len(value)}"
        )
    return value[index]


def _format_index(index: int) -> str:
    return preview(str(index), _SHOWN)


def _get_member(value: Any, key: str) -> Any:
    if isinstance(value, dict) and key in value:
        return value[key]
    raise ToolExecutionError(f"Path not found: '{key:.{_SHOWN}}'. {_describe(value)}")


def _describe(value: Any) -> str:
    if isinstance(value, list):
        return f"There is an array of size {len(value)}; write an index such as [0]"
    if not isinstance(value, dict):
        return f"There is {_TYPE_NAMES[type(value)]}, which has no parts"
    shown = [f"{key:.{_SHOWN}}" for key, _ in zip(value, range(_KEYS_SHOWN), strict=False)]
    more = f" and {len(value) - len(shown)} more" if len(value) > len(shown) else ""
    return f"Keys there: {', '.join(shown)}{more}" if shown else "The object there is empty"
