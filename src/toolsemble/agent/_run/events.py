"""A run's events, for its watchers and its stream, and its span attributes; secrets are masked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextvars import Token
from dataclasses import replace
from functools import partial
from typing import Any

from toolsemble._engine.context import ToolContext
from toolsemble._engine.execution.outcome import get_class_name
from toolsemble._runtime.text import describe_error
from toolsemble._runtime.watchers import tell, watch, watchers
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolCall, received_call
from toolsemble._vocabulary.errors import CallPausedError, RunError
from toolsemble._vocabulary.place import Place
from toolsemble.agent._budget import Usage
from toolsemble.agent._event import Channel, TurnEnded
from toolsemble.agent._output import FINAL_ANSWER
from toolsemble.agent._result import AgentResult, ToolCallRecord
from toolsemble.agent._run.state import RunState
from toolsemble.agent._settings import AgentConfig
from toolsemble.events import CallFinished, CallStarted, ModelReplied, ModelRetried, RunFinished, RunStarted
from toolsemble.models._chat import ArgumentsDelta, CallDelta, ChatReply, ChatRequest, Chunk, StopReason, TokenUsage
from toolsemble.models._message import AssistantMessage, Message, ToolMessage

_NORMAL = frozenset({"parked", "interrupted", "taken_over", "cancelled"})


class RunEvents:
    """The events of one run, each built once, for the run's watchers and for the caller's stream.

    Watchers, such as sinks, get the events of the run and of its calls. The stream shows the deltas of the model's
    replies, the model's calls as requested and replied to, and the events inside these calls.
    """

    def __init__(self, config: AgentConfig, state: RunState, stream: Channel | None, *, shows_pieces: bool) -> None:
        """Set the receivers.

        :param stream: the caller's channel; None: the run is not streamed
        :param shows_pieces: whether the stream shows the deltas of the model's replies
        """
        self.stream = stream
        self.shows_pieces = shows_pieces
        """Whether the model is asked to stream its replies."""
        self._config = config
        self._state = state

    def start(self) -> None:
        """Send the start of the run."""
        if watchers():
            config, state = self._config, self._state
            box = config.tools if isinstance(config.tools, Toolbox) else None
            messages, tools = hide_secrets(state.messages, box), () if box is None else tuple(box.names)
            resumed = state.is_resumed or _has_turns(state.context.place)
            tell(RunStarted.of(state.context, model=config.model_name, messages=messages, tools=tools, resumed=resumed))

    def reply(self, box: Toolbox, reply: ChatReply, seconds: float) -> None:
        """Send a model reply."""
        if watchers():
            state = self._state
            tell(
                ModelReplied.of(
                    state.context,
                    message=hide_secrets([AssistantMessage(reply.text, reply.calls)], box)[0],
                    turn=state.spending.turns,
                    model=self._config.model_name,
                    usage=reply.usage,
                    stop_reason=reply.stop_reason,
                    duration=seconds,
                    cost=state.spending.price(reply.usage),
                )
            )

    def retry(self, event: ModelRetried) -> None:
        """Send a retry of a model request; only the stream has shown the discarded text."""
        if watchers():
            tell(ModelRetried.of(self._state.context, reason=event.reason, seconds=event.seconds))
        self.show(event)

    def end_turn(self, message: AssistantMessage, made: Sequence[ToolCallRecord], *, replayed: bool) -> None:
        """Show the model's reply, whose calls have their replies."""
        if self.stream is not None:
            self.stream.send(TurnEnded(message, tuple(made), replayed))

    def show(self, event: object) -> None:
        """Send an event that only the stream shows."""
        if self.stream is not None:
            self.stream.send(event)

    def watch_calls(self) -> Token[Any] | None:
        """Show the events of calls in this context, until :func:`unwatch`; None without a stream."""
        return None if self.stream is None else watch(self._show_inside)

    def _show_inside(self, event: Any) -> None:
        """Show an event of a call; the model's own calls are shown as request and reply, not as start and end."""
        is_own = event.kind in _SHOWN_OTHERWISE and event.parent_id == self._state.context.call_id
        if not is_own:
            self.show(event)

    def finish(self, result: AgentResult) -> None:
        """Send the end of the run with its result."""
        if watchers():
            tell(self._build_end(result.stop_reason, result.text))

    def fail(self, error: BaseException) -> None:
        """Send the end of the run with an exception."""
        if watchers():
            reason = find_stop_reason(error)
            tell(self._build_end(reason, error=None if reason in _NORMAL and _is_normal(error) else error))

    def _build_end(self, reason: str, text: str = "", error: BaseException | None = None) -> RunFinished:
        spending, usage = self._state.spending, self._state.spending.usage()
        return RunFinished.of(
            self._state.context,
            stop_reason=reason,
            text=text,
            turns=spending.turns,
            usage=TokenUsage(usage.input_tokens, usage.output_tokens, usage.cached_tokens),
            cost=None if spending.prices is None else usage.cost,
            duration=time.monotonic() - spending.started,
            error_type="" if error is None else get_class_name(error),
            error="" if error is None else describe_error(error),
        )


