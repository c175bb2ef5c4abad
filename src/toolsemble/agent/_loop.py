"""The agent loop: ask the model, run the calls it requests, send it the results, until it answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from toolsemble._engine.context import InvocationParameters, current_context
from toolsemble._engine.definition import Names, ToolDefinition
from toolsemble._engine.execution.edits import EditedArguments
from toolsemble._runtime.lazy import LazyModule
from toolsemble._runtime.text import describe_error, describe_with_class
from toolsemble._tools.base import Tool
from toolsemble._tools.settings import ToolSettings
from toolsemble._tools.toolbox.approval import check_pauses, check_reviewer, replace_reviewer
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolReply, new_id
from toolsemble._vocabulary.errors import (
    AgentExecutionError,
    BudgetExceededError,
    CallPausedError,
    ExitEarlyError,
    JournalError,
    PassThroughError,
    RunBusyError,
    RunCancelledError,
    RunError,
    RunInterruptedError,
    RunParkedError,
    ToolConfigurationError,
    ToolsembleError,
)
from toolsemble._vocabulary.place import Place
from toolsemble._vocabulary.result import ToolResult
from toolsemble.agent._budget import StopReason, Usage
from toolsemble.agent._deps import DepsMaker, DepsSource, LeaveDeps, find_deps_type, report_late_failure, use_deps
from toolsemble.agent._event import Channel, Final, RunStop, TurnEnded
from toolsemble.agent._execution import Execution, LoopDetector
from toolsemble.agent._model_reply import Answers, FinalAnswer, ModelReplies, read_final_answer
from toolsemble.agent._options import RunInput, RunSettings, RunView
from toolsemble.agent._result import AgentResult, PausedRun, ToolCallRecord
from toolsemble.agent._run_events import (
    conversation_attributes,
    emit_end,
    emit_start,
    find_stop_reason,
    run_attributes,
    usage_attributes,
)
from toolsemble.agent._settings import RUN_ONLY, AgentConfig, ToolSource, check_keywords, override_config
from toolsemble.agent._spending import OuterBudgetError, check_outer
from toolsemble.agent._state import Resumed, RunState, enter_agent_call, is_inside_agent_tool, leave_agent_open
from toolsemble.models._chat import ChatReply
from toolsemble.models._message import AssistantMessage, Message, ToolMessage, to_messages
from toolsemble.review._pause import DecidedReview
from toolsemble.review._request import Continue, Edit, ExitEarly, ReviewDecision

if TYPE_CHECKING:
    from toolsemble.agent import _durable_run as durable
    from toolsemble.agent._durable_run import DurableRun
else:  # most runs have no journal
    durable = LazyModule("toolsemble.agent._durable_run")


class AgentAsTool(Tool):
    """A tool that passes its input to an agent and returns the agent's answer.

    Its structured output is the answer's object; its attributes have the agent's result and stop reason.

    >>> from toolsemble import Agent
    >>> from toolsemble.testing import ScriptedModel
    >>> poet = Agent(ScriptedModel(["Roses are red"])).as_tool("poet", "Writes a poem")
    >>> poet.execute("roses").output
    'Roses are red'
    """

    def __init__(
        self,
        ask: Callable[..., Awaitable[AgentResult]],
        name: str,
        description: str,
        settings: ToolSettings,
        inside: Callable[[], Names],
        needs: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self.description = description
        self._apply(settings)
        self._ask = ask
        self._inside = inside
        self._needs = needs

    def _define(self) -> ToolDefinition:
        return replace(super()._define(), inside=self._inside, needs=self._needs, delegates=True)

    async def run(self, input: str) -> ToolResult:
        """Run the agent on the input, inside the context of this call."""
        with enter_agent_call() as resumed:
            if resumed is not None:
                result = await self._ask(resumed.inner.run, decisions=resumed.decisions)
            elif input.strip():
                result = await self._ask(input)
            else:
                return ToolResult.failure("The input is blank; describe the task")
        if result.paused is not None:
            leave_agent_open(result.paused, resumed)
        return ToolResult.success(result.text, result.output, attributes=_describe(result, resumed))


def _describe(result: AgentResult, resumed: Resumed | None) -> dict[str, Any]:
    """Return the attributes of the result; a resumed call has the edit of its arguments before the pause."""
    known = {"stop_reason": result.stop_reason, "result": result}
    if resumed is None or resumed.inner.edited is None:
        return known
    return {**known, "edited": EditedArguments(resumed.inner.name, resumed.inner.edited)}


T = TypeVar("T")


def start_run(
    config: AgentConfig,
    prompt: RunInput,
    settings: Mapping[str, Any],
    channel: Channel | None = None,
    *,
    streaming: bool = False,
) -> Loop:
    """Return the loop of a new run; raise if a setting of the run is not valid.

    :param channel: receives the events of the run; None: nobody does
    :param streaming: whether the model is asked to stream its replies
    """
    own: dict[str, Any] = {}
    if settings:
        check_keywords("A run", settings, ["output_type", *RunSettings.__annotations__])
        own = {name: settings[name] for name in RUN_ONLY & settings.keys()}
        config = override_config(config, settings)
        if isinstance(maker := own.get("deps"), DepsMaker):
            config = replace(config, deps=DepsSource(None, maker.function, config.deps.kind))
            del own["deps"]
    if isinstance(prompt, PausedRun):
        resumption = read_resumption(prompt, own)
        return Loop(config, RunState(config, (), **own), channel, streaming=streaming, resumption=resumption)
    if own.pop("decisions", None) is not None:
        raise TypeError("Only a paused run takes decisions; pass result.paused in place of the prompt")
    messages = to_messages(prompt)
    durable = None
    if config.journal is not None and (current_context() is None or own.get("run_id") is not None):
        from toolsemble.agent._durable_run import DurableRun

        if own.get("run_id") is None:
            own["run_id"] = new_id()
        durable = DurableRun(config.journal, config, own["run_id"], messages, own)
    return Loop(config, RunState(config, messages, **own), channel, streaming=streaming, durable=durable)


async def call_with_deps(deps: Any, run_id: str, memory_id: str, call: Callable[[Any], Awaitable[T]]) -> T:
    """Return what a function returns for the deps of a call outside of a run; made for it, if they are a DepsMaker."""
    if not isinstance(deps, DepsMaker):
        return await call(deps)
    source = DepsSource(None, deps.function, find_deps_type(deps.function))
    view = RunView(run_id, memory_id, InvocationParameters(), (), Usage(), 0)
    try:
        return await use_deps(source, view, lambda made, _leave: call(made))
    except ToolsembleError:
        raise
    except Exception as error:
        raise ToolConfigurationError(f"make_deps failed: {describe_with_class(error)}") from error


def follow_run(
    config: AgentConfig, prompt: RunInput, settings: Mapping[str, Any], *kinds: type, streaming: bool = False
) -> AsyncGenerator[Any, None]:
    """Return the events of a new run, all or those of some types, and its result."""
    channel = Channel(*kinds)
    loop = start_run(config, prompt, settings, channel, streaming=streaming)
    return channel.follow(loop.run_as_event, loop.partial)


_OWN = ("history", "run_id", "memory_id")


class Resumption(NamedTuple):
    """A paused run, and the decisions about its calls."""

    paused: PausedRun
    decisions: Mapping[str, ReviewDecision]
    """By the ids of the requests; a call without a decision goes on waiting."""

    def decide_in(self, box: Toolbox) -> Toolbox:
        """Return a toolbox that gives the decisions to the calls that wait for them, and to no other calls."""
        decided = [each for each in self.paused.pending if each.id in self.decisions and not each.path]
        review = DecidedReview((each.request, self.decisions[each.id]) for each in decided)
        begun = {each.call_id: each.name for each in self.paused.inner}
        return replace_reviewer(box, {*begun.values(), *(each.call.name for each in decided)}, review, begun)


def read_resumption(paused: PausedRun, own: dict[str, Any]) -> Resumption:
    """Return what to resume; put the settings that the paused run has into those of the run.

    :param own: the settings of the run that its agent does not have
    """
    for name in _OWN:
        if own.get(name) is not None:
            raise TypeError(f"A paused run has its own {name}; remove {name}=")
    decisions = own.pop("decisions", None)
    _check_decisions(paused, {} if decisions is None else decisions)
    own |= {"history": paused.messages, "paused": paused}
    if not is_inside_agent_tool():  # such a run has the ids of the run around it
        own |= {"run_id": paused.run_id, "memory_id": paused.memory_id}
    return Resumption(paused, dict(decisions or {}))


def _check_decisions(paused: PausedRun, decisions: Any) -> None:
    if not isinstance(decisions, Mapping):
        raise TypeError(f"The decisions of a run must be a mapping of request ids to decisions, not {decisions!r:.80}")
    known = [each.id for each in paused.pending]
    for key, decision in decisions.items():
        if key not in known:
            raise ToolConfigurationError(f"There is no open request {key!r:.80}; open are {', '.join(known)}")
        # By type, as for reviewers: the call path does not know what a subclass means.
        if type(decision) not in (Continue, Edit, ExitEarly):
            raise TypeError(
                f"The decision about request {key} must be Continue(), Edit(...) or Reject(...), not {decision!r:.80}"
            )
        if type(decision) is Edit and not isinstance(decision.revised, str):
            raise TypeError(f"The edit of request {key} must be a str, such as JSON text, not {decision.revised!r:.80}")


def repeat_turns(detector: LoopDetector, state: RunState, box: Toolbox) -> None:
    """Show the turns of a run before its pause to its detector of repetition."""
    turns = _find_turns(state.messages)
    first, calls = len(turns), len(state.records)
    while calls > 0 and first > 0:  # the turns before are those of earlier runs
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
            raise BudgetExceededError(
                f"{used_up} reached in the enclosing run, so this agent's model is not called",
                partial=state.result(used_up.stop.name),
            ) from None
        except BudgetExceededError as error:
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
