"""Print how toolsemble compares with other tool libraries: `compare.py [--rounds 40] [peer …]`.

Each participant works in a process and an environment of its own. Each figure of a peer is measured in pairs with one
of toolsemble, right after each other, peer by peer and round by round; what counts is the ratio within the pairs.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

HERE = Path(__file__).parent
PATIENCE = 60
"""Seconds after which a worker that does not answer is ended."""
QUIET = {
    "AGNO_TELEMETRY": "false",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
}
"""Nobody calls home during a benchmark."""


class WorkerError(Exception):
    """A participant cannot do its part; the message says why."""


class Worker:
    """A participant's process, asked one thing at a time."""

    def __init__(self, module: str, python: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own code
            [python, str(HERE / "worker.py"), module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | QUIET,
        )

    def ask(self, question: str) -> dict[str, object]:
        """Give the answer, or refuse with `WorkerError`."""
        patience = threading.Timer(PATIENCE, self._process.kill)
        patience.start()
        try:
            answer = json.loads(self._said(question) or '{"error": "the process ended without an answer"}')
        finally:
            patience.cancel()
        if "error" in answer:
            raise WorkerError(str(answer["error"]).splitlines()[0])
        return answer

    def _said(self, question: str) -> str:
        """Give the line that comes back, empty from a process that is gone."""
        with contextlib.suppress(BrokenPipeError):  # it may have said why before it ended
            print(json.dumps(question), file=self._process.stdin, flush=True)
        return self._process.stdout.readline()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()


@dataclass(slots=True)
class Participant:
    """A line of the table."""

    module: str
    """Its module in the package `peers`."""
    python: str
    """The interpreter of its environment."""
    worker: Worker | None = None
    """Its living process."""
    facts: dict[str, str] = field(default_factory=dict)
    """How it introduced itself."""
    pairs: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Seconds by what was done: the reference's, then its own."""
    weight: float = 0
    """Megabytes of a thousand tools."""
    problem: str = ""
    """Why it is not, or no longer, measured."""

    def start(self) -> Worker:
        """Start a process that can be asked."""
        return Worker(self.module, self.python)

    def introduce(self, processes: contextlib.ExitStack) -> None:
        """Start the process that stays, and let it introduce itself."""
        with self._problems_noted():
            self.worker = processes.enter_context(self.start())
            self.facts = self.worker.ask("introduce")

    def measure(self, what: str, reference: Participant) -> None:
        """Measure the reference, then itself, and keep both."""
        first = reference.seconds(what)
        with self._problems_noted():
            own = first if self is reference else self.seconds(what)
            self.pairs.setdefault(what, []).append((first, own))

    def seconds(self, what: str) -> float:
        """Measure once."""
        if what == "import":
            return self._imported()
        if what == "many":
            return self._multiplied()
        return self.worker.ask(what)["seconds"]

    def row(self) -> str:
        """Give the line of the table."""
        figures = [_figure(self.pairs.get(what, [])) for what in ("import", "define", "call", "many")]
        cells = (self.facts["name"], self.facts["version"], self.facts["validates"], *figures, f"{self.weight:.1f} MB")
        return f"| {' | '.join(cells)} |"

    def _imported(self) -> float:
        """Import in a fresh process."""
        code = f"import time; t = time.perf_counter(); {self.facts['import']}; print(time.perf_counter() - t)"
        run = subprocess.run(  # noqa: S603 - our own code
            [self.python, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | QUIET,
            timeout=PATIENCE,
        )
        return float(run.stdout.split()[-1])

    def _multiplied(self) -> float:
        """Make a thousand tools in a fresh process, and keep their weight."""
        with self.start() as worker:
            answer = worker.ask("many")
        self.weight = answer["bytes"] / 1e6
        return answer["seconds"]

    @contextlib.contextmanager
    def _problems_noted(self) -> Iterator[None]:
        try:
            yield
        except (WorkerError, OSError, subprocess.SubprocessError) as error:
            self.problem = str(error)


def _figure(pairs: list[tuple[float, float]]) -> str:
    """Give the median duration, and the ratio to the reference with its 10 to 90 % spread."""
    if not pairs:
        return "not measured"
    ratios = sorted(own / reference for reference, own in pairs)
    tenth = len(ratios) // 10
    spread = f" ({ratios[tenth]:.2f} to {ratios[-1 - tenth]:.2f})" if ratios[0] < ratios[-1] else ""
    return f"{_duration(statistics.median(own for _, own in pairs))} · **{statistics.median(ratios):.2f}**{spread}"


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds > 1e-3 else f"{seconds * 1e6:.1f} µs"  # noqa: PLR2004 - a millisecond


def participants(only: list[str]) -> list[Participant]:
    """Give toolsemble, the floor, and the peers whose environments exist."""
    ours = [Participant(module, sys.executable) for module in ("toolsemble", "floor")]
    peers = sorted(path.stem for path in (HERE / "peers" / "requirements").glob("*.txt"))
    installed = [peer for peer in peers if (HERE / ".envs" / peer / ".installed").exists() and peer in (only or peers)]
    pythons = {peer: str(HERE / ".envs" / peer / "bin" / "python") for peer in installed}
    return ours + [Participant(peer.replace("-", "_"), python) for peer, python in pythons.items()]


def measure(everyone: list[Participant], reference: Participant, rounds: dict[str, int]) -> None:
    """Go round by round through the participants that have had no problem."""
    for what, number in rounds.items():
        for _ in range(number):
            for each in everyone:
                if not each.problem:
                    each.measure(what, reference)


def report(everyone: list[Participant], reference: Participant) -> None:
    """Print the table, fastest call first, and who is missing."""
    measured = [each for each in everyone if "call" in each.pairs]
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores, {today}.")
    print(f"Bold: times {reference.facts['name']}, median and 10 to 90 % of the pairs.\n")
    if reference.module != "toolsemble":
        print("**toolsemble could not be measured**, see below; the ratios are to what stands in for it.\n")
    print("| library | version | validates? | import | define + specification | call | 1,000 tools | their memory |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for each in sorted(measured, key=lambda each: statistics.median(own for _, own in each.pairs["call"])):
        print(each.row())
    for each in everyone:
        if each.problem:
            print(f"\n**{each.module} is missing or incomplete**: {each.problem}")


def main() -> None:
    """Introduce, measure, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="*", help="names of requirements files; all whose environments exist if none")
    parser.add_argument("--rounds", type=int, default=40, help="pairs for each peer's definitions and calls")
    options = parser.parse_args()
    everyone = participants(options.peers)
    with contextlib.ExitStack() as processes:
        for each in everyone:
            each.introduce(processes)
        reference = next(each for each in everyone if not each.problem)  # the floor stands in for toolsemble
        measure(everyone, reference, {"define": options.rounds, "call": options.rounds, "import": 3, "many": 1})
    report(everyone, reference)


if __name__ == "__main__":
    main()
