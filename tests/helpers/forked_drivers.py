"""Processes that drive runs, forked from one that has everything imported, so that hundreds can be started and killed.

Run as a program, it reads a JSON object of the arguments of ``drive`` from each line, and writes the id of a process.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

PATIENCE = 60.0
"""Seconds after which a process that should have ended is a failure."""
DONE, PARKED, BUSY, FAILED = 0, 3, 4, 5
"""How a driver ends by itself."""


class Driver:
    """A process that drives a run."""

    def __init__(self, pid):
        self.pid = pid
        self._handle = os.pidfd_open(pid)
        self._status = None

    def ends_within(self, seconds):
        """Return whether the process ends in so many seconds."""
        return bool(select.select([self._handle], [], [], seconds)[0])

    def send(self, number):
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)

    def close(self):
        os.close(self._handle)


class Drivers:
    """Starts drivers, and says how they ended."""

    def __init__(self, folder):
        self._log = Path(folder, "drivers.log").open("ab")  # noqa: SIM115 - closed with the drivers
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )
        self._folder = Path(folder)

    def start(self, **arguments):
        """Start a driver with arguments for ``chaos_shop.drive``."""
        return Driver(int(self._ask({"folder": str(self._folder), **arguments})))

    def wait(self, driver, seconds=PATIENCE):
        """Return how a driver ended: its exit code, or the negative number of a signal."""
        if not driver.ends_within(seconds):
            driver.send(signal.SIGKILL)
            raise TimeoutError(f"a driver did not end:\n{self.read_log()}")
        driver.close()
        status = int(self._ask({"wait": driver.pid}))
        if status == FAILED:
            raise AssertionError(self.read_log())
        return status

    def kill(self, driver):
        """Kill a driver, and return how it ended."""
        driver.send(signal.SIGKILL)
        return self.wait(driver)

    def read_log(self):
        return (self._folder / "drivers.log").read_text(encoding="utf-8")[-4000:]

    def _ask(self, command):
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self.read_log()
        return answer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        self._process.stdout.close()
        self._log.close()


def _run(arguments):
    """Drive a run in this process, and end it."""
    from toolsemble import RunBusyError, RunParkedError

    from helpers.chaos_shop import drive

    code = DONE
    try:
        asyncio.run(drive(**arguments))
    except RunParkedError:
        code = PARKED
    except RunBusyError:
        code = BUSY
    except BaseException:  # noqa: BLE001 - told to the test
        traceback.print_exc()
        sys.stderr.flush()
        code = FAILED
    os._exit(code)


def _import_all(folder):
    """Import what an undisturbed run imports, without running one in the process that is forked."""
    names, theirs = os.pipe()
    if not (pid := os.fork()):
        import tempfile

        from helpers.chaos_shop import drive, open_store
        from toolsemble.review import Continue

        async def approve(place):
            with open_store(place) as store:
                while not os.path.exists(f"{place}/warm.json"):
                    for request in store.pending():
                        store.answer(request, Continue(), person="ada")
                    await asyncio.sleep(0.01)

        async def warm(place):
            await asyncio.gather(drive(place, "warm"), approve(place))

        with tempfile.TemporaryDirectory() as place:
            asyncio.run(warm(place))
        os.write(theirs, json.dumps([name for name in sys.modules if name.startswith("toolsemble")]).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(names, "rb") as stream:
        loaded = json.loads(stream.read())
    os.waitpid(pid, 0)
    for name in loaded:
        importlib.import_module(name)


def main():
    sys.path.insert(0, str(Path(__file__).parent.parent))
    importlib.import_module("helpers.chaos_shop")
    _import_all(".")
    for line in sys.stdin:
        command = json.loads(line)
        if "wait" in command:
            answer = os.waitstatus_to_exitcode(os.waitpid(command["wait"], 0)[1])
        else:
            answer = os.fork()
            if not answer:
                _run(command)
        print(answer, flush=True)


if __name__ == "__main__":
    main()
