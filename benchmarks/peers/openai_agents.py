"""openai-agents: `@function_tool`, invoked with a tool context, as its runner does it."""

from collections.abc import AsyncIterator, Sequence

from agents import (
    Agent,
    FunctionTool,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    Usage,
    function_span,
    function_tool,
)
from agents.items import TResponseOutputItem, TResponseStreamEvent
from agents.models.chatcmpl_converter import Converter
from agents.tool_context import ToolContext
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from peers.task import (
    ANSWER,
    ARGUMENTS,
    PROMPT,
    WRONG_TYPE,
    AsyncSearch,
    Call,
    Search,
    Turn,
    by_agent,
    new_async_search,
    numbered,
    script,
)

NAME = "openai-agents"
DISTRIBUTION = "openai-agents"
IMPORT = "from agents import Agent, function_tool"
VALIDATES = True


def _tool(name: str = "search") -> FunctionTool:
    return function_tool(new_async_search(name))


def define() -> object:
    """Define the tool, and give it in OpenAI's form."""
    return Converter.tool_to_openai(_tool())


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Invoke the tool."""
    search = _tool()

    async def call() -> str:
        return await _invoked(search, arguments)

    return call


def many(count: int) -> tuple[object, list[object]]:
    """Return the tools to an agent."""
    agent = Agent("searcher", tools=[_tool(name) for name in numbered(count)])
    return agent, [Converter.tool_to_openai(each) for each in agent.tools]


def make_refusal() -> Call:
    """Invoke the tool inside a span, as the runner does, or the missing span would be logged each time."""
    search = _tool()

    async def call() -> str:
        with function_span("search", disabled=True):
            return await _invoked(search, WRONG_TYPE)

    return call


async def _invoked(search: FunctionTool, arguments: str) -> str:
    context = ToolContext(None, tool_name="search", tool_call_id="call_1", tool_arguments=arguments)
    return str(await search.on_invoke_tool(context, arguments))


class Scripted(Model):
    """A model with scripted replies."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._lines = script(turns)

    async def get_response(self, *_: object, **__: object) -> ModelResponse:
        """Return the next reply."""
        calls = [
            ResponseFunctionToolCall(arguments=arguments, call_id=id, name="search", type="function_call")
            for id, arguments in next(self._lines)  # noqa: A001 - the name of the field
        ]
        return ModelResponse(output=calls or [_said(ANSWER)], usage=Usage(), response_id=None)

    async def stream_response(self, *_: object, **__: object) -> AsyncIterator[TResponseStreamEvent]:
        """Refuse, as no benchmark streams here."""
        raise NotImplementedError
        yield


def _said(text: str) -> TResponseOutputItem:
    content = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(id="1", content=[content], role="assistant", status="completed", type="message")


def _run(search: Search | AsyncSearch, turns: Sequence[Turn]) -> Call:
    agent = Agent("searcher", model=Scripted(turns), tools=[function_tool(search)])
    config = RunConfig(tracing_disabled=True)

    async def run() -> str:
        return (await Runner.run(agent, PROMPT, max_turns=len(turns) + 1, run_config=config)).final_output

    return run


make_agent, make_parallel, make_blocking = by_agent(_run)
