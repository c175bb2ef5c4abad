"""Typed dicts whose keys differ between the code and the JSON arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any


class RenamedDict(dict[str, Any]):
    """A dict with the names in the code that also keeps the keys of the JSON arguments.

    >>> RenamedDict({"left": 1}, {"left": "Left"})
    {'left': 1}
    """

    __slots__ = ("keys_shown",)

    def __init__(self, values: Mapping[str, Any] = {}, keys_shown: Mapping[str, str] = {}) -> None:
        super().__init__(values)
        self.keys_shown = keys_shown


def make_renamer(fields: Mapping[str, str]) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
    """Return a function that creates a RenamedDict; None if no name in the code differs from its JSON key.

    >>> make_renamer({"left": "left"}) is None
    True
    """
    keys = {name: key for name, key in fields.items() if key != name}
    return partial(RenamedDict, keys_shown=keys) if keys else None
