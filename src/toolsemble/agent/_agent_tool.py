"""An agent as a tool of another agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from toolsemble._engine.definition.definition import Names, ToolDefinition
from toolsemble._engine.execution.edits import EditedArguments
from toolsemble._tools.base import Tool
from toolsemble._tools.settings import ToolSettings
from toolsemble._vocabulary.result import ToolResult
from toolsemble.agent._pause_point import Resumed, enter_agent_call, leave_agent_open
from toolsemble.agent._result import AgentResult


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
