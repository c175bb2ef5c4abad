"""The protocol of a participant: a line with a number of turns is answered with what a turn took, in JSON."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version

Run = Callable[[int], object]


def answer(name: str, records: int, what: str, make: Callable[[str | None], Run]) -> None:
    """Answer until the input ends; libraries may print what they like, elsewhere.

    :param records: how many records a turn takes
    :param what: what they are called
    :param make: returns a function that does some steps, recorded in a file, or not recorded
    """
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory() as folder:
        recorded, bare = make(f"{folder}/steps.db"), make(None)
        print(
            json.dumps({"name": name, "version": version(name), "records": records, "what": what}),
            file=pipe,
            flush=True,
        )
        for line in sys.stdin:
            count = int(line)
            taken = {"recorded": _time(recorded, count), "bare": _time(bare, count)}
            print(json.dumps(taken), file=pipe, flush=True)
    os._exit(0)  # the threads of a library are not waited for


def _time(run: Run, count: int) -> float:
    """Return the seconds of the processor that one of some steps takes."""
    started = time.process_time()
    run(count)
    return (time.process_time() - started) / count
