"""The cache of downloaded model files."""

from __future__ import annotations

import os
from pathlib import Path

from toolsemble._runtime.extras import import_extra
from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.models._local.weights.catalogue import Weights, entry


def cache_directory() -> Path:
    """Return the directory of downloaded files: ``TOOLSEMBLE_CACHE``, or the user's cache directory.

    >>> isinstance(cache_directory(), Path)
    True
    """
    chosen = os.environ.get("TOOLSEMBLE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    directories = import_extra("platformdirs", extra="local", user="The cache of embedded models")
    return Path(directories.user_cache_dir("toolsemble", appauthor=False)) / "models"


def cache_path(weights: Weights, cache: str | os.PathLike[str] | None = None) -> Path:
    """Return a file's path in the cache; the file exists only if its hash was correct.

    Its directory is named after the hash, so that a later version of a file gets another path.

    >>> cache_path(entry("small"), "/cache").as_posix()
    '/cache/1d9614638d18/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf'
    """
    directory = cache_directory() if cache is None else Path(cache)
    return directory.absolute() / weights.sha256[:12] / weights.file


def is_complete(weights: Weights, place: Path) -> bool:
    """Whether the file exists with its full size."""
    # The hash was checked when the file was stored; the size shows later truncation at no cost.
    return file_size(place) == weights.size


def file_size(path: Path) -> int:
    """Return the size of a file in bytes; 0 if it does not exist or cannot be accessed.

    >>> file_size(Path("/nowhere"))
    0
    """
    return path.stat().st_size if _is_file(path) else 0


def located(
    name: str | os.PathLike[str] | Weights | None = None, *, cache: str | os.PathLike[str] | None = None
) -> Path | None:
    """Return the file of a model if it is on this machine; None if it has to be pulled.

    The name is a catalogue name or the path of a ``.gguf`` file; default: the path in ``TOOLSEMBLE_MODEL``, else the
    default model. A path must exist: else this raises :class:`~toolsemble.ToolConfigurationError`.

    :param name: the name or path
    :param cache: the directory of downloaded files; the user's cache by default

    >>> located("small", cache="/nowhere") is None
    True
    >>> located("/nowhere/mine.gguf")
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: There is no file '/nowhere/mine.gguf'; pass the path of a .gguf file
    """
    chosen = os.environ.get("TOOLSEMBLE_MODEL") if name is None else None
    if chosen:
        return _check_path(Path(chosen), "TOOLSEMBLE_MODEL: ")
    if isinstance(name, str) and (name.lower().endswith(".gguf") or os.sep in name or "/" in name):
        name = Path(name)
    if isinstance(name, os.PathLike):
        return _check_path(Path(name), "")
    weights = entry(name)
    place = cache_path(weights, cache)
    return place if is_complete(weights, place) else None


def _check_path(path: Path, origin: str) -> Path:
    found = path.expanduser()
    if not _is_file(found):
        raise ToolConfigurationError(f"{origin}There is no file '{found}'; pass the path of a .gguf file")
    return found


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a directory without permission, or a name that is too long
        return False
