"""Waiting for what is about to be so, and no longer than a broken test should take."""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep  # by name: these stay what they are when a test stops the clock

LONG = 60.0


def until(true):
    """Wait until something is so."""
    ends = monotonic() + LONG
    while not true():
        assert monotonic() < ends
        sleep(0.005)


async def auntil(true):
    """Wait until something is so, and let others work."""
    ends = monotonic() + LONG
    while not true():
        assert monotonic() < ends
        await asyncio.sleep(0)
        sleep(0.001)  # noqa: ASYNC251 - a wait of the loop would never end where the clock is stopped


def state_of(pid):
    """Return the state of a process, such as ``"S"``, ``"T"`` or ``"Z"``; "" if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # at the opening, or while it is read
        return ""


def alive(pid):
    """Whether a process is there, and is more than a zombie."""
    return state_of(pid) not in {"", "Z"}


def count_children():
    """Return how many processes the threads of this one have started; a thread may end while it is looked at."""
    count = 0
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            count += len(path.read_text().split())
    return count


def ignored_signals():
    """Return the mask of signals that a program started here ignores, but for those that only Python ignores."""
    (mask,) = (line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "SigIgn" in line)
    added = (1 << signal.SIGPIPE - 1) | (1 << signal.SIGXFSZ - 1)
    return read_mask(mask) & ~added


def read_mask(text):
    """Return a mask of signals, without 32 and 33: the C library lets programs ignore them that it has spawned."""
    return int(text, 16) & ~(0b11 << 31)
