"""Pydantic AI beyond the cases: texts that are not JSON, edits, deferred calls, and contents."""

import pytest
from pydantic_ai import Tool
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import BinaryContent, ToolReturn
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved
from pydantic_ai.toolsets import FunctionToolset

from interop.cases import Shop
from interop.drivers.pydantic_ai import agent, read
from toolsemble import AudioContent, FileContent, ImageContent, Toolbox, ToolCall, ToolContext, ToolResult, tool
from toolsemble.interop import pydantic_ai

MEDIA = [
    ImageContent(b"...", "image/png"),
    AudioContent(b"...", "audio/wav"),
    FileContent(b"...", "application/pdf", "file"),
    ImageContent.from_url("https://example.com/map.png"),
]
TEA = ToolCall("order", {"item": "tea", "count": 3}, id="call_1")


async def resume(paused, result, approval, metadata=None):
    deferred = DeferredToolResults(approvals={"call_1": approval}, metadata=metadata or {})
    return await paused.run(message_history=result.all_messages(), deferred_tool_results=deferred)


def new_agent(shop, call=TEA):
    tools = pydantic_ai.export(shop.box(approve=["order"]), approval="theirs")
    return agent(tools, [call], output_type=[str, DeferredToolRequests])


@pytest.mark.parametrize("text", ["[1]", '{"item": "te'])
async def test_text_that_is_not_an_object_is_read_by_the_toolbox(text):
    shop = Shop()
    call = ToolCall("order", text, id="call_1")
    [seen] = read(await agent(pydantic_ai.export(shop.box()), [call]).run("Buy tea."), [call])
    assert seen.text == Shop().box().execute(call).text
    assert shop.ran == []


async def test_an_edit_that_does_not_fit_is_asked_about_again():
    shop = Shop()
    paused = new_agent(shop)
    result = await paused.run("Buy tea.")
    result = await resume(paused, result, ToolApproved(override_args={"count": "many"}))
    assert "The edit does not fit" in result.output.metadata["call_1"]["prompt"]
    assert read(await resume(paused, result, True), [TEA])[0].text == "3 tea for 3"
    assert shop.ran == [("tea", 3, 1.0)]


async def test_another_process_resumes_with_the_metadata_of_the_request():
    shops = [Shop(), Shop()]
    first, second = map(new_agent, shops)
    result = await first.run("Buy tea.")
    asked = result.output.metadata
    again = await resume(second, result, True)
    assert isinstance(again.output, DeferredToolRequests)  # it is unknown here what was shown
    third = new_agent(shops[1])
    result = await resume(third, result, True, metadata=asked)
    parts = [part for message in result.all_messages() for part in message.parts]
    assert "3 tea for 3" in [getattr(part, "content", None) for part in parts]
    assert (shops[0].ran, shops[1].ran) == ([], [("tea", 3, 1.0)])


async def test_an_approval_is_not_valid_for_a_tool_that_changed():
    shop = Shop()
    result = await new_agent(Shop()).run("Buy tea.")

    @tool(requires_approval=True)
    def order(item: str, count: int) -> str:
        """Order something, and pay at once."""
        shop.ran.append(item)
        return "paid"

    tools = pydantic_ai.export(Toolbox([order]), approval="theirs")
    changed = agent(tools, [], output_type=[str, DeferredToolRequests])
    again = await resume(changed, result, True, metadata=result.output.metadata)
    assert again.output.metadata["call_1"]["description"] == "Order something, and pay at once."
    assert shop.ran == []


async def test_calls_that_the_history_does_not_have_are_taken_as_they_are():
    class Context:
        tool_call_approved = True
        tool_call_id, conversation_id, tool_call_metadata, deps, messages = "call_1", "talk_1", None, None, ()

    shop = Shop()
    tools = pydantic_ai.export(shop.box(approve=["order"]), approval="theirs")
    with pytest.raises(ApprovalRequired):
        await tools.call_tool("order", TEA.arguments, Context(), None)
    assert shop.ran == []


