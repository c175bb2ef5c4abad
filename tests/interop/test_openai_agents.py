"""The OpenAI Agents SDK beyond the cases: files, approvals that no longer fit, and functions that cannot be read."""

import agents
import pytest
from agents.tool_context import ToolContext as SdkContext

from toolsemble import FileContent, ImageContent, Toolbox, ToolCall, ToolContext, ToolResult, tool
from toolsemble.interop import openai_agents

agents.set_trace_processors([])  # nothing is sent anywhere

MEDIA = [
    ImageContent(b"...", "image/png"),
    FileContent(b"...", "application/pdf", "a.pdf"),
    FileContent.from_url("https://example.com/a.pdf"),
]


def new_context(name="pay", text='{"order": 7}'):
    return SdkContext(context=None, tool_name=name, tool_call_id="call_1", tool_arguments=text)


def new_box(log):
    @tool(requires_approval=True)
    def pay(order: int) -> str:
        """Pay an order."""
        log.append(order)
        return f"paid {order}"

    return Toolbox([pay])


def test_media_travel_there_and_back():
    @tool
    def draw() -> ToolResult:
        """Draw."""
        return ToolResult.success("a map", {"size": 3}, contents=MEDIA)

    reply = Toolbox(openai_agents.adopt(openai_agents.export(Toolbox([draw])))).execute(ToolCall("draw"))
    assert (reply.text, list(reply.contents)) == ("a map", MEDIA)
    assert reply.result.structured_output == {"size": 3}


@pytest.mark.parametrize(
    ("output", "contents"),
    [
        (agents.ToolOutputFileContent(file_data="Li4u", filename="a.bin"), b"..."),
        (agents.ToolOutputFileContent(file_url="https://example.com/a.pdf"), b""),
    ],
)
def test_files_of_native_tools_are_read(output, contents):
    @agents.function_tool
    def read():
        """Read a file."""
        return [agents.ToolOutputText(text="a file"), output]

    reply = Toolbox(openai_agents.adopt(read)).execute(ToolCall("read"))
    assert (reply.text, [each.data for each in reply.contents]) == ("a file", [contents])


def test_a_file_of_the_servers_is_a_failure():
    @agents.function_tool
    def read():
        """Read a file."""
        return agents.ToolOutputFileContent(file_id="file_1")

    reply = Toolbox(openai_agents.adopt(read)).execute(ToolCall("read"))
    assert "a file of OpenAI's servers (file_1)" in reply.text


async def test_a_call_without_approval_does_not_run():
    log = []
    [exported] = openai_agents.export(new_box(log), approval="theirs")
    output = await exported.on_invoke_tool(new_context(), '{"order": 7}')
    assert output.startswith("Error: Tool 'pay' waits for approval")
    assert log == []


async def test_an_approval_is_not_valid_for_other_arguments_than_those_that_were_shown():
    log = []
    [exported] = openai_agents.export(new_box(log), approval="theirs")
    context = new_context()
    context.is_tool_approved = lambda name, call_id: True
    assert await exported.needs_approval(context, {"order": 7}, "call_1")
    output = await exported.on_invoke_tool(context, '{"order": 8}')
    assert output.startswith("Error: The arguments or the tool changed after the approval")
    assert log == []
    assert await exported.on_invoke_tool(context, '{"order": 7}') == "paid 7"
    assert log == [7]


async def test_calls_without_a_gate_do_not_ask():
    @tool
    def now() -> str:
        """The time."""
        return "noon"

    [exported] = openai_agents.export(Toolbox([now]), approval="theirs")
    assert exported.needs_approval is False


async def test_the_run_has_the_id_of_the_trace():
    @tool
    def show(context: ToolContext) -> str:
        """Show the run."""
        return context.run_id

    [exported] = openai_agents.export(Toolbox([show]))
    with agents.trace("shop", trace_id="trace_0123456789abcdef0123456789abcdef"):
        output = await exported.on_invoke_tool(new_context("show", "{}"), "{}")
    assert output == "trace_0123456789abcdef0123456789abcdef"
    assert await exported.on_invoke_tool(new_context("show", "{}"), "{}") == "call_1"


def test_tools_that_need_approval_there_require_it_here():
    @agents.function_tool(needs_approval=True)
    def pay(order: int) -> str:
        """Pay an order."""
        return f"paid {order}"

    [adopted] = openai_agents.adopt(pay)
    assert adopted.requires_approval is True


def test_a_function_whose_types_cannot_be_read_is_adopted():
    async def invoke(context, text):
        return text

    plain = agents.FunctionTool("plain", "Plain.", {"type": "object", "properties": {}}, invoke)
    assert Toolbox(openai_agents.adopt(plain)).execute(ToolCall("plain")).text == "{}"

    @agents.function_tool
    def add(a: int) -> int:
        """Add."""
        return a

    add.__wrapped__.__annotations__["a"] = "Missing"
    assert Toolbox(openai_agents.adopt(add)).execute(ToolCall("add", {"a": 1})).text == "1"
