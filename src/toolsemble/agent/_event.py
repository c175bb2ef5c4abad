"""The events of a run, as :meth:`Agent.stream` yields them: their channel, and their JSON form."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeAlias, get_args

from toolsemble import events
from toolsemble._engine.event_codec import EventCodec
from toolsemble._schema.result_shape import to_json_value
from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.errors import RunCancelledError, RunError, RunInterruptedError, RunParkedError
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.agent._result import AgentResult, OutputT_co, ToolCallRecord
from toolsemble.events import ModelRetried
from toolsemble.models._chat import ArgumentsDelta, CallDelta, PromptProgress, TextDelta, ThoughtDelta
from toolsemble.models._message import AssistantMessage
from toolsemble.review._request import ReviewRequest

__all__ = [
    "CallReplied",
    "CallRequested",
    "Event",
    "Final",
    "ModelRetried",
    "RunCancelled",
    "RunInterrupted",
    "RunParked",
    "RunStop",
    "TurnEnded",
]


@dataclass(frozen=True, slots=True)
class CallRequested:
    """The model requested a call, which runs next.

    >>> CallRequested(ToolCall("now")).call.name
    'now'
    """

    call: ToolCall
    """The complete call, as the model wrote it; it has an id even if the provider sent none."""
    arguments: dict[str, Any] | None = None
    """The arguments for display, as JSON values with secrets masked; None: the call's own, without secrets."""
    kind: ClassVar[Literal["call_requested"]] = "call_requested"


@dataclass(frozen=True, slots=True)
class CallReplied:
    """A call has its reply; events of parallel calls arrive in completion order.

    >>> from toolsemble import ToolReply, ToolResult
    >>> reply = ToolReply(ToolCall("now"), ToolResult.success("noon"))
    >>> CallReplied(ToolCallRecord(reply.call, reply)).record.reply.text
    'noon'
    """

    record: ToolCallRecord
    """The call and its reply."""
    kind: ClassVar[Literal["call_replied"]] = "call_replied"


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The model replied, and its calls have their replies.

    >>> TurnEnded(AssistantMessage("Rome")).tool_calls
    ()
    """

    message: AssistantMessage
    """The model's reply."""
    tool_calls: tuple[ToolCallRecord, ...] = ()
    """Its calls, in request order."""
    replayed: bool = False
    """Whether the turn was replayed from the journal of a resumed run; it had no other events."""
    kind: ClassVar[Literal["turn_ended"]] = "turn_ended"


@dataclass(frozen=True, slots=True)
class Final(Generic[OutputT_co]):
    """The run ended with a result; the last event.

    >>> Final(AgentResult("Rome")).result.text
    'Rome'
    """

    result: AgentResult[OutputT_co]
    """The result of the run."""
    kind: ClassVar[Literal["final"]] = "final"


@dataclass(frozen=True, slots=True)
class RunParked:
    """The journaled run waits for a person; the last event in this process. It resumes after the answer.

    >>> RunParked("order-7").kind
    'parked'
    """

    run_id: str
    """The id of the run."""
    pending: tuple[ReviewRequest, ...] = ()
    """The pending requests; empty if a call of unknown outcome has to be settled."""
    kind: ClassVar[Literal["parked"]] = "parked"


@dataclass(frozen=True, slots=True)
class RunInterrupted:
    """The process is shutting down; the last event here. The run is queued in its journal, to be resumed.

    >>> RunInterrupted("order-7").kind
    'interrupted'
    """

    run_id: str
    """The id of the run."""
    kind: ClassVar[Literal["interrupted"]] = "interrupted"


@dataclass(frozen=True, slots=True)
class RunCancelled:
    """The run was cancelled in its journal and cannot resume; the last event.

    >>> RunCancelled("order-7").kind
    'cancelled'
    """

    run_id: str
    """The id of the run."""
    kind: ClassVar[Literal["cancelled"]] = "cancelled"


RunStop: TypeAlias = RunParked | RunInterrupted | RunCancelled
"""The last event of a journaled run that stops here without an answer or a failure."""


def to_last_event(stopped: RunError) -> RunStop | None:
    """Return the last event of a run that stopped here; None if another process drives it.

    >>> to_last_event(RunParkedError("It waits", run_id="order-7"))
    RunParked(run_id='order-7', pending=())
    """
    if isinstance(stopped, RunParkedError):
        return RunParked(stopped.run_id, tuple(stopped.pending))
    if isinstance(stopped, RunInterruptedError):
        return RunInterrupted(stopped.run_id)
    return RunCancelled(stopped.run_id) if isinstance(stopped, RunCancelledError) else None


