"""Parse an expression into the steps that compute it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple, NoReturn, TypeAlias
from unicodedata import category

from toolsemble.builtin.arithmetic.number import Number, negate, parse_number
from toolsemble.builtin.arithmetic.operation import (
    CONSTANTS,
    FUNCTIONS,
    INFIX,
    POSTFIX,
    PREFIX,
    decrease,
    increase,
    percent,
)
from toolsemble.errors import ToolExecutionError
from toolsemble.runtime.text import preview

_MAX_DEPTH = 100
# Each character is replaced by one character, so that positions in error messages are those of the input.
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
_GROUPED_DIGITS = re.compile(rf"[0-9]{{1,3}}(?:,[0-9]{{3}})++(?!,?[0-9_])(?:\.[0-9]*)?{_EXPONENT}")
_ZEROS = re.compile(r"[0-9]{1,3},0[0-9]{2}(?![0-9])")
_SPACES = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class Token:
    """A number, a name, a sign, or the end of the expression."""

    kind: str
    """``number``, ``name``, ``sign`` or ``end``."""
    text: str
    """The text; names in lower case, numbers without separators."""
    start: int
    """The position of its first character, from 0."""
    end: int
    """The position after its last character."""


def _fail(what: str, position: int) -> NoReturn:
    """Raise the error for an expression that cannot be parsed; the position counts from 0.

    >>> _fail("a number is missing", 3)
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolExecutionError: Invalid expression: a number is missing at position 3
    """
    raise ToolExecutionError(f"Invalid expression: {what} at position {position}")


def tokenize(text: str) -> Iterator[Token]:
    """Yield the tokens of an expression, the last of kind ``end``; raise at a character that begins no token.

    A comma groups digits, except in arguments of a function and in a list, where it separates them.

    >>> [token.text for token in tokenize("max(1,200) + 1,200")]
    ['max', '(', '1', ',', '200', ')', '+', '1200', '']
    """
    text = text.translate(_SPELLINGS)
    in_arguments: list[bool] = []  # one for each open parenthesis or bracket
    follows_name = False
    position = _skip_spaces(text, 0)
    while position < len(text):
        token = _match_token(text, position, comma_separates=in_arguments[-1:] == [True])
        if token.text in {"(", "["}:
            in_arguments.append(follows_name or token.text == "[")
        elif token.text in {")", "]"} and in_arguments:
            in_arguments.pop()
        follows_name = token.kind == "name"
        yield token
        position = _skip_spaces(text, token.end)
    yield Token("end", "", len(text), len(text))


def _skip_spaces(text: str, position: int) -> int:
    found = _SPACES.match(text, position)
    return found.end() if found else position


def _match_token(text: str, position: int, *, comma_separates: bool) -> Token:
    if comma_separates and (found := _ZEROS.match(text, position)):
        # As two arguments, the second would have leading zeros.
        number, _, group = found[0].partition(",")
        _fail(f"{found[0]!r} can be one number or two; write {number}{group} or {number}, {group}", position)
    found = (None if comma_separates else _GROUPED_DIGITS.match(text, position)) or _TOKEN.match(text, position)
    if found is None:
        _fail(f"unexpected {preview(text[position], 1)!r}{_hint(text[position])}", position)
    kind = found.lastgroup or "number"
    spelled = found[0].replace(",", "") if kind == "number" else found[0].lower()
    return Token(kind, spelled, position, found.end())


def _hint(character: str) -> str:
    if character == "!":
        return "; write factorial(5) for 5!,"
    return "; write numbers without a currency," if category(character) == "Sc" else ""


class Operation(NamedTuple):
    """A step that pops operands from the stack and pushes its result."""

    body: Callable[..., Number]
    """The function that computes it."""
    operands: int
    """The number of operands."""


Step: TypeAlias = Number | Operation


def parse(text: str) -> list[Step]:
    """Return the steps of an expression in postfix order; raise if it cannot be parsed.

    >>> [step.body.__name__ if isinstance(step, Operation) else int(step) for step in parse("1 + 2 * 3")]
    [1, 2, 3, 'multiply', 'add']
    """
    return _Parser(text).steps


class _Parser:
    """A precedence-climbing parser; its methods return whether the parsed expression is a percentage."""

    def __init__(self, text: str) -> None:
        self.steps: list[Step] = []
        self._text = text
        self._tokens = list(tokenize(text))
        self._position = 0
        self._depth = 0
        self._expression(0)
        if self._current.kind != "end":
            self._fail_here(
                "there is no parenthesis to close" if self._current.text == ")" else "an operator is missing"
            )

    @property
    def _current(self) -> Token:
        return self._tokens[self._position]

    def _next(self) -> Token:
        token = self._current
        self._position += 1
        return token

    def _expression(self, min_precedence: int) -> bool:
        """Parse an operand and the operators of at least this precedence that follow it."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            _fail(f"more than {_MAX_DEPTH} nested levels", self._current.start)
        is_percentage = self._operand()
        while self._precedence() >= max(min_precedence, 1):
            is_percentage = (
                self._percent_sign() if self._is_percent_sign() else self._infix(is_percentage=is_percentage)
            )
        self._depth -= 1
        return is_percentage

    def _precedence(self) -> int:
        """Return the precedence of the operator at the current position; 0 if there is none."""
        if self._is_percent_sign():
            return POSTFIX
        found = INFIX.get(self._current.text)
        return found.precedence if found else 0

    def _operand(self) -> bool:
        token = self._next()
        if token.text in {"+", "-"}:
            is_percentage = self._expression(PREFIX)
            if token.text == "-":
                self.steps.append(Operation(negate, 1))
            return is_percentage
        if token.text == "(":
            is_percentage = self._expression(0)
            self._close(token)
            return is_percentage
        if token.kind == "number":
            self.steps.append(parse_number(token.text))
        elif token.kind == "name":
            self._name(token)
        else:
            self._position -= 1
            self._fail_here("a number is missing")
        return False

    def _percent_sign(self) -> bool:
        self._position += 1
        self.steps.append(Operation(percent, 1))
        return True

    def _infix(self, *, is_percentage: bool) -> bool:
        """Parse an operator and its right operand; an added percentage is a percentage of the left operand."""
        token = self._next()
        found = INFIX[token.text]
        if token.text == "of" and not is_percentage:
            _fail("'of' needs a percentage before it, such as 15% of 840,", token.start)
        right = self._expression(found.right)
        body = found.body
        if token.text in {"+", "-"} and right and not is_percentage:
            body = increase if token.text == "+" else decrease
        self.steps.append(Operation(body, 2))
        return token.text in {"+", "-"} and right and is_percentage

    def _is_percent_sign(self) -> bool:
        """Return whether the current ``%`` is a percent sign: it is unless an operand follows.

        Before a plus or minus, spaces decide: ``10% - 3`` is a difference and ``10 % -3`` a modulo.
        """
        token, after = self._current, self._tokens[min(self._position + 1, len(self._tokens) - 1)]
        if token.text != "%":
            return False
        if after.text in {"+", "-"}:
            return self._is_percent_before(after)
        return after.text == "of" or not (after.kind in {"number", "name"} or after.text == "(")

    def _is_percent_before(self, sign: Token) -> bool:
        beyond = self._tokens[self._position + 2]
        apart_before = self._current.start > self._tokens[self._position - 1].end
        apart_after = sign.start > self._current.end
        apart_beyond = beyond.start > sign.end
        if apart_before or sign.text == "+":
            return not apart_before
        if apart_after != apart_beyond:
            _fail("'% -' can be a percentage or a modulo; write (10%) - 3 or 10 % (-3)", self._current.start)
        return apart_after

    def _name(self, token: Token) -> None:
        """Parse a constant, or a function and its arguments."""
        if token.text in FUNCTIONS:
            self._call(token)
        elif token.text in CONSTANTS:
            self.steps.append(CONSTANTS[token.text])
        else:
            _fail(f"unknown name {preview(token.text, 20)!r} ({self._hint(token.text)})", token.start)

    def _hint(self, name: str) -> str:
        """Return a suggestion for an unknown name."""
        if near := get_close_matches(name, [*FUNCTIONS, *CONSTANTS], 1):
            return f"did you mean {near[0]}?"
        if self._current.text == "(":
            return f"functions are {', '.join(FUNCTIONS)}"
        return "write the number itself, or several as in sum(1, 2, 3)"

    def _call(self, name: Token) -> None:
        function = FUNCTIONS[name.text]
        opening = self._next()
        if opening.text != "(":
            _fail(f"{name.text} needs its arguments in parentheses", opening.start)
        count = self._list() if self._current.text == "[" else self._arguments()
        self._close(opening)
        if function.max_arguments is not None and count > function.max_arguments:
            _fail(f"{name.text} takes {function.arity}, not {count},", name.start)
        self.steps.append(Operation(function.body, count))

    def _list(self) -> int:
        """Parse arguments in brackets: models write sum([1, 2]) as often as sum(1, 2)."""
        opening = self._next()
        count = self._arguments()
        self._close(opening)
        return count

    def _arguments(self) -> int:
        """Parse expressions separated by commas, and return how many there are."""
        self._expression(0)
        count = 1
        while self._current.text == ",":
            self._position += 1
            self._expression(0)
            count += 1
        return count

    def _close(self, opening: Token) -> None:
        closing, what = (")", "parenthesis") if opening.text == "(" else ("]", "bracket")
        if self._current.kind == "end":
            _fail(f"this {what} is never closed", opening.start)
        if self._current.text != closing:
            self._fail_here(f"an operator or '{closing}' is missing")
        self._position += 1

    def _is_unit(self, position: int) -> bool:
        """Return whether the token is the unit of the number before it, as in 40 g."""
        token = self._tokens[position]
        known = token.text in FUNCTIONS or token.text in CONSTANTS or token.text in INFIX
        return position > 0 and token.kind == "name" and not known and self._tokens[position - 1].kind == "number"

    def _without_units(self) -> str:
        pieces, begin = [], 0
        for position, token in enumerate(self._tokens):
            if self._is_unit(position):
                pieces.append(self._text[begin : self._tokens[position - 1].end])
                begin = token.end
        return "".join([*pieces, self._text[begin:]]).strip()

    def _fail_here(self, what: str) -> None:
        token = self._current
        if self._is_unit(self._position):
            unit, plain = preview(token.text, 20), preview(self._without_units(), 60)
            _fail(f"write {plain}, without units: {unit!r} is not an operator", token.start)
        found = f"before {preview(token.text, 20)!r}" if token.kind != "end" else "before the end"
        _fail(f"{what} {found}", token.start)
