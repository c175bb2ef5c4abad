"""Many tools in one toolbox: their time, their memory, and how one of them is found."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Literal, TypedDict

from findings import HERE, Growth, Row
from ratio import Pair, rounded

from own.measure import Subject

Fact = Literal["seconds", "bytes", "unknown"]
"""What is known of each build as a number."""


class Build(TypedDict, total=False):
    """What a fresh process took for many tools."""

    seconds: float
    """How long it took to make them."""
    bytes: int
    """How much memory they hold."""
    look_up: list[Pair]
    """Seconds of a call of one of them, and of a call in a toolbox of one."""
    unknown: float
    """Seconds of a call of a name that is none of theirs."""


def build(kind: str, count: int) -> Build:
    """Make many tools in a fresh process."""
    command = [sys.executable, "-m", "own.build", kind, str(count)]
    run = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True, timeout=300)  # noqa: S603 - our own code
    found: Build = json.loads(run.stdout)
    return found


class Scale:
    """The builds of some sizes, by turns; the largest takes long, and is made once, between rounds of the others."""

    def __init__(self, sizes: Sequence[int] = (10, 100, 1000, 10_000), rounds: int = 2) -> None:
        self._thousand, self._most = sizes[-2:]
        several = [self._builds(sizes[:-1]) for _ in range(rounds)]
        largest = build("toolsemble", self._most)
        several += [self._builds(sizes[:-1]) for _ in range(rounds)]
        self._ours = {size: [ours[size] for ours, _ in several] for size in sizes[:-1]}
        self._bare = [bare for _, bare in several]
        self._ours[self._most] = [largest]

    def rows(self) -> list[Row]:
        """Return the comparisons of time, memory and look-up."""
        thousand, most = f"{self._thousand:,} tools in a toolbox", f"{self._most:,} tools in a toolbox"
        bare = "as many pydantic `TypeAdapter`s of the functions, and their JSON schemas"
        each = f"as many times one out of {self._thousand:,}"
        ours, [largest] = self._ours[self._thousand], self._ours[self._most]
        return [
            Subject("scale", thousand, bare).row(
                [(own["seconds"], other["seconds"]) for own, other in zip(ours, self._bare, strict=True)]
            ),
            Subject("scale", f"the memory of {thousand}", bare, unit="B").row(
                [(own["bytes"], other["bytes"]) for own, other in zip(ours, self._bare, strict=True)]
            ),
            Subject("scale", most, each, "< 1.2", itself=True).row([(largest["seconds"], self._expected("seconds"))]),
            Subject("scale", f"the memory of {most}", each, "< 1.2", itself=True, unit="B").row(
                [(largest["bytes"], self._expected("bytes"))]
            ),
            Subject("scale", f"a call of one of {most}", "a call in a toolbox of one", "< 1.2", itself=True).row(
                largest["look_up"]
            ),
        ]

    def growth(self) -> list[Growth]:
        """Return what one tool takes among many, and what an unknown name takes for each that it is compared with."""
        return [
            Growth(what="tools in a toolbox", points=self._points("seconds")),
            Growth(what="names that an unknown one is compared with", points=self._points("unknown")),
        ]

    def _builds(self, sizes: Sequence[int]) -> tuple[dict[int, Build], Build]:
        return {size: build("toolsemble", size) for size in sizes}, build("bare", self._thousand)

    def _points(self, fact: Fact) -> list[list[float]]:
        return [[size, rounded(self._median(fact, size) / size)] for size in self._ours]

    def _expected(self, fact: Fact) -> float:
        """Return what the most would take if each of them took what one out of a thousand takes."""
        return self._median(fact, self._thousand) / self._thousand * self._most

    def _median(self, fact: Fact, size: int) -> float:
        return statistics.median(build[fact] for build in self._ours[size])
