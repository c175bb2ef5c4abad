"""Exact numbers for the calculator: fractions, and decimals for irrational results.

A fraction is exact. A decimal approximates an irrational number such as a root: it carries 60 digits, of which the
last 20 are guard digits. They are ignored where they would decide: whether a number is an integer, or whether a
difference is zero.
"""

from __future__ import annotations

from decimal import (
    MAX_EMAX,
    MAX_PREC,
    MIN_EMIN,
    Context,
    Decimal,
    DivisionByZero,
    InvalidOperation,
    Overflow,
    Subnormal,
    localcontext,
)
from fractions import Fraction
from math import isqrt
from typing import TypeAlias

from toolsemble.errors import ToolExecutionError

Number: TypeAlias = Fraction | Decimal
MAX_DIGITS = 4_000  # below the limit of Python's conversions between int and str
_LIMIT = 10**MAX_DIGITS
_TRUSTED_DIGITS = 40
EPSILON = Decimal(f"1e-{_TRUSTED_DIGITS}")
_SHOWN = Context(prec=15)
_MIN_PLAIN_EXPONENT = -6  # smaller numbers would be mostly zeros
_MAX_PLAIN_EXPONENT = 21
_NEAR_ONE = Fraction(1, 10**15)  # four terms of the logarithm's series then fill all 60 digits
_UNLIMITED = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
TOO_LARGE = f"The result is too large: more than {MAX_DIGITS:,} digits"
TOO_SMALL = f"The result is too small: it begins after more than {MAX_DIGITS:,} zeros"


def working_context() -> Context:
    """Return the decimal context in which all functions of this package must run."""
    traps = [DivisionByZero, InvalidOperation, Overflow, Subnormal]
    return Context(prec=60, Emin=-MAX_DIGITS, Emax=MAX_DIGITS - 1, traps=traps)


def parse_number(digits: str) -> Number:
    """Return the number written as digits, a point and an exponent; raise if it has too many digits.

    >>> parse_number("1.5e3")
    Fraction(1500, 1)
    """
    mantissa, _, exponent = digits.lower().partition("e")
    if len(exponent.lstrip("+-0")) > len(str(MAX_DIGITS)):
        raise ToolExecutionError(TOO_SMALL if "-" in exponent else TOO_LARGE)
    value = Decimal(mantissa).scaleb(int(exponent or 0), _UNLIMITED)
    if value and value.adjusted() >= MAX_DIGITS:
        raise ToolExecutionError(TOO_LARGE)
    if value and value.adjusted() < -MAX_DIGITS:
        raise ToolExecutionError(TOO_SMALL)
    return limit_digits(Fraction(value))


def to_decimal(value: Number) -> Decimal:
    """Return a number as a decimal with 60 digits."""
    if isinstance(value, Decimal):
        return value
    return Decimal(value.numerator) / Decimal(value.denominator)


def drop_guard_digits(value: Number) -> Fraction:
    """Return a number rounded to its trusted digits.

    >>> drop_guard_digits(Decimal("2.9999999999999999999999999999999999999999999999999"))
    Fraction(3, 1)
    """
    return value if isinstance(value, Fraction) else Fraction(Context(prec=_TRUSTED_DIGITS).plus(value))


def limit_digits(value: Fraction) -> Number:
    """Return a fraction, or a decimal if the fraction has too many digits; raise if such a fraction is an integer."""
    if abs(value.numerator) < _LIMIT and value.denominator < _LIMIT:
        return value
    if value.denominator == 1:
        raise ToolExecutionError(TOO_LARGE)
    return to_decimal(value)


def negate(value: Number) -> Number:
    """Return the number with the opposite sign."""
    return -value


def absolute(value: Number) -> Number:
    """Return the absolute value."""
    return -value if value < 0 else value


def add(left: Number, right: Number) -> Number:
    """Return the sum; it is zero when all trusted digits cancel out.

    >>> add(Fraction(1, 10), Fraction(2, 10))
    Fraction(3, 10)
    """
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return limit_digits(left + right)
    first, second = to_decimal(left), to_decimal(right)
    total = first + second
    return Decimal(0) if abs(total) < max(abs(first), abs(second)) * EPSILON else total


def subtract(left: Number, right: Number) -> Number:
    """Return the difference."""
    return add(left, -right)


def multiply(left: Number, right: Number) -> Number:
    """Return the product."""
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return limit_digits(left * right)
    return to_decimal(left) * to_decimal(right)


def divide(left: Number, right: Number) -> Number:
    """Return the quotient."""
    if not right:
        raise ToolExecutionError("Division by zero")
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return limit_digits(left / right)
    return to_decimal(left) / to_decimal(right)


