"""The form in which schemas are compared: without the order of what has no order."""

from __future__ import annotations

from typing import Any

from toolsemble._runtime.signing import canonical_json

NAMED = {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
"""The keywords that hold schemas by name."""
LISTED = {"allOf", "anyOf", "oneOf", "prefixItems"}
"""The keywords that hold a list of schemas."""
SINGLE = {
    "additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
}  # fmt: skip
"""The keywords that hold one schema."""
UNORDERED = {"allOf", "anyOf", "enum", "oneOf", "required", "type"}
"""The keywords whose list has no order."""
_EXACT = 2**53
_MAX_DEPTH = 100


def check_depth(value: Any) -> None:
    """Raise ValueError for JSON values that are nested too deeply to be compared.

    >>> check_depth([[1]])
    """
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [inner for each in level for inner in _list_inner(each)]
    if level:
        raise ValueError(f"it is nested more than {_MAX_DEPTH} levels deep")


def _list_inner(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def normalize(value: Any) -> Any:
    """Return JSON values with each float that is a whole number as an int.

    >>> normalize({"a": [1.0, 1.5, -0.0]})
    {'a': [1, 1.5, 0]}
    """
    if isinstance(value, dict):
        return {key: normalize(each) for key, each in value.items()}
    if isinstance(value, list):
        return [normalize(each) for each in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    return value


def normalize_schema(schema: Any) -> Any:
    """Return a schema with sorted sets, at every depth, and numbers as :func:`normalize` returns them.

    >>> normalize_schema({"required": ["b", "a"], "properties": {"a": {"enum": [2.0, 1]}}})
    {'required': ['a', 'b'], 'properties': {'a': {'enum': [1, 2]}}}
    """
    if not isinstance(schema, dict):
        return normalize(schema)
    return {key: _normalize_keyword(key, value) for key, value in schema.items()}


def _normalize_keyword(key: str, value: Any) -> Any:
    if key in NAMED and isinstance(value, dict):
        return {name: normalize_schema(each) for name, each in value.items()}
    if isinstance(value, list):
        schemas = key in LISTED or key in SINGLE
        values = [normalize_schema(each) if schemas else normalize(each) for each in value]
        return sorted(values, key=canonical_json) if key in UNORDERED else values
    return normalize_schema(value) if key in SINGLE else normalize(value)
