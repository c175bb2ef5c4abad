"""A reviewer that asks at the terminal, and edits there or in the user's editor."""

from __future__ import annotations

import atexit
import json
import math
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

from toolsemble._runtime.terminal import (
    NO_TERMINAL,
    TERMINAL_LOCK,
    AbandonedError,
    Terminal,
    count_cells,
    find_terminal,
    wrap_text,
)
from toolsemble._runtime.text import HIDDEN, SHOWN, escape_invisible, escape_lines, preview
from toolsemble.review._asking.open_question import can_check_edits, check_edit, is_abandoned
from toolsemble.review._request import LOGGER, Continue, Edit, ExitEarly, ReviewDecision, Reviewer, ReviewRequest
from toolsemble.review._terms import ReviewTiming

Paint = Callable[[str, str], str]
"""Takes a style and a text; returns the styled text."""

_NAME_SHOWN = 40
_NO_MEMORY = "default"  # of a program with a single conversation
_ROWS = 20
_LABELS = 20
_NARROW = 10
_TITLES = {
    ReviewTiming.BEFORE_EXECUTION: "May this call run?",
    ReviewTiming.DURING_EXECUTION: "A tool asks in the middle of its work:",
    ReviewTiming.AFTER_EXECUTION: "Is what came of this call all right?",
}
_MARGIN = "| "
_PLAIN = re.compile(r"[\w.$-]+")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a request, ready to be shown."""

    label: str
    """The label; may be empty."""
    text: str
    """The escaped text; line breaks are not from the request."""
    style: str = ""
    """The name of a style; "" for none."""

    def lines(self, column: int, width: int, paint: Paint) -> Iterator[str]:
        """Yield the row as wrapped lines, the text beside the label or, for a long label, below it."""
        label = self.label
        if count_cells(label) > column:
            yield from (paint("dim", f"  {piece}") for piece in _wrap_lines(label.lstrip(), width - 2))
            label = ""
        for piece in _wrap_lines(self.text, width - column - 2):
            yield f"{paint('dim', label + ' ' * (column - count_cells(label) + 2))}{paint(self.style, piece)}"
            label = ""


class RequestView:
    r"""A request as rows, with texts truncated to 200 characters each or in full.

    >>> view = RequestView(ReviewRequest("Deletes a file", "delete", {"path": "a\nb"}, call_id="c1"))
    >>> print(view.text(40, lambda style, text: text), end="")
    | May this call run?
    | Tool       delete
    | About      Deletes a file
    | Agent      unknown
    | Call       c1
    | Arguments
    |   path     "a\nb"
    """

    def __init__(self, request: ReviewRequest, *, whole: bool = False) -> None:
        self._whole = whole
        self.cut = False
        """Whether something was truncated."""
        self._title = _TITLES[request.timing]
        self._rows = [
            Row("Tool", self._one_line(request.tool_name), "bold"),
            *self._facts(request),
            *self._arguments(request.arguments),
            *self._repairs(request.repairs),
        ]
        if request.prompt:
            self._rows.append(Row("Note", self._one_line(request.prompt), "note"))

    def text(self, width: int, paint: Paint, aside: str = "") -> str:
        """Return all lines, each with a margin that no text can overwrite."""
        inner = width - len(_MARGIN)
        column = min(max(count_cells(row.label) for row in self._rows), _LABELS)
        lines = [paint("title", self._title) + aside]
        for row in self._rows:
            lines += row.lines(column, inner, paint)
        return "".join(f"{paint('dim', _MARGIN)}{line}".rstrip(" ") + "\n" for line in lines)

    def _facts(self, request: ReviewRequest) -> Iterator[Row]:
        facts = {
            "About": request.description,
            "Agent": request.agent_role,
            "Memory": "" if request.memory_id == _NO_MEMORY else request.memory_id,
            "Run": request.run_id,
            "Call": request.call_id,
            "Needs": f"an answer by role {request.required_role}" if request.required_role else "",
            "Holds": "for this call with these arguments, in the rest of the run"
            if "arguments" in request.scopes
            else "",
        }
        return (Row(label, self._one_line(text)) for label, text in facts.items() if text)

    def _arguments(self, arguments: Any) -> Iterator[Row]:
        if not isinstance(arguments, Mapping):
            yield Row("Input", self._argument(arguments))
            return
        yield Row("Arguments", "" if arguments else "none")
        for number, (name, value) in enumerate(arguments.items()):
            if self._is_full(number):
                yield Row("", f"... and {len(arguments) - number:,} more", "note")
                return
            # A name with spaces could be mistaken for a name with a value.
            form = str if _PLAIN.fullmatch(name := str(name)) else _json
            yield Row(f"  {self._cut(name, _NAME_SHOWN, form)}", self._argument(value))

    def _repairs(self, repairs: tuple[Mapping[str, Any], ...]) -> Iterator[Row]:
        for number, repair in enumerate(repairs):
            if self._is_full(number):
                yield Row("", f"... and {len(repairs) - number:,} more repairs", "note")
                return
            place = self._cut(f"{repair.get('step')} at {repair.get('path')}")
            change = f"{self._value(repair.get('from'))} -> {self._value(repair.get('to'))}"
            yield Row("repaired:", f"{place}: {change}", "warning")

    def _is_full(self, number: int) -> bool:
        full = not self._whole and number == _ROWS
        self.cut = self.cut or full
        return full

    def _one_line(self, text: str) -> str:
        return self._cut(" ".join(text.split()))

    def _argument(self, value: Any) -> str:
        if self._whole and isinstance(value, str) and "\n" in value:
            return escape_lines(value)
        return self._value(value)

    def _value(self, value: Any) -> str:
        """Return a value as JSON, so that a backslash from the model is not mistaken for an escape."""
        return self._cut(value, form=_json) if isinstance(value, str) else self._cut(_json(value))

    def _cut(self, text: str, limit: int = SHOWN, form: Callable[[str], str] = str) -> str:
        if self._whole or len(text) <= limit:
            return escape_invisible(form(text))
        self.cut = True
        return f"{escape_invisible(form(text[:limit]))}... ({limit} of {len(text):,} characters)"


def add_margin(text: str, width: int, paint: Paint) -> str:
    """Return a text as lines with a margin, so that they cannot be mistaken for prompts.

    >>> print(add_margin("first", 80, lambda style, text: text), end="")
    | first
    """
    return "".join(f"{paint('dim', _MARGIN)}{piece}\n" for piece in _wrap_lines(text, width - len(_MARGIN)))


def _wrap_lines(text: str, width: int) -> Iterator[str]:
    for line in text.split("\n"):
        yield from wrap_text(line, max(width, _NARROW))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


_POLL = 0.02
_GRACE = 2.0


def find_editor() -> str:
    """Return the editor command from VISUAL or EDITOR; "" for none."""
    return (os.environ.get("VISUAL") or os.environ.get("EDITOR") or "").strip()


def edit_text(command: str, text: str, name: str, terminal: Terminal) -> str:
    """Edit a text in a private file with the editor, and return it; raise OSError or ValueError on failure."""
    with TemporaryDirectory(prefix="toolsemble-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, name)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        with terminal.lend():
            _run([*shlex.split(command, posix=os.name != "nt"), str(path)], terminal)
        revised = path.read_bytes().decode("utf-8", "surrogatepass")
    # Editors add a newline at the end.
    return revised.removesuffix("\n") if not text.endswith("\n") else revised


def _run(command: list[str], terminal: Terminal) -> None:
    """Run an editor until it exits; raise AbandonedError when the request is abandoned."""
    source, target = terminal.streams
    with subprocess.Popen(command, stdin=source, stdout=target) as process:  # noqa: S603 - the user's own setting
        atexit.register(process.terminate)  # the editor must not outlive the program
        try:
            while (status := _wait(process, _POLL)) is None:
                if terminal.abandoned():
                    raise AbandonedError
        finally:
            process.terminate()
            if _wait(process, _GRACE) is None:
                process.kill()
            atexit.unregister(process.terminate)  # last: this thread may be interrupted anywhere before
    if status:
        raise ChildProcessError(f"it ended with status {status}")


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Return the exit status of a process; None if it is still running."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


Check = Callable[[str], str]
"""Takes all arguments as JSON text; returns what is wrong with them, or ""."""

_MAX_SHOWN = 500
_INTRODUCTION = 'An empty line keeps a value. Lists and objects are JSON; "" is the empty text.'
_AGAIN = "Enter another value; or the same one again to keep it until all are entered, if it depends on another one."
_TOO_LONG = "That is more than one line can hold. Set EDITOR to edit longer texts."


class FieldEditor:
    """A dialog that asks for each argument; an empty line keeps its value.

    :param terminal: the terminal
    :param prefix: returns the start of each prompt
    :param check: checks all arguments whenever one of them is entered
    """

    def __init__(self, terminal: Terminal, prefix: Callable[[], str], check: Check) -> None:
        self._terminal = terminal
        self._prefix = prefix
        self._check = check

    def edit(self, arguments: Mapping[str, Any]) -> str:
        """Ask for each argument, and return the arguments as JSON text."""
        _quote(self._terminal, _INTRODUCTION)
        edited = dict(arguments)
        for name in arguments:
            edited[name] = self._ask(name, edited)
        return _to_json(edited)

    def _ask(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Return the value of one argument; ask again if it is not valid."""
        last = ""
        self._show_value(name, arguments[name])
        while True:
            line = read_revised(self._terminal, lambda: f"{self._prefix()}Instead (empty keeps it): ", arguments[name])
            if not line:
                return arguments[name]
            if not self._terminal.is_whole(line):
                _say(self._terminal, _TOO_LONG)
                continue
            value, problem = self._read(name, line, arguments)
            if not problem or line == last:
                return value
            last = line
            _say(self._terminal, f"{problem}. {_AGAIN}")

    def _read(self, name: str, line: str, arguments: Mapping[str, Any]) -> tuple[Any, str]:
        """Return the value of a line, and what is wrong with it, or ""."""
        readings = _readings(line, arguments[name])
        problems = []
        for value in readings:
            problems.append(self._check(_to_json({**arguments, name: value})))
            if not problems[-1]:
                return value, ""
        return readings[0], problems[0]

    def _show_value(self, name: str, value: Any) -> None:
        text = _to_json(value)
        shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}... ({len(text):,} characters)"
        _quote(self._terminal, f"{escape_invisible(name)}: {escape_invisible(shown)}")


