"""A program that is started, given bytes, and ended with its whole process group."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE
from typing import cast

from toolsemble.data import dataclass

GRACE = 1.0
"""How many seconds there are for the pipes of a program that has ended, and for one that was killed."""
LIMITS = find_spec("resource") is not None
"""Whether this system can limit what a program uses."""

# What programs need to find others, to write text and to keep temporary files: nothing that could be secret.
_CLEAN = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "COMSPEC", "PATHEXT")
# A program of its own sets the limits: code between fork and exec could hang in a process with threads.
_LIMITED = """
import os, resource, sys
memory, cpu = map(int, sys.argv[1:3])
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
if memory:
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
if cpu:
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
try:
    os.execvp(sys.argv[3], sys.argv[3:])
except OSError as error:
    sys.exit(f"Cannot start {sys.argv[3]!r}: {error.strerror}")
"""
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

    @property
    def arguments(self) -> tuple[str, ...]:
        """The command as it is really started."""
        if not self.max_memory and not self.max_cpu:
            return self.command
        return (sys.executable, "-I", "-S", "-c", _LIMITED, str(self.max_memory), str(self.max_cpu), *self.command)

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


async def ended(program: Program, given: bytes, timeout: float | None) -> Ended:  # noqa: ASYNC109 - not for our part
    """Give what came of a program that got these bytes on standard input; raise ``TimeoutError`` if it goes on.

    However it ends, its process group is killed. Late or cancelled, it is killed with all its descendants where the
    system names them, as Linux does. A daemon that a program left before goes on, and may cost a second by its pipes.

    >>> import asyncio
    >>> asyncio.run(ended(Program(("cat",)), b"hello", timeout=30))
    Ended(code=0, output=b'hello', errors=b'')
    """
    transport, streams = await _started(program)
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
        await _closed(transport, streams)


async def _started(program: Program) -> tuple[asyncio.SubprocessTransport, _Streams]:
    starting = asyncio.ensure_future(
        asyncio.get_running_loop().subprocess_exec(
            lambda: _Streams(program.max_output),
            *program.arguments,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=program.cwd,
            env=program.variables,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # Cancelled in the middle of it, asyncio would end the program alone, and wait for those who hold its pipes.
        with suppress(OSError):
            await _closed(*await starting)
        raise


async def _closed(transport: asyncio.SubprocessTransport, streams: _Streams) -> None:
    _kill(transport)
    transport.close()
    await _briefly(streams.exited)


def _kill(transport: asyncio.SubprocessTransport) -> None:
    pid = transport.get_pid()
    # The number of a program that has ended may be that of another by now.
    others = _descendants(pid) if transport.get_returncode() is None else []
    # It leads a session, and so a group, of its own; what it starts belongs to that, unless it leaves.
    with suppress(ProcessLookupError, PermissionError):
        _kill_group(pid, _KILL)
    for other in others:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(other, _KILL)


def _descendants(pid: int) -> list[int]:
    """Give all that a program has started, directly or not, and that still have a parent; none where nobody can say."""
    family = [pid]
    for each in family:  # which grows by the children of each
        with suppress(OSError):  # it ends while it is looked at
            for thread in Path(f"/proc/{each}/task").iterdir():
                family += map(int, (thread / "children").read_text().split())
    return family[1:]


async def _briefly(event: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE):
            await event.wait()
