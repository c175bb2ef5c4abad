"""Model replies: requested within the budgets, recorded or replayed, and parsed as an answer or as calls."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from toolsemble._engine.definition import ReturnBehavior
from toolsemble._runtime.lazy import LazyModule
from toolsemble._runtime.sinks import Sinks
from toolsemble._runtime.text import describe_error, escape_surrogates
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolCall, new_id, received_call
from toolsemble._vocabulary.errors import BudgetExceededError, ModelError, ToolArgumentsError
from toolsemble._vocabulary.result import ToolResult
from toolsemble.agent._conversation import write_instructions
from toolsemble.agent._event import Channel, ModelRetried
from toolsemble.agent._history_processors import process_history
from toolsemble.agent._options import Retry
from toolsemble.agent._output import FINAL_ANSWER, Output
from toolsemble.agent._result import AgentResult, ToolCallRecord
from toolsemble.agent._run.events import ArgumentsMarker, RunEvents, reply_attributes, request_attributes
from toolsemble.agent._run.spending import Admission, check_outer
from toolsemble.agent._run.state import RunState
from toolsemble.agent._settings import AgentConfig
from toolsemble.models import _chat as chat
from toolsemble.models._message import Message

if TYPE_CHECKING:
    from toolsemble.agent._run import journal_format
else:  # most runs have no journal
    journal_format = LazyModule("toolsemble.agent._run.journal_format")


LOGGER = logging.getLogger("toolsemble.agent")
LOGGER.addHandler(logging.NullHandler())  # a program without logging prints nothing

T = TypeVar("T")


class OutOfTimeError(Exception):
    """The run's time was up before the model answered.

    >>> raise OutOfTimeError
    Traceback (most recent call last):
    ...
    toolsemble.agent._run.model_reply.OutOfTimeError
    """


async def wait_until(work: Awaitable[T], deadline: float | None) -> T:
    """Return the result of an awaitable, or raise :class:`OutOfTimeError` at the deadline.

    :param deadline: a ``time.monotonic`` time; None: no deadline
    """
    if deadline is None:
        return await work
    try:
        async with asyncio.timeout(deadline - time.monotonic()) as limit:
            return await work
    except Exception as error:
        # A model may turn the cancellation into its own exception; an exception before the deadline is its own failure.
        if limit.expired():
            raise OutOfTimeError from error
        raise


async def ask_model(
    model: chat.ChatModel,
    request: chat.ChatRequest,
    retry: Retry,
    stream: Channel | None,
    on_retry: Callable[[ModelRetried], None],
    deadline: float | None,
    streamed: list[str],
    box: Toolbox,
) -> chat.ChatReply:
    """Request a reply from the model; retry retryable failures.

    :param stream: receives the deltas of the reply; None: the model is not asked to stream
    :param on_retry: called before each retry, and when the model itself starts over
    :param deadline: no retry starts after it
    :param streamed: holds the text that the latest attempt has streamed
    :param box: the tools of the turn
    """
    tried = 0
    while True:
        streamed.clear()
        try:
            if stream is None:
                asking = model.reply(request)
            else:
                asking = _stream(model, request, stream, on_retry, streamed, box)
            return _check_reply(await asking)
        except Exception as error:
            pause = retry.pause(error, tried)
            if pause is None or (deadline is not None and time.monotonic() + pause > deadline):
                raise
            tried += 1
            event = ModelRetried(describe_error(error), pause, "".join(streamed))
        LOGGER.warning("The model failed (%s); retry %d in %.1f s", event.reason, tried, event.seconds)
        on_retry(event)
        await asyncio.sleep(event.seconds)


async def _stream(
    model: chat.ChatModel,
    request: chat.ChatRequest,
    stream: Channel,
    on_retry: Callable[[ModelRetried], None],
    streamed: list[str],
    box: Toolbox,
) -> chat.ChatReply:
    assembly, marker = chat.Assembly(getattr(model, "max_reply", chat.MAX_REPLY)), ArgumentsMarker(box)
    async with chat.closing(model.stream(replace(request, can_restart=True))) as chunks:
        async for chunk in chunks:
            assembly.add(chunk)
            if isinstance(chunk, chat.TextDelta):
                streamed.append(chunk.text)
            if isinstance(chunk, chat.StreamRestart):
                on_retry(ModelRetried(chunk.reason, 0.0, "".join(streamed)))
                streamed.clear()
                marker = ArgumentsMarker(box)
            elif not isinstance(chunk, chat.StreamEnd):
                stream.send(marker.mark(chunk))
                await stream.wait_ready()
    return assembly.reply()


def _check_reply(reply: Any) -> chat.ChatReply:
    """Return the reply with portable texts and unique call ids; raise if it is not valid."""
    if not (isinstance(reply, chat.ChatReply) and _has_valid_parts(reply.text, reply.calls)):
        raise TypeError(f"The model returned {reply!r:.80} instead of a ChatReply with a text and a tuple of ToolCalls")
    if not _is_usage(reply.usage):
        raise TypeError(
            f"The model returned {reply.usage!r:.80} as the usage of its reply; it must be a TokenUsage of ints >= 0, "
            "or left out"
        )
    text, calls = escape_surrogates(reply.text), tuple([_sendable_call(call) for call in reply.calls])
    if len(calls) > 1 and len({call.id for call in calls}) < len(calls):
        calls = _make_ids_unique(calls)
    if text is reply.text and calls == reply.calls:
        return reply
    return replace(reply, text=text, calls=calls)


def _has_valid_parts(text: Any, calls: Any) -> bool:
    """Return whether the parts of a reply have the right types: a custom model may return anything."""
    if not isinstance(text, str) or not isinstance(calls, (tuple, list)):
        return False
    return all(isinstance(call, ToolCall) for call in calls)


def _is_usage(usage: Any) -> bool:
    if not isinstance(usage, chat.TokenUsage):
        return False
    counts = (usage.input, usage.output, usage.cached, usage.reasoning, usage.cache_write)
    return set(map(type, counts)) == {int} and min(counts) >= 0


def _sendable_call(call: ToolCall) -> ToolCall:
    name, arguments = call.name, call.json
    if name.isascii() and arguments.isascii():
        return call
    sent = escape_surrogates(name), escape_surrogates(arguments)
    return call if sent == (name, arguments) else received_call(*sent, call.id)


def _make_ids_unique(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """Return the calls with new ids for duplicates, because providers reject duplicate ids."""
    seen: set[str] = set()
    unique: list[ToolCall] = []
    for call in calls:
        twice = call.id is not None and call.id in seen
        unique.append(received_call(call.name, call.json, new_id()) if twice else call)
        seen.update([call.id] if call.id is not None else [])
    return tuple(unique)


class FinalAnswer(NamedTuple):
    """An answer through the final-answer tool: its value, or its problem."""

    text: str = ""
    output: Any = None
    problem: ToolArgumentsError | None = None


def read_final_answer(
    output: Output, calls: Sequence[ToolCall], reply: Callable[[int, ToolResult], object]
) -> FinalAnswer | None:
    """Return the first valid final-answer call, or the last invalid one; None if there is none.

    :param reply: called with the index of each call of that tool, and the reply to it

    >>> read_final_answer(Output(int), [ToolCall("now")], print) is None
    True
    """
    answer: FinalAnswer | None = None
    for index, call in enumerate(calls):
        if call.name != FINAL_ANSWER:
            continue
        if answer is not None and answer.problem is None:
            reply(index, ToolResult.failure("An answer was already accepted"))
            continue
        try:
            value = output.read(call.json)
            answer = FinalAnswer(output.text(call.json, value), value)
            reply(index, ToolResult.success("Answer accepted"))
        except ToolArgumentsError as problem:
            answer = FinalAnswer(problem=problem)
            reply(index, ToolResult.failure(describe_error(problem)))
    return answer


_EMPTY_ANSWER = "Your answer was empty. Answer in words, or call a tool."
_IMMEDIATE = {ReturnBehavior.IMMEDIATE, ReturnBehavior.IMMEDIATE_IF_LAST}


class Answers:
    """The answers of a run, and the counts of empty and invalid ones."""

    def __init__(self, config: AgentConfig, state: RunState, invalid: int) -> None:
        self.invalid = invalid
        """The number of answers that did not fit the output type."""
        self._config = config
        self._state = state
        self._empty = 0

    def read(self, reply: chat.ChatReply) -> AgentResult | None:
        """Return the result of a text answer; None if the model is asked for another one."""
        if not reply.text.strip() and (self._state.stop is not None or self._config.output is None):
            self._retry_empty()
            return None
        try:
            return self._make_result(reply.text)
        except ToolArgumentsError as problem:
            self.count_invalid(problem)
            self._state.add_correction(f"{describe_error(problem)}. Give the whole answer again.")
            return None

    def forget_empty(self) -> None:
        """Reset the count of empty answers, after the model has called a tool."""
        self._empty = 0

    def _retry_empty(self) -> None:
        """Ask the model again after an empty answer; raise if the second one is empty, too."""
        if self._state.stop is not None:
            raise no_answer_error(self._state)
        self._empty += 1
        if self._empty > 1:
            raise ModelError("The model returned an empty answer twice")
        self._state.add_correction(_EMPTY_ANSWER)

    def read_beside_calls(self, reply: chat.ChatReply) -> AgentResult:
        """Return the text beside calls that no longer run as the result."""
        if not reply.text.strip():
            raise no_answer_error(self._state)
        try:
            return self._make_result(reply.text)
        except ToolArgumentsError as problem:
            raise no_answer_error(self._state) from problem

    def read_immediate(self, box: Toolbox, made: list[ToolCallRecord]) -> AgentResult | None:
        """Return the result of the last call, if it is for the caller and not for the model."""
        if box.return_behavior(made[-1].call.name) is ReturnBehavior.TO_LLM:
            return None
        if self._state.stop is not None or any(record.reply.is_error for record in made):
            return None
        behaviors = [box.return_behavior(record.call.name) for record in made]
        if behaviors[-1] is not ReturnBehavior.IMMEDIATE_IF_LAST and not _IMMEDIATE.issuperset(behaviors):
            return None
        result = made[-1].reply.result
        if self._config.output is None:
            output = result.text if result.structured_output is None else result.structured_output
        else:
            try:
                output = self._config.output.read_result(result)
            except ToolArgumentsError:
                return None  # it is not of the output type, so the model has to convert it
        return self._state.result("immediate", result.text, output)

    def _make_result(self, text: str) -> AgentResult:
        """Return a text answer as the result, or raise :class:`ToolArgumentsError` if it is not valid."""
        stop, output = self._state.stop, self._config.output
        reason = "answer" if stop is None else stop.name
        if output is None:
            return self._state.result(reason, text, text)
        answer = output.read_text(text)
        return self._state.result(reason, output.text(text, answer), answer)

    def count_invalid(self, problem: ToolArgumentsError) -> None:
        """Count an invalid answer; raise :class:`ToolArgumentsError` if the model has no retries left."""
        self.invalid += 1
        if self.invalid > self._config.limits.output_retries:
            times = "once" if self.invalid == 1 else f"{self.invalid} times"
            raise ToolArgumentsError(f"The answer did not fit {times}: {describe_error(problem)}")

    def is_final(self, call: ToolCall) -> bool:
        """Return whether a call is the answer, not a tool call."""
        return self._config.output is not None and call.name == FINAL_ANSWER


def no_answer_error(state: RunState) -> BudgetExceededError:
    """Return the error of a run whose budget is used up, and whose model returned no final answer."""
    stop = state.stop
    assert stop is not None  # noqa: S101 - only called when a budget is used up
    return BudgetExceededError(f"{stop.summary} reached, and the model returned no final answer")


class ModelReplies:
    """The model replies of one run."""

    def __init__(self, config: AgentConfig, state: RunState, events: RunEvents) -> None:
        self._config = config
        self._state = state
        self._events = events
        self._pieces = events.stream if events.shows_pieces else None
        self._is_plain = not (config.is_dynamic or config.history_processors)
        self._marked_box: Toolbox | None = None
        self._agent_mark = ""
        self._streamed: list[str] = []  # the text of the latest reply

    def mark(self, box: Toolbox) -> str:
        """Return the agent's digest for this turn, for the journal."""
        if box is not self._marked_box:
            self._marked_box, self._agent_mark = box, journal_format.mark_agent(self._config, box)
        return self._agent_mark

    def replay(self, data: Any) -> chat.ChatReply:
        """Return a recorded model reply, and count it."""
        reply, seconds = journal_format.read_reply(data), data["seconds"]
        self._state.spending.add_reply(reply.usage, seconds)
        self._state.add_trace("model", self._config.model_name, time.monotonic(), seconds, reply.stop_reason)
        return reply

    async def ask(self, box: Toolbox) -> chat.ChatReply | None:
        """Return the model's reply; None if the time is up, and a final answer is to be requested."""
        state, started, deadline = self._state, time.monotonic(), self._state.deadline
        try:
            asking = self._reply_to(box, state.window()) if self._is_plain else self._reply_to_processed(box)
            answer = asking if deadline is None else wait_until(asking, deadline)
            if not state.is_timed:
                return await answer
            with state.spending.clock.working():  # a parallel call may wait for a person
                return await answer
        except OutOfTimeError:
            is_last = state.stop is not None
            self._out_of_time(started)
            check_outer(state.spending.outer)
            if is_last:
                raise no_answer_error(self._state) from None
            return None

    async def _reply_to_processed(self, box: Toolbox) -> chat.ChatReply:
        """Return the model's reply to the conversation, after the instruction functions and history processors."""
        return await self._reply_to(box, await self._messages())

    async def _messages(self) -> Sequence[Message]:
        """Call the instruction functions and history processors, and return the messages to send."""
        config, state = self._config, self._state
        with state.enter():
            if config.is_dynamic:
                state.set_instructions(await write_instructions(config.instructions, state.view))
            return await process_history(config.history_processors, state.window(), state.view)

    def _reply_to(self, box: Toolbox, messages: Sequence[Message]) -> Awaitable[chat.ChatReply]:
        """Return the model's reply to messages, after admission by the enclosing runs, if any."""
        request = self._request(box, messages)
        return (self._ask_when_admitted if self._state.spending.outer else self._ask_and_count)(request, box)

    async def _ask_when_admitted(self, request: chat.ChatRequest, box: Toolbox) -> chat.ChatReply:
        """Return the model's reply; count it before other requests start."""
        async with Admission(self._state.spending, request):
            return await self._ask_and_count(request, box)

    def _request(self, box: Toolbox, messages: Sequence[Message]) -> chat.ChatRequest:
        config, is_open = self._config, self._state.stop is None
        specifications = box.specifications
        if config.output is None or config.native_output:
            schema = None if config.output is None else config.output.schema
            choice: chat.ToolChoice = "auto" if is_open else "none"
            return chat.ChatRequest(messages, specifications, choice, schema, config.settings, config.reasoning)
        # The final-answer tool stays when the others are removed: without it the model could not answer.
        offered = [*(specifications if is_open else ()), config.output.specification]
        return chat.ChatRequest(messages, offered, "required", None, config.settings, config.reasoning)

    async def _ask_and_count(self, request: chat.ChatRequest, box: Toolbox) -> chat.ChatReply:
        started = time.monotonic()
        reply = await self._ask(request, box)
        seconds = time.monotonic() - started
        if (turn := self._state.turn_place) is not None:
            await journal_format.record_reply(turn, reply, seconds, self._state.stop, self.mark(box))
        self._state.spending.add_reply(reply.usage, seconds)
        self._state.add_trace("model", self._config.model_name, started, seconds, reply.stop_reason)
        self._events.reply(box, reply, seconds)
        return reply

    def _ask(self, request: chat.ChatRequest, box: Toolbox) -> Awaitable[chat.ChatReply]:
        """Return the model's reply; notify the sinks, if any."""
        config, deadline, pieces = self._config, self._state.deadline, self._pieces
        asking = ask_model(config.model, request, config.retry, pieces, self._on_retry, deadline, self._streamed, box)
        return asking if config.sinks is None else self._observe(config.sinks, asking, request, box)

    async def _observe(
        self, sinks: Sinks, asking: Awaitable[chat.ChatReply], request: chat.ChatRequest, box: Toolbox
    ) -> chat.ChatReply:
        asked = request_attributes(self._config, self._state.context, request, box)
        with sinks.enter("chat", asked) as attributes:
            reply = await asking
            attributes.update(reply_attributes(reply, box))
        return reply

    def _out_of_time(self, started: float) -> None:
        """Record that the model request was cancelled; the streamed text is discarded."""
        state, seconds = self._state, time.monotonic() - started
        state.spending.model_seconds += seconds
        state.add_trace("model", self._config.model_name, started, seconds, "out of time")
        if state.stop is not None:
            return
        stop = state.spending.out_of_time()
        state.set_stop(stop)
        self._events.show(ModelRetried(f"{stop.summary} reached", 0.0, "".join(self._streamed)))

    def _on_retry(self, event: ModelRetried) -> None:
        self._state.add_trace("retry", self._config.model_name, time.monotonic(), event.seconds, event.reason)
        self._events.retry(event)
