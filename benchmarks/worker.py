"""Answer the driver's questions about one participant, a line of JSON for each: `worker.py <module of peers>`."""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TextIO

from peers.task import ARGUMENTS, FOUND, OUT_OF_BOUNDS, WRONG_TYPE, Call, Participant

BATCH = 0.004
"""Seconds that one measurement takes, about: long enough for the clock, short enough to alternate often."""


class Work:
    """Something to be repeated and timed."""

    def __init__(self, call: Call | Callable[[], object], runner: asyncio.Runner) -> None:
        self._call = call
        self._runner = runner
        self._number = 1

    def once(self) -> object:
        """Do it, and give what it gives."""
        result = self._call()
        return self._runner.run(result) if inspect.iscoroutine(result) else result

    def calibrate(self) -> None:
        """Warm up, and find out how many fill a batch."""
        self.once()  # what is built on first use is no part of a call
        while self._number < 1 << 20 and self.batch() * self._number < BATCH / 2:
            self._number *= 2

    def batch(self) -> float:
        """Give the seconds of one, on average over a batch."""
        timed = self._awaited if inspect.iscoroutinefunction(self._call) else self._called
        return timed() / self._number

    def _called(self) -> float:
        call, times = self._call, range(self._number)
        started = time.perf_counter()
        for _ in times:
            call()
        return time.perf_counter() - started

    def _awaited(self) -> float:
        call, times = self._call, range(self._number)

        async def every() -> float:
            started = time.perf_counter()
            for _ in times:
                await call()
            return time.perf_counter() - started

        return self._runner.run(every())


class Worker:
    """The participant, and what can be asked about it."""

    def __init__(self, participant: Participant) -> None:
        self._participant = participant
        self._runner = asyncio.Runner()
        self._work: dict[str, Work] = {}

    def introduce(self) -> dict[str, object]:
        """Give what the table says beside the figures, and get ready to be timed."""
        peer = self._participant
        if FOUND not in (reply := self._reply(ARGUMENTS)):
            raise AssertionError(f"A valid call is answered {reply!r}")
        refuses = self._refuses(WRONG_TYPE)
        if refuses != peer.VALIDATES:
            raise AssertionError(
                f"VALIDATES is {peer.VALIDATES}, but a wrong type is {'' if refuses else 'not '}refused"
            )
        bounds = self._refuses(OUT_OF_BOUNDS)
        self._work = {"define": Work(peer.define, self._runner), "call": Work(peer.make_call(), self._runner)}
        for work in self._work.values():
            work.calibrate()
        validates = "no" if not refuses else "yes" if bounds else "types only"
        return {"name": peer.NAME, "version": version(peer.DISTRIBUTION), "validates": validates, "import": peer.IMPORT}

    def define(self) -> dict[str, object]:
        """Time a batch of definitions."""
        return {"seconds": self._work["define"].batch()}

    def call(self) -> dict[str, object]:
        """Time a batch of calls."""
        return {"seconds": self._work["call"].batch()}

    def many(self) -> dict[str, object]:
        """Time a thousand tools, and weigh them; a small go before loads what is loaded late."""
        self._participant.many(2)
        gc.collect()
        before, started = _resident(), time.perf_counter()
        container, specifications = self._participant.many(1000)
        seconds = time.perf_counter() - started
        gc.collect()
        if len(specifications) != 1000:  # noqa: PLR2004 - the thousand from above
            raise AssertionError(f"{type(container).__name__} gave {len(specifications)} of 1000 specifications")
        return {"seconds": seconds, "bytes": max(0, _resident() - before)}

    def _reply(self, arguments: str) -> str:
        """Give what such a call is answered."""
        return str(Work(self._participant.make_call(arguments), self._runner).once())

    def _refuses(self, arguments: str) -> bool:
        """Tell whether such a call is kept from the body."""
        try:
            return FOUND not in self._reply(arguments)
        except Exception:  # noqa: BLE001 - every library refuses with errors of its own
            return True


def _resident() -> int:
    """Give this process's resident bytes: what is allocated outside Python counts too."""
    statistics = Path("/proc/self/statm")
    if statistics.exists():
        return int(statistics.read_text().split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _protocol() -> TextIO:
    """Give the pipe to the driver, and send what libraries print elsewhere."""
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return pipe


def _answers(module: str) -> Iterator[dict[str, object]]:
    """Answer line by line; the first error ends it."""
    try:
        worker = Worker(importlib.import_module(f"peers.{module}"))
        for line in sys.stdin:
            yield getattr(worker, json.loads(line))()
    except Exception as error:  # noqa: BLE001 - whatever it is, the driver reports it
        yield {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Answer until the driver hangs up."""
    pipe = _protocol()
    for answer in _answers(sys.argv[1]):
        print(json.dumps(answer), file=pipe, flush=True)


if __name__ == "__main__":
    main()
