"""Convert values to JSON for display: every field, with the keys that the model uses, secrets hidden."""

from __future__ import annotations

import enum
import json
import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from toolsemble._runtime.text import HIDDEN
from toolsemble._schema.attributes import StoredField, stored_fields
from toolsemble._schema.field import MISSING
from toolsemble._schema.problem import MismatchError
from toolsemble._vocabulary.errors import ToolArgumentsError

_AS_THEY_ARE = frozenset({str, int, bool, type(None)})
_STR = frozenset({str})
_SCALARS = (str, int, float, bool, type(None))


class DisplayError(ToolArgumentsError):
    """A part of a value cannot be displayed, so that it cannot be approved or compared."""


def to_display(value: Any, keys: Mapping[str, str] | None = None, *, reveal: bool = False) -> Any:
    """Return a value as new JSON values; ``keys`` maps the keys of a dict to those that the model uses.

    Unlike serialization, this shows fields that a type excludes, because the tool gets them. Secrets are hidden unless
    ``reveal`` is true. Raise :class:`DisplayError` if a part cannot be shown.

    >>> to_display({"size": (3, 4), "note": b"ok"}, {"size": "Size"})
    {'Size': [3, 4], 'note': 'b2s='}
    """
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if isinstance(value, Mapping):
        return _display_mapping(value, getattr(value, "keys_shown", None) or keys or {}, reveal=reveal)
    if hasattr(kind, "__pydantic_root_model__") and kind.__pydantic_root_model__:
        return to_display(value.root, reveal=reveal)
    if (fields := stored_fields(kind)) is not None:
        return _display_object(value, fields, reveal=reveal)
    if isinstance(value, (list, tuple, deque)):
        return [to_display(item, reveal=reveal) for item in value]
    if isinstance(value, (set, frozenset)):
        # Sorted, because another process may iterate a set in another order.
        return sorted((to_display(item, reveal=reveal) for item in value), key=json.dumps)
    if hasattr(kind, "get_secret_value"):
        return to_display(value.get_secret_value(), reveal=True) if reveal else HIDDEN
    if isinstance(value, enum.Enum):
        return _display_member(value)
    return scalar_to_json(value)


def copy_plain(values: Any) -> dict[str, Any] | None:
    """Return a copy of a dict of scalars and lists of them, the arguments of most calls; None for anything else.

    >>> copy_plain({"city": "Rome", "days": [1, 2]}), copy_plain({"at": (1, 2)})
    ({'city': 'Rome', 'days': [1, 2]}, None)
    """
    if type(values) is not dict or not _STR.issuperset(map(type, values)):
        return None
    copied = values.copy()
    if _AS_THEY_ARE.issuperset(map(type, values.values())):
        return copied
    for key, value in values.items():
        kind = type(value)
        if kind is list and _AS_THEY_ARE.issuperset(map(type, value)):
            copied[key] = value.copy()
        elif kind not in _AS_THEY_ARE and (kind is not float or not math.isfinite(value)):
            return None
    return copied


def to_display_or_repr(value: Any) -> Any:
    """Return a value as JSON values for display, or its ``repr`` if it cannot be shown.

    >>> to_display_or_repr({"size": (3, 4)}), to_display_or_repr(...)
    ({'size': [3, 4]}, 'Ellipsis')
    """
    try:
        shown = to_display(value)
        json.dumps(shown, allow_nan=False)
    except Exception:  # a user's object can raise anything; what is around it is still shown
        return repr(value)
    return shown


def to_display_text(value: Any) -> str:
    """Return a value as JSON text for display; raise :class:`MismatchError` if that is not possible.

    >>> to_display_text({"size": (3, 4)})
    '{"size": [3, 4]}'
    """
    try:
        return json.dumps(to_display(value), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError, DisplayError):
        raise MismatchError from None


def read_field(value: Any, field: StoredField) -> Any:
    """Return the value of an object's field; raise :class:`DisplayError` if the object does not store it."""
    if field.constant is not MISSING:
        return field.constant
    try:
        return getattr(value, field.attribute or "")
    except AttributeError:
        name = type(value).__name__
        raise DisplayError(f"It cannot be shown: {name} does not store its {field.key!r}") from None


def scalar_to_json(value: Any) -> Any:
    """Return a scalar as a JSON value; as text if JSON has no such type."""
    if type(value) is float:
        return value if math.isfinite(value) else str(value)
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, fallback=str, bytes_mode="base64")


def _display_object(value: Any, fields: Iterable[StoredField], *, reveal: bool) -> dict[str, Any]:
    """Return every field of an object, and the extra keys of a pydantic model."""
    shown: dict[str, Any] = {}
    for field in fields:
        _insert(shown, field.path, to_display(read_field(value, field), reveal=reveal), type(value))
    for key, each in (getattr(value, "__pydantic_extra__", None) or {}).items():
        _insert(shown, (key,), to_display(each, reveal=reveal), type(value))
    return shown


def _insert(shown: dict[str, Any], path: tuple[str | int, ...], value: Any, kind: type) -> None:
    """Insert a value at a path; raise :class:`DisplayError` if the path is already used."""
    *around, last = path
    inner: Any = shown
    for key in around:
        inner = inner.setdefault(key, {}) if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or last in inner or not all(isinstance(each, str) for each in path):
        where = ".".join(map(str, path))
        raise DisplayError(f"It cannot be shown: {kind.__name__} has no unique key for {where!r}")
    inner[last] = value


def _display_mapping(value: Mapping[Any, Any], names: Mapping[str, str], *, reveal: bool) -> dict[str, Any]:
    """Return a mapping with str keys, all of them different."""
    texts = [_display_key(key, names, reveal=reveal) for key in value]
    if len({*texts}) < len(texts) or None in texts:
        texts = _disambiguate(list(value), texts)
    return {text: to_display(each, reveal=reveal) for text, each in zip(texts, value.values(), strict=True)}


def _display_key(key: Any, names: Mapping[str, str], *, reveal: bool) -> Any:
    """Return a key as text; None if it is hidden."""
    if type(key) is str:
        return names.get(key, key)
    if hasattr(key, "get_secret_value") and not reveal:
        return None
    shown = to_display(key, reveal=reveal)
    return str.__str__(shown) if isinstance(shown, str) else json.dumps(shown)


def _disambiguate(keys: list[Any], texts: list[Any]) -> list[str]:
    """Return different texts for keys that are hidden or look alike, such as 1 and "1"."""
    taken = {text for key, text in zip(keys, texts, strict=True) if type(key) is str}
    different: list[str] = []
    for key, text in zip(keys, texts, strict=True):
        if type(key) is not str:
            text = _unused_key(HIDDEN if text is None else text, "" if text is None else type(key).__name__, taken)  # noqa: PLW2901 - the same key
            taken.add(text)
        different.append(text)
    return different


def _unused_key(text: str, kind: str, taken: set[Any]) -> str:
    """Return a text that no other key has: with the type of the key, or with a number."""
    named = [text, f"{text} ({kind})"] if kind else [text]
    numbered = (f"{text} ({number})" for number in range(2, len(taken) + 3))
    return next(each for each in (*named, *numbered) if each not in taken)


def _display_member(value: enum.Enum) -> Any:
    """Return a member of an enumeration by value, or by name if its values are not JSON scalars."""
    by_value = all(isinstance(each.value, _SCALARS) for each in type(value))
    return to_display(value.value) if by_value else value.name
