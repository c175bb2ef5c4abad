"""Numbers that JSON cannot hold, or that nobody would read: what is told of them."""

from __future__ import annotations

import math
import re
from typing import Any, Final, Self

from toolsemble.schema.problem import Path, format_path

MOST_DIGITS: Final = 4300
"""How many digits a whole number may have: more take too long to read, so that Python and pydantic-core refuse them."""

TOO_LONG: Final = (
    f"a number has more than {MOST_DIGITS} digits; send a smaller one, or put it in quotes where text is expected"
)
"""What is told of a number with more digits than that."""

_LARGEST = 10**MOST_DIGITS
_MAX_EXACT = 2**53 - 1  # up to here, different whole numbers are different floats
_LONGEST_PLACE = 200
_LONGEST_FRACTION = 40
_INTEGER = re.compile(r"[+-]?[0-9]++")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


class LongNumberError(ValueError):
    """A number has more digits than are read."""


class WrittenFloat(float):
    """A number that remembers how it was written."""

    text: str

    def __new__(cls, text: str) -> Self:
        """Keep the text beside the value."""
        number = super().__new__(cls, text)
        number.text = text
        return number


def to_integer(number: float) -> int | None:
    """Return the integer that a number was written as; None when it has a fraction, or its last digits are not known.

    >>> to_integer(WrittenFloat("9007199254740993.0")), to_integer(5.0), to_integer(2.0**60), to_integer(5.5)
    (9007199254740993, 5, None, None)
    """
    if isinstance(number, WrittenFloat):
        return _parse_integer(number.text) if math.isfinite(number) else None
    return int(number) if number.is_integer() and -_MAX_EXACT <= number <= _MAX_EXACT else None


def is_exact(number: float) -> bool:
    """Return whether it is known how a number was written, or the number is so small that nothing was lost."""
    return math.isfinite(number) and (isinstance(number, WrittenFloat) or -_MAX_EXACT <= number <= _MAX_EXACT)


def _parse_integer(text: str) -> int | None:
    from decimal import Decimal  # noqa: PLC0415 - well-written arguments never come here

    integer, divisor = Decimal(text).as_integer_ratio()
    return integer if divisor == 1 else None


def parse_number(text: str, *, whole: bool) -> float | None:
    """Give the number that a text is, a whole one if that is wanted; None when it is none.

    >>> parse_number("5.0", whole=True), parse_number("1e3", whole=False), parse_number("five", whole=False)
    (5, 1000.0, None)
    """
    if _INTEGER.fullmatch(text):
        if len(text) > MOST_DIGITS:
            raise LongNumberError
        return int(text)
    if len(text) >= _LONGEST_FRACTION or not _NUMBER.fullmatch(text):
        return None
    number = WrittenFloat(text)
    if whole:
        return to_integer(number)
    return float(number) if math.isfinite(number) else number


def find_unwritable(value: Any) -> str:
    """Give what is wrong with the first number that JSON text cannot hold, and where it is; empty when there is none.

    >>> find_unwritable({"sizes": [1.5, float("nan")]})
    'sizes[1]: NaN is not a JSON value; send a finite number, or leave it out'
    """
    waiting: list[tuple[Path, Any]] = [((), value)]
    seen: set[int] = set()  # a program may hand over what contains itself
    while waiting:
        path, each = waiting.pop()
        if isinstance(each, (dict, list, tuple)):
            if id(each) not in seen:
                seen.add(id(each))
                inside = each.items() if isinstance(each, dict) else enumerate(each)
                waiting += [((*path, key), inner) for key, inner in inside][::-1]
        elif wrong := _describe_problem(each):
            return f"{format_path(path):.{_LONGEST_PLACE}}: {wrong}" if path else wrong
    return ""


def _describe_problem(value: object) -> str:
    if isinstance(value, int) and not -_LARGEST < value < _LARGEST:
        return TOO_LONG
    if not isinstance(value, float) or math.isfinite(value):
        return ""
    if isinstance(value, WrittenFloat):
        return f"{value.text:.20} is too large; send a number below 1e308"
    name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return f"{name} is not a JSON value; send a finite number, or leave it out"
