"""The operators, functions and constants of expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Context, Decimal, Overflow, Subnormal, localcontext
from fractions import Fraction
from functools import partial, reduce
from math import factorial, floor, gcd, inf, isqrt
from types import MappingProxyType
from typing import NamedTuple

from toolsemble._vocabulary.errors import ToolExecutionError
from toolsemble.builtin._arithmetic.number import (
    LIMIT,
    MAX_DIGITS,
    TRUSTED_DIGITS,
    Number,
    drop_guard_digits,
    format_number,
    limit_digits,
    to_decimal,
)

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
    """Return a number rounded to some decimal places; halves are rounded away from zero."""
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
