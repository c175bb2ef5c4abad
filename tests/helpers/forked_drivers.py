"""Processes that drive runs, and can be killed, stopped and waited for."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from helpers.driver_process import FAILED

PATIENCE = 60.0
"""Seconds after which a process that should have ended is a failure."""


class Driver:
    """A process that drives a run."""

    def __init__(self, pid):
        self.pid = pid
        self._handle = os.pidfd_open(pid)

    def ends_within(self, seconds):
        """Return whether the process ends in so many seconds."""
        return bool(select.select([self._handle], [], [], seconds)[0])

    def send(self, number):
        """Send a signal; one that has ended gets none."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)

    def close(self):
        os.close(self._handle)


class Drivers:
    """Starts drivers, and says how they ended."""

    def __init__(self, folder):
        self._folder = Path(folder)
        self._running = {}
        self._log = (self._folder / "drivers.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "helpers.driver_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        )

    def start(self, **arguments):
        """Start a driver with arguments for ``chaos_shop.drive``."""
        driver = Driver(int(self._ask({"folder": str(self._folder), **arguments})))
        self._running[driver.pid] = driver
        return driver

    def wait(self, driver, seconds=PATIENCE):
        """Return how a driver ended: its exit code, or the negative number of a signal."""
        if not driver.ends_within(seconds):
            driver.send(signal.SIGKILL)
            raise TimeoutError(f"a driver did not end:\n{self.read_log()}")
        self._running.pop(driver.pid).close()
        status = int(self._ask({"wait": driver.pid}))
        assert status != FAILED, self.read_log()
        return status

    def kill(self, driver):
        """Kill a driver, and return how it ended."""
        driver.send(signal.SIGKILL)
        return self.wait(driver)

    def read_log(self):
        return (self._folder / "drivers.log").read_text(encoding="utf-8")[-4000:]

    def close(self):
        for driver in self._running.values():
            driver.send(signal.SIGKILL)
            driver.close()
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        self._process.stdout.close()
        self._log.close()

    def _ask(self, command):
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self.read_log()
        return answer
