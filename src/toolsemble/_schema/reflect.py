"""Convert Python types to types that pydantic validates JSON into, at every depth.

Pydantic handles scalars, containers and its own models. Dataclasses, typed dicts, named tuples, attrs classes and
msgspec structs are read here, field by field, so that all behave alike: unknown keys are rejected, descriptions are
kept, and objects are created by the author's own constructor.
"""

from __future__ import annotations

import collections
import collections.abc
import decimal
import enum
import ipaddress
import numbers
import pathlib
import re
import typing
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ForwardRef, Literal, NewType, NoReturn, TypeVar, Union, get_args, get_origin

from toolsemble._schema.members import Field, annotate, describe_class, is_pydantic, members_reader, remember
from toolsemble._schema.pydantic_schema import TEMPORAL, EnumMember, ExactLiteral, ScalarSubclass, Shape, Temporal
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.param import Param

_SCALARS = {
    str, int, float, bool, bytes, type(None), object, list, dict, tuple, set, frozenset, collections.deque,
    decimal.Decimal, uuid.UUID,
    pathlib.Path, pathlib.PurePath, pathlib.PurePosixPath, re.Pattern,
    ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network,
}  # fmt: skip
_LISTS = {collections.abc.Iterable, collections.abc.Collection, collections.abc.Container}
_UNSUPPORTED = {
    collections.abc.Callable, collections.abc.Iterator, collections.abc.Generator, collections.abc.AsyncIterator,
    collections.abc.AsyncIterable, collections.abc.AsyncGenerator, collections.abc.Awaitable, collections.abc.Coroutine,
    type,
}  # fmt: skip
_JSON_SCALARS = (str, int, float, bool, type(None))


@dataclass(frozen=True, slots=True)
class Scope:
    """The context of a type: its place for errors, and the meaning of its names."""

    place: str
    """The parameter, for error messages."""
    names: Mapping[str, Any] = field(default_factory=dict)
    """Names for forward references, beside those of the module."""
    variables: Mapping[Any, Any] = field(default_factory=dict)
    """The values of type variables."""
    owner: Any = None
    """The meaning of ``Self``."""
    shapes: dict[Any, Shape] = field(default_factory=dict)
    """The types that are read field by field; shared, because types may contain themselves."""
    aliases: frozenset[Any] = frozenset()
    """The recursive aliases that enclose this type."""

    def refuse(self, what: Any, advice: str) -> NoReturn:
        """Raise ToolDefinitionError for a type, with its place and advice."""
        name = getattr(what, "__name__", None) or str(what)
        raise ToolDefinitionError(f"{self.place}: {name} cannot be sent by a model; {advice}")


def adapt_type(kind: Any, scope: Scope) -> Any:
    """Return the type in a form that pydantic validates as specified here; raise for types that JSON cannot represent.

    >>> adapt_type(list[int], Scope("parameter 'n'"))
    list[int]
    """
    origin = get_origin(kind)
    if origin is Annotated:
        base, *metadata = get_args(kind)
        inner = adapt_type(base, scope)
        converted = [each for item in metadata for each in _convert_metadata(item)]
        return annotate(inner, [item for item in converted if not _is_shape_discriminator(item, inner)])
    if origin in (Union, typing.get_origin(int | str)):
        return Union[tuple(adapt_type(option, scope) for option in get_args(kind))]  # noqa: UP007 - options are computed
    if origin is Literal:
        return kind if all(isinstance(value, str) for value in get_args(kind)) else Annotated[kind, ExactLiteral()]
    if origin is not None:
        return _adapt_generic(kind, origin, scope)
    if isinstance(kind, type):
        return _adapt_class(kind, scope)
    return _adapt_special_form(kind, scope)


def _adapt_special_form(kind: Any, scope: Scope) -> Any:
    """Return the adapted meaning of a type variable, a ``NewType``, a forward reference or another non-class."""
    if kind is None or kind is Any or kind is Ellipsis:
        return kind
    if isinstance(kind, TypeVar):
        bound = scope.variables.get(kind) or kind.__bound__ or getattr(kind, "__default__", None)
        options = kind.__constraints__
        known = bound is not None and "NoDefault" not in repr(bound)
        return adapt_type(bound, scope) if known else adapt_type(Union[options], scope) if options else Any  # noqa: UP007 - a union of a tuple
    if isinstance(kind, NewType):
        return adapt_type(kind.__supertype__, scope)
    if isinstance(kind, (str, ForwardRef)):
        return _adapt_forward_reference(kind if isinstance(kind, str) else kind.__forward_arg__, scope)
    name = getattr(kind, "_name", "")
    if name == "Self" and scope.owner is not None:
        return adapt_type(scope.owner, scope)
    if name == "LiteralString":
        return str
    if hasattr(kind, "__value__"):
        return _adapt_alias(kind, kind, {}, scope)
    return scope.refuse(kind, "use a type that JSON can hold")


def _adapt_forward_reference(name: str, scope: Scope) -> Any:
    """Return the adapted meaning of a forward reference in an alias: the alias itself, or a name in scope."""
    known = {**scope.names, **{alias.__name__: alias for alias in scope.aliases}}
    if name not in known:
        scope.refuse(repr(name), "define or import it where the annotation can see it")
    return adapt_type(known[name], scope)


def _adapt_alias(kind: Any, alias: Any, variables: dict[Any, Any], scope: Scope) -> Any:
    """Return the adapted value of a ``type`` alias; a recursive alias is left to pydantic."""
    if alias in scope.aliases:
        return kind
    inner = replace(scope, variables={**scope.variables, **variables}, aliases=scope.aliases | {alias})
    value = adapt_type(alias.__value__, inner)
    return kind if _mentions(value, alias) else value


