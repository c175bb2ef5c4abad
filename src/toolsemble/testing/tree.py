"""Places inside of JSON values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

Place: TypeAlias = tuple[Any, ...]
"""The keys and indexes that lead to a value."""


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Give where there are values inside of a value, itself first.

    >>> list(places({"a": [1]}))
    [(), ('a',), ('a', 0)]
    """
    yield place
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield from places(each, (*place, key))


def at(value: Any, place: Place) -> Any:
    """Give what is at a place.

    >>> at({"a": [1]}, ("a", 0))
    1
    """
    for key in place:
        value = value[key]
    return value


def put(value: Any, place: Place, new: Any) -> Any:
    """Give a value with another one at a place.

    >>> put({"a": [1]}, ("a", 0), 2)
    {'a': [2]}
    """
    if not place:
        return new
    key, rest = place[0], place[1:]
    if isinstance(value, dict):
        return {**value, key: put(value.get(key), rest, new)}
    return [put(each, rest, new) if index == key else each for index, each in enumerate(value)]


def without(value: Any, place: Place) -> Any:
    """Give a value without what is at a place.

    >>> without({"a": 1, "b": 2}, ("a",)), without([1, 2], (0,))
    ({'b': 2}, [2])
    """
    key, inside = place[-1], at(value, place[:-1])
    if isinstance(inside, dict):
        return put(value, place[:-1], {name: each for name, each in inside.items() if name != key})
    return put(value, place[:-1], [each for index, each in enumerate(inside) if index != key])
