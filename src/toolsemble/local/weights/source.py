"""What a source of model files must do, and what it tells while it does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from toolsemble.errors import ToolsembleError
from toolsemble.local.weights.catalogue import Weights

Phase: TypeAlias = Literal["looking", "waiting", "downloading", "joining", "checking"]
"""What is being done: asking a source, waiting for another process, or one of the steps from there to the file."""


@dataclass(frozen=True, slots=True)
class PullProgress:
    """How far a pull has come.

    >>> PullProgress("hub", "downloading", 25, 100).done
    25
    """

    source: str
    """The name of the source; empty while another process has its turn."""
    phase: Phase
    """What is being done."""
    done: int
    """How many bytes have come so far; while checking, how many have been checked."""
    total: int
    """How many bytes the file has."""


Tell: TypeAlias = Callable[[PullProgress], object]
"""Who is told how far a pull has come; an exception of theirs ends it, in a state that resumes."""


class SourceError(ToolsembleError):
    """A source cannot give the file; the message is the reason, in words that hold no secret.

    >>> str(SourceError("no answer in 10 s"))
    'no answer in 10 s'
    """


@runtime_checkable
class Source(Protocol):
    """Somewhere to get the file of a model from.

    >>> import shutil
    >>> class Share:
    ...     name = "share"
    ...     def fetch(self, weights, target, progress):
    ...         shutil.copyfile(f"/mnt/models/{weights.file}", target)
    >>> isinstance(Share(), Source)
    True
    """

    name: str
    """Small letters, digits and hyphens: what people choose it by, and the name of its directory in the cache."""

    def fetch(self, weights: Weights, target: Path, progress: Tell) -> None:
        """Complete the file at ``target``; raise ``SourceError`` when that is not possible.

        The directory of the target belongs to this source and this file, and to one process at a time. What an earlier
        try left there is there again, so that the work can go on from it. Nobody has to check the bytes: that is done
        by whoever asked, and a file that is not the right one is thrown away with all of the directory.
        """
        ...
