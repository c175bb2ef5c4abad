"""Map the fields of a type to the attributes that store them, and to the keys in the JSON arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from toolsemble._schema.field import MISSING, Field
from toolsemble._schema.members import members_reader
from toolsemble._vocabulary.errors import ToolDefinitionError


class StoredField(NamedTuple):
    """One field of a type: its attribute and its key."""

    attribute: str | None
    """The attribute that stores the field; None if no attribute does."""
    path: tuple[str | int, ...]
    """The key in the JSON arguments; several keys for a nested alias, outermost first."""
    constant: Any = MISSING
    """The constant value of a type tag, which no object stores."""

    @property
    def key(self) -> str:
        """The key in the JSON arguments; the attribute if there are several keys."""
        return str(self.path[0] if len(self.path) == 1 else self.attribute)


# Reading annotations is slow, and a pipeline needs the fields at each call.
_fields_by_type: WeakKeyDictionary[type, tuple[StoredField, ...] | None] = WeakKeyDictionary()
_names_by_type: WeakKeyDictionary[type, dict[str, str]] = WeakKeyDictionary()


def stored_fields(kind: type) -> tuple[StoredField, ...] | None:
    """Return the fields that the constructor of a type takes; None for a type without fields.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Point:
    ...     x: int
    >>> stored_fields(Point) == (StoredField("x", ("x",)),), stored_fields(int)
    (True, None)
    """
    try:
        return _fields_by_type[kind]
    except KeyError:
        found = _fields_by_type[kind] = _read_fields(kind)
        return found


def names_of(kind: type) -> dict[str, str] | None:
    """Return the attributes that store a type's fields, with their JSON keys; None for a type without fields.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Point:
    ...     x: int
    >>> names_of(Point), names_of(int)
    ({'x': 'x'}, None)
    """
    fields = stored_fields(kind)
    if fields is None:
        return None
    names = _names_by_type.get(kind)
    if names is None:
        names = _names_by_type[kind] = {each.attribute: each.key for each in fields if each.attribute is not None}
    return names


def remember(kind: type, fields: Iterable[Field]) -> None:
    """Cache the fields of a type as read where a tool is defined, where more names can be resolved."""
    _fields_by_type[kind] = tuple(_from_fields(fields))
    _names_by_type.pop(kind, None)


def _read_fields(kind: type) -> tuple[StoredField, ...] | None:
    if getattr(kind, "__pydantic_fields__", None) is not None:
        return tuple(_from_pydantic(kind))
    read = members_reader(kind)
    if read is None:
        return None
    try:
        return tuple(_from_fields(read(kind, {})))
    except ToolDefinitionError:  # annotations that can only be resolved where the tool is defined
        return tuple(_from_names(kind))


def _from_fields(fields: Iterable[Field]) -> Iterator[StoredField]:
    for each in fields:
        attribute = None if each.attribute is None else each.attribute or each.name
        yield StoredField(attribute, (each.key or each.name,), each.default if each.constant else MISSING)


def _from_pydantic(kind: Any) -> Iterator[StoredField]:
    config = getattr(kind, "model_config", None) or getattr(kind, "__pydantic_config__", None) or {}
    by_alias = config.get("validate_by_alias") is not False
    for name, info in kind.__pydantic_fields__.items():
        if info.init is False:
            continue  # a dataclass field with init=False
        path = _alias_path(info) if by_alias else None
        yield StoredField(None if info.init_var else name, path or (name,))


def _alias_path(info: Any) -> tuple[str | int, ...] | None:
    """Return the keys of a field with an alias: the first alias that is a plain key, if there is one."""
    alias = info.validation_alias if info.validation_alias is not None else info.alias
    choices = getattr(alias, "choices", [alias])
    plain = next((each for each in choices if isinstance(each, str)), None)
    if plain is not None:
        return (plain,)
    return None if alias is None else tuple(choices[0].path)


def _from_names(kind: Any) -> Iterator[StoredField]:
    """Return the fields of a type without its annotations, which cannot be resolved."""
    if hasattr(kind, "__attrs_attrs__"):
        return (StoredField(each.name, (each.alias,)) for each in kind.__attrs_attrs__ if each.init)
    if hasattr(kind, "__struct_encode_fields__"):
        pairs = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
        return (StoredField(name, (key,)) for name, key in pairs)
    if dataclasses.is_dataclass(kind):
        # dataclasses.fields() leaves out InitVar.
        declared: list[Any] = [each for each in kind.__dataclass_fields__.values() if each.init]
        kinds = {each.name: str(each._field_type) for each in declared}  # noqa: SLF001 - as above
        names = [name for name, what in kinds.items() if what != "_FIELD_CLASSVAR"]
        return (StoredField(None if kinds[name] == "_FIELD_INITVAR" else name, (name,)) for name in names)
    return (StoredField(name, (name,)) for name in getattr(kind, "_fields", None) or kind.__annotations__)
