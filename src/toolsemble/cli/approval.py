"""Who approves calls, by what ``--approve`` says."""

from __future__ import annotations

import sys

from toolsemble.cli.screen import Screen
from toolsemble.cli.visible import one_line
from toolsemble.review import (
    AutoApprove,
    AutoReject,
    ConsoleReview,
    ExitEarly,
    RememberReview,
    ReviewDecision,
    ReviewHandler,
)
from toolsemble.review.request import ReviewRequest
from toolsemble.review.terminal import find_terminal

_NAME = 200
_NOBODY = "standard input is not a terminal, so nobody can be asked"
_INSTEAD = "run it in a terminal, or with --approve always"


class AtTerminal:
    """Asks the person at the terminal, who then has it alone; refuses where there is none."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        shown = screen.out if screen.out.is_terminal else screen.err
        self._console = ConsoleReview(colors=shown.colors)

    def review(self, request: ReviewRequest) -> ReviewDecision:
        """Give the person's decision."""
        if find_terminal(sys.stdin) is None:
            name = one_line(request.tool_name, _NAME)
            self._screen.tell(f"toolsemble: '{name}' is refused: {_NOBODY}; {_INSTEAD}")
            return ExitEarly(_NOBODY)
        with self._screen.lent():
            return self._console.review(request)


def reviewer(approve: str, screen: Screen) -> ReviewHandler:
    """Give who approves calls that need it.

    >>> reviewer("never", Screen())
    AutoReject(reason='nothing that needs approval may run (--approve never)')
    """
    if approve == "always":
        return AutoApprove()
    if approve == "never":
        return AutoReject("nothing that needs approval may run (--approve never)")
    return RememberReview(AtTerminal(screen))
