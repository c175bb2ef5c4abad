"""Resources and prompts as plain functions, and completion of their arguments."""

import enum
from typing import Annotated, Literal

import pytest
from mcp import MCPError
from mcp_types import ElicitResult, PromptReference, ResourceTemplateReference

from helpers.mcp_server import ERAS, serve_http
from toolsemble import FileContent, ImageContent, Param, TextContent, Toolbox, ToolContext, ToolDefinitionError, tool
from toolsemble.mcp import asgi, elicit

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("era", ERAS)]


def readme() -> str:
    """The first page."""
    return "Read me"


async def logo() -> ImageContent:
    """The logo."""
    return ImageContent(b"png", "image/png")


def raw() -> bytes:
    return b"\x00\xff"


def settings():
    return {"debug": True}


def mixed():
    return [TextContent("one"), ImageContent(b"png", "image/png")]


def order(id: int, part: Literal["head", "body"]) -> dict:
    """One order."""
    return {"id": id, "part": part}


RESOURCES = {
    "docs://readme": readme,
    "docs://logo": logo,
    "docs://raw": raw,
    "docs://settings": settings,
    "docs://mixed": mixed,
    "orders://{id}/{part}": order,
}


async def test_resources_are_listed_with_what_their_functions_say(era):
    async with serve_http(Toolbox([]), era, resources=RESOURCES) as client:
        listed = {str(each.uri): each for each in (await client.list_resources()).resources}
        (template,) = (await client.list_resource_templates()).resource_templates
    first = listed["docs://readme"]
    assert (first.name, first.description, first.mime_type) == ("readme", "The first page.", "text/plain")
    assert list(listed) == list(RESOURCES)[:-1]
    assert (template.uri_template, template.name, template.mime_type) == (
        "orders://{id}/{part}", "order", "application/json",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("uri", "contents"),
    [
        ("docs://readme", [("text/plain", "Read me")]),
        ("docs://logo", [("image/png", "cG5n")]),
        ("docs://raw", [("application/octet-stream", "AP8=")]),
        ("docs://settings", [("application/json", '{"debug":true}')]),
        ("docs://mixed", [("text/plain", "one"), ("image/png", "cG5n")]),
        ("orders://7/head", [("application/json", '{"id":7,"part":"head"}')]),
        ("orders://7/%68ead", [("application/json", '{"id":7,"part":"head"}')]),
    ],
)
async def test_resources_are_read(era, uri, contents):
    async with serve_http(Toolbox([]), era, resources=RESOURCES) as client:
        found = (await client.read_resource(uri)).contents
    assert [(each.mime_type, getattr(each, "text", None) or each.blob) for each in found] == contents
    assert {str(each.uri) for each in found} == {uri}


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("docs://other", "Unknown resource"),
        ("docs://readme/", "Unknown resource"),
        ("orders://7/head/more", "Unknown resource"),
        ("orders://seven/head", "Invalid arguments for 'order': id"),
        ("orders://7/tail", "Invalid arguments for 'order': part"),
    ],
)
async def test_a_uri_that_does_not_fit_is_an_error(era, uri, message):
    async with serve_http(Toolbox([]), era, resources=RESOURCES) as client:
        with pytest.raises(MCPError, match=message) as raised:
            await client.read_resource(uri)
    assert raised.value.code == -32602


async def test_resources_without_uris_are_named_after_their_functions(era):
    async with serve_http(Toolbox([]), era, resources=[readme, order]) as client:
        assert (await client.read_resource("resource://readme")).contents[0].text == "Read me"
        assert (await client.read_resource("resource://order/7/body")).contents[0].text == '{"id":7,"part":"body"}'


async def test_a_crash_in_a_resource_keeps_its_secrets(era):
    def broken() -> str:
        raise RuntimeError("password is hunter2")

    async with serve_http(Toolbox([]), era, resources=[broken], prompts=[broken]) as client:
        with pytest.raises(MCPError) as raised:
            await client.read_resource("resource://broken")
        assert "hunter2" not in str(raised.value)
        with pytest.raises(MCPError) as raised:
            await client.get_prompt("broken")
        assert "hunter2" not in str(raised.value)


async def test_functions_get_the_context_of_the_call(era):
    def owner(context: ToolContext) -> str:
        return context.memory_id

    async with serve_http(Toolbox([], memory_id="house"), era, resources=[owner]) as client:
        assert (await client.read_resource("resource://owner")).contents[0].text == "default"


async def test_a_tool_can_be_a_resource_too(era):
    async with serve_http(Toolbox([]), era, resources=[tool(readme)]) as client:
        assert (await client.read_resource("resource://readme")).contents[0].text == "Read me"


async def test_a_server_of_tools_alone_has_neither(era):
    async with serve_http(Toolbox([]), era) as client:
        assert client.server_capabilities.resources is client.server_capabilities.prompts is None
        with pytest.raises(MCPError, match="Method not found"):
            await client.list_resources()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"resources": [5]}, "resources must be functions, not 5"),
        ({"prompts": [str]}, "prompts must be functions"),
        ({"resources": {"readme": readme}}, "needs a scheme"),
        ({"resources": {5: readme}}, "needs a scheme"),
        ({"resources": {"docs://{page}": readme}}, "must be the parameters of its function: none"),
        ({"resources": {"docs://{id}": order}}, "must be the parameters of its function: id, part"),
        ({"resources": [readme, readme]}, "duplicate resource URI"),
        ({"prompts": [readme, readme]}, "duplicate prompt name"),
    ],
)
def test_bad_functions_are_reported_before_the_first_request(era, settings, message):
    with pytest.raises(ToolDefinitionError, match=message):
        asgi(Toolbox([]), **settings)


