"""The library itself."""

from collections.abc import Sequence

from peers.task import (
    ANSWER,
    ARGUMENTS,
    LINE,
    PROMPT,
    AsyncSearch,
    Call,
    Search,
    Turn,
    by_agent,
    new_search,
    new_step,
    numbered,
    script,
)
from toolsemble import Agent, Toolbox, ToolCall, ToolPipeline, tool
from toolsemble.models import FunctionModel

NAME = "toolsemble"
DISTRIBUTION = "toolsemble"
IMPORT = "from toolsemble import Agent, Toolbox, ToolCall, tool"
VALIDATES = True


def define() -> object:
    """Define the tool, and give it in OpenAI's form."""
    return Toolbox([tool(new_search())]).to_openai()


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Call through a toolbox."""
    box = Toolbox([tool(new_search())])
    return lambda: box.execute(ToolCall("search", arguments, "call_1")).text


def many(count: int) -> tuple[object, list[object]]:
    """Put the tools into one toolbox."""
    box = Toolbox([tool(new_search(name)) for name in numbered(count)])
    return box, box.to_openai()


def make_look_up(count: int) -> Call:
    """Call through a toolbox of many."""
    box = Toolbox([tool(new_search(name)) for name in numbered(count)])
    return lambda: box.execute(ToolCall(f"search_{count - 1}", ARGUMENTS, "call_1")).text


def make_pipeline() -> Call:
    """Call a pipeline through a toolbox."""
    steps = [tool(new_step(name)) for name in ("first", "second", "third")]
    box = Toolbox([ToolPipeline("three", "Adds three words", steps)])
    return lambda: box.execute(ToolCall("three", LINE, "call_1")).text


def _run(search: Search | AsyncSearch, turns: Sequence[Turn]) -> Call:
    lines = script(turns)
    model = FunctionModel(lambda _: _calls(next(lines)) or ANSWER)
    agent = Agent(model, [tool(search)], max_tool_calls=sum(map(len, turns)))

    async def run() -> str:
        return (await agent.run(PROMPT)).text

    return run


def _calls(turn: Turn) -> list[ToolCall]:
    return [ToolCall("search", asked.arguments, asked.id) for asked in turn]


make_agent, make_parallel, make_blocking = by_agent(_run)
