"""The agent loop: ask the model, run its calls, and send it the results, until it answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple
from typing import TYPE_CHECKING, Any, NamedTuple

from toolsemble._runtime.lazy import LazyModule
from toolsemble._runtime.text import describe_error
from toolsemble._tools.toolbox.approval import check_pauses, check_reviewer, replace_reviewer
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary import errors
from toolsemble._vocabulary.call import ToolReply
from toolsemble._vocabulary.place import Place
from toolsemble.agent._result import AgentResult, PausedRun, ToolCallRecord
from toolsemble.agent._run.events import RunEvents
from toolsemble.agent._run.execution import Execution, LoopDetector
from toolsemble.agent._run.model_reply import Answers, FinalAnswer, ModelReplies, read_final_answer
from toolsemble.agent._run.spending import OuterBudgetError, check_outer
from toolsemble.agent._run.state import RunState, is_inside_agent_tool
from toolsemble.agent._settings import AgentConfig, ToolSource
from toolsemble.models._chat import ChatReply
from toolsemble.models._message import AssistantMessage, Message, ToolMessage
from toolsemble.review._pause import DecidedReview
from toolsemble.review._request import Continue, Edit, ExitEarly, ReviewDecision

if TYPE_CHECKING:
    from toolsemble.agent._run import journal_format
else:  # most runs have no journal
    journal_format = LazyModule("toolsemble.agent._run.journal_format")


_OWN = ("history", "run_id", "memory_id")


class Resumption(NamedTuple):
    """A paused run, and the decisions on its calls."""

    paused: PausedRun
    decisions: Mapping[str, ReviewDecision]
    """Decisions by request id; a call without one stays pending."""

    def decide_in(self, box: Toolbox) -> Toolbox:
        """Return a toolbox that applies the decisions to their calls only."""
        decided = [each for each in self.paused.pending if each.id in self.decisions and not each.path]
        review = DecidedReview((each.request, self.decisions[each.id]) for each in decided)
        begun = {each.call_id: each.name for each in self.paused.inner}
        return replace_reviewer(box, {*begun.values(), *(each.call.name for each in decided)}, review, begun)


def read_resumption(paused: PausedRun, own: dict[str, Any]) -> Resumption:
    """Return the run to resume, with its decisions; copy the paused run's settings into ``own``.

    :param own: the settings that only runs have
    """
    for name in _OWN:
        if own.get(name) is not None:
            raise TypeError(f"A paused run has its own {name}; remove {name}=")
    decisions = own.pop("decisions", None)
    _check_decisions(paused, {} if decisions is None else decisions)
    own |= {"history": paused.messages, "paused": paused}
    if not is_inside_agent_tool():  # such a run has the enclosing run's ids
        own |= {"run_id": paused.run_id, "memory_id": paused.memory_id}
    return Resumption(paused, dict(decisions or {}))


def _check_decisions(paused: PausedRun, decisions: Any) -> None:
    if not isinstance(decisions, Mapping):
        raise TypeError(f"The decisions of a run must be a mapping of request ids to decisions, not {decisions!r:.80}")
    known = [each.id for each in paused.pending]
    for key, decision in decisions.items():
        if key not in known:
            raise errors.ToolConfigurationError(f"No open request {key!r:.80}; open requests: {', '.join(known)}")
        # By exact type, as for reviewers: the meaning of a subclass is unknown.
        if type(decision) not in (Continue, Edit, ExitEarly):
            raise TypeError(
                f"The decision about request {key} must be Continue(), Edit(...) or Reject(...), not {decision!r:.80}"
            )
        if type(decision) is Edit and not isinstance(decision.revised, str):
            raise TypeError(f"The edit of request {key} must be a str, such as JSON text, not {decision.revised!r:.80}")


def repeat_turns(detector: LoopDetector, state: RunState, box: Toolbox) -> None:
    """Replay a paused run's turns to its loop detector."""
    turns = _find_turns(state.messages)
    first, calls = len(turns), len(state.records)
    while calls > 0 and first > 0:  # before that are the turns of earlier runs
        first -= 1
        calls -= len(turns[first])
    for replies in turns[first:]:
        detector.begin(len(replies))
        for reply in replies:
            detector.check(reply, exempt=box.is_polling(reply.name))


def _find_turns(messages: Iterable[Message]) -> list[list[ToolReply]]:
    """Return the replies of each turn in which the model called tools."""
    turns: list[list[ToolReply]] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            turns[-1].append(message.reply)
        elif isinstance(message, AssistantMessage):
            turns.append([])
    return [replies for replies in turns if replies]


