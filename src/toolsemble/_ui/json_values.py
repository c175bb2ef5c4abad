"""Records as JSON values and as JSON text, for pages."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

_PLAIN = (str, int, type(None))


def to_json_values(value: Any) -> Any:
    """Return dataclasses as objects, tuples as arrays, and numbers that JSON does not have as None.

    >>> from toolsemble._ui.forms import Option
    >>> to_json_values((Option("low", "1"), float("nan")))
    [{'label': 'low', 'text': '1'}, None]
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): to_json_values(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json_values(each) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {name: to_json_values(getattr(value, name)) for name in _list_names(value.__class__)}
    return str(value)


def to_json_text(value: Any) -> str:
    r"""Return a record as JSON text in ASCII, which any text can be written as, also one with lone surrogates.

    >>> to_json_text(["\ud800"])
    '["\\ud800"]'
    """
    return json.dumps(to_json_values(value), separators=(",", ":"), allow_nan=False)


@cache
def _list_names(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))