_SHOWN_OTHERWISE = frozenset({CallStarted.kind, CallFinished.kind})


def _has_turns(place: Place | None) -> bool:
    """Return whether a journal has turns of a nested agent at a place."""
    return place is not None and any(place.run.find_reply(f"{place.path}/{turn}") is not None for turn in (0, 1))


def find_stop_reason(error: BaseException) -> str:
    """Return the stop reason of a run that ended with an exception.

    >>> find_stop_reason(ValueError("broken"))
    'error'
    """
    partial = getattr(error, "partial", None)
    return partial.stop_reason if isinstance(partial, AgentResult) else "error"


def _is_normal(error: BaseException) -> bool:
    """Return whether an exception only means that a run stops in this process."""
    return isinstance(error, (CallPausedError, RunError, asyncio.CancelledError))


INPUT_MESSAGES, OUTPUT_MESSAGES = "gen_ai.input.messages", "gen_ai.output.messages"
"""The attributes whose values are functions that return messages: private and long, so computed only on request."""
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
"""The attribute whose value is a function that returns specifications."""
# The stop reasons with another name in the conventions.
_FINISH_REASONS: dict[StopReason, str] = {"calls": "tool_calls", "refusal": "content_filter"}


def run_attributes(config: AgentConfig, context: ToolContext) -> dict[str, Any]:
    """Return the attributes known at the start of a run."""
    attributes = {"gen_ai.agent.name": config.role} if config.role else {}
    return attributes | _shared_attributes(config, context)


def conversation_attributes(config: AgentConfig, messages: Sequence[Message], answer: str) -> dict[str, Any]:
    """Return the attributes of a run's initial conversation, and of its answer."""
    box = config.tools if isinstance(config.tools, Toolbox) else None
    return {
        INPUT_MESSAGES: partial(hide_secrets, messages, box),
        OUTPUT_MESSAGES: lambda: [AssistantMessage(answer)],
    }


def request_attributes(config: AgentConfig, context: ToolContext, request: ChatRequest, box: Toolbox) -> dict[str, Any]:
    """Return the attributes of a model request."""
    contents = {
        INPUT_MESSAGES: partial(hide_secrets, request.messages, box),
        TOOL_DEFINITIONS: lambda: request.specifications,
    }
    return _shared_attributes(config, context) | contents


def model_attributes(config: AgentConfig) -> dict[str, Any]:
    """Return the attributes of a model: its name and its provider."""
    from toolsemble._vocabulary.provider_list import PROVIDERS

    attributes, module = {"gen_ai.request.model": config.model_name}, type(config.model).__module__
    names = [each.otel_name for each in PROVIDERS.values() if each.otel_name and each.model_module == module]
    return attributes | {"gen_ai.provider.name": names[0]} if names else attributes


