"""Write the core schema and the JSON Schema of common types without pydantic's generators.

Pydantic's generators know every type, and take a millisecond for a tool with five parameters. Most parameters have one
of a few types, whose schemas are written here with the same result at a tenth of that cost.
"""

from __future__ import annotations

import enum
import math
import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from toolsemble._schema.members import MISSING, Field, default_keywords, is_field_info
from toolsemble._schema.pydantic_schema import CONFIG, Shape, make_constructor, tag_choice

Schemas: TypeAlias = tuple[dict[str, Any], dict[str, Any]]
"""A core schema and the equivalent JSON Schema."""

_SCALARS: dict[Any, tuple[str, dict[str, Any]]] = {
    str: ("str", {"type": "string"}),
    int: ("int", {"type": "integer"}),
    float: ("float", {"type": "number"}),
    bool: ("bool", {"type": "boolean"}),
    None: ("none", {"type": "null"}),
    type(None): ("none", {"type": "null"}),
    Any: ("any", {}),
    object: ("any", {}),
    list: ("list", {"type": "array", "items": {}}),
    dict: ("dict", {"type": "object", "additionalProperties": True}),
}
_NAMES: dict[type, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_NUMBERS = {
    "Ge": ("ge", "minimum"),
    "Gt": ("gt", "exclusiveMinimum"),
    "Le": ("le", "maximum"),
    "Lt": ("lt", "exclusiveMaximum"),
    "MultipleOf": ("multiple_of", "multipleOf"),
}
_SUPPORTED = {
    "description", "examples", "ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "annotation",
}  # fmt: skip
_MOST_SHAPES = 100
_LENGTHS = {
    ("MinLen", "str"): ("min_length", "minLength"),
    ("MaxLen", "str"): ("max_length", "maxLength"),
    ("MinLen", "list"): ("min_length", "minItems"),
    ("MaxLen", "list"): ("max_length", "maxItems"),
}


class _UnsupportedTypeError(Exception):
    """The type needs pydantic's generators."""


def write_schemas(shape: Shape) -> Schemas | None:
    """Return both schemas of a shape with fields of common types; None for any other shape.

    >>> write_schemas(Shape(dict, "nothing"))[1]
    {'type': 'object', 'properties': {}, 'additionalProperties': False}
    """
    try:
        return _write_shape(shape)
    except _UnsupportedTypeError:
        return None


def _write_shape(shape: Shape) -> Schemas:
    if shape.extras is not None or _count_uses(shape, _MOST_SHAPES) <= 0:
        raise _UnsupportedTypeError  # inline expansion could grow without bounds; references are needed
    fields = {each.name: (each, *_write_field(each, kind)) for each, kind in shape.fields}
    core: dict[str, Any] = {
        "type": "typed-dict",
        "fields": {name: _core_field(each, inner) for name, (each, inner, _) in fields.items()},
        "extra_behavior": "forbid",
        "config": CONFIG,
    }
    json: dict[str, Any] = {
        "type": "object",
        "properties": {each.key or name: js for name, (each, _, js) in fields.items()},
    }
    if required := [each.key or name for name, (each, _, _) in fields.items() if each.required]:
        json["required"] = required
    json["additionalProperties"] = False
    if shape.description:
        json["description"] = shape.description
    if (rename := shape.renaming()) is not None:
        core = {"type": "function-after", "function": {"type": "no-info", "function": rename}, "schema": core}
    if not issubclass(shape.kind, dict):
        construct = {"type": "no-info", "function": make_constructor(shape)}
        read = {"type": "function-after", "function": construct, "schema": core}
        # Python objects of the type are kept; JSON text is validated field by field.
        core = {
            "type": "json-or-python",
            "json_schema": read,
            "python_schema": {"type": "is-instance", "cls": shape.kind},
        }
    return core, json


def _count_uses(shape: Shape, left: int) -> int:
    """Return ``left`` minus the number of uses of shapes inside a shape; stop at 0."""
    for _, kind in shape.fields:
        for inner in _shapes_in(kind):
            left = left if left <= 0 else _count_uses(inner, left - 1)
    return left


def _shapes_in(kind: Any) -> list[Shape]:
    if isinstance(kind, Shape):
        return [kind]
    return [shape for part in get_args(kind) for shape in _shapes_in(part)]


def _core_field(each: Field, core: dict[str, Any]) -> dict[str, Any]:
    written = {"type": "typed-dict-field", "schema": core, "required": each.required}
    return written if each.key in ("", each.name) else {**written, "validation_alias": each.key}


def _write_field(each: Field, kind: Any) -> Schemas:
    core, json = _write_type(kind)
    if each.description:
        json = {**json, "description": each.description}
    if each.examples:
        json = {**json, "examples": list(each.examples)}
    if each.factory is not None:
        core = {"type": "default", "schema": core, "default_factory": each.factory}
    elif each.default is not MISSING:
        core = {"type": "default", "schema": core, **default_keywords(each.default)}
        json = {**json, "default": _write_default(each.default)}
    return core, json


def _write_default(value: Any) -> Any:
    """Return a default as JSON."""
    if isinstance(value, enum.Enum):
        value = value.value
    if type(value) is float and not math.isfinite(value):
        raise _UnsupportedTypeError
    if value is None or type(value) in _NAMES or value in ([], {}):
        return value
    raise _UnsupportedTypeError


def _write_type(kind: Any) -> Schemas:
    origin = get_origin(kind)
    if origin is None:
        return _write_class(kind)
    arguments = get_args(kind)
    if origin is Annotated:
        return _write_annotated(*arguments)
    if origin in (Union, types.UnionType):
        return _write_union(arguments)
    if origin is Literal:
        return _write_literal(list(arguments))
    writer = _CONTAINERS.get(origin)
    if writer is None:
        raise _UnsupportedTypeError
    return writer(*arguments)


def _write_class(kind: Any) -> Schemas:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _write_enum(kind)
    known = _SCALARS.get(kind) if kind is None or isinstance(kind, type) or kind is Any else None
    if known is None:
        raise _UnsupportedTypeError
    return {"type": known[0]}, dict(known[1])


def _write_enum(kind: type[enum.Enum]) -> Schemas:
    members = list(kind)
    values = {type(member.value) for member in members}
    own = kind.__doc__ not in (None, "An enumeration.") or kind._missing_.__func__ is not enum.Enum._missing_.__func__  # type: ignore[attr-defined]  # a class method
    if own or values != {str} or len(members) < 2:  # noqa: PLR2004 - pydantic writes a single member as a constant
        raise _UnsupportedTypeError
    core: dict[str, Any] = {"type": "enum", "cls": kind, "members": members, "missing": None}
    if issubclass(kind, str):
        core["sub_type"] = "str"
    return core, {"enum": [member.value for member in members], "type": "string"}


def _write_literal(values: list[Any]) -> Schemas:
    if not all(type(value) is str for value in values):
        raise _UnsupportedTypeError  # in Python, True equals 1
    keyword = {"const": values[0]} if len(values) == 1 else {"enum": values}
    return {"type": "literal", "expected": values}, {**keyword, "type": "string"}


def _write_union(options: tuple[Any, ...]) -> Schemas:
    written = [_write_type(option) for option in options if option not in (None, type(None))]
    json: dict[str, Any] = {"anyOf": [each for _, each in written]}
    # Each choice has its own label, which distinguishes errors.
    core: dict[str, Any] = {"type": "union", "choices": [(each, str(n)) for n, (each, _) in enumerate(written)]}
    core = written[0][0] if len(written) == 1 else tag_choice(core, {})
    if len(written) == len(options):
        return core, json
    return {"type": "nullable", "schema": core}, {"anyOf": [*json["anyOf"], {"type": "null"}]}


def _write_annotated(base: Any, *metadata: Any) -> Schemas:
    if len(metadata) == 1 and isinstance(metadata[0], Shape):
        return _write_shape(metadata[0])
    core, json = _write_type(base)
    for item in metadata:
        if is_field_info(item):
            if not item._attributes_set.keys() <= _SUPPORTED:  # noqa: SLF001 - only the arguments that were passed
                raise _UnsupportedTypeError
            for inner in item.metadata:
                _constrain(core, json, inner)
            json |= {"description": item.description} if item.description else {}
            json |= {"examples": list(item.examples)} if item.examples else {}
        else:
            _constrain(core, json, item)
    return core, json


def _constrain(core: dict[str, Any], json: dict[str, Any], item: Any) -> None:
    """Write a constraint into both schemas."""
    name = type(item).__name__
    if type(item).__module__ != "annotated_types":
        raise _UnsupportedTypeError
    if name in _NUMBERS and core["type"] in {"int", "float"}:
        key, keyword = _NUMBERS[name]
    elif (name, core["type"]) in _LENGTHS:
        key, keyword = _LENGTHS[name, core["type"]]
    else:
        raise _UnsupportedTypeError
    bound = getattr(item, key)
    number_type = int if core["type"] != "float" else (int, float)
    if (
        isinstance(bound, bool)
        or not isinstance(bound, number_type)
        or not math.isfinite(bound)
        or (key != "ge" and bound < 0)
    ):
        raise _UnsupportedTypeError  # pydantic decides at definition whether it is valid
    core[key] = json[keyword] = bound


def _write_list(item: Any) -> Schemas:
    core, json = _write_type(item)
    return {"type": "list", "items_schema": core, "fail_fast": True}, {"type": "array", "items": json}


def _write_set(item: Any) -> Schemas:
    core, json = _write_list(item)
    return {**core, "type": "set"}, {**json, "uniqueItems": True}


def _write_frozenset(item: Any) -> Schemas:
    core, json = _write_set(item)
    return {**core, "type": "frozenset"}, json


def _write_tuple(*items: Any) -> Schemas:
    if len(items) != 2 or items[1] is not ...:  # noqa: PLR2004 - a type and an ellipsis
        raise _UnsupportedTypeError
    core, json = _write_type(items[0])
    variadic = {"type": "tuple", "items_schema": [core], "variadic_item_index": 0, "fail_fast": True}
    return variadic, {"type": "array", "items": json}


def _write_dict(key: Any, value: Any) -> Schemas:
    if key is not str:
        raise _UnsupportedTypeError
    core, json = _write_type(value)
    return (
        {"type": "dict", "keys_schema": {"type": "str"}, "values_schema": core},
        {"type": "object", "additionalProperties": json or True},
    )


_CONTAINERS: dict[Any, Callable[..., Schemas]] = {
    list: _write_list,
    set: _write_set,
    frozenset: _write_frozenset,
    tuple: _write_tuple,
    dict: _write_dict,
}
