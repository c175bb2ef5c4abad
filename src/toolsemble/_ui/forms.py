"""Forms as data: a schema and a value become fields, and fields become a value."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any

from toolsemble._runtime.text import HIDDEN
from toolsemble._schema.argument_problems import escape_token
from toolsemble._schema.secret_values import PASSWORD
from toolsemble._ui.form_schema import (
    MISSING,
    Field,
    FieldKind,
    FieldState,
    Node,
    Option,
    constants,
    find_kind,
    find_place,
    fits_kind,
    is_null,
    is_same,
    list_options,
    list_properties,
    name_option,
    resolve,
)
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.review._request import ReviewRequest
from toolsemble.review._terms import ReviewTiming

_PLAIN = (str, int, type(None))


def to_json_values(value: Any) -> Any:
    """Return dataclasses as objects, tuples as arrays, and non-JSON numbers as None.

    >>> from toolsemble._ui.forms import Option
    >>> to_json_values((Option("low", "1"), float("nan")))
    [{'label': 'low', 'text': '1'}, None]
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): to_json_values(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json_values(each) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {name: to_json_values(getattr(value, name)) for name in _list_names(value.__class__)}
    return str(value)


def to_json_text(value: Any) -> str:
    r"""Return a record as ASCII JSON text, which can represent any text, including lone surrogates.

    >>> to_json_text(["\ud800"])
    '["\\ud800"]'
    """
    return json.dumps(to_json_values(value), separators=(",", ":"), allow_nan=False)


@cache
def _list_names(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


class OptionFinder:
    """A finder of options: the one that a value is valid for, else the most similar one."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._checks: dict[str, Callable[[Any], bool]] = {}

    def find(self, options: Sequence[Node], value: Any) -> int | None:
        """Return the index of an option; None if no option has the value's type."""
        likely = [index for index, each in enumerate(options) if fits_kind(each, find_kind(each), value)]
        # The first of equally similar options.
        return max(likely, key=lambda index: self._compare(options[index], value), default=None)

    def matches(self, pattern: str, name: str) -> bool:
        """Return whether a key matches a pattern of ``patternProperties``."""
        return self._check({"pattern": pattern}, f"pattern {pattern}")(name)

    def _is_valid(self, option: Node, value: Any) -> bool:
        return self._check(option.schema, option.place)(value)

    def _check(self, schema: Mapping[str, Any], key: str) -> Callable[[Any], bool]:
        found = self._checks.get(key)
        if found is None:
            found = self._checks[key] = _make_check({**_definitions(self._root), **schema})
        return found

    def _compare(self, option: Node, value: Any) -> tuple[int, ...]:
        """Return a value's similarity to an option: validity, then constants, then keys."""
        is_valid = self._is_valid(option, value)
        if not isinstance(value, dict):
            return (int(is_valid),)
        properties = list_properties(option.schema)
        resolved = {name: resolve(self._root, properties[name], "").schema for name in properties.keys() & value.keys()}
        equal = sum(
            1 if any(is_same(each, value[name]) for each in constants(schema)) else -1
            for name, schema in resolved.items()
            if constants(schema)
        )
        others = len(value.keys() - properties.keys())
        # A schema that admits all keys is valid for almost anything.
        return int(is_valid and not others), equal, len(resolved), -others, int(is_valid)


def _definitions(root: Mapping[str, Any]) -> dict[str, Any]:
    return {name: root[name] for name in ("$defs", "definitions") if name in root}


def _make_check(schema: dict[str, Any]) -> Callable[[Any], bool]:
    """Return a predicate for valid values; if the schema cannot be compiled, nothing is valid."""
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(schema, offline=True, pattern_options=jsonschema_rs.RegexOptions()).is_valid
    except ValueError:  # an unsupported reference or pattern
        return lambda _: False


_MAX_FIELDS = 2000  # of a form; anything beyond is written as JSON
_MAX_ITEMS = 200  # of an array or an object; longer ones are written as JSON
_MAX_ABSENT = 3  # levels of nested fields without a value
_LIMITS = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern",
    "format", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spot:
    """The location of a field, and the value that it is compared with."""

    name: str
    path: str
    required: bool = False
    before: Any = MISSING
    compare: bool = False
    level: int = 0
    is_extra: bool = False
    is_new: bool = True
    """Whether the enclosing object or array has no value, so that its own may be preset."""

    def inner(self, name: object, *, required: bool = False, is_extra: bool = False, absent: bool = False) -> Spot:
        """Return the location of a key or an item."""
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
        """Return the template of a new key; None if the schema declares all keys."""
        more = node.schema.get("additionalProperties", not list_properties(node.schema))
        if more is False:
            return None
        inner = resolve(self.root, more, node.inner("additionalProperties"), node.refs)
        return self.build(inner, MISSING, Spot("", f"{spot.path}/", required=True, level=spot.level + 1, is_extra=True))

    def _find_extra(self, node: Node, name: str) -> Node:
        """Return the schema of an undeclared key."""
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
        """Return whether to omit the nested fields of a field without a value."""
        return value is MISSING and (node.repeats or spot.level >= _MAX_ABSENT or self.count > _MAX_FIELDS)


def is_secret(node: Node) -> bool:
    """Return whether a schema declares a secret."""
    return node.schema.get("format") == PASSWORD or node.schema.get("writeOnly") is True


def _describe(node: Node, kind: FieldKind, value: Any, spot: Spot) -> Field:
    """Return a field without its nested fields."""
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
        # An object without fields and a constant need no input.
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
    """Return the value at a key or an index; MISSING if there is none."""
    if isinstance(values, dict):
        return values.get(name, MISSING)
    is_item = isinstance(values, list) and isinstance(name, int) and name < len(values)
    return values[name] if is_item else MISSING


def _find_text(schema: Mapping[str, Any], keyword: str) -> str:
    found = schema.get(keyword)
    return found if isinstance(found, str) else ""


def _to_label(value: Any) -> str:
    return value if isinstance(value, str) and value else compact_json(value)


_JSON_KINDS = {"integer", "number", "boolean", "choice", "constant", "json"}


def read_field(field: Any, place: str) -> Any:
    """Return a field's value as JSON values; MISSING if it is not set; raise ``ValueError`` for anything else.

    >>> read_field({"kind": "array", "state": "value", "fields": [{"kind": "text", "state": "null"}]}, "")
    [None]
    """
    if not isinstance(field, Mapping):
        raise ValueError(f"{_show(place)}: expected a field, an object, not {field!r:.80}")
    state, kind = field.get("state"), field.get("kind")
    if state == "unset":
        return MISSING
    if state == "null":
        return None
    if state != "value":
        raise ValueError(f"{_show(place)}: state must be unset, null or value, not {state!r:.80}")
    if kind == "object":
        return _read_object(field, place)
    if kind == "array":
        found = [read_field(each, f"{place}/{index}") for index, each in enumerate(_list_fields(field, place))]
        return [each for each in found if each is not MISSING]
    if kind == "union":
        return _read_union(field, place)
    text = field.get("text")
    if not isinstance(text, str):
        raise ValueError(f"{_show(place)}: text must be a str, not {text!r:.80}")
    if kind == "text":
        return text
    if kind not in _JSON_KINDS:
        raise ValueError(f"{_show(place)}: unknown kind {kind!r:.80}")
    return _read_json(text)


def _read_object(field: Mapping[str, Any], place: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for index, each in enumerate(_list_fields(field, place)):
        name = each.get("name") if isinstance(each, Mapping) else None
        if not isinstance(name, str):
            raise ValueError(f"{_show(place)}: field {index} must have a name, a str, not {name!r:.80}")
        value = read_field(each, f"{place}/{name}")
        if value is MISSING:
            continue
        if name in values:
            raise ValueError(f"{_show(place)}: duplicate key {name!r:.80}; rename or remove one")
        values[name] = value
    return values


def _read_union(field: Mapping[str, Any], place: str) -> Any:
    chosen, options = field.get("chosen"), _list_fields(field, place)
    if chosen is None:
        return MISSING
    if type(chosen) is not int or not 0 <= chosen < len(options):
        raise ValueError(f"{_show(place)}: chosen must be the index of an option, not {chosen!r:.80}")
    return read_field(options[chosen], place)


def _list_fields(field: Mapping[str, Any], place: str) -> list[Any]:
    fields = field.get("fields", [])
    if not isinstance(fields, list):
        raise ValueError(f"{_show(place)}: fields must be an array, not {fields!r:.80}")
    return fields


def _read_json(text: str) -> Any:
    """Return the value of JSON text; MISSING if there is none, the text itself if it is not JSON."""
    if not text.strip():
        return MISSING
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        return text


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _show(place: str) -> str:
    return place[:200] or "the form"


__all__ = [
    "MISSING",
    "Field",
    "FieldKind",
    "FieldState",
    "Option",
    "build_form",
    "expand_field",
    "mask_secrets",
    "read_form",
]


def build_form(
    schema: Mapping[str, Any] | None, value: Any = MISSING, *, before: Any = MISSING, keep_hidden: bool = False
) -> Field:
    """Return the form for a schema, filled in with a value.

    Every value can be shown: a value that does not fit the schema becomes a field of kind "json". Nothing is validated.

    :param schema: the schema; None: an object without fields
    :param value: the value; :data:`MISSING`: an empty form
    :param before: the value to compare with; fields that differ are marked as changed
    :param keep_hidden: whether masked secrets are shown as set, because they stand for a waiting call's secrets; else
        they must be entered again

    >>> form = build_form({"properties": {"order": {"type": "integer"}, "note": {"type": "string"}}}, {"order": 7})
    >>> [(each.name, each.kind, each.state, each.text) for each in form.fields]
    [('order', 'integer', 'value', '7'), ('note', 'text', 'unset', '')]
    """
    root: Mapping[str, Any] = {"type": "object", "additionalProperties": False} if schema is None else schema
    if before is not MISSING and value is MISSING:
        value = before
    builder = FormBuilder(root, keep_hidden=keep_hidden)
    spot = Spot("", "", before=before, compare=before is not MISSING, required=True)
    return builder.build(resolve(root, root, "#"), value, spot)


def expand_field(schema: Mapping[str, Any], place: str) -> Field:
    """Return an empty field for a schema location: the omitted content of a cut field.

    Raise ``LookupError`` if there is no such location.
    """
    return FormBuilder(schema, keep_hidden=False).build(find_place(schema, place), MISSING, Spot("", "", required=True))


def mask_secrets(schema: Mapping[str, Any], value: Any) -> Any:
    """Return a value with its secrets masked, for display.

    >>> token = {"type": "string", "format": "password", "writeOnly": True}
    >>> mask_secrets({"properties": {"token": token}}, {"token": "sk-1"})
    {'token': '**********'}
    """
    builder = FormBuilder(schema, keep_hidden=True, mask=True)
    return read_form(builder.build(resolve(schema, schema, "#"), value, Spot("", "", required=True)))


def read_form(form: Field | Mapping[str, Any]) -> Any:
    """Return a form's value, as built in Python or sent back by a page; :data:`MISSING` if it is not set.

    Fields that are not set are absent. An unparseable number stays a text, so that the call is rejected with the
    reason. Raise ``ValueError`` with the path if it is not a form.

    >>> read_form({"kind": "object", "state": "value", "fields": [
    ...     {"name": "order", "kind": "integer", "state": "value", "text": "7"},
    ...     {"name": "note", "kind": "text", "state": "null"},
    ...     {"name": "amount", "kind": "number", "state": "unset"},
    ... ]})
    {'order': 7, 'note': None}
    """
    try:
        return read_field(to_json_values(form), "")
    except RecursionError:
        raise ValueError("the form is nested too deeply") from None


def build_request_form(request: ReviewRequest, schema: Mapping[str, Any] | None) -> Field:
    """Return the form with a waiting call's arguments; masked secrets stay masked.

    :param schema: the schema of the tool, as ``store.schema(request.schema_digest)`` returns it; None: unknown; the
        arguments are shown by their own types
    """
    if request.timing is ReviewTiming.DURING_EXECUTION or request.editable or isinstance(request.arguments, str):
        return replace(build_form({"type": "string"}, request.editable_text), label=request.editable)
    return build_form({} if schema is None else schema, request.arguments, keep_hidden=True)


def write_edit(request: ReviewRequest, form: Field | Mapping[str, Any]) -> str | None:
    """Return the text for :class:`~toolsemble.review.Edit`; None if nothing was changed, which makes it an approval.

    Raise ``ValueError`` if it is not a form.
    """
    value = read_form(form)
    if value is MISSING:
        raise ValueError("the form has no arguments; reject the call instead")
    if isinstance(value, str):
        return None if value == request.editable_text else value
    same = compact_json(value, sort_keys=True) == compact_json(request.arguments, sort_keys=True, default=str)
    return None if same else compact_json(value)
