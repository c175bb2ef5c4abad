"""Haystack with a small fake of its classes; `make interop` runs the cases with the real ones."""

import sys
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import pytest

from interop.natives import order
from toolsemble import (
    AudioContent,
    FileContent,
    ImageContent,
    SchemaTool,
    TextContent,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolDefinitionError,
    ToolResult,
    tool,
)
from toolsemble.interop import haystack


class FakeInvocationError(Exception):
    def __init__(self, message, tool_name):
        super().__init__(message)
        self.tool_name = tool_name


@dataclass
class FakeTool:
    name: str
    description: str
    parameters: dict[str, Any]
    function: Any = None
    outputs_to_string: dict[str, Any] | None = None
    inputs_from_state: dict[str, str] | None = None
    async_function: Any = None

    async def invoke_async(self, **arguments):
        try:
            return self.function(**arguments)
        except Exception as problem:
            raise FakeInvocationError(f"Failed to invoke Tool. Error: {problem}", self.name) from problem


class FakeState:
    pass


@dataclass
class FakeText:
    text: str


@dataclass
class FakeImage:
    base64_image: str
    mime_type: str | None = None
    validation: bool = True


@dataclass
class FakeFile:
    base64_data: str
    mime_type: str | None = None
    filename: str | None = None
    validation: bool = True


TOOLS, ERRORS, DATA, AGENTS = (ModuleType(name) for name in ("tools", "errors", "dataclasses", "agents"))
TOOLS.Tool, ERRORS.ToolInvocationError, AGENTS.State = FakeTool, FakeInvocationError, FakeState
DATA.TextContent, DATA.ImageContent, DATA.FileContent = FakeText, FakeImage, FakeFile
NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}


@pytest.fixture(autouse=True)
def _library(monkeypatch):
    monkeypatch.setitem(sys.modules, "haystack.tools", TOOLS)
    monkeypatch.setitem(sys.modules, "haystack.tools.errors", ERRORS)
    monkeypatch.setitem(sys.modules, "haystack.dataclasses", DATA)
    monkeypatch.setitem(sys.modules, "haystack.components.agents", AGENTS)


def export_one(*tools, **settings):
    [exported] = haystack.export(Toolbox(tools), **settings)
    return exported


def adopt_one(function, **fields):
    [adopted] = haystack.adopt(FakeTool("double", "Double a number.", NUMBER, function, **fields))
    return adopted


async def test_a_call_returns_the_content_and_the_payload():
    @tool
    def size(width: int) -> dict[str, int]:
        """Return a size."""
        return {"width": width}

    exported, expected = export_one(size), {"content": '{"width":3}', "payload": {"width": 3}}
    assert exported.outputs_to_string == {"source": "content", "raw_result": True}
    assert exported.invoke(width="3") == expected
    assert await exported.invoke_async(width="3") == expected


async def test_a_failed_call_raises_what_an_agent_shows():
    exported = export_one(order)
    with pytest.raises(FakeInvocationError, match=r"^Error: not for sale$") as caught:
        exported.invoke(item="rum")
    assert caught.value.tool_name == "order"
    with pytest.raises(FakeInvocationError, match=r"^Error: not for sale$"):
        await exported.invoke_async(item="rum")


def test_a_parameter_may_be_called_self():
    own = SchemaTool("own", "Own.", lambda arguments: arguments["self"], {"properties": {"self": {"type": "string"}}})
    assert export_one(own).invoke(self="me")["content"] == "me"


def draw(*contents):
    return SchemaTool("draw", "Draw.", lambda _: ToolResult.success("media", contents=contents))


def test_images_and_files_are_parts_and_come_back():
    contents = (ImageContent(b"image", "image/png"), FileContent(b"file", "text/plain", "notes.txt"))
    exported = export_one(draw(*contents))
    text, image, file = exported.invoke()["content"]
    assert (text, image.mime_type, file.filename) == (FakeText("media"), "image/png", "notes.txt")
    reply = Toolbox(haystack.adopt(exported)).execute(ToolCall("draw"))
    assert (reply.text, tuple(reply.contents)) == ("media", contents)


def test_audio_and_media_at_a_url_are_lines_of_the_text():
    exported = export_one(draw(AudioContent(b"song", "audio/wav"), ImageContent.from_url("https://example.com/a.png")))
    assert exported.invoke()["content"] == (
        "media\n[audio/wav, 4 bytes, not shown]\n[image/png, https://example.com/a.png, not shown]"
    )
    assert export_one(draw(TextContent("more"))).invoke()["content"] == "media\nmore"


def test_an_exported_tool_cannot_be_serialized():
    with pytest.raises(ToolConfigurationError, match="'order' is a tool of a toolbox and cannot be saved"):
        export_one(order).to_dict()


def test_the_framework_cannot_ask_for_approval():
    with pytest.raises(ToolConfigurationError, match="Haystack cannot pause a run"):
        export_one(order, approval="theirs")


def test_adopted_tools_are_validated_and_called_once():
    calls = []
    adopted = adopt_one(lambda number: calls.append(number) or 2 * number)
    assert adopted.execute({"number": "21"}).output == "42"
    assert adopted.execute({"number": "many"}).error_message.startswith("Invalid arguments for 'double'")
    assert calls == [21]


def test_the_failure_of_an_adopted_tool_is_told_without_the_sentence_around_it():
    def fail(number):
        raise ValueError("too large")

    assert adopt_one(fail).execute({"number": 1}).error_message == "too large"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ({"source": "docs"}, "[1,2]"),
        ({"source": "docs", "handler": len}, "2"),
        ({"handler": lambda output: f"{len(output)} outputs"}, "2 outputs"),
        ({"first": {"source": "docs", "handler": min}, "score": {"source": "score"}}, '{"first":1,"score":0.5}'),
        (None, '{"docs":[1,2],"score":0.5}'),
    ],
)
def test_outputs_are_shown_as_the_adopted_tool_says(shown, expected):
    adopted = adopt_one(lambda number: {"docs": [1, 2], "score": 0.5}, outputs_to_string=shown)
    assert adopted.execute({"number": 1}).output == expected


def test_raw_results_of_an_adopted_tool_are_media():
    parts = [FakeText("one"), FakeImage("aW1hZ2U="), FakeFile("ZmlsZQ=="), FakeText("two")]
    result = adopt_one(lambda number: parts, outputs_to_string={"raw_result": True}).execute({"number": 1})
    assert result.output == "one\ntwo"
    assert list(result.contents) == [
        ImageContent(b"image", "image/png"),
        FileContent(b"file", "application/octet-stream", "file"),
    ]


def test_a_tool_that_needs_the_state_of_an_agent_is_refused():
    def look(number: int, state: FakeState | None) -> int:
        return number

    with pytest.raises(ToolDefinitionError, match="it needs the State of an agent for the parameters state, user"):
        adopt_one(look, inputs_from_state={"name": "user"})


def test_functions_whose_types_cannot_be_read_are_adopted():
    def look(number: "Unknown") -> int:
        return number

    assert adopt_one(look).execute({"number": 1}).output == "1"
    assert adopt_one(partial(look)).execute({"number": 1}).output == "1"


def test_a_round_trip_gives_the_same_replies():
    box, back = Toolbox([order]), Toolbox(haystack.adopt(haystack.export(Toolbox([order]))))
    for arguments in ({"item": "tea"}, {"item": "rum"}, {"count": "many"}):
        assert back.execute(ToolCall("order", arguments)).text == box.execute(ToolCall("order", arguments)).text


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "haystack.tools", None)
    with pytest.raises(ToolDefinitionError, match="pip install haystack-ai"):
        haystack.adopt(7)
