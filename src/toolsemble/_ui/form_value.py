"""Read the value of a form that a page sent back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolsemble._ui.form_field import MISSING

_JSON_KINDS = {"integer", "number", "boolean", "choice", "constant", "json"}


def read_field(field: Any, place: str) -> Any:
    """Return the value of a field, as JSON values; MISSING if it is not set; raise ``ValueError`` for anything else.

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
        raise ValueError(f"{_show(place)}: there is no kind {kind!r:.80}")
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
            raise ValueError(f"{_show(place)}: the key {name!r:.80} is there twice; rename or remove one")
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
