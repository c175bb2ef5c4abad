"""``calculator``: a tool that evaluates arithmetic expressions exactly, without Python's ``eval``.

A fraction is exact. A decimal approximates an irrational number such as a root: it carries 60 digits, of which the
last 20 are guard digits. They are ignored where they would decide: whether a number is an integer, or whether a
difference is zero. A result out of range raises ``Overflow`` or ``Subnormal``, as in the decimal module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from decimal import ROUND_DOWN, Context, Decimal, DivisionByZero, InvalidOperation, Overflow, Subnormal, localcontext
from difflib import get_close_matches
from fractions import Fraction
from functools import partial, reduce
from itertools import pairwise
from math import factorial, floor, gcd, inf, isqrt
from operator import neg
from types import MappingProxyType
from typing import NamedTuple, NoReturn, TypeAlias
from unicodedata import category

from toolsemble._runtime.text import preview
from toolsemble._tools.base import Tool
from toolsemble._vocabulary.errors import ToolExecutionError
from toolsemble._vocabulary.result import ToolResult

Number: TypeAlias = Fraction | Decimal
MAX_DIGITS = 4_000  # below the limit of Python's conversions between int and str
LIMIT = 10**MAX_DIGITS
TRUSTED_DIGITS = 40
_SHOWN = Context(prec=15)
_MIN_PLAIN_EXPONENT = -6  # smaller numbers would be mostly zeros
_MAX_PLAIN_EXPONENT = 21


def working_context() -> Context:
    """Return the decimal context in which all functions of this package must run."""
    traps = [DivisionByZero, InvalidOperation, Overflow, Subnormal]
    return Context(prec=60, Emin=-MAX_DIGITS, Emax=MAX_DIGITS - 1, traps=traps)


def parse_number(digits: str) -> Number:
    """Return the number written as digits, a point and an exponent.

    >>> parse_number("1.5e3")
    Fraction(1500, 1)
    """
    in_range = working_context()
    in_range.rounding = ROUND_DOWN  # the largest numbers must not be rounded out of range
    return limit_digits(Fraction(Decimal(digits))) if in_range.create_decimal(digits) else Fraction(0)


def to_decimal(value: Number) -> Decimal:
    """Return a number as a decimal with 60 digits."""
    return value if isinstance(value, Decimal) else Decimal(value.numerator) / Decimal(value.denominator)


def drop_guard_digits(value: Number) -> Fraction:
    """Return a number rounded to its trusted digits."""
    return value if isinstance(value, Fraction) else Fraction(Context(prec=TRUSTED_DIGITS).plus(value))


def limit_digits(value: Fraction) -> Number:
    """Return a fraction, or a decimal if the fraction has too many digits; raise if such a fraction is an integer."""
    if abs(value.numerator) < LIMIT and value.denominator < LIMIT:
        return value
    if value.denominator == 1:
        raise Overflow
    return to_decimal(value)


def format_number(value: Number) -> tuple[str, int | Decimal]:
    """Return a number as text and as a value: integers exactly, others with 15 significant digits.

    A number with a longer integer part is rounded to an integer, up to 21 digits; above that it is written with an
    exponent.

    >>> format_number(Fraction(10, 3))
    ('3.33333333333333', Decimal('3.33333333333333'))
    """
    exact = Fraction(value)
    shown = _SHOWN.divide(Decimal(exact.numerator), Decimal(exact.denominator)).normalize(_SHOWN)
    is_plain = _MIN_PLAIN_EXPONENT <= shown.adjusted() < _MAX_PLAIN_EXPONENT
    is_exact_integer = isinstance(value, Fraction) and value.denominator == 1
    if is_exact_integer or (is_plain and not shown % 1):
        nearest = round(exact)
        return f"{Decimal(nearest):f}", nearest
    return f"{shown:{'f' if is_plain else 'e'}}", shown


_PI = Decimal("3.1415926535897932384626433832795028841971693993751058209749445923078164062862089986280348253421170680")
_TAU = Context(prec=100).add(_PI, _PI)
_E = Decimal("2.7182818284590452353602874713526624977572470936999595749669676277240766303535475945713821785251664274")
CONSTANTS: Mapping[str, Decimal] = MappingProxyType({"pi": _PI, "π": _PI, "tau": _TAU, "τ": _TAU, "e": _E})
_EPSILON = Decimal(f"1e-{TRUSTED_DIGITS}")
_NEAR_ONE = Fraction(1, 10**15)  # four terms of the logarithm's series then fill all 60 digits
_TEN = Fraction(10)
_MAX_FACTORIAL = 1_500  # its result already has too many digits
_MAX_ANGLE = 10**30  # reducing a larger angle would need more digits of pi


def _add(left: Number, right: Number) -> Number:
    """Return the sum; it is zero when all trusted digits cancel out."""
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return limit_digits(left + right)
    first, second = to_decimal(left), to_decimal(right)
    total = first + second
    return Decimal(0) if abs(total) < max(abs(first), abs(second)) * _EPSILON else total


def _subtract(left: Number, right: Number) -> Number:
    return _add(left, -right)


def _multiply(left: Number, right: Number) -> Number:
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return limit_digits(left * right)
    return to_decimal(left) * to_decimal(right)


def change(sign: Callable[[Number, Number], Number], value: Number, part: Number) -> Number:
    """Return a value plus or minus a part of it."""
    return sign(value, _multiply(value, part))


def divide(left: Number, right: Number) -> Number:
    """Return the quotient."""
    if not right:
        raise ToolExecutionError("Division by zero")
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return limit_digits(left / right)
    return to_decimal(left) / to_decimal(right)


def _absolute(value: Number) -> Number:
    return -value if value < 0 else value


def _floor(value: Number) -> Number:
    """Return the largest integer <= value; return a decimal whose last digits are unknown unchanged."""
    if isinstance(value, Decimal) and value.adjusted() >= TRUSTED_DIGITS:
        return value
    return Fraction(floor(drop_guard_digits(value)))


def _round(value: Number, places: Number = Fraction(0)) -> Number:
    """Return a number rounded to some decimal places, with halves rounded away from zero."""
    count = _to_int("round", places)
    if abs(count) > MAX_DIGITS:
        raise ToolExecutionError(f"round takes at most {MAX_DIGITS:,} decimal places, not {format_number(places)[0]}")
    if isinstance(value, Decimal) and value.adjusted() + count >= TRUSTED_DIGITS:
        return value
    scale = _TEN**count
    units = floor(abs(drop_guard_digits(value)) * scale + Fraction(1, 2))
    return limit_digits((-units if value < 0 else units) / scale)


def _remainder(left: Number, right: Number) -> Number:
    """Return the remainder of a division, with the sign of the dividend."""
    if not right:
        raise ToolExecutionError("Modulo by zero")
    times = _floor(_absolute(divide(left, right)))
    rest = _subtract(_absolute(left), _multiply(times, _absolute(right)))
    return -rest if left < 0 else rest


def _power(base: Number, exponent: Number) -> Number:
    """Return a power; it is exact for integer exponents, unless it has too many digits."""
    if not base:
        return divide(Fraction(1), base) if exponent < 0 else Fraction(not exponent)
    rounded = drop_guard_digits(exponent)
    if rounded.denominator != 1:
        if base < 0:
            raise ToolExecutionError("A negative number has no real power with a fractional exponent")
        return _decimal_power(base, exponent)
    if isinstance(base, Decimal):
        return base**rounded.numerator
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if (bits - 1) * abs(rounded) <= LIMIT.bit_length():
        return limit_digits(base**rounded.numerator)
    return _decimal_power(base, rounded)


def _decimal_power(base: Number, exponent: Number) -> Decimal:
    if not _is_near_one(base):
        return to_decimal(base) ** to_decimal(exponent)
    with localcontext() as context:
        context.traps[Subnormal] = False  # the power is 1 when the product underflows
        product = to_decimal(exponent) * _natural_logarithm(base)
    return product.exp()


def _root(value: Number) -> Number:
    """Return the square root; it is exact if it is rational."""
    if value < 0:
        raise ToolExecutionError("The square root of a negative number is not real")
    if isinstance(value, Fraction):
        found = Fraction(isqrt(value.numerator), isqrt(value.denominator))
        if found * found == value:
            return found
    return to_decimal(value).sqrt()


def _natural_logarithm(value: Number, name: str = "ln") -> Decimal:
    if value <= 0:
        raise ToolExecutionError(f"{name} needs a number above 0, not {format_number(value)[0]}")
    if not _is_near_one(value):
        return to_decimal(value).ln()
    excess = to_decimal(Fraction(value) - 1)
    with localcontext() as context:
        context.traps[Subnormal] = False  # the last terms may underflow
        terms = Decimal(0)
        for place in (4, 3, 2, 1):
            terms = 1 / Decimal(place) - excess * terms
        return excess * terms


def _is_near_one(value: Number) -> bool:
    """Return whether a fraction is so close to 1 that a decimal would lose most of the difference."""
    return isinstance(value, Fraction) and abs(value - 1) < _NEAR_ONE


def _logarithm(value: Number, base: Number = _TEN) -> Number:
    found = _natural_logarithm(value, "log")
    if base == _TEN and not _is_near_one(value):
        return to_decimal(value).log10()  # exact for powers of ten, unlike the quotient
    return divide(found, _natural_logarithm(base, "log"))


def _to_int(name: str, value: Number) -> int:
    rounded = drop_guard_digits(value)
    if rounded.denominator != 1:
        raise ToolExecutionError(f"{name} needs an integer, not {format_number(value)[0]}")
    return rounded.numerator


def _factorial(value: Number) -> Number:
    size = _to_int("factorial", value)
    if size < 0:
        raise ToolExecutionError(f"factorial needs a number >= 0, not {format_number(value)[0]}")
    if size > _MAX_FACTORIAL:
        raise Overflow
    return limit_digits(Fraction(factorial(size)))


def _mean(*values: Number) -> Number:
    return divide(reduce(_add, values), Fraction(len(values)))


def _tangent(angle: Number) -> Number:
    below = _sine("tan", 1, angle)
    if not below:
        raise ToolExecutionError(f"tan is not defined at {format_number(angle)[0]}")
    return _sine("tan", 0, angle) / below


def _sine(name: str, quarters: int, angle: Number) -> Decimal:
    """Return the sine of an angle in radians plus a number of quarter turns."""
    if not -_MAX_ANGLE <= angle <= _MAX_ANGLE:
        raise ToolExecutionError(f"{name} needs an angle between -10^30 and 10^30, not {format_number(angle)[0]}")
    with localcontext() as context:
        context.prec = 100
        context.traps[Subnormal] = False  # the last terms for a small angle may underflow
        full = to_decimal(angle)
        turns = (full / (_PI / 2)).to_integral_value()
        rest = full - turns * _PI / 2
        if isinstance(angle, Decimal) and abs(rest) < abs(full) * _EPSILON:
            rest = Decimal(0)
        quarter = (int(turns) + quarters) % 4
        size = _series(Decimal(1), rest, 0) if quarter % 2 else _series(rest, rest, 1)
    return +size if quarter < 2 else -size  # noqa: PLR2004 - the second half of a turn


def _series(first: Decimal, angle: Decimal, exponent: int) -> Decimal:
    """Return the sum of the Taylor series whose first term has this power of the angle."""
    total, term = Decimal(0), first
    while total + term != total:
        total += term
        exponent += 2
        term *= -angle * angle / (exponent * (exponent - 1))
    return total


class Infix(NamedTuple):
    """A binary operator; of two operators around an operand the one with the higher precedence takes it."""

    precedence: int
    right: int
    """The lowest precedence of operators in its right operand; its own if it is right-associative."""
    body: Callable[[Number, Number], Number]


PREFIX = 3  # the precedence of a sign before a number
INFIX: Mapping[str, Infix] = MappingProxyType(
    {
        "+": Infix(1, 2, _add),
        "-": Infix(1, 2, _subtract),
        "*": Infix(2, 3, _multiply),
        "/": Infix(2, 3, divide),
        "//": Infix(2, 3, lambda left, right: _floor(divide(left, right))),
        "%": Infix(2, 3, _remainder),
        "of": Infix(4, 4, _multiply),
        "^": Infix(5, 5, _power),
        "**": Infix(5, 5, _power),
    }
)


class Function(NamedTuple):
    """A function that expressions can call with at least one argument."""

    body: Callable[..., Number]
    max_arguments: float = 1


FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "sqrt": Function(_root),
        "abs": Function(_absolute),
        "round": Function(_round, 2),
        "floor": Function(_floor),
        "ceil": Function(lambda value: -_floor(-value)),
        # Fractions and decimals cannot be compared with each other.
        "min": Function(lambda *values: min(values, key=Fraction), inf),
        "max": Function(lambda *values: max(values, key=Fraction), inf),
        "sum": Function(lambda *values: reduce(_add, values), inf),
        "mean": Function(_mean, inf),
        "average": Function(_mean, inf),
        "avg": Function(_mean, inf),
        "log": Function(_logarithm, 2),
        "ln": Function(_natural_logarithm),
        "log10": Function(_logarithm),
        "exp": Function(lambda value: to_decimal(value).exp()),
        "sin": Function(partial(_sine, "sin", 0)),
        "cos": Function(partial(_sine, "cos", 1)),
        "tan": Function(_tangent),
        "factorial": Function(_factorial),
        "gcd": Function(lambda *values: Fraction(gcd(*(_to_int("gcd", value) for value in values))), inf),
    }
)
EXPENSIVE = frozenset({_power, *(FUNCTIONS[name].body for name in ("log", "ln", "exp", "sin", "cos", "tan"))})
"""The operations that take long whenever their result is a decimal, even for small numbers."""


_MAX_DEPTH = 100
# Each character is replaced by one character, so that positions in error messages match the input.
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


_MAX_LENGTH = 10_000
_MAX_WORK = 2 * 10**10  # squared bits, the cost of a multiplication; a few hundredths of a second
_EXPENSIVE_WORK = 5 * 10**7  # of a power, a logarithm or a sine with 60 digits, in the same unit


class CalculatorTool(Tool):
    """A tool that evaluates an arithmetic expression; the structured output is an ``int`` or a ``Decimal``.

    Integers are returned with all digits, other numbers with 15 significant ones. ``round`` rounds halves
    away from zero, ``%`` has the sign of the dividend, ``//`` rounds down, angles are radians.

    >>> CalculatorTool().execute("0.1 + 0.2")
    ToolResult.success('0.3', structured_output=Decimal('0.3'))
    >>> CalculatorTool().execute("15% of 840").structured_output
    126
    >>> CalculatorTool().execute("1 / 0").error_message
    'Division by zero'
    """

    name = "calculator"
    description = (
        "Computes an arithmetic expression exactly, such as (3 + 4.5) * 2, 15% of 80 or factorial(5). Input: only the "
        "expression.\n"
        "Operators: + (add) - (subtract) * (multiply) / (divide) // (rounds down) % (modulo, with the sign of the "
        "dividend) ^ or ** (power), parentheses.\n"
        "Percent: 15% of 840 is 126, 50% is 0.5, 200 + 10% is 220, 200 - 10% is 180.\n"
        "Functions: sqrt (square root), abs, round(x) or round(x, places), floor, ceil, min, max, sum, mean (average), "
        "log (base 10), "
        "log(x, base), ln, log10, exp, sin, cos, tan (radians), factorial(5) for 5!, gcd. Constants: pi, e, tau.\n"
        "Write multiplication out (2 * pi). Numbers may be 1,000 or 1.5e-3, but among the arguments of a function a "
        "comma separates: max(1000, 2000). No units, no words, no variables."
    )
    inline = True

    def __init__(self, *, name: str | None = None, description: str | None = None) -> None:
        """Set another name or description for the model, if one is passed."""
        self._set_names(name, description)

    def run(self, input: str) -> ToolResult:
        """Evaluate one expression."""
        if len(input) > _MAX_LENGTH:
            raise ToolExecutionError(f"The expression is too long: {len(input):,} characters, at most {_MAX_LENGTH:,}")
        with localcontext(working_context()):
            try:
                text, number = format_number(_compute(parse(input)))
            except Overflow:
                raise ToolExecutionError(f"The result is too large: more than {MAX_DIGITS:,} digits") from None
            except Subnormal:
                raise ToolExecutionError(
                    f"The result is too small: it begins after more than {MAX_DIGITS:,} zeros"
                ) from None
        return ToolResult.success(text, number)


def _compute(steps: list[Step]) -> Number:
    """Return the result of all steps; raise if they would take too long."""
    values: list[Number] = []
    work = 0
    for step in steps:
        if isinstance(step, Operation):
            operands = values[-step.operands :]
            del values[-step.operands :]
            value = step.body(*operands)
            work += _EXPENSIVE_WORK * (step.body in EXPENSIVE and isinstance(value, Decimal))
        else:
            value = step
        if isinstance(value, Fraction):  # the size of decimals does not matter
            work += (value.numerator.bit_length() + value.denominator.bit_length()) ** 2
        if work > _MAX_WORK:
            raise ToolExecutionError("The expression takes too much work; use fewer or smaller numbers")
        values.append(value)
    return values[0]
