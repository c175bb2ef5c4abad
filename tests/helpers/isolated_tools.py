"""Tools that run in worker processes; those import this module."""

from __future__ import annotations

import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from toolsemble import ExitEarlyError, InvocationParameters, Secret, Tool, ToolContext, TypedTool, tool
from toolsemble._vocabulary.result import ToolResult

LONG = 60


@tool(isolation="process")
def where(text: str = "x") -> dict[str, object]:
    """Tells which process it runs in."""
    return {"pid": os.getpid(), "parent": os.getppid(), "text": text}


@tool(isolation="process", timeout=0.5)
def hang(file: str) -> str:
    """Starts a child, and never ends."""
    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({LONG})"])
    Path(file).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(LONG)
    return "late"


@tool(isolation="process")
def wait_for(file: str) -> str:
    """Says that it is there, and never ends."""
    Path(file).write_text(str(os.getpid()))
    time.sleep(LONG)
    return "late"


@tool(isolation="process")
def die(how: str) -> str:
    """Dies in some way."""
    if how == "fork":
        if os.fork() == 0:
            time.sleep(LONG)  # it holds the pipes of its parent
        os._exit(7)
    if how == "exit":
        os._exit(3)
    if how == "close":
        os.closerange(3, 256)
        time.sleep(LONG)
    os.kill(os.getpid(), getattr(signal, how))
    time.sleep(LONG)
    return "late"


@tool(isolation="process")
def start_daemon(file: str, then: str) -> str:
    """Starts a daemon as in the books, with two forks and its own session."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 256)
            Path(f"{file}.new").write_text(str(os.getpid()))
            Path(f"{file}.new").rename(file)
            os.execve("/bin/sh", ["innocent", "-c", f"exec sleep {LONG}"], {})  # noqa: S606 - as daemons do
        os._exit(0)
    while not Path(file).exists():
        time.sleep(0.005)
    if then == "exit":
        os._exit(3)
    if then == "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
    if then == "raise":
        raise ValueError("no more")
    time.sleep(LONG)
    return "late"


class OddError(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, first, second):
        super().__init__(f"{first} {second}")


@tool(isolation="process")
def fail(kind: str) -> object:
    """Fails in some way."""
    if kind == "odd":
        raise OddError("very", "odd")
    if kind == "exit_early":
        raise ExitEarlyError("enough")
    if kind == "system_exit":
        raise SystemExit(5)
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "lock":
        return threading.Lock()
    raise ValueError("boom")


@tool(isolation="process", max_memory=500_000_000)
def eat(size: int) -> int:
    """Takes memory."""
    return len(bytearray(size))


@tool(isolation="process")
def eat_freely(size: int) -> int:
    """Takes memory without its own limit."""
    return len(bytearray(size))


@tool(isolation="process", max_memory=500_000_000)
def memory_limits(lower: bool) -> dict[str, int]:
    """Tells how much memory it may have."""
    if lower:
        resource.setrlimit(resource.RLIMIT_AS, (400_000_000, 400_000_000))
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    return {"soft": soft, "hard": hard}


@tool(isolation="process")
def call_context(context: ToolContext) -> dict[str, object]:
    """Tells what it knows of its call."""
    context.metrics.increment_counter("seen", context.tool_name, context.agent_role)
    context.progress(0.5)
    return {"tool": context.tool_name, "role": context.agent_role, "deadline": context.deadline}


@tool(isolation="process")
def write_parameters(parameters: InvocationParameters) -> str:
    """Wants to write into the parameters of the run."""
    return "written"


class Counter(Tool):
    """A tool object that is sent along with its state."""

    name = "counter"
    description = "Adds to a number"
    isolation = "process"
    max_concurrency = 2

    def __init__(self, start=0):
        self.start = start

    def run(self, input):
        return ToolResult.success(str(self.start + int(input)), attributes={"start": self.start})


class Heavy:
    """An input that cannot be sent."""

    def __reduce__(self):
        raise TypeError("too heavy to carry")


class Unreadable:
    """An input that can be sent, and not be read."""

    def __reduce__(self):
        return explode, ()


def explode():
    raise ValueError("it exploded on the way")


class AnyInput(Tool):
    """Gets an input that only programs can give."""

    name = "any_input"
    description = "Takes anything"
    isolation = "process"

    def run(self, input):
        return "never"


class Method:
    @tool(isolation="process")
    def ask(self, number: int) -> int:
        """Adds one."""
        return number + 1


class WithLock(TypedTool[dict]):
    """Has a live part."""

    name = "with_lock"
    description = "Cannot be sent"
    isolation = "process"
    input_type = OddError

    def __init__(self):
        self.lock = threading.Lock()


@tool(isolation="process")
def fork(file: str) -> int:
    """Forks a child that stays; gives its number."""
    child = os.fork()
    if child == 0:
        time.sleep(LONG)  # it holds the pipes of its parent
        os._exit(0)
    Path(file).write_text(str(child))
    return child


@tool(isolation="process")
def sign_in(password: Secret[str], file: str, context: ToolContext) -> str:
    """Writes what it should not to its own log."""
    handler = logging.FileHandler(file)
    context.logger.addHandler(handler)
    context.logger.warning("with %s", password.get_secret_value())
    context.logger.removeHandler(handler)
    handler.close()
    return "done"


def hang_with_daemon(file):
    """Return the result of a body that starts a daemon and does not end in time."""
    while True:  # on a slow machine its time may be up before it has begun
        context = ToolContext(deadline=time.monotonic() + 0.5)
        result = start_daemon.execute({"file": str(file), "then": "stay"}, context)
        if file.exists():
            return result


@tool(isolation="process")
def refuse_isolated() -> ToolResult:
    """Fails with a kind."""
    return ToolResult.failure("no", error_kind="limit")


@tool(isolation="process")
def show_user_message(context: ToolContext) -> str:
    """Shows what the user wrote."""
    return "nothing" if context.user_message is None else context.user_message.text
