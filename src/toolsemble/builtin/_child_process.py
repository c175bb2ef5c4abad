"""Run a program with bytes on standard input, and kill it with its whole process group."""

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

from toolsemble._runtime.processes import supervisor

GRACE = 1.0
"""Seconds to wait for the pipes of a program that has exited, and for a program that was killed."""
SUPERVISOR_GRACE = 5.0
"""Seconds for a supervisor to kill a program with all its descendants; then it is killed itself."""
LIMITS = find_spec("resource") is not None
"""Whether this system can limit a program's memory and processor time."""

# The variables that programs need for executables, locales and temporary files; none of them is secret.
_BASE_VARIABLES = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "TEMP",
    "TMP",
    "SYSTEMROOT",
    "COMSPEC",
    "PATHEXT",
)
# A separate program sets limits and supervises: code between fork and exec can deadlock in a process with threads.
_SUPERVISOR = "import sys; sys.path.append(sys.argv[1]); import supervisor; supervisor.main(sys.argv[2:])"
_FOLDER = str(Path(supervisor.__file__).parent)
_UNSUPERVISED = "-1"
_PYTHON = (
    getattr(sys, "_base_executable", "") or sys.executable
)  # starts faster than a virtual environment's interpreter
SUPERVISED = supervisor.SUPPORTED and bool(_PYTHON) and not getattr(sys, "frozen", False)
"""Whether a supervisor starts programs and kills all their descendants: on Linux, with an interpreter."""

_kill_group = getattr(os, "killpg", os.kill)
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run, its environment and its limits.

    >>> Program(("echo", "hello")).max_memory
    0
    """

    command: tuple[str, ...]
    """The program and its arguments; they are not passed to a shell."""
    cwd: str | None = None
    """The working directory; None: the current one."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables, in addition to the ones that every program needs."""
    inherit_env: tuple[str, ...] = ()
    """The names of variables that it inherits from this process."""
    max_output: int = 1024 * 1024
    """The number of bytes kept of each of its output streams."""
    max_memory: int = 0
    """The memory limit in bytes; 0: no limit."""
    max_cpu: int = 0
    """The limit of processor time in seconds; 0: no limit."""

    def command_line(self, control: int | None) -> tuple[str, ...]:
        """Return the command line to execute: with a supervisor that reads from a file descriptor, or without."""
        if control is None and not self.max_memory and not self.max_cpu:
            return self.command
        settings = (
            _UNSUPERVISED if control is None else control,
            self.max_memory,
            self.max_cpu,
            int("LC_CTYPE" in self.variables),
        )
        return (_PYTHON, "-I", "-S", "-c", _SUPERVISOR, _FOLDER, *map(str, settings), *self.command)

    @property
    def variables(self) -> dict[str, str]:
        """The environment of the program."""
        inherited = {name: os.environ[name] for name in (*_BASE_VARIABLES, *self.inherit_env) if name in os.environ}
        return {**inherited, **self.env}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a program."""

    code: int
    """Its exit code; negative for the signal that killed it."""
    output: bytes
    """Its standard output, up to ``max_output`` + 1 bytes."""
    errors: bytes
    """Its standard error, up to ``max_output`` + 1 bytes."""


class _Streams(asyncio.SubprocessProtocol):
    """The streams of a program; keeps the beginning and discards the rest, so that the program never blocks."""

    def __init__(self, limit: int) -> None:
        self._room = limit + 1
        self._open = {1, 2}
        self.kept = {1: bytearray(), 2: bytearray()}
        self.exited = asyncio.Event()
        self.closed = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        kept = self.kept[fd]
        kept += data[: self._room - len(kept)]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        if not self._open:
            self.closed.set()

    def process_exited(self) -> None:
        self.exited.set()


class _Running:
    """A running program: its transport, its streams, and the pipe that tells its supervisor to kill it."""

    def __init__(
        self, transport: asyncio.SubprocessTransport, streams: _Streams, control_writer: FileIO | None
    ) -> None:
        self.transport = transport
        self.streams = streams
        self._control = control_writer

    async def close(self) -> None:
        """Kill the program with all its descendants, and close its pipes."""
        try:
            if self._control is not None and self.transport.get_returncode() is None:
                with suppress(OSError):  # it has just exited
                    self._control.write(b"end")
                await _wait_briefly(self.streams.exited, SUPERVISOR_GRACE)
        finally:
            _kill(self.transport)
            self.transport.close()
            if self._control is not None:
                self._control.close()
        await _wait_briefly(self.streams.exited)


async def run_program(program: Program, input: bytes, timeout: float | None) -> Outcome:  # noqa: ASYNC109 - cleanup is not timed
    """Run a program with these bytes on standard input and return its outcome; raise ``TimeoutError`` on timeout.

    Its process group is always killed. On timeout or cancellation, a supervisor (on Linux) kills all its descendants
    as well, including daemons. A daemon left by a program that exited keeps running; if it holds the pipes open, the
    call takes a second longer.

    >>> import asyncio
    >>> asyncio.run(run_program(Program(("cat",)), b"hello", timeout=30))
    Outcome(code=0, output=b'hello', errors=b'')
    """
    running = await _start(program)
    transport, streams = running.transport, running.streams
    try:
        stdin = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
        stdin.write(input)
        stdin.close()
        async with asyncio.timeout(timeout):
            await streams.exited.wait()
        _kill(transport)  # its children may hold its pipes open
        await _wait_briefly(streams.closed)
        return Outcome(cast("int", transport.get_returncode()), bytes(streams.kept[1]), bytes(streams.kept[2]))
    finally:
        await running.close()


async def _start(program: Program) -> _Running:
    starting = asyncio.ensure_future(_spawn(program))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # When cancelled here, asyncio would kill only the program itself, and wait for its children to close the pipes.
        with suppress(OSError):
            await (await starting).close()
        raise


async def _spawn(program: Program) -> _Running:
    control, control_writer = os.pipe() if SUPERVISED else (None, None)
    file = None if control_writer is None else FileIO(control_writer, "wb")
    try:
        transport, streams = await asyncio.get_running_loop().subprocess_exec(
            lambda: _Streams(program.max_output),
            *program.command_line(control),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=program.cwd,
            env=program.variables,
            start_new_session=True,
            pass_fds=() if control is None else (control,),
        )
    except BaseException:
        if file is not None:
            file.close()
        raise
    finally:
        if control is not None:
            os.close(control)
    return _Running(transport, streams, file)


def _kill(transport: asyncio.SubprocessTransport) -> None:
    pid = transport.get_pid()
    # The process id of a program that has exited may have been reused.
    others = supervisor.descendants(pid) if transport.get_returncode() is None else []
    # It leads its own session and process group; its children belong to the group unless they leave it.
    with suppress(ProcessLookupError, PermissionError):
        _kill_group(pid, _KILL)
    supervisor.kill(others)


async def _wait_briefly(event: asyncio.Event, seconds: float = GRACE) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
