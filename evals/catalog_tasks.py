"""Measure how well the embedded model does tasks among many tools, with a catalog and without, and write the table.

The tasks are those of `unseen.json` that need one call. Beside the built-in tools there are functions of BFCL, some of
which look as if they helped; a call of one is answered "done". With a catalog the built-in tools are hidden, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bfcl
from page import replace_part

from local import HERE, Outcome, outcome, tools
from toolsemble import AgentTool, Catalog
from toolsemble.catalog import Source
from toolsemble.errors import ToolsembleError
from toolsemble.models import LocalModel

NUMBERS = (5, 50, 500)
BUDGET = 700
LIMIT = 3
CONTEXT = 16_384


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
        # In one group, as those of a server are: the prompt is then the same for any number of them.
        others = Source(lambda _: distractors, group="functions")
        return Catalog([others, *tools(folder)], budget=BUDGET, limit=LIMIT)

    return offer


async def measure(model: LocalModel, number: int, offer: Callable[[Path], Any]) -> list[Outcome | ToolsembleError]:
    """Return what came of each task, or the error that ended it."""
    outcomes: list[Outcome | ToolsembleError] = []
    for task in choose_tasks(number):
        try:
            outcomes.append(await outcome(model, "single", task, told=True, offer=offer))
        except ToolsembleError as error:
            print(f"no  {task['prompt']}  {error}", flush=True)
            outcomes.append(error)
    return outcomes


def write_cell(outcomes: list[Outcome | ToolsembleError]) -> str:
    """Return the tasks that were done, and the seconds of each."""
    done = [each for each in outcomes if isinstance(each, Outcome)]
    if not done:
        return "an error each time"
    right = sum(not each.problem for each in done)
    return f"{right} of {len(outcomes)}, {sum(each.seconds for each in done) / len(done):.0f} s"


async def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the folder of the data; by default that of the wheel bfcl-eval")
    parser.add_argument("--tasks", type=int, default=10, help="how many tasks")
    parser.add_argument("--distractors", type=int, action="append", help="how many distracting tools; 5, 50 and 500")
    parser.add_argument("--threads", type=int, help="on a busy machine one is fastest; all cores by default")
    parser.add_argument("--only", choices=["catalog", "all"], help="only with a catalog, or only with all tools shown")
    parser.add_argument("--write", action="store_true", help="write the table into the page")
    given = parser.parse_args()
    data, model = given.data or bfcl.find_data(), LocalModel(context=CONTEXT, threads=given.threads)
    lines = ["| distracting tools | with a catalog | all tools shown |", "| --- | --- | --- |"]
    for number in given.distractors or NUMBERS:
        distractors = choose_distractors(data, number)
        cells = [
            write_cell(await measure(model, given.tasks, offer_tools(distractors, catalog=way == "catalog")))
            if given.only in {None, way}
            else "not measured"
            for way in ("catalog", "all")
        ]
        lines.append(f"| {number} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    if given.write:
        replace_part("tasks", lines)


if __name__ == "__main__":
    asyncio.run(main())
