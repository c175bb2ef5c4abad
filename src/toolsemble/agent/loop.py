"""The agent loop: ask the model, run the calls it requests, send it the results, until it answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from toolsemble.agent.admission import Admission, OuterBudgetError, check_outer
from toolsemble.agent.ask import OutOfTimeError, ask_model, wait_until
from toolsemble.agent.budget import StopReason
from toolsemble.agent.channel import Channel
from toolsemble.agent.event import Final, ModelRetried, TurnEnded
from toolsemble.agent.execution import Execution
from toolsemble.agent.final_answer import FinalAnswer, read_final_answer
from toolsemble.agent.history import process_history
from toolsemble.agent.instructions import write_instructions
from toolsemble.agent.loop_detector import LoopDetector
from toolsemble.agent.otel import (
    conversation_attributes,
    reply_attributes,
    request_attributes,
    run_attributes,
    usage_attributes,
)
from toolsemble.agent.output import FINAL_ANSWER
from toolsemble.agent.result import AgentResult, ToolCallRecord
from toolsemble.agent.run_events import emit_end, emit_reply, emit_retry, emit_start
from toolsemble.agent.settings import AgentConfig, ToolSource
from toolsemble.agent.state import RunState
from toolsemble.call import ToolCall
from toolsemble.definition.definition import ReturnBehavior
from toolsemble.errors import (
    AgentExecutionError,
    CallPausedError,
    ExitEarlyError,
    MaxIterationsExceededError,
    ModelError,
    RunInterruptedError,
    ToolArgumentsError,
    ToolConfigurationError,
)
from toolsemble.models.chat import ChatReply, ChatRequest, ToolChoice
from toolsemble.models.message import AssistantMessage, Message, ToolMessage
from toolsemble.place import Place
from toolsemble.runtime.lazy import LazyModule
from toolsemble.runtime.text import describe_error
from toolsemble.toolbox.reviewer_check import check_pauses, check_reviewer
from toolsemble.toolbox.toolbox import Toolbox

if TYPE_CHECKING:
    from toolsemble.agent import durable_run as durable
    from toolsemble.agent.durable_run import DurableRun
    from toolsemble.agent.resume import Resumption
else:  # most runs have no journal
    durable = LazyModule("toolsemble.agent.durable_run")

_EMPTY_ANSWER = "Your answer was empty. Answer in words, or call a tool."
_IMMEDIATE = {ReturnBehavior.IMMEDIATE, ReturnBehavior.IMMEDIATE_IF_LAST}


class Loop:
    """One run of an agent, from the first message to the result."""

    def __init__(
        self,
        config: AgentConfig,
        state: RunState,
        channel: Channel | None = None,
        *,
        streaming: bool = False,
        resumption: Resumption | None = None,
        durable: DurableRun | None = None,
    ) -> None:
        self._durable = durable
        self._recorded: Any = None  # the reply of the current turn, as a journal has it
        self._config = config
        self._state = state
        self._channel = channel
        self._stream_channel = channel if streaming else None
        self._tool_source = ToolSource(config)
        self._checked_box: Toolbox | None = None
        self._marked_box: Toolbox | None = None
        self._agent_mark = ""
        self._is_plain = not (config.is_dynamic or config.history_processors)
        self._detector = None if config.loop_guard is None else LoopDetector(config.loop_guard)
        self._resumption = resumption
        self._invalid_answers = 0 if resumption is None else resumption.paused.invalid_answers
        self._empty_answers = 0
        self._streamed: list[str] = []  # the text of the latest reply

    def partial(self) -> AgentResult:
        """Return the work so far of a run that was cancelled."""
        return self._state.result("cancelled")

    async def run_as_event(self) -> Final:
        """Run until there is an answer; return it as the last event."""
        return Final(await self.run())

    async def run(self) -> AgentResult:
        """Run until there is an answer, or return a recorded one; every exception carries the work so far."""
        return await (self._run_observed() if self._durable is None else self._durable.drive(self._run_journaled))

    async def _run_journaled(self, place: Place, earlier: float) -> AgentResult:
        self._state.enter_journal(place, earlier, is_new=place.run.is_new)
        return await self._run_observed()

    async def _run_observed(self) -> AgentResult:
        """Run until there is an answer, and tell the sinks."""
        sinks, state = self._config.sinks, self._state
        if sinks is None:
            return await emit_end(state, self._run())
        with sinks.enter("invoke_agent", run_attributes(self._config, state.context)) as attributes:
            messages, answer = state.messages, ""
            try:
                result = await sinks.ado(emit_end(state, self._run()))
                answer = result.text
            finally:
                attributes.update(usage_attributes(state.spending.usage()))
                attributes.update(conversation_attributes(self._config, messages, answer))
        return result

    async def _run(self) -> AgentResult:
        state = self._state
        try:
            state.spending.check_depth()
            await state.begin()
            emit_start(self._config, state)
            result = None if self._resumption is None else await self._resume(self._resumption)
            while result is None:
                result = await self._turn()
            return result  # noqa: TRY300 - the end of the run, of which every exception is handled here
        except (ExitEarlyError, ToolConfigurationError) as error:
            error.partial = state.result(self._find_reason(error))
            raise
        except OuterBudgetError as used_up:
            state.set_stop(used_up.stop)
            raise MaxIterationsExceededError(
                f"{used_up} reached in the enclosing run, so this agent's model is not called",
                partial=state.result(used_up.stop.name),
            ) from None
        except MaxIterationsExceededError as error:
            error.partial = state.result("error" if state.stop is None else state.stop.name)
            raise
        except Exception as error:
            raise AgentExecutionError(describe_error(error), partial=state.result("error")) from error
        except BaseException as error:
            with suppress(Exception):  # a foreign exception may not accept attributes; it is raised all the same
                error.partial = state.result("cancelled")  # type: ignore[attr-defined]  # any exception may come here
            raise
        finally:
            self._note_usage()
            state.end()

    def _find_reason(self, error: ExitEarlyError | ToolConfigurationError) -> StopReason:
        """Return why a run has ended with one of the errors that are raised as they are."""
        if isinstance(error, ExitEarlyError):
            return "exit_early"
        is_journaled = self._state.context.place is not None  # it continues elsewhere, or later
        is_paused = is_journaled and isinstance(error, (CallPausedError, RunInterruptedError))
        return "paused" if is_paused else "configuration_error"

    def _note_usage(self) -> None:
        """Keep what an agent inside of a journaled call has spent, for the record of that call."""
        place = self._state.context.place
        if place is not None and place.path:
            place.run.note_usage(place.path, astuple(self._state.spending.usage()))

    @property
    def _place(self) -> Place | None:
        """The place of the current turn in a journal; None: it is not recorded."""
        place = self._state.context.place
        return None if place is None else place.turn(self._state.spending.turns + 1)

    async def _turn(self) -> AgentResult | None:
        """Get one reply of the model, and run its calls; return None if the model has to continue."""
        state = self._state
        if self._channel is not None:
            await self._channel.wait_ready()
        check_outer(state.spending.outer)
        turn = self._place
        if turn is not None:
            turn.run.check()
            self._recorded = turn.run.find_reply(turn.path)
        box = await self._find_box()
        if turn is not None and self._recorded is not None:
            turn.run.check_agent(turn.path, self._recorded["agent"], self._mark(box))
            state.set_stop(durable.read_stop(self._recorded))
            reply: ChatReply | None = self._replay(self._recorded)
        else:
            state.set_stop(state.spending.find_exhausted())
            reply = await self._reply(box)
        if reply is None:
            return None
        return await (self._act(reply, box, turn) if reply.calls else self._answer(reply))

    def _mark(self, box: Toolbox) -> str:
        """Return the digest of the agent of this turn, for the journal."""
        if box is not self._marked_box:
            self._marked_box, self._agent_mark = box, durable.mark_agent(self._config, box)
        return self._agent_mark

    def _replay(self, recorded: Any) -> ChatReply:
        """Return a recorded reply of the model, and count it."""
        reply, seconds = durable.read_reply(recorded), recorded["seconds"]
        self._state.spending.add_reply(reply.usage, seconds)
        self._state.add_trace("model", self._config.model_name, time.monotonic(), seconds, reply.stop_reason)
        return reply

    async def _find_box(self) -> Toolbox:
        """Return the tools of the next turn, checked if they are new."""
        state = self._state
        box = await self._tool_source.box(state.view)
        if box is not self._checked_box:
            self._checked_box = box
            check_reviewer(box, state.context)
            check_pauses(box, state.context, nested=not state.can_pause)
            if box is not self._config.tools:
                state.check_needs(box.find_needs())
        return box

    async def _messages(self) -> Sequence[Message]:
        """Return the messages to send, after the functions for instructions and history were called."""
        config, state = self._config, self._state
        with state.enter():
            if config.is_dynamic:
                state.set_instructions(await write_instructions(config.instructions, state.view))
            return await process_history(config.history_processors, state.window(), state.view)

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

    async def _reply(self, box: Toolbox) -> ChatReply | None:
        """Return the model's reply; None if the time was up, and the model is to be asked for a final answer."""
        state, started = self._state, time.monotonic()
        try:
            asking = self._reply_when_admitted(box) if self._is_plain else self._reply_to_processed(box)
            return await wait_until(asking, state.deadline)
        except OutOfTimeError:
            is_last = state.stop is not None
            self._out_of_time(started)
            check_outer(state.spending.outer)
            if is_last:
                raise self._no_answer_error() from None
            return None

    async def _reply_to_processed(self, box: Toolbox) -> ChatReply:
        """Return the model's reply to what the functions for instructions and history make of the conversation."""
        return await self._reply_when_admitted(box, await self._messages())

    async def _reply_when_admitted(self, box: Toolbox, messages: Sequence[Message] | None = None) -> ChatReply:
        """Return the model's reply, after admission by the enclosing runs; count it before other requests start."""
        spending = self._state.spending
        request = self._request(box, self._state.window() if messages is None else messages)
        if not spending.outer:
            return await self._ask_and_count(request, box)
        async with Admission(spending, request):
            return await self._ask_and_count(request, box)

    async def _ask_and_count(self, request: ChatRequest, box: Toolbox) -> ChatReply:
        started = time.monotonic()
        reply = await self._ask(request, box)
        seconds = time.monotonic() - started
        if (turn := self._place) is not None:
            await durable.record_reply(turn, reply, seconds, self._state.stop, self._mark(box))
        self._state.spending.add_reply(reply.usage, seconds)
        self._state.add_trace("model", self._config.model_name, started, seconds, reply.stop_reason)
        emit_reply(self._config, self._state, box, reply, seconds)
        return reply

    async def _ask(self, request: ChatRequest, box: Toolbox) -> ChatReply:
        config = self._config
        deadline, channel = self._state.deadline, self._stream_channel
        asking = ask_model(config.model, request, config.retry, channel, self._on_retry, deadline, self._streamed, box)
        if config.sinks is None:
            return await asking
        with config.sinks.enter("chat", request_attributes(config, self._state.context, request, box)) as attributes:
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

    async def _answer(self, reply: ChatReply) -> AgentResult | None:
        """Return the result of an answer in text; None if it is not valid."""
        state, message = self._state, AssistantMessage(reply.text, (), reply.details)
        # Providers refuse a conversation with an empty or blank message.
        if reply.text.strip() or reply.details:
            await state.add(message)
        self._send_turn_ended(message, ())
        if not reply.text.strip() and (state.stop is not None or self._config.output is None):
            self._retry_empty_answer()
            return None
        try:
            return self._make_result(reply.text)
        except ToolArgumentsError as problem:
            self._count_invalid_answer(problem)
            state.add_correction(f"{describe_error(problem)}. Give the whole answer again.")
            return None

    def _retry_empty_answer(self) -> None:
        """Ask the model once more after an empty answer; raise if that is empty, too."""
        if self._state.stop is not None:
            raise self._no_answer_error()
        self._empty_answers += 1
        if self._empty_answers > 1:
            raise ModelError("The model returned an empty answer twice")
        self._state.add_correction(_EMPTY_ANSWER)

    async def _act(self, reply: ChatReply, box: Toolbox, turn: Place | None) -> AgentResult | None:
        """Run the calls of a reply; return None if the model has to continue with their results."""
        state = self._state
        self._empty_answers = 0
        execution = Execution(reply.calls, box, state, self._channel, self._detector, turn)
        execution.restore_answers()
        closing = state.stop is not None  # the model calls tools although they were switched off
        output = self._config.output
        answer = None if output is None else read_final_answer(output, reply.calls, execution.answer)
        if not execution.is_recorded and (answer is None or answer.problem is not None):
            state.set_stop(state.spending.find_exhausted())
        due = self._claim(execution) if state.stop is None else []
        return await self._finish_turn(reply, box, execution, due, answer, closing=closing)

    def _claim(self, execution: Execution) -> list[int]:
        """Return the calls that may be made."""
        pending, spending = execution.pending(), self._state.spending
        due = pending[: spending.claim(len(pending))]
        if len(due) < len(pending):
            self._state.set_stop(spending.out_of_calls())
        return due

    async def _resume(self, resumption: Resumption) -> AgentResult | None:
        """Run the calls of a paused turn that were decided; return None if the model has to continue."""
        from toolsemble.agent.resume import repeat_turns  # noqa: PLC0415 - most runs are not resumed

        paused, output = resumption.paused, self._config.output
        box, message = await self._find_box(), paused.message
        if self._detector is not None:
            repeat_turns(self._detector, self._state, box)
        execution = Execution(message.calls, box, self._state, self._channel, self._detector)
        execution.restore(paused, resumption.decisions)
        answer = None if output is None else read_final_answer(output, message.calls, execution.answer)
        reply, due = ChatReply(message.text, message.calls, details=message.details), self._claim(execution)
        return await self._finish_turn(reply, resumption.decide_in(box), execution, due, answer, closing=False)

    async def _finish_turn(
        self,
        reply: ChatReply,
        box: Toolbox,
        execution: Execution,
        due: list[int],
        answer: FinalAnswer | None,
        *,
        closing: bool,
    ) -> AgentResult | None:
        """Run the calls that may be made; return None if the model has to continue with the results."""
        state = self._state
        error = await execution.run(box, due) if due else None
        execution.stop()
        if execution.waiting:
            return self._pause(reply, execution)
        made = await self._commit(reply, execution, error)
        if answer is not None and answer.problem is not None:
            self._count_invalid_answer(answer.problem)
            return None
        if answer is not None:
            return state.result(state.stop.name if closing and state.stop else "answer", *answer[:2])
        return self._result_beside_calls(reply) if closing else self._immediate_result(box, made)

    def _pause(self, reply: ChatReply, execution: Execution) -> AgentResult:
        """Return the result of a run whose calls wait for approval; the turn is not part of the conversation yet."""
        turn = execution.describe_pause(AssistantMessage(reply.text, reply.calls, reply.details))
        shown = [record for record in turn["done"] if not self._is_final_answer(record.call)]
        return self._state.pause(turn, shown, invalid_answers=self._invalid_answers)

    async def _commit(
        self, reply: ChatReply, execution: Execution, error: BaseException | None
    ) -> list[ToolCallRecord]:
        """Add the turn to the conversation as a whole; then raise what a call raised."""
        made = execution.records()
        message = AssistantMessage(reply.text, reply.calls, reply.details)
        self._state.records += [record for record in made if not self._is_final_answer(record.call)]
        try:
            await self._state.add(message, *[ToolMessage(record.reply) for record in made])
        finally:
            if error is not None:
                raise error
        self._send_turn_ended(message, made)
        return made

    def _result_beside_calls(self, reply: ChatReply) -> AgentResult:
        """Return the text beside calls that were not run any more as the result."""
        if not reply.text.strip():
            raise self._no_answer_error()
        try:
            return self._make_result(reply.text)
        except ToolArgumentsError as problem:
            raise self._no_answer_error() from problem

    def _immediate_result(self, box: Toolbox, made: list[ToolCallRecord]) -> AgentResult | None:
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
        """Return an answer in text as the result, or raise :class:`ToolArgumentsError` if it is not valid."""
        stop, output = self._state.stop, self._config.output
        reason = "answer" if stop is None else stop.name
        if output is None:
            return self._state.result(reason, text, text)
        answer = output.read_text(text)
        return self._state.result(reason, output.text(text, answer), answer)

    def _count_invalid_answer(self, problem: ToolArgumentsError) -> None:
        self._invalid_answers += 1
        if self._invalid_answers > self._config.limits.output_retries:
            times = "once" if self._invalid_answers == 1 else f"{self._invalid_answers} times"
            raise ToolArgumentsError(f"The answer did not fit {times}: {describe_error(problem)}")

    def _no_answer_error(self) -> MaxIterationsExceededError:
        stop = self._state.stop
        assert stop is not None  # noqa: S101 - only called when a budget is used up
        return MaxIterationsExceededError(f"{stop.summary} reached, and the model returned no final answer")

    def _send_turn_ended(self, message: AssistantMessage, made: Sequence[ToolCallRecord]) -> None:
        if self._channel is not None:
            self._channel.send(TurnEnded(message, tuple(made), self._recorded is not None))

    def _is_final_answer(self, call: ToolCall) -> bool:
        return self._config.output is not None and call.name == FINAL_ANSWER
