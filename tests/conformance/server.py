"""The server that the official conformance suite of MCP is run against: the tools, prompts and resources it asks for.

Run it with a port: ``python tests/conformance/server.py 3101``.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from mcp_types import CreateMessageRequest, CreateMessageRequestParams, ListRootsRequest, SamplingMessage, TextContent

from toolsemble import (
    AudioContent,
    FileContent,
    ImageContent,
    SchemaTool,
    Toolbox,
    ToolContext,
    ToolExecutionError,
    tool,
)
from toolsemble.mcp import Caller, ask_client, elicit, log_to_client, serve

PNG = b"\x89PNG\r\n\x1a\n"
WAV = b"RIFF\x00\x00\x00\x00WAVE"
PAUSE = 0.05  # the suite wants its messages one after the other
TEXT = {"type": "string"}


def form(required: bool = True, **properties: Any) -> dict[str, Any]:
    """Return the schema of a form."""
    schema = {"type": "object", "properties": properties}
    return {**schema, "required": list(properties)} if required else schema


def sampling(text: str, max_tokens: int = 100) -> CreateMessageRequest:
    """Return a request to the client's model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text=text))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=max_tokens))


@tool
def test_simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


@tool
def test_image_content() -> ImageContent:
    """Return an image."""
    return ImageContent(PNG, "image/png")


@tool
def test_audio_content() -> AudioContent:
    """Return a sound."""
    return AudioContent(WAV, "audio/wav")


@tool
def test_embedded_resource() -> FileContent:
    """Return a file."""
    return FileContent(b"This is an embedded resource content.", "text/plain", "embedded-resource.txt")


@tool
def test_multiple_content_types() -> list:  # type: ignore[type-arg]  # of texts and contents
    """Return several contents."""
    data = FileContent(b'{"test":"data","value":123}', "application/json", "mixed.json")
    return ["Multiple content types test:", ImageContent(PNG, "image/png"), data]


@tool
def test_error_handling() -> str:
    """Fail."""
    raise ToolExecutionError("This tool intentionally returns an error for testing")


@tool
async def test_tool_with_progress(context: ToolContext) -> str:
    """Report progress."""
    for fraction in (0.0, 0.5, 1.0):
        context.progress(fraction, f"Completed {fraction:.0%}")
        await asyncio.sleep(PAUSE)
    return "done"


@tool
async def test_tool_with_logging() -> str:
    """Send log messages."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await log_to_client("info", message)
        await asyncio.sleep(PAUSE)
    return "done"


@tool
async def test_logging_tool() -> str:
    """Send a log message."""
    await log_to_client("info", "A message")
    return "done"


@tool
async def test_sampling(prompt: str) -> str:
    """Ask the client's model."""
    return f"LLM response: {(await ask_client(sampling(prompt))).content.text}"


@tool
async def test_missing_capability() -> str:
    """Need a capability that few clients have."""
    return str((await ask_client(sampling("Anything"))).content)


@tool
async def test_elicitation(message: str) -> str:
    """Ask the user."""
    return f"User response: {await elicit(message, form(username=TEXT, email=TEXT))}"


@tool
async def test_streaming_elicitation() -> str:
    """Ask the user in the middle of a stream."""
    return f"User response: {await elicit('Go on?', form(ok={'type': 'boolean'}))}"


