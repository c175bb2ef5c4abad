"""Choose the weights of the search of catalogs, on the half of the questions that is not reported.

Each weight in turn is made a little smaller or larger, and what finds more is kept, until nothing does. What counts is
the share of questions whose tools are found, at a floor that lets one unserved question in ten through; how many come
first decides between equals. Print the weights, to be copied into `toolsemble/catalog/_search.py`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import fields, replace
from pathlib import Path

import bfcl
from rankings import search_catalog

from catalog import HERE, measure
from toolsemble.catalog._search import Weights

FACTORS = (0.7, 0.85, 1.15, 1.4)
FIRST = 0.25
"""How much a tool that comes first counts, beside one that is found."""


class Trial:
    """The tuned half, to judge weights on."""

    def __init__(self, data: Path) -> None:
        self._functions = bfcl.read_functions(data)
        self._questions = [each for each in bfcl.read_questions(data) if each.half == "tuned"]
        self._unserved = json.loads((HERE / "unserved.json").read_text())["tuned"]

    def judge(self, weights: Weights) -> tuple[float, Weights]:
        """Return how good some weights are, and the same with the floor that they need."""
        measured = measure(search_catalog(self._functions, weights), self._questions, self._unserved)
        floor = measured.find_floor(len(self._unserved) // 10)
        first, found = measured.recall(floor)
        return found + FIRST * first, replace(weights, floor=floor)


def improve(trial: Trial, weights: Weights, rounds: int) -> Weights:
    """Return the best weights that are found in some rounds."""
    best, weights = trial.judge(weights)
    for number in range(rounds):
        before = best
        for name in (each.name for each in fields(Weights) if each.name != "floor"):
            for factor in FACTORS:
                value = round(getattr(weights, name) * factor, 3)
                if name.endswith("_length") and value > 1:
                    continue
                score, other = trial.judge(replace(weights, **{name: value}))
                if score > best:
                    best, weights = score, other
                    print(f"{best:.4f}  {name} = {value}", flush=True)
        print(f"round {number + 1}: {best:.4f}  {weights}", flush=True)
        if best == before:
            break
    return weights


def main() -> None:
    """Choose the weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the folder of the data; by default the one in the wheel bfcl-eval")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print(improve(Trial(given.data or bfcl.find_data()), Weights(), given.rounds))


if __name__ == "__main__":
    main()
