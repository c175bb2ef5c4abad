"""Sine, cosine and tangent with as many digits as all other numbers."""

from __future__ import annotations

from decimal import Context, Decimal, Subnormal, localcontext

from toolsemble.builtin.arithmetic.number import SURE_PART, Number, inexact, magnitude, presented
from toolsemble.errors import ToolExecutionError

PI = Decimal("3.1415926535897932384626433832795028841971693993751058209749445923078164062862089986280348253421170680")
TAU = Context(prec=100).add(PI, PI)
_LARGEST = 10**30  # turning back a larger angle would use up the digits above


def sine(angle: Number) -> Number:
    """Give the sine of an angle in radians.

    >>> sine(PI)
    Decimal('0')
    """
    return _sine("sin", angle, 0)


def cosine(angle: Number) -> Number:
    """Give the cosine of an angle in radians."""
    return _sine("cos", angle, 1)


def tangent(angle: Number) -> Number:
    """Give the tangent of an angle in radians; refuse where there is none."""
    below = _sine("tan", angle, 1)
    if not below:
        raise ToolExecutionError(f"tan is not defined at {presented(angle)[0]}")
    return _sine("tan", angle, 0) / below


def _sine(name: str, angle: Number, quarters: int) -> Decimal:
    """Give the sine of an angle and some quarters of a turn."""
    if magnitude(angle) > _LARGEST:
        raise ToolExecutionError(f"{name} needs an angle between -10^30 and 10^30, not {presented(angle)[0]}")
    with localcontext() as context:
        context.prec = 100
        context.traps[Subnormal] = False  # the last terms for a small angle are nothing
        full = inexact(angle)
        turns = (full / (PI / 2)).to_integral_value()
        rest = full - turns * PI / 2
        if isinstance(angle, Decimal) and abs(rest) < abs(full) * SURE_PART:
            rest = Decimal(0)
        quarter = (int(turns) + quarters) % 4
        size = _series(Decimal(1), rest, 0) if quarter % 2 else _series(rest, rest, 1)
    return +size if quarter < 2 else -size  # noqa: PLR2004 - the second half of a turn


def _series(first: Decimal, angle: Decimal, power: int) -> Decimal:
    """Give the series that begins with a term of this power of the angle."""
    total, term = Decimal(0), first
    while total + term != total:
        total += term
        power += 2
        term *= -angle * angle / (power * (power - 1))
    return total
