"""Decode the bytes of a text file, whatever their encoding."""

from __future__ import annotations

import codecs
from typing import NamedTuple

# Longer marks first: the UTF-32 mark begins with the UTF-16 one.
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
# Binary formats whose content may otherwise look like text.
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
_MIN_LETTERS = 0.7


class PlainText(NamedTuple):
    """A text and its encoding."""

    text: str
    """The text, without a byte order mark."""
    encoding: str
    """Python's name of the encoding."""
    whole: bool = True
    """Whether every byte was decoded; otherwise each undecodable byte is replaced by U+FFFD."""


def decode_text(data: bytes) -> PlainText | None:
    r"""Return the text of a file's bytes, or None if they are not text.

    >>> decode_text("café".encode("cp1252"))
    PlainText(text='café', encoding='cp1252', whole=True)
    >>> decode_text("naïve café".encode() + b"\xff")
    PlainText(text='naïve café\ufffd', encoding='utf-8', whole=False)
    """
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            rest = data[len(mark) :]
            return _decode(rest, encoding) or (_decode_damaged(rest) if encoding == "utf-8" else None)
    if data.startswith(_SIGNATURES):
        return None
    return (
        _decode(data, "utf-8") or _decode_damaged(data) or (_decode(data, "cp1252") if _looks_like_text(data) else None)
    )


def _decode(data: bytes, encoding: str) -> PlainText | None:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else PlainText(text, encoding)


def _decode_damaged(data: bytes) -> PlainText | None:
    """Return mostly valid UTF-8 with replacements: a legacy encoding would garble all the valid characters."""
    if _has_controls(data):
        return None
    high = len(data.translate(None, _ASCII))
    readable = len(data.decode(errors="ignore").encode()) - (len(data) - high)
    return PlainText(data.decode(errors="replace"), "utf-8", whole=False) if readable > high - readable else None


def _looks_like_text(data: bytes) -> bool:
    """Return whether bytes look like text in a legacy encoding, in which nearly every byte is valid."""
    letters = len(data) - len(data.translate(None, _LETTERS))
    return letters > _MIN_LETTERS * len(data) and not _has_controls(data)


def _has_controls(data: bytes) -> bool:
    return len(data.translate(None, _CONTROLS)) < len(data)