def _mentions(kind: Any, alias: Any) -> bool:
    return kind is alias or any(_mentions(inner, alias) for inner in get_args(kind))


def _adapt_generic(kind: Any, origin: Any, scope: Scope) -> Any:
    arguments = get_args(kind)
    if hasattr(origin, "__value__"):
        return _adapt_alias(kind, origin, dict(zip(origin.__type_params__, arguments, strict=True)), scope)
    if origin in _UNSUPPORTED:
        scope.refuse(kind, "take data, and let the tool decide what to do with it")
    if not arguments:
        return kind
    if isinstance(origin, type) and (reader := members_reader(origin)):
        return _adapt_fields(kind, origin, reader, scope)
    if origin in _LISTS:
        return list[adapt_type(arguments[0], scope)]  # type: ignore[misc]  # computed at run time, for pydantic
    return origin[tuple(adapt_type(each, scope) for each in arguments)]


def _adapt_class(kind: type, scope: Scope) -> Any:
    if kind in TEMPORAL:
        return Annotated[kind, Temporal(kind)]
    if kind in _SCALARS:
        return kind
    if kind in _NUMBERS:
        return _NUMBERS[kind]()
    if kind in _UNSUPPORTED or issubclass(kind, type):
        scope.refuse(kind, "take data, and let the tool decide what to do with it")
    if issubclass(kind, enum.Enum):
        return _adapt_enum(kind, scope)
    if is_pydantic(kind):
        return kind
    if any(base.__module__ == "pydantic.v1.main" for base in kind.__mro__):
        scope.refuse(kind, "it is a model of pydantic v1; use v2: from pydantic import BaseModel")
    if reader := members_reader(kind):
        return _adapt_fields(kind, kind, reader, scope)
    for base in (str, int, float):
        if issubclass(kind, base):
            return Annotated[base, ScalarSubclass(kind)]
    return _check_known_class(kind, scope)


def _any_number() -> Any:
    """Return the type of any JSON number: an int stays one, as a float would lose digits of a long one."""
    from pydantic import WithJsonSchema

    return Annotated[int | float, WithJsonSchema({"type": "number"})]


_NUMBERS: dict[type, Callable[[], Any]] = {
    numbers.Number: _any_number, numbers.Real: _any_number, numbers.Integral: lambda: int,
}  # fmt: skip


def _check_known_class(kind: type, scope: Scope) -> Any:
    """Return a class that pydantic knows; raise ToolDefinitionError for any other."""
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticSchemaGenerationError

    try:
        TypeAdapter(kind)
    except PydanticSchemaGenerationError:
        scope.refuse(
            kind,
            "use a dataclass, a pydantic model or another type with typed fields. What the program provides, such as "
            "a connection, comes from a parameter of type InvocationParameters or ToolContext, or from the object of a "
            "@tool method",
        )
    return kind


def _adapt_enum(kind: type[enum.Enum], scope: Scope) -> Any:
    """Return an enumeration that is read by value, or by name if its values are not JSON scalars."""
    if issubclass(kind, enum.Flag):
        scope.refuse(kind, "take a list of the members of an Enum")
    own = kind._missing_.__func__ is not enum.Enum._missing_.__func__  # type: ignore[attr-defined]  # a class method
    if own or all(isinstance(member.value, str) for member in kind):
        return kind
    by_value = all(isinstance(member.value, _JSON_SCALARS) for member in kind)
    return Annotated[Any, EnumMember(kind, by_value)]


def _is_shape_discriminator(item: Any, kind: Any) -> bool:
    """Return whether an item is a discriminator of types that are read here; pydantic supports only its own."""
    shapes = [option for option in get_args(kind) if any(isinstance(part, Shape) for part in get_args(option)[1:])]
    return bool(shapes) and getattr(item, "discriminator", None) is not None


def _convert_metadata(item: Any) -> list[Any]:
    """Return an item of the metadata in pydantic's form: descriptions, and the constraints of msgspec."""
    from pydantic import Field as Info

    if isinstance(item, Param):
        return [Info(description=item.description or None, examples=list(item.examples) or None)]
    if isinstance(item, str):
        return [Info(description=item)]
    if type(item).__module__.startswith("msgspec") and type(item).__name__ == "Meta":
        names = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "description", "title")
        constraints = {name: getattr(item, name) for name in names if getattr(item, name) is not None}
        return [Info(**constraints)]
    return [item]


def _adapt_fields(kind: Any, origin: type, reader: Callable[..., list[Field]], scope: Scope) -> Any:
    """Return a type whose fields are read here."""
    shape = scope.shapes.get(kind)
    if shape is None:
        ref = f"toolsemble.{origin.__qualname__}.{len(scope.shapes)}"
        shape = scope.shapes[kind] = Shape(origin, ref, description=describe_class(origin))
        variables = {**scope.variables, **_bind_type_variables(origin, get_args(kind))}
        fields = reader(origin, scope.names)
        remember(origin, fields)
        for each in fields:
            place = f"{scope.place}, field '{each.name}' of {origin.__name__}"
            inner = replace(scope, place=place, variables=variables, owner=kind)
            shape.fields.append((each, adapt_type(each.annotation, inner)))
    return Annotated[Any, shape]


def _bind_type_variables(origin: Any, arguments: tuple[Any, ...]) -> dict[Any, Any]:
    """Return the values of the type variables of a class and of its generic bases."""
    known = dict(zip(getattr(origin, "__parameters__", ()), arguments, strict=False))
    for base in getattr(origin, "__mro__", ()):
        for generic in vars(base).get("__orig_bases__", ()):
            parameters = getattr(get_origin(generic), "__parameters__", ())
            bound = (known.get(each, each) for each in get_args(generic))
            known |= {name: each for name, each in zip(parameters, bound, strict=False) if name is not each}
    return known
