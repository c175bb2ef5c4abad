"""What tools declare to give, and what is so declared by tools that are made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Union, get_args

from toolsemble.definition.definition import ToolDefinition
from toolsemble.result import AudioContent, FileContent, ImageContent, TextContent, ToolResult

_OPAQUE = (ToolResult, TextContent, ImageContent, AudioContent, FileContent)


def opaque(kind: Any) -> bool:
    """Whether a type tells nothing of what is handed on: results, and contents, which travel beside the text.

    >>> opaque(ToolResult | None), opaque(int)
    (True, False)
    """
    return any(kind is each for each in _OPAQUE) or any(map(opaque, get_args(kind)))


def given_by(part: ToolDefinition, *, surely: bool = True) -> Any:
    """Give the type of what one of several parts hands on: where it may fail, also its message.

    >>> from toolsemble.definition.definition import string_definition
    >>> given_by(string_definition("count", "", len, returns=lambda: int), surely=False)
    typing.Union[int, str]
    """
    kind = part.returns()
    if kind is Any or kind is object or opaque(kind):
        return Any
    if kind is None or kind is type(None):
        return str  # the empty text
    return kind if surely else Union[kind, str]  # noqa: UP007 - the type is only known here


def either(first: ToolDefinition, second: ToolDefinition) -> Any:
    """Give the type of what one of two parts hands on.

    >>> from toolsemble.definition.definition import string_definition
    >>> count = string_definition("count", "", len, returns=lambda: int)
    >>> either(count, count)
    <class 'int'>
    """
    kinds = given_by(first), given_by(second)
    return Any if Any in kinds else Union[kinds]  # noqa: UP007 - as above


def named(kinds: Mapping[str, Any]) -> Any:
    """Give the type of a dict with these keys.

    >>> sorted(named({"a": int, "b": str}).__annotations__)
    ['a', 'b']
    """
    return TypedDict("Results", dict(kinds))  # type: ignore[operator]  # the keys are only known here
