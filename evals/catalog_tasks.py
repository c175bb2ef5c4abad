"""Measure how well the embedded model does tasks among many tools, with a catalog and without, and write the table.

The tasks are from `unseen.json`, and need one call. Beside the built-in tools there are functions of BFCL, some of
which look as if they helped; a call of one is answered "done". With a catalog the built-in tools are hidden, too.

Each outcome is kept in a file as soon as it is known, and a task whose outcome is in the file is not done again. Delete
the file after a change of the prompt or of the search.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import bfcl
from kept import FOLDER, Kept
from page import replace_part

from local import HERE, outcome, tools
from toolsemble import AgentTool, Catalog
from toolsemble._vocabulary.errors import ToolsembleError
from toolsemble.catalog import Source
from toolsemble.models import LocalModel

NUMBERS = (5, 50, 500)
WAYS = ("catalog", "all")
BUDGET = 700
LIMIT = 3
CONTEXT = 16_384
TOO_LONG = "The system prompt takes "

Cell: TypeAlias = tuple[str, str]
"""A number of distracting tools, and the way in which they are offered."""


def write_cell(kept: Kept, cell: Cell) -> str:
    """Return how many tasks were done."""
    problems = [each["problem"] for each in kept.find(*cell)]
    if not problems:
        return "not measured"
    too_long = next((each for each in problems if each.startswith(TOO_LONG)), "")
    if too_long:
        return f"does not fit: {too_long.removeprefix(TOO_LONG).split(';')[0]}"
    return f"{problems.count('')} of {len(problems)}"


def choose_tasks(number: int) -> list[dict[str, Any]]:
    """Return some tasks, spread over all kinds of tools."""
    tasks = json.loads((HERE / "unseen.json").read_text())["single"]
    return [tasks[(2 * place + 1) * len(tasks) // (2 * number)] for place in range(number)]


def choose_distractors(data: Path, number: int) -> list[AgentTool]:
    """Return functions of BFCL, the same each time; a longer list begins with the shorter one."""
    functions = sorted(bfcl.read_functions(data), key=lambda each: each.name)
    chosen = random.Random(5).sample(functions, max(NUMBERS))  # noqa: S311 - the same each time
    return [each.to_tool() for each in chosen[:number]]


def offer_tools(distractors: list[AgentTool], *, catalog: bool) -> Callable[[Path], Any]:
    """Return the function that returns what a task is offered."""

    def offer(folder: Path) -> Any:
        if not catalog:
            return [*distractors, *tools(folder)]
        # In one group, like a server's tools: the prompt is then the same for any number of them.
        others = Source(lambda _: distractors, group="functions")
        return Catalog([others, *tools(folder)], budget=BUDGET, limit=LIMIT)

    return offer


async def measure(model: LocalModel, cell: Cell, tasks: list[dict[str, Any]], data: Path, kept: Kept) -> None:
    """Do the tasks whose outcomes are not known."""
    offer = offer_tools(choose_distractors(data, int(cell[0])), catalog=cell[1] == "catalog")

    for task in tasks:
        if kept.get(*cell, task["prompt"]) is not None:
            continue
        try:
            problem = (await outcome(model, "single", task, told=True, offer=offer)).problem
        except ToolsembleError as error:
            print(f"no  {task['prompt']}  {error}", flush=True)
            problem = str(error)
        kept.add(*cell, task["prompt"], problem=problem)


def write_table(kept: Kept) -> list[str]:
    """Return the lines of the table."""
    lines = ["| distracting tools | with a catalog | all tools shown |", "| --- | --- | --- |"]
    return lines + [
        f"| {number} | {' | '.join(write_cell(kept, (str(number), way)) for way in WAYS)} |" for number in NUMBERS
    ]


async def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the folder of the data; by default the one in the wheel bfcl-eval")
    parser.add_argument("--tasks", type=int, default=10, help="how many tasks")
    parser.add_argument("--distractors", type=int, action="append", help="how many distracting tools; 5, 50 and 500")
    parser.add_argument("--threads", type=int, help="on a busy machine one is fastest; all cores by default")
    parser.add_argument("--only", choices=WAYS, help="only with a catalog, or only with all tools shown")
    parser.add_argument("--kept", type=Path, default=FOLDER / "catalog-tasks.jsonl", help="the file of the outcomes")
    parser.add_argument("--write", action="store_true", help="write the table into the page")
    given = parser.parse_args()
    data, kept = given.data or bfcl.find_data(), Kept(given.kept)
    model = LocalModel(context=CONTEXT, threads=given.threads)
    for number in given.distractors or NUMBERS:
        for way in WAYS if given.only is None else (given.only,):
            await measure(model, (str(number), way), choose_tasks(given.tasks), data, kept)
            print(*write_table(kept), sep="\n", flush=True)
    if given.write:
        replace_part("tasks", write_table(kept))


if __name__ == "__main__":
    asyncio.run(main())
