"""Termination of a server process and its children."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import deque
from contextlib import suppress
from typing import Any

from toolsemble._runtime.text import preview

LOGGER = logging.getLogger("toolsemble.mcp")
"""The logger of clients."""
LOGGER.addHandler(logging.NullHandler())  # prints nothing if the program has not configured logging

GRACE = 2.0
"""Grace period in seconds after closing standard input, and again after SIGTERM."""
_LONGEST_REPORT = 10.0
_POLL = 0.01
_MAX_LINE = 300
_MAX_LOGGED = 1000
_TAIL = 10
_CHUNK = 65536


class ErrorLines:
    """The last lines of a server's standard error, bounded."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._lines: deque[str] = deque(maxlen=_TAIL)
        self._rest = b""
        self._logged = 0

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Read until the end of the stream."""
        while chunk := await stream.read(_CHUNK):
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            self._rest = self._rest[:_MAX_LINE]
            for line in lines:
                self._add(line)
        self._add(self._rest)

    def _add(self, line: bytes) -> None:
        text = preview(line[:_MAX_LINE].decode(errors="replace").rstrip(), _MAX_LINE)
        if not text:
            return
        self._lines.append(text)
        self._logged += 1
        if self._logged <= _MAX_LOGGED:
            LOGGER.debug("%s: %s", self._server, text)

    def __str__(self) -> str:
        return " | ".join(self._lines)


async def end_process(process: Any, *, grace: float = GRACE) -> None:
    """Terminate a process and its group: close its input, wait, then SIGTERM, then SIGKILL.

    :param grace: seconds to exit after its input was closed
    """
    process.stdin.close()
    await _wait_for_exit(process, grace)
    if _signal_group(process, signal.SIGTERM) and not await _wait_for_group(process, GRACE):
        _signal_group(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    # Even if the group is gone: another thread reports the exit to this loop, which must still run.
    await _wait_for_exit(process, _LONGEST_REPORT)
    # Otherwise the pipes stay open while a process outside the group holds them.
    with suppress(PermissionError):
        process._transport.close()  # noqa: SLF001 - there is no public way to it
    await asyncio.sleep(0)  # the transport closes its pipes in the next iteration of the loop


async def _wait_for_exit(process: Any, seconds: float) -> None:
    # Not process.wait(): it also waits for the pipes to close, which a grandchild may hold open.
    ends = asyncio.get_running_loop().time() + seconds
    while process.returncode is None and asyncio.get_running_loop().time() < ends:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(_POLL)


async def _wait_for_group(process: Any, seconds: float) -> bool:
    ends = asyncio.get_running_loop().time() + seconds
    while _signal_group(process, 0):
        if asyncio.get_running_loop().time() >= ends:
            return False
        await asyncio.sleep(_POLL)
    return True


def _signal_group(process: Any, number: int) -> bool:
    """Send a signal to all processes of the group; return whether there are any."""
    if not hasattr(os, "killpg"):
        return _signal_process(process, number)
    try:
        os.killpg(process.pid, number)  # the process is the leader of its group
    except (ProcessLookupError, PermissionError):  # there is none, or none that we may signal
        return False
    return True


def _signal_process(process: Any, number: int) -> bool:
    """Send a signal to the process only, on systems without process groups."""
    if process.returncode is None and number:
        process.kill()
    return process.returncode is None
