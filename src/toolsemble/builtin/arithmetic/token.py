"""The words of an expression."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn
from unicodedata import category

from toolsemble.errors import ToolExecutionError
from toolsemble.runtime.text import preview

# One character for one character, so that positions stay those of the text as it was sent.
_SPELLINGS = str.maketrans(
    {chr(code + 0xFEE0): chr(code) for code in range(0x21, 0x7F)}  # the full-width forms of ASCII
    | dict.fromkeys("\N{MULTIPLICATION SIGN}·⋅∙✕", "*")
    | dict.fromkeys("÷\N{DIVISION SLASH}\N{FRACTION SLASH}", "/")
    | dict.fromkeys("\N{MINUS SIGN}\N{EN DASH}\N{EM DASH}", "-")
)
_DIGITS = r"[0-9]+(?:_[0-9]+)*+"
_EXPONENT = r"(?:[eE][+-]?[0-9]+)?"
_TOKEN = re.compile(
    rf"(?P<number>(?:{_DIGITS}(?:\.[0-9]*)?|\.[0-9]+){_EXPONENT})"
    r"|(?P<name>[A-Za-z][A-Za-z0-9]*|[πτ])"
    r"|(?P<sign>\*\*|//|[-+*/%^(),\[\]])"
)
_GROUPED = re.compile(rf"[0-9]{{1,3}}(?:,[0-9]{{3}})++(?!,?[0-9_])(?:\.[0-9]*)?{_EXPONENT}")
_ZEROS = re.compile(r"[0-9]{1,3},0[0-9]{2}(?![0-9])")
_SPACES = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class Token:
    """A number, a name, a sign, or the end."""

    kind: str
    """``number``, ``name``, ``sign`` or ``end``."""
    text: str
    """What stands there; names in lower case, numbers without separators."""
    start: int
    """Where it begins in the text, from 0."""
    end: int
    """Where it ends in the text."""


def refuse(what: str, place: int) -> NoReturn:
    """Refuse an expression, with the position counted from 0.

    >>> refuse("a number is missing", 3)
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolExecutionError: Invalid expression: a number is missing at position 3
    """
    raise ToolExecutionError(f"Invalid expression: {what} at position {place}")


def tokens(text: str) -> Iterator[Token]:
    """Give the words of an expression and an end; refuse what is none.

    A comma groups digits, except among the arguments of a function and in a list, where it separates them.

    >>> [token.text for token in tokens("max(1,200) + 1,200")]
    ['max', '(', '1', ',', '200', ')', '+', '1200', '']
    """
    text = text.translate(_SPELLINGS)
    among_arguments: list[bool] = []  # for each parenthesis or bracket that is open
    named = False
    place = _after_spaces(text, 0)
    while place < len(text):
        token = _token_at(text, place, separates=among_arguments[-1:] == [True])
        if token.text in {"(", "["}:
            among_arguments.append(named or token.text == "[")
        elif token.text in {")", "]"} and among_arguments:
            among_arguments.pop()
        named = token.kind == "name"
        yield token
        place = _after_spaces(text, token.end)
    yield Token("end", "", len(text), len(text))


def _after_spaces(text: str, place: int) -> int:
    found = _SPACES.match(text, place)
    return found.end() if found else place


def _token_at(text: str, place: int, *, separates: bool) -> Token:
    if separates and (found := _ZEROS.match(text, place)):
        # Two arguments would be 1 and 0, which nobody means.
        number, _, group = found[0].partition(",")
        refuse(f"{found[0]!r} can be one number or two; write {number}{group} or {number}, {group}", place)
    found = (None if separates else _GROUPED.match(text, place)) or _TOKEN.match(text, place)
    if found is None:
        refuse(f"unexpected {preview(text[place], 1)!r}{_hint(text[place])}", place)
    kind = found.lastgroup or "number"
    spelled = found[0].replace(",", "") if kind == "number" else found[0].lower()
    return Token(kind, spelled, place, found.end())


def _hint(character: str) -> str:
    if character == "!":
        return "; write factorial(5) for 5!,"
    return "; write numbers without a currency," if category(character) == "Sc" else ""
