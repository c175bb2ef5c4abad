"""What is outside the processes of a case: its files, the log of effects, and the points where bodies wait."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from seams.case import Case

PATIENCE = 60.0
"""Seconds after which something that should have happened is a failure."""
POLL = 0.005


@dataclass(frozen=True, slots=True)
class World:
    """The folder of a case; several processes use it, and a killed one leaves it as it is."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, case: Case, postgres: str) -> World:
        """Create the folder of a case; ``postgres`` is the URL for its journal, or empty."""
        world = cls(folder)
        world.data.mkdir(parents=True)
        (folder / "case.json").write_text(json.dumps({"case": str(case), "postgres": postgres}))
        return world

    @property
    def case(self) -> Case:
        return Case.parse(self._settings["case"])

    @property
    def data(self) -> Path:
        """The data folder, as ``toolsemble ui`` takes it."""
        return self.folder / "data"

    @property
    def journal_url(self) -> str:
        return self._settings["postgres"] or str(self.data / "runs.db")

    @property
    def store_url(self) -> str:
        return self._settings["postgres"] or str(self.data / "reviews.db")

    def log(self, name: str, /, **values: object) -> None:
        """Append a line to a log; it is there also if the process is killed right after."""
        with (self.folder / f"{name}.log").open("ab", buffering=0) as file:
            file.write(json.dumps({**values, "pid": os.getpid()}).encode() + b"\n")

    def read(self, name: str) -> list[dict]:
        """Return the lines of a log."""
        path = self.folder / f"{name}.log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def mark(self, name: str) -> None:
        """Say that something has happened, or may happen."""
        (self.folder / f"{name}.mark").touch()

    def is_marked(self, name: str) -> bool:
        return (self.folder / f"{name}.mark").exists()

    def wait(self, name: str) -> None:
        """Wait for a mark."""
        until(lambda: self.is_marked(name), name)

    async def await_(self, name: str) -> None:
        """Wait for a mark, without blocking the event loop."""
        ends = monotonic() + PATIENCE
        while not self.is_marked(name):
            assert monotonic() < ends, name
            await asyncio.sleep(POLL)

    @property
    def _settings(self) -> dict:
        return json.loads((self.folder / "case.json").read_text())


def until(happened, what: str) -> None:
    """Wait until something is so; fail with a name for it."""
    ends = monotonic() + PATIENCE
    while not happened():
        assert monotonic() < ends, f"it did not happen within {PATIENCE:g} s: {what}"
        sleep(POLL)
