"""What a reviewer can answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Continue:
    """Run the call as it stands.

    >>> Continue()
    Continue()
    """


@dataclass(frozen=True, slots=True)
class Edit:
    """Run the call with other arguments, which are validated again.

    >>> Edit("rm old.log").revised
    'rm old.log'
    """

    revised: str
    """The text for a string tool; the JSON text of all arguments for others."""


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
