"""Names and histogram buckets of metrics."""

from __future__ import annotations

import re
from hashlib import blake2s

DURATION_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""The upper bounds of the buckets for the duration of calls, in seconds."""

TOKEN_BUCKETS = tuple(4**power for power in range(14))
"""The upper bounds of the buckets for tokens, from OpenTelemetry's conventions."""

_MAX_LENGTH = 64
_OTHER = "other"


class MetricNames:
    """Valid metric names, up to a maximum number; any more become ``other``.

    So a name that contains model text can neither break the metrics nor exhaust memory.

    >>> names = MetricNames(most=2)
    >>> [names.clean(each) for each in ("pages", "pages read!", "third", "pages")]
    ['pages', 'pages_read', 'other', 'pages']
    """

    def __init__(self, most: int = 200) -> None:
        self._most = most
        self._known: dict[str, str] = {}

    def clean(self, name: str) -> str:
        """Return a name of letters, digits and underscores that starts with a letter."""
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= self._most:
                return _OTHER
            known = self._known.setdefault(name, _clean(str(name)))
        return known


def _clean(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", name[:_MAX_LENGTH]).strip("_")
    if not plain:
        plain = _digest(name)
    elif len(name) > _MAX_LENGTH:
        plain = f"{plain}_{_digest(name)}"
    return plain if plain[0].isalpha() else f"n{plain}"


def _digest(name: str) -> str:
    return blake2s(name.encode(errors="backslashreplace"), digest_size=4).hexdigest()
