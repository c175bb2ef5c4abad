"""Decode bytes from the web, even if the server declares a wrong charset."""

from __future__ import annotations

import codecs
import re

from toolsemble._runtime.extras import import_extra

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_DECLARED = re.compile(
    rb"""<(?:meta\b[^>]*?charset|\?xml\b[^>]*?encoding)\s*=\s*["']?\s*([a-zA-Z0-9_:.-]{1,40})""", re.IGNORECASE
)
_INCOMPLETE_CHARACTER = re.compile(rb"[\xc2-\xf4][\x80-\xbf]{0,2}\Z")
_SEARCHED = 4096
_SAMPLE = 65536
# Python's codecs that are charsets of the web; others, such as unicode_escape and idna, are not.
_CHARSETS = re.compile(
    r"utf-8|utf-16(-[lb]e)?|cp\d+|iso8859-\d+|koi8-[rut]|gb18030|big5(hkscs)?|shift_jis\w*|euc_\w+|iso2022_\w+|mac-\w+|johab|hz"
)
# The charsets that browsers use for these names, as most servers that declare the left one send the right one.
_BROWSER_CHARSETS = {
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
# Charsets that can be detected; guesses between those of Latin letters are no better than chance.
_DETECTABLE = {
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


def decode_body(body: bytes, declared: str = "", *, truncated: bool = False) -> str:
    """Return the text of a body: by its byte order mark, by the declared charset, or by detection.

    A truncated body may end in the middle of a character.

    >>> decode_body("Größe".encode("cp1252"), "iso-8859-1")
    'Größe'
    >>> decode_body("Größe".encode(), "iso-8859-1")  # valid UTF-8: the server is wrong
    'Größe'
    """
    if truncated:
        body = _INCOMPLETE_CHARACTER.sub(b"", body)
    for mark, charset in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(charset, "replace")
    for charset in filter(None, (_normalize(declared), _normalize(_declared_charset(body)), "utf-8")):
        try:
            return body.decode("utf-8" if charset in _WESTERN and _is_utf8(body) else charset)
        except UnicodeDecodeError:
            continue
    return body.decode(_detect(body), "replace")


def _declared_charset(body: bytes) -> str:
    """Return the charset that a page declares in its first lines."""
    found = _DECLARED.search(body[:_SEARCHED])
    name = found[1].decode() if found else ""
    # The declaration itself was read as ASCII, so the page cannot be UTF-16.
    return "utf-8" if name.lower().startswith("utf-16") else name


def _normalize(name: str) -> str:
    try:
        found = codecs.lookup(name.strip()).name
    except (LookupError, ValueError):
        return ""
    charset = _BROWSER_CHARSETS.get(found, found)
    return charset if _CHARSETS.fullmatch(charset) else ""


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _detect(body: bytes) -> str:
    # Imported here, because nearly every body declares its charset.
    charset_normalizer = import_extra("charset_normalizer", extra="http", user="A response without a declared charset")
    best = charset_normalizer.from_bytes(body[:_SAMPLE]).best()
    found = _normalize(best.encoding if best else "")
    return found if found in _DETECTABLE else "cp1252"