async def test_a_tool_that_asks_while_it_runs_fails_with_the_reason():
    @tool
    def pay(context: ToolContext) -> str:
        """Pay."""
        return str(context.request_approval("Pay?"))

    call = ToolCall("pay", id="call_1")
    tools = pydantic_ai.export(Toolbox([pay]), approval="theirs")
    [seen] = read(await agent(tools, [call]).run("Pay."), [call])
    assert "asks for approval while it runs" in seen.text


async def test_media_travel_there_and_back():
    @tool
    def draw() -> ToolResult:
        """Draw."""
        return ToolResult.success("a map", contents=[*MEDIA, FileContent.from_url("https://example.com/a.pdf")])

    toolset = pydantic_ai.export(Toolbox([draw]))
    call = ToolCall("draw", id="call_1")
    result = await agent(toolset, [call]).run("Draw.")
    parts = [part for message in result.all_messages() for part in message.parts]
    [content] = [part.content for part in parts if part.part_kind == "tool-return"]

    def repeat() -> ToolReturn:
        """Return what the model was shown."""
        return ToolReturn(content)

    for tools, name in [(Tool(repeat), "repeat"), (toolset, "draw")]:
        reply = await Toolbox(pydantic_ai.adopt(tools)).aexecute(ToolCall(name))
        assert (reply.text, list(reply.contents[:4])) == ("a map", MEDIA)
        assert reply.contents[4].url == "https://example.com/a.pdf"


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (ToolFailed("no tea"), "Error: no tea"),
        (ModelRetry("try coffee"), "Error: try coffee"),
        (ApprovalRequired(), "Error: The tool raised ApprovalRequired, which only a run of Pydantic AI can handle"),
        (CallDeferred(), "Error: The tool raised CallDeferred, which only a run of Pydantic AI can handle"),
    ],
)
def test_what_native_tools_raise_for_the_model_is_a_failure(problem, text):
    def order() -> str:
        """Order something."""
        raise problem

    assert Toolbox(pydantic_ai.adopt(Tool(order))).execute(ToolCall("order")).text == text


def test_function_toolsets_are_adopted_with_their_approval():
    tools = FunctionToolset()

    @tools.tool_plain(requires_approval=True)
    def order(item: str) -> ToolReturn:
        """Order something."""
        return ToolReturn([item, {"count": 1}, BinaryContent(b"...", media_type="image/png")], metadata={"id": 7})

    [adopted] = pydantic_ai.adopt(tools)
    assert adopted.requires_approval is True
    [free] = pydantic_ai.adopt(tools, requires_approval=False)
    result = free.execute({"item": "tea"})
    assert (result.output, result.structured_output) == ('tea\n{"count":1}', {"id": 7})
    assert list(result.contents) == [ImageContent(b"...", "image/png")]


async def test_tools_get_the_dependencies_of_the_run():
    @tool
    def show(context: ToolContext) -> str:
        """Show them."""
        return f"{context.deps} {context.memory_id}"

    call = ToolCall("show", id="call_1")
    tools = pydantic_ai.export(Toolbox([show]), memory_id=lambda ctx: ctx.deps.lower())
    [seen] = read(await agent(tools, [call]).run("Show.", deps="ADA"), [call])
    assert seen.text == "ADA ada"


async def test_a_person_edits_the_one_field_that_is_editable():
    @tool(requires_approval=True, editable="text")
    def send(to: str, text: str) -> str:
        """Send a message."""
        return f"to {to}: {text}"

    call = ToolCall("send", {"to": "ada", "text": "Hi"}, id="call_1")
    for override, reply in [
        ({"to": "ada", "text": "Hello"}, "to ada: Hello"),
        ({"to": "bob", "text": "Hello"}, "Error: Rejected by reviewer: only 'text' can be edited"),
    ]:
        tools = pydantic_ai.export(Toolbox([send]), approval="theirs")
        paused = agent(tools, [call], output_type=[str, DeferredToolRequests])
        result = await paused.run("Say hello.")
        [seen] = read(await resume(paused, result, ToolApproved(override_args=override)), [call])
        assert seen.text.partition("\n")[0] == reply