class Loop:
    """The turns of one run, from the first message to the result; the layers around them are in :mod:`_run`."""

    def __init__(
        self, config: AgentConfig, state: RunState, events: RunEvents, resumption: Resumption | None = None
    ) -> None:
        self._recorded: Any = None  # the journal's reply of the current turn
        self._config = config
        self._state = state
        self._events = events
        self._replies = ModelReplies(config, state, events)
        self._tool_source = ToolSource(config)
        self._checked_box: Toolbox | None = None
        self._fixed_box: Toolbox | None = None  # checked; set if all turns share it
        self._detector = None if config.loop_guard is None else LoopDetector(config.loop_guard)
        self._resumption = resumption
        invalid = 0 if resumption is None else resumption.paused.invalid_answers
        self._answers = Answers(config, state, invalid)

    async def run(self) -> AgentResult:
        """Run until there is an answer; every exception carries the partial result."""
        state = self._state
        try:
            state.spending.check_depth()
            await state.begin()
            self._events.start()
            result = None if self._resumption is None else await self._resume(self._resumption)
            while result is None:
                result = await self._turn()
            return result  # noqa: TRY300 - every exception at the end of the run is handled here
        except OuterBudgetError as used_up:
            state.set_stop(used_up.stop)
            raise errors.BudgetExceededError(
                f"{used_up} reached in the enclosing run, so this agent's model is not called",
                partial=state.result(used_up.stop.name),
            ) from None
        except errors.BudgetExceededError as error:
            error.partial = state.result("error" if state.stop is None else state.stop.name)
            raise
        except errors.PassThroughError as error:
            state.add_partial(error)
            raise
        except Exception as error:
            raise errors.AgentExecutionError(describe_error(error), partial=state.result("error")) from error
        except BaseException as error:
            state.add_partial(error)
            raise
        finally:
            self._note_usage()
            state.end()

    def _note_usage(self) -> None:
        """Keep a nested agent's usage for the record of its journaled call."""
        place = self._state.context.place
        if place is not None and place.path:
            place.run.note_usage(place.path, astuple(self._state.spending.usage()))

    async def _turn(self) -> AgentResult | None:
        """Get one model reply, and run its calls; return None if the model has to continue."""
        state = self._state
        if self._events.stream is not None:
            await self._events.stream.wait_ready()
        check_outer(state.spending.outer)
        turn = state.turn_place
        if turn is not None:
            turn.run.check()
            self._recorded = turn.run.find_reply(turn.path)
        box = await self._find_box() if self._fixed_box is None else self._fixed_box
        if turn is not None and self._recorded is not None:
            turn.run.check_agent(turn.path, self._recorded["agent"], self._replies.mark(box))
            state.set_stop(journal_format.read_stop(self._recorded))
            reply: ChatReply | None = self._replies.replay(self._recorded)
        else:
            state.set_stop(state.spending.find_exhausted())
            reply = await self._replies.ask(box)
        if reply is None:
            return None
        return await (self._act(reply, box, turn) if reply.calls else self._answer(reply))

    async def _find_box(self) -> Toolbox:
        """Return the tools of the next turn; check new ones."""
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
        """Return the result of a text answer; None if it is not valid."""
        state, message = self._state, AssistantMessage(reply.text, (), reply.details)
        # Providers reject a conversation with an empty or blank message.
        if reply.text.strip() or reply.details:
            await state.add(message)
        self._events.end_turn(message, (), replayed=self._recorded is not None)
        return self._answers.read(reply)

    async def _act(self, reply: ChatReply, box: Toolbox, turn: Place | None) -> AgentResult | None:
        """Run the calls of a reply; return None if the model has to continue with their results."""
        state = self._state
        self._answers.forget_empty()
        if turn is not None:
            turn.run.check()
        execution = Execution(reply.calls, box, state, self._events, self._detector, turn)
        execution.restore_answers()
        closing = state.stop is not None  # the model calls tools although they were switched off
        output = self._config.output
        answer = None if output is None else read_final_answer(output, reply.calls, execution.answer)
        if not execution.is_recorded and (answer is None or answer.problem is not None):
            state.set_stop(state.spending.find_exhausted())
        due = self._claim(execution) if state.stop is None else []
        return await self._finish_turn(reply, box, execution, due, answer, closing=closing)

    def _claim(self, execution: Execution) -> list[int]:
        """Return the calls within budget."""
        pending, spending = execution.pending(), self._state.spending
        due = pending[: spending.claim(len(pending))]
        if len(due) < len(pending):
            self._state.set_stop(spending.out_of_calls())
        return due

    async def _resume(self, resumption: Resumption) -> AgentResult | None:
        """Run the decided calls of a paused turn; return None if the model has to continue."""
        paused, output = resumption.paused, self._config.output
        box, message = await self._find_box(), paused.message
        if self._detector is not None:
            repeat_turns(self._detector, self._state, box)
        execution = Execution(message.calls, box, self._state, self._events, self._detector)
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
        """Run the calls within budget; return None if the model has to continue with the results."""
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
        """Add the whole turn to the conversation; then raise the exception of a call, if any."""
        made = execution.records()
        message = AssistantMessage(reply.text, reply.calls, reply.details)
        self._state.records += [record for record in made if not self._answers.is_final(record.call)]
        try:
            await self._state.add(message, *[ToolMessage(record.reply) for record in made])
        finally:
            if error is not None:
                raise error
        self._events.end_turn(message, made, replayed=self._recorded is not None)
        return made
