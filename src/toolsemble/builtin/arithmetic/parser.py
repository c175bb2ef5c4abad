"""From an expression to the steps that compute it."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import NamedTuple, TypeAlias

from toolsemble.builtin.arithmetic.function import CONSTANTS, FUNCTIONS
from toolsemble.builtin.arithmetic.number import Number, negative, read
from toolsemble.builtin.arithmetic.operator import INFIX, POSTFIX, PREFIX, decreased, increased, percent
from toolsemble.builtin.arithmetic.token import Token, refuse, tokens
from toolsemble.runtime.text import preview

_DEEPEST = 100


class Operation(NamedTuple):
    """A step that takes the last numbers and leaves one."""

    body: Callable[..., Number]
    """What it does with them."""
    takes: int
    """How many it takes."""


Step: TypeAlias = Number | Operation


def program(text: str) -> list[Step]:
    """Give the steps of an expression, operands before operations; refuse what is none.

    >>> [step.body.__name__ if isinstance(step, Operation) else int(step) for step in program("1 + 2 * 3")]
    [1, 2, 3, 'multiplied', 'added']
    """
    return _Reader(text).steps


class _Reader:
    """Reads tokens one after the other; its methods say whether what they read is a percentage."""

    def __init__(self, text: str) -> None:
        self.steps: list[Step] = []
        self._text = text
        self._tokens = list(tokens(text))
        self._place = 0
        self._depth = 0
        self._expression(0)
        if self._now.kind != "end":
            self._refuse_now("there is no parenthesis to close" if self._now.text == ")" else "an operator is missing")

    @property
    def _now(self) -> Token:
        return self._tokens[self._place]

    def _next(self) -> Token:
        token = self._now
        self._place += 1
        return token

    def _expression(self, weakest: int) -> bool:
        """Read an operand and all that follows with signs of at least this strength."""
        self._depth += 1
        if self._depth > _DEEPEST:
            refuse(f"more than {_DEEPEST} levels inside each other", self._now.start)
        share = self._operand()
        while self._strength() >= max(weakest, 1):
            share = self._percent_sign() if self._is_percent_sign() else self._infix(share=share)
        self._depth -= 1
        return share

    def _strength(self) -> int:
        """Give how strongly the sign here binds what stands before it; 0 when there is none."""
        if self._is_percent_sign():
            return POSTFIX
        found = INFIX.get(self._now.text)
        return found.strength if found else 0

    def _operand(self) -> bool:
        token = self._next()
        if token.text in {"+", "-"}:
            share = self._expression(PREFIX)
            if token.text == "-":
                self.steps.append(Operation(negative, 1))
            return share
        if token.text == "(":
            share = self._expression(0)
            self._close(token)
            return share
        if token.kind == "number":
            self.steps.append(read(token.text))
        elif token.kind == "name":
            self._name(token)
        else:
            self._place -= 1
            self._refuse_now("a number is missing")
        return False

    def _percent_sign(self) -> bool:
        self._place += 1
        self.steps.append(Operation(percent, 1))
        return True

    def _infix(self, *, share: bool) -> bool:
        """Read a sign and its right operand; a share of nothing else is one of what it is added to."""
        token = self._next()
        found = INFIX[token.text]
        if token.text == "of" and not share:
            refuse("'of' needs a percentage before it, such as 15% of 840,", token.start)
        right = self._expression(found.right)
        body = found.body
        if token.text in {"+", "-"} and right and not share:
            body = increased if token.text == "+" else decreased
        self.steps.append(Operation(body, 2))
        return token.text in {"+", "-"} and right and share

    def _is_percent_sign(self) -> bool:
        """Whether a ``%`` here means hundredths: it does unless an operand follows.

        Before a sign, spaces decide: ``10% - 3`` is a difference and ``10 % -3`` a modulo.
        """
        token, after = self._now, self._tokens[min(self._place + 1, len(self._tokens) - 1)]
        if token.text != "%":
            return False
        if after.text in {"+", "-"}:
            return self._is_percent_before(after)
        return after.text == "of" or not (after.kind in {"number", "name"} or after.text == "(")

    def _is_percent_before(self, sign: Token) -> bool:
        beyond = self._tokens[self._place + 2]
        apart_before = self._now.start > self._tokens[self._place - 1].end
        apart_after = sign.start > self._now.end
        apart_beyond = beyond.start > sign.end
        if apart_before or sign.text == "+":
            return not apart_before
        if apart_after != apart_beyond:
            refuse("'% -' can be a percentage or a modulo; write (10%) - 3 or 10 % (-3)", self._now.start)
        return apart_after

    def _name(self, token: Token) -> None:
        """Read a constant, or a function and its arguments."""
        if token.text in FUNCTIONS:
            self._call(token)
        elif token.text in CONSTANTS:
            self.steps.append(CONSTANTS[token.text])
        else:
            refuse(f"unknown name {preview(token.text, 20)!r} ({self._hint(token.text)})", token.start)

    def _hint(self, name: str) -> str:
        """Give what to write in place of a name that is not known."""
        if near := get_close_matches(name, [*FUNCTIONS, *CONSTANTS], 1):
            return f"did you mean {near[0]}?"
        if self._now.text == "(":
            return f"functions are {', '.join(FUNCTIONS)}"
        return "write the number itself, or several as in sum(1, 2, 3)"

    def _call(self, name: Token) -> None:
        function = FUNCTIONS[name.text]
        opening = self._next()
        if opening.text != "(":
            refuse(f"{name.text} needs its arguments in parentheses", opening.start)
        given = self._list() if self._now.text == "[" else self._several()
        self._close(opening)
        if function.most is not None and given > function.most:
            refuse(f"{name.text} takes {function.arity}, not {given},", name.start)
        self.steps.append(Operation(function.body, given))

    def _list(self) -> int:
        """Read arguments in brackets: models write sum([1, 2]) as often as sum(1, 2)."""
        opening = self._next()
        given = self._several()
        self._close(opening)
        return given

    def _several(self) -> int:
        """Read what commas separate, and give how many they are."""
        self._expression(0)
        given = 1
        while self._now.text == ",":
            self._place += 1
            self._expression(0)
            given += 1
        return given

    def _close(self, opening: Token) -> None:
        closing, what = (")", "parenthesis") if opening.text == "(" else ("]", "bracket")
        if self._now.kind == "end":
            refuse(f"this {what} is never closed", opening.start)
        if self._now.text != closing:
            self._refuse_now(f"an operator or '{closing}' is missing")
        self._place += 1

    def _is_unit(self, place: int) -> bool:
        """Whether a word stands here that belongs to the number before it, as in 40 g."""
        token = self._tokens[place]
        known = token.text in FUNCTIONS or token.text in CONSTANTS or token.text in INFIX
        return place > 0 and token.kind == "name" and not known and self._tokens[place - 1].kind == "number"

    def _without_units(self) -> str:
        pieces, begin = [], 0
        for place, token in enumerate(self._tokens):
            if self._is_unit(place):
                pieces.append(self._text[begin : self._tokens[place - 1].end])
                begin = token.end
        return "".join([*pieces, self._text[begin:]]).strip()

    def _refuse_now(self, what: str) -> None:
        token = self._now
        if self._is_unit(self._place):
            unit, plain = preview(token.text, 20), preview(self._without_units(), 60)
            refuse(f"write {plain}, without units: {unit!r} is no operator", token.start)
        found = f"before {preview(token.text, 20)!r}" if token.kind != "end" else "before the end"
        refuse(f"{what} {found}", token.start)
