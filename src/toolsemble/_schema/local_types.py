"""The local types where a tool is defined, which string annotations may refer to."""

from __future__ import annotations

import inspect
from types import FrameType
from typing import Any, NewType, TypeVar, get_origin


def collect_local_types(frame: FrameType | None) -> dict[str, Any]:
    """Return the local types of a frame; for a class body, also those of its enclosing scope."""
    names: dict[str, Any] = {}
    while frame is not None and frame.f_globals.get("__name__") == "abc":
        frame = frame.f_back  # skip the metaclass that creates the class
    while frame is not None and frame.f_locals is not frame.f_globals:
        names = {**{name: value for name, value in frame.f_locals.items() if _is_type(value)}, **names}
        if frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            break  # a function; only a class body sees the names of its enclosing scope
        frame = frame.f_back
    return names


def _is_type(value: object) -> bool:
    # Only types are kept: the locals of a function may be large.
    return isinstance(value, (type, TypeVar, NewType)) or hasattr(value, "__value__") or get_origin(value) is not None
