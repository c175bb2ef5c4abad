"""Places in a run, such as ``/3.1``: which turn of the outermost agent they belong to, and their order."""

from __future__ import annotations

import re

_TURN = re.compile(r"/(\d+)")


def is_turn(place: str) -> bool:
    """Return whether a place is a turn of the outermost agent; ``/0`` stands for what was there before the first.

    >>> [is_turn(place) for place in ("/3", "/0", "/3.1", "/3.1/1")]
    [True, False, False, False]
    """
    return place.count("/") == 1 and "." not in place and find_turn(place) > 0


def find_turn(place: str) -> int:
    """Return the number of the turn of the outermost agent that a place belongs to.

    >>> find_turn("/3"), find_turn("/12.1/1.2")
    (3, 12)
    """
    found = _TURN.match(place)
    return 0 if found is None else int(found[1])
