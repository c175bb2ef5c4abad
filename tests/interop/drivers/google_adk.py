"""Google ADK: a runner with a scripted model."""

from __future__ import annotations

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools import FunctionTool, LongRunningFunctionTool, ToolContext, google_search
from google.adk.tools.base_toolset import BaseToolset
from google.genai import types

from interop.kit import Seen
from interop.natives import write_functions
from toolsemble import Continue, Edit

MODULE = "google_adk"
DISTRIBUTIONS = ("google-adk",)
CONFIRMATION = "adk_request_confirmation"


class Scripted(BaseLlm):
    """A model that makes the calls in its first turn, and then ends."""

    model: str = "scripted"
    turns: list

    async def generate_content_async(self, llm_request, stream=False):
        content = types.Content(role="model", parts=self.turns.pop(0))
        yield LlmResponse(content=content, usage_metadata=types.GenerateContentResponseUsageMetadata())


class Conversation:
    """A session with an agent, and the reply to each call."""

    def __init__(self, exported, calls):
        requests = [types.FunctionCall(id=each.id, name=each.name, args=each.arguments) for each in calls]
        turns = [[types.Part(function_call=each) for each in requests], [types.Part(text="Done.")]]
        agent = LlmAgent(
            name="shop", model=Scripted(turns=turns), tools=exported, after_tool_callback=self.keep_payload
        )
        self.runner = InMemoryRunner(agent, app_name="shop")
        self.payloads, self.events = {}, []

    def keep_payload(self, tool, args, tool_context, tool_response):
        self.payloads[tool_context.function_call_id] = getattr(tool_response, "structured_output", None)

    async def start(self):
        self.session = await self.runner.session_service.create_session(app_name="shop", user_id="ada")
        return await self.send(types.Part(text="Buy tea."))

    async def send(self, *parts):
        """Send a message, and return the confirmations that are asked for."""
        message = types.Content(role="user", parts=list(parts))
        events = [
            each async for each in self.runner.run_async(user_id="ada", session_id=self.session.id, new_message=message)
        ]
        self.events += events
        return [call for each in events for call in each.get_function_calls() if call.name == CONFIRMATION]

    def read(self, calls):
        assert self.events[-1].content.parts[-1].text == "Done."
        found = {each.id: each for event in self.events for each in event.get_function_responses()}
        return [self.read_response(found[each.id]) for each in calls]

    def read_response(self, found):
        [text] = found.response.values()
        media = [(each.inline_data.mime_type, each.inline_data.data) for each in found.parts or []]
        return Seen(text, "error" in found.response, media, self.payloads.get(found.id))


async def run(exported, calls):
    conversation = Conversation(exported, calls)
    assert await conversation.start() == []
    return conversation.read(calls)


async def pause(exported, calls, decide):
    conversation = Conversation(exported, calls)
    asked = await conversation.start()
    while asked:
        answers = [(each, answer(decide(each.args["toolConfirmation"]["payload"]["arguments"]))) for each in asked]
        asked = await conversation.send(*(confirm(each, given) for each, given in answers))
    return conversation.read(calls)


def answer(decision):
    if isinstance(decision, Edit):
        return {"confirmed": True, "payload": {"decision": "edit", "revised": decision.revised}}
    if isinstance(decision, Continue):
        return {"confirmed": True}
    return {"confirmed": False, "payload": {"reason": decision.reason}}


def confirm(asked, response):
    return types.Part(function_response=types.FunctionResponse(id=asked.id, name=CONFIRMATION, response=response))


def offer(function):
    return [FunctionTool(function)]


def native(log):
    return [FunctionTool(each) for each in write_functions(log)]


def refused():
    def context(city: str, tool_context: ToolContext) -> str:
        """Read the context."""
        return city

    def later(city: str) -> str:
        """Answer later."""
        return city

    class Set(BaseToolset):
        async def get_tools(self, readonly_context=None):
            return []

    return [
        (FunctionTool(context), "tool_context"),
        (context, "tool_context"),
        (LongRunningFunctionTool(later), "the answer later"),
        (google_search, "GoogleSearchTool"),
        (Set(), "a run of an agent"),
    ]
