"""The terminal of a process: show text to a person, and read a line."""

from __future__ import annotations

import getpass
import os
import select
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, TextIO

_POLL = 0.1
_WIDTH = 80
# A terminal silently drops input beyond this line length.
_FULL_LINE = 4095 if sys.platform == "linux" else 1023
_STYLES = {
    "title": "1;36", "bold": "1", "dim": "2", "good": "32", "bad": "31", "warning": "33", "note": "1;33",
}  # fmt: skip
NO_TERMINAL = "standard input is not a terminal, so no reviewer can be asked"
"""The reason for an automatic refusal."""


class AbandonedError(Exception):
    """The request is abandoned: no caller waits for the answer."""


class FairLock:
    """A lock that is granted first come, first served; its length is the number of holders and waiters."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Drop all holders and waiters: in a forked child, their threads do not exist."""
        self._changed = threading.Condition()
        self._queue: dict[object, None] = {}

    def __len__(self) -> int:
        return len(self._queue)

    @contextmanager
    def acquire(self, abandoned: Callable[[], bool]) -> Iterator[None]:
        """Wait for the lock and hold it; raise :class:`AbandonedError` when the request is abandoned."""
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
"""The lock of the terminal, one for the process."""
with suppress(AttributeError):  # not every system has fork
    os.register_at_fork(after_in_child=TERMINAL_LOCK.reset)


