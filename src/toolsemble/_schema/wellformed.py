"""Check foreign JSON Schemas when a tool is defined, so that they cannot cause errors later."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from toolsemble._runtime.text import preview
from toolsemble._schema.argument_problems import escape_token
from toolsemble._schema.secret_values import PASSWORD
from toolsemble._vocabulary.errors import ToolDefinitionError

DRAFTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-04/schema",
)
"""The supported drafts, newest first."""
FORMATS = {"date", "time", "date-time", "duration", "uuid", "email", "uri", "ipv4", "ipv6"}
"""The formats that are enforced."""
ONE_SCHEMA = {
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "additionalItems",
    "unevaluatedItems", "unevaluatedProperties",
}  # fmt: skip
"""The keywords whose value is a schema."""
SCHEMA_LISTS = {"anyOf", "oneOf", "allOf", "prefixItems", "items"}
"""The keywords whose value is a list of schemas."""
NAMED_SCHEMAS = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
"""The keywords whose value maps names to schemas."""
_CHECKED = {
    "type", "enum", "const", "format", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minContains", "maxContains",
    "minProperties", "maxProperties", "required", "dependentRequired", "dependencies", "$ref",
}  # fmt: skip
_ANNOTATIONS = {
    "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "$comment",
    "$schema", "$id", "$anchor", "contentEncoding", "contentMediaType", "contentSchema",
}  # fmt: skip
KEYWORDS = ONE_SCHEMA | SCHEMA_LISTS | NAMED_SCHEMAS | _CHECKED | _ANNOTATIONS
"""The keywords that are enforced, or that have no effect."""
_SPELLINGS = {
    "dict": "object", "map": "object", "str": "string", "text": "string", "int": "integer", "float": "number",
    "double": "number", "bool": "boolean", "list": "array", "tuple": "array", "set": "array", "none": "null",
}  # fmt: skip
_DEEPEST = 50
_LARGEST = 10_000
_DEEPEST_VALUE = 250
_LARGEST_VALUE = 150_000
_FEW_VALUES = 200  # fewer than the levels of the deepest value
_SCALARS = (int, float, bool, type(None))
_SHOWN = 200


def check_size(place: str, value: Any) -> None:
    """Raise ToolDefinitionError for a value that is too deep, contains itself, or is too large when expanded.

    Shared parts, such as YAML aliases, count as often as they would be written.
    """
    if _is_small(value):
        return
    sizes: dict[int, int] = {}  # depth first, without recursion; each part is visited once
    open_parts: dict[int, Any] = {}
    waiting: list[tuple[Any, bool]] = [(value, False)]
    while waiting:
        part, done = waiting.pop()
        if done:
            del open_parts[id(part)]
            sizes[id(part)] = 1 + sum(_size(each, sizes) for each in _inner(part))
            if sizes[id(part)] > _LARGEST_VALUE:
                raise ToolDefinitionError(
                    f"{place} is too large: more than {_LARGEST_VALUE} values when it is written out"
                )
        elif id(part) in open_parts:
            raise ToolDefinitionError(f"{place} contains itself; use $ref for recursion")
        elif id(part) not in sizes:
            open_parts[id(part)] = part
            if len(open_parts) > _DEEPEST_VALUE:
                raise ToolDefinitionError(f"{place} is too deep: more than {_DEEPEST_VALUE} levels")
            waiting.append((part, True))
            waiting += [(each, False) for each in _inner(part) if isinstance(each, (Mapping, list, tuple))]


def _is_small(value: Any) -> bool:
    """Return whether a value has so few parts, all plain, that it cannot be too deep or too large."""
    left, waiting = _FEW_VALUES, [value]
    while waiting:
        part = waiting.pop()
        kind = type(part)
        if kind is str:
            left -= len(part) // _SHOWN
        elif kind is dict:
            left -= 2 * len(part)
            waiting += (*part, *part.values()) if left >= 0 else ()
        elif kind is list:
            left -= len(part)
            waiting += part if left >= 0 else ()
        elif kind not in _SCALARS:
            return False
        if left < 0:
            return False
    return True


def _inner(part: Any) -> Iterable[Any]:
    return (*part.keys(), *part.values()) if isinstance(part, Mapping) else part


def _size(part: Any, sizes: Mapping[int, int]) -> int:
    """Return the size of a part; a long text counts as several values."""
    return 1 + len(part) // _SHOWN if isinstance(part, str) else sizes.get(id(part), 1)


def check_schema(owner: str, parameters: dict[str, Any] | str | None) -> dict[str, Any]:
    """Return a copy of the schema; raise ToolDefinitionError if it is not an enforceable schema of an object."""
    schema = parameters
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as problem:
            raise ToolDefinitionError(f"Tool '{owner}': the schema is not JSON: {problem}") from None
    if schema is None:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    if not isinstance(schema, dict):
        raise ToolDefinitionError(f"Tool '{owner}': the schema must be an object, not {type(schema).__name__}")
    if schema.get("type", "object") != "object":
        raise ToolDefinitionError(f"Tool '{owner}': the schema must be of type object, not {schema['type']!r:.80}")
    if str(schema.get("$schema", DRAFTS[0])).rstrip("#") not in DRAFTS:
        raise ToolDefinitionError(f"Tool '{owner}': unknown $schema {schema['$schema']!r:.80}; use {DRAFTS[0]}")
    check_size(f"Tool '{owner}': the schema", schema)
    copied: dict[str, Any] = json.loads(_dump(owner, schema))
    _check_form(owner, copied)
    _check_nodes(owner, copied)
    return {"type": "object", **copied}  # arguments are always an object


def _dump(owner: str, schema: dict[str, Any]) -> str:
    try:
        text = json.dumps(schema, allow_nan=False)
        if "\\ud" in text:  # a lone surrogate cannot be sent to a provider
            json.dumps(schema, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as problem:
        raise ToolDefinitionError(f"Tool '{owner}': the schema is not JSON: {problem}") from None
    return text


def _check_form(owner: str, schema: dict[str, Any]) -> None:
    """Raise ToolDefinitionError with the path, if a schema is not valid by the rules of its draft."""
    import jsonschema_rs

    try:
        jsonschema_rs.meta.validate(schema)
    except ValueError as problem:
        parts, instance = getattr(problem, "instance_path", ()), getattr(problem, "instance", None)
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
        wanted = _SPELLINGS.get(instance) if isinstance(instance, str) else None
        message = preview(getattr(problem, "message", str(problem)), _SHOWN) + (f"; use {wanted!r}" if wanted else "")
        raise ToolDefinitionError(
            f"Tool '{owner}': the schema is not valid: ${preview(place, _SHOWN)}: {message}"
        ) from None


def _check_nodes(owner: str, schema: dict[str, Any]) -> None:
    """Reject unenforceable keywords, unknown references, and schemas so deep or large that validation could crash."""
    waiting: list[tuple[Any, int, str, str]] = [(schema, 0, "$", "#")]
    known: dict[str, str] = {}
    references: list[tuple[str, str]] = []
    required = 0
    while waiting:
        node, depth, path, pointer = waiting.pop()
        known[pointer] = path
        required += len(node.get("required", ())) if isinstance(node, dict) else 0
        if depth > _DEEPEST or max(len(known), required) > _LARGEST:
            raise ToolDefinitionError(f"Tool '{owner}': the schema is too {'deep' if depth > _DEEPEST else 'large'}")
        if not isinstance(node, dict):
            continue
        if problem := _find_unenforced(node, nested=depth > 0):
            raise ToolDefinitionError(f"Tool '{owner}': {preview(path)}: {problem}")
        references += [(path, node["$ref"])] if "$ref" in node else []
        waiting += [
            (each, depth + 1, f"{path}.{name}", f"{pointer}/{inside}") for name, inside, each in _subschemas(node)
        ]
    for path, reference in references:
        if unquote(reference) not in known:
            raise ToolDefinitionError(
                f"Tool '{owner}': the schema is not valid: {preview(path)}: $ref {preview(reference)!r} does not "
                "point to a schema in this document; put it under $defs and write '#/$defs/name'"
            )


def _find_unenforced(node: Mapping[str, Any], *, nested: bool) -> str:
    form = node.get("format")
    if form is not None and form != PASSWORD and form not in FORMATS:  # a password may be any text
        return f"format {preview(form)!r} cannot be enforced; use {', '.join(sorted(FORMATS))}, or pattern"
    if node.get("enum") == []:
        return "enum is empty, so nothing would fit; list the allowed values, or leave it out"
    if nested and not str(node.get("$id", "#")).startswith("#"):
        return "$id inside a schema changes what references mean; leave it out"
    unknown = next((keyword for keyword in node if keyword not in KEYWORDS and not keyword.startswith("x-")), None)
    if unknown is None:
        return ""
    return f"keyword {preview(unknown)!r} cannot be enforced; leave it out, or say it in the description"


def _subschemas(node: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the schemas inside a schema: their display name, the end of their JSON pointer, and the schema."""
    for keyword, value in node.items():
        if keyword in NAMED_SCHEMAS and isinstance(value, dict):
            for name, each in value.items():
                yield name, f"{keyword}/{escape_token(name)}", each
        elif keyword in SCHEMA_LISTS and isinstance(value, list):
            for index, each in enumerate(value):
                yield f"{keyword}[{index}]", f"{keyword}/{index}", each
        elif keyword in ONE_SCHEMA:
            yield keyword, keyword, value
