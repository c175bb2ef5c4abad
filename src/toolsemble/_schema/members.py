"""The parameters of functions and the fields of types, their names in code and in JSON, and where they are stored."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import decimal
import enum
import functools
import inspect
import pathlib
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple, Optional, get_args, get_origin
from weakref import WeakKeyDictionary

from toolsemble._schema.docstring import parse_docstring
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


Members = Callable[[type, Mapping[str, Any]], list[Field]]


def members_reader(kind: type) -> Members | None:
    """Return the reader of a type's fields; None for a type without known fields."""
    if is_pydantic(kind):
        return None  # pydantic reads its own types
    if hasattr(kind, "__attrs_attrs__"):
        return _attrs_fields
    if hasattr(kind, "__struct_fields__") and hasattr(kind, "__struct_encode_fields__"):
        return _struct_fields
    if dataclasses.is_dataclass(kind):
        return _dataclass_fields
    if hasattr(kind, "__required_keys__") and hasattr(kind, "__total__"):
        return _typed_dict_fields
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _named_tuple_fields
    return None


def describe_class(kind: type) -> str:
    """Return the summary of a class's own docstring; empty if Python generated it from the fields."""
    written = vars(kind).get("__doc__")
    # As dataclasses and named tuples generate it.
    if not isinstance(written, str) or written.startswith(f"{kind.__name__}("):
        return ""
    return parse_docstring(written).summary


def is_pydantic(kind: type) -> bool:
    """Return whether a class defines its own pydantic schema."""
    return hasattr(kind, "__get_pydantic_core_schema__") or hasattr(kind, "__pydantic_core_schema__")


def function_fields(
    function: Callable[..., Any], signature: inspect.Signature, names: Mapping[str, Any]
) -> list[Field]:
    """Return the parameters of a function; raise ToolDefinitionError for ``*args`` and untyped ``**kwargs``."""
    hints = resolve_hints(function, names)
    descriptions = parse_docstring(function.__doc__).parameters
    fields = []
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise ToolDefinitionError(
                f"parameter '*{name}': a model names its arguments; take a list instead: {name}: list[...]"
            )
        if parameter.kind is parameter.VAR_KEYWORD:
            fields += _read_keywords(name, hints.get(name, MISSING))
            continue
        default = MISSING if parameter.default is parameter.empty else parameter.default
        fields.append(resolve_field(Field(name, hints.get(name, Any), default=default), descriptions))
    return fields