class OutputStream:
    r"""An output stream, with colors if it is a terminal that supports them.

    >>> OutputStream(sys.stdout, colors=True).paint("bad", "no")
    '\x1b[31mno\x1b[0m'
    """

    def __init__(self, stream: TextIO, *, colors: bool | None = None) -> None:
        self._stream = stream
        self.descriptor = find_terminal(stream)
        """The file descriptor if it is a terminal; otherwise None."""
        self.is_terminal = self.descriptor is not None
        """Whether it is a terminal."""
        self.can_overwrite = self.is_terminal and os.environ.get("TERM", "dumb") != "dumb"
        """Whether a line can be overwritten."""
        self.colors = _use_colors(can_overwrite=self.can_overwrite) if colors is None else colors
        """Whether to use colors."""

    @property
    def width(self) -> int:
        """The number of columns."""
        try:
            return os.get_terminal_size(self.descriptor).columns or _WIDTH if self.descriptor is not None else _WIDTH
        except OSError:  # the terminal was closed
            return _WIDTH

    def paint(self, style: str, text: str) -> str:
        """Return a text with the escape codes of a style; "" is no style."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.colors and style and text else text

    def write(self, text: str) -> None:
        """Write and flush a text; characters outside the encoding are escaped."""
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        self._stream.flush()


class Terminal:
    """A terminal that shows texts and reads lines until the request is abandoned."""

    def __init__(
        self, input: TextIO, output: TextIO, abandoned: Callable[[], bool], *, colors: bool | None = None
    ) -> None:
        source = find_terminal(input)
        if source is None:
            raise EOFError("the input is no longer a terminal")
        self.abandoned = abandoned
        """Returns whether the request is abandoned."""
        self.output = OutputStream(output, colors=colors)
        self.streams = source, self.output.descriptor
        """The file descriptors of the input and, if it is a terminal too, of the output."""
        self._input = input
        self._typed = b""
        self._termios = _import_termios()
        self._failures = (OSError, ValueError, getattr(self._termios, "error", OSError))

    def write(self, text: str) -> None:
        """Write a text; raise EOFError if the output is closed."""
        try:
            self.output.write(text)
        except (OSError, ValueError) as error:
            raise EOFError("the output is closed") from error

    def read_line(self, prompt: Callable[[], str], *, live: bool = False) -> str:
        """Return the next line; raise EOFError at the end of the input, AbandonedError when the request is abandoned.

        A live prompt is updated during the wait. The typed text stays, if it fits on one line.
        """
        self.write(shown := prompt())
        if self._termios is None:
            return self._read_plain_line()
        while b"\n" not in self._typed:
            if self.abandoned():
                raise AbandonedError
            if live and self.output.can_overwrite and (now := prompt()) != shown:
                self.write(f"\x1b7\r{now}\x1b8")
                shown = now
            self._read()
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode(self._encoding, "surrogateescape")

    def read_secret(self, prompt: Callable[[], str]) -> str:
        """Return the next line as :meth:`read_line` does, without echo."""
        if self._termios is None:
            if self._input is not sys.stdin:
                return self.read_line(prompt)
            self.write(prompt())
            return getpass.getpass("")
        with self._errors_as_eof():
            settings = self._termios.tcgetattr(self.streams[0])
        silent = [*settings[:3], settings[3] & ~self._termios.ECHO | self._termios.ECHONL, *settings[4:]]
        try:
            self._set(silent)  # before the prompt: the answer may come immediately
            return self.read_line(prompt)
        finally:
            self._set(settings)

    def is_whole(self, line: str) -> bool:
        """Return whether a line is all that was typed or pasted; discard the rest."""
        if self._termios is None:
            return True
        with self.lend() as settings:
            # The last line of a paste may have no newline, and is not readable in canonical mode.
            settings[3] &= ~self._termios.ICANON
            self._set(settings)
            more = self._typed or self._is_readable()
        return not more and len(line.encode(self._encoding, "surrogateescape")) < _FULL_LINE

    def discard(self) -> None:
        """Discard pending input: it was not meant for the next question."""
        self._typed = b""
        if self._termios is not None:
            with self._errors_as_eof():
                self._termios.tcflush(self.streams[0], self._termios.TCIFLUSH)

    @contextmanager
    def lend(self) -> Iterator[list[Any]]:
        """Yield a copy of the terminal settings; restore them afterwards, and discard pending input."""
        if self._termios is None:
            yield []
            return
        with self._errors_as_eof():
            settings = self._termios.tcgetattr(self.streams[0])
        try:
            yield settings[:]
        finally:
            self._set(settings)
            self.discard()

    def _set(self, settings: list[Any]) -> None:
        with self._errors_as_eof():
            self._termios.tcsetattr(self.streams[0], self._termios.TCSANOW, settings)

    @property
    def _encoding(self) -> str:
        return getattr(self._input, "encoding", None) or "utf-8"

    def _is_readable(self) -> bool:
        with self._errors_as_eof():
            return bool(select.select([self.streams[0]], [], [], _POLL)[0])

    def _read(self) -> None:
        if not self._is_readable():
            return
        with self._errors_as_eof():
            typed = os.read(self.streams[0], _FULL_LINE + 1)
        if not typed:
            raise EOFError("the input ended")
        self._typed += typed

    def _read_plain_line(self) -> str:
        with self._errors_as_eof():
            line = self._input.readline()
        if not line.endswith("\n"):
            raise EOFError("the input ended")
        return line[:-1]

    @contextmanager
    def _errors_as_eof(self) -> Iterator[None]:
        """Raise EOFError for every error of a closed terminal."""
        try:
            yield
        except self._failures as error:
            raise EOFError("the input ended") from error


def find_terminal(stream: Any) -> int | None:
    """Return the file descriptor of a stream that is a terminal; None for anything else.

    >>> import io
    >>> find_terminal(io.StringIO("c")), find_terminal(None)
    (None, None)
    """
    try:
        number: int = stream.fileno()
        return number if os.isatty(number) else None
    except (AttributeError, OSError, TypeError, ValueError):
        return None


def wrap_text(text: str, width: int) -> Iterator[str]:
    """Yield a text in pieces that fit a width, at least one; a terminal would wrap it past the margin.

    >>> list(wrap_text("to be or not", 6))
    ['to be ', 'or not']
    """
    start = 0
    while True:
        end = _find_end(text, start, width)
        if end < len(text):
            end = text.rfind(" ", (start + end) // 2, end) + 1 or end
        yield text[start:end]
        start = end
        if start >= len(text):
            return


def _find_end(text: str, start: int, width: int) -> int:
    """Return the end index of the text that fits a width."""
    if (piece := text[start : start + width]).isascii():
        return start + len(piece)
    end = start
    while end < len(text) and (width := width - count_cells(text[end])) >= 0:
        end += 1
    return end


def count_cells(text: str) -> int:
    """Return the maximum number of terminal cells of a text: some terminals show ambiguous characters wide."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(character) in "WFA" else 1 for character in text)


def _use_colors(*, can_overwrite: bool) -> bool:
    """Return whether to use colors; environment variables override the type of the stream."""
    if os.environ.get("NO_COLOR"):
        return False
    return can_overwrite or bool(os.environ.get("FORCE_COLOR"))


def _import_termios() -> Any:
    """Return the module ``termios``; None if there is none, as on Windows."""
    try:
        return import_module("termios")
    except ImportError:
        return None
