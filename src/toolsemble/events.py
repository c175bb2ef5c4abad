"""What happens to calls, as data: what sinks are told, and what a run's stream gives.

Events are compared by what happened, not by when, and in whose run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self, TypeAlias

from toolsemble.masking.secrets import masked, secrets
from toolsemble.metrics import Outcome
from toolsemble.result import ToolResult
from toolsemble.review.events import ReviewDecided, ReviewRequested

__all__ = [
    "CacheHit",
    "CallAbandoned",
    "CallEvent",
    "CallFinished",
    "CallProgress",
    "CallRepaired",
    "CallRetried",
    "CallStarted",
    "CallTimedOut",
    "Event",
    "ReviewDecided",
    "ReviewRequested",
]


class CallIds(Protocol):
    """What is known of a call before anything happens to it: its context."""

    @property
    def tool_name(self) -> str:
        """The tool that is called."""
        ...

    @property
    def call_id(self) -> str:
        """The call."""
        ...

    @property
    def run_id(self) -> str:
        """The run that the call belongs to."""
        ...

    @property
    def parent_id(self) -> str:
        """The call that this one is made inside."""
        ...

    @property
    def agent_role(self) -> str:
        """The role of the agent that calls."""
        ...

    @property
    def memory_id(self) -> str:
        """The conversation or user that the call belongs to."""
        ...


@dataclass(frozen=True, slots=True)
class CallEvent:
    """Something that happened to a call.

    >>> from toolsemble import ToolContext
    >>> CallProgress.of(ToolContext("scrape", "call_1", run_id="r1"), fraction=0.4).run_id
    'r1'
    """

    tool_name: str
    """The tool that is called."""
    call_id: str
    """The call."""
    run_id: str = field(default="", kw_only=True, compare=False)
    """The run that the call belongs to."""
    parent_id: str = field(default="", kw_only=True, compare=False)
    """The call that this one is made inside; empty for none."""
    agent_role: str = field(default="unknown", kw_only=True, compare=False)
    """The role of the agent that calls."""
    memory_id: str = field(default="default", kw_only=True, compare=False)
    """The conversation or user that the call belongs to."""
    at: float = field(default_factory=time.time, kw_only=True, compare=False)
    """When it happened, in seconds since the epoch."""
    kind: ClassVar[str]

    @classmethod
    def of(cls, context: CallIds, **facts: Any) -> Self:
        """Give the event for a call in its context; in texts, the secrets of the call are hidden."""
        if secrets():
            facts = {name: masked(each) if isinstance(each, str) else each for name, each in facts.items()}
        return cls(
            context.tool_name,
            context.call_id,
            run_id=context.run_id,
            parent_id=context.parent_id,
            agent_role=context.agent_role,
            memory_id=context.memory_id,
            **facts,
        )


@dataclass(frozen=True, slots=True)
class CallStarted(CallEvent):
    """A call has begun: its arguments are read, and nobody was asked yet.

    >>> CallStarted("weather", "call_1", {"city": "Rome"}).arguments
    {'city': 'Rome'}
    """

    arguments: Any = None
    """The arguments as a reviewer would see them, with secrets hidden; where they do not fit, as they came."""
    kind: ClassVar[str] = "call_started"


@dataclass(frozen=True, slots=True)
class CallRepaired(CallEvent):
    """The arguments of a call did nearly fit, and were repaired.

    >>> CallRepaired("weather", "call_1", ({"step": "coerce", "path": "days", "from": "3", "to": 3},)).kind
    'call_repaired'
    """

    repairs: tuple[Mapping[str, Any], ...] = ()
    """The changes: each with its ``step`` and ``path``, what it was ``from`` and what it became, ``to``."""
    kind: ClassVar[str] = "call_repaired"


@dataclass(frozen=True, slots=True)
class CallRetried(CallEvent):
    """A call that failed is about to be made again.

    >>> CallRetried("search", "call_1", 1, 0.5, "Connection refused").attempt
    1
    """

    attempt: int
    """Which repetition it is, from 1 on."""
    wait: float
    """How many seconds pass before it."""
    error: str
    """What went wrong."""
    kind: ClassVar[str] = "call_retried"


@dataclass(frozen=True, slots=True)
class CallProgress(CallEvent):
    """How far a call has come, as its tool says.

    >>> CallProgress("scrape", "call_1", 0.4, "page 4 of 10").fraction
    0.4
    """

    fraction: float | None
    """How much of the work is done, from 0 to 1; None when that is not known."""
    message: str = ""
    """What is being done, for people."""
    kind: ClassVar[str] = "call_progress"


@dataclass(frozen=True, slots=True)
class CallTimedOut(CallEvent):
    """The time of a call is up.

    >>> CallTimedOut("search", "call_1", 5.0).seconds
    5.0
    """

    seconds: float
    """How many seconds it had."""
    kind: ClassVar[str] = "call_timed_out"


@dataclass(frozen=True, slots=True)
class CallAbandoned(CallEvent):
    """A call has its reply, but its body goes on: in a thread that nobody can end, or in a task that will not end.

    >>> CallAbandoned("search", "call_1").kind
    'call_abandoned'
    """

    kind: ClassVar[str] = "call_abandoned"


@dataclass(frozen=True, slots=True)
class CacheHit(CallEvent):
    """A call is answered with the result of an earlier one.

    >>> CacheHit("search", "call_2").tool_name
    'search'
    """

    kind: ClassVar[str] = "cache_hit"


@dataclass(frozen=True, slots=True)
class CallFinished(CallEvent):
    """A call has ended.

    >>> CallFinished("weather", "call_1", "success", ToolResult.success("sunny")).text
    'sunny'
    """

    outcome: Outcome
    """Whether it succeeded, gave a failed result, or its tool raised an exception."""
    result: ToolResult | None = None
    """The whole result, with secrets hidden; None when an exception passes through to the caller."""
    arguments: Any = field(default=None, compare=False)
    """The arguments that the body got, as a reviewer would see them: a reviewer may have changed them."""
    duration: float = field(default=0.0, compare=False)
    """How many seconds the work took, without the time of a reviewer."""
    error_type: str = ""
    """The class of the exception that the tool raised; empty for none."""
    error: str = ""
    """What that exception says; empty for none."""
    kind: ClassVar[str] = "call_finished"

    @property
    def text(self) -> str:
        """What the model is told, before any cut; the exception where one passes through."""
        return f"{self.error_type}: {self.error}" if self.result is None else self.result.text


Event: TypeAlias = (
    CallStarted
    | CallRepaired
    | CallRetried
    | CallProgress
    | CallTimedOut
    | CallAbandoned
    | CacheHit
    | CallFinished
    | ReviewRequested
    | ReviewDecided
)
"""Anything that a sink is told of; each has a ``kind``, and says which tool, call and run it is about."""
