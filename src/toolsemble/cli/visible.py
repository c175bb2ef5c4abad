"""Text of models, tools and files, made safe for a terminal."""

from __future__ import annotations

import unicodedata

_HARMLESS = {"\n", "\t", "\u200c", "\u200d"}  # the two joiners make up letters and pictures, and move nothing
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def visible(text: str) -> str:
    r"""Give a text in which nothing can move a cursor, paint a screen, turn letters around or hide.

    Lines, tabs and everything that is written as letters, signs or pictures stay as they are.

    >>> print(visible("caf\xe9\n\x1b[2Jfree\u202e\r"))
    café
    \x1b[2Jfree\u202e\r
    """
    if text.isprintable():
        return text
    return "".join(_escaped(each) if _hidden(each) else each for each in text.replace("\r\n", "\n"))


def one_line(text: str, limit: int | None = None) -> str:
    r"""Give a text on one line, of at most so many characters; also line breaks can be seen.

    >>> one_line("first\nsecond", 8)
    'first...'
    """
    cut = text if limit is None else text[:limit]
    line = visible(cut).replace("\n", "\\n").replace("\t", "\\t")
    if limit is None or (len(line) <= limit and cut == text):
        return line
    return f"{line[: limit - 3]}..."


def progress_line(fraction: object, message: object) -> str:
    """Give how far a call has come, on one line; of what any tool may say, only a number and a text are shown.

    >>> progress_line(0.4, "page 4 of 10"), progress_line("odd", None)
    ('40% page 4 of 10', '')
    """
    part = f"{fraction:.0%} " if isinstance(fraction, (int, float)) else ""
    return f"{part}{one_line(message) if isinstance(message, str) else ''}".rstrip()


def _hidden(character: str) -> bool:
    return character not in _HARMLESS and unicodedata.category(character) in _HIDDEN


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
