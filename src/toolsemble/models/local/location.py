"""Where weights are on this machine, and what to do when they are not."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from toolsemble.errors import ToolConfigurationError
from toolsemble.extra import required

_MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True)
class Weights:
    """What is known of a model before it is there."""

    file: str
    """The name of its file."""
    size: str
    """How much is downloaded."""
    memory: str
    """About how much memory it takes."""


CATALOGUE = {
    "default": Weights("qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", "1.1 GB", "1.5 GB"),
    "small": Weights("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "0.5 GB", "0.8 GB"),
}
"""The models that have names."""


def cache() -> Path:
    """Give the folder in which this library keeps what it can make or fetch again."""
    given = os.environ.get("TOOLSEMBLE_CACHE")
    if given:
        return Path(given).expanduser()
    return Path(required("platformdirs", extra="local", user="LocalModel").user_cache_dir("toolsemble"))


def weights(name: str = "") -> Path:
    """Give the file of a model by its name or path; refuse, saying what to do, when it is not there.

    Nothing is ever downloaded here. Without a name, ``TOOLSEMBLE_MODEL`` may say which file is meant.

    >>> weights("/nowhere/model.gguf")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolConfigurationError: There is no file '/nowhere/model.gguf': give the path of a GGUF file
    """
    named = name or os.environ.get("TOOLSEMBLE_MODEL") or "default"
    known = CATALOGUE.get(named)
    return _checked(Path(named).expanduser()) if known is None else _cached(named, known)


def _cached(name: str, known: Weights) -> Path:
    path = cache() / "models" / known.file
    if not path.is_file():
        command = "toolsemble models pull" + ("" if name == "default" else f" {name}")
        raise ToolConfigurationError(
            f"The weights of the local model are not here ({known.file}): run `{command}` once, which downloads "
            f"{known.size}; the model takes about {known.memory} of memory. Or name a file: 'local:/path/to/x.gguf'"
        )
    return path


def _checked(path: Path) -> Path:
    try:
        with path.open("rb") as file:
            begin = file.read(len(_MAGIC))
    except OSError:
        known = "" if path.parent.name else f", or one of: {', '.join(CATALOGUE)}"
        raise ToolConfigurationError(f"There is no file {str(path)!r}: give the path of a GGUF file{known}") from None
    if begin != _MAGIC:
        raise ToolConfigurationError(f"{str(path)!r} is no GGUF file: it begins with {begin!r}")
    return path.resolve()
