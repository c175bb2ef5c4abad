"""The Agent Framework: an agent with a scripted chat client."""

from __future__ import annotations

from base64 import b64decode

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationContext,
    FunctionInvocationLayer,
    FunctionTool,
    Message,
    tool,
)

from interop.kit import Seen
from interop.natives import write_functions

MODULE = "agent_framework"
DISTRIBUTIONS = ("agent-framework-core",)


class Scripted(FunctionInvocationLayer, BaseChatClient):
    """A client whose model makes the calls in its first turn, and then ends."""

    def __init__(self, calls):
        super().__init__()
        requests = [Content.from_function_call(each.id, each.name, arguments=each.json) for each in calls]
        self.turns = [requests, ["Done."]]

    async def _inner_get_response(self, *, messages, stream, options, **_):
        return ChatResponse(messages=[Message("assistant", self.turns.pop(0))])


async def run(exported, calls):
    response = await Agent(Scripted(calls), tools=exported).run("Buy tea.")
    assert response.text == "Done."
    results = {
        each.call_id: each
        for message in response.messages
        for each in message.contents
        if each.type == "function_result"
    }
    return [read(results[each.id]) for each in calls]


def read(result):
    assert result.exception is None
    [text, *media] = result.items
    decoded = [(each.media_type, b64decode(each.uri.partition(",")[2])) for each in media]
    return Seen(text.text, None, decoded, text.additional_properties.get("structured_output"))


def offer(function):
    return [tool(function)]


def native(log):
    return [tool(each) for each in write_functions(log)]


def refused():
    @tool
    def session(city: str, context: FunctionInvocationContext) -> str:
        """Read the session."""
        return str(context.session)

    shown = FunctionTool(name="shown", description="Run by a client.", input_model={"type": "object"})
    return [(session, "FunctionInvocationContext"), (shown, "a client that runs it")]
