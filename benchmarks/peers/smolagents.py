"""smolagents: `@tool`, executed by an agent that calls tools."""

from smolagents import Model, Tool, ToolCallingAgent, tool
from smolagents.models import get_tool_json_schema, parse_json_if_needed

from peers.task import ARGUMENTS, Call, new_search

NAME = "smolagents"
DISTRIBUTION = "smolagents"
IMPORT = "from smolagents import ToolCallingAgent, tool"
VALIDATES = True


def _agent(names: list[str]) -> ToolCallingAgent:
    return ToolCallingAgent(tools=[_tool(name) for name in names], model=Model())


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
    """Give the tools to an agent; it adds one of its own, which is left out."""
    agent = _agent([f"search_{number}" for number in range(count)])
    return agent, [get_tool_json_schema(each) for each in agent.tools.values() if each.name != "final_answer"]
