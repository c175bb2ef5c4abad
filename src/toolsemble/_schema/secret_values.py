"""Find the secrets in a JSON Schema, and remove their default and example values."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from toolsemble._schema.argument_problems import find_ref_target

PASSWORD = "password"  # noqa: S105 - the name of a JSON Schema format
"""The format of secret values."""

_VALUE_KEYWORDS = ("default", "examples", "example")
_ONE = {
    "items", "additionalItems", "unevaluatedItems", "additionalProperties", "unevaluatedProperties", "propertyNames",
    "contains", "not", "if", "then", "else",
}  # fmt: skip


def secret_keys(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the parameters that are or contain secrets.

    >>> secret_keys({"properties": {"user": {"type": "string"}, "key": {"type": "string", "format": "password"}}})
    frozenset({'key'})
    """
    secrets = _SecretRefs(schema)
    return frozenset(key for key, each in parameters(schema).items() if secrets.has_secret(each))


def parameters(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schemas of the parameters, by name.

    >>> list(parameters({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"user": {}}}}}))
    ['user']
    """
    found: dict[str, list[Any]] = {}
    for node in _iterate_applied(schema):
        for name, each in node.get("properties", {}).items():
            found.setdefault(name, []).append(each)
    return {name: each[0] if len(each) == 1 else {"allOf": each} for name, each in found.items()}


def unnamed_secret(schema: Mapping[str, Any]) -> str | None:
    """Return the keyword that allows secrets under undeclared names; None if there is none.

    >>> unnamed_secret({"additionalProperties": {"type": "string", "format": "password"}})
    'additionalProperties'
    """
    secrets = _SecretRefs(schema)
    for node in _iterate_applied(schema):
        for keyword in ("additionalProperties", "unevaluatedProperties", "patternProperties"):
            inner = node.get(keyword)
            if any(map(secrets.has_secret, inner.values() if keyword == "patternProperties" and inner else [inner])):
                return keyword
    return None


def _iterate_applied(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the schemas that may apply to the same value as a schema, starting with itself, each once."""
    waiting, known = deque[Any]([schema]), set[str]()
    while waiting:
        node = waiting.popleft()
        if not isinstance(node, Mapping):
            continue
        yield node
        ref = node.get("$ref")
        if isinstance(ref, str) and ref not in known:
            known.add(ref)
            waiting.append(find_ref_target(schema, ref))
        for keyword in ("allOf", "anyOf", "oneOf"):
            waiting += node.get(keyword, ())
        waiting += [node[keyword] for keyword in ("if", "then", "else") if keyword in node]
        for keyword in ("dependentSchemas", "dependencies"):
            waiting += node.get(keyword, {}).values()


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


def remove_secret_values(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without the default and example values of secrets and of schemas that contain them.

    >>> remove_secret_values({"properties": {"key": {"type": "string", "format": "password", "default": "hunter2"}}})
    {'properties': {'key': {'type': 'string', 'format': 'password'}}}
    """
    cleaned: dict[str, Any] = _remove_from_node(schema, _SecretRefs(schema))
    return cleaned


def _remove_from_node(node: Any, secrets: _SecretRefs) -> Any:
    if isinstance(node, list):
        return [_remove_from_node(each, secrets) for each in node]
    if not isinstance(node, dict):
        return node
    hidden = any(word in node for word in _VALUE_KEYWORDS) and secrets.has_secret(node)
    kept = {key: each for key, each in node.items() if not (hidden and key in _VALUE_KEYWORDS and each is not None)}
    return {key: _remove_from_node(each, secrets) if key not in _VALUE_KEYWORDS else each for key, each in kept.items()}


class _SecretRefs:
    """The references of a schema that lead to a secret."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        found: dict[str, set[str]] = {}  # for each reference, the references in its target
        secret: list[str] = []
        waiting = [*_scan(root)[1]]
        while waiting:
            ref = waiting.pop()
            if ref not in found:
                is_secret, found[ref] = _scan(find_ref_target(root, ref))
                secret += [ref] if is_secret else []
                waiting += found[ref]
        self._refs = _trace_secret_refs(secret, found)

    def has_secret(self, node: Any) -> bool:
        """Return whether a schema is or contains a secret."""
        is_secret, refs = _scan(node)
        return is_secret or not self._refs.isdisjoint(refs)


def _trace_secret_refs(secret: list[str], found: Mapping[str, set[str]]) -> set[str]:
    """Return the references that lead to a secret, directly or through others."""
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


def _scan(node: Any) -> tuple[bool, set[str]]:
    """Return whether a schema contains a secret, and the references in it, which are not followed."""
    is_secret, refs, waiting = False, set(), [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping):
            is_secret = is_secret or each.get("format") == PASSWORD
            refs |= {each["$ref"]} if isinstance(each.get("$ref"), str) else set()
            waiting += _subschemas(each)
    return is_secret, refs


def _subschemas(node: Mapping[str, Any]) -> Iterator[Any]:
    for key, each in node.items():
        if key in ("properties", "patternProperties", "dependentSchemas", "dependencies"):
            yield from each.values()
        elif key in _ONE:
            yield from each if isinstance(each, list) else [each]
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            yield from each
