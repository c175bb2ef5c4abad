"""What happened to a request for approval."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal, TypeAlias

EventKind: TypeAlias = Literal["asked", "answered", "used", "refused", "expired", "withdrawn"]

LOGGER = logging.getLogger("toolsemble.review")
LOGGER.addHandler(logging.NullHandler())  # a program that has not set up logging gets nothing printed


@dataclass(frozen=True, slots=True)
class ReviewEvent:
    """One line of a store's audit: who did what to which request, and when.

    >>> event = ReviewEvent("answered", "4f1c", "delete", 1700000000.0, person="ada", detail="continue")
    >>> event.kind, event.person
    ('answered', 'ada')
    """

    kind: EventKind
    """What happened: it was asked, answered, its answer used, something refused, or it expired or was withdrawn."""
    request_id: str
    """The request that it happened to."""
    tool_name: str
    """The tool that the request is about."""
    at: float
    """When, in seconds since the epoch."""
    person: str = ""
    """Who did it, where somebody said who it was."""
    role: str = ""
    """The role in which it was done."""
    detail: str = ""
    """What exactly: the arguments that were asked about, the decision, or why something was refused."""
