"""A supervisor process: it starts another process and can kill it with all its descendants, including daemons.

It is the *child subreaper* of its descendants (Linux): an orphan becomes a child of the supervisor, so
none can leave the tree by forking or by starting a session. It runs as a separate program (:func:`main`), for which
this module imports as little as possible, or forked inside a worker.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the module signal takes longer to import than everything else here
import os
import select
import sys
import time
from _collections_abc import Callable, Iterable  # already loaded, unlike collections.abc

SUPPORTED = sys.platform == "linux"
"""Whether this system has child subreapers."""

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_KILL = getattr(_signal, "SIGKILL", _signal.SIGTERM)
_MIN_PAUSE, _MAX_PAUSE = 0.0005, 0.05  # seconds between checks for running processes
_KILL_TIMEOUT = 60.0  # seconds after which it stops killing
_NOT_FOUND = 127  # the exit code of shells for a program that cannot be started


def adopt_orphans() -> bool:
    """Make this process the parent of orphans among its descendants; return whether the system supports it."""
    if not SUPPORTED:
        return False
    import _ctypes  # not on every system; importing ctypes would double the start time

    prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]  # None: this program
    return bool(_ctypes.call_function(prctl, (_SUBREAPER, 1, 0, 0, 0)) == 0)


def fork() -> int:
    """Adopt orphans from now on and fork the process to supervise; return its pid, and 0 in the child."""
    adopt_orphans()
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)  # if it is ignored, a child cannot be waited for
    return os.fork()


def supervise(child: int, stop: int, *, daemons: bool) -> int:
    """Wait for a child to end; return its wait status.

    Its process group is killed when it ends, and with ``daemons=False`` all its descendants. All are killed at once,
    with the child, when the file descriptor ``stop`` becomes readable or its other end is closed.
    """
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    _signal.signal(_signal.SIGCHLD, _ignore)  # without a handler nothing would be written to the pipe
    _signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    while (status := _reap(child)) is None:
        if stop in select.select([stop, reader], [], [])[0]:
            return end_all(child)
        os.read(reader, 65536)
    if not daemons:
        end_all()
    return status


def end_all(child: int = 0) -> int:
    """Kill all descendants of this process until none is left; return the wait status of the child if it was killed.

    Stop early if the remaining ones belong to other users, or do not exit within a minute.
    """
    status, before, pause, ends = 0, [child], 0.0, time.monotonic() + _KILL_TIMEOUT
    if child:
        kill([child])  # works without /proc
    while time.monotonic() < ends:
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                status = ended[1] if ended[0] == child else status
        except ChildProcessError:  # a subreaper without children has no descendants
            return status
        family = descendants(os.getpid())
        if family and not kill(family):
            return status
        # No pause while new processes appear: they may be forking faster than they are killed.
        pause = min(max(2 * pause, _MIN_PAUSE), _MAX_PAUSE) if family == before else 0.0
        before = family
        time.sleep(pause)
    return status


def kill(family: Iterable[int]) -> bool:
    """Kill processes with their process groups; return False if none could be killed."""
    any_killed = False
    for pid in family:
        try:
            # A group is killed as a whole, so no member can fork in between; never the group of this process.
            group = os.getpgid(pid)
            if group not in (os.getpgid(0), 0):
                os.killpg(group, _KILL)
            os.kill(pid, _KILL)
        except ProcessLookupError:  # it has ended already
            pass
        except PermissionError:
            continue
        any_killed = True
    return any_killed


def descendants(pid: int) -> list[int]:
    """Return the pids of the descendants of a process, without orphans."""
    family = [pid]
    children = _children if os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children") else _parents()
    for each in family:  # grows while it is iterated
        family += children(each)
    return family[1:]


def main(arguments: list[str]) -> None:
    """Run a program, with or without supervision.

    The arguments are the file descriptor ``stop`` (-1: no supervision), the limits for bytes of memory and seconds of
    CPU time (0: no limit), whether the program has a variable LC_CTYPE, and the command.
    """
    stop, memory, cpu, locale = map(int, arguments[:4])
    if stop < 0:
        _exec(arguments[4:], memory, cpu, locale)
    os.set_inheritable(stop, False)  # noqa: FBT003 - positional-only
    child = fork()
    if child == 0:
        os.setsid()
        _exec(arguments[4:], memory, cpu, locale)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # or the program's pipes would stay open when it closes them
        os.dup2(nothing, stream)
    exit_like(supervise(child, stop, daemons=True))


def exit_like(status: int) -> None:
    """Exit like another process: with the same exit code, or by the same signal."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != _KILL:
            _signal.signal(-code, _signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


def _exec(command: list[str], memory: int, cpu: int, locale: int) -> None:
    """Replace this process by the program, with its limits."""
    for ignored in (_signal.SIGPIPE, _signal.SIGXFSZ):  # ignored by Python
        _signal.signal(ignored, _signal.SIG_DFL)
    if not locale:
        os.environ.pop("LC_CTYPE", None)  # set by Python itself if there is no locale
    if memory or cpu:
        _limit(memory, cpu)
    try:
        os.execvp(command[0], command)  # noqa: S606 - its purpose
    except OSError as error:
        os.write(2, f"Cannot start {command[0]!r}: {error.strerror}".encode("utf-8", "replace"))
    os._exit(_NOT_FOUND)


def _limit(memory: int, cpu: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    if cpu:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))


def _reap(child: int) -> int | None:
    """Reap all children that have ended; return the status of one child, whose group is killed first."""
    while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
        if found.si_pid == child:
            try:
                os.killpg(child, _KILL)  # the pid cannot be reused before the child is reaped
            except (ProcessLookupError, PermissionError):
                pass
            return os.waitpid(child, 0)[1]
        os.waitpid(found.si_pid, 0)
    return None


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:  # the process has ended
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
        except OSError:  # the thread has ended; the others may have children
            continue
    return found


def _parents() -> Callable[[int], list[int]]:
    """Return a function for the children of a process, for systems that list only the parent of each process."""
    found: dict[int, list[int]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except OSError:
            continue
        if state not in (b"Z", b"X"):
            found.setdefault(int(parent), []).append(int(pid))
    return lambda pid: found.get(pid, [])


def _ignore(number: int, frame: object) -> None:
    """Ignore a signal."""
