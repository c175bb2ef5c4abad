"""The OpenAI Agents SDK: an agent with its own `ScriptedModel`."""

from __future__ import annotations

from base64 import b64decode

from agents import Agent, RunConfig, RunContextWrapper, Runner, WebSearchTool, function_tool
from agents.items import ToolCallOutputItem
from agents.testing.model import ScriptedModel, assistant_message, function_call

from interop.kit import Seen
from interop.natives import write_functions
from toolsemble import Continue

MODULE = "openai_agents"
DISTRIBUTIONS = ("openai-agents",)
EDITS = False  # a call is approved or rejected as it is

CONFIG = RunConfig(tracing_disabled=True)


def agent(exported, calls):
    requests = [function_call(each.name, each.json, call_id=each.id) for each in calls]
    return Agent("shop", model=ScriptedModel([requests, [assistant_message("Done.")]]), tools=exported)


async def run(exported, calls):
    return read(await Runner.run(agent(exported, calls), "Buy tea.", run_config=CONFIG), calls)


async def pause(exported, calls, decide):
    shop = agent(exported, calls)
    result = await Runner.run(shop, "Buy tea.", run_config=CONFIG)
    while result.interruptions:
        state = result.to_state()
        for each in result.interruptions:
            asked = await exported_of(exported, each.name).find_request(each.arguments, each.call_id)
            decision = decide(asked.arguments)
            if isinstance(decision, Continue):
                state.approve(each)
            else:
                state.reject(each, rejection_message=decision.reason)
        result = await Runner.run(shop, state, run_config=CONFIG)
    return read(result, calls)


def exported_of(exported, name):
    return next(each.on_invoke_tool.exported for each in exported if each.name == name)


def read(result, calls):
    assert result.final_output == "Done."
    found = {each.raw_item["call_id"]: each for each in result.new_items if isinstance(each, ToolCallOutputItem)}
    return [read_item(found[each.id]) for each in calls]


def read_item(item):
    sent = item.raw_item["output"]
    blocks = [{"type": "input_text", "text": sent}] if isinstance(sent, str) else sent
    media = [read_url(each["image_url"]) for each in blocks if each["type"] == "input_image"]
    return Seen(blocks[0]["text"], None, media, (item.custom_data or {}).get("structured_output"))


def read_url(url):
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return kind, b64decode(data)


def offer(function):
    return [function_tool(function)]


def native(log):
    return [function_tool(each) for each in write_functions(log)]


def refused():
    @function_tool
    def context(context: RunContextWrapper[None], city: str) -> str:
        """Read the context."""
        return city

    return [(context, "RunContextWrapper"), (WebSearchTool(), "the servers of OpenAI")]
