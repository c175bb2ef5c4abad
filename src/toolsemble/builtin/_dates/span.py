"""Amounts of time, such as ``2 weeks``: parse them, and add them to dates and times."""

from __future__ import annotations

import datetime
import re
from fractions import Fraction
from typing import NamedTuple

from whenever import Date, OffsetDateTime, Time, TimeDelta

from toolsemble._vocabulary.errors import ToolExecutionError
from toolsemble.builtin._dates.zone import Aware, Moment, resolve

OUT_OF_RANGE = "The result is outside the years 1 to 9999"
_UNIT_PATTERNS = {
    "second": "seconds?|secs?|s",
    "minute": "minutes?|mins?",
    "hour": "hours?|hrs?|h",
    "business day": "(?:business|working)[ _-]days?|weekdays?",
    "day": "days?|d",
    "week": "weeks?",
    "month": "months?",
    "year": "years?|yrs?",
}
SECONDS = {"week": 604_800, "day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
UNIT = "|".join(_UNIT_PATTERNS.values())
UNITS = ", ".join(_UNIT_PATTERNS)
AMOUNT = rf"(?:\d+(?:\.\d+)?|an?\b) ?(?:{UNIT})\b"
# No space can match in two ways, which would make many of them take exponential time.
AMOUNTS = rf"{AMOUNT}(?:(?:,| and)? ?{AMOUNT})*"
_AMOUNT = re.compile(rf"(\d+(?:\.\d+)?|an?\b) ?({UNIT})\b", re.IGNORECASE | re.ASCII)
_MAX_DIGITS = 15
_WORKING_DAYS = 5
_DAYS_OF_WEEK = 7


class Amount(NamedTuple):
    """A number of units of time."""

    number: Fraction
    """The number; negative for the past."""
    unit: str
    """The name of the unit, in the singular."""


def normalize_unit(text: str) -> str:
    """Return the name of a unit in the singular.

    >>> normalize_unit("Hours"), normalize_unit("working days")
    ('hour', 'business day')
    """
    return next(name for name, spelled in _UNIT_PATTERNS.items() if re.fullmatch(spelled, text, re.IGNORECASE))


def parse_amounts(text: str, sign: int) -> list[Amount]:
    """Return the amounts in a text such as ``1 hour and 30 minutes``.

    >>> parse_amounts("2 weeks", -1)
    [Amount(number=Fraction(-2, 1), unit='week')]
    """
    return [Amount(sign * _parse_count(count), normalize_unit(unit)) for count, unit in _AMOUNT.findall(text)]


def _parse_count(text: str) -> Fraction:
    if len(text) > _MAX_DIGITS:
        raise ToolExecutionError(OUT_OF_RANGE)
    return Fraction(1) if text[0] in "aA" else Fraction(text)


def shift(moment: Moment, amount: Amount) -> Moment:
    """Return a moment plus an amount; days are clamped to the end of the month, hours are exact.

    >>> shift(Date(2024, 1, 31), Amount(Fraction(1), "month"))
    Date("2024-02-29")
    """
    if amount.unit in {"second", "minute", "hour"}:
        span = TimeDelta(nanoseconds=int(amount.number * SECONDS[amount.unit] * 10**9))
        exact = to_time(moment)
        return exact.add(span, stale_offset_ok=True) if isinstance(exact, OffsetDateTime) else exact.add(span)
    if amount.number.denominator != 1:
        raise ToolExecutionError(f"Only whole {amount.unit}s can be added, not {float(amount.number):g}")
    if isinstance(moment, Date):
        return _add_to_date(moment, int(amount.number), amount.unit)
    plain = _add_to_date(moment.date(), int(amount.number), amount.unit).at(moment.time())
    return resolve(plain, moment.offset if isinstance(moment, OffsetDateTime) else str(moment.tz_id))


def to_time(moment: Moment) -> Aware:
    """Return a moment with a time: for a date, the one at which it begins in UTC."""
    return moment.at(Time()).assume_utc().to_fixed_offset() if isinstance(moment, Date) else moment


def count_business_days(start: Date, end: Date) -> int:
    """Return the number of days from Monday to Friday; the first date counts, the last does not.

    >>> count_business_days(Date(2024, 3, 1), Date(2024, 3, 15))
    10
    """
    return _business_index(end) - _business_index(start)


def _business_index(date: Date) -> int:
    """Return the number of days from Monday to Friday before a date; the first day of year 1 is a Monday."""
    weeks, day = divmod(date.to_stdlib().toordinal() - 1, _DAYS_OF_WEEK)
    return weeks * _WORKING_DAYS + min(day, _WORKING_DAYS)


def _add_to_date(date: Date, count: int, unit: str) -> Date:
    return _add_business_days(date, count) if unit == "business day" else date.add(**{f"{unit}s": count})


def _add_business_days(date: Date, count: int) -> Date:
    """Return a date plus business days; from a weekend, minus one is Friday and plus one is Monday."""
    index = _business_index(date)
    is_weekend = date.day_of_week().value > _WORKING_DAYS
    weeks, day = divmod(index + count - (is_weekend and count > 0), _WORKING_DAYS)
    return Date(datetime.date.fromordinal(weeks * _DAYS_OF_WEEK + day + 1)) if count else date
