"""The names under which metrics are known outside, and how many there can be."""

from __future__ import annotations

import re
from hashlib import blake2s

_LONGEST = 64
_OTHERS = "other"


class Names:
    """Writes names of any kind as metrics can have them, up to a number; all further ones are one name.

    A name that a program makes of what a model sends can neither break the metrics nor fill the memory.

    >>> names = Names(most=2)
    >>> [names.of(each) for each in ("pages", "pages read!", "third", "pages")]
    ['pages', 'pages_read', 'other', 'pages']
    """

    def __init__(self, most: int = 200) -> None:
        self._most = most
        self._known: dict[str, str] = {}

    def of(self, name: str) -> str:
        """Give a name of letters, digits and underscores, which begins with a letter."""
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= self._most:
                return _OTHERS
            known = self._known.setdefault(name, _written(str(name)))
        return known


def _written(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", name[:_LONGEST]).strip("_")
    if not plain:
        plain = _digest(name)
    elif len(name) > _LONGEST:
        plain = f"{plain}_{_digest(name)}"
    return plain if plain[0].isalpha() else f"n{plain}"


def _digest(name: str) -> str:
    return blake2s(name.encode(errors="backslashreplace"), digest_size=4).hexdigest()
