"""Tool parameters that a client also sends as headers, declared by ``x-mcp-header`` in a schema."""

from __future__ import annotations

from typing import Any

_HEADER = "x-mcp-header"


def names_header(schema: Any) -> bool:
    """Return whether a schema names a header anywhere; iteratively, because a server controls the depth.

    >>> names_header({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}})
    True
    >>> names_header({"type": "object"})
    False
    """
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if _HEADER in node:
                return True
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return False
