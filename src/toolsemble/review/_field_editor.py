"""Editing of arguments at the terminal, one field at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from toolsemble._runtime.terminal import Terminal
from toolsemble._runtime.text import HIDDEN, escape_invisible
from toolsemble.review._request_view import add_margin

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
        """Return the arguments as JSON text, after each of them was kept or changed."""
        self._show(_INTRODUCTION)
        edited = dict(arguments)
        for name in arguments:
            edited[name] = self._ask(name, edited)
        return _to_json(edited)

    def _ask(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Return the value of one argument; ask again if it does not fit."""
        last = ""
        self._show_value(name, arguments[name])
        while True:
            line = read_revised(self._terminal, lambda: f"{self._prefix()}Instead (empty keeps it): ", arguments[name])
            if not line:
                return arguments[name]
            if not self._terminal.is_whole(line):
                self._say(_TOO_LONG)
                continue
            value, problem = self._read(name, line, arguments)
            if not problem or line == last:
                return value
            last = line
            self._say(f"{problem}. {_AGAIN}")

    def _read(self, name: str, line: str, arguments: Mapping[str, Any]) -> tuple[Any, str]:
        """Return the value that a line means, and what is wrong with it, or ""."""
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
        self._show(f"{escape_invisible(name)}: {escape_invisible(shown)}")

    def _show(self, text: str) -> None:
        """Write a text in the margin, where nothing that a model wrote can be mistaken for a prompt."""
        output = self._terminal.output
        self._terminal.write(add_margin(text, output.width, output.paint))

    def _say(self, text: str) -> None:
        self._terminal.write(f"{self._terminal.output.paint('note', escape_invisible(text))}\n")


def read_revised(terminal: Terminal, prompt: Callable[[], str], value: Any) -> str:
    """Return the line that replaces a value; what is typed is not shown if the value is a secret or contains one."""
    return terminal.read_secret(prompt) if HIDDEN in _to_json(value) else terminal.read_line(prompt)


def check_without_schema(arguments: Mapping[str, Any]) -> Check:
    """Return a check that compares the types of values with those before; for a request without its tool.

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
    """Return the values that a line can mean, the most likely one first: as JSON, or as the text itself.

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
