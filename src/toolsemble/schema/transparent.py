"""Which types are sure to keep what they are given, where people are shown it; of others it has to be looked at.

A type is transparent when no code of the author's stands between what is sent and what is kept, and when what is shown
can be read in one way only.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Iterator
from functools import partial
from typing import Any, Generic, Protocol

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
_BY_NAME = {"fields", "choices"}  # whose keys are names, not keywords
_FUNCTIONS = {"function-after", "function-before", "function-plain", "function-wrap"}
_OURS = ("toolsemble.schema.",)
_PYDANTICS = {
    "pydantic.types",
    "pydantic.networks",
    "pydantic._internal._generate_schema",
    "pydantic._internal._validators",
}


def is_transparent(core: Any) -> bool:
    """Return whether everything that a core schema reads is kept where people are shown it.

    >>> is_transparent({"type": "list", "items_schema": {"type": "date"}}), is_transparent({"type": "any"})
    (True, False)
    """
    if isinstance(core, (list, tuple)):
        return all(map(is_transparent, core))
    return _is_sound(core) and all(map(is_transparent, _inner_nodes(core)))


def init_only_fields(core: Any) -> Iterator[tuple[str, str]]:
    """Return the types and names of fields that pydantic gives to a constructor, and that no object keeps."""
    if isinstance(core, (list, tuple)):
        for each in core:
            yield from init_only_fields(each)
    elif isinstance(core, dict):
        if core.get("type") == "dataclass-args":
            yield from ((core["dataclass_name"], each["name"]) for each in core["fields"] if each.get("init_only"))
        for part in _inner_nodes(core):
            yield from init_only_fields(part)


def _inner_nodes(node: dict[str, Any]) -> Iterator[Any]:
    """Return the nodes right inside a node."""
    for key in _INNER & node.keys():
        part = node[key]
        if key in _BY_NAME and isinstance(part, dict):
            yield from part.values()
        else:
            yield part


def keeps_all(kind: Any) -> bool:
    """Return whether a class is made by nobody's code but that of its library, and without converting anything.

    >>> @dataclasses.dataclass
    ... class Point:
    ...     x: int
    >>> keeps_all(Point)
    True
    """
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
    """Return whether nothing stands between a dataclass and its attributes, such as a property with a field's name."""
    plain = (types.MemberDescriptorType, types.GetSetDescriptorType)
    for each in dataclasses.fields(kind):
        found = next((vars(base)[each.name] for base in kind.__mro__ if each.name in vars(base)), None)
        if hasattr(type(found), "__set__") and not isinstance(found, plain):
            return False
    return all(base in (object, Generic, Protocol) or dataclasses.is_dataclass(base) for base in kind.__mro__)


def _init(kind: type) -> Any:
    return inspect.getattr_static(kind, "__init__")


def _is_generated(function: Any) -> bool:
    """Return whether dataclasses or attrs have written a method."""
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
        return not (node.get("custom_init") or node.get("post_init")) and _reads_base64(node)
    if kind == "enum":
        return not node.get("missing")
    if kind in {"typed-dict", "model-fields"}:
        return node.get("extra_behavior") != "allow"
    if kind in {"model-field", "typed-dict-field"}:
        return isinstance(node.get("validation_alias", ""), str)
    return kind in _LEAVES


def _reads_base64(node: dict[str, Any]) -> bool:
    config = node.get("config") or {}
    return config.get("val_json_bytes") == "base64" and config.get("extra_fields_behavior") == "forbid"


def _is_known(function: Any) -> bool:
    """Return whether a function is of ours or of pydantic's own types, and changes nothing that is shown."""
    if hasattr(function, "makes"):
        return keeps_all(function.makes)
    if isinstance(function, partial):
        function = function.func
    if isinstance(getattr(function, "__self__", None), dict):
        return True  # the member of an enumeration for what stands for it
    module = getattr(function, "__module__", None) or ""
    return module.startswith(_OURS) or module in _PYDANTICS
