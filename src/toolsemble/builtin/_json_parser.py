"""``json_parser``: a tool that reads values from a JSON document by dot path or JSONPath."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn

from pydantic import Field

from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.text import preview
from toolsemble._tools.typed import TypedTool
from toolsemble._vocabulary.errors import ToolExecutionError
from toolsemble._vocabulary.result import ToolResult
from toolsemble._vocabulary.serialization import compact_json

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


TIMEOUT = 5.0
"""The default time limit of a JSONPath query, in seconds."""

_MAX_DIGITS = 4000  # below the limit of Python's conversions between int and str


@dataclass(frozen=True, slots=True)
class JsonParserInput:
    """The arguments of ``json_parser``.

    >>> JsonParserInput("users[0].name", '{"users": []}').json_path
    'users[0].name'
    """

    json_path: Annotated[
        str,
        Field(
            description="A dot path to one value, such as 'users[1].name', 'items[-1]' or 'headers[\"a.b\"]'; or, "
            "beginning with $, an RFC 9535 JSONPath query for all values it selects, such as '$..book[?@.price < 10]'"
        ),
    ]
    """A dot path, or a JSONPath query when it begins with ``$``."""
    json: Annotated[str, Field(description="The JSON text itself, not the name of a file")]
    """The document."""


class JsonParserTool(TypedTool[JsonParserInput]):
    r"""A tool that reads JSON: one value by a dot path, or all values of a JSONPath query, which begins with ``$``.

    A dot path returns a string unchanged and any other value as compact JSON; a query returns a list of values, which
    may be empty. The structured output is the value, or the list. It needs ``toolsemble[json]``.

    >>> parse = JsonParserTool()
    >>> parse.execute('{"json_path": "user.name", "json": "{\\"user\\": {\\"name\\": \\"Ada\\"}}"}').output
    'Ada'
    >>> parse.execute('{"json_path": "$[?@ > 1]", "json": "[1, 2, 3]"}').output
    '[2,3]'
    """

    name = "json_parser"
    description = (
        "Takes a value out of JSON text, not out of a file. Use a dot path (users[1].name) for one value, or a "
        "JSONPath query that begins with $ ($.users[?@.age > 30].name) for a list of all values that it selects."
    )

    def __init__(self, *, timeout: float = TIMEOUT, name: str | None = None, description: str | None = None) -> None:
        """Check that the extra is installed.

        :param timeout: the time limit of a JSONPath query, in seconds
        :param name: another name for the model
        :param description: another description for the model
        """
        self._set_names(name, description)
        import_extra("jsonpath_rfc9535", extra="json", user="JsonParserTool")
        self._timeout = timeout

    def run(self, input: JsonParserInput) -> ToolResult:
        """Return the value of a dot path, or the values of a query."""
        document = _parse_document(input.json)
        if input.json_path.startswith("$"):
            return self._run_query(input.json_path, document)
        value = get_value(input.json_path, document)
        return ToolResult.success(value if isinstance(value, str) else compact_json(value), value)

    def _run_query(self, query: str, document: Any) -> ToolResult:
        from toolsemble.builtin._jsonpath import QueryError, select

        try:
            values = select(query, document, self._timeout)
        except QueryError as problem:
            raise ToolExecutionError(f"Invalid JSONPath: {problem}") from None
        return ToolResult.success(compact_json(values), values)


def _parse_document(text: str) -> Any:
    try:
        return json.loads(
            text.removeprefix("\ufeff"), parse_float=_parse_float, parse_int=_parse_int, parse_constant=_reject_constant
        )
    except ValueError as problem:
        raise ToolExecutionError(f"Invalid JSON: {problem}") from None
    except RecursionError:
        raise ToolExecutionError("Invalid JSON: it is nested too deeply") from None


def _parse_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text:.80} is too large")
    return number


def _parse_int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"the number {text:.20}... has more than {_MAX_DIGITS} digits")
    return int(text)


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON value")
