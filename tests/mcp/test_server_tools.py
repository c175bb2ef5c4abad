"""Tools of a served toolbox: listing, calls, results, errors."""

import sys
from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

import pydantic
import pydantic.dataclasses
import pytest
from mcp import MCPError
from pydantic import Field

from helpers.mcp_server import ERAS, serve_http, serve_program, text_of
from toolsemble import (
    Agent,
    ImageContent,
    Param,
    SchemaTool,
    Secret,
    Tool,
    Toolbox,
    ToolContext,
    ToolDefinitionError,
    ToolExecutionError,
    ToolResult,
    tool,
)
from toolsemble.mcp import asgi
from toolsemble.testing import ScriptedModel

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("era", ERAS)]


@dataclass
class Weather:
    city: str
    celsius: float


@dataclass
class Node:
    name: str
    children: list["Node"]


class Reading(TypedDict):
    value: int


@tool(effects="read", metadata={"title": "Weather now"})
def weather(city: Annotated[str, Param("The city")], days: Annotated[int, Param("How many")] = 1) -> Weather:
    """Return the weather."""
    return Weather(city, 20.0 + days)


@tool(effects="irreversible", idempotent=True)
def wipe(path: str) -> None:
    """Wipe a disk."""


@tool
def count(text: str) -> int:
    """Count letters."""
    return len(text)


@tool
def greet(name: str) -> str:
    """Greet."""
    return f"Hello {name}"


@pytest.fixture
async def listed(era):
    async with serve_http(Toolbox([weather, wipe, count, greet]), era) as client:
        return {each.name: each for each in (await client.list_tools()).tools}


async def test_a_listing_has_names_titles_and_descriptions(listed):
    assert list(listed) == ["weather", "wipe", "count", "greet"]
    assert (listed["weather"].title, listed["weather"].description) == ("Weather now", "Return the weather.")


async def test_a_listing_has_the_whole_schema(era):
    schema = {
        "type": "object",
        "properties": {"size": {"$ref": "#/$defs/size"}},
        "$defs": {"size": {"type": "integer", "minimum": 1, "maximum": 9}},
        "if": {"required": ["size"]},
        "then": {"minProperties": 1},
        "additionalProperties": False,
    }
    box = Toolbox([SchemaTool("resize", "Resize", lambda arguments: "done", schema)])
    async with serve_http(box, era) as client:
        (resize,) = (await client.list_tools()).tools
    assert resize.input_schema == schema


async def test_effects_become_annotations(listed):
    hints = listed["wipe"].annotations
    assert listed["weather"].annotations.read_only_hint is True
    assert (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint) == (False, True, True)
    assert listed["greet"].annotations is None


async def test_a_declared_object_is_the_output_schema(listed):
    schema = listed["weather"].output_schema
    assert schema["type"] == "object"
    assert set(schema["properties"]) == {"city", "celsius"}


async def test_any_other_declared_type_is_wrapped(listed):
    assert listed["count"].output_schema["properties"] == {"result": {"type": "integer"}}


async def test_texts_and_nothing_have_no_output_schema(listed):
    assert listed["greet"].output_schema is None
    assert listed["wipe"].output_schema is None


async def test_structured_content_is_sent_beside_the_text(era):
    async with serve_http(Toolbox([weather, count]), era) as client:
        result = await client.call_tool("weather", {"city": "Rome"})
        number = await client.call_tool("count", {"text": "four"})
    assert (text_of(result), result.is_error) == ('{"city":"Rome","celsius":21.0}', False)
    assert result.structured_content == {"city": "Rome", "celsius": 21.0}
    assert number.structured_content == {"result": 4}


def recursive() -> Node:
    return Node("root", [Node("leaf", [])])


def typed_dict() -> Reading:
    return {"value": 3}


def optional() -> Weather | None:
    return None


def choice() -> Literal["a", "b"]:
    return "b"


def text_or_number() -> int | str:
    return "seven"


def untyped():
    return {"free": True}


def opaque() -> ToolResult:
    return ToolResult.success("fine", structured_output={"hidden": True})


class Opaque:
    """A class without a describable schema."""


def unknown_type() -> Opaque:
    return Opaque()


def wrong_schema() -> Annotated[int, Field(json_schema_extra={"type": "nothing"})]:
    return 5


