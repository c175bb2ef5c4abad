"""Compare what recording a turn of an agent costs with a journal, with DBOS and with LangGraph: `make bench-durable`.

A turn is a reply of a model and a call. Each participant works in a process and an environment of its own. They go by
turns, and what counts is the median of the processor's time that recording adds to one of 100 turns.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent / ".envs"
RESULTS = HERE.parent / "results" / "durable.json"
STEPS, ROUNDS = 100, 9


class Participant:
    """A process that does steps."""

    def __init__(self, name: str, python: str) -> None:
        command = [python, f"{HERE / f'steps_{name}.py'}"]
        self._process = subprocess.Popen(  # noqa: S603 - our own code
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.facts = self._read()
        self.added: list[float] = []

    def measure(self) -> None:
        """Do some steps, and keep what recording them added to each."""
        if self._process.stdin is not None:
            print(STEPS, file=self._process.stdin, flush=True)
        taken = self._read()
        self.added.append(taken["recorded"] - taken["bare"])

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _read(self) -> dict[str, Any]:
        line = "" if self._process.stdout is None else self._process.stdout.readline()
        if not line:
            sys.exit(f"{self._process.args} has ended")
        found: dict[str, Any] = json.loads(line)
        return found


def main() -> None:
    """Measure, print and keep what was found."""
    peers = {name: ENVIRONMENTS / f"durable-{name}" / "bin" / "python" for name in ("dbos", "langgraph")}
    there = {name: str(python) for name, python in peers.items() if python.exists()}
    everyone = [Participant(name, python) for name, python in {"toolsemble": sys.executable, **there}.items()]
    for number in range(ROUNDS + 1):
        for each in everyone:
            each.measure()
            if not number:
                each.added.clear()  # the first round loads modules
    rows = []
    for each in everyone:
        pairs = [own / ours for own, ours in zip(each.added, everyone[0].added, strict=True)]
        rows.append({**each.facts, "seconds": statistics.median(each.added), "ratio": statistics.median(pairs)})
        each.close()
    for row in rows:
        added = f"{row['records']} {row['what']} add {row['seconds'] * 1e6:.0f} µs to a turn"
        print(f"{row['name']} {row['version']}: {added}, {row['ratio']:.2f} times as much as toolsemble")
    RESULTS.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
