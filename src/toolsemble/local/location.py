"""The weights of a local model, and what to do when they are not on this machine."""

from __future__ import annotations

from pathlib import Path

from toolsemble.errors import ToolConfigurationError
from toolsemble.local.weights.cache import located
from toolsemble.local.weights.catalogue import entry

_MAGIC = b"GGUF"


def weights(name: str = "") -> Path:
    """Give the file of a model by its name or path; refuse, saying what to do, when it is not there.

    Nothing is ever downloaded here. Without a name, ``TOOLSEMBLE_MODEL`` may say which file is meant.

    >>> weights("/nowhere/model.gguf")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolConfigurationError: There is no file '/nowhere/model.gguf'; give the path of a .gguf file
    """
    path = located(name or None)
    if path is None:
        known = entry(name or None)
        command = f"toolsemble models pull {name}".rstrip()
        raise ToolConfigurationError(
            f"The weights of the local model are not here ({known.file}): run `{command}` once, which downloads "
            f"{known.size / 1e9:.1f} GB; the model takes about {known.memory / 1e9:.1f} GB of memory. Or name a file: "
            "'local:/path/to/x.gguf'"
        )
    return _checked(path)


def _checked(path: Path) -> Path:
    with path.open("rb") as file:
        begin = file.read(len(_MAGIC))
    if begin != _MAGIC:
        raise ToolConfigurationError(f"{str(path)!r} is no GGUF file: it begins with {begin!r}")
    return path.resolve()
