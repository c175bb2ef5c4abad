"""Audit events of review requests."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

EventKind: TypeAlias = Literal["asked", "answered", "used", "refused", "expired", "withdrawn", "abandoned"]

LOGGER = logging.getLogger("toolsemble.review")
LOGGER.addHandler(logging.NullHandler())  # prints nothing in a program without logging setup


@dataclass(frozen=True, slots=True)
class ReviewEvent:
    """One event in the audit log of a store: who did what to which request, and when.

    >>> event = ReviewEvent("answered", "4f1c", "delete", 1700000000.0, person="ada", detail="continue")
    >>> event.kind, event.person
    ('answered', 'ada')
    """

    kind: EventKind
    """What happened: the request was asked, answered, used, refused, expired, withdrawn or
    abandoned: the process that asked has ended."""
    request_id: str
    """The id of the request."""
    tool_name: str
    """The tool of the request."""
    at: float
    """When, in seconds since the epoch."""
    person: str = ""
    """Who did it, if known."""
    role: str = ""
    """The role of the person."""
    detail: str = ""
    """The arguments, the decision, or the reason of a refusal; its start, with line breaks as they were."""
    number: int = field(default=0, kw_only=True, compare=False)
    """Its number in the log, by which pages continue."""
