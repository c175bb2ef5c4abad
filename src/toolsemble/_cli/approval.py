"""The review handlers for the values of ``--approve``."""

from __future__ import annotations

import sys

from toolsemble._cli.screen import Screen
from toolsemble._runtime.terminal import NO_TERMINAL, find_terminal
from toolsemble._runtime.text import escape_line
from toolsemble.review import (
    AutoApprove,
    AutoReject,
    ConsoleReview,
    ExitEarly,
    RememberReview,
    ReviewDecision,
    ReviewHandler,
)
from toolsemble.review._request import ReviewRequest

_MAX_NAME = 200
_ADVICE = "run it in a terminal, or with --approve always"


class TerminalReview:
    """A review handler that asks at the terminal, and rejects if there is none."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        shown = screen.out if screen.out.is_terminal else screen.err
        self._console = ConsoleReview(colors=shown.colors)

    def review(self, request: ReviewRequest) -> ReviewDecision:
        """Return the person's decision."""
        if find_terminal(sys.stdin) is None:
            name = escape_line(request.tool_name, _MAX_NAME)
            self._screen.report(f"toolsemble: '{name}' is rejected: {NO_TERMINAL}; {_ADVICE}")
            return ExitEarly(NO_TERMINAL)
        with self._screen.suspend():
            return self._console.review(request)


def make_reviewer(approve: str, screen: Screen) -> ReviewHandler:
    """Return the review handler for a value of ``--approve``.

    >>> make_reviewer("never", Screen())
    AutoReject(reason='nothing that needs approval may run (--approve never)')
    """
    if approve == "always":
        return AutoApprove()
    if approve == "never":
        return AutoReject("nothing that needs approval may run (--approve never)")
    return RememberReview(TerminalReview(screen))
