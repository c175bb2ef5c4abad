"""Validate JSON text against the declared parameters of a tool, with pydantic-core.

Pydantic handles scalars, containers and its own models. Dataclasses, typed dicts, named tuples, attrs classes and
msgspec structs are read here, field by field, so that all behave alike: unknown keys are rejected, descriptions are
kept, and objects are created by the author's own constructor.

A type is transparent if no custom code runs between the arguments and the stored values, and if its displayed form can
be read in one way only.
"""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import decimal
import enum
import inspect
import ipaddress
import json
import numbers
import pathlib
import re
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ForwardRef,
    Generic,
    Literal,
    NewType,
    NoReturn,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from toolsemble._runtime.threads import fork_safe_lock
from toolsemble._schema import display
from toolsemble._schema.argument_problems import MismatchError, Problem, find_ref_target
from toolsemble._schema.fast_path import Schemas, write_schemas
from toolsemble._schema.members import (
    Field,
    annotate,
    describe_class,
    is_memory_id,
    is_pydantic,
    members_reader,
    names_of,
    remember,
)
from toolsemble._schema.pydantic_errors import translate_errors
from toolsemble._schema.pydantic_schema import (
    TEMPORAL,
    EnumMember,
    ExactLiteral,
    ScalarSubclass,
    Shape,
    Temporal,
    check_every_item,
    compile_core,
    tag_schema,
)
from toolsemble._schema.secret_values import secret_keys
from toolsemble._schema.work_estimate import LINEAR, Work, measure_type_work
from toolsemble._vocabulary.errors import ToolArgumentsError, ToolDefinitionError
from toolsemble._vocabulary.param import Param

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails, SchemaValidator


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
    """Names for forward references, besides the module's names."""
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
    """Return the type in a form that pydantic validates by the rules above; raise for types that JSON cannot represent.

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
    """Return the adapted value of a ``type`` alias; pydantic handles a recursive alias."""
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
    """Return the type of any JSON number: an int stays an int, because a float would lose digits."""
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


_LEAVES = {
    "none", "bool", "int", "float", "str", "bytes", "decimal", "date", "time", "datetime", "timedelta", "uuid", "url",
    "multi-host-url", "literal", "enum", "nullable", "list", "tuple", "set", "frozenset", "dict", "default",
    "typed-dict", "typed-dict-field", "model-fields", "model-field", "definitions", "definition-ref", "json-or-python",
    "lax-or-strict",
}  # fmt: skip
_INNER = {
    "schema", "json_schema", "strict_schema", "items_schema", "keys_schema", "values_schema", "fields", "definitions",
    "extras_schema", "choices",
}  # fmt: skip
_BY_NAME = {"fields", "choices"}  # their keys are names, not keywords
_FUNCTIONS = {"function-after", "function-before", "function-plain", "function-wrap"}
_OURS = ("toolsemble._schema.",)
_PYDANTICS = {
    "pydantic.types", "pydantic.networks", "pydantic._internal._generate_schema", "pydantic._internal._validators",
}  # fmt: skip


def is_transparent(core: Any) -> bool:
    """Return whether all values that a core schema reads are stored where they are displayed.

    >>> is_transparent({"type": "list", "items_schema": {"type": "date"}}), is_transparent({"type": "any"})
    (True, False)
    """
    if isinstance(core, (list, tuple)):
        return all(map(is_transparent, core))
    return _is_sound(core) and all(map(is_transparent, _inner_nodes(core)))


def init_only_fields(core: Any) -> Iterator[tuple[str, str]]:
    """Yield the type and the name of fields that pydantic passes to a constructor and no object stores."""
    if isinstance(core, (list, tuple)):
        for each in core:
            yield from init_only_fields(each)
    elif isinstance(core, dict):
        if core.get("type") == "dataclass-args":
            yield from ((core["dataclass_name"], each["name"]) for each in core["fields"] if each.get("init_only"))
        for part in _inner_nodes(core):
            yield from init_only_fields(part)


def _inner_nodes(node: dict[str, Any]) -> Iterator[Any]:
    """Yield the child nodes of a node."""
    for key in _INNER & node.keys():
        part = node[key]
        if key in _BY_NAME and isinstance(part, dict):
            yield from part.values()
        else:
            yield part


def keeps_all(kind: Any) -> bool:
    """Return whether only generated code creates objects of a class, without conversion."""
    if not isinstance(kind, type) or any(
        hasattr(kind, name) for name in ("__post_init__", "__attrs_post_init__", "__attrs_pre_init__")
    ):
        return False
    if not (isinstance(kind.__setattr__, types.WrapperDescriptorType) or _is_generated(kind.__setattr__)):
        return False
    if hasattr(kind, "__attrs_attrs__"):
        return _is_generated(_init(kind)) and not any(each.converter for each in kind.__attrs_attrs__)
    if hasattr(kind, "__struct_fields__"):
        return isinstance(_init(kind), types.WrapperDescriptorType)
    if dataclasses.is_dataclass(kind):
        return _is_generated(_init(kind)) and _is_bare(kind)
    return kind.__bases__ == (tuple,)


def _is_bare(kind: Any) -> bool:
    """Return whether a dataclass stores its fields as plain attributes, not, for example, as a property."""
    plain = (types.MemberDescriptorType, types.GetSetDescriptorType)
    for each in dataclasses.fields(kind):
        found = next((vars(base)[each.name] for base in kind.__mro__ if each.name in vars(base)), None)
        if hasattr(type(found), "__set__") and not isinstance(found, plain):
            return False
    return all(base in (object, Generic, Protocol) or dataclasses.is_dataclass(base) for base in kind.__mro__)


def _init(kind: type) -> Any:
    return inspect.getattr_static(kind, "__init__")


def _is_generated(function: Any) -> bool:
    """Return whether a method was generated by dataclasses or attrs."""
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    return (
        code.co_filename == "<string>" or "<attrs generated" in code.co_filename or function.__module__ == "attr._make"
    )


def _is_sound(node: dict[str, Any]) -> bool:
    kind = node["type"]
    if kind in _FUNCTIONS:
        return _is_known(node["function"]["function"])
    if kind == "model":
        config = node.get("config") or {}
        is_strict = config.get("val_json_bytes") == "base64" and config.get("extra_fields_behavior") == "forbid"
        return is_strict and not (node.get("custom_init") or node.get("post_init"))
    if kind == "enum":
        return not node.get("missing")
    if kind in {"typed-dict", "model-fields"}:
        return node.get("extra_behavior") != "allow"
    if kind in {"model-field", "typed-dict-field"}:
        return isinstance(node.get("validation_alias", ""), str)
    return kind in _LEAVES


def _is_known(function: Any) -> bool:
    """Return whether a function belongs to this package or to pydantic's types, and changes no displayed value."""
    if hasattr(function, "makes"):
        return keeps_all(function.makes)
    if isinstance(function, partial):
        function = function.func
    if isinstance(getattr(function, "__self__", None), dict):
        return True  # maps a value to a member of an enumeration
    module = getattr(function, "__module__", None) or ""
    return module.startswith(_OURS) or module in _PYDANTICS


