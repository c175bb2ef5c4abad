"""The text that bytes hold, in whatever encoding it was written."""

from __future__ import annotations

import codecs
from typing import NamedTuple

# The longer marks first: one begins with another.
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_CONTROLS = bytes({*range(32), 127} - set(b"\t\n\r\f\x1b"))
_LETTERS = bytes([*b"\t\n\r\f\x1b", *range(32, 127)])
_MOSTLY = 0.7


class PlainText(NamedTuple):
    """A text, and how it was written."""

    text: str
    """The text, without a mark of its byte order."""
    encoding: str
    """The name by which Python knows the encoding."""


def plain_text(data: bytes) -> PlainText | None:
    r"""Give the text of a file's bytes, or None when they are no text.

    >>> plain_text("café".encode())
    PlainText(text='café', encoding='utf-8')
    >>> plain_text("café".encode("cp1252"))
    PlainText(text='café', encoding='cp1252')
    >>> plain_text(b"\x89PNG\r\n\x1a\n\x00") is None
    True
    """
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            return _read(data[len(mark) :], encoding)
    return _read(data, "utf-8") or (_read(data, "cp1252") if _looks_written(data) else None)


def _read(data: bytes, encoding: str) -> PlainText | None:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else PlainText(text, encoding)


def _looks_written(data: bytes) -> bool:
    """Whether bytes look like text in an old encoding, where nearly every byte stands for something."""
    letters = len(data) - len(data.translate(None, _LETTERS))
    return letters > _MOSTLY * len(data) and len(data.translate(None, _CONTROLS)) == len(data)
