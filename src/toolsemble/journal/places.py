"""Places in a run, such as ``/3.1``: which turn of the outermost agent they belong to, and their order."""

from __future__ import annotations

import re

_TURN = re.compile(r"/(\d+)")
_PLACE = re.compile(r"/\d+(?:\.\w+)*(?:/\d+(?:\.\w+)*)*")


def is_place(text: object) -> bool:
    """Return whether a text has the form of a place.

    >>> [is_place(text) for text in ("/3", "/3.1", "/3.1/1.2", "3.1", "/x")]
    [True, True, True, False, False]
    """
    return isinstance(text, str) and _PLACE.fullmatch(text) is not None


def find_turn(place: str) -> int:
    """Return the number of the turn of the outermost agent that a place belongs to.

    >>> find_turn("/3"), find_turn("/12.1/1.2")
    (3, 12)
    """
    found = _TURN.match(place)
    return 0 if found is None else int(found[1])