class TypedArguments:
    """A validator of arguments by their types, which are checked on construction; schemas are built on first use."""

    def __init__(
        self,
        owner: str,
        kind: Any,
        ignored: frozenset[str] = frozenset(),
        keys: Mapping[str, str] | None = None,
        input_type: type | None = None,
        shapes: Iterable[Shape] = (),
    ) -> None:
        self.owner = owner
        self.ignored = ignored
        self._keys = keys
        self._renames = any(key != shown for key, shown in (keys or {}).items())
        self._input_type = input_type
        self._kind = kind
        self._shapes = tuple(shapes)
        self._transparent: bool | None = None
        self._shape = next((part for part in get_args(kind)[1:] if isinstance(part, Shape)), None)
        plain = self._write_schemas()
        self._lock = fork_safe_lock(self)
        self._validator: SchemaValidator | None = None
        self._thorough: SchemaValidator | None = None
        self._core: Any = None
        self._work = LINEAR
        self._at_most = 0
        # Until the first call, a tool with common types stores only its JSON Schema.
        self._common = plain is not None
        self._schema: dict[str, Any] | None = None if plain is None else plain[1]
        self._secret_keys: frozenset[str] | None = None if plain is None else frozenset()

    @classmethod
    def of_fields(
        cls, name: str, fields: list[Field], names: Mapping[str, Any], ignored: frozenset[str], owner: Any = None
    ) -> TypedArguments:
        """Return the arguments of a function: a dict of its keyword arguments, without the injected ones."""
        shape = Shape(dict, f"toolsemble.{name}")
        shapes: dict[Any, Shape] = {}
        _check_keys([each.key or each.name for each in fields], ignored)
        for each in fields:
            scope = Scope(f"parameter '{each.name}'", names, owner=owner, shapes=shapes)
            kind = adapt_type(each.annotation, scope)
            if each.open:
                _check_open(each, fields)
                shape.extras = kind
                continue
            _check_default(each, kind, scope.place)
            shape.fields.append((each, kind))
        _check_shapes(shapes)
        keys = {each.name: each.key for each, _ in shape.fields if each.key not in ("", each.name)}
        return cls(name, Annotated[Any, shape], ignored, keys, shapes=shapes.values())

    @classmethod
    def of_type(cls, kind: Any, names: Mapping[str, Any]) -> TypedArguments:
        """Return arguments that are one object of a type."""
        scope = Scope(f"input type {kind.__name__}", names)
        read = adapt_type(kind, scope)
        _check_shapes(scope.shapes)
        origin = get_origin(kind) or kind
        input_type = None if issubclass(origin, dict) else origin  # isinstance() does not support typed dicts
        return cls(kind.__name__, read, keys=names_of(origin), input_type=input_type, shapes=scope.shapes.values())

    @property
    def schema(self) -> dict[str, Any]:
        """The complete JSON Schema of the arguments."""
        if self._schema is None:
            self._build()
        return self._schema  # type: ignore[return-value]  # built above

    @property
    def secret_keys(self) -> frozenset[str]:
        """The parameters that are or contain secrets; common types never do."""
        if self._secret_keys is None:
            self._secret_keys = secret_keys(self.schema)
        return self._secret_keys

    def check(self) -> None:
        """Raise ToolDefinitionError for types that pydantic cannot read, or that are not objects."""
        if self._schema is None:
            self._build()
            root = {**self.schema, **find_ref_target(self.schema, self.schema.get("$ref", ""))}
            if root.get("type") != "object":
                raise ToolDefinitionError(f"'{self.owner}' is not an object with fields; put it into a dataclass")

    def validate(self, text: str) -> Any:
        """Return the values in JSON text, or raise :class:`MismatchError`."""
        validator = self._validator or self._build()
        if len(text) > self._at_most and not _admits(self._work, text):
            raise ToolArgumentsError(f"Invalid arguments for '{self.owner}': nested too deeply or too long; send less")
        try:
            return validator.validate_json(text, strict=True)
        except ValueError as mismatch:
            raise MismatchError(mismatch.with_traceback(None)) from None
        except Exception as raised:
            # A custom validator may raise anything; pydantic passes on some exception types.
            raise ToolArgumentsError(f"Invalid arguments for '{self.owner}': {raised}") from raised

    def holds(self, value: Any) -> bool:
        """Return whether a Python object is already of the input type."""
        return self._input_type is not None and isinstance(value, self._input_type)

    def take(self, value: Any) -> Any:
        """Return the values in a Python object, or raise :class:`MismatchError`; the input type is kept."""
        if self.holds(value):
            return value
        try:
            return (self._validator or self._build()).validate_python(value, strict=True)
        except Exception:  # a custom validator may raise anything; validating as JSON reports it
            return self.validate(
                display.to_display_text(value)
            )  # nested objects may be of other types with the same fields

    def wrong_keys(self, mismatch: MismatchError) -> frozenset[str] | None:
        """Return the parameters that are wrong, missing or unknown; None if any may be."""
        if mismatch.cause.error_count() > _HOPELESS:
            return frozenset()  # too many errors to repair; they are only reported
        places = [each["loc"] for each in _errors(mismatch)]
        return frozenset([str(place[0]) for place in places]) if all(places) else None

    def is_settled(self, mismatch: MismatchError) -> bool:
        """Return whether each error concerns a declared parameter itself, not a value nested in it.

        In other objects the validator also checks overridden values of duplicate keys.
        """
        declared = self.schema.get("properties", ())
        return all(len(each["loc"]) == 1 and each["loc"][0] in declared for each in _errors(mismatch))

    def problems(self, text: str, value: Any, mismatch: MismatchError) -> tuple[list[Problem], int]:
        """Return the problems of a value with this JSON text, and the number of omitted problems."""
        errors = _errors(mismatch)
        if not self.is_settled(mismatch):
            # For a long text, the first problem of each list is enough: finding all of them would take too long.
            if len(text) <= _LONG_TEXT and any(len(each["loc"]) > 1 for each in errors):
                errors = _errors(self._find_all_errors(text))
            errors = [each for each in errors if each["type"] != "json_invalid"]
        return translate_errors(errors[:_MOST_ERRORS], value, self.schema), max(0, len(errors) - _MOST_ERRORS)

    def _find_all_errors(self, text: str) -> MismatchError:
        """Return all errors of an invalid text."""
        self._thorough = self._thorough or compile_core(check_every_item(self._core))
        found = None
        try:
            self._thorough.validate_json(text, strict=True)
        except ValueError as mismatch:
            found = mismatch
        return MismatchError(found)

    def present(self, value: Any, *, reveal: bool = False, best_effort: bool = False) -> Any:
        """Return validated values as JSON, all of them, with the keys that the model uses.

        The result validates to the same values. If it does not, because of an undeclared type or a custom validator,
        they are shown with their types. Raise :class:`DisplayError` if a part cannot be shown; with ``best_effort``,
        return its message instead.
        """
        if best_effort and not self._renames and (copied := display.copy_plain(value)) is not None:
            return copied
        try:
            shown = display.to_display(value, self._keys, reveal=reveal)
            if best_effort or display.is_json(value) or self._is_kept_whole(value):
                return shown
            return self._display_exactly(value, shown, reveal=reveal)
        except (display.DisplayError, RecursionError) as raised:
            problem = raised if isinstance(raised, display.DisplayError) else display.DisplayError(_TOO_DEEP)
        if best_effort:
            return str(problem)
        raise problem

    def _is_kept_whole(self, value: Any) -> bool:
        """Return whether the displayed form of a value is certainly complete."""
        if self._transparent is None:
            self._transparent = is_transparent(self._core or self._get_core())
        return self._transparent and not display.has_other_attributes(value)

    def _display_exactly(self, value: Any, shown: Any, *, reveal: bool) -> Any:
        """Return the displayed form if it is complete; otherwise the value with its types."""
        exact = shown if reveal else display.to_display(value, self._keys, reveal=True)
        if display.is_faithful(value, lambda: self._reread(exact)):
            return shown
        if self.secret_keys:
            raise display.DisplayError("It cannot be shown: it has secrets, and its displayed form is ambiguous")
        return display.to_typed_json(value, reveal=reveal)

    @property
    def init_only(self) -> str:
        """The first constructor parameter that no object stores, so it cannot be displayed; empty if none."""
        fields = [(each.kind.__name__, field) for each in self._shapes for field, _ in each.fields]
        own = [(kind, field.name) for kind, field in fields if field.attribute is None and not field.constant]
        found = own or ([] if self._common else list(init_only_fields(self._core or self._get_core())))
        return "".join(f"{name!r} of {kind}" for kind, name in found[:1])

    def _reread(self, shown: Any) -> Any:
        """Return the values that the displayed form validates to; None if it is invalid."""
        try:
            return self.validate(json.dumps(shown, allow_nan=False))
        except (MismatchError, ToolArgumentsError, TypeError, ValueError):
            return None  # arguments are never None

    def _get_core(self) -> Any:
        self._build()
        return self._core

    def _build(self) -> SchemaValidator:
        with self._lock:  # concurrent builds would walk the same shapes
            plain = self._write_schemas()
            self._core, self._schema = plain or self._generate_schemas()
            # If types contain each other and no constant distinguishes them, each level of a value multiplies the work.
            self._work = LINEAR if plain else measure_type_work(tag_schema(self._schema))
            self._at_most = self._work.at_most
            self._validator = compile_core(self._core)
            return self._validator

    def _write_schemas(self) -> Schemas | None:
        """Return both schemas of common types; None if another type is used."""
        return None if self._shape is None else write_schemas(self._shape)

    def _generate_schemas(self) -> Schemas:
        """Return both schemas from pydantic's own generators."""
        from toolsemble._schema.type_schema import generate_schemas

        try:
            return generate_schemas(self._kind)
        except Exception as problem:
            # A third-party type may raise anything; the author must see the reason.
            wrong = str(problem).splitlines()[0]
            raise ToolDefinitionError(f"the types of '{self.owner}' cannot be read: {wrong}") from problem


