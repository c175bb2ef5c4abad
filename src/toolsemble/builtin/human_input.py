"""A person whom the model can ask."""

from __future__ import annotations

from toolsemble.errors import ExitEarlyError, ToolArgumentsError
from toolsemble.review import Edit, ExitEarly, OnTimeout
from toolsemble.review.gate import check_terms
from toolsemble.review.request import TIMEOUT
from toolsemble.tools.base import Tool


class HumanInputTool(Tool):
    """Puts a question of the model to the reviewer, and gives the model the answer.

    An edit is the answer's text; whoever exits early stops the run. Without a reviewer, or when nobody answers in time,
    the model goes on by itself, unless ``on_timeout`` says otherwise.

    >>> from toolsemble import Edit, Toolbox, ToolCall
    >>> from toolsemble.review import CallbackReview
    >>> box = Toolbox([HumanInputTool()], review=CallbackReview(lambda request: Edit("the blue one")))
    >>> box.execute(ToolCall("human_input", {"input": "Which one do you want?"})).text
    'the blue one'
    """

    name = "human_input"
    description = (
        "Asks a person a question and gives the answer. Use it when something is unclear that only a person can know "
        "or decide, and never for what you can find out yourself. Input: the question, with everything needed to "
        "answer it."
    )

    def __init__(self, *, timeout: float | None = TIMEOUT, on_timeout: OnTimeout = OnTimeout.CONTINUE) -> None:
        """Take down how long a person has for an answer, and what becomes of a question that nobody answers."""
        check_terms("HumanInputTool: ", timeout, on_timeout)
        self._patience = timeout
        self._on_silence = on_timeout

    async def run(self, input: str) -> str:
        """Give the person's answer."""
        if not input.strip():
            raise ToolArgumentsError("The question is empty; ask one that a person can answer")
        if self.context.review is None:
            return "No reviewer is available. Please proceed with your best judgment."
        decision = await self.arequest_approval(
            input, arguments=input, timeout=self._patience, on_timeout=self._on_silence
        )
        if isinstance(decision, ExitEarly):
            raise ExitEarlyError(decision.reason or "A person stopped the run", timed_out=decision.timed_out)
        return decision.revised if isinstance(decision, Edit) else "Understood. Please continue."