def _shared_attributes(config: AgentConfig, context: ToolContext) -> dict[str, Any]:
    """Return the ids of a run, and the attributes of its model."""
    attributes = {"toolsemble.run.id": context.run_id, **model_attributes(config)}
    if context.memory_id != ToolContext.memory_id:
        attributes["gen_ai.conversation.id"] = context.memory_id
    return attributes


def reply_attributes(reply: ChatReply, box: Toolbox | None = None) -> dict[str, Any]:
    """Return the attributes of a reply.

    >>> reply_attributes(ChatReply("Rome"))["gen_ai.response.finish_reasons"]
    ('stop',)
    """
    used = reply.usage
    details = {"reasoning_tokens": used.reasoning, "cache_write_tokens": used.cache_write}
    usage = Usage(used.input, used.output, used.cached, **details)
    messages = partial(hide_secrets, [AssistantMessage(reply.text, reply.calls)], box)
    reason = _FINISH_REASONS.get(reply.stop_reason, reply.stop_reason)
    attributes = {"gen_ai.response.finish_reasons": (reason,), OUTPUT_MESSAGES: messages}
    return attributes | usage_attributes(usage)


def usage_attributes(usage: Usage) -> dict[str, Any]:
    """Return the token usage attributes.

    >>> usage_attributes(Usage(input_tokens=100))["gen_ai.usage.input_tokens"]
    100
    """
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }


def show_arguments(call: ToolCall, box: Toolbox) -> dict[str, Any] | None:
    """Return the arguments of a model's call for display; None: as requested.

    >>> show_arguments(ToolCall("now"), Toolbox([])) is None
    True
    """
    return None if call.name == FINAL_ANSWER else box.show_arguments(call)


def hide_secrets(messages: Iterable[Message], box: Toolbox | None) -> tuple[Message, ...]:
    """Return messages with secrets in calls masked; calls of unknown tools lose their arguments.

    >>> hide_secrets([AssistantMessage("", (ToolCall("login", {"password": "hunter2"}),))], None)[0].calls[0].arguments
    {}
    """
    return tuple(_hide_arguments(each, box) for each in messages)


class ArgumentsMarker:
    """Marks the argument deltas of a streamed reply that may contain secrets.

    >>> marker = ArgumentsMarker(Toolbox([]))
    >>> marker.mark(CallDelta(0, "now")).name, marker.mark(ArgumentsDelta(0, "{}")).secret
    ('now', False)
    """

    def __init__(self, box: Toolbox) -> None:
        self._box = box
        self._harmless: set[int] = set()

    def mark(self, chunk: Chunk) -> Chunk:
        """Return a delta of a reply, marked if it may contain a secret."""
        if isinstance(chunk, CallDelta):
            self._harmless.discard(chunk.index)
            if chunk.name == FINAL_ANSWER or not self._box.has_secrets(chunk.name):
                self._harmless.add(chunk.index)
        elif isinstance(chunk, ArgumentsDelta) and chunk.index not in self._harmless:
            return ArgumentsDelta(chunk.index, chunk.text, secret=True)
        return chunk


def _hide_arguments(message: Message, box: Toolbox | None) -> Message:
    if isinstance(message, AssistantMessage) and message.calls:
        return AssistantMessage(message.text, tuple(_hide_in_call(call, box) for call in message.calls))
    if isinstance(message, ToolMessage):
        return ToolMessage(replace(message.reply, call=_hide_in_call(message.call, box)))
    return message


def _hide_in_call(call: ToolCall, box: Toolbox | None) -> ToolCall:
    if call.name == FINAL_ANSWER:
        return call
    # An earlier toolbox may have had a tool that this one lacks.
    arguments = {} if box is None or call.name not in box else show_arguments(call, box)
    return call if arguments is None else received_call(call.name, arguments, call.id)
