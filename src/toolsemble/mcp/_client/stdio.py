"""Servers as programs on standard input and output.

The SDK's own transport reads lines of any length, in quadratic time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import anyio
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.mcp._client.dispatcher import MessageParser
from toolsemble.mcp._client.process_group import GRACE, ErrorLines, end_process
from toolsemble.mcp._client.remote_call import Delivery, current_call
from toolsemble.mcp._client.tool_screening import Screen

_CHUNK = 65536


@dataclass(frozen=True, slots=True)
class Program:
    """An MCP server program, and how to start it."""

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to a short list of this process's variables."""
    cwd: str | None = None

    def find(self) -> list[str]:
        """Return the command line; raise if there is no such program."""
        path = self.env.get("PATH", os.environ.get("PATH"))
        found = shutil.which(self.command, path=path)
        if found is None:
            raise ToolConfigurationError(f"there is no program {self.command!r:.200}; install it, or give its path")
        return [found, *self.args]


class StdioTransport:
    """A running program and its streams; an async context manager, as the SDK expects."""

    def __init__(self, program: Program, screen: Screen, server: str, on_end: Callable[[], object]) -> None:
        self._program = program
        self._screen = screen
        self._server = server
        self._on_end = on_end
        self._process: Any = None
        self._stderr: Any = None
        self.errors = ErrorLines(server)
        self.grace = GRACE
        """The program's grace period for exiting, in seconds."""

    async def __aenter__(self) -> tuple[StdioReader, StdioWriter]:
        process: Any = await asyncio.create_subprocess_exec(
            *self._program.find(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**get_default_environment(), **self._program.env},
            cwd=self._program.cwd,
            start_new_session=True,  # its own process group, which can be killed as a whole
        )
        self._process = process
        self._stderr = asyncio.create_task(self.errors.read(process.stderr))
        reader = StdioReader(process.stdout, self._screen, self._server, self._on_end)
        return reader, StdioWriter(process.stdin, self._screen, reader)

    async def __aexit__(self, *raised: object) -> None:
        ending = asyncio.ensure_future(self._end())
        while not ending.done():
            with suppress(asyncio.CancelledError):  # its waits are bounded, and no process must be leaked
                await asyncio.shield(ending)

    async def _end(self) -> None:
        await end_process(self._process, grace=self.grace)
        self._stderr.cancel()
        await asyncio.wait([self._stderr])


class StdioReader:
    """The messages from a program, one per line."""

    def __init__(self, stream: asyncio.StreamReader, screen: Screen, server: str, on_end: Callable[[], object]) -> None:
        self._stream = stream
        self._screen = screen
        self._parser = MessageParser(server)
        self._on_end = on_end
        self._parts: list[bytes] = []
        self._size = 0
        self._lines: deque[bytes] = deque()
        self.ended = False

    async def receive(self) -> SessionMessage:
        """Return the next message; raise at the end of the stream."""
        while True:
            while self._lines:
                message = self._parser.parse(self._lines.popleft().decode(errors="replace"))
                if message is not None:
                    self._screen.incoming(message)
                    return SessionMessage(message)
            chunk = b"" if self.ended else await self._stream.read(_CHUNK)
            if not chunk or not self._split(chunk):
                self.ended = True
                self._on_end()
                raise anyio.EndOfStream

    def _split(self, chunk: bytes) -> bool:
        """Add a chunk to the lines; return False if a line is too long."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._parts.append(line)
            if self._size + len(line) > self._screen.max_message:
                return self._refuse()
            self._lines.append(b"".join(self._parts))
            self._parts.clear()
            self._size = 0
        self._parts.append(rest)
        self._size += len(rest)
        return self._size <= self._screen.max_message or self._refuse()

    def _refuse(self) -> bool:
        self._parts.clear()
        self._screen.break_off(f"it sent a message larger than {self._screen.max_message} bytes (max_message)")
        return False

    async def aclose(self) -> None:
        """Close the stream; further output of the program is not read."""
        self.ended = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()


class StdioWriter:
    """The messages to a program, one per line."""

    def __init__(self, stream: asyncio.StreamWriter, screen: Screen, reader: StdioReader) -> None:
        self._stream = stream
        self._screen = screen
        self._reader = reader

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message; raise if the program has exited."""
        self._screen.outgoing(item.message)
        data = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        call = current_call.get()
        waiting = self._stream.transport.get_write_buffer_size()
        self._stream.writelines(() if self._reader.ended else (data,))
        if self._reader.ended or (self._stream.is_closing() and not waiting):
            raise _mark_lost(call)  # the pipe took no byte
        call.begun = True
        try:
            await self._stream.drain()
        except OSError:
            raise _mark_lost(call) from None

    async def aclose(self) -> None:
        """Close the input of the program."""
        self._stream.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()


def _mark_lost(call: Delivery) -> anyio.BrokenResourceError:
    """Return the error for a program that no longer reads its input."""
    call.lost = True
    return anyio.BrokenResourceError()


class ProgramTarget:
    """A program started for each session."""

    what = "started"
    is_program = True

    def __init__(self, command: str, args: Sequence[str], env: Mapping[str, str], cwd: str | None) -> None:
        self._program = Program(command, args, env, cwd)

    def open(self, screen: Screen, server: str, on_end: Callable[[], object]) -> StdioTransport:
        """Return the transport of a new process."""
        return StdioTransport(self._program, screen, server, on_end)
