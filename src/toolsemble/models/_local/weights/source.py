"""The protocol of sources of model files, and their progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from toolsemble._vocabulary.errors import ToolsembleError
from toolsemble.models._local.weights.catalogue import Weights

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
    """A source does not have the file; the message is the reason, without secrets.

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
        attempt are still there, so that the download can be resumed. The caller checks the bytes, and deletes a wrong
        file with its directory.
        """
        ...
