"""The account of a run: what was said, done and spent so far."""

from __future__ import annotations

import time
from collections.abc import MutableMapping, Sequence
from typing import Any, Literal

from toolsemble.agent.budget import Stop
from toolsemble.agent.checks import check_run
from toolsemble.agent.prompt import is_blank, opening, parted
from toolsemble.agent.result import AgentResult, ToolCallRecord, TraceStep
from toolsemble.agent.settings import Plan, RunView
from toolsemble.agent.spending import Spending, current_spending
from toolsemble.call import new_id
from toolsemble.context import InvocationParameters, ToolContext, current_context
from toolsemble.errors import ToolConfigurationError
from toolsemble.models.message import Message, SystemMessage, UserMessage
from toolsemble.models.transcript import Transcript


class Account:
    """A conversation that grows, and in which every call has its reply at every moment; and what it took."""

    def __init__(
        self,
        plan: Plan,
        prompt: Sequence[Message],
        *,
        history: Sequence[Message] | None = None,
        memory_id: str | None = None,
        parameters: MutableMapping[str, Any] | None = None,
        run_id: str | None = None,
    ) -> None:
        """Take down what was given; refuse what is of a wrong kind, and a history in which a call has no reply."""
        check_run(history, memory_id, parameters, run_id)
        around = current_spending.get()
        self.spending = Spending(plan.limits, plan.prices, around)
        self.context = _surroundings(plan, memory_id, parameters, run_id)
        self.sinks = plan.sinks
        self.stop: Stop | None = None
        self._last_deadline: float | None = None
        self.records: list[ToolCallRecord] = []
        self._plan = plan
        self._trace: list[TraceStep] = []
        # What an agent inside another one talks about is a conversation of its own, also where they share a memory.
        inside = around is not None and memory_id is None
        self._topic = f"{self.context.memory_id}/{self.context.tool_name}" if inside else self.context.memory_id
        self._system, self._prompt = parted(plan.system, prompt)
        self._goes_on = history is None
        self._kept: Transcript | None = None
        self._saved = 0
        self._question = -1
        self.messages = opening(self._system, history or ()).plus(*self._prompt)

    def begin(self) -> None:
        """Start the clock, and take up the conversation that is remembered, unless another one was given."""
        self.spending.begin()
        ends = [each for each in (self.context.deadline, self.spending.deadline) if each is not None]
        self.context = self.context.derive({"deadline": min(ends, default=None)})
        if self._plan.memory is not None:
            kept = self._plan.memory.load(self._topic)
            if self._goes_on:
                said = kept.under(self._system)
                self._kept, self._saved, self.messages = kept, len(said), said.plus(*self._prompt)
            else:
                self._saved = _saved(kept, self.messages, len(self.messages) - len(self._prompt))
        self._question = _question(self.messages)
        if all(message.role == "system" for message in self.messages) or any(map(is_blank, self._prompt)):
            raise ToolConfigurationError("There is nothing to answer: give a prompt, or a history that ends in one")

    @property
    def deadline(self) -> float | None:
        """When nobody waits for the model any more, on the clock of ``time.monotonic``; None for never."""
        return self.spending.deadline if self.stop is None else self._last_deadline

    def shown(self) -> Sequence[Message]:
        """Give the part of the conversation that the model is shown."""
        memory = self._plan.memory
        return self.messages if memory is None else memory.window(self.messages, self._question)

    def view(self) -> RunView:
        """Give what a function that gives tools can know."""
        context, spending = self.context, self.spending
        return RunView(
            context.run_id, context.memory_id, context.parameters, self.messages, spending.usage(), spending.turns
        )

    def say(self, *messages: Message) -> None:
        """Add to the conversation, and to the memory of it; each call comes with its reply."""
        self.messages = self.messages.plus(*messages)
        if self._plan.memory is not None:
            new = len(self.messages) - self._saved
            self._plan.memory.extend(self._topic, self._kept, self.messages, new)
            self._saved = len(self.messages)
            self._kept = None if self._kept is None else self.messages

    def correct(self, text: str) -> None:
        """Add what the model is told in a person's place; it is remembered with the answer to it."""
        self.messages = self.messages.plus(UserMessage(text))

    def end(self, stop: Stop | None) -> None:
        """Take down that a budget is used up, if one is; the first one counts."""
        if stop is not None and self.stop is None:
            self.stop = stop
            self._last_deadline = self.spending.last_deadline()
            self.note("stop", stop.name, time.monotonic(), 0.0, stop.said)

    def note(
        self, kind: Literal["model", "tool", "retry", "stop"], name: str, started: float, seconds: float, detail: str
    ) -> None:
        """Take down what happened."""
        self._trace.append(TraceStep(kind, name, started - self.spending.started, seconds, detail))

    def result(self, stop_reason: str, text: str = "", output: Any = None) -> AgentResult:
        """Give what came of the run, or what was done until now."""
        return AgentResult(
            text,
            output,
            list(self.records),
            self.messages,
            self.spending.usage(),
            stop_reason,
            tuple(self._trace),
            self.context.run_id,
        )


def _surroundings(
    plan: Plan, memory_id: str | None, parameters: MutableMapping[str, Any] | None, run_id: str | None
) -> ToolContext:
    """Give the context that the calls of the run inherit; a run inside another one inherits it, too."""
    base = current_context() or ToolContext()
    shared = base.parameters if parameters is None else parameters
    changes: dict[str, Any] = {
        "run_id": run_id or base.run_id or new_id(),
        "parameters": shared if isinstance(shared, InvocationParameters) else InvocationParameters(shared),
    }
    if memory_id is not None:
        changes["memory_id"] = memory_id
    elif plan.memory_id != ToolContext.memory_id:  # one that somebody chose
        changes["memory_id"] = plan.memory_id
    if plan.role:
        changes["agent_role"] = plan.role
    if plan.review is not None:
        changes["review"] = plan.review
    return base.derive(changes)


def _saved(kept: Transcript, messages: Transcript, history: int) -> int:
    """Give how many messages are not to be remembered again: what is kept already, or else the whole history."""
    start = 1 if messages and isinstance(messages[0], SystemMessage) else 0
    known = start + len(kept)
    # A history that goes on from what is kept may end in a question that never had an answer, and was not kept.
    return known if kept == messages[start:known] else history


def _question(messages: Transcript) -> int:
    """Give where the last thing stands that a person said; -1 when there is none."""
    for back, message in enumerate(reversed(messages), 1):
        if isinstance(message, UserMessage):
            return len(messages) - back
    return -1
