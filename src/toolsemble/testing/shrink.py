"""From what makes something happen to the least that still does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from toolsemble.testing.tree import at, places, put, without

_FEW = 40  # characters of a text that are tried without, one by one


def shrunk(value: Any, happens: Callable[[Any], bool], attempts: int) -> Any:
    """Give a value that is as simple as some attempts can make it, with which it still happens.

    >>> shrunk({"path": "a/b/../c", "mode": "x", "sizes": [3, 4]}, lambda value: ".." in value.get("path", ""), 200)
    {'path': '..'}
    """
    left = attempts
    found = True
    while found:
        found = False
        for simpler in _simpler(value):
            if left <= 0:
                return value
            left -= 1
            if happens(simpler):
                value, found = simpler, True
                break
    return value


def _simpler(value: Any) -> Iterator[Any]:
    """Give values that are simpler in one place; the most is saved by the first ones."""
    for place in places(value):
        if place:
            yield without(value, place)
    for place in places(value):
        for simpler in _less(at(value, place)):
            yield put(value, place, simpler)


def _less(value: Any) -> Iterator[Any]:
    if isinstance(value, str):
        yield from _shorter(value)
    elif isinstance(value, list) and len(value) == 1:
        yield value[0]  # what is wrapped may do without
    elif isinstance(value, bool):
        yield from ([False] if value else [])
    elif isinstance(value, int):
        yield from _smaller(value)
    elif isinstance(value, float) and math.isfinite(value):
        # A whole number is simpler than one that is none, and never the other way round.
        yield int(value)


def _smaller(value: int) -> Iterator[int]:
    if value:
        yield 0
    if value < 0:
        yield -value
    elif value > 1:
        yield value // 2
        yield value - 1


def _shorter(text: str) -> Iterator[str]:
    half = len(text) // 2
    if text:
        yield ""
    if half:
        yield text[:half]
        yield text[half:]
        if len(text) <= _FEW:
            yield from (text[:index] + text[index + 1 :] for index in range(len(text)))
        else:
            yield text[:-1]
    if plain := "a" * len(text):
        yield from ([plain] if text != plain else [])
