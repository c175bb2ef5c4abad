"""The files of ``ask --file``, as contents of the prompt: images, audio and files by what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble._vocabulary.media_url import guess_media_type
from toolsemble._vocabulary.result import AudioContent, FileContent, ImageContent, Media

MAX_BYTES = 100_000_000
"""The most bytes of a file; no provider takes more."""

_SIGNATURES = (
    (b"%PDF-", "application/pdf"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
)
_RIFF_TYPES = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}


def read_attachments(sources: Sequence[str]) -> list[Media]:
    """Return the contents of files and URLs; raise ``ToolConfigurationError`` if one cannot be used."""
    return [_read_url(each) if "://" in each else _read_file(Path(each).expanduser()) for each in sources]


def _read_url(url: str) -> Media:
    try:
        kind = guess_media_type(url) or ""
        if kind.startswith("image/"):
            return ImageContent.from_url(url)
        return AudioContent.from_url(url) if kind.startswith("audio/") else FileContent.from_url(url)
    except ValueError as problem:
        raise ToolConfigurationError(f"--file: {problem}") from None


def _read_file(path: Path) -> Media:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as problem:
        raise ToolConfigurationError(f"--file: '{path}' cannot be read: {problem.strerror}") from None
    if not data:
        raise ToolConfigurationError(f"--file: '{path}' is empty")
    if len(data) > MAX_BYTES:
        raise ToolConfigurationError(f"--file: '{path}' has more than {MAX_BYTES // 1_000_000} MB; pass a part of it")
    kind = _find_type(path, data)
    if kind.startswith("image/"):
        return ImageContent(data, kind)
    return AudioContent(data, kind) if kind.startswith("audio/") else FileContent(data, kind, path.name)


def _find_type(path: Path, data: bytes) -> str:
    """Return the media type: by the first bytes, else by the extension, else that of plain text."""
    found = next((kind for start, kind in _SIGNATURES if data.startswith(start)), None)
    if data.startswith(b"RIFF"):
        found = _RIFF_TYPES.get(data[8:12])
    kind = found or guess_media_type(path.name)
    if kind is None and _is_text(data):
        return "text/plain"
    if kind is None:
        raise ToolConfigurationError(
            f"--file: the type of '{path}' is unknown; give it an extension, such as .pdf, .png, .wav or .txt"
        )
    return kind


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False
