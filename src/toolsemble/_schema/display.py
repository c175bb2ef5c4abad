"""Convert values to JSON for display, and check that the displayed form is complete.

A constructor or a validator may store values where they are not displayed, and a value of an undeclared type may look
like another one. Both are detected by validating the displayed form.
"""

from __future__ import annotations

import enum
import json
import math
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from types import FunctionType, MethodType
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from toolsemble._runtime.text import HIDDEN
from toolsemble._schema.argument_problems import MismatchError
from toolsemble._schema.members import MISSING, StoredField, names_of, stored_fields
from toolsemble._vocabulary.errors import ToolArgumentsError

_AS_THEY_ARE = frozenset({str, int, bool, type(None)})
_STR = frozenset({str})
_SCALARS = (str, int, float, bool, type(None))


class DisplayError(ToolArgumentsError):
    """A part of a value cannot be displayed, so that it cannot be approved or compared."""


def to_display(value: Any, keys: Mapping[str, str] | None = None, *, reveal: bool = False) -> Any:
    """Return a value as new JSON values; ``keys`` maps dict keys to the keys that the model uses.

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
        # Sorted, because processes iterate a set in different orders.
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
    except Exception:  # a user's object can raise anything; the enclosing value is still shown
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
    """Return distinct texts for keys that are hidden or look alike, such as 1 and "1"."""
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


Place: TypeAlias = tuple[Any, ...]
"""A path in a value: attributes, keys and indices, outermost first."""


class Difference(NamedTuple):
    """One difference between two values."""

    place: Place
    """The path of the difference."""
    is_scalar: bool
    """Whether both are scalars of one type; otherwise the types or sizes differ."""


_JSON = (str, int, float, bool, type(None))
_LISTS = (list, tuple, deque)
_SETS = (set, frozenset)
_TYPE_KEY = "$python"
_known_slots: WeakKeyDictionary[type, tuple[str, ...]] = WeakKeyDictionary()
_known_cached: WeakKeyDictionary[type, frozenset[str]] = WeakKeyDictionary()
_ATTRS_HASH = "_attrs_cached_hash"
# Attributes that are not part of the value.
_IGNORED_ATTRIBUTES = {"__weakref__", "__dict__", "__pydantic_fields_set__", "keys_shown", _ATTRS_HASH}


def is_json(value: Any) -> bool:
    """Return whether a value consists of JSON types, and cannot be mistaken for a value with its type.

    >>> is_json({"a": [1, None]}), is_json({"a": (1,)}), is_json({1: "a"})
    (True, False, False)
    """
    kind = type(value)
    if kind is list:
        return all(map(is_json, value))
    if kind is dict:
        return all(type(key) is str and key != _TYPE_KEY for key in value) and all(map(is_json, value.values()))
    return kind in _JSON and (kind is not float or math.isfinite(value))


def has_other_attributes(value: Any) -> bool:
    """Return whether an object in a value has attributes that are not fields.

    >>> has_other_attributes([{"a": 1}])
    False
    """
    kind = type(value)
    if kind in _JSON:
        return False
    if isinstance(value, dict):
        return any(map(has_other_attributes, value)) or any(map(has_other_attributes, value.values()))
    if isinstance(value, (*_LISTS, *_SETS)):
        return bool(_state(value)) or any(map(has_other_attributes, value))
    if hasattr(kind, "get_secret_value"):
        return has_other_attributes(value.get_secret_value())
    fields = names_of(kind) or {}
    return any(name not in fields or has_other_attributes(each) for name, each in _state(value).items())


def is_faithful(value: Any, again: Callable[[], Any]) -> bool:
    """Return whether the displayed form gives an equal value; raise :class:`DisplayError` if a difference is hidden.

    :param again: validates the displayed form; objects may differ each time, for example in a lock or an id
    """
    found = again()
    if _has_type_key(found):
        return False
    wrong = set(find_differences(value, found))
    if not wrong:
        return True
    wrong -= set(find_differences(found, again()))
    for each in wrong:
        if kind := find_hidden_type(value, each.place):
            raise DisplayError(
                f"It cannot be shown: {kind.__name__} keeps something in {each.place[-1]!r} that is not a field"
            )
    # A scalar that a validator changes each time is shown unchanged.
    return all(each.is_scalar for each in wrong)


def find_differences(one: Any, other: Any, place: Place = ()) -> Iterator[Difference]:
    """Yield the differences of two values, including attributes that are not fields.

    >>> list(find_differences({"a": [1, 2]}, {"a": [1, True]}))
    [Difference(place=('a', 1), is_scalar=False)]
    """
    kind = type(one)
    if kind is not type(other):
        yield Difference(place, is_scalar=False)
    elif hasattr(kind, "get_secret_value"):
        yield from find_differences(one.get_secret_value(), other.get_secret_value(), place)
    elif isinstance(one, enum.Enum):
        yield from () if one is other else (Difference(place, is_scalar=True),)
    else:
        state = _state(one)
        yield from _state_differences(state, _state(other), place)
        yield from _content_differences(one, other, place, scalar=not state)


def find_hidden_type(value: Any, place: Place) -> type | None:
    """Return the type of the first object on a path with a hidden attribute; None if all are displayed.

    >>> find_hidden_type({"a": 1}, ("a",)) is None
    True
    """
    for step in place:
        inner = value.get_secret_value() if hasattr(value, "get_secret_value") else value
        if isinstance(inner, (Mapping, *_LISTS)) and not _state(inner):
            value = inner[step]
            continue
        if step != "__pydantic_extra__" and step not in (names_of(type(inner)) or {}):
            return type(inner)
        value = getattr(inner, step, None)
    return None


def to_typed_json(value: Any, *, reveal: bool = False) -> Any:
    """Return a value as unambiguous JSON with types, for values whose displayed form is ambiguous.

    Secrets are hidden unless ``reveal`` is true.

    >>> to_typed_json({"a": (1, 2), "b": b"ok"})
    {'a': {'$python': 'tuple', 'items': [1, 2]}, 'b': {'$python': 'bytes', 'text': 'b2s='}}
    """
    kind = type(value)
    if is_json(value) and not isinstance(value, (list, dict)):
        return value
    convert = partial(to_typed_json, reveal=reveal)
    if kind is list:
        return list(map(convert, value))
    if isinstance(value, dict) and all(type(key) is str and key != _TYPE_KEY for key in value) and not _state(value):
        return {key: convert(each) for key, each in value.items()}
    name = kind.__qualname__ if _is_standard(kind) else f"{kind.__module__}.{kind.__qualname__}"
    if hasattr(kind, "get_secret_value"):
        return {_TYPE_KEY: name, "secret": convert(value.get_secret_value())} if reveal else HIDDEN
    return {_TYPE_KEY: name, **{key: convert(each) for key, each in _state(value).items()}, **_content(value, convert)}


def _has_type_key(value: Any) -> bool:
    """Return whether a value contains a dict with the type marker key."""
    if isinstance(value, dict):
        return _TYPE_KEY in value or any(map(_has_type_key, value.values()))
    return isinstance(value, list) and any(map(_has_type_key, value))


def _content(value: Any, convert: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the content of an object besides its attributes: entries, items, or the text of a scalar."""
    if isinstance(value, Mapping):
        return {"entries": sorted(([convert(key), convert(each)] for key, each in value.items()), key=repr)}
    if isinstance(value, _LISTS):
        return {"items": list(map(convert, value))}
    if isinstance(value, _SETS):
        return {"items": sorted(map(convert, value), key=repr)}
    if isinstance(value, enum.Enum):
        return {"name": value.name}
    if _state(value) and not isinstance(value, (str, int, float)):
        return {}
    return {"text": _text(value)}


