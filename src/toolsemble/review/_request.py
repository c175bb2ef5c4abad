"""Review requests, and the protocol of reviewers."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from toolsemble._vocabulary.call import new_id
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.review._decision import ReviewDecision
from toolsemble.review._terms import TIMEOUT, OnTimeout, ReviewTiming


@dataclass(frozen=True, slots=True)
class ReviewRequest:
    """A question to a reviewer: whether a call may run, with these arguments.

    >>> request = ReviewRequest("Deletes a file", "delete", "old.log", timeout=60)
    >>> request.tool_name, request.on_timeout.name, request.deadline - request.asked_at
    ('delete', 'EXIT_EARLY', 60.0)
    """

    description: str
    """The description of the tool, or the question that it asks while it runs."""
    tool_name: str
    """The tool that is called."""
    arguments: Any
    """The final, validated arguments that the tool will get, under the names that the model uses; for a string tool,
    the str."""
    timing: ReviewTiming = ReviewTiming.BEFORE_EXECUTION
    """When it is asked."""
    timeout: float | None = TIMEOUT
    """Seconds to wait for the reviewer; 0 or None waits forever."""
    on_timeout: OnTimeout = OnTimeout.EXIT_EARLY
    """The outcome if nobody answers in time."""
    prompt: str = ""
    """More information for the reviewer: why an edit was not valid, for example."""
    required_role: str | None = None
    """The required role of the reviewer; None: any."""
    call_id: str = ""
    """The id of the call that waits for the answer."""
    run_id: str = ""
    """The id of the run of the call."""
    id: str = field(default_factory=new_id)
    """The id of this request."""
    agent_role: str = "unknown"
    """The role of the calling agent."""
    repairs: tuple[Mapping[str, Any], ...] = ()
    """The repairs of the model's arguments, each with step, path, from and to."""
    editable: str = ""
    """The one field whose text an edit replaces; "" if an edit replaces all arguments."""
    scopes: tuple[str, ...] = ()
    """The scopes for which an approval can be remembered: "tool", "arguments", or none."""
    schema_digest: str = ""
    """A digest of the tool's schema, description, metadata and pin: an approval is valid for this definition only."""
    hidden_digest: str = ""
    """A digest of the arguments with their secrets, which are not shown; "" for a tool without secrets. If there is
    one, the text of an edit is not shown either."""
    asked_at: float = field(default_factory=time.time)
    """When it was asked, in seconds since the epoch."""
    memory_id: str = ""
    """The conversation or user that the call belongs to."""
    chosen_run: bool = True
    """Whether the program chose the run id; a generated one is never used again."""
    durable: bool = False
    """Whether the run is in a journal: an answer is then valid until the run ends."""
    schema: Mapping[str, Any] | None = field(default=None, compare=False, repr=False, metadata={"is_written": False})
    """The JSON Schema of the arguments, for stores that keep it; it is not a part of the JSON. None: unknown."""

    @property
    def resumable(self) -> bool:
        """Whether the same run can ask again after a crash, and find the answer."""
        return self.chosen_run and bool(self.run_id)

    @property
    def deadline(self) -> float | None:
        """The deadline of the answer, in seconds since the epoch; None: no deadline."""
        return self.asked_at + self.timeout if self.timeout else None

    @property
    def arguments_digest(self) -> str:
        """A digest of the arguments in canonical form, including masked ones."""
        return digest([self.arguments, self.hidden_digest] if self.hidden_digest else self.arguments)

    @property
    def arguments_text(self) -> str:
        """The arguments as text: a string as it is, anything else as indented JSON."""
        if isinstance(self.arguments, str):
            return self.arguments
        # A program may put any object into a request; the call path puts only JSON there.
        return json.dumps(self.arguments, ensure_ascii=False, default=str, indent=2)

    @property
    def editable_text(self) -> str:
        """The text that an edit replaces: the editable field or all arguments; "" for a question during execution."""
        if self.timing is ReviewTiming.DURING_EXECUTION:
            return ""
        return str(self.arguments[self.editable]) if self.editable else self.arguments_text

    def to_json(self) -> str:
        """Return the request as JSON text; :meth:`from_json` reads it.

        >>> request = ReviewRequest("Deletes a file", "delete", {"path": "old.log"})
        >>> ReviewRequest.from_json(request.to_json()) == request
        True
        """
        names = (each.name for each in fields(self) if each.metadata.get("is_written", True))
        values = {name: getattr(self, name) for name in names}
        return compact_json({**values, "timing": self.timing.value, "on_timeout": self.on_timeout.value}, default=str)

    @classmethod
    def from_json(cls, text: str) -> ReviewRequest:
        """Return the request from the text of :meth:`to_json`."""
        values = json.loads(text)
        values["timing"] = ReviewTiming(values["timing"])
        values["on_timeout"] = OnTimeout(values["on_timeout"])
        return cls(**{**values, "repairs": tuple(values["repairs"]), "scopes": tuple(values["scopes"])})


def digest(value: Any) -> str:
    """Return a digest of a JSON value, independent of the order of keys.

    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})
    True
    """
    return hashlib.sha256(compact_json(value, default=str, sort_keys=True).encode()).hexdigest()


class ReviewHandler(Protocol):
    """A reviewer: any object with this one method, sync or async.

    Any answer but ``Continue``, ``Edit`` or ``ExitEarly`` is a rejection, also one of a subclass of these, and so is an
    exception. A reviewer that can handle several requests at once may have a method ``review_all``, sync or async: it
    takes a list of requests, and returns a mapping from the ids of the requests to decisions, or to awaitables of
    decisions.

    >>> class Cautious:
    ...     def review(self, request):
    ...         return ExitEarly(f"not {request.tool_name}")
    >>> from toolsemble.review import ExitEarly
    >>> Cautious().review(ReviewRequest("Deletes a file", "delete", "old.log"))
    ExitEarly(reason='not delete', timed_out=False)
    """

    def review(self, request: ReviewRequest) -> ReviewDecision | Awaitable[ReviewDecision]:
        """Return the decision about one call."""
        ...
