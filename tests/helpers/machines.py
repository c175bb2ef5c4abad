"""Two workers on two machines, one Postgres: one of them is killed now and then, and replaced."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from helpers.chaos_shop import PROMPT, describe, open_journal, open_store
from helpers.machine_process import LEASE, agents
from helpers.wait import until
from toolsemble.review import Continue

PROGRAM = Path(__file__).with_name("machine_process.py")


class Machines:
    """Workers as processes, a journal and a store; and the log of effects, which is outside them."""

    def __init__(self, folder, url, seed, runs):
        self.folder, self.url = Path(folder), url
        self.random = random.Random(seed)  # noqa: S311 - a test that can be repeated
        self.log = self.folder / "effects.log"
        self.log.touch()
        self.run_ids = [f"r{number}" for number in range(runs)]
        self.kills = self._started = 0
        self._stack = ExitStack()

    def __enter__(self):
        self.runs = self._stack.enter_context(open_journal(self.folder, self.url, lease=LEASE))
        self.store = self._stack.enter_context(open_store(self.folder, self.url))
        for each in self.run_ids:
            self.runs.begin(each, f"clerk-{each}", PROMPT)
        self.workers = [self._start(), self._start()]
        return self

    def __exit__(self, *_):
        for worker in self.workers:
            self._end(worker)
        self._stack.close()

    def kill_one(self):
        """Kill a worker with -9, and start another one on a third machine."""
        number = self.random.randrange(len(self.workers))
        self._end(self.workers[number])
        self.kills += 1
        self.workers[number] = self._start()

    def answer_all(self):
        """Approve all calls that wait."""
        for request in self.store.pending():
            self.store.answer(request, Continue(), person="ada")

    def is_done(self):
        """Answer questions, and return whether all runs have ended."""
        self.answer_all()
        return {run.state for run in self.runs.list()} == {"done"}

    def work_until_done(self, kills):
        """Let the workers work, and kill some of them; return when all runs are done."""
        while self.kills < kills and not self.is_done():
            reached = len(self._read_log()) + self.random.randrange(1, 12)
            until(lambda reached=reached: self.is_done() or len(self._read_log()) >= reached)
            self.kill_one()
        until(self.is_done)

    def read_results(self):
        """Return what the runs came to, as the journal knows it."""
        made = agents(self.folder, self.store, self.run_ids)
        return [describe(asyncio.run(self.runs.resume(each, made[f"clerk-{each}"]))) for each in self.run_ids]

    def find_repeated(self):
        """Return the calls that must not happen twice, and did."""
        counts = {}
        for line in self._read_log():
            counts[line] = counts.get(line, 0) + 1
        steps = [(f"{run}{step.place}", step) for run in self.run_ids for step in self.runs.steps(run)]
        once = ("change", "refund", "pay")
        return [key for key, step in steps if step.tool in once and step.kind == "call" and counts.get(key, 0) > 1]

    def _read_log(self):
        return self.log.read_text(encoding="utf-8").splitlines()

    def _start(self):
        self._started += 1
        arguments = [f"machine {self._started}", self.folder, self.url, *self.run_ids]
        worker = subprocess.Popen([sys.executable, PROGRAM, *arguments], stdout=subprocess.PIPE, text=True)
        assert worker.stdout.readline() == "ready\n"
        return worker

    def _end(self, worker):
        worker.kill()
        worker.wait(timeout=60)
        worker.stdout.close()
