"""Measure what a journal adds to a call and to a turn, in a file and on Postgres.

``python benchmarks/shared_state.py postgresql://user@host/database`` prints the medians in milliseconds. Runs in a file
and on Postgres take turns, so that a busy machine slows both.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from toolsemble import Agent, RunJournal, ToolCall, tool
from toolsemble.models import AssistantMessage, FunctionModel

TURNS, ROUNDS = 40, 7


@tool(effects="read")
async def look(number: int) -> str:
    """Look up a number."""
    return f"{number}"


@tool(effects="irreversible")
async def pay(number: int) -> str:
    """Pay a number."""
    return f"paid {number}"


def make_agent(name: str, calls: int, journal: RunJournal | None) -> Agent:
    """Return an agent that makes some calls in each of its turns, and then answers."""

    def reply(request: object) -> object:
        turn = sum(isinstance(message, AssistantMessage) for message in request.messages)  # type: ignore[attr-defined]  # a request
        return [ToolCall(name, {"number": turn})] * calls if turn < TURNS else "Done."

    tools = [look, pay]
    return Agent(
        FunctionModel(reply), tools, journal=journal, name="bench", max_tool_calls=TURNS * calls + 1, loop_guard=None
    )


def measure(name: str, calls: int, journals: dict[str, RunJournal | None]) -> dict[str, float]:
    """Return the median of the milliseconds of a turn, by journal."""
    seconds: dict[str, list[float]] = {each: [] for each in journals}
    for round_ in range(ROUNDS):
        for each, journal in journals.items():
            agent = make_agent(name, calls, journal)
            began = time.perf_counter()
            asyncio.run(agent.run("Go", run_id=f"{name}-{calls}-{round_}-{time.time_ns()}"))
            seconds[each].append((time.perf_counter() - began) / TURNS * 1000)
    return {each: statistics.median(values) for each, values in seconds.items()}


def report(journals: dict[str, RunJournal | None]) -> Iterator[str]:
    """Return the lines of a table."""
    yield f"{'added per':<28}" + "".join(f"{each:>12}" for each in journals if journals[each] is not None)
    for what, name, calls in (("turn with a read", "look", 1), ("turn with a payment", "pay", 1)):
        taken = measure(name, calls, journals)
        added = [value - taken["none"] for each, value in taken.items() if each != "none"]
        yield f"{what:<28}" + "".join(f"{value:>9.2f} ms" for value in added)
    for what, name in (("call that reads", "look"), ("call that pays", "pay")):
        one, four = measure(name, 1, journals), measure(name, 4, journals)
        each_call = {each: (four[each] - one[each]) / 3 for each in journals}
        yield f"{what:<28}" + "".join(
            f"{value - each_call['none']:>9.2f} ms" for each, value in each_call.items() if each != "none"
        )


def main(url: str) -> None:
    """Measure, and print."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        journals: dict[str, RunJournal | None] = {
            "none": None,
            "file": stack.enter_context(RunJournal(Path(folder) / "runs.db")),
            "Postgres": stack.enter_context(RunJournal(url)),
        }
        for line in report(journals):
            print(line)


if __name__ == "__main__":
    main(*sys.argv[1:])
