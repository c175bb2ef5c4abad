"""Standard output for answers and standard error for messages, with colors and a status line."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from toolsemble.review.request_view import wrap_text
from toolsemble.runtime.text import escape_line, escape_prose

_STYLES = {"name": "1;36", "dim": "2", "good": "32", "bad": "31", "warning": "33", "bold": "1"}
_WIDTH = 80
_CLEAR = "\r\x1b[2K"


class OutputStream:
    r"""An output stream, with colors if it is a terminal that supports them.

    >>> OutputStream(sys.stdout, colors=True).paint("bad", "no")
    '\x1b[31mno\x1b[0m'
    """

    def __init__(self, stream: TextIO, *, colors: bool | None = None) -> None:
        self._stream = stream
        self.is_terminal = _is_terminal(stream)
        """Whether it is a terminal."""
        self.can_overwrite = self.is_terminal and os.environ.get("TERM", "dumb") != "dumb"
        """Whether a line can be overwritten."""
        self.colors = _use_colors(can_overwrite=self.can_overwrite) if colors is None else colors
        """Whether to use colors."""

    @property
    def width(self) -> int:
        """The number of columns."""
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _WIDTH
        except (OSError, ValueError):
            return _WIDTH

    def paint(self, style: str, text: str) -> str:
        """Return a text with the escape codes of a style."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.colors and text else text

    def write(self, text: str) -> None:
        """Write and flush a text; characters that the encoding does not have are escaped."""
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        self._stream.flush()


class Screen:
    """Both streams, and a status line that is cleared before each write; thread-safe.

    >>> screen = Screen(colors=False)
    >>> screen.answer("Rome")
    Rome
    """

    def __init__(self, *, colors: bool | None = None) -> None:
        """Use the standard streams of the process.

        :param colors: whether to use colors; None: if the stream is a terminal and NO_COLOR is not set
        """
        self.out = OutputStream(sys.stdout, colors=colors)
        self.err = OutputStream(sys.stderr, colors=colors)
        self._lock = threading.RLock()
        self._status = ""
        self._open = False
        self._paused = 0
        self._held: list[tuple[OutputStream, str]] = []

    def answer(self, text: str, *, end: str = "\n") -> None:
        """Write a part of the answer to standard output, with control characters escaped."""
        self._write_to(self.out, f"{escape_prose(text)}{end}")

    def write(self, text: str) -> None:
        """Write a line to standard output, without escaping."""
        self._write_to(self.out, f"{text}\n")

    def report(self, text: str) -> None:
        """Write a line to standard error, without escaping, after ending an unfinished line of the answer."""
        with self._lock:
            self.close_line()
            self._write_to(self.err, f"{text}\n")

    def close_line(self) -> None:
        """End an unfinished line of the answer."""
        with self._lock:
            if self._open:
                self._write_to(self.out, "\n")

    def show_status(self, text: str) -> None:
        """Show a status line, which replaces the previous one; do nothing without a terminal."""
        with self._lock:
            if not self.err.can_overwrite or self._paused or self._open or text == self._status:
                return
            line = next(wrap_text(escape_line(text), max(self.err.width - 1, 1)))
            self.err.write(_CLEAR + self.err.paint("dim", line))
            self._status = text

    def clear_status(self) -> None:
        """Clear the status line."""
        with self._lock:
            if self._status:
                self.err.write(_CLEAR)
                self._status = ""

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """Leave the terminal to other code; writes are held back until the end."""
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
                for stream, text in held:
                    self._write_to(stream, text)

    def _write_to(self, stream: OutputStream, text: str) -> None:
        with self._lock:
            if self._paused:
                self._held.append((stream, text))
                return
            self.clear_status()
            stream.write(text)
            if stream is self.out and text:
                self._open = stream.is_terminal and not text.endswith("\n")


def format_progress(fraction: object, message: object) -> str:
    """Return the progress of a call on one line; ignore a fraction or a message of the wrong type.

    >>> format_progress(0.4, "page 4 of 10"), format_progress("odd", None)
    ('40% page 4 of 10', '')
    """
    part = f"{fraction:.0%} " if isinstance(fraction, (int, float)) else ""
    return f"{part}{escape_line(message) if isinstance(message, str) else ''}".rstrip()


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # the stream is closed
        return False


def _use_colors(*, can_overwrite: bool) -> bool:
    """Return whether to use colors; environment variables override the type of the stream."""
    if os.environ.get("NO_COLOR"):
        return False
    return can_overwrite or bool(os.environ.get("FORCE_COLOR"))
