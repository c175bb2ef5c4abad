"""Getting the file of a model into the cache: whole, checked, and by one process at a time."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from toolsemble.errors import ToolConfigurationError, ToolDefinitionError
from toolsemble.local.weights.cache import kept, located, place_of, size_of
from toolsemble.local.weights.catalogue import Weights, entry
from toolsemble.local.weights.hub import HubSource
from toolsemble.local.weights.index import IndexSource
from toolsemble.local.weights.source import PullProgress, Source, SourceError, Tell
from toolsemble.runtime.extras import import_extra

LOGGER = logging.getLogger("toolsemble.weights")
_KNOWN: dict[str, Callable[[], Source]] = {"hub": HubSource, "index": IndexSource}
_ORDER = "hub,index"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_CHUNK = 1024 * 1024
_POLL = 0.1


def pull(
    name: str | os.PathLike[str] | Weights | None = None,
    *,
    sources: Sequence[Source | str] | None = None,
    progress: Tell | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Path:
    """Give the file of a model, and download it if it is not here yet; refuse when no source has it.

    A pull that was ended in the middle, by whatever, is resumed by the next one. Of several at once, one works and
    the others wait for it. The file appears in the cache only after its SHA-256 was found right.

    :param name: as for :func:`located`; a path is given back, and needs no download
    :param sources: whom to ask, one after the other, by name or as objects; ``TOOLSEMBLE_SOURCES``, such as
        ``index`` or ``hub,index``, by default, and else the hub, then the index
    :param progress: is told how far it is
    :param cache: the directory of pulled files; that of this user by default

    >>> import hashlib, tempfile
    >>> from toolsemble.weights import Weights
    >>> class Share:
    ...     name = "share"
    ...     def fetch(self, weights, target, progress):
    ...         target.write_bytes(b"GGUF")
    >>> mine = Weights("mine", "mine.gguf", 4, hashlib.sha256(b"GGUF").hexdigest(), "MIT", "me/mine", "main")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pull(mine, sources=[Share()], cache=folder).read_bytes()
    b'GGUF'
    """
    chosen = _chosen(sources)
    found = located(name, cache=cache)
    if found is not None:
        return found
    weights = entry(name)  # type: ignore[arg-type]  # a path was found, or refused
    tell = progress or _silent
    place = place_of(weights, cache)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _alone(place.parent / "lock", weights, tell):
            # Whoever was first may have left it complete.
            return place if kept(weights, place) else _pulled(weights, place, chosen, tell)
    except OSError as error:
        raise ToolConfigurationError(
            f"{weights.file!r} cannot be put into '{place.parent}': {error}; "
            "TOOLSEMBLE_CACHE can name another directory"
        ) from error


def _silent(_: PullProgress) -> None:
    """Tell nobody."""


def _chosen(sources: Sequence[Source | str] | None) -> list[Source]:
    origin = "sources"
    if sources is None:
        origin = "TOOLSEMBLE_SOURCES"
        sources = [each.strip() for each in (os.environ.get(origin) or _ORDER).split(",")]
    chosen = [_source(each, origin) for each in sources]
    if not chosen:
        raise ToolDefinitionError("sources is empty; name at least one, such as 'hub'")
    return chosen


def _source(source: object, origin: str) -> Source:
    if isinstance(source, str):
        if source not in _KNOWN:
            raise ToolConfigurationError(f"{origin}: unknown source {source!r:.80}; known: {', '.join(_KNOWN)}")
        return _KNOWN[source]()
    if not isinstance(source, Source) or not _NAME.fullmatch(str(source.name)):
        raise ToolDefinitionError(
            f"{source!r:.80} is no source: it needs a method fetch, and a name of small letters, digits and hyphens"
        )
    return source


@contextmanager
def _alone(lock: Path, weights: Weights, tell: Tell) -> Iterator[None]:
    """Keep other processes, and other threads, from the same file until the end of the block."""
    filelock = import_extra("filelock", extra="local", user="pull")
    held = filelock.FileLock(lock)
    try:
        held.acquire(blocking=False)
    except filelock.Timeout:
        tell(PullProgress("", "waiting", 0, weights.size))
        held.acquire(poll_interval=_POLL)
    try:
        yield
    finally:
        held.release()


def _pulled(weights: Weights, place: Path, sources: Sequence[Source], tell: Tell) -> Path:
    work = place.parent / "partial"
    reasons = []
    for source in sources:
        target = work / source.name / weights.file
        _make_room(weights, target, work)
        target.parent.mkdir(parents=True, exist_ok=True)
        tell(PullProgress(source.name, "looking", size_of(target), weights.size))
        try:
            source.fetch(weights, target, tell)
            _check(weights, target, source.name, tell)
        except SourceError as reason:
            LOGGER.info("%s from %s: %s", weights.file, source.name, reason)
            reasons.append(f"{source.name}: {reason}")
            _tidy(target, work)
        else:
            _sync(target)
            target.replace(place)
            shutil.rmtree(work, ignore_errors=True)
            return place
    raise ToolConfigurationError(
        f"No source gives {weights.file!r}. {'; '.join(reasons)}. Try again later, which resumes what was begun; or "
        f"get the file ({_megabytes(weights.size)}) from {weights.repository} in another way, and set "
        "TOOLSEMBLE_MODEL to its path"
    )


def _make_room(weights: Weights, target: Path, work: Path) -> None:
    """Refuse to begin what the disk cannot hold; what other sources left goes first."""
    # A part takes its place twice while it is downloaded: where pip keeps it, and where pip puts it.
    parts = 2 * weights.size // weights.parts.count if weights.parts else 0
    needed = weights.size - size_of(target) + parts
    if shutil.disk_usage(work.parent).free >= needed:
        return
    for other in work.glob("*"):
        if other != target.parent:
            shutil.rmtree(other, ignore_errors=True)
    free = shutil.disk_usage(work.parent).free
    if free < needed:
        raise ToolConfigurationError(
            f"{weights.file!r} needs {_megabytes(needed)} of free disk in '{work.parent}', and there are "
            f"{_megabytes(free)}; make room, or set TOOLSEMBLE_CACHE to a directory on another disk"
        )


def _check(weights: Weights, target: Path, source: str, tell: Tell) -> None:
    """Refuse a file that is not the pinned one, and throw away whatever it was made from."""
    problem = _difference(weights, target, source, tell)
    if problem:
        shutil.rmtree(target.parent, ignore_errors=True)
        raise SourceError(f"{problem}; it was thrown away")


def _difference(weights: Weights, target: Path, source: str, tell: Tell) -> str:
    if size_of(target) != weights.size:
        return f"what came has {size_of(target):,} bytes in place of {weights.size:,}"
    digest, done = hashlib.sha256(), 0
    with target.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            tell(PullProgress(source, "checking", done, weights.size))
    return "" if digest.hexdigest() == weights.sha256 else "what came has another SHA-256 than the pinned one"


def _tidy(target: Path, work: Path) -> None:
    """Remove directories from which nothing can be resumed."""
    if not size_of(target):
        shutil.rmtree(target.parent, ignore_errors=True)
    with suppress(OSError):  # what another source left stays
        work.rmdir()


def _sync(target: Path) -> None:
    # Else, a machine that loses its power may find the name of the file without all of its bytes.
    with target.open("rb+") as file:
        os.fsync(file.fileno())


def _megabytes(count: int) -> str:
    return f"{count / 1_000_000:,.0f} MB"
