"""Form fields, built from a JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from toolsemble._schema.argument_problems import escape_token, find_ref_target, follow_ref
from toolsemble._vocabulary.serialization import compact_json, json_type

FieldKind: TypeAlias = Literal[
    "text", "integer", "number", "boolean", "choice", "constant", "object", "array", "union", "json"
]
"""The kind of a field; "json" is a value of any type, written as JSON text."""

FieldState: TypeAlias = Literal["unset", "null", "value"]
"""The state of a field: it is absent, or null, or has a value."""


class _Missing:
    """The value of an unset field."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final[Any] = _Missing()
"""The value of an unset field."""


@dataclass(frozen=True, slots=True)
class Option:
    """A selectable value.

    >>> Option("low", '"low"').label
    'low'
    """

    label: str
    """The label."""
    text: str
    """The value as JSON text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A form field, with its nested fields.

    A page draws it, changes ``state``, ``text``, ``chosen`` and ``fields``, and sends it back to
    :func:`~toolsemble._ui.forms.read_form`; it needs no schema.

    >>> Field(name="order", path="/order", kind="integer", state="value", text="7").label
    ''
    """

    name: str
    """The key in the enclosing object, or the index in the array; empty for the whole form."""
    path: str
    """The place in the value, as a JSON pointer; empty for the whole form."""
    kind: FieldKind
    """The kind of control, and how ``text`` is parsed."""
    label: str = ""
    """The title of the schema; empty if there is none."""
    description: str = ""
    """The description of the schema."""
    required: bool = False
    """Whether the value is required."""
    nullable: bool = False
    """Whether the value may be null."""
    state: FieldState = "unset"
    """Whether it is absent, null, or has a value."""
    text: str = ""
    """The value: the text itself for kind "text"; JSON text for other kinds without nested fields."""
    options: tuple[Option, ...] = ()
    """The values to choose from; for a union, the names of its options."""
    chosen: int | None = None
    """The index of the chosen option of a union; None: none is chosen."""
    fields: tuple[Field, ...] = ()
    """The nested fields: an object's keys, an array's items, or all options of a union."""
    item: Field | None = None
    """The template of a new array item or object key; None: no more can be added."""
    is_extra: bool = False
    """Whether the key is undeclared; it can be renamed and removed."""
    is_cut: bool = False
    """Whether the nested fields are omitted, because they would recurse: ``expand_field(schema, place)`` has them."""
    place: str = ""
    """The location of its schema within the form's schema, such as ``#/$defs/Node``."""
    default: str | None = None
    """The default as JSON text; None if there is none."""
    limits: dict[str, Any] = field(default_factory=dict)
    """The bounds, the pattern and the format of the value, as keywords of JSON Schema."""
    secret: bool = False
    """Whether the value is a secret; a known one is masked."""
    changed: bool = False
    """Whether the value differs from the previous one."""
    before: str | None = None
    """The previous value as JSON text, if it differs; None if it was absent."""


_MAX_REFS = 50
_NAMES = {
    "string": "text", "integer": "integer", "number": "number", "boolean": "yes or no", "array": "list",
    "object": "object", "null": "null",
}  # fmt: skip
_KINDS: dict[str, FieldKind] = {
    "string": "text", "integer": "integer", "number": "number", "boolean": "boolean", "array": "array",
    "object": "object", "null": "constant",
}  # fmt: skip
_JOINED = {"properties", "patternProperties", "$defs"}
NULL = {"const": None}
"""The schema of null."""


@dataclass(frozen=True, slots=True)
class Node:
    """A schema without references, and its place in the document."""

    schema: Mapping[str, Any]
    """The keywords, merged with referenced and combined schemas."""
    place: str
    """Its location, as a reference."""
    refs: frozenset[str] = frozenset()
    """The references followed to reach it."""
    repeats: bool = False
    """Whether it is recursive."""

    def inner(self, *tokens: object) -> str:
        """Return the location of a nested schema."""
        return "/".join((self.place, *(escape_token(str(token)) for token in tokens)))


def resolve(root: Mapping[str, Any], schema: Any, place: str, refs: frozenset[str] = frozenset()) -> Node:
    """Return a schema with its references followed, and ``allOf`` merged into it.

    >>> resolve({"$defs": {"a": {"type": "string"}}}, {"$ref": "#/$defs/a", "title": "A"}, "#/x").place
    '#/$defs/a'
    """
    found = dict(schema) if isinstance(schema, Mapping) else {}
    repeats = False
    for _ in range(_MAX_REFS):
        ref = found.pop("$ref", None)
        if not isinstance(ref, str):
            break
        place, refs, repeats = ref, refs | {ref}, repeats or ref in refs
        found = {**find_ref_target(root, ref), **found}
    for part in found.pop("allOf", None) or ():
        if len(refs) < _MAX_REFS:
            inner = resolve(root, part, place, refs | {f"{place} {len(refs)}"})
            found = _merge(found, inner.schema)
    return Node(found, place, refs, repeats)


