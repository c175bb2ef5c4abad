"""Moments as people write them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

from whenever import Date, Instant, Time

from toolsemble.builtin.dates.span import AMOUNTS, UNIT, UNITS, Amount, amounts, shifted
from toolsemble.builtin.dates.zone import UTC, Aware, Moment, Zone, at, offset_of, resolved, zone_of
from toolsemble.errors import ToolExecutionError
from toolsemble.runtime.text import preview

_SHOWN = 60
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NEAR = {"today": 0, "tomorrow": 1, "yesterday": -1, "day after tomorrow": 2, "day before yesterday": -2}
NOW = r"(?:right )?now|(?:(?:what is |what's )?the )?(?:current )?time|what time is it(?: now)?"
_TODAY = r"(?:(?:what is |what's )?the )?(?:current )?date|(?:what is |what's )?today's date"
_SHIFT = re.compile(rf"([+-]) ?(-?)({AMOUNTS})", re.IGNORECASE | re.ASCII)


class UnknownMomentError(ToolExecutionError):
    """A text means no moment.

    :param text: the text
    :param advice: what to write in its place
    """

    def __init__(self, text: str, advice: str = "write the date itself, as in 2024-03-15") -> None:
        super().__init__(f"Not a date or time: {preview(text, _SHOWN)!r}; {advice}")
        self.text = text


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads moments, all of them at one time of the clock.

    >>> Reader(Instant.from_timestamp(1710505800)).read("next friday")
    Date("2024-03-22")
    """

    now: Instant
    """The time at which the question was asked."""
    zone: Zone | None = None
    """Where the moments are; UTC when nothing is said."""

    def read(self, text: str) -> Moment:
        """Give the moment that a text means; refuse one that means none."""
        for pattern, reading in _READINGS:
            if found := pattern.fullmatch(text):
                return reading(self, found)
        raise UnknownMomentError(text)

    @property
    def present(self) -> Aware:
        """The time of the clock, to the second."""
        return at(self.now.round("second", mode="floor"), UTC if self.zone is None else self.zone)


_Found: TypeAlias = re.Match[str]


def _now(reader: Reader, _: _Found) -> Moment:
    return reader.present


def _today(reader: Reader, _: _Found) -> Moment:
    return reader.present.date()


def _near(reader: Reader, found: _Found) -> Moment:
    return reader.present.date().add(days=_NEAR[found[1].lower()])


def _iso(reader: Reader, found: _Found) -> Moment:
    date = _date("-".join(part.zfill(2) for part in re.split("[-/]", found["date"])))
    name = found["bracket"] or found["zone"]
    zone = zone_of(name) if name else reader.zone
    if found["time"] is None:
        if zone is not None:
            raise ToolExecutionError(f"A date has no timezone; add a time, such as {date.format_iso()}T12:00:00")
        return date
    plain = date.at(_time(found["time"]))
    if found["offset"] is None:
        return resolved(plain, UTC if zone is None else zone)
    exact = plain.assume_fixed_offset(offset_of(found["offset"]))
    return exact if zone is None else at(exact.to_instant(), zone)


def _named(_: Reader, found: _Found) -> Moment:
    month = _MONTHS.index(found["month"].lower()) + 1
    return _date(f"{found['year']}-{month:02}-{int(found['day']):02}")


def _slashed(_: Reader, found: _Found) -> Moment:
    raise ToolExecutionError(f"{found[0]!r} can mean more than one date; write year, month and day, as in 2024-03-15")


def _shifts(reader: Reader, found: _Found) -> Moment:
    moment = reader.read(found["base"])
    for sign, negative, span in _SHIFT.findall(found["shifts"]):
        moment = _all_shifted(moment, amounts(span, -1 if (sign == "-") is not bool(negative) else 1))
    return moment


def _ahead(reader: Reader, found: _Found) -> Moment:
    return _from_here(reader, amounts(found["span"] or found["later"], 1))


def _ago(reader: Reader, found: _Found) -> Moment:
    return _from_here(reader, amounts(found["span"], -1))


def _beside(reader: Reader, found: _Found) -> Moment:
    return _all_shifted(reader.read(found["base"]), amounts(found["span"], -1 if found["side"] == "before" else 1))


