"""The vocabulary of approval: terms, requests, decisions, their events, and the reviewer interface."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias

from toolsemble._runtime.event_loops import is_awaitable
from toolsemble._runtime.work_clock import RunDeadline
from toolsemble._vocabulary.call import new_id
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.review._terms import TIMEOUT, OnTimeout, ReviewTiming

_SHORTEST = 0.001  # a timeout of 0 would wait forever


def fit_to_deadline(deadline: float | None, timeout: float | None, on_timeout: OnTimeout) -> dict[str, Any]:
    """Return the timeout of a request as its fields; the deadline of the call takes precedence.

    The run's time budget does not count here: its clock stops while the run waits for a person.
    """
    if deadline is not None and not isinstance(deadline, RunDeadline):
        left = max(deadline - time.monotonic(), _SHORTEST)
        if not timeout or left < timeout:
            # The request's on_timeout does not apply to a finished call.
            timeout, on_timeout = left, OnTimeout.EXIT_EARLY
    return {"timeout": timeout, "on_timeout": on_timeout, "asked_at": time.time()}


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
    """Whether the request timed out."""
    person: str = field(default="", kw_only=True, compare=False, repr=False)
    """Who decided, if known; for the record only."""


Reject = ExitEarly
"""The everyday name of :class:`ExitEarly`."""

ReviewDecision: TypeAlias = Continue | Edit | ExitEarly
"""The decision of a reviewer."""


@dataclass(frozen=True, slots=True)
class ReviewRequest:
    """A question to a reviewer: whether a call may run, with these arguments.

    >>> request = ReviewRequest("Deletes a file", "delete", "old.log", timeout=60)
    >>> request.tool_name, request.on_timeout.name, request.deadline - request.asked_at
    ('delete', 'EXIT_EARLY', 60.0)
    """

    description: str
    """The tool's description, or the question that it asks while it runs."""
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
    """The outcome on a timeout."""
    prompt: str = ""
    """More information for the reviewer: why an edit was not valid, for example."""
    required_role: str | None = None
    """The required role of the reviewer; None: any."""
    call_id: str = ""
    """The id of the call that waits for the answer."""
    run_id: str = ""
    """The id of the call's run."""
    id: str = field(default_factory=new_id)
    """The id of this request."""
    agent_role: str = "unknown"
    """The role of the calling agent."""
    repairs: tuple[Mapping[str, Any], ...] = ()
    """The repairs of the model's arguments, each with step, path, from and to."""
    editable: str = ""
    """The one field whose text an edit replaces; "" if an edit replaces all arguments."""
    scopes: tuple[str, ...] = ()
    """The scopes in which an approval can be remembered: "tool", "arguments", or none."""
    schema_digest: str = ""
    """A digest of the tool's schema, description, metadata and pin: an approval is valid for this definition only."""
    hidden_digest: str = ""
    """A digest of the arguments including their secrets, which are not shown; "" for a tool without secrets. If it is
    set, the text of an edit is not shown either."""
    asked_at: float = field(default_factory=time.time)
    """When it was asked, in seconds since the epoch."""
    memory_id: str = ""
    """The conversation or user that the call belongs to."""
    chosen_run: bool = True
    """Whether the program chose the run id; a generated one is never reused."""
    durable: bool = False
    """Whether the run is in a journal: an answer is then valid until the run ends."""
    schema: Mapping[str, Any] | None = field(default=None, compare=False, repr=False, metadata={"is_written": False})
    """The JSON Schema of the arguments, for stores that keep it; not part of the JSON. None: unknown."""

    @property
    def resumable(self) -> bool:
        """Whether the same run can ask again after a crash and find the answer."""
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
        """The arguments as text: a string verbatim, anything else as indented JSON."""
        if isinstance(self.arguments, str):
            return self.arguments
        # A program may put any object into a request; the call path only puts JSON there.
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
    """Return a digest of a JSON value, independent of key order.

    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})
    True
    """
    return hashlib.sha256(compact_json(value, default=str, sort_keys=True).encode()).hexdigest()


