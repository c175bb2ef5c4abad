"""Parse dates and times in ISO format and in words, such as ``next friday`` or ``in 3 days``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

from whenever import Date, Instant, Time

from toolsemble._runtime.text import preview
from toolsemble._vocabulary.errors import ToolExecutionError
from toolsemble.builtin._dates.span import AMOUNTS, UNIT, UNITS, Amount, parse_amounts, shift
from toolsemble.builtin._dates.zone import UTC, Aware, Moment, Zone, find_zone, parse_offset, resolve, to_zone

_SHOWN = 60
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NEAR = {"today": 0, "tomorrow": 1, "yesterday": -1, "day after tomorrow": 2, "day before yesterday": -2}
NOW = r"(?:right )?now|(?:(?:what is |what's )?the )?(?:current )?time|what time is it(?: now)?"
_TODAY = r"(?:(?:what is |what's )?the )?(?:current )?date|(?:what is |what's )?today's date"
_SHIFT = re.compile(rf"([+-]) ?(-?)({AMOUNTS})", re.IGNORECASE | re.ASCII)


class UnknownMomentError(ToolExecutionError):
    """A text is not a date or time.

    :param text: the text
    :param advice: what to write instead
    """

    def __init__(self, text: str, advice: str = "write the date itself, as in 2024-03-15") -> None:
        super().__init__(f"Not a date or time: {preview(text, _SHOWN)!r}; {advice}")
        self.text = text


@dataclass(frozen=True, slots=True)
class Reader:
    """A parser of dates and times, relative to one point in time.

    >>> Reader(Instant.from_timestamp(1710505800)).read("next friday")
    Date("2024-03-22")
    """

    now: Instant
    """The current time."""
    zone: Zone | None = None
    """The zone of times without one; None: UTC."""

    def read(self, text: str) -> Moment:
        """Return the date or time that a text means; raise if it means none."""
        for pattern, read in _PATTERNS:
            if found := pattern.fullmatch(text):
                return read(self, found)
        raise UnknownMomentError(text)

    @property
    def present(self) -> Aware:
        """The current time in the zone, to the second."""
        return to_zone(self.now.round("second", mode="floor"), UTC if self.zone is None else self.zone)


_Match: TypeAlias = re.Match[str]


def _read_iso(reader: Reader, found: _Match) -> Moment:
    date = _parse_date("-".join(part.zfill(2) for part in re.split("[-/]", found["date"])))
    name = found["bracket"] or found["zone"]
    zone = find_zone(name) if name else reader.zone
    if found["time"] is None:
        if zone is not None:
            raise ToolExecutionError(f"A date has no timezone; add a time, such as {date.format_iso()}T12:00:00")
        return date
    plain = date.at(_parse_time(found["time"]))
    if found["offset"] is None:
        return resolve(plain, UTC if zone is None else zone)
    exact = plain.assume_fixed_offset(parse_offset(found["offset"]))
    return exact if zone is None else to_zone(exact.to_instant(), zone)


def _read_named_month(_: Reader, found: _Match) -> Moment:
    month = _MONTHS.index(found["month"].lower()) + 1
    return _parse_date(f"{found['year']}-{month:02}-{int(found['day']):02}")


def _reject_ambiguous(_: Reader, found: _Match) -> Moment:
    raise ToolExecutionError(f"{found[0]!r} can mean more than one date; write year, month and day, as in 2024-03-15")


def _read_shifts(reader: Reader, found: _Match) -> Moment:
    moment = reader.read(found["base"])
    for sign, negative, span in _SHIFT.findall(found["shifts"]):
        moment = _shift_all(moment, parse_amounts(span, -1 if (sign == "-") is not bool(negative) else 1))
    return moment


def _read_distance(reader: Reader, found: _Match) -> Moment:
    """Return today plus or minus the amounts, or now plus or minus them if one is in hours or less."""
    spans = parse_amounts(found["ahead"] or found["later"] or found["ago"], -1 if found["ago"] else 1)
    exact = any(span.unit in {"second", "minute", "hour"} for span in spans)
    return _shift_all(reader.present if exact else reader.present.date(), spans)


def _read_relative(reader: Reader, found: _Match) -> Moment:
    return _shift_all(reader.read(found["base"]), parse_amounts(found["span"], -1 if found["side"] == "before" else 1))


def _read_weekday(reader: Reader, found: _Match) -> Moment:
    """Return the nearest such day: after today for ``next``, before it for ``last``, or today for ``this``."""
    today = reader.present.date()
    ahead = (_WEEKDAYS.index(found["day"].lower()) + 1 - today.day_of_week().value) % 7
    which = (found["which"] or "this").lower()
    if which in {"last", "previous"}:
        return today.add(days=ahead - 7)
    return today.add(days=ahead or 7 * (which == "next"))


def _read_period(reader: Reader, found: _Match) -> Moment:
    count = Fraction(1 if found["which"].lower() == "next" else -1)
    return shift(reader.present.date(), Amount(count, found["unit"].lower()))


def _read_in_zone(reader: Reader, found: _Match) -> Moment:
    reader.read(found["base"])  # an invalid moment is reported before an invalid zone
    return replace(reader, zone=find_zone(found["zone"])).read(found["base"])


def _reject_unit(_: Reader, found: _Match) -> Moment:
    if found["unit"]:
        raise ToolExecutionError(f"Unknown unit: {preview(found['unit'], _SHOWN)!r}; units are {UNITS}")
    raise ToolExecutionError(f"Missing unit after {found['count']!r}; units are {UNITS}")


def _reject_count(_: Reader, found: _Match) -> Moment:
    raise ToolExecutionError(
        f"Unknown number: {preview(found['count'], _SHOWN)!r}; write it in digits, as in 5 {found['unit']}"
    )


def _shift_all(moment: Moment, spans: list[Amount]) -> Moment:
    for span in spans:
        moment = shift(moment, span)
    return moment


def _parse_date(text: str) -> Date:
    try:
        return Date.parse_iso(text)
    except ValueError:
        raise ToolExecutionError(f"Invalid date: {text!r} is not in the calendar") from None


def _parse_time(text: str) -> Time:
    try:
        return Time.parse_iso(text if text[2] == ":" else f"0{text}")
    except ValueError:
        raise ToolExecutionError(f"Invalid time: {text!r}; write it from 00:00:00 to 23:59:59") from None


_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})[a-z]*\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_DATE = r"(?P<date>\d{4}[-/]\d\d?[-/]\d\d?)"
_TIME = r"(?P<time>\d{1,2}:\d\d(?::[0-5]\d(?:\.\d{1,9})?)?) ?(?P<offset>Z|[+-]\d\d:?\d\d)?"
_ZONE = r"(?: ?\[(?P<bracket>[^\]]+)\]| (?P<zone>[a-z][\w+/-]*))?"
_PATTERNS: list[tuple[re.Pattern[str], Callable[[Reader, _Match], Moment]]] = [
    (re.compile(pattern, re.IGNORECASE | re.ASCII), read)
    for pattern, read in [
        (NOW, lambda reader, _: reader.present),
        (_TODAY, lambda reader, _: reader.present.date()),
        (
            rf"(?:the )?({'|'.join(_NEAR)})",
            lambda reader, found: reader.present.date().add(days=_NEAR[found[1].lower()]),
        ),
        (rf"{_DATE}(?:(?:T| ){_TIME}{_ZONE})?", _read_iso),
        (rf"{_DAY} {_MONTH},? (?P<year>\d{{4}})", _read_named_month),
        (rf"{_MONTH} {_DAY},? (?P<year>\d{{4}})", _read_named_month),
        (r"\d{1,2}[/.-]\d{1,2}[/.-]\d{2,4}", _reject_ambiguous),
        (rf"in (?P<ahead>{AMOUNTS})|(?P<later>{AMOUNTS}) from (?:now|today)|(?P<ago>{AMOUNTS}) ago", _read_distance),
        (rf"(?P<span>{AMOUNTS}) (?P<side>after|before|from) (?P<base>.+)", _read_relative),
        (rf"(?P<base>.+?) ?(?P<shifts>(?:[+-] ?-?{AMOUNTS} ?)+)", _read_shifts),
        (rf"(?:(?P<which>next|last|previous|this|coming) )?(?P<day>{'|'.join(_WEEKDAYS)})", _read_weekday),
        (r"(?P<which>next|last|previous) (?P<unit>week|month|year)", _read_period),
        (r"(?P<base>.+?) in (?P<zone>.+)", _read_in_zone),
        (r".+? [+-] ?(?P<count>-?\d+(?:\.\d+)?) ?(?P<unit>[a-z]*)", _reject_unit),
        (rf"(?:.+? ?\+ ?)?(?P<count>[a-z]+) (?P<unit>{UNIT})", _reject_count),
    ]
]
