"""The functions and constants of expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from math import factorial, gcd
from types import MappingProxyType

from toolsemble.builtin.arithmetic.number import (
    MOST_DIGITS,
    TOO_LARGE,
    Number,
    added,
    bounded,
    divided,
    floor,
    inexact,
    magnitude,
    presented,
    rounded,
    steady,
)
from toolsemble.builtin.arithmetic.power import logarithm, power, root
from toolsemble.builtin.arithmetic.trigonometry import PI, TAU, cosine, sine, tangent
from toolsemble.errors import ToolExecutionError

_E = Decimal("2.7182818284590452353602874713526624977572470936999595749669676277240766303535475945713821785251664274")
CONSTANTS: Mapping[str, Decimal] = MappingProxyType({"pi": PI, "π": PI, "tau": TAU, "τ": TAU, "e": _E})
_TEN = Fraction(10)
_LARGEST_FACTORIAL = 1_500  # of which the result is already too large


@dataclass(frozen=True, slots=True)
class Function:
    """A function that expressions can name."""

    body: Callable[..., Number]
    """What it does with numbers."""
    most: int | None = 1
    """The most arguments that it takes, at least one; None for any number."""

    @property
    def arity(self) -> str:
        """How many arguments it takes, in words."""
        return {None: "one argument or more", 1: "one argument", 2: "one or two arguments"}[self.most]


def _sum(*values: Number) -> Number:
    return reduce(added, values)


def _mean(*values: Number) -> Number:
    return divided(_sum(*values), Fraction(len(values)))


def _least(*values: Number) -> Number:
    return min(values, key=_exactly)


def _greatest(*values: Number) -> Number:
    return max(values, key=_exactly)


def _exactly(value: Number) -> Fraction:
    return Fraction(value)  # fractions and decimals cannot be compared with each other


def _ceiling(value: Number) -> Number:
    return -floor(-value)


def _rounded(value: Number, places: Number = Fraction(0)) -> Number:
    count = _whole("round", places)
    if abs(count) > MOST_DIGITS:
        raise ToolExecutionError(f"round takes at most {MOST_DIGITS:,} decimal places, not {presented(places)[0]}")
    return rounded(value, count)


def _logarithm(value: Number, base: Number = _TEN) -> Number:
    found = _natural_logarithm(value, "log")
    if base == _TEN and (power_of_ten := inexact(value).log10()) and not power_of_ten % 1:
        return power_of_ten  # exactly, which a quotient is not
    return divided(found, _natural_logarithm(base, "log"))


def _natural_logarithm(value: Number, name: str = "ln") -> Decimal:
    if value <= 0:
        raise ToolExecutionError(f"{name} needs a number above 0, not {presented(value)[0]}")
    return logarithm(value)


def _exponential(value: Number) -> Number:
    return inexact(value).exp()


def _factorial(value: Number) -> Number:
    size = _whole("factorial", value)
    if size < 0:
        raise ToolExecutionError(f"factorial needs a number that is not negative, not {presented(value)[0]}")
    if size > _LARGEST_FACTORIAL:
        raise ToolExecutionError(TOO_LARGE)
    return bounded(Fraction(factorial(size)))


def _divisor(*values: Number) -> Number:
    return Fraction(gcd(*(_whole("gcd", value) for value in values)))


def _whole(name: str, value: Number) -> int:
    whole = steady(value)
    if whole.denominator != 1:
        raise ToolExecutionError(f"{name} needs a whole number, not {presented(value)[0]}")
    return whole.numerator


FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "sqrt": Function(root),
        "abs": Function(magnitude),
        "round": Function(_rounded, 2),
        "floor": Function(floor),
        "ceil": Function(_ceiling),
        "min": Function(_least, None),
        "max": Function(_greatest, None),
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
        "gcd": Function(_divisor, None),
    }
)
ENDLESS = frozenset({power, sine, cosine, tangent, _logarithm, _natural_logarithm, _exponential})
"""What takes long when the result is a decimal, however small the numbers are."""
