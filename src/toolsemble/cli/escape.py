"""Escape control characters in text from models, tools and files, so that it is safe for a terminal."""

from __future__ import annotations

import unicodedata

_ALLOWED = {"\n", "\t", "\u200c", "\u200d"}  # the two joiners are part of letters and emoji
_HIDDEN_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def escape(text: str) -> str:
    r"""Return a text with control, bidirectional and other invisible characters escaped.

    Line feeds, tabs and all visible characters are kept.

    >>> print(escape("caf\xe9\n\x1b[2Jfree\u202e\r"))
    café
    \x1b[2Jfree\u202e\r
    """
    if text.isprintable():
        return text
    return "".join(_escape_character(each) if _is_hidden(each) else each for each in text.replace("\r\n", "\n"))


def escape_line(text: str, limit: int | None = None) -> str:
    r"""Return a text escaped and on one line, truncated to ``limit`` characters.

    >>> escape_line("first\nsecond", 8)
    'first...'
    """
    cut = text if limit is None else text[:limit]
    line = escape(cut).replace("\n", "\\n").replace("\t", "\\t")
    if limit is None or (len(line) <= limit and cut == text):
        return line
    return f"{line[: limit - 3]}..."


def format_progress(fraction: object, message: object) -> str:
    """Return the progress of a call on one line; ignore a fraction or a message of the wrong type.

    >>> format_progress(0.4, "page 4 of 10"), format_progress("odd", None)
    ('40% page 4 of 10', '')
    """
    part = f"{fraction:.0%} " if isinstance(fraction, (int, float)) else ""
    return f"{part}{escape_line(message) if isinstance(message, str) else ''}".rstrip()


def _is_hidden(character: str) -> bool:
    return character not in _ALLOWED and unicodedata.category(character) in _HIDDEN_CATEGORIES


def _escape_character(character: str) -> str:
    return character.encode("unicode_escape").decode()
