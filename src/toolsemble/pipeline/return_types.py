"""The declared return types of tools and of combined tools."""

from __future__ import annotations

from typing import Any, get_args

from toolsemble.definition.definition import ToolDefinition
from toolsemble.result import AudioContent, FileContent, ImageContent, TextContent, ToolResult

_OPAQUE = (ToolResult, TextContent, ImageContent, AudioContent, FileContent)


def is_opaque(kind: Any) -> bool:
    """Whether a type says nothing about the handoff: results, and contents, which are kept beside the text.

    >>> is_opaque(ToolResult | None), is_opaque(int)
    (True, False)
    """
    return any(kind is each for each in _OPAQUE) or any(map(is_opaque, get_args(kind)))


def return_type(part: ToolDefinition) -> Any:
    """Return the type that a part hands on.

    >>> from toolsemble.definition.build import string_definition
    >>> return_type(string_definition("count", "", len, returns=lambda: int))
    <class 'int'>
    """
    kind = part.returns()
    if kind is Any or kind is object or is_opaque(kind):
        return Any
    if kind is None or kind is type(None):
        return str  # the empty text
    return kind
