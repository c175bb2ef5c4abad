"""A terminal, and a person who reads there before they type."""

import fcntl
import os
import pty
import select
import struct
import termios
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic  # by name: it stays what it is when a test stops the clock

from toolsemble.review import ConsoleReview

WAIT = 30


class Person:
    """The other end of a terminal: sees what is written there, and types."""

    def __init__(self, columns=100):
        self.master, self.slave = pty.openpty()
        self.size(columns)
        self.stream = open(self.slave, encoding="utf-8", closefd=False)  # noqa: SIM115 - a descriptor
        self.output = open(self.slave, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - likewise
        self.console = ConsoleReview(self.stream, self.output)
        self.seen = ""
        self.read = 0
        self.pool = ThreadPoolExecutor(16)

    def size(self, columns):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    def until(self, text, gone=lambda: False):
        """Return what is written up to a text; a person who has left does not wait for it."""
        ends = monotonic() + WAIT
        while (place := self.seen.find(text, self.read)) < 0:
            assert not gone()
            assert monotonic() < ends, f"{text!r} did not appear in {self.seen[self.read :]!r}"
            self.look(0.1)
        start, self.read = self.read, place + len(text)
        return self.seen[start : self.read]

    def look(self, seconds):
        """Read what is written, or is written soon."""
        if select.select([self.master], [], [], seconds)[0]:
            self.seen += os.read(self.master, 65536).decode(errors="replace")

    def result(self, answer):
        """Return an answer; read meanwhile, because a write to a full terminal blocks."""
        ends = monotonic() + WAIT
        while not answer.done() and monotonic() < ends:
            self.look(0.01)
        return answer.result(0)

    def prompt(self, gone=lambda: False):
        """Return what is written up to the place where an answer is typed."""
        return self.until("[c]ontinue  [e]dit  [x] reject", gone) + self.until("> ", gone)

    def type(self, text):
        os.write(self.master, text.encode() if isinstance(text, str) else text)

    def ask(self, asked, handler=None):
        return self.pool.submit((handler or self.console).review, asked)

    def hang_up(self):
        if self.master is not None:
            os.close(self.master)
            self.master = None

    def leave(self):
        self.hang_up()  # reviews that still wait get no answer
        self.pool.shutdown()
        self.stream.close()
        with suppress(OSError):  # some output may be left unread
            self.output.close()
        os.close(self.slave)
