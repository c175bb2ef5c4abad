"""Build the fields of a form from a schema and a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from toolsemble._runtime.text import HIDDEN
from toolsemble._schema.pointer import escape_token
from toolsemble._schema.secret import PASSWORD
from toolsemble._ui.form_field import MISSING, Field, FieldKind, FieldState, Option
from toolsemble._ui.form_option import OptionFinder
from toolsemble._ui.form_schema import (
    Node,
    constants,
    find_kind,
    fits_kind,
    is_null,
    is_same,
    list_options,
    list_properties,
    name_option,
    resolve,
)
from toolsemble._vocabulary.serialization import compact_json

_MAX_FIELDS = 2000  # of a form; what is beyond them is written as JSON
_MAX_ITEMS = 200  # of an array or an object; longer ones are written as JSON
_MAX_ABSENT = 3  # levels of fields inside of fields that have no value
_LIMITS = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern",
    "format", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spot:
    """The place of a field, and the value that it is compared with."""

    name: str
    path: str
    required: bool = False
    before: Any = MISSING
    compare: bool = False
    level: int = 0
    is_extra: bool = False
    is_new: bool = True
    """Whether the object or array around it has no value, so that its own may be preset."""

    def inner(self, name: object, *, required: bool = False, is_extra: bool = False, absent: bool = False) -> Spot:
        """Return the place of a key or an item."""
        return Spot(
            str(name),
            f"{self.path}/{escape_token(str(name))}",
            required,
            _get(self.before, name),
            self.compare,
            self.level + absent,
            is_extra,
            absent,
        )


@dataclass(slots=True)
class FormBuilder:
    """The fields of one form."""

    root: Mapping[str, Any]
    keep_hidden: bool
    mask: bool = False
    count: int = 0
    finder: OptionFinder = field(init=False)

    def __post_init__(self) -> None:
        self.finder = OptionFinder(self.root)

    def build(self, node: Node, value: Any, spot: Spot) -> Field:
        """Return the field for a value of a schema."""
        self.count += 1
        options = list_options(self.root, node)
        if not options:
            return self._build_plain(node, value, spot)
        others = [each for each in options if not is_null(each)]
        nullable = len(others) < len(options)
        if len(others) == 1:
            return replace(self._build_plain(_annotate(others[0], node), value, spot), nullable=nullable)
        return replace(self._build_union(node, others, value, spot), nullable=nullable)

    def _build_plain(self, node: Node, value: Any, spot: Spot) -> Field:
        if is_secret(node) and not (value is None or (self.keep_hidden and value == HIDDEN)):
            value = HIDDEN if self.mask and value is not MISSING else MISSING  # a page never gets a secret
        kind = find_kind(node)
        made = _describe(node, kind, value, spot)
        if value is not MISSING and value is not None and not fits_kind(node, kind, value):
            return _as_json(made, value)
        if kind == "object":
            return self._build_object(node, made, value, spot)
        if kind == "array":
            return self._build_array(node, made, value, spot)
        return made

    def _build_object(self, node: Node, made: Field, value: Any, spot: Spot) -> Field:
        keys = value if isinstance(value, dict) else {}
        if self._is_too_large(keys):
            return _as_json(made, value)
        if self._must_cut(node, value, spot):
            return replace(made, is_cut=True)
        properties, absent = list_properties(node.schema), value is MISSING
        required = node.schema.get("required") or ()
        fields = [
            self.build(
                resolve(self.root, each, node.inner("properties", name), node.refs),
                keys.get(name, MISSING),
                spot.inner(name, required=name in required, absent=absent),
            )
            for name, each in properties.items()
        ]
        fields += [
            self.build(self._find_extra(node, name), each, spot.inner(name, is_extra=True))
            for name, each in keys.items()
            if name not in properties
        ]
        return replace(made, fields=tuple(fields), item=self._build_new_key(node, spot))

    def _build_new_key(self, node: Node, spot: Spot) -> Field | None:
        """Return what a new key looks like; None if the schema declares all keys."""
        more = node.schema.get("additionalProperties", not list_properties(node.schema))
        if more is False:
            return None
        inner = resolve(self.root, more, node.inner("additionalProperties"), node.refs)
        return self.build(inner, MISSING, Spot("", f"{spot.path}/", required=True, level=spot.level + 1, is_extra=True))

    def _find_extra(self, node: Node, name: str) -> Node:
        """Return the schema of a key that is not declared."""
        patterns = node.schema.get("patternProperties")
        for pattern, each in patterns.items() if isinstance(patterns, Mapping) else ():
            if self.finder.matches(pattern, name):
                return resolve(self.root, each, node.inner("patternProperties", pattern), node.refs)
        more = node.schema.get("additionalProperties")
        return resolve(self.root, more, node.inner("additionalProperties"), node.refs)

    def _build_array(self, node: Node, made: Field, value: Any, spot: Spot) -> Field:
        items = value if isinstance(value, list) else []
        if self._is_too_large(items):
            return _as_json(made, value)
        if self._must_cut(node, value, spot):
            return replace(made, is_cut=True)
        first = node.schema.get("prefixItems")
        first = first if isinstance(first, list) else []
        places = [*items, *[MISSING] * (len(first) - len(items))]
        fields = [
            self.build(self._find_item(node, index, first), each, spot.inner(index, absent=each is MISSING))
            for index, each in enumerate(places)
        ]
        return replace(made, fields=tuple(fields), item=self._build_new_item(node, first, spot))

    def _build_new_item(self, node: Node, first: Sequence[Any], spot: Spot) -> Field | None:
        if node.schema.get("items") is False:
            return None
        inner = self._find_item(node, len(first), first)
        return self.build(inner, MISSING, Spot("", f"{spot.path}/", required=True, level=spot.level + 1))

    def _find_item(self, node: Node, index: int, first: Sequence[Any]) -> Node:
        """Return the schema of an item."""
        if index < len(first):
            return resolve(self.root, first[index], node.inner("prefixItems", index), node.refs)
        return resolve(self.root, node.schema.get("items"), node.inner("items"), node.refs)

    def _build_union(self, node: Node, options: Sequence[Node], value: Any, spot: Spot) -> Field:
        made = _describe(node, "union", value, spot)
        chosen = None if value is MISSING or value is None else self.finder.find(options, value)
        if chosen is None and value is not MISSING and value is not None:
            return _as_json(made, value)
        names = tuple(Option(name_option(each), "") for each in options)
        if self._must_cut(node, value, spot):
            return replace(made, options=names, is_cut=True)
        inner = replace(spot, required=True, is_extra=False, level=spot.level + 1)
        fields = tuple(
            self.build(each, value, replace(inner, level=spot.level))
            if index == chosen
            else self.build(each, MISSING, replace(inner, compare=False))
            for index, each in enumerate(options)
        )
        return replace(made, options=names, chosen=chosen, fields=fields)

    def _is_too_large(self, values: Any) -> bool:
        return len(values) > _MAX_ITEMS or (self.count > _MAX_FIELDS and bool(values))

    def _must_cut(self, node: Node, value: Any, spot: Spot) -> bool:
        """Return whether the fields inside of a field without a value are left out."""
        return value is MISSING and (node.repeats or spot.level >= _MAX_ABSENT or self.count > _MAX_FIELDS)


def is_secret(node: Node) -> bool:
    """Return whether a schema is that of a secret."""
    return node.schema.get("format") == PASSWORD or node.schema.get("writeOnly") is True


def _describe(node: Node, kind: FieldKind, value: Any, spot: Spot) -> Field:
    """Return a field without the fields inside it."""
    schema, secret = node.schema, is_secret(node)
    changed = spot.compare and not _is_equal(spot.before, value)
    inside = kind in {"object", "array", "union"}
    shows_before = changed and not inside and spot.before is not MISSING and not secret
    return Field(
        name=spot.name,
        path=spot.path,
        kind=kind,
        label=_find_text(schema, "title"),
        description=_find_text(schema, "description"),
        required=spot.required,
        nullable=is_null(node),
        state=_find_state(kind, value, spot),
        text="" if inside else _find_value_text(node, kind, value),
        options=tuple(Option(_to_label(each), compact_json(each)) for each in constants(schema)),
        is_extra=spot.is_extra,
        place=node.place,
        default=compact_json(schema["default"]) if "default" in schema and not secret else None,
        limits={each: schema[each] for each in _LIMITS if each in schema},
        secret=secret,
        changed=changed,
        before=compact_json(spot.before) if shows_before else None,
    )


def _find_state(kind: FieldKind, value: Any, spot: Spot) -> FieldState:
    if value is MISSING:
        # Nobody has to say that an object is an object, or that a constant is what it is.
        return "value" if spot.required and spot.is_new and kind in {"object", "array", "constant"} else "unset"
    return "null" if value is None else "value"


def _find_value_text(node: Node, kind: FieldKind, value: Any) -> str:
    if value is MISSING:
        return compact_json(constants(node.schema)[0]) if kind == "constant" and constants(node.schema) else ""
    if value is None:
        return "null" if kind == "constant" else ""
    return value if kind == "text" and isinstance(value, str) else compact_json(value)


def _as_json(made: Field, value: Any) -> Field:
    """Return a field that shows a value as JSON text."""
    return replace(made, kind="json", state="value", text=compact_json(value), options=())


def _annotate(node: Node, around: Node) -> Node:
    """Return the one option of a union, with the title, description and default of the union."""
    own = {name: around.schema[name] for name in ("title", "description", "default") if name in around.schema}
    return replace(node, schema={**node.schema, **own})


def _is_equal(first: Any, second: Any) -> bool:
    return first is second if MISSING in (first, second) else is_same(first, second)


def _get(values: Any, name: object) -> Any:
    """Return the value of a key or an index; MISSING if there is none."""
    if isinstance(values, dict):
        return values.get(name, MISSING)
    is_item = isinstance(values, list) and isinstance(name, int) and name < len(values)
    return values[name] if is_item else MISSING


def _find_text(schema: Mapping[str, Any], keyword: str) -> str:
    found = schema.get(keyword)
    return found if isinstance(found, str) else ""


def _to_label(value: Any) -> str:
    return value if isinstance(value, str) and value else compact_json(value)
