"""Images, audio and files in the requests of browsers: inline, or at public URLs, which are never fetched here."""

from __future__ import annotations

import re
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from toolsemble._runtime.guard.addresses import is_public
from toolsemble._runtime.guard.urls import UrlRefusedError, host_of
from toolsemble._vocabulary.media_url import check_url, file_name_of, guess_media_type, read_data_url
from toolsemble._vocabulary.result import AudioContent, FileContent, ImageContent, Media
from toolsemble.models._adapter.history import describe, read_base64, read_text

_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")
# The last label of a name is not a number: some programs read 127.1 and 0x7f.1 as addresses.
_NAME = re.compile(r"(?:[a-z0-9_-]+\.)+[a-z][a-z0-9-]*")
_LOCAL = (".localhost", ".local", ".internal", ".lan", ".home.arpa")
_MAX_NAME = 255


def read_attachment_data(data: object, media_type: object, name: object, place: str) -> Media:
    """Return an attachment of base64 text; raise ``ValueError`` if it is not one.

    >>> read_attachment_data("aGk=", "application/pdf", "a/report.pdf", "file")
    FileContent(<2 bytes>, mime_type='application/pdf', name='report.pdf')
    """
    return _build(_read_media_type(media_type, place), _read_name(name, place), place, data=read_base64(data, place))


def read_attachment_url(url: object, media_type: object, name: object, place: str) -> Media:
    """Return the attachment at a URL, which the provider fetches; the data of a ``data:`` URL is decoded.

    A client could have a model server in the own network read addresses there, so only public hosts are accepted.

    :param media_type: the media type; None: that of the extension

    >>> read_attachment_url("https://example.com/map.png", None, None, "file")
    ImageContent(url='https://example.com/map.png', mime_type='image/png')
    >>> read_attachment_url("http://10.0.0.5/map.png", None, None, "file")
    Traceback (most recent call last):
    ...
    ValueError: file: expected the URL of a public host, got the host '10.0.0.5'
    """
    address, known = read_text(url, place), _read_name(name, place)
    if address[:5].lower() == "data:":
        data, kind = read_data_url(place, address)
        return _build(_read_media_type(kind, place), known, place, data=data)
    check_url(place, address)
    _check_host(address, place)
    found = guess_media_type(address) if media_type is None else media_type
    return _build(_read_media_type(found, place), known or file_name_of(address), place, data=b"", url=address)


def _build(media_type: str, name: str, place: str, **source: Any) -> Media:
    family = media_type.partition("/")[0]
    if family == "video":
        raise ValueError(f"{place}: expected an image, audio or a file, got the media type {media_type!r:.80}")
    if not (source["data"] or source.get("url")):
        raise ValueError(f"{place}: expected data, got none")
    if family == "image":
        return ImageContent(mime_type=media_type, **source)
    if family == "audio":
        return AudioContent(mime_type=media_type, **source)
    return FileContent(mime_type=media_type, name=name or "file", **source)


def _read_media_type(media_type: object, place: str) -> str:
    """Return a media type in lower case, without parameters."""
    if isinstance(media_type, str):
        plain = media_type.partition(";")[0].strip().lower()
        if _MEDIA_TYPE.fullmatch(plain):
            return plain
    raise ValueError(f"{place}: expected a media type, such as 'image/png', got {describe(media_type)}")


def _read_name(name: object, place: str) -> str:
    """Return a file name without directories; empty for None."""
    if name is None:
        return ""
    plain = PurePosixPath(PureWindowsPath(read_text(name, place)).as_posix()).name
    return "".join(each for each in plain if each.isprintable())[:_MAX_NAME]


def _check_host(url: str, place: str) -> None:
    """Raise ``ValueError`` for an address that is not public, and for a name that only a local network has."""
    try:
        host = host_of(url)
    except UrlRefusedError as problem:
        raise ValueError(f"{place}: {problem}") from None
    plain = host.removesuffix(".")
    if not (is_public(host) or (_NAME.fullmatch(plain) and not plain.endswith(_LOCAL))):
        raise ValueError(f"{place}: expected the URL of a public host, got the host {host!r:.80}")
