"""A program that drives a run with a journal and a history; started by tests, which kill it.

continued_process.py FOLDER MODE: drives the run until it waits for a person, or until a body runs, prints "ready", and
waits. The next process that drives the run has ``hangs=False``.
"""

import asyncio
import sys
import threading
from pathlib import Path

from helpers.journal_runs import clerk, script
from toolsemble import Agent, RunJournal, ToolCall, ToolPipeline, tool
from toolsemble.review import QueueReview, ReviewStore
from toolsemble.telemetry import RunHistory

MODES = {
    "waits": ["pay"],
    "waits in a pipeline": ["settle", "look", "pay"],
    "waits in an agent": ["helper", "pay"],
    "reads": ["read"],
    "sends": ["send"],
    "sends in an agent": ["helper", "send"],
}
"""The calls of a run, by where its process is killed."""


def make_tools(*, hangs):
    """Return the tools by name."""

    def hang():
        if hangs:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            threading.Event().wait()

    @tool(requires_approval=True, approval_timeout=None)
    def pay(order: int) -> str:
        """Pay an order."""
        return f"paid {order}"

    @tool(effects="read")
    def look(order: int) -> dict:
        """Look up an order."""
        return {"order": order}

    @tool(effects="read")
    def read(order: int) -> str:
        """Read an order."""
        hang()
        return "read"

    @tool(effects="irreversible")
    def send(order: int) -> str:
        """Send an order."""
        hang()
        return "sent"

    return {each.name: each for each in (pay, look, read, send)}


def make_agent(folder, mode, store, history, journal, *, hangs=False, sinks=()):
    """Return the agent of a mode."""
    tools, name = make_tools(hangs=hangs), MODES[mode][-1]
    made, call = [tools[name]], ToolCall(name, {"order": "7"})
    if mode.endswith("pipeline"):
        made, call = (
            [ToolPipeline("settle", "Settles", [tools["look"], tools[name]])],
            ToolCall("settle", {"order": "7"}),
        )
    elif mode.endswith("agent"):
        helper = Agent(script(ToolCall(name, {"order": "7"}), "Paid."), made, role="helper").as_tool("helper", "Helps")
        made, call = [helper], ToolCall("helper", {"input": "Pay"})
    review = QueueReview(store, poll=0.01)
    return clerk(journal, made, call, "Done.", review=review, sinks=[history, *sinks])


def open_all(folder):
    """Return the store, the history and the journal of a folder."""
    return ReviewStore(folder / "reviews.db"), RunHistory(folder / "history.db"), RunJournal(folder / "runs.db")


async def main(folder, mode):
    """Drive the run, and say when it waits for a person."""
    store, history, journal = open_all(folder)
    agent = make_agent(folder, mode, store, history, journal, hangs=True)
    driving = asyncio.ensure_future(agent.run("Pay order 7", run_id="r1"))
    while not store.pending() or not history.reviews("r1"):
        await asyncio.wait([driving], timeout=0.01)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await driving


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
