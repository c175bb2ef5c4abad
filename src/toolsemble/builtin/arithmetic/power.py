"""Powers, roots and logarithms."""

from __future__ import annotations

from decimal import Decimal, Subnormal, localcontext
from fractions import Fraction
from math import isqrt

from toolsemble.builtin.arithmetic.number import LIMIT, TOO_LARGE, Number, bounded, divided, inexact, steady
from toolsemble.errors import ToolExecutionError

_NEAR = Fraction(1, 10**15)  # of four terms of the series the next one is then beyond the digits that are carried


def power(base: Number, exponent: Number) -> Number:
    """Give a power: exact for whole exponents, as long as its digits can be held.

    >>> power(Fraction(2), Fraction(-3))
    Fraction(1, 8)
    """
    whole = steady(exponent)
    if not base:
        return divided(Fraction(1), base) if exponent < 0 else Fraction(not exponent)
    if whole.denominator == 1:
        return _whole_power(base, whole.numerator)
    if base < 0:
        raise ToolExecutionError("A negative number has no real power with an exponent that is not whole")
    return _endless_power(base, exponent)


def _whole_power(base: Number, exponent: int) -> Number:
    if isinstance(base, Decimal):
        return base**exponent
    if base in {-1, 1}:  # which stay small whatever the exponent
        return base ** (exponent % 2)
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if (bits - 1) * abs(exponent) <= LIMIT.bit_length():
        return bounded(base**exponent)
    if base.denominator == 1 and exponent > 0:
        raise ToolExecutionError(TOO_LARGE)
    return _endless_power(base, Fraction(exponent))


def _endless_power(base: Number, exponent: Number) -> Decimal:
    if not _is_near_one(base):
        return inexact(base) ** inexact(exponent)
    with localcontext() as context:
        context.traps[Subnormal] = False  # a power of almost nothing is one
        product = inexact(exponent) * logarithm(base)
    return product.exp()


def root(value: Number) -> Number:
    """Give the square root, exact when there is one.

    >>> root(Fraction(16, 25))
    Fraction(4, 5)
    """
    if value < 0:
        raise ToolExecutionError("The square root of a negative number is not real")
    if isinstance(value, Fraction):
        found = Fraction(isqrt(value.numerator), isqrt(value.denominator))
        if found * found == value:
            return found
    return inexact(value).sqrt()


def logarithm(value: Number) -> Decimal:
    """Give the natural logarithm of a number above 0, with all digits also of one that is almost 1.

    >>> f"{logarithm(1 + Fraction(1, 10**100)):.2e}"
    '1.00e-100'
    """
    if not _is_near_one(value):
        return inexact(value).ln()
    beyond = inexact(Fraction(value) - 1)
    with localcontext() as context:
        context.traps[Subnormal] = False  # the last terms are nothing
        terms = Decimal(0)
        for place in (4, 3, 2, 1):
            terms = 1 / Decimal(place) - beyond * terms
        return beyond * terms


def _is_near_one(value: Number) -> bool:
    """Whether a fraction differs from 1 so late that sixty digits would not hold much of the difference."""
    return isinstance(value, Fraction) and abs(value - 1) < _NEAR
