"""Conditions of rules on the arguments of a call."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from toolsemble.review._pattern import possibly_matches, surely_matches

Range: TypeAlias = Mapping[str, float]
Condition: TypeAlias = str | bool | int | float | Range | Sequence[str | bool | int | float | Range]

_BOUNDS = ("max", "min")
_DECIMAL = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?")


def find_fault(condition: object) -> str:
    """Return what is wrong with a condition, or "".

    >>> find_fault({"mni": 3})
    "unknown key 'mni' of a range; known are max, min; nested arguments are written as one key: 'outer.mni'"
    """
    if not isinstance(condition, (list, tuple)):
        return _find_single_fault(condition)
    if not condition:
        return "an empty list never matches; pass at least one value"
    return next((found for each in condition if (found := _find_single_fault(each))), "")


def meets_conditions(arguments: Any, conditions: Mapping[str, Condition] | str | None, *, every: bool) -> bool:
    """Return whether the arguments of a call meet all conditions, in every possible reading or in at least one.

    >>> meets_conditions({"path": "/tmp/a", "options": {"force": True}}, {"options.force": True}, every=True)
    True
    """
    if conditions is None:
        return True
    if isinstance(conditions, str):
        return isinstance(arguments, str) and _fits(arguments, conditions, every=every)
    given = {"input": arguments} if isinstance(arguments, str) else arguments
    return all(_path_meets(given, key.split("."), condition, every=every) for key, condition in conditions.items())


def _find_single_fault(condition: object) -> str:
    if isinstance(condition, Mapping):
        return _find_range_fault(condition)
    if isinstance(condition, (str, bool)) or _is_number(condition):
        return ""
    expected = "a pattern, a number, true, false, a range with min and max, or a list of these"
    return f"expected {expected}, not {condition!r:.80}"


def _find_range_fault(condition: Mapping[Any, Any]) -> str:
    for key, bound in condition.items():
        if key not in _BOUNDS:
            hint = f"nested arguments are written as one key: 'outer.{key}'"
            return f"unknown key {key!r} of a range; known are {', '.join(_BOUNDS)}; {hint}"
        if not _is_number(bound):
            return f"{key} must be a number, not {bound!r:.80}"
    if not condition:
        return "a range needs min, max or both"
    if len(condition) == len(_BOUNDS) and condition["min"] > condition["max"]:
        return f"min {condition['min']} is more than max {condition['max']}"
    return ""


def _is_number(value: object) -> bool:
    # NaN is not equal to itself.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value  # noqa: PLR0124 - above


def _path_meets(value: Any, path: list[str], condition: Condition, *, every: bool) -> bool:
    """Return whether the values at a path meet a condition; of a list, its items are checked.

    A key may itself contain a dot, so a path can lead to several values: a model could add the one that a rule checks.
    """
    if isinstance(value, (list, tuple)):
        found = [_path_meets(item, path, condition, every=every) for item in value]
    elif not path:
        return _fits(value, condition, every=every)
    elif isinstance(value, Mapping):
        keys = {count: ".".join(path[:count]) for count in range(1, len(path) + 1)}
        found = [
            _path_meets(value[key], path[count:], condition, every=every) for count, key in keys.items() if key in value
        ]
    else:
        return False
    return bool(found) and (all if every else any)(found)


def _fits(value: Any, condition: Any, *, every: bool) -> bool:
    if isinstance(condition, (list, tuple)):
        return any(_fits(value, each, every=every) for each in condition)
    if isinstance(condition, str):
        return isinstance(value, str) and (surely_matches if every else possibly_matches)(condition, value)
    if isinstance(condition, bool):
        return value is condition
    number = _number(value, every=every)
    if number is None:
        return False
    if number != number:  # noqa: PLR0124 - NaN: it cannot be compared
        return not every
    if isinstance(condition, Mapping):
        return condition.get("min", number) <= number <= condition.get("max", number)  # type: ignore[no-any-return]  # numbers only
    return bool(number == condition)


def _number(value: Any, *, every: bool) -> Any:
    """Return the number of a value, also of a text: JSON has no decimals, infinity or NaN."""
    if isinstance(value, (int, float)):
        return None if isinstance(value, bool) else value
    if not isinstance(value, str):
        return None
    if every:
        return Decimal(value) if _DECIMAL.fullmatch(value) else None
    try:
        return float(value)
    except ValueError:
        return None
