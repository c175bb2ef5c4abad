"""A server on standard input and output, for clients that start it as a program."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, BinaryIO

from mcp.server.stdio import stdio_server

from toolsemble.mcp.server.server import Offer, build_server

_LONGEST = 32 * 2**20  # bytes of a line
_MOST_LINES = 16


async def serve_stdio(offer: Offer) -> None:
    """Serve until the client closes standard input; what tools print goes to standard error."""
    server = build_server(offer, "all")
    with _take_input() as stream:
        lines: Any = _Lines(stream)  # it has the one method of the SDK's type that is used
        async with stdio_server(stdin=lines) as (incoming, outgoing):
            with _keep_prints_out():
                await server.run(incoming, outgoing, server.create_initialization_options())


class _Lines:
    """The lines of a stream, read by a daemon thread: the SDK's reader cannot be interrupted while it waits."""

    def __init__(self, stream: BinaryIO) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue(_MOST_LINES)
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def __aiter__(self) -> _Lines:
        return self

    async def __anext__(self) -> str:
        line = await self._waiting.get()
        if not line:
            raise StopAsyncIteration
        return line.decode("utf-8", "replace")

    def _read(self, stream: BinaryIO) -> None:
        line = b"\n"
        while line:
            line = stream.readline(_LONGEST)  # the rest of a longer line is an invalid message
            adding = self._waiting.put(line)
            try:
                asyncio.run_coroutine_threadsafe(adding, self._loop).result()
            except (RuntimeError, CancelledError):  # the server has ended
                adding.close()
                return


@contextmanager
def _take_input() -> Iterator[BinaryIO]:
    """Yield standard input, and leave an empty one in its place: tools and their children must not read requests."""
    if not _is_descriptor(sys.stdin, 0):
        yield sys.stdin.buffer
        return
    own, empty = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    try:
        yield os.fdopen(own, "rb", closefd=False)  # not closed: the thread may still wait for it
    finally:
        os.dup2(own, 0)


def _is_descriptor(stream: Any, descriptor: int) -> bool:
    with suppress(AttributeError, OSError, ValueError):
        return bool(stream.fileno() == descriptor)
    return False


@contextmanager
def _keep_prints_out() -> Iterator[None]:
    """Send prints to standard error; the SDK has redirected the file descriptor, but not what Python buffers."""
    stream = sys.stdout
    stream.flush()  # what was printed before must not come out when the descriptor is the protocol's again
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        stream.flush()