def _text(value: Any) -> Any:
    """Return the text of a scalar; raise :class:`DisplayError` if the text does not identify the value."""
    text, kind = scalar_to_json(value), type(value)
    if isinstance(value, (str, int, float, bytes)) or _are_equal(_rebuild(kind, text), value):
        return text
    raise DisplayError(f"It cannot be shown: the content of a {kind.__qualname__} is unknown")


def _rebuild(kind: Any, text: Any) -> Any:
    from pydantic import TypeAdapter

    try:
        return TypeAdapter(kind).validate_python(text)
    except Exception:  # a custom class can raise anything
        return None


def _content_differences(one: Any, other: Any, place: Place, *, scalar: bool) -> Iterator[Difference]:
    if isinstance(one, Mapping):
        yield from _key_differences(one, other, place)
    elif isinstance(one, _LISTS):
        yield from _item_differences(one, other, place)
    elif isinstance(one, _SETS):
        if sorted(map(repr, one)) != sorted(map(repr, other)):
            yield Difference(place, is_scalar=False)
    elif scalar and one is not other and (not _are_equal(one, other) or repr(one) != repr(other)):
        yield Difference(place, is_scalar=_is_standard(type(one)))  # the text of other types may be incomplete


def _are_equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal; False if the comparison fails, as for arrays."""
    try:
        return bool(one == other)
    except Exception:  # a custom class can raise anything
        return False


def _state_differences(one: Mapping[str, Any], other: Mapping[str, Any], place: Place) -> Iterator[Difference]:
    for name in {**one, **other}:
        if name in one and name in other:
            yield from find_differences(one[name], other[name], (*place, name))
        else:
            yield Difference((*place, name), is_scalar=False)


def _key_differences(one: Mapping[Any, Any], other: Mapping[Any, Any], place: Place) -> Iterator[Difference]:
    kinds = {key: type(key) for key in other}
    if len(one) != len(other) or any(kinds.get(key) is not type(key) for key in one):
        yield Difference(place, is_scalar=False)
        return
    for key, each in one.items():
        yield from find_differences(each, other[key], (*place, key))


def _item_differences(one: Any, other: Any, place: Place) -> Iterator[Difference]:
    if len(one) != len(other):
        yield Difference(place, is_scalar=False)
        return
    for index, (each, its) in enumerate(zip(one, other, strict=True)):
        yield from find_differences(each, its, (*place, index))


def _state(value: Any) -> dict[str, Any]:
    """Return the attributes that an object stores: in its dict, in slots, or as struct fields."""
    kind = type(value)
    if kind in _JSON or kind in _LISTS or kind is dict or isinstance(value, enum.Enum):
        return {}
    if isinstance(value, (FunctionType, MethodType, partial)):
        return _function_state(value)
    found = {name: getattr(value, name) for name in _slots(kind) if hasattr(value, name)}
    slots = {name: each for name, each in found.items() if each is not None or not name.startswith("__pydantic")}
    if own := getattr(value, "__dict__", {}):
        cached = _cached_attributes(kind)
        slots.update((name, each) for name, each in own.items() if name not in cached)
    return slots


def _cached_attributes(kind: type) -> frozenset[str]:
    """Return the attributes in which objects of a type cache computed values."""
    known = _known_cached.get(kind)
    if known is None:
        names = {name: each for base in kind.__mro__ for name, each in vars(base).items()}
        cached = [name for name, each in names.items() if isinstance(each, cached_property)]
        known = _known_cached[kind] = frozenset({*cached, _ATTRS_HASH})
    return known


def _function_state(function: Any) -> dict[str, Any]:
    """Return the state of a function besides its code."""
    if isinstance(function, MethodType):
        return {"__self__": function.__self__, "__func__": function.__func__}
    if isinstance(function, partial):
        return {"func": function.func, "args": function.args, "keywords": function.keywords}
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return {"__code__": function.__code__, "__closure__": cells, "__defaults__": function.__defaults__}


def _slots(kind: type) -> tuple[str, ...]:
    """Return the names of the attributes that objects of a type store outside their dict."""
    known = _known_slots.get(kind)
    if known is None:
        names = [name for base in kind.__mro__ if not _is_standard(base) for name in _own_slots(base)]
        names += getattr(kind, "__struct_fields__", ())
        known = _known_slots[kind] = tuple(name for name in names if name not in _IGNORED_ATTRIBUTES)
    return known


def _own_slots(base: type) -> list[str]:
    slots = vars(base).get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    private = f"_{base.__name__.lstrip('_')}"  # name mangling
    return [f"{private}{name}" if name.startswith("__") and not name.endswith("__") else name for name in names]


def _is_standard(kind: type) -> bool:
    """Return whether a type belongs to the standard library; its slots may hold cached values."""
    return kind.__module__.partition(".")[0] in sys.stdlib_module_names
