"""LlamaIndex: a `FunctionAgent`, and the tool calls of an LLM without an agent as its blocking way."""

from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import ToolCallBlock
from llama_index.core.llms import ChatMessage, ImageBlock, TextBlock
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.tools import FunctionTool, call_tool_with_selection
from llama_index.core.workflow import Context

from interop.kit import Seen
from interop.natives import write_functions

MODULE = "llama_index"
DISTRIBUTIONS = ("llama-index-core",)
CALL_ID = False  # tools are called with the arguments only


async def run(exported, calls):
    blocks = [ToolCallBlock(tool_call_id=each.id, tool_name=each.name, tool_kwargs=each.arguments) for each in calls]
    said = [ChatMessage(role="assistant", blocks=blocks), ChatMessage(role="assistant", content="Done.")]
    shown = []

    def answer(messages, **settings):
        shown[:] = [each for each in messages if each.role == "tool"]
        return said.pop(0)

    agent = FunctionAgent(tools=exported, llm=MockFunctionCallingLLM(response_generator=answer))
    handler = agent.run("Buy tea.")
    try:
        outputs = {each.tool_id: each.tool_output async for each in handler.stream_events() if is_result(each)}
        assert str(await handler) == "Done."
    finally:
        await handler.cancel_run()
    assert [each.content for each in shown] == [outputs[each.id].content for each in calls]
    return [read(outputs[each.id]) for each in calls]


def is_result(event):
    return isinstance(event, ToolCallResult)


def run_sync(exported, calls):
    selected = [ToolSelection(tool_id=each.id, tool_name=each.name, tool_kwargs=each.arguments) for each in calls]
    return [read(call_tool_with_selection(each, exported)) for each in selected]


def read(output):
    media = [
        (each.image_mimetype, each.resolve_image().read()) for each in output.blocks if isinstance(each, ImageBlock)
    ]
    assert all(isinstance(each, (TextBlock, ImageBlock)) for each in output.blocks)
    payload = None if output.raw_output == output.content else output.raw_output
    return Seen(output.content, output.is_error, media, payload)


def offer(function):
    return [FunctionTool.from_defaults(async_fn=function)]


def native(log):
    return [FunctionTool.from_defaults(each) for each in write_functions(log)]


def refused():
    async def remember(ctx: Context, fact: str) -> str:
        """Remember a fact."""
        return f"{ctx} {fact}"

    return [(FunctionTool.from_defaults(async_fn=remember), "Context of a workflow")]
