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
    secrets = _Secrets(schema)
    return frozenset(key for key, each in parameters(schema).items() if secrets.are_in(each))


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
    made: dict[str, Any] = _hushed(schema, _Secrets(schema))
    return made


def _hushed(node: Any, secrets: _Secrets) -> Any:
    if isinstance(node, list):
        return [_hushed(each, secrets) for each in node]
    if not isinstance(node, dict):
        return node
    hidden = any(word in node for word in _TELLING) and secrets.are_in(node)
    kept = {key: each for key, each in node.items() if not (hidden and key in _TELLING and each is not None)}
    return {key: _hushed(each, secrets) if key not in _TELLING else each for key, each in kept.items()}


class _Secrets:
    """Knows which references of a schema lead to a secret; each part of the schema is looked at once."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        found: dict[str, set[str]] = {}  # by each reference, those that stand where it leads
        secret: list[str] = []
        waiting = [*_look(root)[1]]
        while waiting:
            ref = waiting.pop()
            if ref not in found:
                is_secret, found[ref] = _look(pointed(root, ref))
                secret += [ref] if is_secret else []
                waiting += found[ref]
        self._refs = _leading(secret, found)

    def are_in(self, node: Any) -> bool:
        """Whether a schema is of a secret, or of something that holds one."""
        is_secret, refs = _look(node)
        return is_secret or not self._refs.isdisjoint(refs)


def _leading(secret: list[str], found: Mapping[str, set[str]]) -> set[str]:
    """Return the references that lead to a secret, also by way of others."""
    around: dict[str, list[str]] = {}
    for ref, inside in found.items():
        for each in inside:
            around.setdefault(each, []).append(ref)
    leading, waiting = set(secret), list(secret)
    while waiting:
        fresh = [each for each in around.get(waiting.pop(), ()) if each not in leading]
        leading.update(fresh)
        waiting += fresh
    return leading


def _look(node: Any) -> tuple[bool, set[str]]:
    """Return whether a schema has a secret inside, and the references in it; none is followed."""
    is_secret, refs, waiting = False, set(), [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping):
            is_secret = is_secret or each.get("format") == PASSWORD
            refs |= {each["$ref"]} if isinstance(each.get("$ref"), str) else set()
            waiting += _inner(each)
    return is_secret, refs


def _inner(node: Mapping[str, Any]) -> Iterator[Any]:
    for key, each in node.items():
        if key in ("properties", "patternProperties"):
            yield from each.values()
        elif key in ("items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames"):
            yield from each if isinstance(each, list) else [each]
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            yield from each
