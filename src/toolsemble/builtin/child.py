"""A program that is started, given bytes, and ended with its whole process group."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from io import FileIO
from pathlib import Path
from subprocess import PIPE
from typing import cast

from toolsemble.processes import supervisor

GRACE = 1.0
"""How many seconds there are for the pipes of a program that has ended, and for one that was killed."""
PATIENCE = 5.0
"""Seconds for a supervisor to end a program with all its descendants; it is killed itself afterwards."""
LIMITS = find_spec("resource") is not None
"""Whether this system can limit what a program uses."""

# What programs need to find others, to write text and to keep temporary files: nothing that could be secret.
_CLEAN = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "COMSPEC", "PATHEXT")
# A program of its own sets limits and supervises: code between fork and exec could hang in a process with threads.
_SUPERVISOR = "import sys; sys.path.append(sys.argv[1]); import supervisor; supervisor.main(sys.argv[2:])"
_FOLDER = str(Path(supervisor.__file__).parent)
_UNSUPERVISED = "-1"
_PYTHON = getattr(sys, "_base_executable", "") or sys.executable  # quicker to start than that of an environment
SUPERVISED = supervisor.SUPPORTED and bool(_PYTHON) and not getattr(sys, "frozen", False)
"""Whether a supervisor starts programs and ends them with all their descendants: on Linux, with an interpreter."""

_kill_group = getattr(os, "killpg", os.kill)
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Program:
    """What is started, and within which bounds.

    >>> Program(("echo", "hello")).max_memory
    0
    """

    command: tuple[str, ...]
    """The program and its arguments; no shell reads them."""
    cwd: str | None = None
    """The directory it works in; None for the current one."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Its variables, beside those that every program needs."""
    inherit_env: tuple[str, ...] = ()
    """The names of variables that it gets from this process."""
    max_output: int = 1024 * 1024
    """How many bytes are kept of each of its streams."""
    max_memory: int = 0
    """How many bytes of memory it may have; 0 for any number."""
    max_cpu: int = 0
    """How many seconds of processor time it may use; 0 for any number."""

    def arguments(self, told: int | None) -> tuple[str, ...]:
        """Return the command as it is really started: under a supervisor, which reads from a descriptor, or alone."""
        if told is None and not self.max_memory and not self.max_cpu:
            return self.command
        settings = (
            _UNSUPERVISED if told is None else told,
            self.max_memory,
            self.max_cpu,
            int("LC_CTYPE" in self.variables),
        )
        return (_PYTHON, "-I", "-S", "-c", _SUPERVISOR, _FOLDER, *map(str, settings), *self.command)

    @property
    def variables(self) -> dict[str, str]:
        """The environment as the program sees it."""
        taken = {name: os.environ[name] for name in (*_CLEAN, *self.inherit_env) if name in os.environ}
        return {**taken, **self.env}


@dataclass(frozen=True, slots=True)
class Ended:
    """What a program left when it ended."""

    code: int
    """Its exit code; negative for the signal that killed it."""
    output: bytes
    """What it wrote to standard output, up to one byte more than is kept."""
    errors: bytes
    """What it wrote to standard error, likewise."""


class _Streams(asyncio.SubprocessProtocol):
    """Keeps the beginning of what a program writes, and reads on, so that it is never held up."""

    def __init__(self, limit: int) -> None:
        self._room = limit + 1
        self._open = {1, 2}
        self.kept = {1: bytearray(), 2: bytearray()}
        self.exited = asyncio.Event()
        self.closed = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        kept = self.kept[fd]
        kept += data[: self._room - len(kept)]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's own
        self._open.discard(fd)
        if not self._open:
            self.closed.set()

    def process_exited(self) -> None:
        self.exited.set()


class _Running:
    """A program at work: its transport, its streams, and the pipe that tells its supervisor to end it."""

    def __init__(self, transport: asyncio.SubprocessTransport, streams: _Streams, line: FileIO | None) -> None:
        self.transport = transport
        self.streams = streams
        self._line = line

    async def close(self) -> None:
        """End the program with all that it has started, and close its pipes."""
        try:
            if self._line is not None and self.transport.get_returncode() is None:
                with suppress(OSError):  # it has just ended
                    self._line.write(b"end")
                await _briefly(self.streams.exited, PATIENCE)
        finally:
            _kill(self.transport)
            self.transport.close()
            if self._line is not None:
                self._line.close()
        await _briefly(self.streams.exited)


async def ended(program: Program, given: bytes, timeout: float | None) -> Ended:  # noqa: ASYNC109 - not for our part
    """Return what came of a program that got these bytes on standard input; raise ``TimeoutError`` if it goes on.

    However it ends, its process group is killed. Late or cancelled, it is killed with all its descendants, daemons too,
    where a supervisor starts it, as on Linux. A daemon that a program left before goes on, and may cost a second by
    its pipes.

    >>> import asyncio
    >>> asyncio.run(ended(Program(("cat",)), b"hello", timeout=30))
    Ended(code=0, output=b'hello', errors=b'')
    """
    running = await _start(program)
    transport, streams = running.transport, running.streams
    try:
        entry = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
        entry.write(given)
        entry.close()
        async with asyncio.timeout(timeout):
            await streams.exited.wait()
        _kill(transport)  # what it left running holds its pipes open
        await _briefly(streams.closed)
        return Ended(cast("int", transport.get_returncode()), bytes(streams.kept[1]), bytes(streams.kept[2]))
    finally:
        await running.close()


async def _start(program: Program) -> _Running:
    starting = asyncio.ensure_future(_begin(program))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # Cancelled in the middle of it, asyncio would end the program alone, and wait for those who hold its pipes.
        with suppress(OSError):
            await (await starting).close()
        raise


async def _begin(program: Program) -> _Running:
    told, line = os.pipe() if SUPERVISED else (None, None)
    file = None if line is None else FileIO(line, "wb")
    try:
        transport, streams = await asyncio.get_running_loop().subprocess_exec(
            lambda: _Streams(program.max_output),
            *program.arguments(told),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=program.cwd,
            env=program.variables,
            start_new_session=True,
            pass_fds=() if told is None else (told,),
        )
    except BaseException:
        if file is not None:
            file.close()
        raise
    finally:
        if told is not None:
            os.close(told)
    return _Running(transport, streams, file)


def _kill(transport: asyncio.SubprocessTransport) -> None:
    pid = transport.get_pid()
    # The number of a program that has ended may be that of another by now.
    others = supervisor.descendants(pid) if transport.get_returncode() is None else []
    # It leads a session, and so a group, of its own; what it starts belongs to that, unless it leaves.
    with suppress(ProcessLookupError, PermissionError):
        _kill_group(pid, _KILL)
    supervisor.kill(others)


async def _briefly(event: asyncio.Event, seconds: float = GRACE) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
