"""Parameters of a tool that a client repeats in headers, as ``x-mcp-header`` in a schema says."""

from __future__ import annotations

from typing import Any

_HEADER = "x-mcp-header"


def names_header(schema: Any) -> bool:
    """Return whether a schema names a header anywhere; not by recursion, which a server could make too deep.

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
