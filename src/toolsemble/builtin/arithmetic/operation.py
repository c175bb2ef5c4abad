"""The operators, functions and constants of expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, Subnormal, localcontext
from fractions import Fraction
from functools import reduce
from math import factorial, gcd
from types import MappingProxyType
from typing import NamedTuple

from toolsemble.builtin.arithmetic.number import (
    EPSILON,
    MAX_DIGITS,
    TOO_LARGE,
    Number,
    absolute,
    add,
    divide,
    drop_guard_digits,
    floor,
    floor_divide,
    format_number,
    limit_digits,
    logarithm,
    multiply,
    power,
    remainder,
    root,
    round_half_up,
    subtract,
    to_decimal,
)
from toolsemble.errors import ToolExecutionError

_PI = Decimal("3.1415926535897932384626433832795028841971693993751058209749445923078164062862089986280348253421170680")
_TAU = Context(prec=100).add(_PI, _PI)
_E = Decimal("2.7182818284590452353602874713526624977572470936999595749669676277240766303535475945713821785251664274")
CONSTANTS: Mapping[str, Decimal] = MappingProxyType({"pi": _PI, "π": _PI, "tau": _TAU, "τ": _TAU, "e": _E})
_TEN = Fraction(10)
_MAX_FACTORIAL = 1_500  # its result already has too many digits
_MAX_ANGLE = 10**30  # reducing a larger angle would need more digits of pi


class Infix(NamedTuple):
    """A binary operator."""

    precedence: int
    """Its precedence; of two operators around an operand the one with the higher precedence takes it."""
    right: int
    """The lowest precedence of operators in its right operand; its own if it is right-associative."""
    body: Callable[[Number, Number], Number]
    """The function that computes it."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function that expressions can call."""

    body: Callable[..., Number]
    """The function that computes it."""
    max_arguments: int | None = 1
    """The maximum number of arguments; None: no limit. The minimum is one."""

    @property
    def arity(self) -> str:
        """The number of arguments that it takes, in words."""
        return {None: "one argument or more", 1: "one argument", 2: "one or two arguments"}[self.max_arguments]


def percent(value: Number) -> Number:
    """Return a hundredth of a number."""
    return divide(value, Fraction(100))


def increase(value: Number, part: Number) -> Number:
    """Return a value increased by a part of it.

    >>> increase(Fraction(200), Fraction(1, 10))
    Fraction(220, 1)
    """
    return add(value, multiply(value, part))


def decrease(value: Number, part: Number) -> Number:
    """Return a value decreased by a part of it."""
    return subtract(value, multiply(value, part))


def _sum(*values: Number) -> Number:
    return reduce(add, values)


def _mean(*values: Number) -> Number:
    return divide(_sum(*values), Fraction(len(values)))


def _min(*values: Number) -> Number:
    return min(values, key=_to_fraction)


def _max(*values: Number) -> Number:
    return max(values, key=_to_fraction)


def _to_fraction(value: Number) -> Fraction:
    return Fraction(value)  # fractions and decimals cannot be compared with each other


def _ceiling(value: Number) -> Number:
    return -floor(-value)


def _round(value: Number, places: Number = Fraction(0)) -> Number:
    count = _to_int("round", places)
    if abs(count) > MAX_DIGITS:
        raise ToolExecutionError(f"round takes at most {MAX_DIGITS:,} decimal places, not {format_number(places)[0]}")
    return round_half_up(value, count)


def _logarithm(value: Number, base: Number = _TEN) -> Number:
    found = _natural_logarithm(value, "log")
    if base == _TEN and (power_of_ten := to_decimal(value).log10()) and not power_of_ten % 1:
        return power_of_ten  # exact, unlike the quotient
    return divide(found, _natural_logarithm(base, "log"))


def _natural_logarithm(value: Number, name: str = "ln") -> Decimal:
    if value <= 0:
        raise ToolExecutionError(f"{name} needs a number above 0, not {format_number(value)[0]}")
    return logarithm(value)


def _exponential(value: Number) -> Number:
    return to_decimal(value).exp()


def _factorial(value: Number) -> Number:
    size = _to_int("factorial", value)
    if size < 0:
        raise ToolExecutionError(f"factorial needs a number >= 0, not {format_number(value)[0]}")
    if size > _MAX_FACTORIAL:
        raise ToolExecutionError(TOO_LARGE)
    return limit_digits(Fraction(factorial(size)))


def _greatest_common_divisor(*values: Number) -> Number:
    return Fraction(gcd(*(_to_int("gcd", value) for value in values)))


def _to_int(name: str, value: Number) -> int:
    rounded = drop_guard_digits(value)
    if rounded.denominator != 1:
        raise ToolExecutionError(f"{name} needs an integer, not {format_number(value)[0]}")
    return rounded.numerator


def sine(angle: Number) -> Number:
    """Return the sine of an angle in radians.

    >>> sine(CONSTANTS["pi"])
    Decimal('0')
    """
    return _sine("sin", angle, 0)


def cosine(angle: Number) -> Number:
    """Return the cosine of an angle in radians."""
    return _sine("cos", angle, 1)


def tangent(angle: Number) -> Number:
    """Return the tangent of an angle in radians; raise where it is not defined."""
    below = _sine("tan", angle, 1)
    if not below:
        raise ToolExecutionError(f"tan is not defined at {format_number(angle)[0]}")
    return _sine("tan", angle, 0) / below


def _sine(name: str, angle: Number, quarters: int) -> Decimal:
    """Return the sine of an angle plus a number of quarter turns."""
    if absolute(angle) > _MAX_ANGLE:
        raise ToolExecutionError(f"{name} needs an angle between -10^30 and 10^30, not {format_number(angle)[0]}")
    with localcontext() as context:
        context.prec = 100
        context.traps[Subnormal] = False  # the last terms for a small angle may underflow
        full = to_decimal(angle)
        turns = (full / (_PI / 2)).to_integral_value()
        rest = full - turns * _PI / 2
        if isinstance(angle, Decimal) and abs(rest) < abs(full) * EPSILON:
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


PREFIX = 3
"""The precedence of a sign before a number."""
POSTFIX = 6
"""The precedence of a percent sign."""
INFIX: Mapping[str, Infix] = MappingProxyType(
    {
        "+": Infix(1, 2, add),
        "-": Infix(1, 2, subtract),
        "*": Infix(2, 3, multiply),
        "/": Infix(2, 3, divide),
        "//": Infix(2, 3, floor_divide),
        "%": Infix(2, 3, remainder),
        "of": Infix(4, 4, multiply),
        "^": Infix(5, 5, power),
        "**": Infix(5, 5, power),
    }
)
FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "sqrt": Function(root),
        "abs": Function(absolute),
        "round": Function(_round, 2),
        "floor": Function(floor),
        "ceil": Function(_ceiling),
        "min": Function(_min, None),
        "max": Function(_max, None),
        "sum": Function(_sum, None),
        "mean": Function(_mean, None),
        "average": Function(_mean, None),
        "avg": Function(_mean, None),
        "log": Function(_logarithm, 2),
        "ln": Function(_natural_logarithm),
        "log10": Function(_logarithm),
        "exp": Function(_exponential),
        "sin": Function(sine),
        "cos": Function(cosine),
        "tan": Function(tangent),
        "factorial": Function(_factorial),
        "gcd": Function(_greatest_common_divisor, None),
    }
)
EXPENSIVE = frozenset({power, sine, cosine, tangent, _logarithm, _natural_logarithm, _exponential})
"""The operations that take long whenever their result is a decimal, even for small numbers."""
