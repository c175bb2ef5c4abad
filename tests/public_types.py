"""What type checkers see: checked by mypy as part of the lint, never run."""

from collections.abc import Mapping
from typing import Any, assert_type

from toolsemble import (
    AgentTool,
    Content,
    InMemoryMetrics,
    Tool,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolMetrics,
    ToolReply,
    ToolResult,
    ToolSpecification,
)
from toolsemble.providers import openai
from toolsemble.providers.wire import Offer


class Shout(Tool):
    name = "shout"
    description = "Says it louder"

    def run(self, input: str) -> str:
        assert_type(self.context, ToolContext)
        assert_type(self.metrics, ToolMetrics)
        return input.upper()


class Whisper(Tool):
    name = "whisper"

    @property
    def description(self) -> str:  # type: ignore[override]  # a property in place of a class attribute works at run time
        return "Says it softly"

    async def run(self, input: str) -> ToolResult:
        return ToolResult.success(input.lower())


class Plain:
    name = "plain"
    description = "Repeats its input"

    def execute(self, input: str) -> ToolResult:
        return ToolResult.success(input)


async def check() -> None:
    tools: list[AgentTool] = [Shout(), Plain()]
    box = Toolbox([*tools, Whisper()], metrics=InMemoryMetrics(), max_concurrency=4)
    call = ToolCall("shout", {"input": "hello"})
    assert_type(Shout().execute("hello"), ToolResult)
    assert_type(await Shout().aexecute("hello"), ToolResult)
    assert_type(box.execute(call), ToolReply)
    assert_type(await box.aexecute(call), ToolReply)
    assert_type(box.execute_all([call]), list[ToolReply])
    assert_type(await box.aexecute_all([call]), list[ToolReply])
    assert_type(box.specifications, list[ToolSpecification])
    assert_type(box.specifications[0].parameters, dict[str, Any] | None)
    offers: list[Offer] = [*box.specifications]
    assert_type(openai.write_tools(offers, api="responses", strict=True), list[dict[str, Any]])
    assert_type(openai.read_call({}), tuple[str, str | dict[str, Any] | None, str | None])
    assert_type(box.execute(call).result.contents, tuple[Content, ...])
    assert_type(box.execute(call).result.attributes, Mapping[str, Any])
    assert_type(call.arguments, str | dict[str, Any])
