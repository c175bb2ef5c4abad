"""JSON pointers (RFC 6901), and the ``$ref`` of a JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def follow_ref(document: Any, ref: str) -> Any:
    """Return the value in a document that a reference such as ``#/$defs/a`` refers to.

    Raise :class:`LookupError` if there is none, or if the reference leads out of the document.

    >>> follow_ref({"$defs": {"a/b": [{"type": "string"}]}}, "#/$defs/a~1b/0")
    {'type': 'string'}
    >>> follow_ref({"$defs": {}}, "#/$defs/a")
    Traceback (most recent call last):
    ...
    LookupError: '#/$defs/a': there is no 'a'
    """
    if "%" in ref:
        from urllib.parse import unquote

        ref = unquote(ref)
    start, *tokens = ref.split("/")
    if start != "#":
        raise LookupError(f"{ref!r:.80} does not refer to a place in the same document, such as '#/$defs/name'")
    for token in tokens:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(document, Mapping) and key in document:
            document = document[key]
        elif isinstance(document, list) and key in map(str, range(len(document))):
            document = document[int(key)]
        else:
            raise LookupError(f"{ref!r:.80}: there is no {key!r:.80}")
    return document


def escape_token(name: str) -> str:
    """Return a key as it is written in a JSON pointer.

    >>> escape_token("a/b")
    'a~1b'
    """
    return name.replace("~", "~0").replace("/", "~1")


def find_ref_target(root: Mapping[str, Any], ref: str) -> Mapping[str, Any]:
    """Return the schema that a ``$ref`` in the same document refers to; empty if there is none.

    >>> find_ref_target({"$defs": {"a": {"type": "string"}}}, "#/$defs/a")
    {'type': 'string'}
    """
    try:
        target = follow_ref(root, ref)
    except LookupError:
        return {}
    return target if isinstance(target, Mapping) else {}


def resolve_schema(root: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema merged with the target of its ``$ref``; its own keywords take precedence.

    >>> resolve_schema({"$defs": {"a": {"type": "string"}}}, {"$ref": "#/$defs/a", "title": "A"})
    {'type': 'string', '$ref': '#/$defs/a', 'title': 'A'}
    """
    return {**find_ref_target(root, schema["$ref"]), **schema} if "$ref" in schema else schema
