"""Values as people are shown them: as JSON, every field of them, under the names that the model knows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from toolsemble.errors import ToolDefinitionError
from toolsemble.schema.members import members_reader
from toolsemble.schema.problem import UnfitError

HIDDEN = "**********"
"""What stands in the place of a secret."""

_AS_THEY_ARE = (str, int, bool, type(None))


def presented(value: Any, keys: Mapping[str, str] | None = None, *, reveal: bool = False) -> Any:
    """Give a value as JSON values that nobody else holds; the keys are the model's names for those of a dict.

    It is no serialization: what a type leaves out when it is serialized is shown, because the tool gets it. Only
    secrets are hidden, unless they are to be revealed.

    >>> presented({"size": (3, 4), "note": b"ok"}, {"size": "Size"})
    {'Size': [3, 4], 'note': 'b2s='}
    """
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if isinstance(value, Mapping):
        renamed, shown = keys or {}, {key: presented(each, reveal=reveal) for key, each in value.items()}
        return {renamed.get(key, key) if isinstance(key, str) else _key(key): each for key, each in shown.items()}
    if hasattr(kind, "__pydantic_root_model__") and kind.__pydantic_root_model__:
        return presented(value.root, reveal=reveal)
    if (names := names_of(kind)) is not None:
        fields = {key: getattr(value, name) for name, key in names.items() if hasattr(value, name)}
        return presented({**fields, **(getattr(value, "__pydantic_extra__", None) or {})}, reveal=reveal)
    if isinstance(value, (list, tuple)):
        return [presented(item, reveal=reveal) for item in value]
    if isinstance(value, (set, frozenset)):
        # In an order of their own: another process, in which a set is walked in another one, must see the same.
        return sorted((presented(item, reveal=reveal) for item in value), key=json.dumps)
    if hasattr(kind, "get_secret_value"):
        return presented(value.get_secret_value(), reveal=True) if reveal else HIDDEN
    return _plain(value)


def written(value: Any) -> str:
    """Give a value as JSON text of what people are shown of it; raise :class:`UnfitError` when it is none.

    >>> written({"size": (3, 4)})
    '{"size": [3, 4]}'
    """
    try:
        return json.dumps(presented(value), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise UnfitError from None


def names_of(kind: type) -> dict[str, str] | None:
    """Give the names of a type's fields with what the model calls them; None when it has no fields.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Point:
    ...     x: int
    >>> names_of(Point), names_of(int)
    ({'x': 'x'}, None)
    """
    if (infos := getattr(kind, "__pydantic_fields__", None)) is not None:
        aliases = {name: (info.validation_alias, info.alias) for name, info in infos.items()}
        return {name: next((a for a in known if isinstance(a, str)), name) for name, known in aliases.items()}
    try:
        return _read_names(kind)
    except ToolDefinitionError:  # names in annotations that only the place of the tool's definition knows
        return _declared(kind)


@lru_cache(maxsize=1000)
def _read_names(kind: type) -> dict[str, str] | None:
    # Annotations take long to read, and a pipeline asks at each call.
    read = members_reader(kind)
    return None if read is None else {field.name: field.key or field.name for field in read(kind, {})}


def _declared(kind: type) -> dict[str, str]:
    annotations = [vars(base).get("__annotations__", {}) for base in reversed(kind.__mro__)]
    return {name: name for each in annotations for name in each}


def _key(key: Any) -> str:
    shown = _plain(key)
    return shown if isinstance(shown, str) else str(shown)


def _plain(value: Any) -> Any:
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 - only calls that need approval come here

    return to_jsonable_python(value, fallback=str, bytes_mode="base64", inf_nan_mode="strings")
