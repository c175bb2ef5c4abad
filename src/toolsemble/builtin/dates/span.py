"""Amounts of time: read, and added to moments."""

from __future__ import annotations

import datetime
import re
from fractions import Fraction
from typing import NamedTuple

from whenever import Date, OffsetDateTime, Time, TimeDelta

from toolsemble.builtin.dates.zone import Moment, resolved
from toolsemble.errors import ToolExecutionError

OUT_OF_RANGE = "The result is outside the years 1 to 9999"
_NAMES = {
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
UNIT = "|".join(_NAMES.values())
UNITS = ", ".join(_NAMES)
AMOUNT = rf"(?:\d+(?:\.\d+)?|an?\b) ?(?:{UNIT})\b"
# No space can be read in two ways: many of them would take for ever.
AMOUNTS = rf"{AMOUNT}(?:(?:,| and)? ?{AMOUNT})*"
_AMOUNT = re.compile(rf"(\d+(?:\.\d+)?|an?\b) ?({UNIT})\b", re.IGNORECASE | re.ASCII)
_MOST_DIGITS = 15
_WORKING_DAYS = 5
_DAYS = 7


class Amount(NamedTuple):
    """So many of a unit."""

    number: Fraction
    """How many; negative for the past."""
    unit: str
    """The name of the unit, in the singular."""


def unit_of(text: str) -> str:
    """Give the name of a unit in the singular.

    >>> unit_of("Hours"), unit_of("working days")
    ('hour', 'business day')
    """
    return next(name for name, spelled in _NAMES.items() if re.fullmatch(spelled, text, re.IGNORECASE))


def amounts(text: str, sign: int) -> list[Amount]:
    """Give the amounts of a text such as ``1 hour and 30 minutes``.

    >>> amounts("2 weeks", -1)
    [Amount(number=Fraction(-2, 1), unit='week')]
    """
    return [Amount(sign * _count(count), unit_of(unit)) for count, unit in _AMOUNT.findall(text)]


def _count(text: str) -> Fraction:
    if len(text) > _MOST_DIGITS:
        raise ToolExecutionError(OUT_OF_RANGE)
    return Fraction(1) if text[0] in "aA" else Fraction(text)


def shifted(moment: Moment, amount: Amount) -> Moment:
    """Give the moment that is so far away; the ends of months clamp, hours are exact.

    >>> shifted(Date(2024, 1, 31), Amount(Fraction(1), "month"))
    Date("2024-02-29")
    """
    if amount.unit in {"second", "minute", "hour"}:
        span = TimeDelta(nanoseconds=int(amount.number * SECONDS[amount.unit] * 10**9))
        exact = midnight(moment) if isinstance(moment, Date) else moment
        return exact.add(span, stale_offset_ok=True) if isinstance(exact, OffsetDateTime) else exact.add(span)
    if amount.number.denominator != 1:
        raise ToolExecutionError(f"Only whole {amount.unit}s can be added, not {float(amount.number):g}")
    if isinstance(moment, Date):
        return _moved(moment, int(amount.number), amount.unit)
    plain = _moved(moment.date(), int(amount.number), amount.unit).at(moment.time())
    return resolved(plain, moment.offset if isinstance(moment, OffsetDateTime) else str(moment.tz_id))


def midnight(date: Date) -> OffsetDateTime:
    """Give the moment at which a date begins in UTC."""
    return date.at(Time()).assume_utc().to_fixed_offset()


def business_days(start: Date, end: Date) -> int:
    """Give the number of days from Monday to Friday; the first date counts, the last does not.

    >>> business_days(Date(2024, 3, 1), Date(2024, 3, 15))
    10
    """
    return _business_index(end) - _business_index(start)


def _business_index(date: Date) -> int:
    """Give how many days from Monday to Friday lie before a date; the first day of year 1 is a Monday."""
    weeks, day = divmod(date.to_stdlib().toordinal() - 1, _DAYS)
    return weeks * _WORKING_DAYS + min(day, _WORKING_DAYS)


def _moved(date: Date, count: int, unit: str) -> Date:
    match unit:
        case "business day":
            return _moved_in_business(date, count)
        case "day":
            return date.add(days=count)
        case "week":
            return date.add(weeks=count)
        case "month":
            return date.add(months=count)
    return date.add(years=count)


def _moved_in_business(date: Date, count: int) -> Date:
    """Give the date so many business days away; from a weekend, one back is Friday and one on is Monday."""
    index = _business_index(date)
    is_weekend = date.day_of_week().value > _WORKING_DAYS
    weeks, day = divmod(index + count - (is_weekend and count > 0), _WORKING_DAYS)
    return Date(datetime.date.fromordinal(weeks * _DAYS + day + 1)) if count else date
