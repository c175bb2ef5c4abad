"""Standard output for answers, standard error for everything else: messages, tools' prints, and questions."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from typing import Any

from toolsemble import review as reviewers
from toolsemble._runtime.terminal import NO_TERMINAL, OutputStream, find_terminal, wrap_text
from toolsemble._runtime.text import escape_line, escape_prose
from toolsemble.review._request import Reviewer, ReviewRequest

_CLEAR = "\r\x1b[2K"


class Screen:
    """Both streams, and a status line that is cleared before each write; thread-safe.

    >>> screen = Screen(colors=False)
    >>> screen.answer("Rome")
    Rome
    """

    def __init__(self, *, colors: bool | None = None) -> None:
        """Use the process's standard streams.

        :param colors: whether to use colors; None: if the stream is a terminal and NO_COLOR is unset
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

    @contextmanager
    def show_log(self, name: str, *, style: str = "") -> Iterator[None]:
        """Write the informational records of a logger to standard error while the block runs."""
        logger, handler = logging.getLogger(name), _ScreenHandler(self, style)
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.setLevel(level)
            logger.removeHandler(handler)

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
        """Release the terminal to other code; buffer writes until the end."""
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
    """Return a call's progress as one line; ignore a fraction or a message of the wrong type.

    >>> format_progress(0.4, "page 4 of 10"), format_progress("odd", None)
    ('40% page 4 of 10', '')
    """
    part = f"{fraction:.0%} " if isinstance(fraction, (int, float)) else ""
    return f"{part}{escape_line(message) if isinstance(message, str) else ''}".rstrip()


def redirect_prints() -> AbstractContextManager[Any]:
    """Return a context in which prints go to standard error, unless standard output is a terminal.

    Screens created earlier keep their stream.

    >>> with redirect_prints():
    ...     print("loaded")
    """
    # In a terminal it does no harm, and a console reviewer needs the original stream.
    return nullcontext() if sys.stdout.isatty() else redirect_stdout(sys.stderr)


_MAX_NAME = 200
_ADVICE = "run it in a terminal, or with --approve always"


class TerminalReview(Reviewer):
    """A review handler that asks at the terminal, and rejects if there is none."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        shown = screen.out if screen.out.is_terminal else screen.err
        self._console = reviewers.ConsoleReview(colors=shown.colors)

    def review(self, request: ReviewRequest) -> reviewers.ReviewDecision:
        """Return the person's decision."""
        if find_terminal(sys.stdin) is None:
            name = escape_line(request.tool_name, _MAX_NAME)
            self._screen.report(f"toolsemble: '{name}' is rejected: {NO_TERMINAL}; {_ADVICE}")
            return reviewers.ExitEarly(NO_TERMINAL)
        with self._screen.suspend():
            return self._console.review(request)


def make_reviewer(approve: str, screen: Screen) -> reviewers.ReviewHandler:
    """Return the review handler for a value of ``--approve``.

    >>> make_reviewer("never", Screen())
    AutoReject(reason='calls that need approval are rejected (--approve never)')
    """
    if approve == "always":
        return reviewers.AutoApprove()
    if approve == "never":
        return reviewers.AutoReject("calls that need approval are rejected (--approve never)")
    return reviewers.RememberReview(TerminalReview(screen))


class _ScreenHandler(logging.Handler):
    """A logging handler that writes each record as a line."""

    def __init__(self, screen: Screen, style: str) -> None:
        super().__init__(logging.INFO)
        self._screen = screen
        self._style = style

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        line = escape_line(record.getMessage())
        self._screen.report(self._screen.err.paint(self._style, line) if self._style else line)
