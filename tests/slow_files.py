"""Measure the processor time of test files: a plugin of `make check` and `make slow`, which lists marks that are wrong.

The tests of a file that are not marked slow may take a second together: of processor time, which depends less on what
else the machine does than the clock, with the time of the processes that a test starts and waits for.
"""

import os
from collections import Counter, defaultdict
from pathlib import Path

import pytest

LIMIT = 1.0
"""The seconds that the tests of a file without the mark may take."""
BUSY = 2.0
"""By how much a busy machine may exceed that; ``make check`` lists what takes longer still."""


def pytest_addoption(parser):
    parser.addoption("--list-slow", action="store_true", help="list all files whose mark `slow` is not right")


def pytest_configure(config):
    config.pluginmanager.register(SlowFiles(), "slow files of this process")


def read_processor_time():
    """Return the seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


class SlowFiles:
    """The times of one process, and of the workers that report to it."""

    def __init__(self):
        self.quick = Counter()
        self.marked = Counter()
        self.slowest = defaultdict(lambda: (0.0, ""))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        before = read_processor_time()
        try:
            return (yield)
        finally:
            self.add(item, read_processor_time() - before)

    def add(self, item, seconds):
        file, name = item.location[0], item.nodeid.partition("::")[2]
        kind = self.marked if item.get_closest_marker("slow") else self.quick
        kind[file] += seconds
        if kind is self.quick:
            self.slowest[file] = max(self.slowest[file], (seconds, name))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["slow_files"] = [dict(self.quick), dict(self.marked), dict(self.slowest)]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        quick, marked, slowest = getattr(node, "workeroutput", {}).get("slow_files", ({}, {}, {}))
        self.quick.update(quick)
        self.marked.update(marked)
        for file, found in slowest.items():
            self.slowest[file] = max(self.slowest[file], tuple(found))

    def pytest_terminal_summary(self, terminalreporter, config):
        wanted = config.getoption("--list-slow")
        limit = LIMIT if wanted else LIMIT * BUSY
        tests = {file: seconds for file, seconds in self.quick.items() if Path(file).parts[0] == "tests"}
        for file, seconds in sorted(tests.items(), key=lambda each: -each[1]):
            if seconds > limit:
                most, name = self.slowest[file]
                terminalreporter.write_line(
                    f"{file}: {seconds:.1f} s without the mark slow, of which {most:.1f} s are {name}"
                )
        if any(seconds > limit for seconds in tests.values()):
            terminalreporter.write_line(
                "make check is for quick tests: mark the slow ones (pytest.mark.slow), or the file "
                "(pytestmark = pytest.mark.slow)"
            )
        for file, seconds in sorted(self.marked.items(), key=lambda each: each[1]):
            if wanted and seconds < LIMIT / 2 and file not in self.quick:
                terminalreporter.write_line(f"{file}: {seconds:.1f} s; it need not be marked slow")
