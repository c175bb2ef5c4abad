"""Kill the workers of an engine at random moments while runs go on, and count what happened."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from workload import PROMPT, FinishedCalls, Places, make_clerk

from toolsemble.review import Continue

HERE = Path(__file__).parent
IN_FLIGHT = 3
LONG = 900.0


def start_worker(engine: str, places: Places, name: str, *args: str) -> subprocess.Popen[str]:
    """Start a worker, and wait until it takes runs."""
    command = [sys.executable, str(HERE / "worker.py"), engine, str(places.folder), name, *args]
    with (places.folder / f"{name}.err").open("a") as errors:
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    line = worker.stdout.readline() if worker.stdout else ""
    if line != "ready\n":
        worker.kill()
        raise RuntimeError(f"The worker did not start: {(places.folder / f'{name}.err').read_text()[-2000:]}")
    return worker


def kill(worker: subprocess.Popen[str]) -> None:
    """Kill a worker as a crash does, and wait until it is gone."""
    worker.send_signal(signal.SIGKILL)
    worker.wait()


class Chaos:
    """Two workers of an engine that are killed again and again, with runs in flight and a person who answers."""

    def __init__(self, name: str, places: Places, engine: Any, *, kills: int, seed: int, args: tuple[str, ...] = ()):
        self._name = name
        self._places = places
        self._engine = engine
        self._kills = kills
        self._random = random.Random(seed)  # noqa: S311 - the same moments each time
        self._args = args
        self._journal = places.journal()
        self._store = places.store()
        self._begun: list[str] = []
        self._done: set[asyncio.Task[Any]] = set()
        self._finished = FinishedCalls(places)

    async def run(self) -> dict[str, Any]:
        """Return what was found."""
        began = time.monotonic()
        names = [f"worker-{number}" for number in (1, 2)]
        workers = {name: start_worker(self._name, self._places, name, *self._args) for name in names}
        answering = asyncio.create_task(self._answer())
        try:
            async with asyncio.timeout(LONG):
                for _ in range(self._kills):
                    await self._keep_busy()
                    await asyncio.sleep(self._random.uniform(0.05, 1.0))
                    victim = self._random.choice(names)
                    await asyncio.to_thread(kill, workers[victim])
                    await asyncio.to_thread(self._finished.check)
                    workers[victim] = await asyncio.to_thread(
                        start_worker, self._name, self._places, victim, *self._args
                    )
                await asyncio.gather(*self._done)
        finally:
            answering.cancel()
            for worker in workers.values():
                kill(worker)
        return {**await self._judge(), "seconds": round(time.monotonic() - began, 1)}

    async def _keep_busy(self) -> None:
        """Begin runs until enough are in flight."""
        while sum(not task.done() for task in self._done) < IN_FLIGHT:
            run_id = f"run-{len(self._begun) + 1}"
            await self._engine.begin(run_id, "clerk", PROMPT)
            self._begun.append(run_id)
            self._done.add(asyncio.create_task(self._engine.result(run_id)))

    async def _answer(self) -> None:
        """Answer what is asked, by a message of the engine or in the store, also while no process runs."""
        while True:
            for request in await asyncio.to_thread(self._store.pending):
                with suppress(Exception):  # an earlier answer has arrived in between, and the run may have ended
                    await self._answer_one(request)
            await asyncio.sleep(0.3)

    async def _answer_one(self, request: Any) -> None:
        if self._random.random() < 0.5:
            await self._engine.answer(request.run_id, request, Continue(), person="ada")
        else:
            await asyncio.to_thread(self._store.answer, request, Continue(), person="ada")

    async def _judge(self) -> dict[str, Any]:
        """Return the counts, and whether every run has the result of an undisturbed one."""
        with tempfile.TemporaryDirectory() as folder:
            expected = await undisturbed(Places(folder))
        clerk, unknown, equal = make_clerk(self._places), 0, 0
        for run_id in self._begun:
            result = await clerk.run_journaled(self._journal, "clerk", PROMPT, {"run_id": run_id})
            lost, same = compare(result, expected)
            unknown += lost
            equal += same
        return {
            "kills": self._kills,
            "runs": len(self._begun),
            "calls": len(self._places.starts()),
            "effects twice": len(self._places.repeated_effects()),
            "finished calls repeated": self._finished.check(),
            "unknown outcomes told": unknown,
            "results equal": equal,
        }


async def undisturbed(places: Places) -> Any:
    """Return the result of an undisturbed run."""
    clerk, store = make_clerk(places), places.store()

    async def answer() -> None:
        while True:
            for request in store.pending():
                store.answer(request, Continue(), person="ada")
            await asyncio.sleep(0.05)

    answering = asyncio.create_task(answer())
    try:
        return await clerk.run_journaled(places.journal(), "clerk", PROMPT, {"run_id": "undisturbed"})
    finally:
        answering.cancel()


def compare(result: Any, expected: Any) -> tuple[int, bool]:
    """Return how many outcomes are unknown, and whether all the rest is equal."""
    told = [record.reply.text for record in result.tool_calls]
    lost = [text for text in told if "Unknown outcome" in text]
    pairs = zip(told, (record.reply.text for record in expected.tool_calls), strict=True)
    same = all(mine == theirs for mine, theirs in pairs if mine not in lost)
    facts = [(each.text, each.stop_reason, each.usage.total_tokens) for each in (result, expected)]
    return len(lost), same and facts[0] == facts[1]