def _quote(terminal: Terminal, text: str) -> None:
    """Write a text behind the margin, so that text from a model cannot be mistaken for a prompt."""
    terminal.write(add_margin(text, terminal.output.width, terminal.output.paint))


def _say(terminal: Terminal, text: str) -> None:
    """Write a line about what was typed."""
    terminal.write(f"{terminal.output.paint('note', escape_invisible(text))}\n")


def read_revised(terminal: Terminal, prompt: Callable[[], str], value: Any) -> str:
    """Return the line that replaces a value; input is hidden if the value is a secret or contains one."""
    return terminal.read_secret(prompt) if HIDDEN in _to_json(value) else terminal.read_line(prompt)


def check_without_schema(arguments: Mapping[str, Any]) -> Check:
    """Return a check that compares types with the previous values; for a request without its tool.

    >>> check_without_schema({"boxes": 5})('{"boxes": "x"}')
    'boxes: expected an integer'
    """

    def check(text: str) -> str:
        for name, value in json.loads(text).items():
            expected = _TYPES.get(type(arguments[name]))
            if expected is not None and type(value) not in expected[0]:
                return f"{name}: expected {expected[1]}"
        return ""

    return check


_TYPES: Mapping[type, tuple[tuple[type, ...], str]] = {
    str: ((str,), "a text"),
    bool: ((bool,), "true or false"),
    int: ((int,), "an integer"),
    float: ((int, float), "a number"),
    list: ((list,), "a list as JSON"),
    dict: ((dict,), "an object as JSON"),
}


