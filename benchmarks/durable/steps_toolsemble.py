"""toolsemble: turns of an agent with a journal, each with a reply of the model and a call that may be repeated."""

import asyncio

from steps import Run, answer

from toolsemble import Agent, RunJournal, ToolCall, tool
from toolsemble.models import ScriptedModel


@tool(effects="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def make(path: str | None) -> Run:
    """Return a function that makes a run of some turns."""
    journal = None if path is None else RunJournal(path)

    def run(count: int) -> None:
        script = [ToolCall("add", {"a": number, "b": 2}) for number in range(count)]
        agent = Agent(ScriptedModel([*script, "done"]), [add], max_tool_calls=count + 1, journal=journal)
        asyncio.run(agent.run("go"))

    return run


if __name__ == "__main__":
    answer("toolsemble", 3, "records", make)
