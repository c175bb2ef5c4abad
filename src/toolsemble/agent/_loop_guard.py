"""``LoopGuard``: when a run counts as repeating itself."""

from __future__ import annotations

from dataclasses import dataclass

from toolsemble._runtime.checks import check_count


@dataclass(frozen=True, slots=True)
class LoopGuard:
    """The limits of repetition in a run; the model is warned at the first, and the run ends if it goes on.

    Only different turns are compared, each call with its result: the calls of one reply do not know of each other.
    Tools with ``polling=True`` are exempt.

    >>> LoopGuard(repeats=1)
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: LoopGuard repeats must be an int >= 2, not 1
    """

    repeats: int = 3
    """The number of consecutive turns with the same call and result, or with the same error of one tool."""
    longest: int = 4
    """The longest pattern to detect, in turns, such as 2 for A-B-A-B; 1: no patterns."""
    patience: int = 2
    """The number of further turns without anything new before the run ends."""

    def __post_init__(self) -> None:
        for name, least in (("repeats", 2), ("longest", 1), ("patience", 0)):
            check_count(f"LoopGuard {name}", getattr(self, name), least=least)