def _readings(line: str, before: Any) -> list[Any]:
    """Return the possible values of a line, most likely first: as JSON, or as the text itself.

    >>> _readings("5", 7), _readings("5", "7"), _readings("x", 7), _readings('""', "x")
    ([5, '5'], ['5', 5], ['x'], [''])
    """
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        return [line]
    if parsed == "":
        return [""]
    return [line, parsed] if isinstance(before, str) else [parsed, line]


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


_EMPTY_LINES = 5
# A program that types forever must not be asked forever, if there is no timeout.
_UNCLEAR_ANSWERS = 100
_ANSWER_SHOWN = 40
_LATE = 1.0


class ConsoleReview(Reviewer):
    """A reviewer that asks the person at the terminal: ``[c]ontinue  [e]dit  [x] reject  (y = c, n = x)``.

    An unclear answer is asked for again. Arguments are edited in the editor of ``VISUAL`` or ``EDITOR``, or else one at
    a time, and are checked at once.

    Questions are shown one at a time, across all calls, toolboxes and handlers. Input typed before a question appears
    is discarded. Without a terminal, every call is rejected at once.

    :param input: the input stream; standard input by default
    :param output: the output stream; standard output or standard error by default, whichever is a terminal
    :param colors: whether to use colors; by default if the terminal supports them and ``NO_COLOR`` is not set

    >>> import io
    >>> reviewer = ConsoleReview(input=io.StringIO("c"), output=io.StringIO())
    >>> reviewer.review(ReviewRequest("Deletes a file", "delete", "old.log")).reason
    'standard input is not a terminal, so no reviewer can be asked'
    """

    def __init__(
        self, input: TextIO | None = None, output: TextIO | None = None, *, colors: bool | None = None
    ) -> None:
        self._input = input
        self._output = output
        self._colors = colors

    def review(self, request: ReviewRequest) -> ReviewDecision:
        """Return the person's decision; anything unclear is an :class:`ExitEarly`."""
        source = sys.stdin if self._input is None else self._input
        target = self._target()
        if find_terminal(source) is None:
            return self._refuse(request, NO_TERMINAL)
        if target is None:
            return self._refuse(request, "there is no output stream to show the question on")

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
            self._terminal.write("\nThis request has expired.\n")
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
                _say(
                    self._terminal, f"'{preview(answer, _ANSWER_SHOWN)}' was not understood. Answer c or y, e, x or n."
                )
        return ExitEarly("no answer was understood" if unclear else "no answer was given")

    def _actions(self) -> Mapping[str, Callable[[], ReviewDecision | None]]:
        """Return the action for each answer: it returns the decision, or None to ask again."""
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
        """Return the edit; None to ask again, if nothing was changed or the edit is not valid."""
        command, text = find_editor(), self._request.editable_text
        try:
            revised = edit_text(command, text, self._file, self._terminal) if command else self._edit_here(text)
        except (OSError, ValueError) as problem:
            _say(self._terminal, f"The editor '{command}' returned no text: {problem}. Check VISUAL and EDITOR.")
            return None
        if revised == text:
            _say(self._terminal, "Nothing was changed.")
            return None
        if misfit := check_edit(revised):
            _say(self._terminal, f"The edit does not fit: {misfit}")
            return None
        return Edit(revised)

    def _edit_here(self, text: str) -> str:
        """Edit a text without an editor, field by field or as one line, and return it."""
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
        """Return the replacement line, or the text itself if unchanged."""
        _quote(self._terminal, escape_lines(text))
        prompt = "Instead, in one line (empty for no change): "
        line = read_revised(self._terminal, lambda: f"{self._remaining_time()}{prompt}", text)
        if not line or self._terminal.is_whole(line):
            return line or text
        _say(self._terminal, _TOO_LONG)
        return text

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
        """Return the remaining time in constant width; "" without a deadline."""
        deadline, timeout = self._request.deadline, self._request.timeout
        if deadline is None or timeout is None or not math.isfinite(timeout):
            return ""
        left = _format_minutes(max(0.0, deadline - time.time()))
        return f"({left.rjust(len(_format_minutes(timeout)))}) "


def _format_minutes(seconds: float) -> str:
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
