"""Keys of an object that are near to declared names, and equal values under several keys."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any


def unambiguous_names(properties: Mapping[str, Any], among: Iterable[str] | None) -> dict[str, str]:
    """Return the declared names by their folded form, if only one name has that form.

    >>> unambiguous_names({"minScore": {}, "tag": {}, "TAG": {}}, None)
    {'minscore': 'minScore'}
    """
    forms = [fold_key(name) for name in properties]
    number = Counter(forms)
    wanted = properties.keys() if among is None else set(among)
    return {form: name for form, name in zip(forms, properties, strict=True) if number[form] == 1 and name in wanted}


def conflicting_keys(value: dict[str, Any], unknown: Mapping[str, str], wanted: Mapping[str, str]) -> set[str]:
    """Return the keys with different values for one declared name, so that none can be chosen."""
    keys_by_name: dict[str, list[str]] = {}
    for key, form in unknown.items():
        if form in wanted:
            keys_by_name.setdefault(wanted[form], [wanted[form]] if wanted[form] in value else []).append(key)
    conflicts = [
        keys for keys in keys_by_name.values() if not all(_is_same(value[keys[0]], value[key]) for key in keys)
    ]
    return set().union(*conflicts)


def _is_same(first: Any, second: Any) -> bool:
    """Return whether two JSON values are the same, also as text: in Python, True equals 1."""
    return first == second and json.dumps(first) == json.dumps(second)


def fold_key(key: str) -> str:
    """Return a key without case and separators: ``minScore``, ``min-score`` and ``min_score`` are the same.

    >>> fold_key("min-Score")
    'minscore'
    """
    return re.sub(r"[\W_]", "", key).casefold()


def has_same(inside: Any, key: str, value: Any) -> bool:
    """Return whether a value is an object that has another value under a key.

    >>> has_same({"name": "z"}, "name", "z"), has_same({"count": 1}, "count", True)
    (True, False)
    """
    return isinstance(inside, dict) and key in inside and _is_same(inside[key], value)