def floor(value: Number) -> Number:
    """Return the largest integer <= value; return a decimal whose last digits are unknown unchanged.

    >>> floor(Fraction(-7, 2))
    Fraction(-4, 1)
    """
    if isinstance(value, Decimal) and value.adjusted() >= _TRUSTED_DIGITS:
        return value
    return Fraction(drop_guard_digits(value).__floor__())


def round_half_up(value: Number, places: int) -> Number:
    """Return a number rounded to some decimal places; halves are rounded away from zero.

    >>> round_half_up(Fraction(-5, 2), 0)
    Fraction(-3, 1)
    """
    if isinstance(value, Decimal) and value.adjusted() + places >= _TRUSTED_DIGITS:
        return value
    scale = Fraction(10) ** places
    units = (abs(drop_guard_digits(value)) * scale + Fraction(1, 2)).__floor__()
    return limit_digits((-units if value < 0 else units) / scale)


def floor_divide(left: Number, right: Number) -> Number:
    """Return the quotient, rounded down."""
    return floor(divide(left, right))


def remainder(left: Number, right: Number) -> Number:
    """Return the remainder of a division, with the sign of the dividend.

    >>> remainder(Fraction(-7), Fraction(3))
    Fraction(-1, 1)
    """
    if not right:
        raise ToolExecutionError("Modulo by zero")
    times = floor(absolute(divide(left, right)))
    rest = subtract(absolute(left), multiply(times, absolute(right)))
    return -rest if left < 0 else rest


def power(base: Number, exponent: Number) -> Number:
    """Return a power; it is exact for integer exponents, unless it has too many digits.

    >>> power(Fraction(2), Fraction(-3))
    Fraction(1, 8)
    """
    rounded = drop_guard_digits(exponent)
    if not base:
        return divide(Fraction(1), base) if exponent < 0 else Fraction(not exponent)
    if rounded.denominator == 1:
        return _integer_power(base, rounded.numerator)
    if base < 0:
        raise ToolExecutionError("A negative number has no real power with a fractional exponent")
    return _decimal_power(base, exponent)


def _integer_power(base: Number, exponent: int) -> Number:
    if isinstance(base, Decimal):
        return base**exponent
    if base in {-1, 1}:  # small for any exponent
        return base ** (exponent % 2)
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if (bits - 1) * abs(exponent) <= _LIMIT.bit_length():
        return limit_digits(base**exponent)
    if base.denominator == 1 and exponent > 0:
        raise ToolExecutionError(TOO_LARGE)
    return _decimal_power(base, Fraction(exponent))


def _decimal_power(base: Number, exponent: Number) -> Decimal:
    if not _is_near_one(base):
        return to_decimal(base) ** to_decimal(exponent)
    with localcontext() as context:
        context.traps[Subnormal] = False  # the power is 1 when the product underflows
        product = to_decimal(exponent) * logarithm(base)
    return product.exp()


def root(value: Number) -> Number:
    """Return the square root; it is exact if it is rational.

    >>> root(Fraction(16, 25))
    Fraction(4, 5)
    """
    if value < 0:
        raise ToolExecutionError("The square root of a negative number is not real")
    if isinstance(value, Fraction):
        found = Fraction(isqrt(value.numerator), isqrt(value.denominator))
        if found * found == value:
            return found
    return to_decimal(value).sqrt()


def logarithm(value: Number) -> Decimal:
    """Return the natural logarithm of a number > 0, with full precision also close to 1.

    >>> f"{logarithm(1 + Fraction(1, 10**100)):.2e}"
    '1.00e-100'
    """
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


def format_number(value: Number) -> tuple[str, int | Decimal]:
    """Return a number as text and as a value: integers exactly, others with 15 significant digits.

    A number with a longer integer part is rounded to an integer, up to 21 digits; above that it is written with an
    exponent.

    >>> format_number(Fraction(10, 3))
    ('3.33333333333333', Decimal('3.33333333333333'))
    """
    if isinstance(value, Fraction):
        if value.denominator == 1:
            return f"{Decimal(value.numerator):f}", value.numerator
        shown = _SHOWN.divide(Decimal(value.numerator), Decimal(value.denominator))
    else:
        shown = _SHOWN.plus(value)
    shown = shown.normalize(_SHOWN)
    if _SHOWN.prec <= shown.adjusted() < _MAX_PLAIN_EXPONENT:
        nearest = round(Fraction(value))
        return str(nearest), nearest
    if not _MIN_PLAIN_EXPONENT <= shown.adjusted() < _MAX_PLAIN_EXPONENT:
        return f"{shown:e}", shown
    whole = int(shown)
    return (str(whole), whole) if whole == shown else (f"{shown:f}", shown)
