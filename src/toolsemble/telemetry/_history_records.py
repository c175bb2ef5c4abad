"""The records that a run history returns: runs, the agents inside them, calls, reviews and events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from toolsemble._runtime.metrics import Outcome
from toolsemble.events import Event
from toolsemble.telemetry._trace_file import read_event

RunState: TypeAlias = Literal["queued", "running", "waiting", "done", "failed", "cancelled", "lost"]
"""The state of a run: "queued" if it was interrupted and is resumable from a journal; "waiting" for approval; "lost" if
its process died before the run ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run, with totals of everything inside it.

    Calls of a toolbox without an agent are runs too, without model and prompt.

    >>> RunSummary(number=1, run_id="order-7", state="done", started=0.0, updated=2.5, ended=2.5).seconds
    2.5
    """

    number: int
    """The number of its first event; runs are sorted by it, newest first."""
    run_id: str
    """The id of the run."""
    state: RunState
    """The last known state."""
    started: float
    """Its start, in seconds since the epoch."""
    updated: float
    """The time of its latest event."""
    ended: float | None = None
    """Its end; None if it has not ended."""
    last: int = 0
    """The number of its latest event."""
    is_agent: bool = True
    """Whether it is an agent run; else it is a toolbox call."""
    agent_role: str = "unknown"
    """The role of the agent."""
    memory_id: str = "default"
    """Its conversation or user."""
    model: str = ""
    """The name of the model."""
    prompt: str = ""
    """The start of the last prompt message; for a call without an agent, of the call."""
    answer: str = ""
    """The start of its answer."""
    stop_reason: str = ""
    """Why it ended or stopped, as in :attr:`~toolsemble.agent.AgentResult.stop_reason`; else empty."""
    error: str = ""
    """The exception that it raised, with its class name; empty if there is none."""
    turns: int = 0
    """The number of model replies, including nested agents' replies."""
    calls: int = 0
    """The number of calls, including nested ones."""
    failures: int = 0
    """The number of failed calls, without cancelled and waiting ones."""
    repairs: int = 0
    """The number of argument repairs."""
    retries: int = 0
    """The number of retries of calls and model requests."""
    waiting: int = 0
    """The number of pending review requests."""
    reviews: int = 0
    """The number of review requests."""
    reviewers: tuple[str, ...] = ()
    """The people who answered, if known."""
    nested: int = 0
    """The number of nested agents."""
    input_tokens: int = 0
    """The input tokens of all requests."""
    output_tokens: int = 0
    """The output tokens of all replies."""
    cached_tokens: int = 0
    """The cached input tokens."""
    cost: float | None = None
    """The price of all tokens; None without prices."""

    @property
    def seconds(self) -> float:
        """The seconds from its start to its end, or to its latest event."""
        return (self.updated if self.ended is None else self.ended) - self.started


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRun:
    """One agent of a run: the outermost or a nested one.

    >>> AgentRun(number=4, run_id="order-7", parent_id="call_1", state="running", started=0.0).parent_id
    'call_1'
    """

    number: int
    """The number of its first event."""
    run_id: str
    """The id of the run."""
    parent_id: str
    """The id of its enclosing call; empty for the outermost agent."""
    state: RunState
    """Its state."""
    started: float
    """Its start, in seconds since the epoch."""
    ended: float | None = None
    """Its end; None if it has not ended."""
    agent_role: str = "unknown"
    """The role of the agent."""
    model: str = ""
    """The name of the model."""
    tools: tuple[str, ...] = ()
    """The names of its tools."""
    prompt: str = ""
    """The start of its last prompt message."""
    answer: str = ""
    """The start of its answer."""
    stop_reason: str = ""
    """Why it ended; empty if it has not ended."""
    error: str = ""
    """The exception that it raised, with its class name."""
    turns: int = 0
    """The number of its model's replies."""
    input_tokens: int = 0
    """The tokens of its requests."""
    output_tokens: int = 0
    """The tokens of its replies."""
    cost: float | None = None
    """The price of its tokens; None without prices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSummary:
    """One reply of a model.

    >>> TurnSummary(number=2, run_id="order-7", turn=1, at=10.0, duration=1.5).started
    8.5
    """

    number: int
    """The number of its event; ``history.event(number)`` has the reply in full."""
    run_id: str
    """The id of the run."""
    turn: int
    """The agent's reply number, starting at 1."""
    at: float
    """The completion time, in seconds since the epoch."""
    duration: float
    """The duration in seconds, including retries."""
    parent_id: str = ""
    """The id of its agent's enclosing call; empty for the outermost agent."""
    model: str = ""
    """The name of the model."""
    text: str = ""
    """The start of its text."""
    calls: tuple[str, ...] = ()
    """The names of the called tools."""
    stop_reason: str = ""
    """Why the model stopped."""
    input_tokens: int = 0
    """The tokens of the request."""
    output_tokens: int = 0
    """The tokens of the reply."""
    cached_tokens: int = 0
    """The tokens of the request that the provider had cached."""
    cost: float | None = None
    """The price of the tokens; None without prices."""

    @property
    def started(self) -> float:
        """The time of the request, in seconds since the epoch."""
        return self.at - self.duration


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSummary:
    """One call of a tool.

    >>> CallSummary(number=3, run_id="order-7", call_id="call_1", tool_name="refund", started=0.0).outcome is None
    True
    """

    number: int
    """The number of its first event; ``history.event(number)`` has its arguments in full."""
    run_id: str
    """The id of its run."""
    call_id: str
    """The id of the call."""
    tool_name: str
    """The name of the tool."""
    started: float
    """Its start, in seconds since the epoch."""
    parent_id: str = ""
    """The id of the enclosing call; empty if there is none."""
    turn: int = 0
    """The number of the requesting reply; 0 without an agent, and for nested calls."""
    ended: float | None = None
    """Its end; None if it has not ended."""
    finished: int | None = None
    """The number of the event with its result; None if it has none."""
    duration: float | None = None
    """The duration in seconds, excluding review time."""
    outcome: Outcome | None = None
    """The outcome; None if it has not ended or was interrupted by a pause or a kill."""
    arguments: str = ""
    """The start of its arguments, as JSON text."""
    text: str = ""
    """The start of the reply text."""
    repairs: int = 0
    """The number of argument repairs."""
    retries: int = 0
    """The number of its retries."""
    progress: float | None = None
    """The fraction last reported as progress; None: unknown."""
    message: str = ""
    """The last progress message."""
    is_cached: bool = False
    """Whether the result came from a cache."""
    is_timed_out: bool = False
    """Whether it reached its timeout."""
    digest: str = ""
    """A digest of its full arguments and reply text; empty if it has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewSummary:
    """One review request, and the answer.

    >>> ReviewSummary(
    ...     request_id="q1", run_id="order-7", call_id="call_1", tool_name="refund", asked=0.0
    ... ).decision is None
    True
    """

    request_id: str
    """The id of the request."""
    run_id: str
    """The id of the waiting run."""
    call_id: str
    """The id of the waiting call."""
    tool_name: str
    """The name of the tool."""
    asked: float
    """The request time, in seconds since the epoch."""
    answered: float | None = None
    """The time of the answer or withdrawal; None if it is open."""
    decision: Literal["continue", "edit", "reject", "withdrawn"] | None = None
    """The decision; "withdrawn" if the call ended without one; None if it is open."""
    person: str = ""
    """The person who decided, if the reviewer reports it."""
    reason: str = ""
    """The reason for a rejection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEvent:
    """One event of a history, with its number.

    >>> values = {"kind": "cache_hit", "tool_name": "search", "call_id": "call_1"}
    >>> HistoryEvent(number=7, kind="cache_hit", run_id="r1", at=0.0, values=values).event.tool_name
    'search'
    """

    number: int
    """Its number: increasing and never reused."""
    kind: str
    """The kind of the event, such as "call_started"."""
    run_id: str
    """The id of its run."""
    at: float
    """The time, in seconds since the epoch."""
    parent_id: str = ""
    """The id of the enclosing call; empty if there is none."""
    call_id: str = ""
    """The id of its call; empty for the events of runs."""
    tool_name: str = ""
    """The name of its tool; empty for the events of runs."""
    values: dict[str, Any] = field(default_factory=dict)
    """The event as JSON values, as in trace files; the start of a run may have ``earlier`` in place of messages."""
    cut: dict[str, int] = field(default_factory=dict)
    """The truncated texts, as JSON pointers into ``values``, with their original length."""

    @property
    def event(self) -> Event:
        """The event as an object of :mod:`toolsemble.events`; raise ``ValueError`` if truncated or unreadable."""
        if self.cut or "earlier" in self.values or not self.values:
            raise ValueError(f"event {self.number} was cut; take it whole from event({self.number})")
        return read_event(self.values)
