"""A hand-written agent loop: three lines for each provider."""

import pytest

from helpers.sample_types import TABLE, Node, tool_of
from helpers.sdk_checks import CHECK_TOOL
from toolsemble import ImageContent, Toolbox, ToolCall, ToolDefinitionError, ToolReply, ToolResult, tool
from toolsemble._vocabulary.provider_list import PROVIDERS


@tool
def weather(city: str, days: int = 3) -> str:
    """The weather in a city."""
    return f"{days} sunny days in {city}"


BOX = Toolbox([weather])

# provider, the model's call, the call we read, the reply's essential part
LOOPS = [
    (
        "openai",
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}},
        {"role": "tool", "tool_call_id": "c1", "content": "3 sunny days in Rome"},
    ),
    (
        "openai",
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Rome"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "3 sunny days in Rome"},
    ),
    (
        "anthropic",
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Rome"}},
        {"type": "tool_result", "tool_use_id": "c1", "content": "3 sunny days in Rome"},
    ),
    (
        "google",
        {"function_call": {"id": "c1", "name": "weather", "args": {"city": "Rome"}}},
        {"function_response": {"id": "c1", "name": "weather", "response": {"output": "3 sunny days in Rome"}}},
    ),
    (
        "bedrock",
        {"toolUse": {"toolUseId": "c1", "name": "weather", "input": {"city": "Rome"}}},
        {"toolResult": {"toolUseId": "c1", "status": "success", "content": [{"text": "3 sunny days in Rome"}]}},
    ),
    (
        "mistral",
        {"id": "c1", "function": {"name": "weather", "arguments": {"city": "Rome"}}},
        {"role": "tool", "tool_call_id": "c1", "name": "weather", "content": "3 sunny days in Rome"},
    ),
    (
        "ollama",
        {"function": {"name": "weather", "arguments": {"city": "Rome"}}},
        {"role": "tool", "tool_name": "weather", "content": "3 sunny days in Rome"},
    ),
    (
        "mcp",
        {"name": "weather", "arguments": {"city": "Rome"}},
        {"content": [{"type": "text", "text": "3 sunny days in Rome"}], "isError": False},
    ),
]


@pytest.mark.parametrize(("provider", "asked", "answered"), LOOPS)
def test_call_and_reply_convert_from_and_to_each_provider(provider, asked, answered):
    call = getattr(ToolCall, f"from_{provider}")(asked)
    reply = getattr(BOX.execute(call), f"to_{provider}")()
    assert reply == {**reply, **answered}
    generic = ToolCall.from_provider(provider, asked)
    assert (generic, BOX.execute(generic).to_provider(provider)) == (call, reply)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_specification_names_the_tool_for_every_provider(provider):
    offered = getattr(BOX, f"to_{provider}")()
    assert offered == BOX.to_provider(provider)
    assert '"weather"' in __import__("json").dumps(offered)
    assert isinstance(offered, list)


def test_openai_supports_two_apis_and_strict_mode():
    (chat,) = BOX.to_openai(strict=True)
    assert chat["function"]["strict"] is True
    assert chat["function"]["parameters"]["required"] == ["city", "days"]
    (response,) = BOX.to_openai(api="responses")
    assert (response["name"], response["strict"]) == ("weather", False)


def test_inexpressible_strict_schema_is_a_definition_error():
    @tool(strict=True)
    def bad(table: dict[str, int]) -> str:
        return str(table)

    with pytest.raises(ToolDefinitionError, match=r"Tool 'bad' cannot be strict: .*\$\.table"):
        Toolbox([bad])
    loose = Toolbox([tool("bad")(lambda table: table)])
    with pytest.raises(ToolDefinitionError, match=r"openai: .*\$\.table"):
        loose.to_openai(strict=True)


def test_null_omits_a_parameter_in_strict_mode():
    @tool(strict=True)
    def function(days: int = 3) -> str:
        return str(days)

    assert Toolbox([function], repair=False).execute(ToolCall("function", {"days": None})).text == "3"


def test_reply_has_the_fields_that_providers_need():
    image = ImageContent(b"123", "image/png")
    reply = ToolReply(ToolCall("weather", id="c1"), ToolResult.success("a map", contents=[image]))
    assert (reply.call_id, reply.name, reply.contents) == ("c1", "weather", (image,))
    assert reply.to_openai(api="responses")["type"] == "function_call_output"
    assert len(reply.to_anthropic()["content"]) == 2


@pytest.mark.parametrize("annotation", [row[0] for row in TABLE], ids=str)
def test_every_sdk_accepts_every_type(annotation):
    function, _ = tool_of(annotation)
    specifications = Toolbox([function]).specifications
    for provider, check in CHECK_TOOL.items():
        (offered,) = provider.write_tools(specifications)
        check(offered)


def test_every_sdk_accepts_a_recursive_type():
    function, _ = tool_of(Node)
    for provider, check in CHECK_TOOL.items():
        (offered,) = provider.write_tools(Toolbox([function]).specifications)
        check(offered)
