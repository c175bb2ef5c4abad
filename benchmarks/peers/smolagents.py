"""smolagents: `@tool`, executed by an agent that calls tools."""

from collections.abc import Sequence

from smolagents import ChatMessage, LogLevel, MessageRole, Model, Tool, ToolCallingAgent, tool
from smolagents.models import (
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    get_tool_json_schema,
    parse_json_if_needed,
)

from peers.task import ANSWER, ARGUMENTS, PROMPT, Call, Search, Turn, all_at_once, new_search, numbered, script

NAME = "smolagents"
DISTRIBUTION = "smolagents"
IMPORT = "from smolagents import ToolCallingAgent, tool"
VALIDATES = True


def _agent(names: list[str]) -> ToolCallingAgent:
    return ToolCallingAgent(tools=[_tool(name) for name in names], model=Model(), verbosity_level=LogLevel.OFF)


def _tool(name: str = "search") -> Tool:
    return tool(new_search(name))


def define() -> object:
    """Define the tool, and give it in OpenAI's form."""
    return get_tool_json_schema(_tool())


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Let an agent execute the call."""
    agent = _agent(["search"])
    return lambda: str(agent.execute_tool_call("search", parse_json_if_needed(arguments)))


def many(count: int) -> tuple[object, list[object]]:
    """Return the tools to an agent; it adds its own tool, which is left out."""
    agent = _agent(numbered(count))
    return agent, [get_tool_json_schema(each) for each in agent.tools.values() if each.name != "final_answer"]


def make_look_up(count: int) -> Call:
    """Let an agent with many tools execute the call."""
    names = numbered(count)
    agent = _agent(names)
    return lambda: str(agent.execute_tool_call(names[-1], parse_json_if_needed(ARGUMENTS)))


def make_agent(turns: Sequence[Turn]) -> Call:
    """Run an agent."""
    return _run(_tool(), turns)


def make_blocking(search: Search, count: int) -> Call:
    """Let an agent's model ask for all calls at once."""
    return _run(tool(search), all_at_once(count))


class Scripted(Model):
    """A model with scripted replies."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        super().__init__()
        self._lines = script(turns)

    def generate(self, *_: object, **__: object) -> ChatMessage:
        """Return the next reply; an answer is a call, too."""
        calls = [_asked("search", asked.id, asked.arguments) for asked in next(self._lines)]
        final = _asked("final_answer", "call_0", f'{{"answer": "{ANSWER}"}}')
        return ChatMessage(MessageRole.ASSISTANT, tool_calls=calls or [final])


def _asked(name: str, id: str, arguments: str) -> ChatMessageToolCall:
    return ChatMessageToolCall(ChatMessageToolCallFunction(arguments, name), id, "function")


def _run(search: Tool, turns: Sequence[Turn]) -> Call:
    agent = ToolCallingAgent(tools=[search], model=Scripted(turns), verbosity_level=LogLevel.OFF)
    return lambda: agent.run(PROMPT, max_steps=len(turns) + 1)
