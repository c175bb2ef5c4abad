"""Shrinking of arguments to the simplest ones that still cause a crash."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from toolsemble.testing.tree import get_at, iterate_places, put_at, remove_at

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
    for place in iterate_places(value):
        if place:
            yield remove_at(value, place)
    for place in iterate_places(value):
        for simpler in _simplify_value(get_at(value, place)):
            yield put_at(value, place, simpler)


def _simplify_value(value: Any) -> Iterator[Any]:
    if isinstance(value, str):
        yield from _shorten(value)
    elif isinstance(value, list) and len(value) == 1:
        yield value[0]  # unwrap
    elif isinstance(value, bool):
        yield from ([False] if value else [])
    elif isinstance(value, int):
        yield from _shrink_int(value)
    elif isinstance(value, float) and math.isfinite(value):
        # An int counts as simpler than a float, never the other way round.
        yield int(value)


def _shrink_int(value: int) -> Iterator[int]:
    if value:
        yield 0
    if value < 0:
        yield -value
    elif value > 1:
        yield value // 2
        yield value - 1


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
