"""Python types to something that pydantic can read JSON into, at every depth.

Pydantic knows scalars, containers and its own models. Dataclasses, typed dicts, named tuples, attrs classes and msgspec
structs are read here, field by field, so that all of them behave alike: unknown keys are refused, descriptions are
kept, and the constructor that the author wrote is the one that makes the object.
"""

from __future__ import annotations

import collections
import collections.abc
import datetime
import decimal
import enum
import ipaddress
import pathlib
import re
import typing
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ForwardRef, Literal, NewType, NoReturn, TypeVar, Union, get_args, get_origin

from toolsemble.errors import ToolDefinitionError
from toolsemble.param import Param
from toolsemble.schema.field import Field, annotated, given_default
from toolsemble.schema.members import members_reader
from toolsemble.schema.words import FORMATS, one_of

_SCALARS = {
    str, int, float, bool, bytes, type(None), object, list, dict, tuple, set, frozenset, collections.deque,
    decimal.Decimal, uuid.UUID,
    pathlib.Path, pathlib.PurePath, pathlib.PurePosixPath, re.Pattern,
    ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network,
}  # fmt: skip
_TEMPORAL: dict[Any, str] = {
    datetime.date: "date",
    datetime.datetime: "date-time",
    datetime.time: "time",
    datetime.timedelta: "duration",
}
_LISTS = {collections.abc.Iterable, collections.abc.Collection, collections.abc.Container}
_REFUSED = {
    collections.abc.Callable, collections.abc.Iterator, collections.abc.Generator, collections.abc.AsyncIterator,
    collections.abc.AsyncIterable, collections.abc.AsyncGenerator, collections.abc.Awaitable, collections.abc.Coroutine,
    type,
}  # fmt: skip
_NUMBER = re.compile(r"\s*[+-]?[\d.]+\s*")
CONFIG: Any = {"val_json_bytes": "base64", "allow_inf_nan": False}
"""How pydantic reads our shapes: bytes are base64, and JSON has no infinity."""

_JSON_SCALARS = (str, int, float, bool, type(None))


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a type stands: what its names mean, and how errors call the place."""

    place: str
    """The parameter, for errors."""
    names: Mapping[str, Any] = field(default_factory=dict)
    """What forward references may mean beside a module's own names."""
    variables: Mapping[Any, Any] = field(default_factory=dict)
    """What type variables stand for."""
    owner: Any = None
    """What ``Self`` stands for."""
    shapes: dict[Any, Shape] = field(default_factory=dict)
    """The types whose fields are read by us, each once: they may contain themselves."""
    aliases: frozenset[Any] = frozenset()
    """The recursive aliases around this place."""

    def refuse(self, what: Any, advice: str) -> NoReturn:
        """Refuse a type, with the place and the way out."""
        name = getattr(what, "__name__", None) or str(what)
        raise ToolDefinitionError(f"{self.place}: {name} cannot be asked of a model; {advice}")


def adapted(kind: Any, scope: Scope) -> Any:
    """Give the type in a form that pydantic reads as we want; refuse what a model cannot send.

    >>> adapted(list[int], Scope("parameter 'n'"))
    list[int]
    """
    origin = get_origin(kind)
    if origin is Annotated:
        base, *metadata = get_args(kind)
        inner = adapted(base, scope)
        return annotated(inner, [item for item in _constraints(metadata) if not _tells_shapes_apart(item, inner)])
    if origin in (Union, typing.get_origin(int | str)):
        return Union[tuple(adapted(option, scope) for option in get_args(kind))]  # noqa: UP007 - options are computed
    if origin is Literal:
        return kind if all(isinstance(value, str) for value in get_args(kind)) else Annotated[kind, Exact()]
    if origin is not None:
        return _generic(kind, origin, scope)
    if isinstance(kind, type):
        return _class(kind, scope)
    return _special(kind, scope)


