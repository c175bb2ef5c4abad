"""Which parts of a JSON Schema are secrets, and what it may not say of those."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolsemble.schema.pointer import pointed

PASSWORD = "password"  # noqa: S105 - the name of a format, as JSON Schema has it
"""The format of values that nobody is shown."""

_TELLING = ("default", "examples", "example")


def secret_keys(schema: Mapping[str, Any]) -> frozenset[str]:
    """Give the parameters that are secrets or have some inside.

    >>> secret_keys({"properties": {"user": {"type": "string"}, "key": {"type": "string", "format": "password"}}})
    frozenset({'key'})
    """
    return frozenset(key for key, each in parameters(schema).items() if _holds_secret(each, schema, set()))


def parameters(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give the schemas of the parameters, by name.

    >>> list(parameters({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"user": {}}}}}))
    ['user']
    """
    root = {**schema, **pointed(schema, schema["$ref"])} if "$ref" in schema else schema
    found: Mapping[str, Any] = root.get("properties", {})
    return found


def property_names(schema: Any) -> frozenset[str]:
    """Return the names of all properties of a schema, at every depth.

    >>> sorted(property_names({"properties": {"a": {"items": {"properties": {"b": {}}}}}}))
    ['a', 'b']
    """
    if isinstance(schema, (list, tuple)):
        return frozenset().union(*map(property_names, schema))
    if not isinstance(schema, Mapping):
        return frozenset()
    named = schema.get("properties")
    own = frozenset(named) if isinstance(named, Mapping) else frozenset()
    return own.union(*map(property_names, schema.values()))


def hushed(schema: dict[str, Any]) -> dict[str, Any]:
    """Give a schema that tells neither defaults nor examples of what is a secret or has one inside.

    >>> hushed({"properties": {"key": {"type": "string", "format": "password", "default": "hunter2"}}})
    {'properties': {'key': {'type': 'string', 'format': 'password'}}}
    """
    made: dict[str, Any] = _hushed(schema, schema)
    return made


def _hushed(node: Any, root: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_hushed(each, root) for each in node]
    if not isinstance(node, dict):
        return node
    hidden = any(word in node for word in _TELLING) and _holds_secret(node, root, set())
    kept = {key: each for key, each in node.items() if not (hidden and key in _TELLING and each is not None)}
    return {key: _hushed(each, root) if key not in _TELLING else each for key, each in kept.items()}


def _holds_secret(node: Any, root: Mapping[str, Any], seen: set[str]) -> bool:
    """Whether a schema is of a secret, or of something that holds one."""
    if not isinstance(node, Mapping):
        return False
    if node.get("format") == PASSWORD:
        return True
    ref = node.get("$ref")
    if isinstance(ref, str) and ref not in seen:
        seen.add(ref)
        if _holds_secret(pointed(root, ref), root, seen):
            return True
    return any(_holds_secret(each, root, seen) for each in _inner(node))


def _inner(node: Mapping[str, Any]) -> Iterator[Any]:
    for key, each in node.items():
        if key in ("properties", "patternProperties"):
            yield from each.values()
        elif key in ("items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames"):
            yield from each if isinstance(each, list) else [each]
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            yield from each
