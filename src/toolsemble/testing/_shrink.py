"""Shrinking of arguments to the simplest ones that still cause a crash."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

_SHORT_TEXT = 40  # up to this length, each character is removed on its own


def shrink(value: Any, happens: Callable[[Any], bool], attempts: int) -> Any:
    """Return the simplest value, found in a number of attempts, for which ``happens`` is still true.

    >>> shrink({"path": "a/b/../c", "mode": "x", "sizes": [3, 4]}, lambda value: ".." in value.get("path", ""), 200)
    {'path': '..'}
    """
    left = attempts
    found = True
    while found:
        found = False
        for simpler in _simplify(value):
            if left <= 0:
                return value
            left -= 1
            if happens(simpler):
                value, found = simpler, True
                break
    return value


def _simplify(value: Any) -> Iterator[Any]:
    """Yield values that are simpler in one place, the largest simplifications first."""
    if isinstance(value, dict):
        yield from ({name: each for name, each in value.items() if name != key} for key in value)
        yield from ({**value, key: simpler} for key, each in value.items() for simpler in _simplify(each))
    elif isinstance(value, list):
        yield from _unwrap(value) if len(value) == 1 else ()
        yield from (value[:index] + value[index + 1 :] for index in range(len(value)))
        for index, each in enumerate(value):
            yield from ([*value[:index], simpler, *value[index + 1 :]] for simpler in _simplify(each))
    elif isinstance(value, str):
        yield from _shorten(value)
    elif isinstance(value, bool):
        yield from ([False] if value else [])
    elif isinstance(value, int):
        yield from _shrink_int(value)
    elif isinstance(value, float) and math.isfinite(value):
        # An int counts as simpler than a float, never the other way round.
        yield int(value)


def _unwrap(value: list[Any]) -> Iterator[Any]:
    """Yield what is in a list of one item: what is in the innermost of such lists, and the item."""
    inner: Any = value
    while isinstance(inner, list) and len(inner) == 1:
        inner = inner[0]
    yield inner
    if inner is not value[0]:
        yield value[0]


def _shrink_int(value: int) -> Iterator[int]:
    if value:
        yield 0
    if value < 0:
        yield -value
        yield from (-each for each in _shrink_int(-value) if each)
    elif value > 1:
        yield value >> value.bit_length() // 2  # half of the digits
        step = value // 2
        while step:
            yield value - step
            step //= 2


def _shorten(text: str) -> Iterator[str]:
    half = len(text) // 2
    if text:
        yield ""
    if half:
        yield text[:half]
        yield text[half:]
        if len(text) <= _SHORT_TEXT:
            yield from (text[:index] + text[index + 1 :] for index in range(len(text)))
        else:
            yield text[:-1]
    if plain := "a" * len(text):
        yield from ([plain] if text != plain else [])
