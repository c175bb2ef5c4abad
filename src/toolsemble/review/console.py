"""A reviewer at the terminal."""

from __future__ import annotations

import math
import sys
import time
from contextlib import suppress
from typing import TextIO

from toolsemble.review.audit import LOGGER
from toolsemble.review.decision import Continue, Edit, ExitEarly, ReviewDecision
from toolsemble.review.editor import edit_text, find_editor
from toolsemble.review.question import is_abandoned
from toolsemble.review.request import ReviewRequest
from toolsemble.review.request_view import RequestView, add_margin, escape_lines, escape_text
from toolsemble.review.terminal import TERMINAL_LOCK, AbandonedError, Terminal, find_terminal
from toolsemble.runtime.text import preview

_EMPTY_LINES = 5
_ANSWER_SHOWN = 40
_LATE = 1.0


class ConsoleReview:
    """Asks the person at the terminal: ``[c]ontinue  [e]dit  [x] exit early``.

    One question at a time is on the terminal, however many calls, toolboxes and handlers ask. What is typed before a
    question appears answers nothing. Where nobody sits at a terminal, every call is refused at once.

    :param input: where the person types; standard input by default
    :param output: where the question is shown; standard output or standard error by default, whichever is a terminal
    :param colors: whether it is shown in colors; by default where the terminal has some and ``NO_COLOR`` is not set

    >>> import io
    >>> reviewer = ConsoleReview(input=io.StringIO("c"), output=io.StringIO())
    >>> reviewer.review(ReviewRequest("Deletes a file", "delete", "old.log")).reason
    'standard input is not a terminal, so nobody can be asked'
    """

    def __init__(
        self, input: TextIO | None = None, output: TextIO | None = None, *, colors: bool | None = None
    ) -> None:
        self._input = input
        self._output = output
        self._colors = colors

    def review(self, request: ReviewRequest) -> ReviewDecision:
        """Give the person's decision; everything unclear is an :class:`ExitEarly`."""
        source = sys.stdin if self._input is None else self._input
        target = self._target()
        if find_terminal(source) is None:
            return self._refused(request, "standard input is not a terminal, so nobody can be asked")
        if target is None:
            return self._refused(request, "there is no output to show the question on, so nobody can be asked")

        def abandoned() -> bool:
            return is_abandoned() or (request.deadline is not None and time.time() > request.deadline + _LATE)

        try:
            with TERMINAL_LOCK.acquire(abandoned):
                terminal = Terminal(source, target, abandoned, colors=self._colors)
                return _Dialog(terminal, request).held(len(TERMINAL_LOCK) - 1)
        except AbandonedError:
            return ExitEarly("no answer in time", timed_out=True)
        except EOFError:
            return ExitEarly("the input ended")
        except KeyboardInterrupt:
            return ExitEarly("the prompt was interrupted")

    def _target(self) -> TextIO | None:
        if self._output is not None:
            return self._output
        return sys.stderr if find_terminal(sys.stdout) is None else sys.stdout

    def _refused(self, request: ReviewRequest, reason: str) -> ReviewDecision:
        tool = escape_text(request.tool_name)
        message = f"'{tool}' is refused: {reason}; run the program in a terminal, or use another handler"
        LOGGER.warning("%s", message)
        target = sys.stderr if self._output is None else self._output
        with suppress(AttributeError, OSError, ValueError):  # there may be nowhere to say it
            target.write(f"toolsemble: {message}\n")
        return ExitEarly(reason)


