"""Sanitizing of untrusted text: one-line previews, invisible characters."""

from __future__ import annotations

import re

# Control characters, line separators, marks that change the direction of text, and lone surrogates.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


SHOWN = 200
"""The default length of a preview."""


def preview(text: str, limit: int = SHOWN) -> str:
    r"""Return the start of a text on one line, escaped so that it cannot forge log lines or move a cursor.

    >>> preview("first\nsecond", 8)
    'first\\nse...'
    """
    shown = _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text[:limit])
    return shown if len(text) <= limit else f"{shown}..."


# Unicode's Default_Ignorable_Code_Point, and letters and marks that are drawn as nothing or as a blank. Control
# characters, other spaces, surrogates and unassigned code points are found by `str.isprintable`.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u2d7f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc\U0001107f\U00013441-\U00013446\U00016fe4\U0001bca0-\U0001bca3\U0001d159"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def has_invisible(text: str) -> bool:
    r"""Return whether a text has invisible characters, including line breaks and tabs.

    >>> has_invisible("M\xfcller"), has_invisible("pass\u034fword"), has_invisible("a\nb")
    (False, True, True)
    """
    return (not text.isascii() and _INVISIBLE.search(text) is not None) or not text.isprintable()


def without_invisible(text: str, blank: str = "") -> str:
    r"""Return a text with its invisible characters removed or replaced; white space stays.

    >>> without_invisible("pass\u034fword\n"), without_invisible("rm\u3164-rf", " ")
    ('password\n', 'rm -rf')
    """
    if not has_invisible(text):
        return text
    text = _INVISIBLE.sub(blank, text)
    return "".join(each if each.isprintable() or each.isspace() else blank for each in text)


def escape_invisible(text: str) -> str:
    r"""Return a text with each invisible character written as an escape.

    >>> print(escape_invisible("free\xa0of\u3164charge"))
    free\xa0of\u3164charge
    """
    if not has_invisible(text):
        return text
    shown = _INVISIBLE.sub(lambda found: _escape(found[0]), text)
    return "".join(each if each.isprintable() else _escape(each) for each in shown)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
