"""Answer the driver's questions about one participant, a line of JSON for each: `worker.py <module of peers>`."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TextIO

from comparison import weight
from comparison.preparation import MissingError, Preparation
from memory import weighed
from peers.task import ARGUMENTS, FOUND, OUT_OF_BOUNDS, WRONG_TYPE, Participant
from timing import WALL, Repeated


class Worker:
    """The participant, and what can be asked about it."""

    def __init__(self, participant: Participant) -> None:
        self._participant = participant
        self._runner = asyncio.Runner()
        self._work: Repeated | None = None

    def introduce(self) -> dict[str, object]:
        """Return what the table says beside the figures."""
        peer = self._participant
        if FOUND not in (reply := self._reply(ARGUMENTS)):
            raise AssertionError(f"A valid call is answered {reply!r}")
        refuses = self._refuses(WRONG_TYPE)
        if refuses != peer.VALIDATES:
            raise AssertionError(
                f"VALIDATES is {peer.VALIDATES}, but a wrong type is {'' if refuses else 'not '}refused"
            )
        validates = "no" if not refuses else "yes" if self._refuses(OUT_OF_BOUNDS) else "types only"
        return {"name": peer.NAME, "version": version(peer.DISTRIBUTION), "validates": validates, "import": peer.IMPORT}

    def weigh(self) -> dict[str, object]:
        """Return the bytes and the number of what is installed for the participant."""
        alone = Path(sys.prefix).parent.name == ".envs"
        return weight.of_environment() if alone else weight.of_distribution(self._participant.DISTRIBUTION)

    def prepare(self, figure: str) -> dict[str, object]:
        """Get ready to be timed for a figure, and let go of the one before."""
        self._work = None
        gc.collect()
        try:
            self._work = getattr(Preparation(self._participant, self._runner), figure)()
        except MissingError as error:
            return {"missing": str(error)}
        self._work()  # which finds out how many make a batch
        return {}

    def time(self) -> dict[str, object]:
        """Time a batch of what was prepared."""
        return {"seconds": self._work()}

    def many(self, count: int) -> dict[str, object]:
        """Time that many tools, and weigh them."""
        (container, specifications), facts = weighed(self._participant.many, count, WALL)
        if len(specifications) != count:
            raise AssertionError(f"{type(container).__name__} gave {len(specifications)} of {count} specifications")
        return facts

    def _reply(self, arguments: str) -> str:
        """Return what such a call is answered."""
        return str(Repeated(self._participant.make_call(arguments), runner=self._runner).once())

    def _refuses(self, arguments: str) -> bool:
        """Tell whether such a call is kept from the body."""
        try:
            return "results for" not in self._reply(arguments)
        except Exception:  # every library refuses with its own errors
            return True


def _protocol() -> TextIO:
    """Return the pipe to the driver, and send what libraries print elsewhere."""
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return pipe


def _answers(module: str) -> Iterator[dict[str, object]]:
    """Answer line by line: a line names a method of the worker and its arguments."""
    worker = None
    for line in sys.stdin:
        try:
            worker = worker or Worker(importlib.import_module(f"peers.{module}"))
            question, *details = json.loads(line)
            yield getattr(worker, question)(*details)
        except Exception as error:  # whatever it is, the driver reports it
            yield {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Answer until the driver hangs up."""
    pipe = _protocol()
    for answer in _answers(sys.argv[1]):
        print(json.dumps(answer), file=pipe, flush=True)


if __name__ == "__main__":
    main()