def _special(kind: Any, scope: Scope) -> Any:
    """Give what a form that is no class stands for."""
    if kind is None or kind is Any or kind is Ellipsis:
        return kind
    if isinstance(kind, TypeVar):
        bound = scope.variables.get(kind) or kind.__bound__ or getattr(kind, "__default__", None)
        options = kind.__constraints__
        known = bound is not None and "NoDefault" not in repr(bound)
        return adapted(bound, scope) if known else adapted(Union[options], scope) if options else Any  # noqa: UP007
    if isinstance(kind, NewType):
        return adapted(kind.__supertype__, scope)
    if isinstance(kind, (str, ForwardRef)):
        return _forward(kind if isinstance(kind, str) else kind.__forward_arg__, scope)
    name = getattr(kind, "_name", "")
    if name == "Self" and scope.owner is not None:
        return adapted(scope.owner, scope)
    if name == "LiteralString":
        return str
    if hasattr(kind, "__value__"):
        return _alias(kind, kind, {}, scope)
    return scope.refuse(kind, "use a type that JSON can hold")


def _forward(name: str, scope: Scope) -> Any:
    """Give what a name stands for that an alias mentions before it is there: itself, or a name around it."""
    known = {**scope.names, **{alias.__name__: alias for alias in scope.aliases}}
    if name not in known:
        scope.refuse(repr(name), "define or import it where the annotation can see it")
    return adapted(known[name], scope)


def _alias(kind: Any, alias: Any, variables: dict[Any, Any], scope: Scope) -> Any:
    """Give what a ``type`` alias stands for; one that contains itself stays as it is, for pydantic knows those."""
    if alias in scope.aliases:
        return kind
    inner = Scope(
        scope.place,
        scope.names,
        {**scope.variables, **variables},
        scope.owner,
        scope.shapes,
        scope.aliases | {alias},
    )
    value = adapted(alias.__value__, inner)
    return kind if _mentions(value, alias) else value


def _mentions(kind: Any, alias: Any) -> bool:
    return kind is alias or any(_mentions(inner, alias) for inner in get_args(kind))


def _generic(kind: Any, origin: Any, scope: Scope) -> Any:
    arguments = get_args(kind)
    if hasattr(origin, "__value__"):
        return _alias(kind, origin, dict(zip(origin.__type_params__, arguments, strict=True)), scope)
    if origin in _REFUSED:
        scope.refuse(kind, "take data, and let the tool decide what to do with it")
    if not arguments:
        return kind
    if isinstance(origin, type) and (reader := members_reader(origin)):
        return _shaped(kind, origin, reader, scope)
    if origin in _LISTS:
        return list[adapted(arguments[0], scope)]  # type: ignore[misc]  # computed at run time, for pydantic
    return origin[tuple(adapted(each, scope) for each in arguments)]


def _class(kind: type, scope: Scope) -> Any:
    if kind in _TEMPORAL:
        return Annotated[kind, Temporal(kind)]
    if kind in _SCALARS:
        return kind
    if kind in _REFUSED or issubclass(kind, type):
        scope.refuse(kind, "take data, and let the tool decide what to do with it")
    if issubclass(kind, enum.Enum):
        return _enumeration(kind, scope)
    if _is_pydantic(kind):
        return kind
    if reader := members_reader(kind):
        return _shaped(kind, kind, reader, scope)
    for base in (str, int, float):
        if issubclass(kind, base):
            return Annotated[base, Made(kind)]
    return _asked(kind, scope)


def _asked(kind: type, scope: Scope) -> Any:
    """Give a class that pydantic knows; refuse one that nobody does."""
    from pydantic import TypeAdapter  # noqa: PLC0415 - only unusual types come here
    from pydantic.errors import PydanticSchemaGenerationError  # noqa: PLC0415 - as above

    try:
        TypeAdapter(kind)
    except PydanticSchemaGenerationError:
        scope.refuse(kind, "use a dataclass, a pydantic model or another type with typed fields")
    return kind


def _is_pydantic(kind: type) -> bool:
    return hasattr(kind, "__get_pydantic_core_schema__") or hasattr(kind, "__pydantic_core_schema__")


