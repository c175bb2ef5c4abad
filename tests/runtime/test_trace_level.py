"""The log level TRACE shows what a provider is sent, when it is sent."""

import asyncio
import json
import logging

import pytest

from helpers.web_server import serving
from toolsemble import Toolbox, ToolsembleError, tool
from toolsemble._runtime.trace_level import TRACE
from toolsemble.models import (
    AnthropicModel,
    BedrockModel,
    ChatRequest,
    GoogleModel,
    MistralModel,
    OpenAIModel,
    UserMessage,
)


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return city


BOX = Toolbox([weather])
MODELS = {
    "openai x": lambda url: OpenAIModel("x", api="chat", base_url=f"{url}/v1", api_key="k"),
    "anthropic x": lambda url: AnthropicModel("x", base_url=url, api_key="k", cache=False),
    "google gemini-3-flash": lambda url: GoogleModel("gemini-3-flash", base_url=url, api_key="k"),
    "mistral x": lambda url: MistralModel("x", base_url=url, api_key="k"),
    "bedrock x": lambda url: BedrockModel("x", base_url=url, region="us-east-1", api_key="k"),
}


def test_level_has_a_name(caplog):
    caplog.set_level(TRACE, "toolsemble")
    written = BOX.to_anthropic()
    (record,) = caplog.records
    assert (record.levelname, record.name) == ("TRACE", "toolsemble.tool")
    assert record.getMessage() == f"anthropic tools: {json.dumps(written)}"


@pytest.mark.parametrize("receiver", MODELS)
def test_each_request_is_traced_in_the_format_of_the_provider(receiver, caplog):
    specifications = BOX.specifications
    caplog.set_level(TRACE, "toolsemble")
    with serving() as web:
        model = MODELS[receiver](web.url("").rstrip("/"))
        for _ in range(2):
            with pytest.raises(ToolsembleError):
                asyncio.run(model.reply(ChatRequest([UserMessage("hello")], specifications)))
    sent = f"{receiver} tools: {json.dumps(BOX.to_provider(receiver.split()[0]))}"
    lines = [record.getMessage() for record in caplog.records if record.name == "toolsemble.models"]
    assert lines[:2] == [sent, sent]


def test_nothing_is_written_above_the_level(caplog):
    caplog.set_level(logging.DEBUG, "toolsemble")
    BOX.to_openai()
    assert caplog.records == []