_TOO_DEEP = "It cannot be shown: it is nested too deeply, or inside itself"
_LONG_TEXT = 20_000
_MOST_ERRORS = 100
_HOPELESS = 20_000


def _errors(mismatch: MismatchError) -> list[ErrorDetails]:
    """Return the validator's errors."""
    if mismatch.errors is None:
        mismatch.errors = mismatch.cause.errors(include_url=False, include_input=False)
    return mismatch.errors


def _admits(work: Work, text: str) -> bool:
    """Return whether a text is neither too deep nor too long to validate; invalid JSON is rejected later."""
    if work.deepest is not None and text.count("{") + text.count("[") <= work.deepest:
        return True
    try:
        return work.admits(json.loads(text), len(text))
    except (ValueError, RecursionError):
        return True


def _check_keys(keys: list[str], ignored: frozenset[str]) -> None:
    for key in keys:
        if keys.count(key) > 1:
            raise ToolDefinitionError(f"two parameters have the key '{key}'; rename one")
        if key in ignored:
            raise ToolDefinitionError(f"parameter '{key}' has the name of an injected parameter; rename it")


def _check_open(each: Field, fields: list[Field]) -> None:
    """Reject open keys beside a renamed parameter: a model could send its name in the code, bypassing its type."""
    if renamed := next((field for field in fields if field.key not in ("", field.name)), None):
        raise ToolDefinitionError(f"parameter '**{each.name}' accepts any key, so '{renamed.name}' cannot be renamed")


