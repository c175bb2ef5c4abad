"""What a reviewer is asked, and who can be one."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Protocol, TypedDict

from toolsemble.call import new_id
from toolsemble.review.decision import ReviewDecision

TIMEOUT = 300.0
"""How many seconds a reviewer has, unless the request says otherwise."""


class OnTimeout(Enum):
    """What becomes of a request that nobody answered in time.

    >>> OnTimeout.EXIT_EARLY.name
    'EXIT_EARLY'
    """

    CONTINUE = "continue"
    """As if a reviewer had agreed."""
    EXIT_EARLY = "exit_early"
    """As if a reviewer had refused."""
    FAIL = "fail"
    """:class:`~toolsemble.ReviewTimeoutError`."""


class ReviewTiming(Enum):
    """When a reviewer is asked.

    >>> ReviewTiming.BEFORE_EXECUTION.name
    'BEFORE_EXECUTION'
    """

    BEFORE_EXECUTION = "before_execution"
    """Before the tool's body runs: the question is whether it may."""
    DURING_EXECUTION = "during_execution"
    """In the middle of its work, because the tool asks."""
    AFTER_EXECUTION = "after_execution"
    """When it has run, because a program asks about what came of it."""


class ReviewTerms(TypedDict, total=False):
    """How a tool that asks in the middle of its work wants to be answered."""

    arguments: Any
    """What the reviewer is shown beside the description, a dict or a text; nothing by default."""
    timeout: float | None
    """How many seconds the reviewer has; 0 or None for any number."""
    on_timeout: OnTimeout
    """What becomes of the call when nobody answers in time."""
    required_role: str | None
    """The role that the reviewer must have; None for any."""


@dataclass(frozen=True, slots=True)
class ReviewRequest:
    """One question to a reviewer: whether this call may run, with these arguments.

    >>> request = ReviewRequest("Deletes a file", "delete", "old.log", timeout=60)
    >>> request.tool_name, request.on_timeout.name, request.deadline - request.asked_at
    ('delete', 'EXIT_EARLY', 60.0)
    """

    description: str
    """What the tool says of itself, or what it asks in the middle of its work."""
    tool_name: str
    """The tool that is called."""
    arguments: Any
    """The final, validated arguments, as the tool will get them, under the names that the model knows; for a string
    tool, the string."""
    timing: ReviewTiming = ReviewTiming.BEFORE_EXECUTION
    """When it is asked."""
    timeout: float | None = TIMEOUT
    """How many seconds there are for an answer; 0 or None for any number."""
    on_timeout: OnTimeout = OnTimeout.EXIT_EARLY
    """What becomes of it when nobody answers in time."""
    prompt: str = ""
    """What else the reviewer has to know: why an edit did not fit, for example."""
    required_role: str | None = None
    """The role that whoever answers must have; None for any."""
    call_id: str = ""
    """The call that waits for the answer."""
    run_id: str = ""
    """The run that the call belongs to."""
    id: str = field(default_factory=new_id)
    """The id of this request, by which an answer finds its way back."""
    agent_role: str = "unknown"
    """The role of the agent that calls."""
    repairs: tuple[Mapping[str, Any], ...] = ()
    """What was repaired in the model's arguments: the step, the path, what it was from and what it became, to."""
    editable: str = ""
    """The one field whose plain text an edit replaces; empty when an edit replaces all arguments."""
    scopes: tuple[str, ...] = ()
    """What an approval can be remembered for: "tool", "arguments", or nothing."""
    schema_digest: str = ""
    """A digest of the tool's schema: an approval is for this form of the tool only."""
    hidden_digest: str = ""
    """A digest of the arguments with their secrets, which nobody is shown; empty for a tool that takes no secrets.
    Where there is one, the text of an edit is not shown either."""
    asked_at: float = field(default_factory=time.time)
    """When it was asked, in seconds since the epoch."""

    @property
    def deadline(self) -> float | None:
        """When the answer must be there, in seconds since the epoch; None for never."""
        return self.asked_at + self.timeout if self.timeout else None

    @property
    def arguments_digest(self) -> str:
        """A digest of the arguments in canonical form: it changes with every byte of them, shown or hidden."""
        return digest([self.arguments, self.hidden_digest] if self.hidden_digest else self.arguments)

    @property
    def arguments_text(self) -> str:
        """The arguments as text: a string as it is, anything else as indented JSON."""
        return self.arguments if isinstance(self.arguments, str) else _json(self.arguments, indent=2)

    @property
    def editable_text(self) -> str:
        """What an edit replaces: the editable field or all arguments as text; nothing where an answer is asked for."""
        if self.timing is ReviewTiming.DURING_EXECUTION:
            return ""
        return str(self.arguments[self.editable]) if self.editable else self.arguments_text

    def to_json(self) -> str:
        """Give the request as JSON text, from which :meth:`from_json` makes an equal one.

        >>> request = ReviewRequest("Deletes a file", "delete", {"path": "old.log"})
        >>> ReviewRequest.from_json(request.to_json()) == request
        True
        """
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return _json({**values, "timing": self.timing.value, "on_timeout": self.on_timeout.value})

    @classmethod
    def from_json(cls, text: str) -> ReviewRequest:
        """Give the request that :meth:`to_json` wrote."""
        values = json.loads(text)
        values["timing"] = ReviewTiming(values["timing"])
        values["on_timeout"] = OnTimeout(values["on_timeout"])
        return cls(**{**values, "repairs": tuple(values["repairs"]), "scopes": tuple(values["scopes"])})


def digest(value: Any) -> str:
    """Give a digest of a JSON value: the same for the same value, however its keys are ordered.

    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})
    True
    """
    return hashlib.sha256(_json(value, sort_keys=True).encode()).hexdigest()


def _json(value: Any, **settings: Any) -> str:
    # A program may put anything into a request; what a call path puts there is JSON already.
    separators = None if "indent" in settings else (",", ":")
    return json.dumps(value, ensure_ascii=False, default=str, separators=separators, **settings)


class ReviewHandler(Protocol):
    """Whoever answers: any object with this one method, sync or async.

    Any answer but ``Continue``, ``Edit`` or ``ExitEarly`` is a rejection, also one of a subclass of these, and so is an
    exception. A handler that can take several requests at once has a method ``review_all``, sync or async, too: it is
    given a list of requests, and gives a mapping from the requests' ids to decisions, or to awaitables of them where
    one call need not wait for another.

    >>> class Cautious:
    ...     def review(self, request):
    ...         return ExitEarly(f"not {request.tool_name}")
    >>> from toolsemble.review import ExitEarly
    >>> Cautious().review(ReviewRequest("Deletes a file", "delete", "old.log"))
    ExitEarly(reason='not delete', timed_out=False)
    """

    def review(self, request: ReviewRequest) -> ReviewDecision | Awaitable[ReviewDecision]:
        """Give the decision about one call."""
        ...
