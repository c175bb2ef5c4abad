"""``human_input``: a tool with which the model asks a person."""

from __future__ import annotations

from toolsemble._tools.base import Tool
from toolsemble._vocabulary.errors import ExitEarlyError, ToolArgumentsError
from toolsemble.review import Edit, ExitEarly, OnTimeout
from toolsemble.review._terms import TIMEOUT, check_terms


class HumanInputTool(Tool):
    """A tool that asks the reviewer a question and returns the answer.

    The text of an ``Edit`` is the answer; ``ExitEarly`` stops the run. Without a reviewer, or on a timeout, the model
    is told to continue, unless ``on_timeout`` says otherwise.

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

    def __init__(
        self,
        *,
        timeout: float | None = TIMEOUT,
        on_timeout: OnTimeout = OnTimeout.CONTINUE,
        name: str | None = None,
        description: str | None = None,
    ) -> None:
        """Set the timeout for an answer in seconds, and the behavior on timeout.

        :param name: another name for the model
        :param description: another description for the model
        """
        self._set_names(name, description)
        check_terms("HumanInputTool: ", timeout, on_timeout)
        self._timeout = timeout
        self._on_timeout = on_timeout

    async def run(self, input: str) -> str:
        """Return the person's answer."""
        if not input.strip():
            raise ToolArgumentsError("The question is empty; ask one that a person can answer")
        if self.context.review is None:
            return "No reviewer is available. Please proceed with your best judgment."
        decision = await self.arequest_approval(
            input, arguments=input, timeout=self._timeout, on_timeout=self._on_timeout
        )
        if isinstance(decision, ExitEarly):
            raise ExitEarlyError(decision.reason or "A person stopped the run", timed_out=decision.timed_out)
        return decision.revised if isinstance(decision, Edit) else "Understood. Please continue."