def _enumeration(kind: type[enum.Enum], scope: Scope) -> Any:
    """Give an enumeration by value, or by name where the values are nothing that JSON has."""
    if issubclass(kind, enum.Flag):
        scope.refuse(kind, "take a list of the members of an Enum")
    own = kind._missing_.__func__ is not enum.Enum._missing_.__func__  # type: ignore[attr-defined]  # a class method
    if own or all(isinstance(member.value, str) for member in kind):
        return kind
    by_value = all(isinstance(member.value, _JSON_SCALARS) for member in kind)
    return Annotated[Any, Member(kind, by_value)]


def _tells_shapes_apart(item: Any, kind: Any) -> bool:
    """Whether it is a discriminator of types that we read ourselves: pydantic knows it only for its own."""
    shapes = [option for option in get_args(kind) if any(isinstance(part, Shape) for part in get_args(option)[1:])]
    return bool(shapes) and getattr(item, "discriminator", None) is not None


def _constraints(metadata: list[Any]) -> list[Any]:
    """Give the metadata as pydantic knows it: descriptions, and the constraints of msgspec."""
    return [each for item in metadata for each in _constraint(item)]


def _constraint(item: Any) -> list[Any]:
    from pydantic import Field as Info  # noqa: PLC0415 - only annotated types come here

    if isinstance(item, Param):
        return [Info(description=item.description or None, examples=list(item.examples) or None)]
    if isinstance(item, str):
        return [Info(description=item)]
    if type(item).__module__.startswith("msgspec") and type(item).__name__ == "Meta":
        names = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "description", "title")
        given = {name: getattr(item, name) for name in names if getattr(item, name) is not None}
        return [Info(**given)]
    return [item]


def _shaped(kind: Any, origin: type, reader: Callable[..., list[Field]], scope: Scope) -> Any:
    """Give a type whose fields are read by us."""
    shape = scope.shapes.get(kind)
    if shape is None:
        shape = scope.shapes[kind] = Shape(origin, f"toolsemble.{origin.__qualname__}.{len(scope.shapes)}")
        variables = {**scope.variables, **_variables(origin, get_args(kind))}
        for each in reader(origin, scope.names):
            place = f"{scope.place}, field '{each.name}' of {origin.__name__}"
            inner = Scope(place, scope.names, variables, kind, scope.shapes, scope.aliases)
            shape.fields.append((each, adapted(each.annotation, inner)))
    return Annotated[Any, shape]


def _variables(origin: Any, arguments: tuple[Any, ...]) -> dict[Any, Any]:
    """Give what the type variables of a class and of its generic bases stand for."""
    known = dict(zip(getattr(origin, "__parameters__", ()), arguments, strict=False))
    for base in getattr(origin, "__mro__", ()):
        for generic in vars(base).get("__orig_bases__", ()):
            parameters = getattr(get_origin(generic), "__parameters__", ())
            given = (known.get(each, each) for each in get_args(generic))
            known |= {name: each for name, each in zip(parameters, given, strict=False) if name is not each}
    return known


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """Tells pydantic to make an object of a class out of a scalar."""

    kind: type
    """The class, called with the scalar."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema  # noqa: PLC0415 - asked by pydantic itself

        made = core_schema.no_info_after_validator_function(_guarded(self.kind), handler(source))
        return core_schema.json_or_python_schema(made, core_schema.is_instance_schema(self.kind))


@dataclass(frozen=True, slots=True, eq=False)
class Temporal:
    """Tells pydantic not to take digits for seconds since 1970: a model that sends '2024' means the year."""

    kind: type
    """The type: a date, a time, both, or a duration."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import SchemaValidator, core_schema  # noqa: PLC0415 - asked by pydantic itself

        known = handler(source)
        lenient = SchemaValidator(known)

        def read(text: str) -> Any:
            try:
                if not _NUMBER.fullmatch(text):
                    return lenient.validate_python(text)
            except ValueError:
                pass
            raise ValueError(f"expected {FORMATS[_TEMPORAL[self.kind]]}")

        made = core_schema.no_info_after_validator_function(read, core_schema.str_schema())
        return core_schema.json_or_python_schema(made, known)

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        return {**handler(core), "format": _TEMPORAL[self.kind]}


