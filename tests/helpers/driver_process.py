"""A program that forks processes which drive runs: with everything imported, hundreds can be started and killed.

Each line of its input is a JSON object: the arguments of ``drive``, answered with the id of a new process, or the id of
a process to wait for, answered with how it ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import traceback
from importlib import import_module
from pathlib import Path

from helpers.chaos_shop import drive, open_store
from toolsemble import RunBusyError, RunParkedError
from toolsemble.review import Continue

DONE, PARKED, BUSY, FAILED = 0, 3, 4, 5
"""How a driver ends by itself."""


def run(arguments):
    """Drive a run in this process, and end it."""
    code = DONE
    try:
        asyncio.run(drive(**arguments))
    except RunParkedError:
        code = PARKED
    except RunBusyError:
        code = BUSY
    except BaseException:  # reported to the test
        traceback.print_exc()
        sys.stderr.flush()
        code = FAILED
    os._exit(code)


def import_everything():
    """Import what a run imports, without threads or files in the process that is forked."""
    names, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_run_once(Path(folder)))
        os.write(write_end, json.dumps([name for name in sys.modules if name.startswith("toolsemble")]).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(names, "rb") as stream:
        loaded = json.loads(stream.read())
    os.waitpid(pid, 0)
    for name in loaded:
        import_module(name)


async def _run_once(folder):
    driving = asyncio.ensure_future(drive(folder, "first"))
    with open_store(folder) as store:
        while not driving.done():
            for request in store.pending():
                store.answer(request, Continue(), person="ada")
            await asyncio.wait([driving], timeout=0.01)
    await driving


def main():
    """Answer commands until the input ends."""
    import_everything()
    for line in sys.stdin:
        command = json.loads(line)
        if "wait" in command:
            answer = os.waitstatus_to_exitcode(os.waitpid(command["wait"], 0)[1])
        else:
            answer = os.fork()
            if not answer:
                run(command)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
