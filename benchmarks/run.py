"""Measure toolsemble against the floor, and keep the findings in `results/own.json`: `run.py [--seconds 0.5]`.

The floor is the same work with bare Python and pydantic-core. It takes about a minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from cells import aim_of, amounts_of
from comparison import weight
from findings import OWN, Own, Row, setting, write
from own import agents, calls, definitions, growth, imports, journal, parallel, pipelines, telemetry, web
from own.scale import Scale

PARTS = (imports, definitions, calls, pipelines, agents, journal, parallel, telemetry, web)


def rows(seconds: float, least: int = 9) -> Iterator[Row]:
    """Measure comparison after comparison, each for some seconds."""
    for part in PARTS:
        for comparison in part.comparisons():
            yield comparison.measured(seconds, least)


def told(row: Row) -> Row:
    """Print a finding, and give it back."""
    aim = aim_of(row).replace("*", "")
    print(f"{row['ratio']:7.2f}  {amounts_of(row):19}  {aim:21}  {row['what']} / {row['against']}", flush=True)
    return row


def main() -> None:
    """Measure, print and keep everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.5, help="how long each comparison is measured")
    seconds = parser.parse_args().seconds
    found = [told(row) for row in rows(seconds)]
    scale = Scale()
    found += [told(row) for row in scale.rows()]
    grown = scale.growth() + growth.growths(seconds=seconds / 10)
    write(OWN, Own(**setting(), rows=found, growth=grown, size=weight.of_distribution("toolsemble")))


if __name__ == "__main__":
    main()
