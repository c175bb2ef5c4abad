"""The identity of a process, and whether it is still running."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")


class ProcessIdentity(NamedTuple):
    """The identity of a process, unique even if its pid is reused, as far as the system allows.

    >>> ProcessIdentity.current().is_running()
    True
    """

    place: str
    """The boot of the machine and the PID namespace."""
    pid: int
    """The pid."""
    started: str
    """The start time of the process, as the system counts it; empty if not available."""

    @classmethod
    def current(cls) -> ProcessIdentity:
        """Return the identity of this process."""
        return cls(_place(), os.getpid(), _find_start(os.getpid()) or "")

    def is_running(self) -> bool:
        """Return whether the process is still running; False if it belongs to another machine."""
        if self.place != _place():
            return False
        if self.started:
            return _find_start(self.pid) == self.started
        return _exists(self.pid)

    def has_ended(self) -> bool:
        """Return whether the process is certainly no longer running; False if that cannot be known from here.

        >>> ProcessIdentity.current().has_ended(), ProcessIdentity("another machine", 1, "").has_ended()
        (False, False)
        """
        if self.place != _place() or (not self.started and os.name != "posix"):
            return False
        return not self.is_running()


def _place() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return platform.node()


def _find_start(pid: int) -> str | None:
    """Return the start time of a process; None if it is not running, or not available."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may contain spaces and parentheses.
    state, *facts = stat.rpartition(")")[2].split()
    return None if state in {"Z", "X"} else facts[18]


def _exists(pid: int) -> bool:
    if os.name != "posix":
        return False  # on Windows the same call would end the process
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
