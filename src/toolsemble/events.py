"""The events of calls and runs, which sinks receive and runs stream.

Events are compared without their time, and without the ids and the role of their run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

from toolsemble._runtime.metrics import Outcome
from toolsemble._schema.masking import mask_text, secrets
from toolsemble._vocabulary.result import ErrorKind, ToolResult
from toolsemble.review._request import ReviewDecided, ReviewRequested

if TYPE_CHECKING:  # a toolbox without an agent does not load the messages of models
    from toolsemble.models._chat import TokenUsage
    from toolsemble.models._message import AssistantMessage, Message

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
    "ModelReplied",
    "ModelRetried",
    "ReviewDecided",
    "ReviewRequested",
    "RunEvent",
    "RunFinished",
    "RunStarted",
]


# Without slots, as ToolContext: every observed call creates events, and setting one dict is faster than each field.
@dataclass(frozen=True)
class CallEvent:
    """The base class of the events of a call.

    >>> from toolsemble import ToolContext
    >>> CallProgress.of(ToolContext("scrape", "call_1", run_id="r1"), fraction=0.4).run_id
    'r1'
    """

    tool_name: str
    """The name of the tool."""
    call_id: str
    """The id of the call."""
    run_id: str = field(default="", kw_only=True, compare=False)
    """The id of the run that the call belongs to."""
    parent_id: str = field(default="", kw_only=True, compare=False)
    """The id of the enclosing call; empty if there is none."""
    agent_role: str = field(default="unknown", kw_only=True, compare=False)
    """The role of the agent that calls."""
    memory_id: str = field(default="default", kw_only=True, compare=False)
    """The conversation or user that the call belongs to."""
    at: float = field(default_factory=time.time, kw_only=True, compare=False)
    """When it happened, in seconds since the epoch."""
    kind: ClassVar[str]

    @classmethod
    def of(cls, context: Any, **facts: Any) -> Self:
        """Return the event for the call of a :class:`~toolsemble.ToolContext`, with its secrets masked in texts."""
        if secrets():
            facts = {name: mask_text(each) if isinstance(each, str) else each for name, each in facts.items()}
        event = _blank(cls)
        values = {
            "tool_name": context.tool_name,
            "call_id": context.call_id,
            "run_id": context.run_id,
            "parent_id": context.parent_id,
            "agent_role": context.agent_role,
            "memory_id": context.memory_id,
            "at": time.time(),
        }
        _set_fields(event, values | facts)  # other fields have their defaults, which are attributes of the class
        return event


_blank = object.__new__
_set_fields = vars(CallEvent)["__dict__"].__set__


@dataclass(frozen=True)
class CallStarted(CallEvent):
    """A call has begun: its arguments are decoded, and no reviewer has been asked yet.

    >>> CallStarted("weather", "call_1", {"city": "Rome"}).arguments
    {'city': 'Rome'}
    """

    arguments: Any = None
    """The arguments as a reviewer would see them, with secrets hidden; invalid arguments are unchanged."""
    kind: ClassVar[Literal["call_started"]] = "call_started"


@dataclass(frozen=True)
class CallRepaired(CallEvent):
    """The arguments of a call were repaired.

    >>> CallRepaired("weather", "call_1", ({"step": "coerce", "path": "days", "from": "3", "to": 3},)).kind
    'call_repaired'
    """

    repairs: tuple[Mapping[str, Any], ...] = ()
    """The repairs, each with ``step``, ``path``, ``from`` and ``to``."""
    kind: ClassVar[Literal["call_repaired"]] = "call_repaired"


@dataclass(frozen=True)
class CallRetried(CallEvent):
    """A failed call is about to be retried.

    >>> CallRetried("search", "call_1", 1, 0.5, "Connection refused").attempt
    1
    """

    attempt: int
    """The number of the retry, starting at 1."""
    wait: float
    """Seconds until the retry."""
    error: str
    """The error message of the failed attempt."""
    kind: ClassVar[Literal["call_retried"]] = "call_retried"


@dataclass(frozen=True)
class CallProgress(CallEvent):
    """The progress of a call, reported by its tool.

    >>> CallProgress("scrape", "call_1", 0.4, "page 4 of 10").fraction
    0.4
    """

    fraction: float | None
    """The completed fraction of the work, from 0 to 1; None: unknown."""
    message: str = ""
    """A description of the current work, for people."""
    kind: ClassVar[Literal["call_progress"]] = "call_progress"


@dataclass(frozen=True)
class CallTimedOut(CallEvent):
    """A call has reached its timeout.

    >>> CallTimedOut("search", "call_1", 5.0).seconds
    5.0
    """

    seconds: float
    """The timeout in seconds."""
    kind: ClassVar[Literal["call_timed_out"]] = "call_timed_out"


@dataclass(frozen=True)
class CallAbandoned(CallEvent):
    """A call has ended, but its body is still running: in a thread, or in a task that ignores its cancellation.

    >>> CallAbandoned("search", "call_1").kind
    'call_abandoned'
    """

    kind: ClassVar[Literal["call_abandoned"]] = "call_abandoned"


@dataclass(frozen=True)
class CacheHit(CallEvent):
    """A call is answered with a cached result.

    >>> CacheHit("search", "call_2").tool_name
    'search'
    """

    kind: ClassVar[Literal["cache_hit"]] = "cache_hit"


@dataclass(frozen=True)
class CallFinished(CallEvent):
    """A call has ended.

    >>> CallFinished("weather", "call_1", "success", ToolResult.success("sunny")).text
    'sunny'
    """

    outcome: Outcome
    """Whether it succeeded, returned a failed result, or its tool raised an exception."""
    result: ToolResult | None = None
    """The whole result, with secrets hidden; None if an exception is raised to the caller."""
    arguments: Any = field(default=None, compare=False)
    """The arguments of the body, as a reviewer would see them; a reviewer may have edited them."""
    duration: float = field(default=0.0, compare=False)
    """The duration in seconds, without time in review."""
    error_type: str = ""
    """The class name of the exception that the tool raised; empty if there is none."""
    error: str = ""
    """The message of that exception; empty if there is none."""
    kind: ClassVar[Literal["call_finished"]] = "call_finished"

    @property
    def text(self) -> str:
        """The text for the model, not truncated; or the exception, if one is raised to the caller."""
        return f"{self.error_type}: {self.error}" if self.result is None else self.result.text

    @property
    def error_kind(self) -> ErrorKind | None:
        """The kind of the failure; None on success, and if an exception is raised to the caller."""
        return None if self.result is None else self.result.error_kind


@dataclass(frozen=True)
class RunEvent:
    """The base class of the events of an agent's run, outside its calls.

    >>> RunStarted("gpt-5", run_id="r1").run_id
    'r1'
    """

    run_id: str = field(default="", kw_only=True, compare=False)
    """The id of the run."""
    parent_id: str = field(default="", kw_only=True, compare=False)
    """The id of the call that contains the run, if the agent is another agent's tool; else empty."""
    agent_role: str = field(default="unknown", kw_only=True, compare=False)
    """The role of the agent."""
    memory_id: str = field(default="default", kw_only=True, compare=False)
    """The conversation or user that the run belongs to."""
    at: float = field(default_factory=time.time, kw_only=True, compare=False)
    """When it happened, in seconds since the epoch."""
    tool_name: ClassVar[str] = ""
    """Empty, so that a sink can read the same attributes of all events."""
    call_id: ClassVar[str] = ""
    """Also empty."""
    kind: ClassVar[str]

    @classmethod
    def of(cls, context: Any, **facts: Any) -> Self:
        """Return the event for the run of a :class:`~toolsemble.ToolContext`."""
        return cls(
            run_id=context.run_id,
            parent_id=context.call_id,
            agent_role=context.agent_role,
            memory_id=context.memory_id,
            **facts,
        )


