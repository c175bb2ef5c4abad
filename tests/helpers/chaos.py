"""Runs that are killed at random moments until they are done, and what must hold for them."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from helpers.chaos_shop import open_journal, open_store
from helpers.driver_process import DONE, PARKED
from helpers.forked_drivers import PATIENCE, Drivers
from toolsemble.review import Continue

MOST_KILLS = 12
"""Of one run; then it may come to its end."""


@dataclass
class Tally:
    """What happened to the runs so far."""

    runs: int = 0
    kills: int = 0
    parked: int = 0
    unknown: int = 0
    resolved: int = 0
    repeated: int = 0
    """Calls that were begun again because they may be repeated."""

    def __str__(self):
        return (
            f"{self.runs} runs, {self.kills} kills, parked {self.parked} times, {self.unknown} calls of unknown "
            f"outcome ({self.resolved} resolved), {self.repeated} repeatable calls and requests to models made again"
        )


@dataclass
class Chaos:
    """Does runs in a folder, and kills their drivers."""

    folder: Path
    seed: int
    url: str = ""
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self):
        self.random = random.Random(self.seed)  # noqa: S311 - a test that can be repeated
        self.log = Path(self.folder, "effects.log")
        self.log.touch()
        self.runs = open_journal(self.folder, self.url)
        self.store = open_store(self.folder, self.url)
        self.drivers = Drivers(self.folder)
        self.finished: dict[str, int] = {}
        """How often each effect had happened when its end was found in the journal."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.drivers.close()
        self.store.close()
        self.runs.close()

    def do_undisturbed(self, run_id):
        """Do a run without kills, and return its result."""
        assert self.let_end(self.drivers.start(run_id=run_id, url=self.url)) == DONE
        return self.read_result(run_id)

    def do(self, run_id, expected):
        """Do a run with kills, and check what must hold."""
        kills, resolves = 0, self.random.random() < 0.6
        while True:
            disturbed = kills < MOST_KILLS
            status = self._attempt(run_id, disturbed=disturbed)
            kills += status == -signal.SIGKILL
            self._note_finished(run_id)
            if status == DONE:
                break
            assert status in (-signal.SIGKILL, PARKED), status
            self.tally.parked += status == PARKED
            if resolves:
                self._resolve(run_id)
            if self.random.random() < 0.6:
                self.answer_one()  # while no process runs
        self.tally.runs += 1
        self.tally.kills += kills
        self.check(run_id, expected)

    def _attempt(self, run_id, *, disturbed):
        parks = self.random.random() < 0.3
        die = self.random.randrange(1, 14) if disturbed and self.random.random() < 0.5 else 0
        driver = self.drivers.start(run_id=run_id, park=0 if parks else None, die=die, url=self.url)
        if not disturbed or die:
            return self.let_end(driver)
        return self.let_end(driver, self.random.random() * 0.15)

    def let_end(self, driver, seconds=PATIENCE):
        """Answer questions until a driver has ended, or kill it after some time."""
        ends = time.monotonic() + seconds
        while not driver.ends_within(min(0.01, max(ends - time.monotonic(), 0))):
            if time.monotonic() >= ends:
                return self.drivers.kill(driver)
            if self.random.random() < 0.5:
                self.answer_one()
        return self.drivers.wait(driver)

    def answer_one(self):
        """Approve one of the calls that wait, if there are any."""
        waiting = self.store.pending()
        if waiting:
            self.store.answer(self.random.choice(waiting), Continue(), person="ada")

    def _resolve(self, run_id):
        """Settle calls of unknown outcome by what the log says."""
        counts = self.count()
        for each in self.runs.unknown():
            if each.run_id == run_id:
                happened = counts[f"{run_id}{each.place}"] > 0
                self.runs.resolve(run_id, each.place, happened=happened, result=_say(each) if happened else None)
                self.tally.resolved += 1

    def _note_finished(self, run_id):
        counts = self.count()
        for step in self.runs.steps(run_id):
            if step.is_done and step.kind in ("call", "reply"):
                self.finished.setdefault(f"{run_id}{step.place}", counts[f"{run_id}{step.place}"])

    def check(self, run_id, expected):
        """Assert that nothing happened twice, and that the result equals an undisturbed run's."""
        counts = self.count()
        for step in self.runs.steps(run_id):
            key = f"{run_id}{step.place}"
            if step.kind == "call" and step.tool in ("change", "refund", "pay"):
                assert counts[key] <= 1, f"{key} {step.tool} happened {counts[key]} times"
            if key in self.finished:
                assert counts[key] == self.finished[key], f"{key} happened after its end was recorded"
            self.tally.repeated += max(counts[key] - 1, 0) if step.kind != "question" else 0
        unknown = [each for each in self.runs.unknown() if each.run_id == run_id]
        self.tally.unknown += len(unknown)
        self._compare(self.read_result(run_id), expected, is_exact=not unknown)

    def _compare(self, result, expected, *, is_exact):
        if is_exact:
            assert result == expected
            return
        for name in ("text", "usage", "trace"):
            assert result[name] == expected[name], name
        for call, other in zip(result["calls"], expected["calls"], strict=True):
            assert call[:2] == other[:2]
            assert call[2] == other[2] or "Unknown outcome" in call[2]

    def count(self, run_id=""):
        """Return how often each effect has happened, of one run or of all."""
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return Counter(line for line in lines if line.startswith(f"{run_id}/" if run_id else ""))

    def read_result(self, run_id):
        return json.loads(Path(self.folder, f"{run_id}.json").read_text(encoding="utf-8"))


def _say(unknown):
    """Return what the tool would have returned."""
    order = json.loads(unknown.arguments)["order"]
    return {"refund": "refunded", "pay": "paid", "change": "changed"}[unknown.tool] + f" {order}"
