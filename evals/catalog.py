"""Measure how well catalogs are searched, beside other libraries, and write the findings into the page.

All distinct functions of BFCL are one catalog, and the questions of its users are the queries. A question is served if
all tools that it needs are among the five that are found. `unserved.json` has questions that nothing serves; whatever
is found for those is a false offer. Weights are chosen on one half (`catalog_weights.py`), and reported for the other.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import bfcl
from chart import draw_curve
from page import replace_part
from rankings import MOST, Answer, Search, search_catalog, search_fastmcp, search_overlap, search_pydantic_ai

from toolsemble import Catalog

HERE = Path(__file__).parent
CHART = HERE.parent / "docs" / "images" / "catalog-floor.svg"
FALSE_OFFERS = (0, 3, 6, 12, 30, 60)


class Measured(NamedTuple):
    """What a search has found."""

    served: list[tuple[bool, bool, float]]
    """For each question: whether the right tool came first, whether all needed were found, and the score."""
    unserved: list[float]
    """For each question that nothing serves: the score of what was found; 0 for nothing."""

    def count_false(self, floor: float) -> int:
        """Return how many unserved questions are offered something."""
        return sum(score >= floor and score > 0 for score in self.unserved)

    def recall(self, floor: float) -> tuple[float, float]:
        """Return the shares of questions whose tool came first, and whose tools were all found."""
        first = sum(first and score >= floor for first, _, score in self.served)
        found = sum(found and score >= floor for _, found, score in self.served)
        return first / len(self.served), found / len(self.served)

    def find_floor(self, most: int) -> float:
        """Return the lowest floor with at most so many false offers."""
        ranked = sorted((score for score in self.unserved if score > 0), reverse=True)
        return math.nextafter(ranked[most], math.inf) if most < len(ranked) else 0.0


def measure(search: Search, questions: Sequence[bfcl.Question], unserved: Sequence[str]) -> Measured:
    """Ask a search all questions."""
    served = [_judge(search.answer(each.text), each) for each in questions]
    return Measured(served, [search.answer(text).score for text in unserved])


def _judge(answer: Answer, question: bfcl.Question) -> tuple[bool, bool, float]:
    first = bool(answer.names) and answer.names[0] in question.needed
    return first, question.needed <= set(answer.names), answer.score


def write_peers(found: dict[Search, Measured]) -> list[str]:
    """Return the table of all searches: as they are, and with a floor for as many false offers as the first one's."""
    search, own = next(iter(found.items()))
    allowed = own.count_false(search.floor)
    lines = [
        f"| search | first | in 5 | false offers of {len(own.unserved)} | in 5 at {allowed} false offers |",
        "| --- | --- | --- | --- | --- |",
    ]
    for each, measured in found.items():
        first, five = measured.recall(each.floor)
        equal = measured.recall(measured.find_floor(allowed))[1]
        lines.append(f"| {each.name} | {first:.1%} | {five:.1%} | {measured.count_false(each.floor)} | {equal:.1%} |")
    return lines


def write_curve(found: dict[Search, Measured]) -> list[str]:
    """Return the table of recall against false offers, for each search."""
    lines = [f"| false offers | {' | '.join(each.name for each in found)} |", f"| --- |{' --- |' * len(found)}"]
    for most in FALSE_OFFERS:
        cells = [f"{each.recall(each.find_floor(most))[1]:.1%}" for each in found.values()]
        lines.append(f"| {most} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the folder of the data; by default the one in the wheel bfcl-eval")
    parser.add_argument("--half", choices=["tuned", "unseen"], default="unseen")
    parser.add_argument("--own", action="store_true", help="only toolsemble's search and the overlap of words")
    parser.add_argument("--others", action="store_true", help="the files whose questions need several calls")
    parser.add_argument("--write", action="store_true", help="write the tables and the chart into the page")
    given = parser.parse_args()
    data = given.data or bfcl.find_data()
    files = bfcl.OTHERS if given.others else bfcl.FILES
    functions = bfcl.read_functions(data, files)
    questions = [each for each in bfcl.read_questions(data, files) if given.others or each.half == given.half]
    unserved = json.loads((HERE / "unserved.json").read_text())[given.half]
    makers = [search_catalog, *([] if given.own else [search_fastmcp, search_pydantic_ai]), search_overlap]
    searches = [make(functions) for make in makers]
    _check_public(searches[0], Catalog([each.to_tool() for each in functions]), questions[:50])
    found = {each: measure(each, questions, unserved) for each in searches}
    peers, curve = write_peers(found), write_curve(found)
    print(f"{len(functions)} tools, {len(questions)} questions", *peers, "", *curve, sep="\n")
    if given.write:
        replace_part("searches", peers)
        replace_part("floor", curve)
        own, floor = found[searches[0]], searches[0].floor
        chosen = own.count_false(floor), own.recall(floor)[1]
        CHART.write_text(draw_curve({each.name: _trace(found[each]) for each in found}, len(unserved), chosen))


def _trace(measured: Measured) -> list[float]:
    """Return the recall for each number of false offers."""
    return [measured.recall(measured.find_floor(most))[1] for most in range(len(measured.unserved) + 1)]


def _check_public(search: Search, catalog: Catalog, questions: Sequence[bfcl.Question]) -> None:
    """Raise if what is measured is not what users have."""
    for each in questions:
        answer = search.answer(each.text)
        expected = answer.names if answer.score >= search.floor else []
        if [found.name for found in catalog.search(each.text, MOST)] != expected:
            raise SystemExit(f"Catalog.search finds something else than what is measured for {each.text!r}")


if __name__ == "__main__":
    main()
