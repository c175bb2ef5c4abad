"""A program that writes to a run history; started by tests, which may kill it.

history_process.py FILE PREFIX COUNT [hang]: runs COUNT agents, and then prints "ready" and waits inside a call.
"""

import sys
import threading

from toolsemble import Agent, ToolCall, tool
from toolsemble.telemetry import RunHistory
from toolsemble.testing import ScriptedModel


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(inline=True)
def hang() -> str:
    """Write that it is running, and wait for ever."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    threading.Event().wait()
    return "never"


if __name__ == "__main__":
    path, prefix, count, *rest = sys.argv[1:]
    with RunHistory(path) as history:
        for index in range(int(count)):
            model = ScriptedModel([ToolCall("add", {"a": index, "b": 1}), "done"])
            Agent(model, [add], sinks=[history]).run_sync("Add.", run_id=f"{prefix}{index}")
        if rest:
            Agent(ScriptedModel([ToolCall("hang")]), [hang], sinks=[history]).run_sync("Hang.", run_id=f"{prefix}hang")
