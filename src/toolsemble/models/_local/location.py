"""The location of a local model's weights."""

from __future__ import annotations

from pathlib import Path

from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.models._local.weights.cache import located
from toolsemble.models._local.weights.catalogue import entry

_MAGIC = b"GGUF"


def find_weights(name: str = "") -> Path:
    """Return the file of a model by its name or path; raise :class:`ToolConfigurationError` if it does not exist.

    This never downloads anything. Without a name, ``TOOLSEMBLE_MODEL`` may contain the path of a file.

    >>> find_weights("/nowhere/model.gguf")
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: There is no file '/nowhere/model.gguf'; pass the path of a .gguf file
    """
    path = located(name or None)
    if path is None:
        known = entry(name or None)
        command = f"toolsemble models pull {name}".rstrip()
        raise ToolConfigurationError(
            f"The weights of the local model ({known.file}) are not on this machine: run `{command}` once, which "
            f"downloads {known.size / 1e9:.1f} GB; the model takes about {known.memory / 1e9:.1f} GB of memory. "
            "Or pass a file: 'local:/path/to/x.gguf'"
        )
    with path.open("rb") as file:
        begin = file.read(len(_MAGIC))
    if begin != _MAGIC:
        raise ToolConfigurationError(f"{str(path)!r} is not a GGUF file: it begins with {begin!r}")
    return path.resolve()
