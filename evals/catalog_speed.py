"""Measure how fast catalogs are searched and indexed, and write the table into the page.

The tools are functions of BFCL, repeated under other names where there are not enough, and the queries are questions of
its users. What counts is the time of the processor, so that other programs on the machine disturb less.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import bfcl
from page import replace_part

from toolsemble import Catalog
from toolsemble.catalog._search import Index, describe_tool

SIZES = (10, 100, 1_000, 10_000)
QUERIES = 200
ROUNDS = 3


def repeat_functions(functions: list[bfcl.Function], size: int) -> list[bfcl.Function]:
    """Return so many functions; the repeated ones have other names."""
    repeated = (
        replace(each, name=f"{each.name[:58]}_{number}" if number else each.name)
        for number in range(size // len(functions) + 1)
        for each in functions
    )
    return [each for each, _ in zip(repeated, range(size), strict=False)]


def measure(functions: list[bfcl.Function], queries: list[str]) -> tuple[float, float]:
    """Return the seconds of a search at the median, and of making the index."""
    catalog = Catalog([each.to_tool() for each in functions])
    catalog.search("the first search makes the index")
    documents = [describe_tool(each.name, "", each.description, each.parameters) for each in functions]
    searches = [min(_time(partial(catalog.search, query)) for _ in range(ROUNDS)) for query in queries]
    return statistics.median(searches), min(_time(partial(Index, documents)) for _ in range(ROUNDS))


def _time(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def main() -> None:
    """Measure all sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the folder of the data; by default the one in the wheel bfcl-eval")
    parser.add_argument("--write", action="store_true", help="write the table into the page")
    given = parser.parse_args()
    data = given.data or bfcl.find_data()
    functions, questions = bfcl.read_functions(data), bfcl.read_questions(data)
    queries = [each.text for each in questions[:: len(questions) // QUERIES]]
    lines = ["| tools | a search | making the index |", "| --- | --- | --- |"]
    for size in SIZES:
        search, index = measure(repeat_functions(functions, size), queries)
        lines.append(f"| {size:,} | {search * 1000:.2f} ms | {index * 1000:.1f} ms |")
    print(*lines, sep="\n")
    if given.write:
        replace_part("speed", lines)


if __name__ == "__main__":
    main()
