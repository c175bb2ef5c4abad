"""The loop: ask the model, run the calls it asks for, tell it what came of them, until it answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from toolsemble.agent.admission import Admission, OuterBudgetError, check_outer
from toolsemble.agent.ask import OutOfTimeError, asked, in_time
from toolsemble.agent.channel import Channel
from toolsemble.agent.event import Final, ModelRetried, TurnEnded
from toolsemble.agent.execution import Execution
from toolsemble.agent.loop_guard import Lookout
from toolsemble.agent.otel import model_facts, reply_facts, run_facts, spent_facts
from toolsemble.agent.output import FINAL_ANSWER, Output
from toolsemble.agent.result import AgentResult, ToolCallRecord
from toolsemble.agent.settings import Offer, Plan
from toolsemble.agent.state import Account
from toolsemble.call import ToolCall
from toolsemble.definition.definition import ReturnBehavior
from toolsemble.errors import (
    AgentExecutionError,
    ExitEarlyError,
    MaxIterationsExceededError,
    ModelError,
    ToolArgumentsError,
    ToolConfigurationError,
)
from toolsemble.models.chat import ChatReply, ChatRequest
from toolsemble.models.message import AssistantMessage, ToolMessage
from toolsemble.result import ToolResult
from toolsemble.shape import describe_error
from toolsemble.toolbox.toolbox import Toolbox

_SILENT = "Your answer was empty. Answer in words, or call a tool."
_IMMEDIATE = {ReturnBehavior.IMMEDIATE, ReturnBehavior.IMMEDIATE_IF_LAST}


class _Answer(NamedTuple):
    """What came by the tool for answers: an answer, or what is wrong with it."""

    text: str = ""
    output: Any = None
    problem: ToolArgumentsError | None = None


class Loop:
    """One run of an agent, from its account's first message to its result."""

    def __init__(
        self, plan: Plan, account: Account, channel: Channel | None = None, *, streaming: bool = False
    ) -> None:
        self._plan = plan
        self._account = account
        self._channel = channel
        self._pieces = channel if streaming else None
        self._offer = Offer(plan)
        self._lookout = None if plan.loop_guard is None else Lookout(plan.loop_guard)
        self._misfits = 0
        self._silences = 0

    async def final(self) -> Final:
        """Go on until there is an answer, and give it as the last event."""
        return Final(await self.run())

    async def run(self) -> AgentResult:
        """Go on until there is an answer; what is raised carries away what was done."""
        sinks, context = self._plan.sinks, self._account.context
        if sinks is None:
            return await self._run()
        with sinks.enter("invoke_agent", run_facts(self._plan, context)) as told:
            try:
                return await self._run()
            finally:
                told.update(spent_facts(self._account.spending.usage()))

    async def _run(self) -> AgentResult:
        account = self._account
        try:
            account.spending.check_depth()
            account.begin()
            while True:
                result = await self._turn()
                if result is not None:
                    return result
        except (ExitEarlyError, ToolConfigurationError) as error:
            error.partial = account.result("exit_early" if isinstance(error, ExitEarlyError) else "configuration_error")
            raise
        except OuterBudgetError as used_up:
            account.end(used_up.stop)
            raise MaxIterationsExceededError(
                f"{used_up} reached in the run around this agent, whose model is not asked any more",
                partial=account.result(used_up.stop.name),
            ) from None
        except MaxIterationsExceededError as error:
            error.partial = account.result("error" if account.stop is None else account.stop.name)
            raise
        except Exception as error:
            raise AgentExecutionError(describe_error(error), partial=account.result("error")) from error
        except BaseException as error:
            with suppress(Exception):  # an exception of somebody's own may refuse attributes; it passes all the same
                error.partial = account.result("cancelled")  # type: ignore[attr-defined]  # any kind may pass here
            raise

    async def _turn(self) -> AgentResult | None:
        """Let the model speak once, and do what it asks for; None when it is to speak again."""
        account = self._account
        if self._channel is not None:
            await self._channel.told()
        check_outer(account.spending.outer)
        box = await self._offer.box(account.view)
        account.end(account.spending.exhausted())
        reply = await self._reply(self._request(box))
        if reply is None:
            return None
        return await self._act(reply, box) if reply.calls else self._answer(reply)

    def _request(self, box: Toolbox) -> ChatRequest:
        plan, is_open = self._plan, self._account.stop is None
        messages, specifications = self._account.shown(), box.specifications
        if plan.output is None or plan.native_output:
            schema = None if plan.output is None else plan.output.schema
            return ChatRequest(messages, specifications, "auto" if is_open else "none", schema, plan.settings)
        # The tool for the answer stays when the others are switched off: without it the model could not answer.
        offered = [*(specifications if is_open else ()), plan.output.specification]
        return ChatRequest(messages, offered, "required", None, plan.settings)

    async def _reply(self, request: ChatRequest) -> ChatReply | None:
        """Give what the model says; None when the time is up before that, and it is to be asked once more."""
        account, started = self._account, time.monotonic()
        try:
            return await in_time(self._admitted(request), account.deadline)
        except OutOfTimeError:
            is_last = account.stop is not None
            self._out_of_time(started)
            check_outer(account.spending.outer)
            if is_last:
                raise self._unanswered() from None
            return None

    async def _admitted(self, request: ChatRequest) -> ChatReply:
        """Give what the model says, once the runs around this one have room for it; count it before others ask."""
        spending = self._account.spending
        async with Admission(spending, request):
            started = time.monotonic()
            reply = await self._asked(request)
            seconds = time.monotonic() - started
            spending.add_reply(reply.usage, seconds)
            self._account.note("model", type(self._plan.model).__name__, started, seconds, reply.stop_reason)
        return reply

    async def _asked(self, request: ChatRequest) -> ChatReply:
        plan = self._plan
        asking = asked(plan.model, request, plan.retry, self._pieces, self._retried, self._account.deadline)
        if plan.sinks is None:
            return await asking
        with plan.sinks.enter("chat", model_facts(plan)) as told:
            reply = await asking
            told.update(reply_facts(reply))
        return reply

    def _out_of_time(self, started: float) -> None:
        """Take down that the model was stopped; what it had sent until then does not count."""
        account, seconds = self._account, time.monotonic() - started
        account.spending.add_model_seconds(seconds)
        account.note("model", type(self._plan.model).__name__, started, seconds, "out of time")
        if account.stop is not None:
            return
        stop = account.spending.out_of_time()
        account.end(stop)
        if self._channel is not None:
            self._channel.tell(ModelRetried(f"{stop.said} reached", 0.0))

    def _retried(self, event: ModelRetried) -> None:
        name = type(self._plan.model).__name__
        self._account.note("retry", name, time.monotonic(), event.seconds, event.reason)
        if self._channel is not None:
            self._channel.tell(event)

    def _answer(self, reply: ChatReply) -> AgentResult | None:
        """Take an answer in text; None when it does not fit."""
        account, message = self._account, AssistantMessage(reply.text, (), reply.details)
        # Providers refuse a conversation in which somebody says nothing at all, or only blanks.
        if reply.text.strip() or reply.details:
            account.say(message)
        self._ended(message, ())
        if not reply.text.strip() and (account.stop is not None or self._plan.output is None):
            self._ask_for_words()
            return None
        try:
            return self._answered(reply.text)
        except ToolArgumentsError as problem:
            self._count_misfit(problem)
            account.correct(f"{describe_error(problem)}. Give the whole answer again.")
            return None

    def _ask_for_words(self) -> None:
        """Have the model asked once more when it has said nothing; raise when that was of no use."""
        if self._account.stop is not None:
            raise self._unanswered()
        self._silences += 1
        if self._silences > 1:
            raise ModelError("The model gave no answer, also when it was asked once more")
        self._account.correct(_SILENT)

    async def _act(self, reply: ChatReply, box: Toolbox) -> AgentResult | None:
        """Run the calls of a reply; None when the model is to go on with what came of them."""
        account = self._account
        self._silences = 0
        execution = Execution(reply.calls, account, self._channel, self._lookout)
        closing = account.stop is not None  # the tools were switched off, and it calls some all the same
        answer = None if self._plan.output is None else self._final(self._plan.output, reply.calls, execution)
        if answer is None or answer.problem is not None:
            account.end(account.spending.exhausted())
        waiting = execution.waiting()
        due = waiting[: account.spending.claim(len(waiting))] if account.stop is None else []
        if len(due) < len(waiting):
            account.end(account.spending.out_of_calls())
        error = await execution.run(box, due) if due else None
        made = self._commit(reply, execution, error)
        if answer is not None and answer.problem is not None:
            self._count_misfit(answer.problem)
            return None
        if answer is not None:
            return account.result(account.stop.name if closing and account.stop else "answer", *answer[:2])
        return self._closed(reply) if closing else self._immediate(box, made)

    def _commit(self, reply: ChatReply, execution: Execution, error: BaseException | None) -> list[ToolCallRecord]:
        """Add the turn to the conversation, whole; then raise what a call raised."""
        execution.stop()
        made = execution.records()
        message = AssistantMessage(reply.text, reply.calls, reply.details)
        self._account.records += [record for record in made if not self._is_final(record.call)]
        try:
            self._account.say(message, *[ToolMessage(record.reply) for record in made])
        finally:
            if error is not None:
                raise error
        self._ended(message, made)
        return made

    def _final(self, output: Output, calls: Sequence[ToolCall], execution: Execution) -> _Answer | None:
        """Give what came by the tool for answers, of several the first that fits; reply to those calls."""
        answer: _Answer | None = None
        for index, call in enumerate(calls):
            if not self._is_final(call):
                continue
            if answer is not None and answer.problem is None:
                execution.answer(index, ToolResult.failure("There is an answer already"))
                continue
            try:
                value = output.read(call.json)
                answer = _Answer(output.text(call.json, value), value)
                execution.answer(index, ToolResult.success("The answer is taken"))
            except ToolArgumentsError as problem:
                answer = _Answer(problem=problem)
                execution.answer(index, ToolResult.failure(describe_error(problem)))
        return answer

    def _closed(self, reply: ChatReply) -> AgentResult:
        """Give the text beside calls that were not run any more."""
        if not reply.text.strip():
            raise self._unanswered()
        try:
            return self._answered(reply.text)
        except ToolArgumentsError as problem:
            raise self._unanswered() from problem

    def _immediate(self, box: Toolbox, made: list[ToolCallRecord]) -> AgentResult | None:
        """Give the result of the last call, when it is for the caller and not for the model."""
        if box.return_behavior(made[-1].call.name) is ReturnBehavior.TO_LLM:
            return None
        if self._account.stop is not None or any(record.reply.is_error for record in made):
            return None
        behaviors = [box.return_behavior(record.call.name) for record in made]
        if behaviors[-1] is not ReturnBehavior.IMMEDIATE_IF_LAST and not _IMMEDIATE.issuperset(behaviors):
            return None
        result = made[-1].reply.result
        if self._plan.output is None:
            output = result.text if result.structured_output is None else result.structured_output
        else:
            try:
                output = self._plan.output.read_result(result)
            except ToolArgumentsError:
                return None  # it is not what was asked for, so the model has to make that of it
        return self._account.result("immediate", result.text, output)

    def _answered(self, text: str) -> AgentResult:
        """Give an answer in text as the result, or raise a :class:`ToolArgumentsError` when it does not fit."""
        stop, output = self._account.stop, self._plan.output
        reason = "answer" if stop is None else stop.name
        if output is None:
            return self._account.result(reason, text, text)
        answer = output.read_text(text)
        return self._account.result(reason, output.text(text, answer), answer)

    def _count_misfit(self, problem: ToolArgumentsError) -> None:
        self._misfits += 1
        if self._misfits > self._plan.limits.output_retries:
            times = "once" if self._misfits == 1 else f"{self._misfits} times"
            raise ToolArgumentsError(f"The answer did not fit {times}: {describe_error(problem)}")

    def _unanswered(self) -> MaxIterationsExceededError:
        stop = self._account.stop
        assert stop is not None  # noqa: S101 - asked for an answer only when one is
        return MaxIterationsExceededError(f"{stop.said} reached, and the model gave no answer even then")

    def _ended(self, message: AssistantMessage, made: Sequence[ToolCallRecord]) -> None:
        if self._channel is not None:
            self._channel.tell(TurnEnded(message, tuple(made)))

    def _is_final(self, call: ToolCall) -> bool:
        return self._plan.output is not None and call.name == FINAL_ANSWER
