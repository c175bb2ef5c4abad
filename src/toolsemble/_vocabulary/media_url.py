"""URLs of images, audio and files: checked, never fetched; the data of a ``data:`` URL is decoded."""

from __future__ import annotations

import binascii
from base64 import b64decode
from mimetypes import guess_type
from pathlib import PurePosixPath
from urllib.parse import unquote, unquote_to_bytes, urlsplit

_MAX_LENGTH = 8192
_SHOWN = 80
_SCHEMES = "an http, https or data URL, such as 'https://example.com/map.png'"


def check_url(user: str, url: object) -> None:
    """Raise ``ValueError`` for anything but an http or https URL without a password.

    >>> check_url("ImageContent", "file:///etc/passwd")
    Traceback (most recent call last):
    ...
    ValueError: ImageContent needs an http, https or data URL, such as 'https://example.com/map.png', not \
'file:///etc/passwd'
    """
    if not (isinstance(url, str) and _is_web_url(url)):
        raise ValueError(f"{user} needs {_SCHEMES}, not {_shorten(url)}")
    if len(url) > _MAX_LENGTH:
        raise ValueError(f"{user} URL has {len(url)} characters; the limit is {_MAX_LENGTH}")
    if "@" in urlsplit(url).netloc:
        raise ValueError(f"{user} URL contains a password, which the provider would see; use a signed URL")


def read_data_url(user: str, url: str) -> tuple[bytes, str]:
    """Return the data and the media type of a ``data:`` URL; raise ``ValueError`` if it cannot be decoded.

    >>> read_data_url("ImageContent", "data:image/png;base64,aGk=")
    (b'hi', 'image/png')
    """
    head, comma, text = url[len("data:") :].partition(",")
    kind, *parameters = [each.strip() for each in head.split(";")]
    try:
        data = b64decode(unquote(text), validate=True) if "base64" in parameters else unquote_to_bytes(text)
    except (binascii.Error, ValueError):
        comma = ""
    if not comma:
        raise ValueError(f"{user} cannot decode the data URL {_shorten(url)}")
    return data, kind or "text/plain"


def guess_media_type(name: str) -> str | None:
    """Return the media type of a URL or a file name by its extension; None if unknown.

    >>> guess_media_type("https://example.com/map.PNG?size=2"), guess_media_type("notes.md"), guess_media_type("a")
    ('image/png', 'text/markdown', None)
    """
    return guess_type(PurePosixPath(file_name_of(name)).name.lower())[0]


def file_name_of(url: str) -> str:
    """Return the last part of a URL's path; empty if there is none.

    >>> file_name_of("https://example.com/a/annual%20report.pdf?x=1")
    'annual report.pdf'
    """
    return PurePosixPath(unquote(urlsplit(url).path)).name


def hide_query(url: str) -> str:
    """Return a URL without its query, which often contains a signature.

    >>> hide_query("https://example.com/a.pdf?signature=abc")
    'https://example.com/a.pdf'
    """
    return url.partition("?")[0].partition("#")[0]


def _is_web_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and url.isprintable() and " " not in url
    except ValueError:
        return False


def _shorten(url: object) -> str:
    text = repr(url)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