def _check_shapes(shapes: Mapping[Any, Shape]) -> None:
    for shape in shapes.values():
        for each, kind in shape.fields:
            place = f"field '{each.name}' of {shape.kind.__name__}"
            if is_memory_id(each.annotation):
                raise ToolDefinitionError(
                    f"{place}: only a function's parameter is injected; use self.context.memory_id"
                )
            _check_default(each, kind, place)


def _check_default(each: Field, kind: Any, place: str) -> None:
    """Reject a default of another than the declared type: defaults are not validated when a call uses them."""
    if each.factory is not None or each.required or each.optional or _is_plainly(each.default, kind):
        return
    from pydantic import TypeAdapter, ValidationError

    secret = _is_secret(kind)
    try:
        validated = TypeAdapter(kind).validate_python(each.default, strict=True)
    except ValidationError as problem:
        wrong = problem.errors(include_url=False)[0]["msg"]
        default = "" if secret else f" {each.default!r:.80}"
        raise ToolDefinitionError(f"{place}: the default{default} is not of the declared type: {wrong}") from None
    if secret and display.to_display(validated) != display.to_display(each.default):
        raise ToolDefinitionError(f"{place}: the default of a secret must be a Secret; write Secret(...)")


def _is_secret(kind: Any) -> bool:
    """Return whether a type is a secret or contains one."""
    return hasattr(get_origin(kind) or kind, "get_secret_value") or any(map(_is_secret, get_args(kind)))


def _is_plainly(value: Any, kind: Any) -> bool:
    """Return whether a value obviously has a type; False means that this is unknown."""
    if value is None or type(value) is kind:
        return True
    if get_origin(kind) is Literal:
        return any(type(value) is type(each) and value == each for each in get_args(kind))
    return get_origin(kind) is type(value) and not value
