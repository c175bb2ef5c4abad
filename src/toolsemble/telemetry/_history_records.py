"""The records that a run history returns: runs, the agents inside them, calls, reviews and events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from toolsemble._runtime.metrics import Outcome
from toolsemble.events import Event
from toolsemble.telemetry._trace_file import read_event

RunState: TypeAlias = Literal["queued", "running", "waiting", "done", "failed", "cancelled", "lost"]
"""The state of a run: "queued" if it was interrupted, and a journal has it for another process; "waiting" for a person;
"lost" if its process ended before the run did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run, with everything that happened inside it counted.

    The calls of a toolbox without an agent are runs, too; these have no model and no prompt.

    >>> RunSummary(number=1, run_id="order-7", state="done", started=0.0, updated=2.5, ended=2.5).seconds
    2.5
    """

    number: int
    """The number of its first event; runs are listed by it, the newest first."""
    run_id: str
    """The id of the run."""
    state: RunState
    """The state, as far as it is known."""
    started: float
    """When it began, in seconds since the epoch."""
    updated: float
    """When its latest event happened."""
    ended: float | None = None
    """When it ended; None if it did not."""
    last: int = 0
    """The number of its latest event."""
    is_agent: bool = True
    """Whether it is the run of an agent; else it is a call of a toolbox."""
    agent_role: str = "unknown"
    """The role of the agent."""
    memory_id: str = "default"
    """The conversation or user that it belongs to."""
    model: str = ""
    """The name of the model."""
    prompt: str = ""
    """The start of the last message that it was asked with; for a call without an agent, of the call."""
    answer: str = ""
    """The start of its answer."""
    stop_reason: str = ""
    """Why it ended, or does not go on now, as in :attr:`~toolsemble.agent.AgentResult.stop_reason`; else empty."""
    error: str = ""
    """The exception that it raised, with its class name; empty if there is none."""
    turns: int = 0
    """The number of the model's replies, including those of nested agents."""
    calls: int = 0
    """The number of calls, including those inside other calls."""
    failures: int = 0
    """The number of calls that failed; those that were cancelled, or wait, did not."""
    repairs: int = 0
    """The number of repairs of arguments."""
    retries: int = 0
    """The number of retries of calls and of model requests."""
    waiting: int = 0
    """The number of questions that no reviewer has answered."""
    reviews: int = 0
    """The number of questions to reviewers."""
    reviewers: tuple[str, ...] = ()
    """The people who answered, as far as they are known."""
    nested: int = 0
    """The number of agents that ran inside calls."""
    input_tokens: int = 0
    """The tokens of all requests."""
    output_tokens: int = 0
    """The tokens of all replies."""
    cached_tokens: int = 0
    """The tokens of requests that the provider had cached."""
    cost: float | None = None
    """The price of all tokens; None without prices."""

    @property
    def seconds(self) -> float:
        """The seconds from its start to its end, or to its latest event."""
        return (self.updated if self.ended is None else self.ended) - self.started


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRun:
    """One agent inside a run: the outermost one, or one that ran in a call.

    >>> AgentRun(number=4, run_id="order-7", parent_id="call_1", state="running", started=0.0).parent_id
    'call_1'
    """

    number: int
    """The number of its first event."""
    run_id: str
    """The id of the run."""
    parent_id: str
    """The id of the call that it ran in; empty for the outermost agent."""
    state: RunState
    """Its state."""
    started: float
    """When it began, in seconds since the epoch."""
    ended: float | None = None
    """When it ended; None if it did not."""
    agent_role: str = "unknown"
    """The role of the agent."""
    model: str = ""
    """The name of the model."""
    tools: tuple[str, ...] = ()
    """The names of the tools that it was offered."""
    prompt: str = ""
    """The start of the last message that it was asked with."""
    answer: str = ""
    """The start of its answer."""
    stop_reason: str = ""
    """Why it ended; empty if it did not."""
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
    """The number of the reply of its agent, starting at 1."""
    at: float
    """When the reply was complete, in seconds since the epoch."""
    duration: float
    """The seconds that the reply took, including retries."""
    parent_id: str = ""
    """The id of the call that its agent ran in; empty for the outermost agent."""
    model: str = ""
    """The name of the model."""
    text: str = ""
    """The start of its text."""
    calls: tuple[str, ...] = ()
    """The names of the tools that it calls."""
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
        """When the model was asked, in seconds since the epoch."""
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
    """When it began, in seconds since the epoch."""
    parent_id: str = ""
    """The id of the call around it; empty if there is none."""
    turn: int = 0
    """The number of the reply that asked for it; 0 for a call without an agent, and inside other calls."""
    ended: float | None = None
    """When it ended; None if it did not."""
    finished: int | None = None
    """The number of the event with its result; None if it has none."""
    duration: float | None = None
    """The duration in seconds, without the time of reviewers."""
    outcome: Outcome | None = None
    """The outcome; None if it did not end, or was interrupted: the run paused, or its process was killed."""
    arguments: str = ""
    """The start of its arguments, as JSON text."""
    text: str = ""
    """The start of what the model was told."""
    repairs: int = 0
    """The number of repairs of its arguments."""
    retries: int = 0
    """The number of its retries."""
    progress: float | None = None
    """The part of the work that is done, as the tool reported it last; None: unknown."""
    message: str = ""
    """What the tool said that it is doing."""
    is_cached: bool = False
    """Whether the result came from a cache."""
    is_timed_out: bool = False
    """Whether it reached its timeout."""
    digest: str = ""
    """A digest of its whole arguments and of all that the model was told; empty if it did not end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewSummary:
    """One question to a reviewer, and the answer.

    >>> ReviewSummary(
    ...     request_id="q1", run_id="order-7", call_id="call_1", tool_name="refund", asked=0.0
    ... ).decision is None
    True
    """

    request_id: str
    """The id of the request."""
    run_id: str
    """The id of the run that waits."""
    call_id: str
    """The id of the call that waits."""
    tool_name: str
    """The name of the tool."""
    asked: float
    """When it was asked, in seconds since the epoch."""
    answered: float | None = None
    """When it was answered, or nobody waited any more; None if it is open."""
    decision: Literal["continue", "edit", "reject", "withdrawn"] | None = None
    """The decision; "withdrawn" if the call ended without one; None if it is open."""
    person: str = ""
    """Who decided, if the reviewer said so."""
    reason: str = ""
    """The reason of a rejection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEvent:
    """One event of a history, with its number.

    >>> values = {"kind": "cache_hit", "tool_name": "search", "call_id": "call_1"}
    >>> HistoryEvent(number=7, kind="cache_hit", run_id="r1", at=0.0, values=values).event.tool_name
    'search'
    """

    number: int
    """Its number: later events have greater ones, and none is used twice."""
    kind: str
    """The kind of the event, such as "call_started"."""
    run_id: str
    """The id of its run."""
    at: float
    """When it happened, in seconds since the epoch."""
    parent_id: str = ""
    """The id of the call around it; empty if there is none."""
    call_id: str = ""
    """The id of its call; empty for the events of runs."""
    tool_name: str = ""
    """The name of its tool; empty for the events of runs."""
    values: dict[str, Any] = field(default_factory=dict)
    """The event as JSON values, as in trace files; the start of a run may have ``earlier`` in place of messages."""
    cut: dict[str, int] = field(default_factory=dict)
    """The texts that were cut, as JSON pointers into ``values``, with their full length."""

    @property
    def event(self) -> Event:
        """The event as an object of :mod:`toolsemble.events`; raise ``ValueError`` if it was cut or is not readable."""
        if self.cut or "earlier" in self.values or not self.values:
            raise ValueError(f"event {self.number} was cut; take it whole from event({self.number})")
        return read_event(self.values)
