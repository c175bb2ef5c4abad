"""A process that starts another one and, when told to, ends it with every process that it has started, daemons too.

It is the *child subreaper* of what it supervises (Linux): a descendant whose parent has ended becomes its child, so
none can leave its tree, whatever session it leads, however often it forks and whatever it executes. It runs as a
program of its own (:func:`main`), for which this module imports as little as possible, or forked inside a worker.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # its public form takes longer to import than everything else here
import os
import select
import sys
import time
from _collections_abc import Callable, Iterable  # which is loaded already, unlike collections.abc

SUPPORTED = sys.platform == "linux"
"""Whether this system has child subreapers."""

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_KILL = getattr(_signal, "SIGKILL", _signal.SIGTERM)
_SHORTEST, _LONGEST = 0.0005, 0.05  # seconds between two looks at processes that do not end
_MOST = 60.0  # seconds after which it stops trying to kill what cannot be killed
_NOT_FOUND = 127  # the exit code of shells for a program that cannot be started


def adopt_orphans() -> bool:
    """Make this process the parent of every orphan among its descendants; return whether the system did it."""
    if not SUPPORTED:
        return False
    import _ctypes  # noqa: PLC0415 - not on every system; ctypes itself would double the time that a start takes

    prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]  # None: this program itself
    return bool(_ctypes.call_function(prctl, (_SUBREAPER, 1, 0, 0, 0)) == 0)


def fork() -> int:
    """Adopt orphans from now on and fork the process to supervise; return its number, and 0 inside of it."""
    adopt_orphans()
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)  # where it is ignored, nobody can wait for a child
    return os.fork()


def supervise(child: int, told: int, *, daemons: bool) -> int:
    """Wait for a child to end; return its wait status.

    Its process group is killed when it ends, and with ``daemons=False`` all of its descendants. These are killed at
    once, with the child, when the file descriptor ``told`` can be read or its other end is closed.
    """
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    _signal.signal(_signal.SIGCHLD, _ignore)  # without a handler nothing would be written to the pipe
    _signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    while (status := _reap(child)) is None:
        if told in select.select([told, reader], [], [])[0]:
            return end_all(child)
        os.read(reader, 65536)
    if not daemons:
        end_all()
    return status


def end_all(child: int = 0) -> int:
    """Kill every descendant of this process until none is left; return the wait status of the child, if it was one.

    Stops early when all that are left belong to other users, and when something does not end within a minute.
    """
    status, before, pause, ends = 0, [child], 0.0, time.monotonic() + _MOST
    if child:
        kill([child])  # also where nobody lists processes
    while time.monotonic() < ends:
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                status = ended[1] if ended[0] == child else status
        except ChildProcessError:  # who has no children here has no descendants either
            return status
        family = descendants(os.getpid())
        if family and not kill(family):
            return status
        # While new ones appear it is a race, in which no time may be lost.
        pause = min(max(2 * pause, _SHORTEST), _LONGEST) if family == before else 0.0
        before = family
        time.sleep(pause)
    return status


def kill(family: Iterable[int]) -> bool:
    """Kill processes, with their process groups; return False when none of them could be killed."""
    any_killed = False
    for pid in family:
        try:
            # A group is killed as a whole: no member can fork in between. No process has the group of this one.
            group = os.getpgid(pid)
            if group not in (os.getpgid(0), 0):
                os.killpg(group, _KILL)
            os.kill(pid, _KILL)
        except ProcessLookupError:  # it has ended by itself
            pass
        except PermissionError:
            continue
        any_killed = True
    return any_killed


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, directly or not, as far as each has its parent still."""
    family = [pid]
    children = _children if os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children") else _parents()
    for each in family:  # which grows by the children of each
        family += children(each)
    return family[1:]


def main(arguments: list[str]) -> None:
    """Run a program under supervision, as the arguments say, or alone.

    They are the file descriptor to be told by (-1: no supervision), the most bytes of memory and seconds of processor
    time (0: no limit), whether the program has a variable LC_CTYPE, and the command.
    """
    told, memory, cpu, locale = map(int, arguments[:4])
    if told < 0:
        _become(arguments[4:], memory, cpu, locale)
    os.set_inheritable(told, False)  # noqa: FBT003 - it takes no keyword
    child = fork()
    if child == 0:
        os.setsid()
        _become(arguments[4:], memory, cpu, locale)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # or its pipes would stay open when it closes them
        os.dup2(nothing, stream)
    exit_like(supervise(child, told, daemons=True))


def exit_like(status: int) -> None:
    """End this process as another one has ended: with the same exit code, or by the same signal."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        import resource  # noqa: PLC0415 - seldom needed

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != _KILL:
            _signal.signal(-code, _signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


def _become(command: list[str], memory: int, cpu: int, locale: int) -> None:
    """Execute the program in this process, within its limits."""
    for ignored in (_signal.SIGPIPE, _signal.SIGXFSZ):  # by Python
        _signal.signal(ignored, _signal.SIG_DFL)
    if not locale:
        os.environ.pop("LC_CTYPE", None)  # which Python sets for itself where there is no locale
    if memory or cpu:
        _limit(memory, cpu)
    try:
        os.execvp(command[0], command)  # noqa: S606 - what it is for
    except OSError as error:
        os.write(2, f"Cannot start {command[0]!r}: {error.strerror}".encode("utf-8", "replace"))
    os._exit(_NOT_FOUND)


def _limit(memory: int, cpu: int) -> None:
    import resource  # noqa: PLC0415 - most programs have no limits

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    if cpu:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))


def _reap(child: int) -> int | None:
    """Take the status of every child that has ended; return that of one child, whose group is killed first."""
    while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
        if found.si_pid == child:
            try:
                os.killpg(child, _KILL)  # its number is not given to another process before it is waited for
            except (ProcessLookupError, PermissionError):
                pass
            return os.waitpid(child, 0)[1]
        os.waitpid(found.si_pid, 0)
    return None


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:  # it ends while it is looked at
        pass
    return found


def _parents() -> Callable[[int], list[int]]:
    """Return a function for the children of a process, where the system lists only the parent of each."""
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
    """Do nothing at a signal."""
