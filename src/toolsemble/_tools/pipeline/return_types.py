"""The declared return types of tools and of combined tools."""

from __future__ import annotations

from typing import Any

from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble._schema.shape import is_opaque


def return_type(part: ToolDefinition) -> Any:
    """Return the type that a part hands on.

    >>> from toolsemble._engine.definition.build import string_definition
    >>> return_type(string_definition("count", "", len, returns=lambda: int))
    <class 'int'>
    """
    kind = part.returns()
    if kind is Any or kind is object or is_opaque(kind):
        return Any
    if kind is None or kind is type(None):
        return str  # the empty text
    return kind
