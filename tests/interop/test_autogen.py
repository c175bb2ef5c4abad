"""AutoGen beyond the cases: unknown tools, media that it cannot carry, and workbenches."""

import asyncio

import pytest
from autogen_core import CancellationToken
from autogen_core.tools import FunctionTool, StaticWorkbench

from interop.cases import PIXEL
from toolsemble import FileContent, ImageContent, Toolbox, ToolCall, ToolConfigurationError, ToolResult, tool
from toolsemble.interop import autogen


@tool
def draw() -> ToolResult:
    """Draw."""
    images = [ImageContent(PIXEL, "image/png"), ImageContent(b"...", "image/png")]
    others = [FileContent(b"...", "application/pdf", "a.pdf"), ImageContent.from_url("https://example.com/map.png")]
    return ToolResult.success("a map", contents=[*images, *others])


async def test_media_that_cannot_travel_are_lines_of_text():
    result = await autogen.export(Toolbox([draw])).call_tool("draw")
    assert [each.type for each in result.result] == [
        "TextResultContent",
        "ImageResultContent",
        *["TextResultContent"] * 3,
    ]
    assert "application/pdf" in result.result[3].content
    assert result.result[2].content == "[image/png, 3 bytes, not shown]"


async def test_an_unknown_tool_is_answered():
    result = await autogen.export(Toolbox([draw])).call_tool("drow", {}, CancellationToken(), "call_1")
    assert result.to_text() == "Error: Unknown tool 'drow'. Available tools: draw. Did you mean 'draw'?"
    assert result.is_error


async def test_a_cancelled_token_cancels_the_call():
    started, token = asyncio.Event(), CancellationToken()

    @tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await asyncio.Event().wait()

    call = asyncio.ensure_future(autogen.export(Toolbox([wait])).call_tool("wait", {}, token))
    await started.wait()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_workbench_has_nothing_to_start_and_no_state():
    workbench = autogen.export(Toolbox([draw]))
    async with workbench:
        await workbench.reset()
        await workbench.load_state(await workbench.save_state())


def test_workbenches_are_adopted():
    def double(number: int) -> int:
        if number < 0:
            raise ValueError("too small")
        return 2 * number

    box = Toolbox(autogen.adopt([StaticWorkbench([FunctionTool(double, "Double a number.")])]))
    assert box.execute(ToolCall("double", {"number": "21"})).text == "42"
    failed = box.execute(ToolCall("double", {"number": -1}))
    assert (failed.is_error, "too small" in failed.text) == (True, True)


def test_autogen_cannot_pause_a_run():
    with pytest.raises(ToolConfigurationError, match="AutoGen cannot pause a run for approval"):
        autogen.export(Toolbox([draw]), approval="theirs")
