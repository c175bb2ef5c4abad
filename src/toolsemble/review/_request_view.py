"""A review request as lines of a terminal, safe to show whatever a model wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toolsemble._runtime.terminal import count_cells, wrap_text
from toolsemble._runtime.text import SHOWN, escape_invisible, escape_lines
from toolsemble.review._request import ReviewRequest, ReviewTiming

Paint = Callable[[str, str], str]
"""Takes a style and a text; returns the styled text."""

_NAME_SHOWN = 40
_NO_MEMORY = "default"  # of a program that has one conversation only
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
    """The text, escaped; its line breaks are ours."""
    style: str = ""
    """The name of a style; "" for none."""

    def lines(self, column: int, width: int, paint: Paint) -> Iterator[str]:
        """Yield the row in lines of a width, the text beside the label or, for a long label, below it."""
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
            # A name with spaces could look like a name with a value.
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
        """Return a value as JSON, so that a backslash of the model is not mistaken for an escape."""
        return self._cut(value, form=_json) if isinstance(value, str) else self._cut(_json(value))

    def _cut(self, text: str, limit: int = SHOWN, form: Callable[[str], str] = str) -> str:
        if self._whole or len(text) <= limit:
            return escape_invisible(form(text))
        self.cut = True
        return f"{escape_invisible(form(text[:limit]))}... ({limit} of {len(text):,} characters)"


def add_margin(text: str, width: int, paint: Paint) -> str:
    """Return a text as lines with a margin, so that they cannot be mistaken for our own.

    >>> print(add_margin("first", 80, lambda style, text: text), end="")
    | first
    """
    return "".join(f"{paint('dim', _MARGIN)}{piece}\n" for piece in _wrap_lines(text, width - len(_MARGIN)))


def _wrap_lines(text: str, width: int) -> Iterator[str]:
    for line in text.split("\n"):
        yield from wrap_text(line, max(width, _NARROW))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
