"""Bytes from the web as text, whatever their server says they are."""

from __future__ import annotations

import codecs
import re

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_DECLARED = re.compile(
    rb"""<(?:meta\b[^>]*?charset|\?xml\b[^>]*?encoding)\s*=\s*["']?\s*([a-zA-Z0-9_:.-]{1,40})""", re.IGNORECASE
)
_HALF_LETTER = re.compile(rb"[\xc2-\xf4][\x80-\xbf]{0,2}\Z")
_LOOKED_AT = 4096
_SAMPLE = 65536
# Codecs that are charsets of the web; Python has others, which run programs' escapes or names of hosts.
_CHARSETS = re.compile(
    r"utf-8|utf-16(-[lb]e)?|cp\d+|iso8859-\d+|koi8-[rut]|gb18030|big5(hkscs)?|shift_jis\w*|euc_\w+|iso2022_\w+|mac-\w+|johab|hz"
)
# As browsers read these names: nearly all who write the left one send the right one.
_MEANT = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "utf-16": "utf-16-le",
}
# Scripts that can be told by their bytes; guesses between the charsets of Latin letters are no better than chance.
_TELLABLE = {
    "cp1251",
    "cp1253",
    "cp1255",
    "cp1256",
    "cp874",
    "cp932",
    "cp949",
    "koi8-r",
    "koi8-u",
    "gb18030",
    "big5",
    "euc_jp",
}
_WESTERN = {"cp1252", "cp1254", "iso8859-15"}


def decoded(body: bytes, declared: str = "", *, cut: bool = False) -> str:
    """Give the text of a body: by its byte order mark, by what was declared, or by what the bytes look like.

    With ``cut``, the body may end in the middle of a letter.

    >>> decoded("Größe".encode("cp1252"), "iso-8859-1")
    'Größe'
    >>> decoded("Größe".encode(), "iso-8859-1")  # the server is wrong: this cannot be an accident
    'Größe'
    """
    if cut:
        body = _HALF_LETTER.sub(b"", body)
    for mark, charset in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(charset, "replace")
    for charset in filter(None, (_charset(declared), _charset(_written(body)), "utf-8")):
        try:
            return body.decode("utf-8" if charset in _WESTERN and _is_utf8(body) else charset)
        except UnicodeDecodeError:
            continue
    return body.decode(_guessed(body), "replace")


def _written(body: bytes) -> str:
    """Give the charset that a page names in its first lines."""
    found = _DECLARED.search(body[:_LOOKED_AT])
    name = found[1].decode() if found else ""
    # What could be read as letters so far is not in sixteen bits, whatever it says.
    return "utf-8" if name.lower().startswith("utf-16") else name


def _charset(name: str) -> str:
    try:
        found = codecs.lookup(name.strip()).name
    except (LookupError, ValueError):
        return ""
    meant = _MEANT.get(found, found)
    return meant if _CHARSETS.fullmatch(meant) else ""


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _guessed(body: bytes) -> str:
    import charset_normalizer  # noqa: PLC0415 - nearly every body says what it is

    best = charset_normalizer.from_bytes(body[:_SAMPLE]).best()
    found = _charset(best.encoding if best else "")
    return found if found in _TELLABLE else "cp1252"
