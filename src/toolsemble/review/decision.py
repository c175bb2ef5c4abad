"""What a reviewer can answer: one of these three, and no subclass of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Continue:
    """Run the call as it stands.

    >>> Continue()
    Continue(always=None)
    """

    always: Literal["tool", "arguments"] | None = None
    """What the reviewer need not be asked about again in this run: the tool, or the tool with these arguments; it
    takes a handler that remembers."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Run the call with other arguments, which are validated again.

    >>> Edit("rm old.log").revised
    'rm old.log'
    """

    revised: str
    """The text for a string tool, or of the one field that a tool lets reviewers edit; for others, the JSON text of
    all arguments."""


@dataclass(frozen=True, slots=True)
class ExitEarly:
    """Do not run the call.

    >>> ExitEarly("too risky").reason
    'too risky'
    """

    reason: str = ""
    """Why not, for the model; empty when the reviewer gave none."""
    timed_out: bool = False
    """Whether nobody answered in time."""


ReviewDecision: TypeAlias = Continue | Edit | ExitEarly
"""What a reviewer can answer."""
