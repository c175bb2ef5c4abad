"""Print how toolsemble compares with the bare work, as ratios within one interleaved run.

Machines are noisy: each figure is the median over pairs that were measured right after each other.
"""

from __future__ import annotations

import asyncio
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from toolsemble import Tool, Toolbox, ToolCall, __version__

ARGUMENTS = '{"input": "what is the weather in Rome?"}'


class Echo(Tool):
    """The least that a string tool can do."""

    name = "echo"
    description = "Repeats its input"

    def run(self, input: str) -> str:
        """Give the input back."""
        return input


class Nap(Tool):
    """Waits as a tool that asks a service does."""

    name = "nap"
    description = "Sleeps for ten milliseconds"

    async def run(self, input: str) -> str:
        """Sleep, then give the input back."""
        await asyncio.sleep(0.01)
        return input


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two ways to do the same, measured side by side."""

    name: str
    """What is compared, ours first."""
    ours: Callable[[], float]
    """Seconds of one go with toolsemble."""
    bare: Callable[[], float]
    """Seconds of one go without."""
    rounds: int
    """How many pairs are measured."""
    aim: str
    """What to stay below: a ratio, or a cost on top of the other."""

    def row(self) -> str:
        """Measure, and give a line of the table."""
        pairs = [(self.ours(), self.bare()) for _ in range(self.rounds)]
        ratios = sorted(ours / bare for ours, bare in pairs)
        ratio = statistics.median(ratios)
        spread = f"{ratios[len(ratios) // 10]:.2f} to {ratios[-1 - len(ratios) // 10]:.2f}"
        ours, bare = (statistics.median(times) for times in zip(*pairs, strict=True))
        cells = (f"{ratio:.2f}", spread, _seconds(ours), _seconds(bare), self.aim)
        return f"| {self.name:<61} |" + "".join(f" {cell:>13} |" for cell in cells)


def _seconds(seconds: float) -> str:
    milliseconds = seconds * 1e3
    return f"{milliseconds:.1f} ms" if milliseconds > 1 else f"{milliseconds * 1e3:.1f} µs"


def _timed(work: Callable[[], object], number: int) -> float:
    started = time.perf_counter()
    for _ in range(number):
        work()
    return (time.perf_counter() - started) / number


def one_call() -> Comparison:
    """Compare a call of a string tool with reading its JSON and calling the function."""
    tool = Echo()
    box = Toolbox([tool])
    call = ToolCall("echo", ARGUMENTS, id="call_1")
    return Comparison(
        "a toolbox call of a string tool / json.loads + the call",
        ours=lambda: _timed(lambda: box.execute(call), 500),
        bare=lambda: _timed(lambda: tool.run(json.loads(ARGUMENTS)["input"]), 500),
        rounds=200,
        aim="< 8 µs more",
    )


def one_turn() -> Comparison:
    """Compare a thousand waiting calls with a bare gather."""
    tool = Nap()
    box = Toolbox([tool])
    calls = [ToolCall("nap", ARGUMENTS, id=f"call_{number}") for number in range(1000)]

    async def bare() -> None:
        await asyncio.gather(*(tool.run("x") for _ in range(1000)))

    async def ours() -> None:
        await box.aexecute_all(calls)

    runner = asyncio.Runner()
    return Comparison(
        "aexecute_all of 1,000 calls that sleep 10 ms / asyncio.gather",
        ours=lambda: _timed(lambda: runner.run(ours()), 1),
        bare=lambda: _timed(lambda: runner.run(bare()), 1),
        rounds=30,
        aim="< 1.5",
    )


def cold_import() -> Comparison:
    """Compare importing the package with importing pydantic, each in a fresh process."""

    def imported(module: str) -> float:
        code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - our own code
        return float(run.stdout)

    return Comparison(
        "import toolsemble / import pydantic, in fresh processes",
        ours=lambda: imported("toolsemble"),
        bare=lambda: imported("pydantic"),
        rounds=15,
        aim="< 0.2",
    )


def main() -> None:
    """Print the table."""
    print(f"toolsemble {__version__}, Python {platform.python_version()}, {platform.machine()}\n")
    headings = ("ratio", "10 to 90 %", "ours", "other", "aim")
    print(f"| {'what':<61} |" + "".join(f" {heading:>13} |" for heading in headings))
    print(f"| {'-' * 61} |" + f" {'-' * 12}: |" * len(headings))
    for comparison in (one_call(), one_turn(), cold_import()):
        print(comparison.row(), flush=True)


if __name__ == "__main__":
    main()
