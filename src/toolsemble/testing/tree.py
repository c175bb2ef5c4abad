"""Access to nested JSON values by path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

Place: TypeAlias = tuple[Any, ...]
"""The path to a value: keys and indexes."""


def iterate_places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Yield the paths of all values inside of a value, starting with itself.

    >>> list(iterate_places({"a": [1]}))
    [(), ('a',), ('a', 0)]
    """
    yield place
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield from iterate_places(each, (*place, key))


def get_at(value: Any, place: Place) -> Any:
    """Return the value at a path.

    >>> get_at({"a": [1]}, ("a", 0))
    1
    """
    for key in place:
        value = value[key]
    return value


def put_at(value: Any, place: Place, new: Any) -> Any:
    """Return a copy with the value at a path replaced.

    >>> put_at({"a": [1]}, ("a", 0), 2)
    {'a': [2]}
    """
    if not place:
        return new
    key, rest = place[0], place[1:]
    if isinstance(value, dict):
        return {**value, key: put_at(value.get(key), rest, new)}
    return [put_at(each, rest, new) if index == key else each for index, each in enumerate(value)]


def remove_at(value: Any, place: Place) -> Any:
    """Return a copy without the value at a path.

    >>> remove_at({"a": 1, "b": 2}, ("a",)), remove_at([1, 2], (0,))
    ({'b': 2}, [2])
    """
    key, inside = place[-1], get_at(value, place[:-1])
    if isinstance(inside, dict):
        return put_at(value, place[:-1], {name: each for name, each in inside.items() if name != key})
    return put_at(value, place[:-1], [each for index, each in enumerate(inside) if index != key])
