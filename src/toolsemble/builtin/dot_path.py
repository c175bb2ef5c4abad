"""Dot paths: the short way to one value of a JSON document, such as ``users[1].name``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from toolsemble.errors import ToolExecutionError
from toolsemble.runtime.text import preview

_KINDS = {bool: "a boolean", str: "a string", int: "a number", float: "a number", type(None): "null"}
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


def value_at(path: str, document: Any) -> Any:
    """Give the value that a path leads to; refuse one that leads nowhere, with what there is.

    >>> document = {"users": [{"name": "Ada"}, {"name": "Bob", "e.mail": "bob@example.org"}]}
    >>> value_at("users[1].name", document), value_at('users[-1]["e.mail"]', document)
    ('Bob', 'bob@example.org')
    >>> value_at("users[0].age", document)
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolExecutionError: Path not found: 'age'. Keys there: name
    """
    value = document
    for segment in _segments(path):
        value = _item(value, segment) if isinstance(segment, int) else _member(value, segment)
    return value


def _segments(path: str) -> Iterator[str | int]:
    """Give the keys and indices of a path; all of it is checked before the first is used."""
    position, found = 0, []
    while position < len(path):
        match = _SEGMENT.match(path, position)
        if match is None or (match["name"] is not None and bool(match["dot"]) is (position == 0)):
            raise ToolExecutionError(
                f"Invalid path: {path!r:.200} at position {position}; write keys with dots, indices as [0] "
                'and other keys as ["a.b"]'
            )
        found.append(_segment(match))
        position = match.end()
    return iter(found)


def _segment(match: re.Match[str]) -> str | int:
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


def _item(value: Any, index: int) -> Any:
    if not isinstance(value, list):
        raise ToolExecutionError(f"Path not found: '[{_shown(index)}]'. {_described(value)}")
    if not -len(value) <= index < len(value):
        raise ToolExecutionError(
            f"Array index out of bounds: index {_shown(index)} is out of bounds for array of size {len(value)}"
        )
    return value[index]


def _shown(index: int) -> str:
    return preview(str(index), _SHOWN)


def _member(value: Any, key: str) -> Any:
    if isinstance(value, dict) and key in value:
        return value[key]
    raise ToolExecutionError(f"Path not found: '{key:.{_SHOWN}}'. {_described(value)}")


def _described(value: Any) -> str:
    if isinstance(value, list):
        return f"There is an array of size {len(value)}; write an index such as [0]"
    if not isinstance(value, dict):
        return f"There is {_KINDS[type(value)]}, which has no parts"
    shown = [f"{key:.{_SHOWN}}" for key, _ in zip(value, range(_KEYS_SHOWN), strict=False)]
    more = f" and {len(value) - len(shown)} more" if len(value) > len(shown) else ""
    return f"Keys there: {', '.join(shown)}{more}" if shown else "The object there is empty"