def resolve_hints(source: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the annotations as types; forward references are resolved in the source's module, then in ``names``."""
    if isinstance(source, functools.partial):
        source = source.func
    elif not isinstance(source, type) and not hasattr(source, "__code__"):
        source = type(source).__call__
    local = {**names, **_read_closure(source)}
    if isinstance(source, type):
        local = {**local, source.__name__: source, **{p.__name__: p for p in getattr(source, "__type_params__", ())}}
    try:
        return typing.get_type_hints(source, None, local, include_extras=True)
    except NameError as problem:
        raise ToolDefinitionError(
            f"annotation {problem.name!r} cannot be resolved; define or import it where the annotation can see it"
        ) from None


def find_return_type(function: Any, names: Mapping[str, Any]) -> Any:
    """Return the declared return type of a function; Any if it is not declared or cannot be resolved.

    >>> def count(text: str) -> int: ...
    >>> find_return_type(count, {})
    <class 'int'>
    """
    try:
        return resolve_hints(function, names).get("return", Any)
    except Exception:  # the return type is optional information; bad annotations are reported elsewhere
        return Any


def _read_closure(source: Any) -> dict[str, Any]:
    code, cells = getattr(source, "__code__", None), getattr(source, "__closure__", None)
    found = {}
    for name, cell in zip(code.co_freevars, cells, strict=True) if code and cells else ():
        try:
            found[name] = cell.cell_contents
        except ValueError:  # an unassigned variable
            continue
    return found


def _read_keywords(name: str, hint: Any) -> list[Field]:
    """Return the fields of ``**kwargs``: an unpacked ``TypedDict``'s fields, or one open field of the declared type."""
    if getattr(get_origin(hint), "_name", None) == "Unpack" or get_origin(hint) is getattr(typing, "Unpack", None):
        (kind,) = typing.get_args(hint)
        return _typed_dict_fields(kind, {})
    if hint is MISSING or hint is Any:
        raise ToolDefinitionError(f"parameter '**{name}': declare each parameter, or annotate it: **{name}: int")
    return [Field(name, hint, open=True)]


def _typed_dict_fields(kind: type, names: Mapping[str, Any]) -> list[Field]:
    descriptions = parse_docstring(kind.__doc__).parameters
    return [
        resolve_field(Field(name, hint, optional=name not in _required_keys(kind, hint, name)), descriptions)
        for name, hint in resolve_hints(kind, names).items()
    ]


def _required_keys(kind: Any, hint: Any, name: str) -> frozenset[str]:
    # With postponed annotations, Python does not evaluate Required and NotRequired.
    qualifier = getattr(get_origin(hint), "_name", "")
    if qualifier in {"Required", "NotRequired"}:
        return frozenset({name} if qualifier == "Required" else ())
    keys: frozenset[str] = kind.__required_keys__
    return keys


def _named_tuple_fields(kind: Any, names: Mapping[str, Any]) -> list[Field]:
    descriptions, hints = parse_docstring(kind.__doc__).parameters, resolve_hints(kind, names)
    defaults = kind._field_defaults
    return [
        resolve_field(Field(name, hints.get(name, Any), default=defaults.get(name, MISSING)), descriptions)
        for name in kind._fields
    ]


def _dataclass_fields(kind: Any, names: Mapping[str, Any]) -> list[Field]:
    descriptions, hints = parse_docstring(kind.__doc__).parameters, resolve_hints(kind, names)
    fields = []
    for each in dataclasses.fields(kind):
        if not each.init:
            continue
        default = MISSING if each.default is dataclasses.MISSING else each.default
        factory = None if each.default_factory is dataclasses.MISSING else each.default_factory
        description = str(each.metadata.get("description", ""))
        field = Field(each.name, hints[each.name], description=description, default=default, factory=factory)
        fields.append(resolve_field(field, descriptions))
    return fields + _init_vars(kind, hints, descriptions)


def _init_vars(kind: Any, hints: Mapping[str, Any], descriptions: Mapping[str, str]) -> list[Field]:
    """Return the ``InitVar`` parameters of a dataclass."""
    pseudo = [name for name, hint in hints.items() if isinstance(hint, dataclasses.InitVar)]
    fields = [Field(name, hints[name].type, default=getattr(kind, name, MISSING), attribute=None) for name in pseudo]
    return [resolve_field(field, descriptions) for field in fields]


def _attrs_fields(kind: Any, names: Mapping[str, Any]) -> list[Field]:
    descriptions, hints = parse_docstring(kind.__doc__).parameters, resolve_hints(kind, names)
    fields = []
    for each in kind.__attrs_attrs__:
        if not each.init:
            continue
        description = str(each.metadata.get("description", ""))
        field = Field(each.alias, hints.get(each.name, Any), description=description, attribute=each.name)
        if hasattr(each.default, "factory"):
            # Such a factory needs the partly built object, so only the constructor can call it.
            simple = None if each.default.takes_self else each.default.factory
            field = dataclasses.replace(field, factory=simple, optional=simple is None)
        elif repr(each.default) != "NOTHING":
            # Only the constructor applies the converter to the default.
            own = {"optional": True} if each.converter is not None else {"default": each.default}
            field = dataclasses.replace(field, **own)
        fields.append(resolve_field(field, {each.alias: descriptions.get(each.name, "")}))
    return fields


def _tag_fields(kind: Any) -> list[Field]:
    """Return the msgspec tag field of a struct, if it has one."""
    config = kind.__struct_config__
    if config.tag is None:
        return []
    name, tag = config.tag_field, config.tag
    return [Field(name, Literal[tag], key=name, default=tag, constant=True, attribute=None)]


def _struct_fields(kind: Any, names: Mapping[str, Any]) -> list[Field]:
    descriptions, hints = parse_docstring(kind.__doc__).parameters, resolve_hints(kind, names)
    required = len(kind.__struct_fields__) - len(kind.__struct_defaults__)
    fields = _tag_fields(kind)
    for index, (name, key) in enumerate(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)):
        field = Field(name, hints[name], key=key)
        if index >= required:
            default = kind.__struct_defaults__[index - required]
            if hasattr(default, "factory"):
                field = dataclasses.replace(field, factory=default.factory)
            elif repr(default) != "NODEFAULT":  # a keyword-only field without a default may follow fields with one
                field = dataclasses.replace(field, default=default)
        fields.append(resolve_field(field, descriptions))
    return fields


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
    """Return the fields that the constructor of a type takes; None for a type without fields."""
    try:
        return _fields_by_type[kind]
    except KeyError:
        found = _fields_by_type[kind] = _read_fields(kind)
        return found


def names_of(kind: type) -> dict[str, str] | None:
    """Return the attributes that store a type's fields, with their JSON keys; None for a type without fields."""
    fields = stored_fields(kind)
    if fields is None:
        return None
    names = _names_by_type.get(kind)
    if names is None:
        names = _names_by_type[kind] = {each.attribute: each.key for each in fields if each.attribute is not None}
    return names


def remember(kind: type, fields: Iterable[Field]) -> None:
    """Cache a type's fields as read at the tool's definition, where more names can be resolved."""
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
    """Return a type's fields without its annotations, which cannot be resolved."""
    if hasattr(kind, "__attrs_attrs__"):
        return (StoredField(each.name, (each.alias,)) for each in kind.__attrs_attrs__ if each.init)
    if hasattr(kind, "__struct_encode_fields__"):
        pairs = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
        return (StoredField(name, (key,)) for name, key in pairs)
    if dataclasses.is_dataclass(kind):
        # dataclasses.fields() omits InitVar.
        declared: list[Any] = [each for each in kind.__dataclass_fields__.values() if each.init]
        kinds = {each.name: str(each._field_type) for each in declared}  # noqa: SLF001 - as above
        names = [name for name, what in kinds.items() if what != "_FIELD_CLASSVAR"]
        return (StoredField(None if kinds[name] == "_FIELD_INITVAR" else name, (name,)) for name in names)
    return (StoredField(name, (name,)) for name in getattr(kind, "_fields", None) or kind.__annotations__)