class _Dialog:
    """The conversation about one request, with whoever sits at the terminal."""

    def __init__(self, terminal: Terminal, request: ReviewRequest) -> None:
        self._terminal = terminal
        self._request = request

    def held(self, others: int) -> ReviewDecision:
        """Give the decision that the person comes to; leave the cursor on a line of its own."""
        sheet = RequestView(self._request)
        self._terminal.discard()
        self._show(sheet, f"  ({others} more waiting)" if others else "")
        try:
            return self._decision(self._choices(cut=sheet.cut))
        except AbandonedError:
            self._terminal.write("\nNobody waits for this answer any more.\n")
            raise
        except (EOFError, KeyboardInterrupt):
            self._terminal.write("\n")
            raise

    def _decision(self, choices: str) -> ReviewDecision:
        empty = 0
        while empty < _EMPTY_LINES:
            self._terminal.write(choices)
            answer = self._terminal.read_line(lambda: f"{self._clock()}> ", live=True).strip()
            empty += not answer
            if answer and (decision := self._meant(answer)) is not None:
                return decision
        return ExitEarly("no answer was given")

    def _meant(self, answer: str) -> ReviewDecision | None:
        """Give the decision that an answer stands for; None to ask again."""
        match answer.lower():
            case "c" | "continue":
                return Continue()
            case "e" | "edit":
                return self._edit()
            case "x" | "exit" | "exit early":
                return ExitEarly(self._reason())
            case "v" | "view" | "view all":
                self._show(RequestView(self._request, whole=True))
                return None
            case "a" | "always" if "tool" in self._request.scopes:
                return Continue(always="tool")
        return ExitEarly(f"the answer '{escape_text(preview(answer, _ANSWER_SHOWN))}' was not understood")

    def _reason(self) -> str:
        # Whoever has said no has answered: running out of time over the reason must not make it a matter of timeouts.
        self._terminal.abandoned = self._nearly_over
        try:
            return escape_text(self._terminal.read_line(lambda: f"{self._clock()}Reason (may be empty): ").strip())
        except (EOFError, AbandonedError):
            self._terminal.write("\n")
            return ""

    def _nearly_over(self) -> bool:
        deadline = self._request.deadline
        return is_abandoned() or (deadline is not None and time.time() > deadline - _LATE)

    def _edit(self) -> Edit | None:
        command, text = find_editor(), self._request.editable_text
        try:
            revised = edit_text(command, text, self._file, self._terminal) if command else self._inline(text)
        except (OSError, ValueError) as problem:
            self._say(f"The editor '{command}' gave no text: {problem}. Check VISUAL and EDITOR.")
            return None
        if revised == text:
            self._say("Nothing was changed.")
            return None
        return Edit(revised)

    @property
    def _file(self) -> str:
        request = self._request
        is_json = request.editable_text == request.arguments_text and not isinstance(request.arguments, str)
        return "edit.json" if is_json else "edit.txt"

    def _inline(self, text: str) -> str:
        """Give the line that is to replace the text; the text itself where there is none that can."""
        self._terminal.write(add_margin(escape_lines(text), self._terminal.width, self._terminal.paint))
        line = self._terminal.read_line(lambda: f"{self._clock()}Instead, in one line (empty for no change): ")
        if not line or self._terminal.whole(line):
            return line or text
        self._say("That is more than one line can hold. Set EDITOR to edit longer texts.")
        return text

    def _say(self, text: str) -> None:
        self._terminal.write(f"{self._terminal.paint('note', escape_text(text))}\n")

    def _show(self, sheet: RequestView, aside: str = "") -> None:
        self._terminal.write(f"\n{sheet.text(self._terminal.width, self._terminal.paint, aside)}")

    def _choices(self, *, cut: bool) -> str:
        choices = ["[c]ontinue", "[e]dit", "[x] exit early"]
        if cut:
            choices.append("[v]iew all")
        if "tool" in self._request.scopes:
            choices.append("[a]lways this tool")
        return f"{self._terminal.paint('choices', '  '.join(choices))}\n"

    def _clock(self) -> str:
        """Give the time that is left, always as wide as it was at first; nothing where there is no end."""
        deadline, timeout = self._request.deadline, self._request.timeout
        if deadline is None or timeout is None or not math.isfinite(timeout):
            return ""
        left = _minutes(max(0.0, deadline - time.time()))
        return f"({left.rjust(len(_minutes(timeout)))}) "


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
