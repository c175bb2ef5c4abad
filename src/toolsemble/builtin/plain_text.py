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
# Files that can begin like text, and go on without a byte that no text has.
_SIGNATURES = (
    b"%PDF-",
    b"\x89PNG",
    b"GIF87a",
    b"GIF89a",
    b"\xff\xd8\xff",
    b"PK\x03\x04",
    b"\x1f\x8b",
    b"\x7fELF",
    b"Rar!\x1a\x07",
    b"7z\xbc\xaf\x27\x1c",
)
_CONTROLS = bytes({*range(32), 127} - set(b"\t\n\r\f\x1b"))
_ASCII = bytes(range(128))
_LETTERS = bytes([*b"\t\n\r\f\x1b", *range(32, 127)])
_MOSTLY = 0.7


class PlainText(NamedTuple):
    """A text, and how it was written."""

    text: str
    """The text, without a mark of its byte order."""
    encoding: str
    """The name by which Python knows the encoding."""
    whole: bool = True
    """Whether every byte could be read; else a mark stands for each that could not."""


def plain_text(data: bytes) -> PlainText | None:
    r"""Give the text of a file's bytes, or None when they are no text.

    >>> plain_text("café".encode())
    PlainText(text='café', encoding='utf-8', whole=True)
    >>> plain_text("café".encode("cp1252"))
    PlainText(text='café', encoding='cp1252', whole=True)
    >>> plain_text("naïve café".encode() + b"\xff")
    PlainText(text='naïve café\ufffd', encoding='utf-8', whole=False)
    >>> plain_text(b"\x89PNG\r\n\x1a\n\x00") is None
    True
    """
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            rest = data[len(mark) :]
            return _read(rest, encoding) or (_mended(rest) if encoding == "utf-8" else None)
    if data.startswith(_SIGNATURES):
        return None
    return _read(data, "utf-8") or _mended(data) or (_read(data, "cp1252") if _looks_written(data) else None)


def _read(data: bytes, encoding: str) -> PlainText | None:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else PlainText(text, encoding)


def _mended(data: bytes) -> PlainText | None:
    """Give UTF-8 with a few bytes that are none: an old encoding would make nonsense of all the others."""
    if _has_controls(data):
        return None
    high = len(data.translate(None, _ASCII))
    readable = len(data.decode(errors="ignore").encode()) - (len(data) - high)
    return PlainText(data.decode(errors="replace"), "utf-8", whole=False) if readable > high - readable else None


def _looks_written(data: bytes) -> bool:
    """Whether bytes look like text in an old encoding, where nearly every byte stands for something."""
    letters = len(data) - len(data.translate(None, _LETTERS))
    return letters > _MOSTLY * len(data) and not _has_controls(data)


def _has_controls(data: bytes) -> bool:
    return len(data.translate(None, _CONTROLS)) < len(data)