class ReviewHandler(Protocol):
    """A reviewer: any object with this one method, sync or async.

    Any answer but ``Continue``, ``Edit`` or ``ExitEarly`` is a rejection, including subclasses of these, and so is an
    exception. A reviewer with further methods inherits from :class:`~toolsemble.review.Reviewer`, or from
    :class:`~toolsemble.review.BatchReviewer` to decide on several requests at once.

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


EventKind: TypeAlias = Literal["asked", "answered", "used", "refused", "expired", "withdrawn", "abandoned"]

LOGGER = logging.getLogger("toolsemble.review")
LOGGER.addHandler(logging.NullHandler())  # prints nothing in a program without logging setup


@dataclass(frozen=True, slots=True)
class ReviewEvent:
    """One event in a store's audit log: who did what to which request, and when.

    >>> event = ReviewEvent("answered", "4f1c", "delete", 1700000000.0, person="ada", detail="continue")
    >>> event.kind, event.person
    ('answered', 'ada')
    """

    kind: EventKind
    """The kind: asked, answered, used, refused, expired, withdrawn, or abandoned if the asking
    process has ended."""
    request_id: str
    """The id of the request."""
    tool_name: str
    """The tool of the request."""
    at: float
    """When, in seconds since the epoch."""
    person: str = ""
    """Who did it, if known."""
    role: str = ""
    """The person's role."""
    detail: str = ""
    """The arguments, the decision, or the reason for a refusal; truncated, with line breaks kept."""
    number: int = field(default=0, kw_only=True, compare=False)
    """Its number in the log, the cursor for paging."""


@dataclass(frozen=True, slots=True)
class _RequestEvent:
    """An event about a request and its waiting call."""

    request: ReviewRequest
    """The request."""

    @property
    def tool_name(self) -> str:
        """The tool that is called."""
        return self.request.tool_name

    @property
    def call_id(self) -> str:
        """The waiting call."""
        return self.request.call_id

    @property
    def run_id(self) -> str:
        """The run that the call belongs to."""
        return self.request.run_id

    @property
    def agent_role(self) -> str:
        """The role of the calling agent."""
        return self.request.agent_role


@dataclass(frozen=True, slots=True)
class ReviewRequested(_RequestEvent):
    """The event that a reviewer is asked; the call waits.

    >>> ReviewRequested(ReviewRequest("Deletes a file", "delete", "old.log")).tool_name
    'delete'
    """

    kind: ClassVar[Literal["review_requested"]] = "review_requested"

    @property
    def at(self) -> float:
        """When it was asked, in seconds since the epoch."""
        return self.request.asked_at


@dataclass(frozen=True, slots=True)
class ReviewDecided(_RequestEvent):
    """The event that a reviewer has answered, or that the request has timed out.

    >>> from toolsemble import Continue
    >>> ReviewDecided(ReviewRequest("Deletes a file", "delete", "old.log"), Continue()).kind
    'review_decided'
    """

    decision: ReviewDecision
    """The decision; the text of an edit is masked if the arguments contain secrets."""
    at: float = field(default_factory=time.time, kw_only=True, compare=False)
    """When, in seconds since the epoch."""
    kind: ClassVar[Literal["review_decided"]] = "review_decided"


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from toolsemble.review._request import ReviewDecision, ReviewHandler, ReviewRequest


class Reviewer(ABC):
    """The base class of reviewers; only :meth:`review` is needed, and the rest has defaults.

    Any object with a method ``review`` is also a reviewer, see :class:`~toolsemble.ReviewHandler`.

    >>> from toolsemble import Continue, ExitEarly
    >>> class Clerk(Reviewer):
    ...     def review(self, request):
    ...         return Continue() if request.arguments["amount"] < 10 else ExitEarly("too much")
    >>> from toolsemble import ReviewRequest
    >>> Clerk().review(ReviewRequest("Pays", "pay", {"amount": 50}))
    ExitEarly(reason='too much', timed_out=False)
    """

    __slots__ = ()

    sends_event: bool = False
    """Whether it sends the event ``review_requested`` itself, or passes requests on to a reviewer that does.
    False: the event is sent before the reviewer is asked."""
    has_store: bool = False
    """Whether its requests are stored outside this process. A journaled run may then park while one is pending, and
    resume with the answer, by :meth:`find_open` and :meth:`withdraw`."""
    pauses: bool = False
    """Whether it may leave calls open by raising ``CallPausedError``, which pauses the agent's run."""
    decides: bool = False
    """Whether it answers in place of every reviewer that would leave the call open."""

    @abstractmethod
    def review(self, request: ReviewRequest) -> ReviewDecision | Awaitable[ReviewDecision]:
        """Return the decision on one call; sync methods run in a thread."""

    def find_open(self, ids: Iterable[str]) -> set[str]:
        """Return which of these requests are still pending; none without a store."""
        _ = ids
        return set()

    def watch(self, changed: Callable[[], object]) -> Callable[[], None] | None:
        """Call a function, in another thread, when a request may have an answer; return a function that unsubscribes.

        Return None, as here, if there are no notifications: the answers are then polled.
        """
        _ = changed
        return None

    def withdraw(self, ids: Iterable[str]) -> object:
        """Close requests whose answers would not be used; return False, as here, if that is not supported."""
        _ = ids
        return False