@dataclass(frozen=True)
class RunStarted(RunEvent):
    """A run has begun, and its model has not been called yet.

    >>> RunStarted("gpt-5", tools=("search",)).tools
    ('search',)
    """

    model: str
    """The name of the model, or its class if it has none."""
    messages: tuple[Message, ...] = ()
    """The conversation that the run starts with, including instructions and the prompt."""
    tools: tuple[str, ...] = ()
    """The names of the offered tools; empty if a function chooses them at each turn."""
    resumed: bool = False
    """Whether it resumes an earlier run; events from before are not sent again."""
    kind: ClassVar[Literal["run_started"]] = "run_started"


@dataclass(frozen=True)
class ModelReplied(RunEvent):
    """The model has replied; its calls run next.

    >>> from toolsemble.models import AssistantMessage
    >>> ModelReplied(AssistantMessage("Rome"), turn=1).message.text
    'Rome'
    """

    message: AssistantMessage
    """The text and the calls of the reply."""
    turn: int = 1
    """The number of the reply in the run, starting at 1."""
    model: str = ""
    """The name of the model, or its class if it has none."""
    usage: TokenUsage | None = None
    """The tokens of the request and the reply."""
    stop_reason: str = "stop"
    """Why the model stopped."""
    duration: float = field(default=0.0, compare=False)
    """The seconds that the reply took, including retries."""
    cost: float | None = None
    """The price of the tokens; None without ``prices``."""
    kind: ClassVar[Literal["model_replied"]] = "model_replied"


@dataclass(frozen=True)
class ModelRetried(RunEvent):
    """The model failed, or the run's time was up, and the request is retried.

    Text and calls of this reply that were streamed before are void: the reply starts over.

    >>> retried = ModelRetried("The connection broke", 2.5, "Rome is su")
    >>> "Let me see. Rome is su".removesuffix(retried.discarded)
    'Let me see. '
    """

    reason: str
    """The error."""
    seconds: float
    """Seconds until the retry."""
    discarded: str = ""
    """The reply's text that was streamed before and is void; empty in the events of sinks."""
    kind: ClassVar[Literal["model_retried"]] = "model_retried"


@dataclass(frozen=True)
class RunFinished(RunEvent):
    """A run has ended, with an answer or an exception.

    >>> RunFinished("answer", "Rome").text
    'Rome'
    """

    stop_reason: str
    """Why the run ended, as in :attr:`~toolsemble.agent.AgentResult.stop_reason`."""
    text: str = ""
    """The answer; empty if there is none."""
    turns: int = 0
    """The number of the model's replies."""
    usage: TokenUsage | None = None
    """The tokens of the run, including nested agents."""
    cost: float | None = None
    """The price of the tokens; None without ``prices``."""
    duration: float = field(default=0.0, compare=False)
    """The duration in seconds."""
    error_type: str = ""
    """The class name of the exception that the run raised; empty if there is none."""
    error: str = ""
    """The message of that exception; empty if there is none."""
    kind: ClassVar[Literal["run_finished"]] = "run_finished"


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
    | RunStarted
    | ModelReplied
    | ModelRetried
    | RunFinished
)
"""All events that a sink receives; each has a ``kind`` and the ids of the call or the run."""
