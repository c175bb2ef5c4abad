"""A reviewer that asks at the terminal."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TextIO

from toolsemble._runtime.terminal import NO_TERMINAL, TERMINAL_LOCK, AbandonedError, Terminal, find_terminal
from toolsemble._runtime.text import escape_invisible, escape_lines, preview
from toolsemble.review._audit import LOGGER
from toolsemble.review._decision import Continue, Edit, ExitEarly, ReviewDecision
from toolsemble.review._editor import edit_text, find_editor
from toolsemble.review._field_editor import FieldEditor, check_without_schema, read_revised
from toolsemble.review._question import can_check_edits, check_edit, is_abandoned
from toolsemble.review._request import ReviewRequest
from toolsemble.review._request_view import RequestView, add_margin
from toolsemble.review._terms import ReviewTiming

_EMPTY_LINES = 5
# A program that types forever must not be asked forever, if there is no timeout.
_UNCLEAR_ANSWERS = 100
_ANSWER_SHOWN = 40
_LATE = 1.0


class ConsoleReview:
    """A reviewer that asks the person at the terminal: ``[c]ontinue  [e]dit  [x] reject  (y = c, n = x)``.

    An answer that is not understood is asked again. Arguments
    are edited in the editor of ``VISUAL`` or ``EDITOR``, or else one at a time, and are checked at once.

    Questions are shown one at a time, however many calls, toolboxes and handlers ask. What is typed before a question
    appears is discarded. Without a terminal, every call is rejected at once.

    :param input: the input stream; standard input by default
    :param output: the output stream; standard output or standard error by default, whichever is a terminal
    :param colors: whether to use colors; by default if the terminal has them and ``NO_COLOR`` is not set

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
        """Return the decision of the person; anything unclear is an :class:`ExitEarly`."""
        source = sys.stdin if self._input is None else self._input
        target = self._target()
        if find_terminal(source) is None:
            return self._refuse(request, NO_TERMINAL)
        if target is None:
            return self._refuse(request, "there is no output to show the question on, so nobody can be asked")

        def abandoned() -> bool:
            return is_abandoned() or (request.deadline is not None and time.time() > request.deadline + _LATE)

        try:
            with TERMINAL_LOCK.acquire(abandoned):
                terminal = Terminal(source, target, abandoned, colors=self._colors)
                return _Dialog(terminal, request).run(len(TERMINAL_LOCK) - 1)
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

    def _refuse(self, request: ReviewRequest, reason: str) -> ReviewDecision:
        tool = escape_invisible(request.tool_name)
        message = f"'{tool}' is refused: {reason}; run the program in a terminal, or use another handler"
        LOGGER.warning("%s", message)
        target = sys.stderr if self._output is None else self._output
        with suppress(AttributeError, OSError, ValueError):  # there may be no usable stream
            target.write(f"toolsemble: {message}\n")
        return ExitEarly(reason)


