"""Ways to start the program for tests: in this process, as a child, and at a terminal with a person."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from contextlib import ExitStack, contextmanager

from toolsemble._cli import main

WAIT = 60
PROGRAM = [sys.executable, "-m", "toolsemble"]
ANSI = re.compile(r"\x1b\[[0-9;]*[mK]")

BOT = """
import asyncio, os, signal, time
from toolsemble import ExitEarlyError, ModelError, ReturnBehavior, Tool, Toolbox, ToolCall, ToolResult, tool
from toolsemble.models import ChatReply, FunctionModel, ScriptedModel, TokenUsage
from toolsemble._vocabulary.result import ImageContent

@tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

@tool(requires_approval=True)
def delete(path: str) -> str:
    "Delete a file."
    return f"deleted {path}"

class Many(Tool):
    name = "many"
    description = "Gives many lines. One for each step."
    def run(self, input: str) -> ToolResult:
        self.context.progress(0.5, "half of it")
        self.context.progress(None, "more")
        self.context.progress("odd")
        text = "\\n".join(f"line {number}" for number in range(int(input)))
        return ToolResult.success(text, contents=[ImageContent(b"...", "image/png")])

many = Many()

@tool(return_behavior=ReturnBehavior.IMMEDIATE)
def show(text: str) -> str:
    "Show a text."
    return f"shown: {text}"

def interrupted(messages):
    signal.raise_signal(signal.SIGINT)
    return "too late"

def add_1_2():
    return ToolCall("add", {"a": 1, "b": 2})

"""


def write_bot(folder, script="", name="bot.py", more=""):
    """Write a module with tools and a scripted model; give its path."""
    path = folder / name
    model = f"model = ScriptedModel([{script}], usage=TokenUsage(1000, 20))"
    path.write_text(f"{BOT}\n{model}\n{more}", encoding="utf-8")
    return str(path)


def child(*words, stdin="", cwd=None, env=None):
    """Run the program as a child without a terminal; give its exit code, output and errors."""
    surroundings = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    run = subprocess.run(
        [*PROGRAM, *words],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=WAIT,
        cwd=cwd,
        env={**surroundings, **(env or {})},
        check=False,
    )
    return run.returncode, run.stdout, run.stderr


class Person:
    """The other end of a terminal: sees what is written there, and types when something has appeared."""

    def __init__(self, columns=100):
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.seen = ""
        self._place = 0
        self._over = False
        self._changed = threading.Condition()
        self._started = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        while not self._over or select.select([self.master], [], [], 0)[0]:
            if not select.select([self.master], [], [], 0.05)[0]:
                continue
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            with self._changed:
                self.seen += data.decode(errors="replace")
                self._changed.notify_all()

    def until(self, text):
        """Wait until a text has appeared after the one before."""
        with self._changed:
            found = self._changed.wait_for(lambda: self.seen.find(text, self._place) >= 0, WAIT)
            assert found, f"{text!r} did not appear in {self.seen[self._place :]!r}"
            self._place = self.seen.find(text, self._place) + len(text)

    def types(self, text):
        os.write(self.master, text.encode())

    def interrupts(self, text):
        """Press Ctrl-C until a text appears: an editor that is just about to wait does not notice it."""
        deadline = time.monotonic() + WAIT
        with self._changed:
            while self.seen.find(text, self._place) < 0 and time.monotonic() < deadline:
                self.types("\x03")
                self._changed.wait_for(lambda: self.seen.find(text, self._place) >= 0, 2)
        self.until(text)

    def plain(self):
        """Return what has been written, without colors, and of each line only what was last seen of it."""
        self._over = True
        self._reader.join(WAIT)
        lines = ANSI.sub("", self.seen.replace("\r\n", "\n").replace("\r\x1b[2K", "\0")).split("\n")
        return "\n".join(line.rpartition("\0")[2] for line in lines)

    def answers(self, *script):
        """Type, in a thread, one text after another has appeared."""

        def act():
            for expected, typed in script:
                self.until(expected)
                self.types(typed)

        actor = threading.Thread(target=act, daemon=True)
        actor.start()
        return actor

    @contextmanager
    def sits(self):
        """Have this process believe that the terminal is its own; a test's own streams are restored afterwards."""
        names, before = ("stdin", "stdout", "stderr"), (sys.stdin, sys.stdout, sys.stderr)
        with ExitStack() as streams:
            for name, mode in zip(names, "rww", strict=True):
                stream = open(self.slave, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - closed by the stack
                setattr(sys, name, streams.enter_context(stream))
            try:
                yield
            finally:
                sys.stdin, sys.stdout, sys.stderr = before

    def runs(self, words):
        """Run a command in this process, at this terminal; give its exit code."""
        with self.sits():
            return main(words)

    def starts(self, *words, cwd=None, env=None):
        """Start the program at this terminal, in its own session, so that Ctrl-C reaches it."""
        surroundings = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
        started = subprocess.Popen(
            [sys.executable, "-c", _LEADER, *PROGRAM, *words],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            cwd=cwd,
            env={**surroundings, "TERM": "xterm", **(env or {})},
            start_new_session=True,
        )
        self._started.append(started)
        return started

    def leaves(self):
        for started in self._started:
            started.kill()
            started.wait(WAIT)
        self._over = True
        self._reader.join(WAIT)
        os.close(self.master)
        os.close(self.slave)


# A terminal sends its signals to the session that has it.
_LEADER = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def forget_modules(folder):
    """Forget the modules that were loaded from a folder."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(folder)):
            del sys.modules[name]
