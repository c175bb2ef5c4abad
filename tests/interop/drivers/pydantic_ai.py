"""Pydantic AI: an agent with a `FunctionModel`."""

from __future__ import annotations

from pydantic_ai import Agent, BinaryContent, RunContext, Tool
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.toolsets import ExternalToolset, FunctionToolset

from interop.kit import Seen
from interop.natives import write_functions
from toolsemble import Continue, Edit

MODULE = "pydantic_ai"
DISTRIBUTIONS = ("pydantic-ai-slim",)


def agent(exported, calls, **settings):
    requests = [ToolCallPart(each.name, each.json, tool_call_id=each.id) for each in calls]
    replies = iter([ModelResponse(requests), ModelResponse([TextPart("Done.")])])
    return Agent(FunctionModel(lambda messages, info: next(replies)), toolsets=[exported], **settings)


async def run(exported, calls):
    return read(await agent(exported, calls).run("Buy tea."), calls)


async def pause(exported, calls, decide):
    paused = agent(exported, calls, output_type=[str, DeferredToolRequests])
    result = await paused.run("Buy tea.")
    while isinstance(result.output, DeferredToolRequests):
        asked = result.output
        given = {
            each.tool_call_id: answer(decide(asked.metadata[each.tool_call_id]["arguments"]))
            for each in asked.approvals
        }
        deferred = DeferredToolResults(approvals=given)
        result = await paused.run(message_history=result.all_messages(), deferred_tool_results=deferred)
    return read(result, calls)


def answer(decision):
    if isinstance(decision, Edit):
        return ToolApproved(override_args={"item": "tea", "count": 2})
    return isinstance(decision, Continue) or ToolDenied(decision.reason)


def read(result, calls):
    assert result.output == "Done."
    parts = [part for message in result.all_messages() for part in message.parts]
    found = {part.tool_call_id: read_part(part) for part in parts if isinstance(part, ToolReturnPart)}
    return [found[each.id] for each in calls]


def read_part(part):
    content = part.content if isinstance(part.content, list) else [part.content]
    media = [(each.media_type, each.data) for each in content if isinstance(each, BinaryContent)]
    return Seen(content[0], part.outcome != "success", media, part.metadata)


def offer(function):
    return FunctionToolset([function])


def native(log):
    return [Tool(each) for each in write_functions(log)]


def refused():
    def context(ctx: RunContext[None], city: str) -> str:
        """Read the context."""
        return city

    return [(Tool(context), "RunContext"), (ExternalToolset([]), "a run")]