class Tone(enum.Enum):
    KIND = "kind"
    CURT = "curt"


def review(
    code: Annotated[str, Param("The code")], tone: Tone = Tone.KIND, depth: Literal["low", "high"] | None = None
) -> str:
    """Ask for a review."""
    return f"Review this {tone.value}ly: {code}"


async def conversation() -> list:
    return [
        "Look at this",
        ImageContent(b"png", "image/png"),
        {"role": "assistant", "content": "I see"},
        {"content": FileContent(b"text", "text/plain", "notes.txt")},
        {"role": "user", "content": {"type": "text", "text": "Go on"}},
    ]


async def test_prompts_are_listed_with_their_arguments(era):
    async with serve_http(Toolbox([]), era, prompts=[review, conversation]) as client:
        first, second = (await client.list_prompts()).prompts
    assert (first.name, first.description) == ("review", "Ask for a review.")
    assert [(each.name, each.description, each.required) for each in first.arguments] == [
        ("code", "The code", True),
        ("tone", None, False),
        ("depth", None, False),
    ]
    assert not second.arguments


async def test_a_prompt_is_filled_in(era):
    async with serve_http(Toolbox([]), era, prompts=[review]) as client:
        result = await client.get_prompt("review", {"code": "x = 1", "tone": "curt"})
    (message,) = result.messages
    assert (message.role, message.content.text) == ("user", "Review this curtly: x = 1")
    assert result.description == "Ask for a review."


async def test_a_prompt_can_be_a_conversation(era):
    async with serve_http(Toolbox([]), era, prompts=[conversation]) as client:
        messages = (await client.get_prompt("conversation")).messages
    assert [(each.role, each.content.type) for each in messages] == [
        ("user", "text"),
        ("user", "image"),
        ("assistant", "text"),
        ("user", "resource"),
        ("user", "text"),
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "code", "message"),
    [
        ("other", {}, -32602, "Unknown prompt: other"),
        ("review", {}, -32602, "Missing required parameter"),
        ("review", {"code": "", "tone": "rude"}, -32602, "Invalid arguments for 'review': tone"),
        ("strange", {}, -32603, "not a message"),
    ],
)
async def test_a_prompt_that_cannot_be_returned_is_an_error(era, name, arguments, code, message):
    def strange():
        return [{"role": "robot", "content": "beep"}]

    async with serve_http(Toolbox([]), era, prompts=[review, strange]) as client:
        with pytest.raises(MCPError, match=message) as raised:
            await client.get_prompt(name, arguments)
    assert raised.value.code == code


async def test_a_prompt_can_ask(era):
    async def ask() -> str:
        answer = await elicit("Which?", {"type": "object", "properties": {"which": {"type": "string"}}})
        return f"Tell me about {answer['which']}"

    async def respond(context, params):
        return ElicitResult(action="accept", content={"which": "tea"})

    async with serve_http(
        Toolbox([]), era, prompts=[ask], resources=[ask], client={"elicitation_callback": respond}
    ) as client:
        assert (await client.get_prompt("ask")).messages[0].content.text == "Tell me about tea"
        assert (await client.read_resource("resource://ask")).contents[0].text == "Tell me about tea"


async def test_a_prompt_to_a_client_that_cannot_answer_fails(era):
    async def ask() -> str:
        return str(await elicit("Which?", {"type": "object", "properties": {}}))

    async with serve_http(Toolbox([]), era, prompts=[ask]) as client:
        with pytest.raises(MCPError, match="does not declare the capability 'elicitation'") as raised:
            await client.get_prompt("ask")
    assert raised.value.code == (-32021 if era == "2026-07-28" else -32603)


@pytest.mark.parametrize(
    ("argument", "typed", "values"),
    [
        ("tone", "", ["kind", "curt"]),
        ("tone", "k", ["kind"]),
        ("depth", "h", ["high"]),
        ("code", "x", []),
        ("other", "", []),
    ],
)
async def test_arguments_of_prompts_are_completed(era, argument, typed, values):
    async with serve_http(Toolbox([]), era, prompts=[review]) as client:
        found = await client.complete(
            PromptReference(type="ref/prompt", name="review"), {"name": argument, "value": typed}
        )
        none = await client.complete(PromptReference(type="ref/prompt", name="none"), {"name": "a", "value": ""})
    assert (found.completion.values, found.completion.total, found.completion.has_more) == (values, len(values), False)
    assert none.completion.values == []


async def test_variables_of_templates_are_completed(era):
    reference = ResourceTemplateReference(type="ref/resource", uri="orders://{id}/{part}")
    async with serve_http(Toolbox([]), era, resources=RESOURCES) as client:
        found = await client.complete(reference, {"name": "part", "value": "b"})
    assert found.completion.values == ["body"]
