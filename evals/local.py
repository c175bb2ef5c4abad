"""Measure how well the embedded model uses the built-in tools, and write the findings into its page.

Tasks are in two halves: `tuned.json` was looked at while the prompt was made, `unseen.json` was written afterwards.
`earlier.json` has those that were unseen once, and whose failures have changed the prompt since.
What counts is the outcome: the tools that a task needs have succeeded, the answer holds the right values, files hold
the right text, and a task that needs no tool was answered without one.

Each outcome is kept in a file as soon as it is known, and a task whose outcome is in the file is not done again. Delete
the file after a change of the prompt.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import re
import resource
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from kept import FOLDER, Kept

from toolsemble import Agent, AgentResult, AgentTool
from toolsemble.builtin import (
    CalculatorTool,
    DateTimeTool,
    FileReadTool,
    FileWriteTool,
    JsonParserTool,
    SearchHit,
    WebSearchTool,
)
from toolsemble.models import AssistantMessage, LocalModel

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "models" / "local.md"
NOW = datetime.datetime(2025, 3, 14, 9, 26, 53, tzinfo=datetime.UTC)
MOST_CALLS = 6

Task: TypeAlias = tuple[str, str, dict[str, Any]]
"""A half, a kind, and a task."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one task."""

    kind: str
    """Which kind of task it was."""
    problem: str
    """What was wrong; empty when nothing was."""
    seconds: float
    """How long it took."""
    steps: int
    """How often the model was asked."""


class Pages:
    """A web of a few pages: gives those that share the most words with the query."""

    def __init__(self) -> None:
        self._pages = [SearchHit(**page) for page in json.loads((HERE / "pages.json").read_text())]

    def search(self, query: str, max_results: int) -> list[SearchHit]:
        """Return the pages that fit best."""
        words = set(re.findall(r"\w{3,}", query.lower()))

        def common(hit: SearchHit) -> int:
            return len(words & set(re.findall(r"\w{3,}", f"{hit.title} {hit.snippet}".lower())))

        return [hit for hit in sorted(self._pages, key=common, reverse=True) if common(hit)][: min(max_results, 2)]


def tools(folder: Path) -> list[AgentTool]:
    """Return the tools that every task is offered."""
    return [
        CalculatorTool(),
        DateTimeTool(lambda: NOW),
        JsonParserTool(),
        FileReadTool(folder),
        FileWriteTool(folder),
        WebSearchTool(Pages()),
    ]


def problems(task: dict[str, Any], result: AgentResult, folder: Path) -> Iterator[str]:
    """Return everything that is wrong about a result."""
    succeeded = {record.call.name for record in result.tool_calls if not record.reply.is_error}
    wanted = set(task.get("tools", ()))
    if not wanted and result.tool_calls:
        yield "used a tool"
    if wanted - succeeded:
        yield f"did not use {', '.join(sorted(wanted - succeeded))}"
    if not result.text.strip():
        yield "gave no answer"
    said = re.sub(r"(?<=\d),(?=\d{3})", "", result.text)
    for value in task.get("answer", ()):
        either = "|".join(re.escape(word) for word in value.split("|"))
        if not re.search(rf"(?<![\d.])(?:{either})(?:0*(?!\d)|(?=\D))", said, re.IGNORECASE):
            yield f"does not say {value}"
    for name, text in task.get("files", {}).items():
        path = folder / name
        if not path.is_file():
            yield f"did not write {name}"
        elif path.read_text().strip() != text:
            yield f"wrote {path.read_text()!r:.60} to {name}"


