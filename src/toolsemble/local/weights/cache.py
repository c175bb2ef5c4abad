"""Where files of models are kept, and where one is."""

from __future__ import annotations

import os
from pathlib import Path

from toolsemble.errors import ToolConfigurationError
from toolsemble.local.weights.catalogue import Weights, entry
from toolsemble.runtime.extras import import_extra

_SUFFIX = ".gguf"


def cache_directory() -> Path:
    """Give the directory in which pulled files are kept: ``TOOLSEMBLE_CACHE``, or the user's cache.

    >>> isinstance(cache_directory(), Path)
    True
    """
    chosen = os.environ.get("TOOLSEMBLE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    directories = import_extra("platformdirs", extra="local", user="The cache of embedded models")
    return Path(directories.user_cache_dir("toolsemble", appauthor=False)) / "models"


def place_of(weights: Weights, cache: str | os.PathLike[str] | None = None) -> Path:
    """Give the path of the file in the cache; it is there only if its bytes were right when it was put there.

    The directory around it is named after the bytes: a later version of a file is another file.

    >>> place_of(entry("small"), "/cache").as_posix()
    '/cache/1d9614638d18/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf'
    """
    directory = cache_directory() if cache is None else Path(cache)
    return directory.absolute() / weights.sha256[:12] / weights.file


def kept(weights: Weights, place: Path) -> bool:
    """Whether the file is in its place, whole."""
    # It was checked before it was put there; the size costs nothing and shows what was cut off since.
    return size_of(place) == weights.size


def size_of(path: Path) -> int:
    """Give how many bytes of a file there are; none when there is no file, or nobody may look at it.

    >>> size_of(Path("/nowhere"))
    0
    """
    return path.stat().st_size if _is_file(path) else 0


def located(
    name: str | os.PathLike[str] | Weights | None = None, *, cache: str | os.PathLike[str] | None = None
) -> Path | None:
    """Give the file of a model that is here already, or None when it would have to be pulled.

    The name is one of the catalogue, or the path of a ``.gguf`` file; without one, ``TOOLSEMBLE_MODEL`` may hold such a
    path, and else it is the default. A path is taken as it is; when there is no such file, that is refused.

    :param name: what the file is called, or where it is
    :param cache: the directory of pulled files; that of this user by default

    >>> located("small", cache="/nowhere") is None
    True
    >>> located("/nowhere/mine.gguf")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolConfigurationError: There is no file '/nowhere/mine.gguf'; give the path of a .gguf file
    """
    chosen = os.environ.get("TOOLSEMBLE_MODEL") if name is None else None
    if chosen:
        return _given(Path(chosen), "TOOLSEMBLE_MODEL says: ")
    if isinstance(name, os.PathLike) or (isinstance(name, str) and _is_path(name)):
        return _given(Path(name), "")
    weights = entry(name)
    place = place_of(weights, cache)
    return place if kept(weights, place) else None


def _is_path(name: str) -> bool:
    return name.lower().endswith(_SUFFIX) or os.sep in name or "/" in name


def _given(path: Path, origin: str) -> Path:
    found = path.expanduser()
    if not _is_file(found):
        raise ToolConfigurationError(f"{origin}There is no file '{found}'; give the path of a .gguf file")
    return found


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a directory that may not be read, or a name that is too long
        return False