Event: TypeAlias = (
    TextDelta
    | ThoughtDelta
    | PromptProgress
    | CallDelta
    | ArgumentsDelta
    | CallRequested
    | CallReplied
    | TurnEnded
    | Final[OutputT_co]
    | RunParked
    | RunInterrupted
    | RunCancelled
    | events.Event
)
"""Any event of a stream; each has a ``kind``, for serialization.

A call by the model is reported as requested and replied to; calls inside it as started and finished.
"""


class Channel:
    """A queue of a run's events; the run waits at each turn until the consumer requests the next event."""

    def __init__(self, *kinds: type) -> None:
        """Accept only events of these types; all events by default."""
        self._kinds = kinds or (object,)
        self._loop: asyncio.AbstractEventLoop  # of the consumer, set when it starts
        self._events: deque[Any] = deque()
        self._arrived = asyncio.Event()
        self._wanted = asyncio.Event()
        self._is_over = False
        self._raised: BaseException | None = None

    def send(self, event: object) -> None:
        """Add an event; thread-safe."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._add(event)
        else:
            with suppress(RuntimeError):  # the loop is closed: the consumer is gone
                self._loop.call_soon_threadsafe(self._add, event)

    async def wait_ready(self) -> None:
        """Wait until all events are consumed and the next one is requested."""
        await self._wanted.wait()

    async def follow(self, work: Callable[[], Awaitable[Any]], partial: Callable[[], Any]) -> AsyncGenerator[Any, None]:
        """Run the work and yield its events as they arrive, its return value last; re-raise its exception.

        The work is cancelled when the consumer stops.

        :param partial: returns the partial result, which is attached to a cancellation
        """
        self._loop = asyncio.get_running_loop()
        task = asyncio.create_task(self._run_work(work))
        try:
            while True:
                while self._events:
                    yield self._events.popleft()
                if self._is_over:
                    break
                self._arrived.clear()
                self._wanted.set()
                await self._arrived.wait()
        except asyncio.CancelledError as error:
            await _cancel(task)
            error.partial = partial()  # type: ignore[attr-defined]  # set on every error of a run
            raise
        finally:
            await _cancel(task)
        if self._raised is not None:
            raise self._raised

    async def _run_work(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Run the work; store its exception, because a task would drop the attributes of a cancellation."""
        try:
            self._add(await work())
        except BaseException as error:  # raised to the consumer
            self._raised = error
        finally:
            self._is_over = True
            self._arrived.set()

    def _add(self, event: object) -> None:
        # A blocking body may outlive its run and still report progress.
        if isinstance(event, self._kinds) and not self._is_over:
            self._events.append(event)
            self._wanted.clear()
            self._arrived.set()


async def _cancel(task: asyncio.Task[None]) -> None:
    """Cancel a running task, and wait until it ends."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])


_CODEC = EventCodec(get_args(Event), to_json_value)


def event_to_json(event: Event) -> str:
    """Return a run event as one line of ASCII JSON: its ``kind``, and its fields.

    Objects in results, such as an answer of an ``output_type``, become JSON values. The final event contains the whole
    conversation: send it only to programs that may see it, and :func:`~toolsemble.agent.streams.sse` to browsers.

    >>> from toolsemble.agent import TextDelta
    >>> event_to_json(TextDelta("Ro"))
    '{"kind":"text_delta","text":"Ro"}'
    """
    return compact_json(event_to_values(event), ensure_ascii=True, allow_nan=False)


def event_from_json(text: str | bytes) -> Event:
    """Return the event that :func:`event_to_json` wrote; raise ``ValueError`` for any other text.

    >>> event_from_json('{"kind":"text_delta","text":"Ro"}')
    TextDelta(text='Ro')
    >>> event_from_json('{"kind":"text_delta","text":7}')
    Traceback (most recent call last):
    ...
    ValueError: This is not an event: text: expected a str, got 7
    """
    try:
        event: Event = _CODEC.read(json.loads(text))
    except (ValueError, TypeError, RecursionError) as problem:
        raise ValueError(f"This is not an event: {problem}") from problem
    return event


def event_to_values(event: Event) -> dict[str, Any]:
    """Return an event as JSON values.

    >>> from toolsemble.agent import ModelRetried
    >>> event_to_values(ModelRetried("Too many requests", 2.5))["seconds"]
    2.5
    """
    if not isinstance(getattr(event, "kind", None), str):
        raise TypeError(f"Expected an event of Agent.stream, got {event!r:.80}")
    return _CODEC.write(event)
