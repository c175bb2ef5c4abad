"""Read the parameters of functions and the fields of dataclasses, typed dicts, named tuples, attrs, msgspec."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_origin

from toolsemble._schema.docstring import parse_docstring
from toolsemble._schema.field import MISSING, Field, resolve_field
from toolsemble._vocabulary.errors import ToolDefinitionError

Members = Callable[[type, Mapping[str, Any]], list[Field]]


def members_reader(kind: type) -> Members | None:
    """Return the reader of a type's fields; None for a type without known fields.

    >>> @dataclasses.dataclass
    ... class Point:
    ...     x: int
    >>> [field.name for field in members_reader(Point)(Point, {})]
    ['x']
    """
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
    """Return the summary of a class's own docstring; empty if Python generated it from the fields.

    >>> class Point:
    ...     '''A point on the map.'''
    >>> describe_class(Point), describe_class(type("Point", (), {"__doc__": "Point(x: int, y: int)"}))
    ('A point on the map.', '')
    """
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
    """Return the fields of ``**kwargs``: those of an unpacked ``TypedDict``, or one open field of the declared type."""
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
            elif repr(default) != "NODEFAULT":  # a keyword-only field without a default may follow fields that have one
                field = dataclasses.replace(field, default=default)
        fields.append(resolve_field(field, descriptions))
    return fields
