"""Runs with a journal in a file: what recording costs, and what it takes to continue."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from own.agents import limit_calls, sums
from own.measure import Comparison, Go, Subject, awaited, computed
from toolsemble import Agent, AgentExecutionError, ModelError, RunJournal, Tool, ToolCall, tool
from toolsemble.agent import Retry
from toolsemble.models import ScriptedModel, messages_to_json


@tool(name="add", effects="read")
async def read_sum(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(name="add", effects="irreversible")
async def pay_sum(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def comparisons(turns: int = 100, replayed: int = 1000) -> Iterator[Comparison]:
    """Return the comparisons of journals."""
    with (
        tempfile.TemporaryDirectory() as folder,
        RunJournal(Path(folder, "runs.db")) as runs,
        asyncio.Runner() as runner,
    ):
        yield _record(runner, runs, read_sum, turns, "may be repeated", "< 1 ms more")
        yield _record(runner, runs, pay_sum, max(turns // 5, 1), "must not be repeated", "")
        yield _replay(runner, runs, replayed)
        yield _size(runner, folder, turns)


def _per_turn(runner: asyncio.Runner, turns: int, one: Tool, journal: RunJournal | None, *, waits: bool = False) -> Go:
    """Return a go of a run of some turns: the seconds of each, on the wall if it waits for a disk."""
    ids = count()

    async def work() -> None:
        agent = Agent(ScriptedModel([*sums(turns), "done"]), [one], **limit_calls(turns + 1), journal=journal)
        await agent.run("go", run_id=f"{one.effects} {turns} {next(ids)}")

    go = awaited(runner, work)
    return (lambda: go() / turns) if waits else computed(runner, work, turns)


def _record(runner: asyncio.Runner, runs: RunJournal, one: Tool, turns: int, which: str, aim: str) -> Comparison:
    """Compare a turn that is recorded with one that is not; only what must not be repeated waits for the disk."""
    what = f"a turn with a call that {which}, with a journal, out of {turns} in a run"
    subject = Subject("journal", what, "without a journal", aim, itself=True)
    ours, other = (_per_turn(runner, turns, one, journal, waits=not aim) for journal in (runs, None))
    return Comparison(subject, ours, other)


def _replay(runner: asyncio.Runner, runs: RunJournal, turns: int) -> Comparison:
    """Compare resuming a run from a journal with redoing it without one."""

    async def go_on(*script: ToolCall) -> None:
        model = ScriptedModel([*script, ModelError("no credit")])
        agent = Agent(model, [read_sum], **limit_calls(turns + 1), journal=runs, retry=Retry(attempts=1))
        with suppress(AgentExecutionError):
            await agent.run("go", run_id="replayed")

    runner.run(go_on(*sums(turns)))
    what, other = f"a replayed turn, out of {turns:,}", _per_turn(runner, turns, read_sum, None)
    subject = Subject("journal", what, "a turn without a journal", "< 500 µs more", itself=True)
    return Comparison(subject, computed(runner, go_on, turns), other)


def _size(runner: asyncio.Runner, folder: str, turns: int) -> Comparison:
    """Compare a turn's bytes in the journal with its messages' bytes."""

    def grow() -> float:
        path = Path(folder, f"{len([*Path(folder).iterdir()])}.db")
        with RunJournal(path) as runs:
            _per_turn(runner, turns, read_sum, runs)()
        return path.stat().st_size / turns

    def write() -> float:
        script = ScriptedModel([*sums(turns), "done"])
        result = runner.run(Agent(script, [read_sum], **limit_calls(turns + 1)).run("go"))
        return len(messages_to_json(result.messages)) / turns

    subject = Subject("journal", "a turn in the journal", "its messages as JSON", itself=True, unit="B")
    return Comparison(subject, grow, write)