@tool
async def test_elicitation_sep1034_defaults() -> str:
    """Ask with defaults."""
    fields = form(
        required=False,
        name={**TEXT, "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={**TEXT, "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    )
    return f"Elicitation completed: {await elicit('Please confirm', fields)}"


@tool
async def test_elicitation_sep1330_enums() -> str:
    """Ask with choices of every form."""
    plain, titled = ["option1", "option2", "option3"], [{"const": "value1", "title": "First Option"}]
    fields = form(
        required=False,
        untitledSingle={**TEXT, "enum": plain},
        titledSingle={**TEXT, "oneOf": [*titled, {"const": "value2", "title": "Second Option"}]},
        legacyEnum={**TEXT, "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
        untitledMulti={"type": "array", "items": {**TEXT, "enum": plain}},
        titledMulti={"type": "array", "items": {"anyOf": [*titled, {"const": "value2", "title": "Second Choice"}]}},
    )
    return f"Elicitation completed: {await elicit('Please choose', fields)}"


@tool
async def test_input_required_result_elicitation() -> str:
    """Ask for a name."""
    answer = await elicit("What is your name?", form(name=TEXT), key="user_name")
    return f"Hello, {answer and answer['name']}!"


@tool
async def test_input_required_result_sampling() -> str:
    """Ask the client's model a question."""
    request = sampling("What is the capital of France?")
    return str((await ask_client(request, key="capital_question")).content.text)


@tool
async def test_input_required_result_list_roots() -> str:
    """Ask for the roots of the client."""
    return str([str(root.uri) for root in (await ask_client(ListRootsRequest(), key="client_roots")).roots])


@tool
async def test_input_required_result_request_state() -> str:
    """Ask for a confirmation."""
    return f"state-ok: {await elicit('Please confirm', form(ok={'type': 'boolean'}), key='confirm')}"


@tool
async def test_input_required_result_tampered_state() -> str:
    """Ask for a confirmation, with a state that clients must not change."""
    return str(await elicit("Please confirm", form(ok={"type": "boolean"}), key="confirm"))


@tool
async def test_input_required_result_multiple_inputs() -> str:
    """Ask three questions at once."""
    answers = await asyncio.gather(
        elicit("What is your name?", form(name=TEXT), key="user_name"),
        ask_client(sampling("Generate a greeting", 50), key="greeting"),
        ask_client(ListRootsRequest(), key="client_roots"),
    )
    return f"{len(answers)} answers"


@tool
async def test_input_required_result_multi_round() -> str:
    """Ask two questions, one after the other."""
    name = await elicit("Step 1: What is your name?", form(name=TEXT), key="step1")
    color = await elicit("Step 2: What is your favorite color?", form(color=TEXT), key="step2")
    return f"{name} {color}"


@tool
async def test_input_required_result_capabilities() -> str:
    """Ask in the way that the client can answer."""
    try:
        return str(await elicit("What is your name?", form(name=TEXT)))
    except ToolExecutionError:
        return str((await ask_client(sampling("Who are you?"))).content.text)


@tool
def test_trigger_tool_change() -> str:
    """Add a tool, or remove it."""
    shown.symmetric_difference_update({"test_changing_tool"})
    return "changed"


@tool
def test_trigger_prompt_change() -> str:
    """Add a prompt, or remove it."""
    shown.symmetric_difference_update({"test_changing_prompt"})
    return "changed"


shown: set[str] = set()
"""The tools and prompts that come and go."""

JSON_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

HEADER_SCHEMA = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    "required": ["region"],
}

TOOLS = [each for each in list(globals().values()) if isinstance(each, type(test_simple_text))]
SCHEMA_TOOL = SchemaTool("json_schema_2020_12_tool", "Tool with JSON Schema 2020-12 features", json.dumps, JSON_SCHEMA)
HEADER_TOOL = SchemaTool("test_custom_header", "Tool with an argument that is sent as a header", str, HEADER_SCHEMA)


def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


def static_binary() -> ImageContent:
    """An image."""
    return ImageContent(PNG, "image/png")


def template(id: str) -> dict[str, Any]:
    """A resource of a template."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


def watched() -> str:
    """A resource to subscribe to."""
    return "It may change."


def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


def test_prompt_with_embedded_resource(resourceUri: str) -> list[Any]:  # noqa: N803 - a name of the suite
    """A prompt with a resource."""
    resource = {"uri": resourceUri, "mimeType": "text/plain", "text": "Embedded resource content for testing."}
    return [
        {"role": "user", "content": {"type": "resource", "resource": resource}},
        "Please process the embedded resource above.",
    ]


def test_prompt_with_image() -> list[Any]:
    """A prompt with an image."""
    return [ImageContent(PNG, "image/png"), "Please analyze the image above."]


async def test_input_required_result_prompt() -> str:
    """A prompt that asks."""
    answer = await elicit("What context should the prompt use?", form(context=TEXT), key="user_context")
    return f"Use this context: {answer and answer['context']}"


RESOURCES = {
    "test://static-text": static_text,
    "test://static-binary": static_binary,
    "test://template/{id}/data": template,
    "test://watched-resource": watched,
}
PROMPTS = [
    test_simple_prompt,
    test_prompt_with_arguments,
    test_prompt_with_embedded_resource,
    test_prompt_with_image,
    test_input_required_result_prompt,
]


@tool
def test_changing_tool() -> str:
    """A tool that comes and goes."""
    return "here"


def test_changing_prompt() -> str:
    """A prompt that comes and goes."""
    return "Here."


BOX = Toolbox([*TOOLS, SCHEMA_TOOL, HEADER_TOOL])
LARGER_BOX = Toolbox([*TOOLS, SCHEMA_TOOL, HEADER_TOOL, test_changing_tool])


def choose_box(_: Caller) -> Toolbox:
    """Return the tools of the moment."""
    return LARGER_BOX if "test_changing_tool" in shown else BOX


def choose_prompts(_: Caller) -> list[Any]:
    """Return the prompts of the moment."""
    return [*PROMPTS, test_changing_prompt] if "test_changing_prompt" in shown else PROMPTS


if __name__ == "__main__":
    serve(
        choose_box,
        http=f"127.0.0.1:{sys.argv[1]}",
        name="conformance",
        resources=RESOURCES,
        prompts=choose_prompts,
    )
