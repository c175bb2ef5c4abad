"""Numbers that are exact for as long as they can be.

A fraction is exact. A decimal stands for a number with endless digits, such as a root: it carries sixty of them, and
where the last ones decide (whether it is whole, or whether a difference is nothing) they are not believed.
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
)
from fractions import Fraction
from typing import TypeAlias

from toolsemble.errors import ToolExecutionError

Number: TypeAlias = Fraction | Decimal
MOST_DIGITS = 4_000  # below the number of digits that Python itself writes and reads
LIMIT = 10**MOST_DIGITS
_SURE = 40
SURE_PART = Decimal(f"1e-{_SURE}")
_SHOWN = Context(prec=15)
_SMALLEST_PLAIN = -6  # smaller ones would be mostly zeros
_LARGEST_PLAIN = 21  # larger ones are no longer counted in ones
_UNLIMITED = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
TOO_LARGE = f"The result is too large: more than {MOST_DIGITS:,} digits"
TOO_SMALL = f"The result is too small: it begins after more than {MOST_DIGITS:,} zeros"


def working_context() -> Context:
    """Give the decimal context that all functions of this package expect around them."""
    traps = [DivisionByZero, InvalidOperation, Overflow, Subnormal]
    return Context(prec=60, Emin=-MOST_DIGITS, Emax=MOST_DIGITS - 1, traps=traps)


def read(digits: str) -> Number:
    """Give the number that digits, a point and an exponent spell; refuse one that is too long to hold.

    >>> read("1.5e3")
    Fraction(1500, 1)
    """
    mantissa, _, exponent = digits.lower().partition("e")
    if len(exponent.lstrip("+-0")) > len(str(MOST_DIGITS)):
        raise ToolExecutionError(TOO_SMALL if "-" in exponent else TOO_LARGE)
    value = Decimal(mantissa).scaleb(int(exponent or 0), _UNLIMITED)
    if value and value.adjusted() >= MOST_DIGITS:
        raise ToolExecutionError(TOO_LARGE)
    if value and value.adjusted() < -MOST_DIGITS:
        raise ToolExecutionError(TOO_SMALL)
    return bounded(Fraction(value))


def inexact(value: Number) -> Decimal:
    """Give a number with sixty digits."""
    if isinstance(value, Decimal):
        return value
    return Decimal(value.numerator) / Decimal(value.denominator)


def steady(value: Number) -> Fraction:
    """Give a number without the digits that are not believed.

    >>> steady(Decimal("2.9999999999999999999999999999999999999999999999999"))
    Fraction(3, 1)
    """
    return value if isinstance(value, Fraction) else Fraction(Context(prec=_SURE).plus(value))


def bounded(value: Fraction) -> Number:
    """Give a fraction, as a decimal when it would take too many digits; refuse a whole number that does."""
    if abs(value.numerator) < LIMIT and value.denominator < LIMIT:
        return value
    if value.denominator == 1:
        raise ToolExecutionError(TOO_LARGE)
    return inexact(value)


def negative(value: Number) -> Number:
    """Give the number with the other sign."""
    return -value


def magnitude(value: Number) -> Number:
    """Give the number without its sign."""
    return -value if value < 0 else value


def added(left: Number, right: Number) -> Number:
    """Give the sum; what is left when all digits that are believed cancel out is nothing.

    >>> added(Fraction(1, 10), Fraction(2, 10))
    Fraction(3, 10)
    """
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return bounded(left + right)
    first, second = inexact(left), inexact(right)
    total = first + second
    return Decimal(0) if abs(total) < max(abs(first), abs(second)) * SURE_PART else total


def subtracted(left: Number, right: Number) -> Number:
    """Give the difference."""
    return added(left, -right)


def multiplied(left: Number, right: Number) -> Number:
    """Give the product."""
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return bounded(left * right)
    return inexact(left) * inexact(right)


def divided(left: Number, right: Number) -> Number:
    """Give the quotient."""
    if not right:
        raise ToolExecutionError("Division by zero")
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return bounded(left / right)
    return inexact(left) / inexact(right)


def floor(value: Number) -> Number:
    """Give the whole number that is not above; a decimal whose end is not known stays as it is.

    >>> floor(Fraction(-7, 2))
    Fraction(-4, 1)
    """
    if isinstance(value, Decimal) and value.adjusted() >= _SURE:
        return value
    return Fraction(steady(value).__floor__())


def rounded(value: Number, places: int) -> Number:
    """Give a number rounded to some decimal places; halves go away from zero, as people learn it at school.

    >>> rounded(Fraction(-5, 2), 0)
    Fraction(-3, 1)
    """
    if isinstance(value, Decimal) and value.adjusted() + places >= _SURE:
        return value
    scale = Fraction(10) ** places
    units = (abs(steady(value)) * scale + Fraction(1, 2)).__floor__()
    return bounded((-units if value < 0 else units) / scale)


def floor_divided(left: Number, right: Number) -> Number:
    """Give the quotient, rounded down."""
    return floor(divided(left, right))


def remainder(left: Number, right: Number) -> Number:
    """Give what a division leaves, with the sign of the dividend.

    >>> remainder(Fraction(-7), Fraction(3))
    Fraction(-1, 1)
    """
    if not right:
        raise ToolExecutionError("Modulo by zero")
    times = floor(magnitude(divided(left, right)))
    rest = subtracted(magnitude(left), multiplied(times, magnitude(right)))
    return -rest if left < 0 else rest


def presented(value: Number) -> tuple[str, int | Decimal]:
    """Give a number as text and for programs: whole ones exactly, others with fifteen significant digits.

    Those with a longer whole part are rounded to it, until it is so long that they are better written as a power.

    >>> presented(Fraction(10, 3))
    ('3.33333333333333', Decimal('3.33333333333333'))
    """
    if isinstance(value, Fraction):
        if value.denominator == 1:
            return f"{Decimal(value.numerator):f}", value.numerator
        shown = _SHOWN.divide(Decimal(value.numerator), Decimal(value.denominator))
    else:
        shown = _SHOWN.plus(value)
    shown = shown.normalize(_SHOWN)
    if _SHOWN.prec <= shown.adjusted() < _LARGEST_PLAIN:
        nearest = round(Fraction(value))
        return str(nearest), nearest
    if not _SMALLEST_PLAIN <= shown.adjusted() < _LARGEST_PLAIN:
        return f"{shown:e}", shown
    whole = int(shown)
    return (str(whole), whole) if whole == shown else (f"{shown:f}", shown)