@pytest.mark.parametrize(
    ("function", "structured"),
    [
        (recursive, {"name": "root", "children": [{"name": "leaf", "children": []}]}),
        (typed_dict, {"value": 3}),
        (optional, {"result": None}),
        (choice, {"result": "b"}),
        (text_or_number, {"result": "seven"}),
        (untyped, None),
        (opaque, None),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
async def test_return_types_decide_about_structured_content(era, function, structured):
    async with serve_http(Toolbox([tool(function)]), era) as client:
        result = await client.call_tool(function.__name__, {})
    assert (result.is_error, result.structured_content) == (False, structured)


async def test_a_type_without_a_schema_is_served_as_text(era):
    async with serve_http(Toolbox([tool(unknown_type), tool(wrong_schema)]), era) as client:
        assert [each.output_schema for each in (await client.list_tools()).tools] == [None, None]
        assert "Opaque" in text_of(await client.call_tool("unknown_type", {}))
        assert text_of(await client.call_tool("wrong_schema", {})) == "5"


async def test_a_value_that_does_not_fit_its_type_is_an_error(era):
    @tool
    def liar() -> int:
        return "many"

    @tool
    def huge() -> list[float]:
        return ["many"]

    @tool
    def circle() -> list[int]:
        return []

    endless = []
    endless.append(endless)

    def replace(call, result, context):
        return ToolResult.success("text", structured_output=endless) if call.name == "circle" else None

    async with serve_http(Toolbox([liar, huge, circle], after_call=replace), era) as client:
        for name in ("liar", "huge", "circle"):
            result = await client.call_tool(name, {})
            assert result.is_error
            assert "does not fit its declared type" in text_of(result)


async def test_a_limited_text_has_no_output_schema(era):
    async with serve_http(Toolbox([weather], max_output=10), era) as client:
        (listed,) = (await client.list_tools()).tools
        result = await client.call_tool("weather", {"city": "Rome"})
    assert listed.output_schema is None
    assert result.structured_content is None
    assert 'Rome",' not in text_of(result)


async def test_arguments_are_repaired_and_validated(era):
    async with serve_http(Toolbox([weather]), era) as client:
        repaired = await client.call_tool("weather", {"city": "Rome", "days": "2"})
        wrong = await client.call_tool("weather", {"days": "many"})
    assert repaired.structured_content["celsius"] == 22.0
    assert wrong.is_error
    assert wrong.structured_content is None
    assert "city: missing" in text_of(wrong)
    assert "days" in text_of(wrong)


async def test_a_call_without_arguments_is_an_empty_object(era):
    async with serve_http(Toolbox([tool(untyped)]), era) as client:
        assert text_of(await client.call_tool("untyped")) == '{"free":true}'


@pytest.mark.parametrize("name", ["weathr", "", "a" * 1000, "we\nather"])
async def test_an_unknown_tool_is_a_protocol_error(era, name):
    async with serve_http(Toolbox([weather]), era) as client:
        with pytest.raises(MCPError, match="Unknown tool: ") as raised:
            await client.call_tool(name, {})
    assert raised.value.code == -32602
    assert len(raised.value.message) < 200


async def test_images_are_content_blocks(era):
    @tool
    def chart() -> list:
        """Draw."""
        return ["a chart", ImageContent(b"png", "image/png")]

    async with serve_http(Toolbox([chart]), era) as client:
        text, image = (await client.call_tool("chart", {})).content
    assert (text.text, image.type, image.data, image.mime_type) == ("a chart", "image", "cG5n", "image/png")


async def test_only_declared_errors_are_shown_over_http(era):
    @tool
    def declared() -> str:
        raise ToolExecutionError("no such order")

    @tool
    def crash() -> str:
        raise RuntimeError("password is hunter2")

    async with serve_http(Toolbox([declared, crash]), era) as client:
        shown = await client.call_tool("declared", {})
        hidden = await client.call_tool("crash", {})
    assert text_of(shown) == "Error: no such order"
    assert hidden.is_error
    assert "hunter2" not in text_of(hidden)


async def test_a_tool_that_exits_does_not_end_the_server(era, caplog):
    @tool
    def parse() -> str:
        sys.exit(2)

    @tool
    async def stop() -> str:
        sys.exit()

    @tool(timeout=30)
    async def stop_in_time() -> str:
        sys.exit()

    async with serve_http(Toolbox([parse, stop, stop_in_time, greet]), era) as client:
        for name in ("parse", "stop", "stop_in_time"):
            ended = await client.call_tool(name, {})
            assert (ended.is_error, text_of(ended)) == (True, "Error: The tool tried to end the program")
            assert f"{name} called sys.exit; the server goes on" in caplog.text
        assert text_of(await client.call_tool("greet", {"name": "Ada"})) == "Hello Ada"


async def test_a_secret_argument_is_masked_in_errors(era):
    @tool
    def login(key: Secret[str]) -> str:
        raise ToolExecutionError(f"{key.get_secret_value()} is wrong")

    async with serve_http(Toolbox([login]), era) as client:
        assert "hunter2" not in text_of(await client.call_tool("login", {"key": "hunter2"}))


async def test_an_agent_is_one_tool(era):
    agent = Agent(ScriptedModel(["It is noon.", "It is late."]))
    async with serve_http(agent, era) as client:
        (listed,) = (await client.list_tools()).tools
        assert (listed.name, list(listed.input_schema["properties"])) == ("ask", ["input"])
        assert text_of(await client.call_tool("ask", {"input": "What time is it?"})) == "It is noon."
    async with serve_http(agent, era, name="clock", instructions="Tells the time") as client:
        (listed,) = (await client.list_tools()).tools
        assert (listed.name, listed.description) == ("clock", "Tells the time")


async def test_one_tool_or_a_list_of_tools_is_served_as_a_toolbox(era):
    class Shout(Tool):
        name = "shout"
        description = "Says it louder"

        def run(self, input: str) -> str:
            return input.upper()

    for source in (Shout(), [Shout()]):
        async with serve_http(source, era) as client:
            assert text_of(await client.call_tool("shout", {"input": "hello"})) == "HELLO"


async def test_the_server_introduces_itself(era):
    async with serve_http(Toolbox([greet]), era, name="greeter", instructions="Be kind") as client:
        assert (client.server_info.name, client.instructions) == ("greeter", "Be kind")


def test_anything_else_is_refused(era):
    with pytest.raises(ToolDefinitionError, match="serve takes a Toolbox, an Agent, or a function"):
        asgi(5)


PROGRAM = """
import sys
from toolsemble import Toolbox, tool
from toolsemble.mcp import serve

print("while it loads")

@tool
def noisy() -> str:
    print("from a tool")
    sys.__stdout__.write("to the stream itself\\n")
    import os, subprocess
    subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    os.write(1, b"to the descriptor\\n")
    return "done"

@tool
def crash() -> str:
    raise RuntimeError("the disk is full")

serve(Toolbox([noisy, crash]), name="noisy")
"""


async def test_prints_never_reach_the_protocol_on_standard_streams(era, tmp_path, caplog):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    async with serve_program(program, era) as client:
        assert [each.name for each in (await client.list_tools()).tools] == ["noisy", "crash"]
        assert text_of(await client.call_tool("noisy", {})) == "done"
        assert text_of(await client.call_tool("crash", {})) == "Error: the disk is full"
    assert "Failed to parse" not in caplog.text


class Shop:
    name = "mine"


@tool
def find_order(order: int, context: ToolContext[Shop]) -> str:
    """Find an order."""
    return f"{order}: {context.deps.name}"


async def test_a_tool_without_the_deps_that_it_needs_says_so(era):
    async with serve_http(Toolbox([find_order]), era) as client:
        result = await client.call_tool("find_order", {"order": 7})
    message = "Error: Tool 'find_order' needs deps (ToolContext[Shop]); pass deps=…"
    assert (result.is_error, text_of(result)) == (True, message)


async def test_tools_have_the_deps_of_their_server(era):
    async with serve_http(Toolbox([find_order]), era, deps=Shop()) as client:
        assert text_of(await client.call_tool("find_order", {"order": 7})) == "7: mine"


class Picture(pydantic.BaseModel):
    data: bytes


@pydantic.dataclasses.dataclass
class Drawing:
    data: bytes


@dataclass
class Scan:
    data: bytes


@pytest.mark.parametrize(
    ("kind", "encoding", "sent"), [(Picture, None, "~~~?"), (Drawing, None, "~~~?"), (Scan, "base64url", "fn5-Pw==")]
)
async def test_an_output_schema_says_how_bytes_are_written(era, kind, encoding, sent):
    def scan() -> kind:
        """Scan."""
        return kind(data=b"~~~?")

    async with serve_http(Toolbox([tool(scan)]), era) as client:
        (listed,) = (await client.list_tools()).tools
        result = await client.call_tool("scan", {})
    assert listed.output_schema["properties"]["data"].get("contentEncoding") == encoding
    assert result.structured_content == {"data": sent}
