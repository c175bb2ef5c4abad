"""A library that takes part, measured in pairs with the reference."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field

from ratio import Pair

from comparison.figure import FRESH, LEAST, figure
from comparison.process import Worker, WorkerError, imported

FEW = 3
"""Pairs that are measured even of what takes long."""
LONG = 1.0
"""Seconds of a pair from which on these few are enough."""


@dataclass(slots=True)
class Participant:
    """A row of the table in the making."""

    module: str
    """Its module in the package `peers`."""
    python: str
    """The interpreter of its environment."""
    worker: Worker | None = None
    """Its living process."""
    facts: dict[str, object] = field(default_factory=dict)
    """How it introduced itself, and what it weighs."""
    pairs: dict[str, list[Pair]] = field(default_factory=dict)
    """What it took and what the reference took, by figure; of the reference, all that it took in anybody's pairs."""
    memory: dict[str, int] = field(default_factory=dict)
    """Bytes of many tools, by figure."""
    problems: dict[str, str] = field(default_factory=dict)
    """Why a figure, or all of it, is not there, by figure."""

    def introduce(self) -> None:
        """Start the process that stays, and let it introduce itself."""
        with self._noted("introduction"):
            self.worker = Worker(self.module, self.python)
            self.facts = self.worker.ask("introduce") | self.worker.ask("weigh")

    def close(self) -> None:
        """End the process."""
        if self.worker is not None:
            self.worker.__exit__()

    def ready(self, what: str) -> bool:
        """Get ready for a figure, and tell whether the library has it."""
        if not self.facts:
            return False
        if what in FRESH:
            return True
        with self._noted(what):
            if what == "import":  # once before, as what is not compiled yet will be
                return self.seconds(what) > 0
            if not self.worker.alive:  # the figure before was more than it could bear
                self.close()
                self.worker = Worker(self.module, self.python)
            return "missing" not in self.worker.ask("prepare", what)
        return False

    def done(self, what: str) -> bool:
        """Tell whether a figure has a problem, or has taken as long as the least number of pairs of some length."""
        pairs = self.pairs.get(what, [])
        return what in self.problems or (len(pairs) >= FEW and sum(map(sum, pairs)) >= LEAST * LONG)

    def measure(self, what: str, reference: Participant) -> None:
        """Measure the reference, then itself, and keep both."""
        first = reference.seconds(what)
        reference.pairs.setdefault(what, []).append((first, first))
        if self is reference:
            return
        with self._noted(what):
            own = self.seconds(what)
            self.pairs.setdefault(what, []).append((own, first))

    def seconds(self, what: str) -> float:
        """Measure once."""
        if what == "import":
            return imported(self.python, str(self.facts["import"]))
        if what in FRESH:
            return self._multiplied(what)
        return self.worker.ask("time")["seconds"]

    def row(self) -> dict[str, object]:
        """Return what is written about it."""
        figures = {what: figure(pairs) for what, pairs in self.pairs.items()}
        for what in figures.keys() & self.memory.keys():
            figures[what]["bytes"] = self.memory[what]
        facts = {what: self.facts[what] for what in ("name", "version", "validates", "bytes", "distributions")}
        problem = "; ".join(f"{what}: {problem}" for what, problem in self.problems.items())
        return facts | {"figures": figures, "problem": problem}

    def _multiplied(self, what: str) -> float:
        """Make many tools in a fresh process, and keep their weight."""
        with Worker(self.module, self.python) as worker:
            answer = worker.ask("many", FRESH[what])
        self.memory[what] = answer["bytes"]
        return answer["seconds"]

    @contextlib.contextmanager
    def _noted(self, what: str) -> Iterator[None]:
        """Keep the problem instead of raising it."""
        try:
            yield
        except (WorkerError, OSError, subprocess.SubprocessError) as error:
            self.problems[what] = str(error)
