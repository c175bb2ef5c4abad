"""The difference between two dates or times."""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from whenever import Date, ItemizedDateDelta

from toolsemble.builtin._dates.span import SECONDS, count_business_days, to_time
from toolsemble.builtin._dates.zone import Moment

_NANOSECONDS = 10**9


def format_difference(start: Moment, end: Moment, unit: str | None = None) -> tuple[str, datetime.timedelta | int]:
    """Return the difference between two moments, as text in a unit and smaller ones, and as a value.

    >>> format_difference(Date(2024, 3, 1), Date(2024, 3, 15))
    ('14 days', datetime.timedelta(days=14))
    """
    first, last = to_time(start), to_time(end)
    if unit == "business day":
        count = count_business_days(first.date(), last.date())
        text = _format_parts([(count, unit)], unit)
        return f"{text} (Monday to Friday, {last.date().format_iso()} not counted)", count
    span = last - first
    value = span.to_stdlib()
    if unit in {"month", "year"}:
        return _format_calendar_units(first.date(), last.date(), unit), value
    text = _format_fixed_units(span.total("nanoseconds"), unit or "day")
    if unit is None and isinstance(start, Date) and isinstance(end, Date):
        calendar = _format_calendar_units(start, end, "year")
        return text if start == end or calendar == text else f"{text} ({calendar})", value
    return text, value


def _format_calendar_units(start: Date, end: Date, unit: str) -> str:
    """Return years, months and days; a month is complete when its day of the month is reached."""
    sign = "-" if end < start else ""
    if unit == "month":
        span: ItemizedDateDelta = start.until(end, in_units=["months", "days"])
    else:
        span = start.until(end, in_units=["years", "months", "days"])
    return sign + _format_parts(((abs(count), name.removesuffix("s")) for name, count in span.items()), unit)


def _format_fixed_units(nanoseconds: int, unit: str) -> str:
    """Return units of fixed length, from the given one down to seconds."""
    rest = abs(nanoseconds)
    parts: list[tuple[int | str, str]] = []
    names = list(SECONDS)
    for name in names[names.index(unit) :]:
        count, rest = divmod(rest, SECONDS[name] * _NANOSECONDS)
        parts.append((count, name))
    if rest:
        seconds, _ = parts.pop()
        parts.append((f"{seconds}.{rest:09}".rstrip("0"), "second"))
    return ("-" if nanoseconds < 0 else "") + _format_parts(parts, unit)


def _format_parts(parts: Iterable[tuple[int | str, str]], unit: str) -> str:
    """Return the parts that are not zero, in words."""
    shown = [f"{count} {name}{'' if count in {1, -1} else 's'}" for count, name in parts if count]
    return " ".join(shown) or f"0 {unit}s"
