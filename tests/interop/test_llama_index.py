"""LlamaIndex with a small fake of its classes; `make interop` runs the cases with the real ones."""

import base64
import io
import json
import sys
from contextvars import ContextVar
from types import MappingProxyType, ModuleType, SimpleNamespace

import pytest

from interop.natives import order
from toolsemble import (
    AudioContent,
    FileContent,
    ImageContent,
    SchemaTool,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolDefinitionError,
    ToolResult,
    tool,
)
from toolsemble.interop import llama_index


class FakeMetadata:
    def __init__(self, description, name, fn_schema):
        self.description, self.name, self.fn_schema = description, name, fn_schema

    def get_name(self):
        return self.name

    def get_parameters_dict(self):
        return self.fn_schema.model_json_schema()

    def to_openai_tool(self, skip_length_check=False):
        if not skip_length_check and len(self.description) > 1024:
            raise ValueError("too long")
        return {"function": {"name": self.name, "parameters": self.get_parameters_dict()}}


class FakeBaseTool:
    pass


class FakeAsyncTool(FakeBaseTool):
    pass


class FakeFunctionTool(FakeAsyncTool):
    requires_context, ctx_param_name = False, None

    def __init__(self, fn, metadata):
        self.fn, self.metadata = fn, metadata

    async def acall(self, **named):
        return output(self.fn(**named))


class FakeBlock(SimpleNamespace):
    url = None

    def model_dump_json(self):
        return json.dumps(vars(self))

    def resolve(self):
        if self.source is None:
            raise ValueError("zero bytes")
        return io.BytesIO(base64.b64decode(self.source))

    resolve_image = resolve_audio = resolve_document = resolve


def make_block(kind, field):
    def build(url=None, **fields):
        return FakeBlock(block_type=kind, url=url, source=fields.pop(field, None), **fields)

    return build


def output(raw, **fields):
    given = {"blocks": [FakeBlock(block_type="text", text=str(raw))], "raw_output": raw, "is_error": False, **fields}
    return SimpleNamespace(content="\n".join(each.text for each in given["blocks"] if hasattr(each, "text")), **given)


def build_output(tool_name, blocks, raw_input, raw_output, is_error):
    return output(raw_output, blocks=blocks, tool_name=tool_name, raw_input=raw_input, is_error=is_error)


TAGS = ContextVar("tags", default=MappingProxyType({}))
TOOLS, LLMS, DISPATCHER = ModuleType("tools"), ModuleType("llms"), ModuleType("dispatcher")
TOOLS.ToolMetadata, TOOLS.BaseTool, TOOLS.AsyncBaseTool = FakeMetadata, FakeBaseTool, FakeAsyncTool
TOOLS.FunctionTool, TOOLS.ToolOutput = FakeFunctionTool, build_output
LLMS.TextBlock = lambda text: FakeBlock(block_type="text", text=text)
LLMS.ImageBlock, LLMS.AudioBlock = make_block("image", "image"), make_block("audio", "audio")
LLMS.DocumentBlock = make_block("document", "data")
DISPATCHER.active_instrument_tags = TAGS


@pytest.fixture(autouse=True)
def _library(monkeypatch):
    monkeypatch.setitem(sys.modules, "llama_index.core.tools", TOOLS)
    monkeypatch.setitem(sys.modules, "llama_index.core.llms", LLMS)
    monkeypatch.setitem(sys.modules, "llama_index_instrumentation.dispatcher", DISPATCHER)


def export_one(*tools, **settings):
    [exported] = llama_index.export(Toolbox(tools), **settings)
    return exported


def call_with_context(exported, context, **named):
    return exported.call(**{exported.ctx_param_name: context, **named})


def test_a_call_is_answered_with_an_output():
    exported = export_one(order)
    shown = exported(item="tea", count="3")
    assert (shown.content, shown.raw_output, shown.is_error, shown.tool_name) == ("3 tea", "3 tea", False, "order")
    assert shown.raw_input == {"item": "tea", "count": "3"}
    assert exported("tea").content == "1 tea"


async def test_a_failed_call_is_an_output_and_no_exception():
    exported = export_one(order)
    for shown in (exported(item="rum"), await exported.acall(item="rum")):
        assert (shown.content, shown.is_error) == ("Error: not for sale", True)


def test_structured_outputs_are_raw_outputs():
    @tool
    def size() -> dict[str, int]:
        """Return a size."""
        return {"width": 3}

    shown = export_one(size)()
    assert (shown.content, shown.raw_output) == ('{"width":3}', {"width": 3})


async def test_the_context_and_the_run_of_a_workflow_reach_the_tool():
    seen = []

    @tool
    def look(context: ToolContext, ctx: int = 0) -> str:
        """Look."""
        seen.append((context.memory_id, context.run_id, ctx))
        return "seen"

    exported = export_one(look, memory_id=lambda context: context.user)
    TAGS.set({"llamaindex.run_id": "run_7"})
    context = SimpleNamespace(user="ada")
    call_with_context(exported, context, ctx=1)
    await exported.acall(**{exported.ctx_param_name: context})
    assert exported.requires_context
    assert seen == [("ada", "run_7", 1), ("ada", "run_7", 0)]


def test_a_parameter_may_be_called_self():
    own = SchemaTool("own", "Own.", lambda arguments: arguments["self"], {"properties": {"self": {"type": "string"}}})
    assert export_one(own)(self="me").content == "me"