class BatchReviewer(Reviewer):
    """The base class of reviewers that decide on all requests of a turn together.

    >>> from toolsemble import Continue, Toolbox, ToolCall, tool
    >>> class Desk(BatchReviewer):
    ...     def review_all(self, requests):
    ...         print([request.arguments for request in requests])
    ...         return {request.id: Continue() for request in requests}
    >>> @tool(requires_approval=True)
    ... def delete(path: str) -> str:
    ...     return f"deleted {path}"
    >>> box = Toolbox([delete], review=Desk())
    >>> replies = box.execute_all([ToolCall("delete", {"path": path}) for path in ("a.log", "b.log")])
    [{'path': 'a.log'}, {'path': 'b.log'}]
    """

    __slots__ = ()

    @abstractmethod
    def review_all(self, requests: Sequence[ReviewRequest]) -> Any:
        """Return a mapping from the ids of the requests to decisions, or to awaitables of decisions.

        It may be ``async def``; sync methods run in a thread. A request without a decision is rejected.
        """

    def review(self, request: ReviewRequest) -> Any:
        """Return the decision on a single request."""
        answers = self.review_all([request])
        return _await_answer(answers, request.id) if is_awaitable(answers) else answers.get(request.id)


async def _await_answer(answers: Awaitable[Mapping[str, Any]], id: str) -> Any:
    answer = (await answers).get(id)
    return await answer if is_awaitable(answer) else answer


def is_reviewer(value: object) -> bool:
    """Return whether an object is a reviewer.

    >>> from toolsemble.review import AutoApprove
    >>> is_reviewer(AutoApprove()), is_reviewer(AutoApprove), is_reviewer(print)
    (True, False, False)
    """
    return not isinstance(value, type) and callable(getattr(value, "review", None))


def to_reviewer(handler: ReviewHandler) -> Reviewer:
    """Return any handler as a :class:`Reviewer`.

    The only place that looks up reviewer methods by name: handlers need no base class, and a :class:`Reviewer` may
    have a method ``review_all``, too.
    """
    if isinstance(handler, BatchReviewer):
        return handler
    if callable(getattr(handler, "review_all", None)):
        return _AdaptedBatches(handler)
    return handler if isinstance(handler, Reviewer) else _Adapted(handler)


class _Adapted(Reviewer):
    """An object without the base class, as a reviewer."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler
        self.has_store = getattr(handler, "has_store", callable(getattr(handler, "find_open", None)))
        for flag in ("sends_event", "pauses", "decides"):
            setattr(self, flag, getattr(handler, flag, False) is True)
        # The methods themselves: the call path has to know which ones are async.
        for name in ("review", "review_all", "find_open", "watch", "withdraw"):
            if callable(method := getattr(handler, name, None)):
                setattr(self, name, method)

    def review(self, request: ReviewRequest) -> Any:
        """Return the decision; each instance replaces this with its handler's method."""

    def __repr__(self) -> str:
        return repr(self._handler)


class _AdaptedBatches(_Adapted, BatchReviewer):
    """An object with a method ``review_all``."""

    def review_all(self, requests: Sequence[ReviewRequest]) -> Any:
        """Return the decisions; each instance replaces this with its handler's method."""
