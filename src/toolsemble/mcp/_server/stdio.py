"""Serve over standard input and output, which tools cannot write to.

The SDK's streams use a thread per line; here the event loop waits for the descriptors.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stdout, suppress
from os import read, write
from typing import Any, BinaryIO, Protocol, Self

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

from toolsemble.mcp._server.server import Offer, build_server

_LONGEST = 32 * 2**20  # maximum line length, in bytes
_CHUNK = 65536
_MOST_LINES = 16


class Lines(Protocol):
    """Lines of bytes from another process."""

    async def get(self) -> bytes:
        """Return the next line; b"" at the end."""
        ...

    def close(self) -> None:
        """Stop reading."""
        ...


class DescriptorLines:
    """The lines of a pollable file descriptor: a pipe, a socket or a terminal.

    The descriptor stays blocking: making it non-blocking would also affect other processes.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._lines: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._size = 0
        self._arrived = asyncio.Event()
        self._is_reading = True
        self._loop.add_reader(descriptor, self._read)

    def _read(self) -> None:
        chunk = read(self._descriptor, _CHUNK)
        if chunk:
            self._split(chunk)
        else:
            if self._parts:
                self._end_line()
            self._lines.append(b"")
        if not chunk or len(self._lines) >= _MOST_LINES:
            self.close()
        self._arrived.set()

    def _split(self, chunk: bytes) -> None:
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._parts.append(line + b"\n")
            self._end_line()
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
            if self._size >= _LONGEST:
                self._end_line()

    def _end_line(self) -> None:
        self._lines.append(b"".join(self._parts)[:_LONGEST])  # a fragment of a longer line is an invalid message
        self._parts.clear()
        self._size = 0

    async def get(self) -> bytes:
        """Return the next line; b"" at the end."""
        while not self._lines:
            if not self._is_reading:
                self._is_reading = True
                self._loop.add_reader(self._descriptor, self._read)
            self._arrived.clear()
            await self._arrived.wait()
        return self._lines.popleft()

    def close(self) -> None:
        """Stop reading."""
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._descriptor)


class ThreadLines:
    """The lines of a stream that needs a blocking thread, such as a file; the thread is a daemon."""

    def __init__(self, stream: BinaryIO) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._places = threading.Semaphore(_MOST_LINES)
        threading.Thread(target=self._read, args=(stream,), name="toolsemble-mcp-input", daemon=True).start()

    def _read(self, stream: BinaryIO) -> None:
        line = b"\n"
        while line:
            line = stream.readline(_LONGEST)  # a fragment of a longer line is an invalid message
            self._places.acquire()
            try:
                self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
            except RuntimeError:  # the server has stopped
                return

    async def get(self) -> bytes:
        """Return the next line; b"" at the end."""
        line = await self._lines.get()
        self._places.release()
        return line

    def close(self) -> None:
        """Do nothing: the thread may be waiting for a line, and ends with the process."""


def open_lines(stream: BinaryIO) -> Lines:
    """Return the lines of a stream, read without a thread if possible."""
    try:
        return DescriptorLines(stream.fileno())
    except (OSError, NotImplementedError):  # a file, no descriptor, or an event loop that cannot poll it
        return ThreadLines(stream)


