"""The signs between numbers: how strongly they bind, and what they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

from toolsemble.builtin.arithmetic.number import (
    Number,
    added,
    divided,
    floor_divided,
    multiplied,
    remainder,
    subtracted,
)
from toolsemble.builtin.arithmetic.power import power


class Infix(NamedTuple):
    """A sign between two operands."""

    strength: int
    """Of two signs around an operand the stronger takes it."""
    right: int
    """How strong the signs inside the right operand must be; not above its own when it is read from the right."""
    body: Callable[[Number, Number], Number]
    """What it does."""


def percent(value: Number) -> Number:
    """Give so many hundredths."""
    return divided(value, Fraction(100))


def increased(value: Number, part: Number) -> Number:
    """Give a value and a part of it.

    >>> increased(Fraction(200), Fraction(1, 10))
    Fraction(220, 1)
    """
    return added(value, multiplied(value, part))


def decreased(value: Number, part: Number) -> Number:
    """Give a value without a part of it."""
    return subtracted(value, multiplied(value, part))


PREFIX = 3
POSTFIX = 6
INFIX: Mapping[str, Infix] = MappingProxyType(
    {
        "+": Infix(1, 2, added),
        "-": Infix(1, 2, subtracted),
        "*": Infix(2, 3, multiplied),
        "/": Infix(2, 3, divided),
        "//": Infix(2, 3, floor_divided),
        "%": Infix(2, 3, remainder),
        "of": Infix(4, 4, multiplied),
        "^": Infix(5, 5, power),
        "**": Infix(5, 5, power),
    }
)
