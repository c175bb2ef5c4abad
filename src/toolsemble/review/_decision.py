"""The three decisions of a reviewer; subclasses of them are not accepted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Continue:
    """The decision to run the call unchanged.

    >>> Continue()
    Continue(always=None)
    """

    always: Literal["tool", "arguments"] | None = None
    """Approve later calls in this run, too: of the tool, or of the tool with these arguments; needs a handler that
    remembers."""
    person: str = field(default="", kw_only=True, compare=False, repr=False)
    """Who decided, if known; for the record only."""


@dataclass(frozen=True, slots=True)
class Edit:
    """The decision to run the call with other arguments, which are validated again.

    >>> Edit("rm old.log").revised
    'rm old.log'
    """

    revised: str
    """The new text of a string tool, or of the one field that reviewers may edit; else the JSON text of all
    arguments."""
    person: str = field(default="", kw_only=True, compare=False, repr=False)
    """Who decided, if known; for the record only."""


@dataclass(frozen=True, slots=True)
class ExitEarly:
    """The decision not to run the call.

    >>> ExitEarly("too risky").reason
    'too risky'
    """

    reason: str = ""
    """The reason, for the model; may be empty."""
    timed_out: bool = False
    """Whether nobody answered in time."""
    person: str = field(default="", kw_only=True, compare=False, repr=False)
    """Who decided, if known; for the record only."""


Reject = ExitEarly
"""The everyday name of :class:`ExitEarly`."""

ReviewDecision: TypeAlias = Continue | Edit | ExitEarly
"""The decision of a reviewer."""