@dataclass(frozen=True, slots=True, eq=False)
class Exact:
    """Tells pydantic to keep true and 1 apart, which Python takes for equal."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema  # noqa: PLC0415 - asked by pydantic itself

        return core_schema.no_info_before_validator_function(_exactly(list(get_args(source))), handler(source))


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """Tells pydantic to read a member of an enumeration by its value or by its name."""

    kind: type[enum.Enum]
    """The enumeration."""
    by_value: bool
    """Whether the values are what a model sends."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema  # noqa: PLC0415 - asked by pydantic itself

        known = {member.value if self.by_value else name: member for name, member in self.kind.__members__.items()}
        sent = core_schema.literal_schema(list(known))
        checked = core_schema.no_info_before_validator_function(_exactly(list(known)), sent)
        return core_schema.json_or_python_schema(
            core_schema.no_info_after_validator_function(known.__getitem__, checked),
            core_schema.is_instance_schema(self.kind),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda member: member.value if self.by_value else member.name
            ),
        )


def _exactly(values: list[Any]) -> Callable[[Any], Any]:
    """Give a function that refuses what is equal to one of the values, but of another type."""
    kinds = {type(value) for value in values}

    def check(value: Any) -> Any:
        if type(value) in kinds:
            return value
        raise ValueError(f"expected {one_of(values)}")

    return check


@dataclass(slots=True, eq=False)
class Shape:
    """Tells pydantic how to read an object of one type, field by field."""

    kind: type
    """The type that is made; ``dict`` for arguments and typed dicts."""
    ref: str
    """By what the type is referred to inside itself."""
    fields: list[tuple[Field, Any]] = field(default_factory=list)
    """Each field with its adapted type."""
    busy: bool = False
    """Whether pydantic is in the middle of it."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema  # noqa: PLC0415 - asked by pydantic itself

        if self.busy:
            return core_schema.definition_reference_schema(self.ref)
        self.busy = True
        try:
            fields = {each.name: _core_field(each, kind, handler) for each, kind in self.fields}
        finally:
            self.busy = False
        body = core_schema.typed_dict_schema(fields, extra_behavior="forbid", config=CONFIG)
        if issubclass(self.kind, dict):
            return core_schema.json_or_python_schema(body, body, ref=self.ref)
        made = core_schema.no_info_after_validator_function(constructor(self), body)
        return core_schema.json_or_python_schema(made, core_schema.is_instance_schema(self.kind), ref=self.ref)


def _core_field(each: Field, kind: Any, handler: Any) -> Any:
    from pydantic import Field as Info  # noqa: PLC0415 - asked by pydantic itself
    from pydantic_core import core_schema  # noqa: PLC0415 - as above

    if each.description or each.examples:
        kind = Annotated[kind, Info(description=each.description or None, examples=list(each.examples) or None)]
    schema = handler.generate_schema(kind)
    if each.factory is not None:
        schema = core_schema.with_default_schema(schema, default_factory=each.factory)
    elif not each.required and not each.optional:
        schema = core_schema.with_default_schema(schema, **given_default(each.default))
    alias = each.key if each.key and each.key != each.name else None
    return core_schema.typed_dict_field(schema, required=each.required, validation_alias=alias)


def constructor(shape: Shape) -> Callable[[dict[str, Any]], Any]:
    """Give a function from the fields' values to an object of the type; what goes wrong is a problem of the values."""
    constants = [each.name for each, _ in shape.fields if each.constant]

    def construct(values: dict[str, Any]) -> Any:
        for name in constants:
            values.pop(name, None)
        return shape.kind(**values)

    return _guarded(construct)


def _guarded(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Give a function whose every exception is a problem of the value: pydantic lets some kinds through."""

    def made(value: Any) -> Any:
        try:
            return make(value)
        except (ValueError, AssertionError):
            raise
        except Exception as problem:
            raise ValueError(str(problem) or type(problem).__name__) from problem

    return made
