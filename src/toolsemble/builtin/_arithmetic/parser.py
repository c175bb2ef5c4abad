"""Parse an expression into the steps that compute it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from fractions import Fraction
from functools import partial
from itertools import pairwise
from operator import neg
from types import MappingProxyType
from typing import NamedTuple, NoReturn, TypeAlias
from unicodedata import category

from toolsemble._runtime.text import preview
from toolsemble._vocabulary.errors import ToolExecutionError
from toolsemble.builtin._arithmetic.number import Number, parse_number
from toolsemble.builtin._arithmetic.operation import CONSTANTS, FUNCTIONS, INFIX, PREFIX, Infix, change, divide

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
    r"|(?P<space>\s+)"
)
_GROUPED_DIGITS = re.compile(rf"[0-9]{{1,3}}(?:,[0-9]{{3}})++(?!,?[0-9_])(?:\.[0-9]*)?{_EXPONENT}")
_ZEROS = re.compile(r"[0-9]{1,3},0[0-9]{2}(?![0-9])")
_NAMES = frozenset({*FUNCTIONS, *CONSTANTS, *INFIX})
_ARITY: Mapping[float, str] = MappingProxyType({1: "one argument", 2: "one or two arguments"})


class Token(NamedTuple):
    """A number, a name, a sign, the unit of a number, or the end of the expression."""

    kind: str
    """``number``, ``name``, ``sign``, ``unit``, ``space`` or ``end``."""
    text: str
    """The text; names in lower case, numbers without separators."""
    start: int
    end: int


class Operation(NamedTuple):
    """A step that pops operands from the stack and pushes its result."""

    body: Callable[..., Number]
    operands: int


Step: TypeAlias = Number | Operation


def _fail(what: str, position: int) -> NoReturn:
    raise ToolExecutionError(f"Invalid expression: {what} at position {position}")


def tokenize(text: str) -> Iterator[Token]:
    """Yield the tokens of an expression, the last of kind ``end``; raise at a character that begins no token.

    A comma groups digits, except in arguments of a function and in a list, where it separates them.

    >>> [token.text for token in tokenize("max(1,200) + 1,200")]
    ['max', '(', '1', ',', '200', ')', '+', '1200', '']
    """
    text = text.translate(_SPELLINGS)
    in_arguments = [False]  # and one for each open parenthesis or bracket
    before = token = Token("end", "", 0, 0)
    while token.end < len(text):
        token = _match_token(text, token.end, before.kind, comma_separates=in_arguments[-1])
        if token.kind == "space":
            continue
        if token.text in {"(", "["}:
            in_arguments.append(before.kind in {"name", "unit"} or token.text == "[")
        elif token.text in {")", "]"} and len(in_arguments) > 1:
            in_arguments.pop()
        before = token
        yield token
    yield Token("end", "", len(text), len(text))


def _match_token(text: str, position: int, before: str, *, comma_separates: bool) -> Token:
    if comma_separates and (found := _ZEROS.match(text, position)):
        # As two arguments, the second would have leading zeros.
        number, _, group = found[0].partition(",")
        _fail(f"{found[0]!r} can be one number or two; write {number}{group} or {number}, {group}", position)
    found = (None if comma_separates else _GROUPED_DIGITS.match(text, position)) or _TOKEN.match(text, position)
    if found is None:
        _fail(f"unexpected {preview(text[position], 1)!r}{_hint(text[position])}", position)
    kind = found.lastgroup or "number"
    spelled = re.sub("[,_]", "", found[0]) if kind == "number" else found[0].lower()
    if kind == "name" and before == "number" and spelled not in _NAMES:
        kind = "unit"
    return Token(kind, spelled, position, found.end())


def _hint(character: str) -> str:
    if character == "!":
        return "; write factorial(5) for 5!,"
    return "; write numbers without a currency," if category(character) == "Sc" else ""


def parse(text: str) -> list[Step]:
    """Return the steps of an expression in postfix order; raise if it cannot be parsed.

    >>> [step.body.__name__ if isinstance(step, Operation) else int(step) for step in parse("-1 / 2")]
    [1, 'neg', 2, 'divide']
    """
    return _Parser(text).steps


class _Parser:
    """A precedence-climbing parser; it notes which expressions are percentages."""

    def __init__(self, text: str) -> None:
        self.steps: list[Step] = []
        self._text = text
        self._tokens = list(tokenize(text))
        self._position = 0
        self._depth = 0
        self._expression(0)
        if self._current.kind != "end":
            closes = self._current.text == ")"
            self._fail_here("there is no parenthesis to close" if closes else "an operator is missing")

    @property
    def _current(self) -> Token:
        return self._tokens[self._position]

    def _next(self) -> Token:
        self._position += 1
        return self._tokens[self._position - 1]

    def _expression(self, min_precedence: int) -> bool:
        """Parse an operand and the operators that follow it; return whether it is a percentage."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            _fail(f"more than {_MAX_DEPTH} nested levels", self._current.start)
        is_percentage = self._operand()
        while True:
            if self._is_percent_sign():
                self._position += 1
                self.steps += [Fraction(100), Operation(divide, 2)]
                is_percentage = True
            elif (infix := INFIX.get(self._current.text)) and infix.precedence >= min_precedence:
                is_percentage = self._infix(infix, is_percentage=is_percentage)
            else:
                break
        self._depth -= 1
        return is_percentage

    def _operand(self) -> bool:
        token = self._next()
        is_percentage = False
        if token.text in {"+", "-"}:
            is_percentage = self._expression(PREFIX)
            if token.text == "-":
                self.steps.append(Operation(neg, 1))
        elif token.text == "(":
            is_percentage = self._expression(0)
            self._close(token)
        elif token.kind == "number":
            self.steps.append(parse_number(token.text))
        elif token.text in FUNCTIONS:
            self._call(token)
        elif token.text in CONSTANTS:
            self.steps.append(CONSTANTS[token.text])
        elif token.kind == "name":
            _fail(f"unknown name {preview(token.text, 20)!r} ({self._suggest(token.text)})", token.start)
        else:
            self._position -= 1
            self._fail_here("a number is missing")
        return is_percentage

    def _suggest(self, name: str) -> str:
        if near := get_close_matches(name, [*FUNCTIONS, *CONSTANTS], 1):
            return f"did you mean {near[0]}?"
        if self._current.text == "(":
            return f"functions are {', '.join(FUNCTIONS)}"
        return "write the number itself, or several as in sum(1, 2, 3)"

    def _infix(self, infix: Infix, *, is_percentage: bool) -> bool:
        """Parse an operator and its right operand; an added percentage is a percentage of the left operand."""
        token = self._next()
        if token.text == "of" and not is_percentage:
            _fail("'of' needs a percentage before it, such as 15% of 840,", token.start)
        adds_percentage = self._expression(infix.right) and token.text in {"+", "-"}
        is_change = adds_percentage and not is_percentage
        self.steps.append(Operation(partial(change, infix.body) if is_change else infix.body, 2))
        return adds_percentage and is_percentage

    def _is_percent_sign(self) -> bool:
        """Return whether the current ``%`` is a percent sign: it is unless an operand follows.

        Before a plus or minus, spaces decide: ``10% - 3`` is a difference and ``10 % -3`` a modulo.
        """
        if self._current.text != "%":
            return False
        before, sign, after, *beyond = self._tokens[self._position - 1 : self._position + 3]
        if after.text not in {"+", "-"}:
            return after.text == "of" or not (after.kind in {"number", "name"} or after.text == "(")
        if sign.start > before.end or after.text == "+":
            return sign.start == before.end
        is_apart = after.start > sign.end
        if is_apart != (beyond[0].start > after.end):
            _fail("'% -' can be a percentage or a modulo; write (10%) - 3 or 10 % (-3)", sign.start)
        return is_apart

    def _call(self, name: Token) -> None:
        if self._current.text != "(":
            _fail(f"{name.text} needs its arguments in parentheses", self._current.start)
        opened = [self._next()]
        if self._current.text == "[":  # models write sum([1, 2]) as often as sum(1, 2)
            opened.append(self._next())
        self._expression(0)
        count = 1
        while self._current.text == ",":
            self._position += 1
            self._expression(0)
            count += 1
        for opening in reversed(opened):
            self._close(opening)
        function = FUNCTIONS[name.text]
        if count > function.max_arguments:
            _fail(f"{name.text} takes {_ARITY[function.max_arguments]}, not {count},", name.start)
        self.steps.append(Operation(function.body, count))

    def _close(self, opening: Token) -> None:
        closing, what = (")", "parenthesis") if opening.text == "(" else ("]", "bracket")
        if self._current.kind == "end":
            _fail(f"this {what} is never closed", opening.start)
        if self._current.text != closing:
            self._fail_here(f"an operator or '{closing}' is missing")
        self._position += 1

    def _fail_here(self, what: str) -> None:
        token = self._current
        if token.kind == "unit":
            unit, plain = preview(token.text, 20), preview(self._without_units(), 60)
            _fail(f"write {plain}, without units: {unit!r} is not an operator", token.start)
        found = f"before {preview(token.text, 20)!r}" if token.kind != "end" else "before the end"
        _fail(f"{what} {found}", token.start)

    def _without_units(self) -> str:
        text = self._text
        for number, unit in reversed(list(pairwise(self._tokens))):
            if unit.kind == "unit":
                text = text[: number.end] + text[unit.end :]
        return text.strip()
