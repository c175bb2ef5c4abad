"""Forms as data: a schema and a value become fields, and fields become a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolsemble._ui.form_builder import FormBuilder, Spot
from toolsemble._ui.form_field import MISSING, Field, FieldKind, FieldState, Option
from toolsemble._ui.form_schema import find_place, resolve
from toolsemble._ui.form_value import read_field
from toolsemble._ui.json_values import to_json_values

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
    """Return the form for a value of a schema, filled in with the value.

    Every value can be shown: what does not fit the schema is a field of kind "json". Nothing is validated.

    :param schema: the schema; None: an object without fields
    :param value: the value; :data:`MISSING`: an empty form
    :param before: the value to compare with; fields that differ are marked as changed
    :param keep_hidden: whether masked secrets are shown as set, because they stand for those of a waiting call; else
        they have to be entered again

    >>> form = build_form({"properties": {"order": {"type": "integer"}, "note": {"type": "string"}}}, {"order": 7})
    >>> [(each.name, each.kind, each.state, each.text) for each in form.fields]
    [('order', 'integer', 'value', '7'), ('note', 'text', 'unset', '')]
    >>> read_form(form)
    {'order': 7}
    """
    root: Mapping[str, Any] = {"type": "object", "additionalProperties": False} if schema is None else schema
    if before is not MISSING and value is MISSING:
        value = before
    builder = FormBuilder(root, keep_hidden=keep_hidden)
    spot = Spot("", "", before=before, compare=before is not MISSING, required=True)
    return builder.build(resolve(root, root, "#"), value, spot)


def expand_field(schema: Mapping[str, Any], place: str) -> Field:
    """Return a field without a value for a place of the schema: what is inside of a field that is cut.

    Raise ``LookupError`` if there is no such place.

    >>> node = {"properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/Node"}}}
    >>> schema = {"$ref": "#/$defs/Node", "$defs": {"Node": node}}
    >>> after = build_form(schema).fields[1]
    >>> after.is_cut, [each.name for each in expand_field(schema, after.place).fields]
    (True, ['name', 'next'])
    """
    return FormBuilder(schema, keep_hidden=False).build(find_place(schema, place), MISSING, Spot("", "", required=True))


def mask_secrets(schema: Mapping[str, Any], value: Any) -> Any:
    """Return a value with the secrets in it masked, to be shown to others.

    >>> token = {"type": "string", "format": "password", "writeOnly": True}
    >>> mask_secrets({"properties": {"token": token}}, {"token": "sk-1"})
    {'token': '**********'}
    """
    builder = FormBuilder(schema, keep_hidden=True, mask=True)
    return read_form(builder.build(resolve(schema, schema, "#"), value, Spot("", "", required=True)))


def read_form(form: Field | Mapping[str, Any]) -> Any:
    """Return the value of a form, as Python built it or as a page sent it back; :data:`MISSING` if it is not set.

    Fields that are not set are absent. A number that cannot be read stays a text, so that the call is refused with the
    reason. Raise ``ValueError`` with the place for what is not a form.

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
