"""Metadata under the name of a provider is sent to that provider, and to no other."""

import asyncio
import json

import pytest

from helpers.columns import column
from helpers.web_server import serving
from toolsemble import SchemaTool, Tool, Toolbox, ToolDefinitionError, ToolsembleError, ToolSpecification, tool
from toolsemble._vocabulary.provider_list import PROVIDERS
from toolsemble.mcp._server.calls import Listing
from toolsemble.models import (
    AnthropicModel,
    BedrockModel,
    ChatRequest,
    GoogleModel,
    MistralModel,
    OpenAIModel,
    UserMessage,
)

METADATA = {
    "team": "web",
    "title": "Weather",
    **{provider: {f"for_{provider}": [{"city": "Rome"}]} for provider in PROVIDERS},
}


@tool(metadata=METADATA)
def weather(city: str) -> str:
    """The weather in a city."""
    return city


BOX = Toolbox([weather])


def find_marks(sent):
    """Return the marks of METADATA in what was sent."""
    text = json.dumps(sent)
    return [provider for provider in PROVIDERS if f"for_{provider}" in text]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_provider_gets_its_own_metadata_beside_the_name(provider):
    written = BOX.to_provider(provider)
    (shown,) = written[0]["function_declarations"] if provider == "google" else written
    named = shown.get("function") or shown.get("toolSpec") or shown
    assert named["name"] == "weather"
    assert named[f"for_{provider}"] == [{"city": "Rome"}]
    assert find_marks(written) == [provider]
    assert "team" not in json.dumps(written)


MODELS = {
    "openai": [
        lambda url: OpenAIModel("x", api="chat", base_url=f"{url}/v1", api_key="k"),
        lambda url: OpenAIModel("x", api="responses", base_url=f"{url}/v1", api_key="k"),
    ],
    "anthropic": [lambda url: AnthropicModel("x", base_url=url, api_key="k")],
    "google": [lambda url: GoogleModel("gemini-3-flash", base_url=url, api_key="k")],
    "mistral": [lambda url: MistralModel("x", base_url=url, api_key="k")],
    "bedrock": [lambda url: BedrockModel("x", base_url=url, region="us-east-1", api_key="k")],
}


def record_requests(make, specifications):
    """Return the bodies of the requests that a model sends to a server that has no answer, and the error."""
    with serving() as web:
        with pytest.raises(ToolsembleError) as error:
            asyncio.run(make(web.url("").rstrip("/")).reply(ChatRequest([UserMessage("hello")], specifications)))
        return [json.loads(body) for _, _, _, body in web.requests], str(error.value)


@pytest.mark.parametrize(
    ("provider", "make"), [(name, make) for name in ("openai", "anthropic") for make in MODELS[name]]
)
def test_model_sends_its_own_metadata(provider, make):
    bodies, _ = record_requests(make, BOX.specifications)
    assert bodies
    assert [find_marks(body) for body in bodies] == [[provider]] * len(bodies)


def test_gemini_gets_the_keys_that_its_sdk_knows():
    metadata = {**METADATA, "google": {"behavior": "NON_BLOCKING"}}
    bodies, _ = record_requests(MODELS["google"][0], [ToolSpecification("now", "The time", None, metadata)])
    assert bodies
    for body in bodies:
        assert body["tools"] == [
            {"functionDeclarations": [{"name": "now", "description": "The time", "behavior": "NON_BLOCKING"}]}
        ]


def test_bedrock_names_the_key_that_its_sdk_does_not_know():
    bodies, error = record_requests(MODELS["bedrock"][0], BOX.specifications)
    assert bodies == []
    assert 'Unknown parameter in toolConfig.tools[0].toolSpec: "for_bedrock"' in error


def test_mistral_sends_the_metadata_of_no_other_provider():
    bodies, _ = record_requests(MODELS["mistral"][0], BOX.specifications)
    assert bodies
    assert not any(set(find_marks(body)) - {"mistral"} for body in bodies)


def test_served_tool_has_its_metadata_for_mcp():
    @tool(metadata={"mcp": {"_meta": {"example.com/team": "web"}, "title": "Now"}})
    def now() -> str:
        """The time."""
        return "noon"

    (listed,) = Listing(Toolbox([now])).result.tools
    assert (listed.meta, listed.title) == ({"example.com/team": "web"}, "Now")


def test_bad_metadata_for_mcp_is_left_out_of_the_list(caplog):
    @tool(metadata={"mcp": {"_meta": "text"}})
    def now() -> str:
        """The time."""
        return "noon"

    (listed,) = Listing(Toolbox([now])).result.tools
    assert listed.meta is None
    assert "The metadata for MCP of now is left out" in caplog.text


def test_record_of_a_remote_tool_is_not_sent():
    remote = SchemaTool("read", "Reads", str, metadata={"mcp": {"server": "files", "name": "read_file", "title": "R"}})
    assert Toolbox([remote]).to_mcp() == [
        {"name": "read", "description": "Reads", "inputSchema": {"type": "object", "properties": {}}}
    ]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_metadata_cannot_replace_a_part_of_the_tool(provider):
    for key in ("name", "description", "parameters", "input_schema", "inputSchema", "strict", "type"):
        expected = f"metadata for '{provider}' cannot replace '{key}'; use the settings of the tool"
        with column(key), pytest.raises(ToolDefinitionError, match=f"Tool 'now': {expected}"):
            Toolbox([SchemaTool("now", "The time", str, metadata={provider: {key: "x"}})])
        with column(key), pytest.raises(ToolDefinitionError, match=f"Tool specification: {expected}"):
            ToolSpecification("now", "The time", metadata={provider: {key: "x"}})


@pytest.mark.parametrize("settings", ["text", 5, None, ["a"], {1: 2}])
def test_metadata_for_a_provider_is_a_mapping(settings):
    with pytest.raises(ToolDefinitionError, match="metadata for 'anthropic' must be a mapping with names as keys"):
        ToolSpecification("now", "The time", metadata={"anthropic": settings})


def test_metadata_may_be_json_text():
    text = '{"anthropic": {"defer_loading": true}}'

    class Now(Tool):
        name = "now"
        description = "The time"
        metadata = text

        def run(self, input):
            return "noon"

    assert Toolbox([Now()]).to_anthropic()[0]["defer_loading"] is True
    assert ToolSpecification("now", "", metadata=text).metadata == {"anthropic": {"defer_loading": True}}
    assert Toolbox([tool("now", "The time", metadata="{}")(lambda: "noon")]).specifications[0].metadata == {}


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ("{", "metadata is not JSON: "),
        ("", "metadata is not JSON: "),
        ("[1]", r"metadata must be a mapping or None, not \[1\]; or the JSON text of an object"),
        (5, "metadata must be a mapping or None, not 5; or the JSON text of an object"),
        ([], r"metadata must be a mapping or None, not \[\]; or the JSON text of an object"),
    ],
)
def test_other_metadata_is_refused(metadata, problem):
    with pytest.raises(ToolDefinitionError, match=problem):
        ToolSpecification("now", "", metadata=metadata)
    with pytest.raises(ToolDefinitionError, match=f"Tool 'now': {problem}"):
        Toolbox([SchemaTool("now", "The time", str, metadata=metadata)])
