"""Exact numbers for the calculator: fractions, and decimals for irrational results.

A fraction is exact. A decimal approximates an irrational number such as a root: it carries 60 digits, of which the
last 20 are guard digits. They are ignored where they would decide: whether a number is an integer, or whether a
difference is zero. A result out of range raises ``Overflow`` or ``Subnormal``, as in the decimal module.
"""

from __future__ import annotations

from decimal import ROUND_DOWN, Context, Decimal, DivisionByZero, InvalidOperation, Overflow, Subnormal
from fractions import Fraction
from typing import TypeAlias

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