class _Dialog:
    """The dialog about one request."""

    def __init__(self, terminal: Terminal, request: ReviewRequest) -> None:
        self._terminal = terminal
        self._request = request

    def run(self, others: int) -> ReviewDecision:
        """Return the decision; leave the cursor on a line of its own."""
        view = RequestView(self._request)
        self._terminal.discard()
        self._show(view, f"  ({others} more waiting)" if others else "")
        try:
            return self._decision(self._choices(cut=view.cut))
        except AbandonedError:
            self._terminal.write("\nNobody waits for this answer any more.\n")
            raise
        except (EOFError, KeyboardInterrupt):
            self._terminal.write("\n")
            raise

    def _decision(self, choices: str) -> ReviewDecision:
        empty = unclear = 0
        while empty < _EMPTY_LINES and unclear < _UNCLEAR_ANSWERS:
            self._terminal.write(choices)
            answer = self._terminal.read_line(lambda: f"{self._remaining_time()}> ", live=True).strip()
            act = self._actions().get(answer.lower())
            if act is not None and (decision := act()) is not None:
                return decision
            empty += not answer
            if answer and act is None:
                unclear += 1
                self._say(f"'{preview(answer, _ANSWER_SHOWN)}' was not understood. Answer c or y, e, x or n.")
        return ExitEarly("no answer was understood" if unclear else "no answer was given")

    def _actions(self) -> Mapping[str, Callable[[], ReviewDecision | None]]:
        """Return what each answer does: it returns the decision, or None to ask again."""
        actions: dict[str, Callable[[], ReviewDecision | None]] = {
            **dict.fromkeys(("c", "continue", "y", "yes"), Continue),
            **dict.fromkeys(("e", "edit"), self._edit),
            **dict.fromkeys(("x", "reject", "n", "no", "exit", "exit early"), lambda: ExitEarly(self._reason())),
            **dict.fromkeys(("v", "view", "view all"), self._show_all),
        }
        if "tool" in self._request.scopes:
            actions |= dict.fromkeys(("a", "always"), lambda: Continue(always="tool"))
        return actions

    def _show_all(self) -> None:
        self._show(RequestView(self._request, whole=True))

    def _reason(self) -> str:
        # The person has rejected the call: a timeout while the reason is typed must not override that.
        self._terminal.abandoned = self._nearly_over
        try:
            return escape_invisible(
                self._terminal.read_line(lambda: f"{self._remaining_time()}Reason (may be empty): ").strip()
            )
        except (EOFError, AbandonedError):
            self._terminal.write("\n")
            return ""

    def _nearly_over(self) -> bool:
        deadline = self._request.deadline
        return is_abandoned() or (deadline is not None and time.time() > deadline - _LATE)

    def _edit(self) -> Edit | None:
        """Return the edit; None to ask again, if nothing was changed or the edit does not fit."""
        command, text = find_editor(), self._request.editable_text
        try:
            revised = edit_text(command, text, self._file, self._terminal) if command else self._edit_here(text)
        except (OSError, ValueError) as problem:
            self._say(f"The editor '{command}' gave no text: {problem}. Check VISUAL and EDITOR.")
            return None
        if revised == text:
            self._say("Nothing was changed.")
            return None
        if misfit := check_edit(revised):
            self._say(f"The edit does not fit: {misfit}")
            return None
        return Edit(revised)

    def _edit_here(self, text: str) -> str:
        """Return the text after an edit without an editor: field by field, or as one line."""
        request = self._request
        if not self._has_fields:
            return self._edit_inline(text)
        check = check_edit if can_check_edits() else check_without_schema(request.arguments)
        revised = FieldEditor(self._terminal, self._remaining_time, check).edit(request.arguments)
        return text if json.loads(revised) == json.loads(text) else revised

    @property
    def _has_fields(self) -> bool:
        request = self._request
        is_whole = request.timing is not ReviewTiming.DURING_EXECUTION and not request.editable
        return is_whole and isinstance(request.arguments, Mapping) and bool(request.arguments)

    @property
    def _file(self) -> str:
        request = self._request
        is_json = request.editable_text == request.arguments_text and not isinstance(request.arguments, str)
        return "edit.json" if is_json else "edit.txt"

    def _edit_inline(self, text: str) -> str:
        """Return the line that replaces the text; the text itself for no change."""
        self._terminal.write(add_margin(escape_lines(text), self._terminal.output.width, self._terminal.output.paint))
        prompt = "Instead, in one line (empty for no change): "
        line = read_revised(self._terminal, lambda: f"{self._remaining_time()}{prompt}", text)
        if not line or self._terminal.is_whole(line):
            return line or text
        self._say("That is more than one line can hold. Set EDITOR to edit longer texts.")
        return text

    def _say(self, text: str) -> None:
        self._terminal.write(f"{self._terminal.output.paint('note', escape_invisible(text))}\n")

    def _show(self, view: RequestView, aside: str = "") -> None:
        self._terminal.write(f"\n{view.text(self._terminal.output.width, self._terminal.output.paint, aside)}")

    def _choices(self, *, cut: bool) -> str:
        choices = ["[c]ontinue", "[e]dit", "[x] reject"]
        if cut:
            choices.append("[v]iew all")
        if "tool" in self._request.scopes:
            choices.append("[a]lways this tool")
        choices.append("(y = c, n = x)")
        return f"{self._terminal.output.paint('bold', '  '.join(choices))}\n"

    def _remaining_time(self) -> str:
        """Return the remaining time, of constant width; "" without a deadline."""
        deadline, timeout = self._request.deadline, self._request.timeout
        if deadline is None or timeout is None or not math.isfinite(timeout):
            return ""
        left = _format_minutes(max(0.0, deadline - time.time()))
        return f"({left.rjust(len(_format_minutes(timeout)))}) "


def _format_minutes(seconds: float) -> str:
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
