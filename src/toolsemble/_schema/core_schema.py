"""Rewrite pydantic's core schemas, node by node, and compile them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from toolsemble._runtime.fork_locks import fork_safe_lock

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator

_OPAQUE = {"metadata", "cls", "default", "expected", "members", "config", "function"}
_BY_NAME = {"fields", "choices"}  # their keys are names, not keywords

_LISTS = {"list", "tuple", "set", "frozenset"}


def rewrite(core: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Return a core schema with every node replaced by the result of a function, innermost first."""
    if isinstance(core, (list, tuple)):
        return type(core)(rewrite(item, change) for item in core)
    if not isinstance(core, dict):
        return core
    return change({key: _rewrite_part(key, value, change) for key, value in core.items()})


def _rewrite_part(key: str, value: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    if key in _OPAQUE:
        return value
    if key in _BY_NAME and isinstance(value, dict):
        return {name: rewrite(each, change) for name, each in value.items()}
    return rewrite(value, change)


def fail_fast(core: Any) -> Any:
    """Return a core schema that stops at the first wrong item of a list, which is enough to reject a value.

    >>> fail_fast({"type": "list", "items_schema": {"type": "int"}})
    {'type': 'list', 'items_schema': {'type': 'int'}, 'fail_fast': True}
    """
    return rewrite(core, lambda node: {**node, "fail_fast": True} if node.get("type") in _LISTS else node)


def check_every_item(core: Any) -> Any:
    """Return a core schema that checks every item of a list, so that all errors are reported.

    >>> check_every_item({"type": "list", "items_schema": {"type": "int"}, "fail_fast": True})
    {'type': 'list', 'items_schema': {'type': 'int'}}
    """
    return rewrite(core, lambda node: {key: value for key, value in node.items() if key != "fail_fast"})


def forbid_extra_keys(core: Any) -> Any:
    """Return a core schema that rejects unknown keys where they would be dropped silently.

    >>> forbid_extra_keys({"type": "typed-dict", "fields": {}})
    {'type': 'typed-dict', 'fields': {}, 'extra_behavior': 'forbid'}
    """
    return rewrite(core, _forbid_in_node)


def _forbid_in_node(node: dict[str, Any]) -> dict[str, Any]:
    if node.get("type") in {"model", "dataclass"}:
        config = node.get("config") or {}
        behavior = config.get("extra_fields_behavior", "ignore")
        extra = {"extra_fields_behavior": "forbid" if behavior == "ignore" else behavior}
        return {**node, "config": {"val_json_bytes": "base64", **config, "allow_inf_nan": False, **extra}}
    if node.get("type") == "typed-dict" and node.get("extra_behavior", "ignore") == "ignore":
        return {**node, "extra_behavior": "forbid"}
    return node


def compile_core(core: Any) -> SchemaValidator:
    """Return a validator of exactly this core schema.

    pydantic-core would replace the schema of a complete model by the validator that the model already has, which
    ignores unknown keys. Models are marked as incomplete during compilation, as pydantic does when it rebuilds one.
    """
    from pydantic_core import SchemaValidator

    with _INCOMPLETE.mark(_classes_in(core)):
        return SchemaValidator(core)


class _Incomplete:
    """A lock under which classes are marked as incomplete."""

    def __init__(self) -> None:
        self._lock: threading.RLock = fork_safe_lock(self)

    @contextmanager
    def mark(self, classes: list[type]) -> Iterator[None]:
        if not classes:
            yield
            return
        with self._lock:
            changed = [each for each in classes if each.__dict__.get(_COMPLETE) is True]
            try:
                for each in changed:
                    setattr(each, _COMPLETE, False)
                yield
            finally:
                for each in changed:
                    setattr(each, _COMPLETE, True)


_COMPLETE = "__pydantic_complete__"
_INCOMPLETE = _Incomplete()


def _classes_in(core: Any) -> list[type]:
    """Return the classes of all models and dataclasses in a core schema."""
    found: list[type] = []

    def note(node: dict[str, Any]) -> dict[str, Any]:
        found.extend([node["cls"]] if node.get("type") in {"model", "dataclass"} else [])
        return node

    rewrite(core, note)
    return list(dict.fromkeys(found))