def test_the_model_is_shown_the_schema_of_the_tool_and_a_long_description():
    long = SchemaTool("long", "x" * 2000, str, {"properties": {"a": {"type": "integer"}}, "required": ["a"]})
    shown = export_one(long)
    function = shown.metadata.to_openai_tool()["function"]
    assert (function["name"], function["parameters"]["properties"]) == ("long", {"a": {"type": "integer"}})
    assert shown.fn(a=1) is None


def test_media_are_blocks_and_come_back():
    contents = [
        ImageContent(b"image", "image/png"),
        ImageContent.from_url("https://example.com/map.png"),
        AudioContent(b"song", "audio/mpeg"),
        AudioContent(b"song", "audio/flac"),
        AudioContent.from_url("https://example.com/song.mp3"),
        FileContent(b"file", "text/plain", "notes.txt"),
        FileContent.from_url("https://example.com/notes.txt"),
    ]
    draw = SchemaTool("draw", "Draw.", lambda _: ToolResult.success("media", contents=contents))
    exported = export_one(draw)
    blocks = exported().blocks
    assert [each.block_type for each in blocks] == [
        "text",
        "image",
        "image",
        "audio",
        "audio",
        "audio",
        *["document"] * 2,
    ]
    assert [each.format for each in blocks[3:6]] == ["mp3", "flac", "mp3"]
    reply = Toolbox(llama_index.adopt(exported)).execute(ToolCall("draw"))
    assert reply.text == "media"
    assert list(reply.contents) == contents


def adopt_function(function, **fields):
    schema = SimpleNamespace(
        model_json_schema=lambda: {"type": "object", "properties": {"number": {"type": "integer"}}}
    )
    made = FakeFunctionTool(function, FakeMetadata("Double a number.", "double", schema))
    vars(made).update(fields)
    return llama_index.adopt([made])


def test_blocks_that_are_no_media_are_text():
    blocks = [
        FakeBlock(block_type="text", text="one"),
        FakeBlock(block_type="citation", title="two"),
        FakeBlock(block_type="image", source=None),
        FakeBlock(block_type="image", source=base64.b64encode(b"png"), image_mimetype=None),
        FakeBlock(block_type="audio", source=base64.b64encode(b"wav"), format=None),
        FakeBlock(block_type="document", source=base64.b64encode(b"pdf"), document_mimetype=None, title="report"),
    ]
    [adopted] = llama_index.adopt(Answering(output("x", blocks=blocks)))
    result = adopted.execute({})
    assert result.output == 'one\n{"block_type": "citation", "title": "two"}\n[a broken block: image]'
    assert [each.mime_type for each in result.contents] == ["image/png", "audio/wav", "application/octet-stream"]


class Answering(FakeAsyncTool):
    def __init__(self, answer):
        self.answer = answer
        schema = SimpleNamespace(model_json_schema=lambda: {"type": "object", "properties": {}})
        self.metadata = FakeMetadata("Answer.", "answer", schema)

    async def acall(self):
        return self.answer


def test_adopted_tools_are_validated_and_called_once():
    calls = []
    [adopted] = adopt_function(lambda number: calls.append(number) or 2 * number)
    assert adopted.execute({"number": "21"}).output == "42"
    assert adopted.execute({"number": "many"}).error_message.startswith("Invalid arguments for 'double'")
    assert calls == [21]


def test_the_failure_of_an_adopted_tool_is_a_failure():
    [adopted] = llama_index.adopt(Answering(output("Error: no such city", is_error=True)))
    assert adopted.execute({}) == ToolResult.failure("no such city")


def test_a_blocking_tool_takes_a_single_value_by_its_place():
    class Plain(FakeBaseTool):
        def __init__(self, names):
            schema = {"type": "object", "properties": {name: {"type": "integer"} for name in names}}
            self.metadata = FakeMetadata("Add.", "add", SimpleNamespace(model_json_schema=lambda: schema))

        def __call__(self, value=0, more=0):
            return output(value + more)

    [one], [two] = llama_index.adopt(Plain(["input"])), llama_index.adopt(Plain(["value", "more"]))
    assert one.execute({"input": 1}).output == "1"
    assert two.execute({"value": 1, "more": 2}).output == "3"


def test_a_tool_that_needs_a_context_is_refused():
    with pytest.raises(
        ToolDefinitionError, match=r"'double' cannot be adopted: it needs the Context of a workflow \(par"
    ):
        adopt_function(None, requires_context=True, ctx_param_name="ctx")


def test_a_round_trip_gives_the_same_replies():
    box, back = Toolbox([order]), Toolbox(llama_index.adopt(llama_index.export(Toolbox([order]))))
    for arguments in ({"item": "tea"}, {"item": "rum"}, {"count": "many"}):
        assert back.execute(ToolCall("order", arguments)).text == box.execute(ToolCall("order", arguments)).text


def test_the_framework_cannot_ask_for_approval():
    with pytest.raises(ToolConfigurationError, match="LlamaIndex cannot pause a run"):
        export_one(order, approval="theirs")


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "llama_index.core.tools", None)
    with pytest.raises(ToolDefinitionError, match=r"pip install llama-index-core"):
        llama_index.adopt(7)
