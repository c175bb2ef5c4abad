"""An agent as a tool of another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from toolsemble.agent.result import AgentResult
from toolsemble.definition.definition import Names, ToolDefinition
from toolsemble.result import ToolResult
from toolsemble.tools.base import Tool
from toolsemble.tools.settings import ToolSettings


class Runs(Protocol):
    """Whatever can do a run: an agent."""

    async def run(self, prompt: str) -> AgentResult:
        """Work until there is an answer."""
        ...


class Delegate(Tool):
    """A tool that hands its input to an agent, and gives the agent's answer.

    The answer's object, the whole result and the reason why it ended are for programs.

    >>> from toolsemble import Agent
    >>> from toolsemble.testing import ScriptedModel
    >>> poet = Agent(ScriptedModel(["Roses are red"])).as_tool("poet", "Writes a poem")
    >>> poet.execute("roses").output
    'Roses are red'
    """

    def __init__(
        self, agent: Runs, name: str, description: str, settings: ToolSettings, inside: Callable[[], Names]
    ) -> None:
        self.name = name
        self.description = description
        self._apply(settings)
        self._agent = agent
        self._inside = inside

    def _define(self) -> ToolDefinition:
        return replace(super()._define(), inside=self._inside)

    async def run(self, input: str) -> ToolResult:
        """Let the agent work on the input, inside the context of this call."""
        if not input.strip():
            return ToolResult.failure("The input is blank; say what is to be done")
        result = await self._agent.run(input)
        return ToolResult.success(
            result.text, result.output, attributes={"stop_reason": result.stop_reason, "result": result}
        )
