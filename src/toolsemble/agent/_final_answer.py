"""Answers through the final-answer tool, which a model calls if it has no structured output of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from toolsemble._runtime.text import describe_error
from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.errors import ToolArgumentsError
from toolsemble._vocabulary.result import ToolResult
from toolsemble.agent._output import FINAL_ANSWER, Output


class FinalAnswer(NamedTuple):
    """An answer through the final-answer tool: its value, or its problem."""

    text: str = ""
    output: Any = None
    problem: ToolArgumentsError | None = None


def read_final_answer(
    output: Output, calls: Sequence[ToolCall], reply: Callable[[int, ToolResult], object]
) -> FinalAnswer | None:
    """Return the first valid answer through the final-answer tool, or the last invalid one; None if there is none.

    :param reply: called with the index of each call of that tool, and the reply to it

    >>> read_final_answer(Output(int), [ToolCall("now")], print) is None
    True
    """
    answer: FinalAnswer | None = None
    for index, call in enumerate(calls):
        if call.name != FINAL_ANSWER:
            continue
        if answer is not None and answer.problem is None:
            reply(index, ToolResult.failure("There is an answer already"))
            continue
        try:
            value = output.read(call.json)
            answer = FinalAnswer(output.text(call.json, value), value)
            reply(index, ToolResult.success("The answer is taken"))
        except ToolArgumentsError as problem:
            answer = FinalAnswer(problem=problem)
            reply(index, ToolResult.failure(describe_error(problem)))
    return answer