class MessageReader:
    """The messages on lines, in the SDK's form."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._has_ended = False

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message, or the exception for an invalid line; raise at the end."""
        line = b"" if self._has_ended else await self._lines.get()
        if not line:
            self._has_ended = True
            raise anyio.EndOfStream
        try:
            text = line.decode(errors="replace")
            return SessionMessage(types.jsonrpc_message_adapter.validate_json(text, by_name=False))
        except ValueError as problem:
            return problem

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Stop reading."""
        self._lines.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()


class Output(Protocol):
    """Takes bytes for another process."""

    async def write(self, data: bytes) -> None:
        """Write data completely; raise OSError if the other process is gone."""
        ...


class DescriptorOutput:
    """A pollable file descriptor, written to only when it is ready."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._ready = select.poll()
        self._ready.register(descriptor, select.POLLOUT)
        self._waiting = bytearray()
        self._written = asyncio.Event()
        self._is_waiting = False
        self._problem: OSError | None = None

    async def write(self, data: bytes) -> None:
        """Write data completely, even if the caller is cancelled; raise OSError if the other process is gone."""
        self._waiting += data
        if not self._is_waiting:
            self._flush()
        while self._waiting:
            self._written.clear()
            await self._written.wait()
        if self._problem is not None:
            raise self._problem

    def _flush(self) -> None:
        """Write as much as the descriptor accepts, and the rest when it is ready."""
        try:
            while self._waiting and self._ready.poll(0):
                # The amount that a ready descriptor accepts without blocking.
                del self._waiting[: write(self._descriptor, self._waiting[: select.PIPE_BUF])]
        except OSError as problem:
            self._problem = problem
            self._waiting.clear()
        if bool(self._waiting) != self._is_waiting:
            self._wait_for_place(on=bool(self._waiting))
        if not self._waiting:
            self._written.set()

    def _wait_for_place(self, *, on: bool) -> None:
        self._is_waiting = on
        if on:
            self._loop.add_writer(self._descriptor, self._flush)
        else:
            self._loop.remove_writer(self._descriptor)


class ThreadOutput:
    """A stream written to in a thread: a file, or one without a descriptor."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._thread = ThreadPoolExecutor(1, "toolsemble-mcp-output")

    async def write(self, data: bytes) -> None:
        """Write data completely, even if the caller is cancelled; raise OSError if the other process is gone."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._write, data)

    def _write(self, data: bytes) -> None:
        self._stream.write(data)
        self._stream.flush()


def open_output(stream: BinaryIO) -> Output:
    """Return a stream's output, written without a thread if possible."""
    loop = asyncio.get_running_loop()
    try:
        descriptor = stream.fileno()
        loop.add_writer(descriptor, int)  # raises if the event loop cannot poll it
        loop.remove_writer(descriptor)
        return DescriptorOutput(descriptor)
    except (OSError, NotImplementedError):
        return ThreadOutput(stream)


class MessageWriter:
    """The messages to an output, one per line."""

    def __init__(self, output: Output) -> None:
        self._output = output

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message; raise if the client is gone."""
        try:
            await self._output.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        except OSError:
            raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        """Do nothing: standard output is not closed."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()


async def serve_stdio(offer: Offer) -> None:
    """Serve until the client closes standard input; tools' prints go to standard error."""
    server = build_server(offer, "all")
    with _take_input() as requests, _take_output() as answers:
        lines = open_lines(requests)
        try:
            streams = MessageReader(lines), MessageWriter(open_output(answers))
            await server.run(*streams, server.create_initialization_options())
        finally:
            lines.close()


@contextmanager
def _take_input() -> Iterator[BinaryIO]:
    """Yield standard input, and replace it with an empty one: tools and their children must not read requests."""
    if not _is_descriptor(sys.stdin, 0):
        yield sys.stdin.buffer
        return
    own, empty = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    try:
        yield os.fdopen(own, "rb", closefd=False)  # not closed: the thread may still be reading it
    finally:
        os.dup2(own, 0)


def _is_descriptor(stream: Any, descriptor: int) -> bool:
    with suppress(AttributeError, OSError, ValueError):
        return bool(stream.fileno() == descriptor)
    return False


@contextmanager
def _take_output() -> Iterator[BinaryIO]:
    """Yield standard output, and replace it with standard error, where tools' and their children's prints go."""
    stream = sys.stdout
    if not _is_descriptor(stream, 1):
        with redirect_stdout(sys.stderr):
            yield stream.buffer
        return
    with os.fdopen(os.dup(1), "wb") as output, redirect_stdout(sys.stderr):
        _replace_output()
        stream.flush()  # earlier prints, which are not messages either
        try:
            yield output
        finally:
            stream.flush()
            os.dup2(output.fileno(), 1)


def _replace_output() -> None:
    if sys.__stderr__ is not None:
        os.dup2(2, 1)
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)  # the descriptor 2 may be anything
    os.dup2(nowhere, 1)
    os.close(nowhere)
