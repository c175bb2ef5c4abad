"""Resolve ``$ref`` inside a JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote


def resolve_schema(root: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema merged with the target of its ``$ref``; its own keywords take precedence.

    >>> resolve_schema({"$defs": {"a": {"type": "string"}}}, {"$ref": "#/$defs/a", "title": "A"})
    {'type': 'string', '$ref': '#/$defs/a', 'title': 'A'}
    """
    return {**find_ref_target(root, schema["$ref"]), **schema} if "$ref" in schema else schema


def find_ref_target(root: Mapping[str, Any], ref: str) -> Mapping[str, Any]:
    """Return the schema that a ``$ref`` in the same document refers to; empty if there is none.

    >>> find_ref_target({"$defs": {"a/b": {"type": "string"}}}, "#/$defs/a~1b")
    {'type': 'string'}
    """
    target: Any = root if ref.startswith("#") else {}
    ref = unquote(ref) if "%" in ref else ref
    for part in ref.removeprefix("#").split("/")[1:]:
        if isinstance(target, list) and part.isdecimal() and int(part) < len(target):
            target = target[int(part)]
        elif isinstance(target, Mapping):
            target = target.get(part.replace("~1", "/").replace("~0", "~"), {})
        else:
            return {}
    return target if isinstance(target, Mapping) else {}
