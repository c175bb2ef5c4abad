"""How far moments are from each other."""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from whenever import Date, ItemizedDateDelta

from toolsemble.builtin.dates.span import SECONDS, business_days, midnight
from toolsemble.builtin.dates.zone import Aware, Moment

_SECOND = 10**9


def apart(start: Moment, end: Moment, unit: str | None = None) -> tuple[str, datetime.timedelta | int]:
    """Give how far it is from one moment to another, in a unit and smaller ones, as text and for programs.

    >>> apart(Date(2024, 3, 1), Date(2024, 3, 15))
    ('14 days', datetime.timedelta(days=14))
    """
    first, last = _exact(start), _exact(end)
    if unit == "business day":
        count = business_days(first.date(), last.date())
        return f"{_joined([(count, unit)], unit)} (Monday to Friday, {last.date().format_iso()} not counted)", count
    span = last - first
    value = span.to_stdlib()
    if unit in {"month", "year"}:
        return _in_calendar(first.date(), last.date(), unit), value
    text = _in_clock(span.total("nanoseconds"), unit or "day")
    if unit is None and isinstance(start, Date) and isinstance(end, Date):
        calendar = _in_calendar(start, end, "year")
        return text if start == end or calendar == text else f"{text} ({calendar})", value
    return text, value


def _exact(moment: Moment) -> Aware:
    return midnight(moment) if isinstance(moment, Date) else moment


def _in_calendar(start: Date, end: Date, unit: str) -> str:
    """Give years, months and days; the day of the month decides when a month is full."""
    sign = "-" if end < start else ""
    if unit == "month":
        span: ItemizedDateDelta = start.until(end, in_units=["months", "days"])
    else:
        span = start.until(end, in_units=["years", "months", "days"])
    return sign + _joined(((abs(count), name.removesuffix("s")) for name, count in span.items()), unit)


def _in_clock(nanoseconds: int, unit: str) -> str:
    """Give exact units, from the one that is asked for down to seconds."""
    rest = abs(nanoseconds)
    parts: list[tuple[int | str, str]] = []
    names = list(SECONDS)
    for name in names[names.index(unit) :]:
        count, rest = divmod(rest, SECONDS[name] * _SECOND)
        parts.append((count, name))
    if rest:
        seconds, _ = parts.pop()
        parts.append((f"{seconds}.{rest:09}".rstrip("0"), "second"))
    return ("-" if nanoseconds < 0 else "") + _joined(parts, unit)


def _joined(parts: Iterable[tuple[int | str, str]], unit: str) -> str:
    """Give the parts that are not nothing, in words."""
    shown = [f"{count} {name}{'' if count in {1, -1} else 's'}" for count, name in parts if count]
    return " ".join(shown) or f"0 {unit}s"
