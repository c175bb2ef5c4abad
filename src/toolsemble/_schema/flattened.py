"""Flattened arguments: keys that a model sent beside the parameter that they belong in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolsemble._schema.pointer import resolve_schema
from toolsemble._schema.problem import Problem, format_key

_SHOWN = 5


def hint_at_nesting(schema: Mapping[str, Any], value: Mapping[str, Any], problems: Sequence[Problem]) -> str:
    """Return a hint for unknown keys that belong in an object parameter; "" if there is none.

    >>> refund = {"properties": {"args": {"type": "object", "properties": {"name": {}, "amount": {}}}}}
    >>> hint_at_nesting(refund, {"name": "z", "amount": 3}, [Problem(("args",), "missing")])
    "; 'name' and 'amount' belong in 'args'"
    """
    root = resolve_schema(schema, schema)
    properties: Mapping[str, Any] = root.get("properties", {})
    if value.keys() <= properties.keys():
        return ""
    unknown = [key for key in value if key not in properties]
    missing = [str(problem.path[0]) for problem in problems if problem.message == "missing" and len(problem.path) == 1]
    wrong = {problem.path[0] for problem in problems if len(problem.path) == 1}
    # Without a missing parameter, a key may belong in any of those that are there.
    names, keys = (missing, unknown) if missing else (list(properties), [key for key in unknown if key in wrong])
    hints = []
    for name in names if keys else ():
        inside = find_properties(schema, properties.get(name))
        if fitting := [key for key in keys if key in inside]:
            hints.append(f"; {_join_keys(fitting)} belong{'s' if len(fitting) == 1 else ''} in '{name}'")
    return "".join(hints) if len(hints) == 1 else ""  # with several places, a key could belong in any of them


def find_properties(root: Mapping[str, Any], schema: Any) -> Mapping[str, Any]:
    """Return the properties of an object schema; those of all options of a union.

    >>> sorted(find_properties({}, {"anyOf": [{"properties": {"a": {}}}, {"type": "null"}]}))
    ['a']
    """
    if not isinstance(schema, Mapping):
        return {}
    found = resolve_schema(root, schema)
    inside = dict(found.get("properties", {}))
    for option in (*found.get("anyOf", ()), *found.get("oneOf", ())):
        inside |= resolve_schema(root, option).get("properties", {}) if isinstance(option, Mapping) else {}
    return inside


def _join_keys(keys: Sequence[str]) -> str:
    shown = [f"'{format_key(key)}'" for key in keys[:_SHOWN]]
    if len(keys) > _SHOWN:
        shown.append(f"{len(keys) - _SHOWN} more")
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
