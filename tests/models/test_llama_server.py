"""A real model on llama.cpp's server, through OpenAI's two APIs and Anthropic's."""

import json
from contextlib import aclosing

import pytest

from helpers.llama_server import MODEL, llama_server
from helpers.provider_checks import result_of
from toolsemble import Agent, ModelError, ToolCall, ToolReply, ToolResult, tool
from toolsemble.models import (
    AnthropicModel,
    AssistantMessage,
    ChatRequest,
    OpenAIModel,
    TextDelta,
    ToolMessage,
    UserMessage,
    _model_list as model_list,
    model_of,
)
from toolsemble.models.openai._compatible import SERVERS

pytestmark = pytest.mark.timeout(600)  # a real model on a busy machine
APIS = ["chat", "responses", "anthropic"]
WEATHER = "What is the weather in Rome?"


@pytest.fixture(scope="module")
def llama():
    with llama_server() as address:
        yield address


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return "sunny, 21 degrees"


def make_model(address, api="chat"):
    if api == "anthropic":
        return AnthropicModel(MODEL, base_url=address)
    return OpenAIModel(MODEL, base_url=f"{address}/v1", api=api)


@pytest.mark.parametrize(
    ("api", "way"), [("chat", "stream"), ("responses", "run_sync"), ("anthropic", "run_sync"), ("anthropic", "stream")]
)
def test_agent_calls_tool_and_answers_with_result(llama, api, way):
    result = result_of(Agent(make_model(llama, api), [weather]), WEATHER, way)
    assert [(record.call.name, json.loads(record.call.json)) for record in result.tool_calls] == [
        ("weather", {"city": "Rome"})
    ]
    assert "21" in result.text
    assert result.usage.input_tokens > result.usage.output_tokens > 0


async def test_closing_stream_stops_generation(llama):
    model = make_model(llama)
    request = ChatRequest([UserMessage("Count from one to a hundred.")])
    async with aclosing(model.stream(request)) as pieces:
        assert isinstance(await anext(pieces), TextDelta)
    # The test does not have to wait for the rest of it.
    assert (await model.reply(ChatRequest([UserMessage("Say hello.")], settings={"max_tokens": 2}))).text


async def test_answer_matches_schema(llama):
    schema = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo"]}}}
    request = ChatRequest([UserMessage("What is the capital of Italy?")], output_schema=schema)
    assert json.loads((await make_model(llama).reply(request)).text) == {"city": "Rome"}


async def test_too_long_answer_has_stop_reason_length(llama):
    request = ChatRequest([UserMessage("Count from one to a hundred.")], settings={"max_tokens": 3})
    assert (await make_model(llama).reply(request)).stop_reason == "length"


@pytest.mark.parametrize("api", APIS)
async def test_too_long_question_is_not_retryable(llama, api):
    with pytest.raises(ModelError, match=r"400.*exceeds the available context size") as caught:
        await make_model(llama, api).reply(ChatRequest([UserMessage("x " * 6000)]))
    assert not caught.value.retryable


async def test_conversation_continues_after_invalid_arguments(llama):
    call = ToolCall("weather?", '{"city": ')
    reply = ToolMessage(ToolReply(call, ToolResult.failure("no JSON")))
    request = ChatRequest([UserMessage(WEATHER), AssistantMessage("", (call,)), reply], settings={"max_tokens": 5})
    assert (await make_model(llama).reply(request)).text


def test_server_is_found_at_default_address(llama, monkeypatch):
    monkeypatch.setenv("LLAMACPP_HOST", llama)
    monkeypatch.setattr(model_list, "SECONDS", 60.0)  # this machine may be busy
    assert model_of("llamacpp").name == MODEL
    assert SERVERS["llamacpp"].address == f"{llama}/v1"
