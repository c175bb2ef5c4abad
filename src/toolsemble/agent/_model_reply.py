"""Replies of the model: asked for within the budgets of the run, recorded in its journal, and replayed from there."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

from toolsemble._runtime.lazy import LazyModule
from toolsemble._runtime.observers.sinks import Sinks
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble.agent._admission import Admission, check_outer
from toolsemble.agent._answers import no_answer_error
from toolsemble.agent._ask import OutOfTimeError, ask_model, wait_until
from toolsemble.agent._channel import Channel
from toolsemble.agent._event import ModelRetried
from toolsemble.agent._history import process_history
from toolsemble.agent._instructions import write_instructions
from toolsemble.agent._otel import reply_attributes, request_attributes
from toolsemble.agent._run_events import emit_reply, emit_retry
from toolsemble.agent._settings import AgentConfig
from toolsemble.agent._state import RunState
from toolsemble.models._chat import ChatReply, ChatRequest, ToolChoice
from toolsemble.models._message import Message

if TYPE_CHECKING:
    from toolsemble.agent import _durable_run as durable
else:  # most runs have no journal
    durable = LazyModule("toolsemble.agent._durable_run")


class ModelReplies:
    """The replies of the model of one run."""

    def __init__(self, config: AgentConfig, state: RunState, channel: Channel | None, *, streaming: bool) -> None:
        self._config = config
        self._state = state
        self._channel = channel
        self._stream_channel = channel if streaming else None
        self._is_plain = not (config.is_dynamic or config.history_processors)
        self._marked_box: Toolbox | None = None
        self._agent_mark = ""
        self._streamed: list[str] = []  # the text of the latest reply

    def mark(self, box: Toolbox) -> str:
        """Return the digest of the agent of this turn, for the journal."""
        if box is not self._marked_box:
            self._marked_box, self._agent_mark = box, durable.mark_agent(self._config, box)
        return self._agent_mark

    def replay(self, recorded: Any) -> ChatReply:
        """Return a recorded reply of the model, and count it."""
        reply, seconds = durable.read_reply(recorded), recorded["seconds"]
        self._state.spending.add_reply(reply.usage, seconds)
        self._state.add_trace("model", self._config.model_name, time.monotonic(), seconds, reply.stop_reason)
        return reply

    async def ask(self, box: Toolbox) -> ChatReply | None:
        """Return the model's reply; None if the time was up, and the model is to be asked for a final answer."""
        state, started, deadline = self._state, time.monotonic(), self._state.deadline
        try:
            asking = self._reply_to(box, state.window()) if self._is_plain else self._reply_to_processed(box)
            answer = asking if deadline is None else wait_until(asking, deadline)
            if not state.is_timed:
                return await answer
            with state.spending.clock.working():  # a call beside that of this agent may wait for a person
                return await answer
        except OutOfTimeError:
            is_last = state.stop is not None
            self._out_of_time(started)
            check_outer(state.spending.outer)
            if is_last:
                raise no_answer_error(self._state) from None
            return None

    async def _reply_to_processed(self, box: Toolbox) -> ChatReply:
        """Return the model's reply to what the functions for instructions and history make of the conversation."""
        return await self._reply_to(box, await self._messages())

    async def _messages(self) -> Sequence[Message]:
        """Return the messages to send, after the functions for instructions and history were called."""
        config, state = self._config, self._state
        with state.enter():
            if config.is_dynamic:
                state.set_instructions(await write_instructions(config.instructions, state.view))
            return await process_history(config.history_processors, state.window(), state.view)

    def _reply_to(self, box: Toolbox, messages: Sequence[Message]) -> Awaitable[ChatReply]:
        """Return the model's reply to messages, after admission by the enclosing runs, if there are any."""
        request = self._request(box, messages)
        return (self._ask_when_admitted if self._state.spending.outer else self._ask_and_count)(request, box)

    async def _ask_when_admitted(self, request: ChatRequest, box: Toolbox) -> ChatReply:
        """Return the model's reply; count it before other requests start."""
        async with Admission(self._state.spending, request):
            return await self._ask_and_count(request, box)

    def _request(self, box: Toolbox, messages: Sequence[Message]) -> ChatRequest:
        config, is_open = self._config, self._state.stop is None
        specifications = box.specifications
        if config.output is None or config.native_output:
            schema = None if config.output is None else config.output.schema
            choice: ToolChoice = "auto" if is_open else "none"
            return ChatRequest(messages, specifications, choice, schema, config.settings, config.reasoning)
        # The tool for the answer stays when the others are removed: without it the model could not answer.
        offered = [*(specifications if is_open else ()), config.output.specification]
        return ChatRequest(messages, offered, "required", None, config.settings, config.reasoning)

    async def _ask_and_count(self, request: ChatRequest, box: Toolbox) -> ChatReply:
        started = time.monotonic()
        reply = await self._ask(request, box)
        seconds = time.monotonic() - started
        if (turn := self._state.turn_place) is not None:
            await durable.record_reply(turn, reply, seconds, self._state.stop, self.mark(box))
        self._state.spending.add_reply(reply.usage, seconds)
        self._state.add_trace("model", self._config.model_name, started, seconds, reply.stop_reason)
        emit_reply(self._config, self._state, box, reply, seconds)
        return reply

    def _ask(self, request: ChatRequest, box: Toolbox) -> Awaitable[ChatReply]:
        """Return the model's reply, for which the sinks are told if there are any."""
        config, deadline, channel = self._config, self._state.deadline, self._stream_channel
        asking = ask_model(config.model, request, config.retry, channel, self._on_retry, deadline, self._streamed, box)
        return asking if config.sinks is None else self._observe(config.sinks, asking, request, box)

    async def _observe(
        self, sinks: Sinks, asking: Awaitable[ChatReply], request: ChatRequest, box: Toolbox
    ) -> ChatReply:
        asked = request_attributes(self._config, self._state.context, request, box)
        with sinks.enter("chat", asked) as attributes:
            reply = await asking
            attributes.update(reply_attributes(reply, box))
        return reply

    def _out_of_time(self, started: float) -> None:
        """Record that the model was cancelled; what it had sent so far is discarded."""
        state, seconds = self._state, time.monotonic() - started
        state.spending.model_seconds += seconds
        state.add_trace("model", self._config.model_name, started, seconds, "out of time")
        if state.stop is not None:
            return
        stop = state.spending.out_of_time()
        state.set_stop(stop)
        if self._channel is not None:
            self._channel.send(ModelRetried(f"{stop.summary} reached", 0.0, "".join(self._streamed)))

    def _on_retry(self, event: ModelRetried) -> None:
        self._state.add_trace("retry", self._config.model_name, time.monotonic(), event.seconds, event.reason)
        emit_retry(self._state, event)
        if self._channel is not None:
            self._channel.send(event)
