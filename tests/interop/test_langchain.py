"""LangChain beyond the cases: blocks of messages, answers of graphs, and plain texts."""

from typing import Annotated

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, tool as langchain_tool
from langgraph.types import Command

from toolsemble import AudioContent, FileContent, ImageContent, Toolbox, ToolCall, ToolContext, ToolResult, tool
from toolsemble.interop import langchain

MEDIA = [
    ImageContent(b"...", "image/png"),
    FileContent(b"...", "application/pdf", "a.pdf"),
    ImageContent.from_url("https://example.com/map.png"),
]


def adopt_answer(content, **settings):
    """Return the result of a tool that answers with this content."""

    class Answering(BaseTool):
        name: str = "answer"
        description: str = "Answers."
        args_schema: dict = {"type": "object", "properties": {}}  # noqa: RUF012 - a field of a model

        def _to_args_and_kwargs(self, tool_input, tool_call_id):
            return (tool_call_id,), {}

        def _run(self, call_id):
            return ToolMessage(content, tool_call_id=call_id, **settings)

    return Toolbox(langchain.adopt(Answering())).execute(ToolCall("answer")).result


def test_media_travel_there_and_back():
    @tool
    def draw() -> ToolResult:
        """Draw."""
        return ToolResult.success("a map", contents=[*MEDIA, AudioContent(b"...", "audio/wav")])

    reply = Toolbox(langchain.adopt(langchain.export(Toolbox([draw])))).execute(ToolCall("draw"))
    assert list(reply.contents) == MEDIA
    assert reply.text == "a map\n[audio/wav, 3 bytes, not shown]"


@pytest.mark.parametrize(
    ("block", "contents"),
    [
        (
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,Li4u"}},
            [ImageContent(b"...", "image/png")],
        ),
        ({"type": "image_url", "image_url": "https://example.com/map.png"}, [MEDIA[2]]),
        (
            {"type": "image", "source_type": "base64", "data": "Li4u", "mime_type": "image/png"},
            [ImageContent(b"...", "image/png")],
        ),
        (
            {"type": "file", "base64": "Li4u", "name": "a.bin"},
            [FileContent(b"...", "application/octet-stream", "a.bin")],
        ),
    ],
)
def test_blocks_of_other_formats_are_read(block, contents):
    result = adopt_answer(["a", {"type": "text", "text": "map"}, block])
    assert (result.output, list(result.contents)) == ("a\nmap", contents)


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ({"type": "thinking", "text": "hm"}, '{"type":"thinking","text":"hm"}'),
        ({"type": "image"}, '{"type":"image"}'),
        ({"type": "image", "base64": "?", "mime_type": 5}, '{"type":"image","base64":"?","mime_type":5}'),
    ],
)
def test_blocks_that_are_not_known_or_broken_become_text(block, text):
    result = adopt_answer([block])
    assert (result.output, result.contents) == (text, ())


def test_a_failed_message_is_a_failed_result():
    assert adopt_answer("Error: no tea", status="error") == ToolResult.failure("no tea")


def test_a_command_for_a_graph_is_a_failure():
    @langchain_tool
    def jump() -> Command:
        """Go elsewhere."""
        return Command(goto="elsewhere")

    reply = Toolbox(langchain.adopt(jump)).execute(ToolCall("jump"))
    assert reply.text == "Error: The tool returned a Command, which only a graph can use"


def test_the_id_of_the_call_is_injected_as_in_a_graph():
    @langchain_tool
    def show(city: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Show the id."""
        return f"{city} {call_id}"

    reply = Toolbox(langchain.adopt(show)).execute(ToolCall("show", {"city": "Rome"}, id="call_1"))
    assert reply.text == "Rome call_1"


def test_a_plain_text_is_the_value_of_the_only_parameter():
    @tool
    def greet(name: str, context: ToolContext) -> str:
        """Greet."""
        return f"Hello {name} of {context.run_id}"

    [exported] = langchain.export(Toolbox([greet]), run_id=lambda config: config["configurable"]["run"])
    assert exported.invoke("Ada", {"configurable": {"run": "run_1"}}) == "Hello Ada of run_1"
