"""``json_parser``: values out of a JSON document, by dot path or JSONPath."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn

from pydantic import Field

from toolsemble.builtin.dot_path import value_at
from toolsemble.errors import ToolExecutionError
from toolsemble.result import ToolResult
from toolsemble.runtime.extras import import_extra
from toolsemble.tools.typed import TypedTool

TIMEOUT = 5.0
"""How many seconds a JSONPath query may take, unless the tool is told otherwise."""

_DIGITS = 4000  # Python refuses to read and write much longer ones


@dataclass(frozen=True, slots=True)
class JsonParserInput:
    """Where to look, and in what.

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
    r"""Gets values out of JSON: one by a dot path, all that a JSONPath query selects when the path begins with ``$``.

    A dot path gives strings as they are and everything else as compact JSON; a query gives a list of values, which
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

    def __init__(self, *, timeout: float = TIMEOUT) -> None:
        """Make sure that queries can be answered.

        :param timeout: how many seconds a JSONPath query may take
        """
        import_extra("jsonpath_rfc9535", extra="json", user="JsonParserTool")
        self._timeout = timeout

    def run(self, input: JsonParserInput) -> ToolResult:
        """Give the value, or the values."""
        document = _document(input.json)
        if input.json_path.startswith("$"):
            return self._selected(input.json_path, document)
        value = value_at(input.json_path, document)
        return ToolResult.success(value if isinstance(value, str) else _compact(value), value)

    def _selected(self, query: str, document: Any) -> ToolResult:
        from toolsemble.builtin.jsonpath import QueryError, found  # noqa: PLC0415 - dot paths never pay for it

        try:
            values = found(query, document, self._timeout)
        except QueryError as problem:
            raise ToolExecutionError(f"Invalid JSONPath: {problem}") from None
        return ToolResult.success(_compact(values), values)


def _document(text: str) -> Any:
    try:
        return json.loads(text.removeprefix("\ufeff"), parse_float=_float, parse_int=_int, parse_constant=_refuse)
    except ValueError as problem:
        raise ToolExecutionError(f"Invalid JSON: {problem}") from None
    except RecursionError:
        raise ToolExecutionError("Invalid JSON: it is nested too deeply") from None


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text:.80} is too large")
    return number


def _int(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"the number {text:.20}... has more than {_DIGITS} digits")
    return int(text)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON value")


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