def _weekday(reader: Reader, found: _Found) -> Moment:
    """Give the nearest such day: after today for next, before it for last, and today itself for this."""
    today = reader.present.date()
    ahead = (_WEEKDAYS.index(found["day"].lower()) + 1 - today.day_of_week().value) % 7
    which = (found["which"] or "this").lower()
    if which in {"last", "previous"}:
        return today.add(days=ahead - 7)
    return today.add(days=ahead or 7 * (which == "next"))


def _period(reader: Reader, found: _Found) -> Moment:
    count = Fraction(1 if found["which"].lower() == "next" else -1)
    return shifted(reader.present.date(), Amount(count, found["unit"].lower()))


def _in_zone(reader: Reader, found: _Found) -> Moment:
    reader.read(found["base"])  # what is no moment is the bad part, whatever follows
    return replace(reader, zone=zone_of(found["zone"])).read(found["base"])


def _unknown_unit(_: Reader, found: _Found) -> Moment:
    if found["unit"]:
        raise ToolExecutionError(f"Unknown unit: {preview(found['unit'], _SHOWN)!r}; units are {UNITS}")
    raise ToolExecutionError(f"Missing unit after {found['count']!r}; units are {UNITS}")


def _unknown_count(_: Reader, found: _Found) -> Moment:
    raise ToolExecutionError(
        f"Unknown number: {preview(found['count'], _SHOWN)!r}; write it in digits, as in 5 {found['unit']}"
    )


def _from_here(reader: Reader, spans: list[Amount]) -> Moment:
    """Give what lies so far from today, or from now when hours or less are asked for."""
    exact = any(span.unit in {"second", "minute", "hour"} for span in spans)
    return _all_shifted(reader.present if exact else reader.present.date(), spans)


def _all_shifted(moment: Moment, spans: list[Amount]) -> Moment:
    for span in spans:
        moment = shifted(moment, span)
    return moment


def _date(text: str) -> Date:
    try:
        return Date.parse_iso(text)
    except ValueError:
        raise ToolExecutionError(f"Invalid date: {text!r} is not in the calendar") from None


def _time(text: str) -> Time:
    try:
        return Time.parse_iso(text if text[2] == ":" else f"0{text}")
    except ValueError:
        raise ToolExecutionError(f"Invalid time: {text!r}; write it from 00:00:00 to 23:59:59") from None


_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})[a-z]*\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_DATE = r"(?P<date>\d{4}[-/]\d\d?[-/]\d\d?)"
_TIME = r"(?P<time>\d{1,2}:\d\d(?::[0-5]\d(?:\.\d{1,9})?)?) ?(?P<offset>Z|[+-]\d\d:?\d\d)?"
_ZONE = r"(?: ?\[(?P<bracket>[^\]]+)\]| (?P<zone>[a-z][\w+/-]*))?"
_READINGS: list[tuple[re.Pattern[str], Callable[[Reader, _Found], Moment]]] = [
    (re.compile(pattern, re.IGNORECASE | re.ASCII), reading)
    for pattern, reading in [
        (NOW, _now),
        (_TODAY, _today),
        (rf"(?:the )?({'|'.join(_NEAR)})", _near),
        (rf"{_DATE}(?:(?:T| ){_TIME}{_ZONE})?", _iso),
        (rf"{_DAY} {_MONTH},? (?P<year>\d{{4}})", _named),
        (rf"{_MONTH} {_DAY},? (?P<year>\d{{4}})", _named),
        (r"\d{1,2}[/.-]\d{1,2}[/.-]\d{2,4}", _slashed),
        (rf"in (?P<span>{AMOUNTS})|(?P<later>{AMOUNTS}) from (?:now|today)", _ahead),
        (rf"(?P<span>{AMOUNTS}) ago", _ago),
        (rf"(?P<span>{AMOUNTS}) (?P<side>after|before|from) (?P<base>.+)", _beside),
        (rf"(?P<base>.+?) ?(?P<shifts>(?:[+-] ?-?{AMOUNTS} ?)+)", _shifts),
        (rf"(?:(?P<which>next|last|previous|this|coming) )?(?P<day>{'|'.join(_WEEKDAYS)})", _weekday),
        (r"(?P<which>next|last|previous) (?P<unit>week|month|year)", _period),
        (r"(?P<base>.+?) in (?P<zone>.+)", _in_zone),
        (r".+? [+-] ?(?P<count>-?\d+(?:\.\d+)?) ?(?P<unit>[a-z]*)", _unknown_unit),
        (rf"(?:.+? ?\+ ?)?(?P<count>[a-z]+) (?P<unit>{UNIT})", _unknown_count),
    ]
]