async def outcome(
    model: LocalModel, kind: str, task: dict[str, Any], *, told: bool, offer: Callable[[Path], Any] = tools
) -> Outcome:
    """Let the model do a task with the tools that are offered, and look at what came of it."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "files"
        shutil.copytree(HERE / "files", folder)
        begun = time.monotonic()
        result = await Agent(model, offer(folder), max_tool_calls=MOST_CALLS).run(task["prompt"])
        seconds = time.monotonic() - begun
        wrong = "; ".join(problems(task, result, folder))
    if told:
        print(f"{'no ' if wrong else 'yes'} {seconds:5.1f} s  {kind}: {task['prompt']}  {wrong}", flush=True)
        thoughts = [message.details for message in result.messages if isinstance(message, AssistantMessage)]
        for record, thought in zip(result.tool_calls if wrong else (), thoughts, strict=False):
            print(f"        {thought} {record.call.name} {record.call.json} -> {record.reply.text!r:.200}")
        if wrong:
            print(f"        answer: {result.text!r:.300}", flush=True)
    return Outcome(kind, wrong, seconds, result.usage.model_calls)


async def measure(model: LocalModel, tasks: list[Task], kept: Kept) -> list[Outcome]:
    """Return the outcomes of tasks; those that are kept are not done again."""

    async def do(task: Task) -> Outcome:
        known = kept.get(*task[:2], task[2]["prompt"])
        if known is not None:
            return Outcome(**known)
        done = await outcome(model, *task[1:], told=True)
        kept.add(*task[:2], task[2]["prompt"], **asdict(done))
        return done

    return [await do(task) for task in tasks]


def choose_tasks(half: str, kinds: list[str], only: str, every: int) -> list[Task]:
    """Return the tasks of one half: all, or those with some words, or one in so many."""
    tasks = json.loads((HERE / f"{half}.json").read_text())
    chosen = [
        (half, kind, task) for kind in kinds for task in tasks[kind] if re.search(only, task["prompt"], re.IGNORECASE)
    ]
    return chosen[::every]


def row(name: str, half: str, outcomes: list[Outcome]) -> str:
    """Return a line of the table."""
    right = Counter(each.kind for each in outcomes if not each.problem)
    every = Counter(each.kind for each in outcomes)
    scores = " | ".join(f"{right[kind]} of {every[kind]}" for kind in KINDS)
    pace = sum(each.seconds for each in outcomes) / max(1, sum(each.steps for each in outcomes))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return f"| {name} | {half} | {scores} | {pace:.1f} s | {memory:.1f} GB |"


KINDS = ["single", "two-step", "no tool"]
BEGIN, END = "<!-- measured -->\n", "<!-- end -->"


def write(rows: list[str]) -> None:
    """Put the table into the page, in place of the rows of the same models and halves."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    table, _, after = rest.partition(END)
    kept = {tuple(line.split("|")[1:3]): line for line in [*table.splitlines()[2:], *rows]}
    head = f"| model | tasks | {' | '.join(KINDS)} | a step | memory |\n|{' --- |' * (4 + len(KINDS))}\n"
    PAGE.write_text(before + BEGIN + head + "".join(f"{line}\n" for line in kept.values()) + END + after)


async def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="", help="name or path of the weights")
    parser.add_argument("--half", action="append", choices=["tuned", "unseen", "earlier"], help="two by default")
    parser.add_argument("--kind", action="append", choices=KINDS, help="all by default")
    parser.add_argument("--only", default="", help="only tasks with one of these words, which | separates")
    parser.add_argument("--threads", type=int, help="on a busy machine one is fastest; all cores by default")
    parser.add_argument("--every", type=int, default=1, help="only one task in this many")
    parser.add_argument("--kept", type=Path, default=FOLDER / "local-tasks.jsonl", help="the file of the outcomes")
    parser.add_argument("--write", action="store_true", help="write the table into the page")
    given = parser.parse_args()
    kept = Kept(given.kept)
    model, rows = LocalModel(given.model, threads=given.threads), []
    for half in given.half or ["tuned", "unseen"]:
        tasks = choose_tasks(half, given.kind or KINDS, given.only, given.every)
        outcomes = await measure(model, tasks, kept)
        rows.append(row(model.path.name.removesuffix(".gguf"), half, outcomes))
        print(rows[-1], flush=True)
    if given.write:
        write(rows)


if __name__ == "__main__":
    asyncio.run(main())
