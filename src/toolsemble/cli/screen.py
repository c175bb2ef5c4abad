"""Standard output and standard error: what is an answer goes to the one, what is told about it to the other."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from toolsemble.cli.visible import one_line, visible
from toolsemble.review.request_view import wrap_text

_STYLES = {"name": "1;36", "dim": "2", "good": "32", "bad": "31", "warning": "33", "bold": "1"}
_WIDTH = 80
_CLEAR = "\r\x1b[2K"


class Pane:
    r"""One stream of text, with colors where it is a terminal that has them.

    >>> Pane(sys.stdout, colors=True).painted("bad", "no")
    '\x1b[31mno\x1b[0m'
    """

    def __init__(self, stream: TextIO, *, colors: bool | None = None) -> None:
        self._stream = stream
        self.is_terminal = _is_terminal(stream)
        """Whether a person looks at it."""
        self.moves = self.is_terminal and os.environ.get("TERM", "dumb") != "dumb"
        """Whether a line can be written over."""
        self.colors = _colored(moves=self.moves) if colors is None else colors
        """Whether styles are shown."""

    @property
    def width(self) -> int:
        """How many characters fit in a line."""
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _WIDTH
        except (OSError, ValueError):
            return _WIDTH

    def painted(self, style: str, text: str) -> str:
        """Give a text in a style."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.colors and text else text

    def write(self, text: str) -> None:
        """Write a text as it is, at once; what the encoding does not have is written in its escaped form."""
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        self._stream.flush()


class Screen:
    """Both streams, and a line of status that gives way to whatever is written; safe to use from any thread.

    >>> screen = Screen(colors=False)
    >>> screen.answer("Rome")
    Rome
    """

    def __init__(self, *, colors: bool | None = None) -> None:
        """Take the streams of the process.

        :param colors: whether styles are shown; None for where a person looks at it who has not set NO_COLOR
        """
        self.out = Pane(sys.stdout, colors=colors)
        self.err = Pane(sys.stderr, colors=colors)
        self._lock = threading.RLock()
        self._status = ""
        self._open = False
        self._paused = 0
        self._held: list[tuple[Pane, str]] = []

    def answer(self, text: str, *, end: str = "\n") -> None:
        """Write a part of the answer, with what is dangerous in it made visible."""
        self._put(self.out, f"{visible(text)}{end}")

    def write(self, text: str) -> None:
        """Write a line that is safe as it is to standard output."""
        self._put(self.out, f"{text}\n")

    def tell(self, text: str) -> None:
        """Write a line that is safe as it is to standard error, never into a line that is still open."""
        with self._lock:
            self.close_line()
            self._put(self.err, f"{text}\n")

    def close_line(self) -> None:
        """End a line of the answer that is still open."""
        with self._lock:
            if self._open:
                self._put(self.out, "\n")

    def status(self, text: str) -> None:
        """Show what is going on, in one line that the next one replaces; only where there is a terminal."""
        with self._lock:
            if not self.err.moves or self._paused or self._open or text == self._status:
                return
            line = next(wrap_text(one_line(text), max(self.err.width - 1, 1)))
            self.err.write(_CLEAR + self.err.painted("dim", line))
            self._status = text

    def clear_status(self) -> None:
        """Take the line of status away."""
        with self._lock:
            if self._status:
                self.err.write(_CLEAR)
                self._status = ""

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Leave the terminal to somebody else; what is written meanwhile appears afterwards."""
        with self._lock:
            self.close_line()
            self.clear_status()
            self._paused += 1
        try:
            yield
        finally:
            with self._lock:
                self._paused -= 1
                held, self._held = ([], self._held) if self._paused else (self._held, [])
                for pane, text in held:
                    self._put(pane, text)

    def _put(self, pane: Pane, text: str) -> None:
        with self._lock:
            if self._paused:
                self._held.append((pane, text))
                return
            self.clear_status()
            pane.write(text)
            if pane is self.out and text:
                self._open = pane.is_terminal and not text.endswith("\n")


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # it is closed
        return False


def _colored(*, moves: bool) -> bool:
    """Whether to use colors: the variables that people set stand above what the stream is."""
    if os.environ.get("NO_COLOR"):
        return False
    return moves or bool(os.environ.get("FORCE_COLOR"))
