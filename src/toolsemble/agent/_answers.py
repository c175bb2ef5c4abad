"""Answers of the model: read as the result of the run, or corrected if they are empty or do not fit."""

from __future__ import annotations

from toolsemble._engine.definition.definition import ReturnBehavior
from toolsemble._runtime.text import describe_error
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.errors import MaxIterationsExceededError, ModelError, ToolArgumentsError
from toolsemble.agent._output import FINAL_ANSWER
from toolsemble.agent._result import AgentResult, ToolCallRecord
from toolsemble.agent._settings import AgentConfig
from toolsemble.agent._state import RunState
from toolsemble.models._chat import ChatReply

_EMPTY_ANSWER = "Your answer was empty. Answer in words, or call a tool."
_IMMEDIATE = {ReturnBehavior.IMMEDIATE, ReturnBehavior.IMMEDIATE_IF_LAST}


class Answers:
    """The answers of a run, and how many of them were empty or did not fit."""

    def __init__(self, config: AgentConfig, state: RunState, invalid: int) -> None:
        self.invalid = invalid
        """How many answers did not fit the output type."""
        self._config = config
        self._state = state
        self._empty = 0

    def read(self, reply: ChatReply) -> AgentResult | None:
        """Return the result of an answer in text; None if the model is asked for another one."""
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
        """Count empty answers from the beginning again, after the model has called a tool."""
        self._empty = 0

    def _retry_empty(self) -> None:
        """Ask the model once more after an empty answer; raise if that is empty, too."""
        if self._state.stop is not None:
            raise no_answer_error(self._state)
        self._empty += 1
        if self._empty > 1:
            raise ModelError("The model returned an empty answer twice")
        self._state.add_correction(_EMPTY_ANSWER)

    def read_beside_calls(self, reply: ChatReply) -> AgentResult:
        """Return the text beside calls that were not run any more as the result."""
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
        """Return an answer in text as the result, or raise :class:`ToolArgumentsError` if it is not valid."""
        stop, output = self._state.stop, self._config.output
        reason = "answer" if stop is None else stop.name
        if output is None:
            return self._state.result(reason, text, text)
        answer = output.read_text(text)
        return self._state.result(reason, output.text(text, answer), answer)

    def count_invalid(self, problem: ToolArgumentsError) -> None:
        """Count an answer that did not fit; raise :class:`ToolArgumentsError` if the model gets no other try."""
        self.invalid += 1
        if self.invalid > self._config.limits.output_retries:
            times = "once" if self.invalid == 1 else f"{self.invalid} times"
            raise ToolArgumentsError(f"The answer did not fit {times}: {describe_error(problem)}")

    def is_final(self, call: ToolCall) -> bool:
        """Return whether a call is the answer, not the call of a tool."""
        return self._config.output is not None and call.name == FINAL_ANSWER


def no_answer_error(state: RunState) -> MaxIterationsExceededError:
    """Return the error of a run whose budget is used up, and whose model did not answer when it was asked to."""
    stop = state.stop
    assert stop is not None  # noqa: S101 - only called when a budget is used up
    return MaxIterationsExceededError(f"{stop.summary} reached, and the model returned no final answer")
