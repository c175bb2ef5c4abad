"""Waiting for what is about to be so, and no longer than a broken test should take."""

import asyncio
import time
from pathlib import Path

LONG = 60.0


def until(true):
    """Wait until something is so."""
    ends = time.monotonic() + LONG
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.005)


async def auntil(true):
    """Wait until something is so, and let others work."""
    async with asyncio.timeout(LONG):
        while not true():
            await asyncio.sleep(0.001)


def alive(pid):
    """Whether a process is there, and is more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
