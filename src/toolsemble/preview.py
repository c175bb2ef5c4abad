"""Text that a model wrote, safe to show to people."""

from __future__ import annotations

import re

# Controls, line separators, marks that turn the direction of text around, and halves of surrogate pairs.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


SHOWN = 200
"""How much of a text is enough to know it again."""


def preview(text: str, limit: int = SHOWN) -> str:
    r"""Give the start of a text on one line: what a model wrote cannot forge log lines or move a cursor.

    >>> preview("first\nsecond", 8)
    'first\\nse...'
    """
    shown = _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text[:limit])
    return shown if len(text) <= limit else f"{shown}..."