def find_place(root: Mapping[str, Any], place: str) -> Node:
    """Return the schema at a :attr:`Node.place`; raise ``LookupError`` if there is none.

    >>> find_place({"properties": {"a": {"type": ["array", "null"]}}}, "#/properties/a/type/0").schema["type"]
    'array'
    """
    found = follow_ref(root, place)
    if isinstance(found, str):  # one of several types
        around = resolve(root, follow_ref(root, place.rsplit("/", 2)[0]), place)
        return Node({**around.schema, "type": found}, place, around.refs)
    return resolve(root, found, place, frozenset({place}))


def _merge(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of both schemas; the first takes precedence, properties are merged."""
    merged = {**second, **first}
    for keyword in _JOINED & first.keys() & second.keys():
        merged[keyword] = {**second[keyword], **first[keyword]}
    if "required" in first and "required" in second:
        merged["required"] = [*dict.fromkeys([*first["required"], *second["required"]])]
    return merged


def find_kind(node: Node) -> FieldKind:
    """Return the field kind for a schema; "json" if it allows anything."""
    schema = node.schema
    if "const" in schema:
        return "constant"
    if isinstance(values := schema.get("enum"), list) and values:
        return "constant" if len(values) == 1 else "choice"
    declared = schema.get("type")
    if isinstance(declared, str):
        return _KINDS.get(declared, "json")
    if "properties" in schema or "additionalProperties" in schema:
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else "json"


def list_options(root: Mapping[str, Any], node: Node, around: frozenset[str] = frozenset()) -> list[Node]:
    """Return the options of a union, including nested unions and null; empty if it is not a union.

    :param around: the locations of its enclosing unions
    """
    schema = node.schema
    if "properties" in schema:
        return []  # its options only declare which properties go together
    for keyword in ("anyOf", "oneOf"):
        if isinstance(options := schema.get(keyword), list):
            return [
                option
                for index, each in enumerate(options)
                for option in _flatten(
                    root, resolve(root, each, node.inner(keyword, index), node.refs), around | {node.place}
                )
            ]
    declared, values = schema.get("type"), schema.get("enum")
    if isinstance(declared, list) and values is None:
        kinds = enumerate(declared)
        return [Node({**schema, "type": each}, node.inner("type", index), node.refs) for index, each in kinds]
    if isinstance(values, list) and None in values and len(values) > 1:
        others = [each for each in values if each is not None]
        return [Node({**schema, "enum": others}, node.place, node.refs), Node(NULL, node.place)]
    return []


def _flatten(root: Mapping[str, Any], node: Node, around: frozenset[str]) -> list[Node]:
    """Return the options of a nested union; none if it is recursive."""
    return [] if node.place in around else list_options(root, node, around) or [node]


def is_null(node: Node) -> bool:
    """Return whether a schema allows null only."""
    schema = node.schema
    return (
        schema.get("type") == "null" or ("const" in schema and schema["const"] is None) or schema.get("enum") == [None]
    )


def name_option(node: Node) -> str:
    """Return the name of an option of a union: its title, its constant, or its type.

    >>> name_option(Node({"properties": {"kind": {"enum": ["card"]}, "number": {}}}, "#"))
    'card'
    """
    schema = node.schema
    if isinstance(title := schema.get("title"), str) and title:
        return title
    for each in (schema, *list_properties(schema).values()):
        if isinstance(each, Mapping) and (values := constants(each)) and len(values) == 1:
            return values[0] if isinstance(values[0], str) else compact_json(values[0])
    kind = schema.get("type")
    return _NAMES.get(kind, kind) if isinstance(kind, str) else ", ".join(list_properties(schema)) or "JSON"


def constants(schema: Mapping[str, Any]) -> list[Any]:
    """Return the values of an enumeration or a constant; empty if it is neither."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return values if isinstance(values, list) else []


def list_properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the declared properties of an object."""
    found = schema.get("properties")
    return found if isinstance(found, Mapping) else {}


def fits_kind(node: Node, kind: FieldKind, value: Any) -> bool:
    """Return whether a field kind can show a value."""
    if kind in {"constant", "choice"}:
        allowed = constants(node.schema)
        return any(is_same(each, value) for each in allowed)
    if kind == "number":
        return json_type(value) in {"integer", "number"}
    if kind == "integer":
        return json_type(value) == "integer" or (isinstance(value, float) and value.is_integer())
    expected = {"text": "string", "boolean": "boolean", "array": "array", "object": "object"}.get(kind)
    return expected is None or json_type(value) == expected


def is_same(first: Any, second: Any) -> bool:
    """Return whether two JSON values are equal; unlike in Python, true is not 1.

    >>> is_same(1, True), is_same({"a": [1]}, {"a": [1]})
    (False, True)
    """
    return compact_json(first, sort_keys=True) == compact_json(second, sort_keys=True)
