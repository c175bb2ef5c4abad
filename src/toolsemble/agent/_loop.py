"""The agent loop: ask the model, run the calls it requests, send it the results, until it answers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from toolsemble._runtime.lazy import LazyModule
from toolsemble._runtime.text import describe_error, describe_with_class
from toolsemble._tools.toolbox.reviewer_check import check_pauses, check_reviewer
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import (
    AgentExecutionError,
    CallPausedError,
    ExitEarlyError,
    JournalError,
    MaxIterationsExceededError,
    PassThroughError,
    RunBusyError,
    RunCancelledError,
    RunError,
    RunInterruptedError,
    RunParkedError,
)
from toolsemble._vocabulary.place import Place
from toolsemble.agent._admission import OuterBudgetError, check_outer
from toolsemble.agent._answers import Answers
from toolsemble.agent._budget import StopReason
from toolsemble.agent._channel import Channel
from toolsemble.agent._deps import LeaveDeps, report_late_failure, use_deps
from toolsemble.agent._event import Final, RunStop, TurnEnded
from toolsemble.agent._execution import Execution
from toolsemble.agent._final_answer import FinalAnswer, read_final_answer
from toolsemble.agent._loop_detector import LoopDetector
from toolsemble.agent._model_reply import ModelReplies
from toolsemble.agent._otel import conversation_attributes, run_attributes, usage_attributes
from toolsemble.agent._result import AgentResult, ToolCallRecord
from toolsemble.agent._run_events import emit_end, emit_start, find_stop_reason
from toolsemble.agent._settings import AgentConfig, ToolSource
from toolsemble.agent._state import RunState
from toolsemble.models._chat import ChatReply
from toolsemble.models._message import AssistantMessage, ToolMessage

if TYPE_CHECKING:
    from toolsemble.agent import _durable_run as durable
    from toolsemble.agent._durable_run import DurableRun
    from toolsemble.agent._resume import Resumption
else:  # most runs have no journal
    durable = LazyModule("toolsemble.agent._durable_run")

# Why a journaled run does not go on here.
_JOURNALED: tuple[tuple[type[PassThroughError], StopReason], ...] = (
    (CallPausedError, "parked"),
    (RunParkedError, "parked"),
    (RunInterruptedError, "interrupted"),
    (RunBusyError, "taken_over"),
    (RunCancelledError, "cancelled"),
)


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
        self._leave_deps: LeaveDeps | None = None  # if deps were made for this run
        self._channel = channel
        self._replies = ModelReplies(config, state, channel, streaming=streaming)
        self._tool_source = ToolSource(config)
        self._checked_box: Toolbox | None = None
        self._fixed_box: Toolbox | None = None  # once it was checked, if it is that of all turns
        self._detector = None if config.loop_guard is None else LoopDetector(config.loop_guard)
        self._resumption = resumption
        invalid = 0 if resumption is None else resumption.paused.invalid_answers
        self._answers = Answers(config, state, invalid)

    def partial(self) -> AgentResult:
        """Return the work so far of a run that was cancelled."""
        return self._state.result("cancelled")

    async def run_as_event(self) -> Final | RunStop:
        """Run until there is an answer; return it, or why a journaled run does not go on here, as the last event."""
        try:
            return Final(await self.run())
        except RunError as stopped:
            last = None if self._durable is None else durable.to_last_event(stopped)
            if last is None:
                raise
            return last

    async def run(self) -> AgentResult:
        """Run until there is an answer, or return a recorded one; every exception carries the work so far."""
        return await (self._run_prepared() if self._durable is None else self._durable.drive(self._run_journaled))

    async def _run_journaled(self, place: Place, earlier: float) -> AgentResult:
        place.run.find_waited = self._state.spending.clock.find_waited
        self._state.enter_journal(place, earlier, is_new=place.run.is_new)
        return await self._run_prepared()

    async def _run_prepared(self) -> AgentResult:
        """Make the deps of the run if it has none, check what it needs, and run; nothing is told or recorded before."""
        state = self._state
        try:
            if not state.makes_deps:
                return await self._run_checked()
            return await use_deps(self._config.deps, state.view(), self._run_with_deps)
        except Exception as error:
            if getattr(error, "partial", None) is not None:
                raise
            self._fail_setup(error)
        except BaseException as error:
            if not hasattr(error, "partial"):
                with suppress(Exception):  # as in _run
                    error.partial = state.result("cancelled")  # type: ignore[attr-defined]  # as in _run
            raise

    def _fail_setup(self, error: Exception) -> NoReturn:
        """Raise that the deps of the run could not be made or left, or that the run lacks something."""
        if isinstance(error, PassThroughError):
            error.partial = self._state.result(self._find_reason(error))
            raise error
        text = f"make_deps failed: {describe_with_class(error)}"
        raise AgentExecutionError(text, partial=self._state.result("error")) from error

    async def _run_with_deps(self, deps: object, leave: LeaveDeps) -> AgentResult:
        self._state.enter_deps(deps)
        self._leave_deps = leave
        return await self._run_checked()

    async def _run_checked(self) -> AgentResult:
        self._state.check_setup()
        if self._durable is not None:
            self._durable.note_prepared()
        return await self._run_observed()

    async def _run_observed(self) -> AgentResult:
        """Run until there is an answer, and tell the sinks."""
        sinks, state = self._config.sinks, self._state
        run = self._run if self._leave_deps is None else partial(self._run_and_leave, self._leave_deps)
        if sinks is None:
            return await emit_end(state, run())
        with sinks.enter("invoke_agent", run_attributes(self._config, state.context)) as attributes:
            messages, answer = state.messages, ""
            try:
                result = await sinks.ado(emit_end(state, run()))
                answer = result.text
                attributes["toolsemble.stop_reason"] = result.stop_reason
            except BaseException as error:
                attributes["toolsemble.stop_reason"] = find_stop_reason(error)
                raise
            finally:
                attributes.update(usage_attributes(state.spending.usage()))
                attributes.update(conversation_attributes(self._config, messages, answer))
        return result

    async def _run_and_leave(self, leave: LeaveDeps) -> AgentResult:
        """Run until there is an answer, and leave the deps: sinks are told if a commit fails, for example."""
        result = await self._run()
        try:
            await leave()
        except Exception as error:  # of any context manager
            if result.stop_reason != "paused":
                self._fail_setup(error)
            report_late_failure(error)  # the run goes on later, as one that is parked
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
        except PassThroughError as error:
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
                error.partial = state.result(self._find_cancel_reason())  # type: ignore[attr-defined]  # any exception
            raise
        finally:
            self._note_usage()
            state.end()

    def _find_reason(self, error: PassThroughError) -> StopReason:
        """Return why a run has ended with one of the errors that are raised as they are."""
        if isinstance(error, ExitEarlyError):
            return "exit_early"
        if isinstance(error, JournalError):
            return "error"
        if self._state.context.place is None:
            return "configuration_error"
        return next((reason for kind, reason in _JOURNALED if isinstance(error, kind)), "configuration_error")

    def _find_cancel_reason(self) -> StopReason:
        """Return why a run has ended whose task was cancelled: a journal keeps it for the next driver."""
        place = self._state.context.place
        return "cancelled" if place is None or place.path else "interrupted"

    def _note_usage(self) -> None:
        """Keep what an agent inside of a journaled call has spent, for the record of that call."""
        place = self._state.context.place
        if place is not None and place.path:
            place.run.note_usage(place.path, astuple(self._state.spending.usage()))

    async def _turn(self) -> AgentResult | None:
        """Get one reply of the model, and run its calls; return None if the model has to continue."""
        state = self._state
        if self._channel is not None:
            await self._channel.wait_ready()
        check_outer(state.spending.outer)
        turn = state.turn_place
        if turn is not None:
            turn.run.check()
            self._recorded = turn.run.find_reply(turn.path)
        box = await self._find_box() if self._fixed_box is None else self._fixed_box
        if turn is not None and self._recorded is not None:
            turn.run.check_agent(turn.path, self._recorded["agent"], self._replies.mark(box))
            state.set_stop(durable.read_stop(self._recorded))
            reply: ChatReply | None = self._replies.replay(self._recorded)
        else:
            state.set_stop(state.spending.find_exhausted())
            reply = await self._replies.ask(box)
        if reply is None:
            return None
        return await (self._act(reply, box, turn) if reply.calls else self._answer(reply))

    async def _find_box(self) -> Toolbox:
        """Return the tools of the next turn, checked if they are new."""
        state = self._state
        box = await self._tool_source.box(state.view)
        if box is not self._checked_box:
            self._checked_box = box
            check_reviewer(box, state.context)
            check_pauses(box, state.context, nested=not state.can_pause)
            if box is self._config.tools:
                self._fixed_box = box
            else:
                state.check_needs(box.find_needs())
        return box

    async def _answer(self, reply: ChatReply) -> AgentResult | None:
        """Return the result of an answer in text; None if it is not valid."""
        state, message = self._state, AssistantMessage(reply.text, (), reply.details)
        # Providers refuse a conversation with an empty or blank message.
        if reply.text.strip() or reply.details:
            await state.add(message)
        self._send_turn_ended(message, ())
        return self._answers.read(reply)

    async def _act(self, reply: ChatReply, box: Toolbox, turn: Place | None) -> AgentResult | None:
        """Run the calls of a reply; return None if the model has to continue with their results."""
        state = self._state
        self._answers.forget_empty()
        if turn is not None:
            turn.run.check()
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
        from toolsemble.agent._resume import repeat_turns

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
            self._answers.count_invalid(answer.problem)
            return None
        if answer is not None:
            return state.result(state.stop.name if closing and state.stop else "answer", *answer[:2])
        return self._answers.read_beside_calls(reply) if closing else self._answers.read_immediate(box, made)

    def _pause(self, reply: ChatReply, execution: Execution) -> AgentResult:
        """Return the result of a run whose calls wait for approval; the turn is not part of the conversation yet."""
        turn = execution.describe_pause(AssistantMessage(reply.text, reply.calls, reply.details))
        shown = [record for record in turn["done"] if not self._answers.is_final(record.call)]
        return self._state.pause(turn, shown, invalid_answers=self._answers.invalid)

    async def _commit(
        self, reply: ChatReply, execution: Execution, error: BaseException | None
    ) -> list[ToolCallRecord]:
        """Add the turn to the conversation as a whole; then raise what a call raised."""
        made = execution.records()
        message = AssistantMessage(reply.text, reply.calls, reply.details)
        self._state.records += [record for record in made if not self._answers.is_final(record.call)]
        try:
            await self._state.add(message, *[ToolMessage(record.reply) for record in made])
        finally:
            if error is not None:
                raise error
        self._send_turn_ended(message, made)
        return made

    def _send_turn_ended(self, message: AssistantMessage, made: Sequence[ToolCallRecord]) -> None:
        if self._channel is not None:
            self._channel.send(TurnEnded(message, tuple(made), self._recorded is not None))
