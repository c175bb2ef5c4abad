"""Which process something belongs to, and whether that process still runs."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")


class ProcessIdentity(NamedTuple):
    """One process, told from all others before and after it, as far as the system lets it be told.

    >>> ProcessIdentity.current().is_running()
    True
    """

    place: str
    """The machine since its last start, and the part of it in which process numbers are unique."""
    pid: int
    """The number of the process."""
    started: str
    """When it was started, as the system counts; empty where it does not tell."""

    @classmethod
    def current(cls) -> ProcessIdentity:
        """Give this process."""
        return cls(_place(), os.getpid(), _started(os.getpid()) or "")

    def is_running(self) -> bool:
        """Whether the process still runs; False where nobody can tell, because it belongs to another machine."""
        if self.place != _place():
            return False
        if self.started:
            return _started(self.pid) == self.started
        return _exists(self.pid)


def _place() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return platform.node()


def _started(pid: int) -> str | None:
    """Give when a process was started; None when it does not run, or where nobody tells."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may hold anything, also spaces and parentheses.
    state, *facts = stat.rpartition(")")[2].split()
    return None if state in {"Z", "X"} else facts[18]


def _exists(pid: int) -> bool:
    if os.name != "posix":
        return False  # elsewhere the same call would end the process
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
