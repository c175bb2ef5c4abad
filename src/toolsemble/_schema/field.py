"""Describe one parameter of a tool, or one field of a type: name, annotation, description, default."""

from __future__ import annotations

import copy
import datetime
import decimal
import enum
import pathlib
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Final, Optional, get_args, get_origin

from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.param import MemoryId, Param


class _Missing:
    """The type of MISSING, which marks a field without a default; None can be a default."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()


@dataclass(frozen=True, slots=True)
class Field:
    """One parameter or field."""

    name: str
    """The keyword argument of the function or constructor."""
    annotation: Any
    """The type, with the constraints in ``Annotated``."""
    key: str = ""
    """The name in the JSON arguments; ``name`` if empty."""
    description: str = ""
    """The description for the model."""
    examples: tuple[Any, ...] = ()
    """Example values for the model."""
    default: Any = MISSING
    """The value if the model omits the parameter."""
    factory: Callable[[], Any] | None = None
    """Returns a new default for each call."""
    optional: bool = False
    """Whether the parameter may be omitted without a default, as in a ``TypedDict``."""
    open: bool = False
    """Whether the field accepts any further keys, as ``**names: int`` does."""
    constant: bool = False
    """Whether the field is a type tag, which the constructor does not take."""
    attribute: str | None = ""
    """The attribute that holds the value; ``name`` if empty, None if there is no such attribute."""

    @property
    def required(self) -> bool:
        """Whether the model must send the parameter."""
        return self.default is MISSING and self.factory is None and not self.optional


def resolve_field(field: Field, documented: Mapping[str, str]) -> Field:
    """Return the field completed with its annotation's metadata, its default and the docstring.

    >>> resolve_field(Field("city", Annotated[str, "Its English name"]), {"city": "never used"}).description
    'Its English name'
    """
    base, metadata = _unwrap(field.annotation)
    if is_field_info(field.default):
        metadata, field = [*metadata, field.default], replace(field, default=MISSING)
    if not metadata:
        description = field.description or documented.get(field.name, "")
        return _apply_required(
            replace(field, annotation=base, key=field.key or field.name, description=description), required=None
        )
    params = [item for item in metadata if isinstance(item, Param)]
    texts = [item for item in metadata if isinstance(item, str)]
    infos = [item for item in metadata if is_field_info(item)]
    rest = [item for item in metadata if not isinstance(item, (Param, str)) and item not in infos]
    for info in infos:
        field, more = _merge_field_info(field, info)
        rest += more
    descriptions = [param.description for param in params] + texts + [info.description for info in infos]
    field = replace(
        field,
        annotation=annotate(base, rest),
        key=next((param.name for param in params if param.name), field.key) or field.name,
        description=next(filter(None, descriptions), "") or field.description or documented.get(field.name, ""),
        examples=tuple(example for param in params for example in param.examples) + field.examples,
    )
    required = [param.required for param in params if param.required is not None]
    return _apply_required(field, required=required[0] if required else None)


def default_keywords(value: Any) -> dict[str, Any]:
    """Return pydantic-core's keyword arguments for a default; mutable objects are copied for each call."""
    # Pydantic itself copies unhashable objects.
    if type(value).__hash__ is not None and not isinstance(value, _UNCHANGEABLE):
        return {"default_factory": partial(copy.deepcopy, value)}
    return {"default": value}


def annotate(base: Any, metadata: list[Any]) -> Any:
    """Return ``Annotated[base, *metadata]``, or ``base`` if there is no metadata."""
    return Annotated[base, *metadata] if metadata else base


def is_field_info(item: object) -> bool:
    """Return whether an object is a pydantic ``FieldInfo``, without importing pydantic."""
    return type(item).__name__ == "FieldInfo" and type(item).__module__ == "pydantic.fields"


def is_memory_id(annotation: Any) -> bool:
    """Return whether the parameter is annotated with ``MemoryId``."""
    return any(item is MemoryId or isinstance(item, MemoryId) for item in _unwrap(annotation)[1])


def accepts_none(annotation: Any) -> bool:
    """Return whether None is a value of the type."""
    base = _unwrap(annotation)[0]
    if base in (None, type(None), Any, object):
        return True
    if get_origin(base) in (typing.Union, types.UnionType):
        return any(accepts_none(option) for option in get_args(base))
    return get_origin(base) is typing.Literal and None in get_args(base)


_UNCHANGEABLE = (
    str, bytes, int, float, complex, type(None), type, enum.Enum, datetime.date, datetime.time, datetime.timedelta,
    decimal.Decimal, uuid.UUID, pathlib.PurePath,
)  # fmt: skip
_QUALIFIERS = {"Required", "NotRequired", "ReadOnly", "Final", "ClassVar", "InitVar"}


def _unwrap(annotation: Any) -> tuple[Any, list[Any]]:
    """Return the type inside ``Annotated`` and qualifiers, and the metadata, outermost first."""
    metadata: list[Any] = []
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *more = get_args(annotation)
            metadata = [*more, *metadata] if not metadata else [*metadata, *more]
        elif getattr(get_origin(annotation), "_name", None) in _QUALIFIERS:
            (annotation,) = get_args(annotation)
        else:
            return annotation, metadata


def _merge_field_info(field: Field, info: Any) -> tuple[Field, list[Any]]:
    """Return the field with a pydantic ``Field``'s default and alias, and the remaining constraints."""
    from pydantic import Field as Info
    from pydantic_core import PydanticUndefined

    changes: dict[str, Any] = {}
    if field.default is MISSING and info.default is not PydanticUndefined and info.default is not ...:
        changes["default"] = info.default
    if info.default_factory is not None:
        if info.default_factory_takes_validated_data:
            raise ToolDefinitionError(
                f"parameter '{field.name}': a default factory that takes data needs a pydantic model"
            )
        changes["factory"] = info.default_factory
    choices = getattr(info.validation_alias, "choices", [info.validation_alias])
    alias = next((choice for choice in choices if isinstance(choice, str)), info.alias)
    if alias:
        changes["key"] = alias
    if info.examples:
        changes["examples"] = tuple(info.examples)
    rest = list(info.metadata)
    if info.discriminator is not None:
        rest.append(Info(discriminator=info.discriminator))
    return replace(field, **changes), rest


def _apply_required(field: Field, *, required: bool | None) -> Field:
    """Return the field with ``Param(required=...)`` applied, and with None as an allowed value if it is the default."""
    if required is True:
        return replace(field, default=MISSING, factory=None, optional=False)
    if required is False and field.required:
        field = replace(field, default=None)
    if field.default is None and not accepts_none(field.annotation):
        return replace(field, annotation=Optional[field.annotation])  # noqa: UP045 - the | operator rejects some annotations
    return field
