"""Decide whether null at a path in the arguments means a missing value or a wrong one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from toolsemble._schema.pointer import find_ref_target
from toolsemble._schema.problem import Path


def is_missing(root: Mapping[str, Any], path: Path) -> bool:
    """Return whether null at a path means that a required value is missing; not for items, nor if null is allowed.

    >>> schema = {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
    >>> is_missing(schema, ("city",)), is_missing(schema, ("days",))
    (True, False)
    """
    *outer, last = path
    around = _expand(root, [root])
    for part in outer:
        around = _expand(root, _find_subschemas(around, part))
    required = any(last in schema.get("required", ()) for schema in around)
    return required and not any(map(_admits_null, _expand(root, _find_subschemas(around, last))))


def _expand(root: Mapping[str, Any], schemas: list[Any]) -> list[Mapping[str, Any]]:
    """Return the schemas with all schemas that they refer to or choose from, each once."""
    found: dict[int, Mapping[str, Any]] = {}
    waiting = schemas
    while waiting:
        schema = waiting.pop()
        if isinstance(schema, Mapping) and id(schema) not in found:
            found[id(schema)] = schema
            waiting += [each for keyword in ("anyOf", "oneOf", "allOf") for each in schema.get(keyword, ())]
            waiting += [find_ref_target(root, schema["$ref"])] if "$ref" in schema else []
    return list(found.values())


def _find_subschemas(schemas: Iterable[Mapping[str, Any]], part: str | int) -> list[Any]:
    """Return the schemas of one key or item."""
    if isinstance(part, int):
        return [schema.get("items") for schema in schemas]
    return [schema.get("properties", {}).get(part, schema.get("additionalProperties")) for schema in schemas]


def _admits_null(schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("type", ())
    return kinds == "null" or (not isinstance(kinds, str) and "null" in kinds)
