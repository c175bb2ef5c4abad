"""The terminal of a process: whose turn it is to use it, and how to read from it without being stuck."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, TextIO

_POLL = 0.1
_WIDTH = 80
# A terminal drops what goes beyond a full line, without a word.
_FULL_LINE = 4095 if sys.platform == "linux" else 1023
_STYLES = {"label": "2", "title": "1;36", "tool": "1", "repair": "33", "note": "1;33", "choices": "1"}


class AbandonedError(Exception):
    """Whoever asked has gone, so there is no use in waiting for a person."""


class FairLock:
    """One place, taken first come first served, for as long as somebody waits; its length is how many want it.

    >>> turns = FairLock()
    >>> with turns.acquire(lambda: False):
    ...     len(turns)
    1
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everybody: in a forked process, none of the threads exist that had or awaited a turn."""
        self._changed = threading.Condition()
        self._queue: dict[object, None] = {}

    def __len__(self) -> int:
        return len(self._queue)

    @contextmanager
    def acquire(self, abandoned: Callable[[], bool]) -> Iterator[None]:
        """Wait for a turn and hold it; raise :class:`AbandonedError` when it is not wanted any more."""
        me = object()
        try:
            self._wait(me, abandoned)
            yield
        finally:
            with self._changed:
                self._queue.pop(me, None)
                self._changed.notify_all()

    def _wait(self, me: object, abandoned: Callable[[], bool]) -> None:
        with self._changed:
            self._queue[me] = None
            while not abandoned():
                if next(iter(self._queue)) is me:
                    return
                self._changed.wait(_POLL)
        raise AbandonedError


TERMINAL_LOCK = FairLock()
"""Whose turn it is to use the terminal: one for the process, however many ask."""
with suppress(AttributeError):  # not every system can fork
    os.register_at_fork(after_in_child=TERMINAL_LOCK.reset)


class Terminal:
    """A person at a terminal, who is shown texts and types lines for as long as somebody waits for them."""

    def __init__(
        self, input: TextIO, output: TextIO, abandoned: Callable[[], bool], *, colors: bool | None = None
    ) -> None:
        source = find_terminal(input)
        if source is None:
            raise EOFError("the input is no terminal any more")
        self.abandoned = abandoned
        """Whether nobody waits for the person any more."""
        self.streams = source, find_terminal(output)
        """The file descriptors of the input and, if it is a terminal too, of the output."""
        self._input, self._output = input, output
        self._typed = b""
        self._termios = _termios()
        self._failures = (OSError, ValueError, getattr(self._termios, "error", OSError))
        self._moves = self.streams[1] is not None and os.environ.get("TERM", "dumb") != "dumb"
        self._colors = self._moves and not os.environ.get("NO_COLOR") if colors is None else colors

    @property
    def width(self) -> int:
        """How many characters fit in a line."""
        target = self.streams[1]
        if target is None:
            return _WIDTH
        with self._ending():
            return os.get_terminal_size(target).columns or _WIDTH

    def paint(self, style: str, text: str) -> str:
        """Give the text in a style, where the terminal has colors."""
        code = _STYLES.get(style) if self._colors else None
        return f"\x1b[{code}m{text}\x1b[0m" if code else text

    def write(self, text: str) -> None:
        """Show a text; raise EOFError when there is nothing left to show it on."""
        encoding = getattr(self._output, "encoding", None) or "utf-8"
        try:
            self._output.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._output.flush()
        except (OSError, ValueError) as error:
            raise EOFError("the output is closed") from error

    def read_line(self, prompt: Callable[[], str], *, live: bool = False) -> str:
        """Give the next line; raise EOFError at the end of the input, NobodyWaitsError when that is so.

        While it waits, a live prompt is kept up to date. What is being typed stays as it is, if it stays on one line.
        """
        self.write(shown := prompt())
        if self._termios is None:
            return self._whole_line()
        while b"\n" not in self._typed:
            if self.abandoned():
                raise AbandonedError
            if live and self._moves and (now := prompt()) != shown:
                self.write(f"\x1b7\r{now}\x1b8")
                shown = now
            self._read()
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode(self._encoding, "surrogateescape")

    def whole(self, line: str) -> bool:
        """Whether a line is all that was typed or pasted; what there is besides is discarded."""
        if self._termios is None:
            return True
        with self.lend() as settings:
            # The last line of a paste may have no end, and would not be seen in the mode that gives lines.
            settings[3] &= ~self._termios.ICANON
            self._set(settings)
            more = self._typed or self._readable()
        return not more and len(line.encode(self._encoding, "surrogateescape")) < _FULL_LINE

    def discard(self) -> None:
        """Forget what has been typed so far: it was not meant for what comes next."""
        self._typed = b""
        if self._termios is not None:
            with self._ending():
                self._termios.tcflush(self.streams[0], self._termios.TCIFLUSH)

    @contextmanager
    def lend(self) -> Iterator[list[Any]]:
        """Lend the terminal, given its settings; take it back as it was, without what was typed in the meantime."""
        if self._termios is None:
            yield []
            return
        with self._ending():
            settings = self._termios.tcgetattr(self.streams[0])
        try:
            yield settings[:]
        finally:
            self._set(settings)
            self.discard()

    def _set(self, settings: list[Any]) -> None:
        with self._ending():
            self._termios.tcsetattr(self.streams[0], self._termios.TCSANOW, settings)

    @property
    def _encoding(self) -> str:
        return getattr(self._input, "encoding", None) or "utf-8"

    def _readable(self) -> bool:
        with self._ending():
            return bool(select.select([self.streams[0]], [], [], _POLL)[0])

    def _read(self) -> None:
        if not self._readable():
            return
        with self._ending():
            typed = os.read(self.streams[0], _FULL_LINE + 1)
        if not typed:
            raise EOFError("the input ended")
        self._typed += typed

    def _whole_line(self) -> str:
        with self._ending():
            line = self._input.readline()
        if not line.endswith("\n"):
            raise EOFError("the input ended")
        return line[:-1]

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Make every way in which a terminal can go away the end of the input."""
        try:
            yield
        except self._failures as error:
            raise EOFError("the input ended") from error


def find_terminal(stream: Any) -> int | None:
    """Give the file descriptor of a stream that is a terminal; None for everything else.

    >>> import io
    >>> find_terminal(io.StringIO("c")), find_terminal(None)
    (None, None)
    """
    try:
        number: int = stream.fileno()
        return number if os.isatty(number) else None
    except (AttributeError, OSError, TypeError, ValueError):
        return None


def _termios() -> Any:
    """Give the module that controls terminals; None where there is none, as on Windows."""
    try:
        return import_module("termios")
    except ImportError:
        return None
