"""Parse numbers in JSON without losing digits, and report numbers that JSON cannot represent."""

from __future__ import annotations

import math
import re
from typing import Any, Final, Self

from toolsemble._schema.argument_problems import Path, format_path

MOST_DIGITS: Final = 4300
"""The maximum number of digits of an integer; Python and pydantic-core reject more."""

TOO_LONG: Final = (
    f"a number has more than {MOST_DIGITS} digits; send a smaller one, or put it in quotes where text is expected"
)
"""The message for an integer with more digits."""

_LARGEST = 10**MOST_DIGITS
_MAX_EXACT = 2**53 - 1  # up to this number, different integers are different floats
_LONGEST_PLACE = 200
_LONGEST_FRACTION = 40
_INTEGER = re.compile(r"[+-]?[0-9]++")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


class LongNumberError(ValueError):
    """An integer with more than MOST_DIGITS digits."""


class WrittenFloat(float):
    """A float that keeps the text it was parsed from."""

    text: str

    def __new__(cls, text: str) -> Self:
        """Parse the text and keep it."""
        number = super().__new__(cls, text)
        number.text = text
        return number


def to_integer(number: float) -> int | None:
    """Return the integer with which a number was written; None if it has a fraction, or its last digits are unknown.

    >>> to_integer(WrittenFloat("9007199254740993.0")), to_integer(5.0), to_integer(2.0**60), to_integer(5.5)
    (9007199254740993, 5, None, None)
    """
    if isinstance(number, WrittenFloat):
        return _parse_integer(number.text) if math.isfinite(number) else None
    return int(number) if number.is_integer() and -_MAX_EXACT <= number <= _MAX_EXACT else None


def is_exact(number: float) -> bool:
    """Return whether a float has lost no digits: its text is known, or it is small enough."""
    return math.isfinite(number) and (isinstance(number, WrittenFloat) or -_MAX_EXACT <= number <= _MAX_EXACT)


def _parse_integer(text: str) -> int | None:
    from decimal import Decimal

    integer, divisor = Decimal(text).as_integer_ratio()
    return integer if divisor == 1 else None


def parse_number(text: str, *, whole: bool) -> float | None:
    """Return the number in a text; with ``whole``, only an integer. None if the text is not such a number.

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
    """Return the path and the problem of the first number that JSON cannot represent; empty if there is none.

    >>> find_unwritable({"sizes": [1.5, float("nan")]})
    'sizes[1]: NaN is not a JSON value; send a finite number, or leave it out'
    """
    waiting: list[tuple[Path, Any]] = [((), value)]
    seen: set[int] = set()  # a Python object may contain itself
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
