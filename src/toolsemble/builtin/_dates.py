"""Answer questions about dates and times, given in ISO format or in words."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from fractions import Fraction
from functools import cache
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import whenever
from whenever import Date, Instant, ItemizedDateDelta, OffsetDateTime, Time, TimeDelta

from toolsemble._runtime.text import preview
from toolsemble._vocabulary.errors import ToolExecutionError

_NICKNAMES_BY_ZONE = {
    "America/New_York": "est edt et eastern usa us america united_states",
    "America/Chicago": "cst cdt ct central",
    "America/Denver": "mdt mt mountain",
    "America/Los_Angeles": "pst pdt pt pacific california san_francisco",
    "America/Anchorage": "akst akdt alaska",
    "Pacific/Honolulu": "hawaii",
    "America/Halifax": "ast adt",
    "America/Toronto": "canada",
    "America/Mexico_City": "mexico",
    "America/Sao_Paulo": "brt brazil",
    "America/Argentina/Buenos_Aires": "art argentina",
    "Europe/London": "bst uk england britain united_kingdom",
    "Europe/Lisbon": "west",
    "Europe/Berlin": "cest germany",
    "Europe/Paris": "france",
    "Europe/Madrid": "spain",
    "Europe/Rome": "italy",
    "Europe/Amsterdam": "netherlands",
    "Europe/Zurich": "switzerland",
    "Europe/Stockholm": "sweden",
    "Europe/Athens": "eest greece",
    "Europe/Kyiv": "ukraine",
    "Europe/Moscow": "msk russia",
    "Africa/Johannesburg": "sast south_africa",
    "Africa/Lagos": "wat nigeria",
    "Africa/Nairobi": "eat kenya",
    "Asia/Dubai": "gst uae",
    "Asia/Karachi": "pkt pakistan",
    "Asia/Kolkata": "ist india mumbai delhi new_delhi bangalore",
    "Asia/Bangkok": "ict thailand",
    "Asia/Jakarta": "wib indonesia",
    "Asia/Singapore": "sgt",
    "Asia/Shanghai": "china beijing",
    "Asia/Hong_Kong": "hkt",
    "Asia/Seoul": "kst korea south_korea",
    "Asia/Tokyo": "jst",
    "Australia/Perth": "awst",
    "Australia/Adelaide": "acst acdt",
    "Australia/Sydney": "aest aedt australia",
    "Pacific/Auckland": "nzst nzdt new_zealand",
}
NICKNAMES: Mapping[str, str] = MappingProxyType(
    {nickname: zone for zone, nicknames in _NICKNAMES_BY_ZONE.items() for nickname in nicknames.split()}
)
"""The most likely zone by informal name in lower case."""


Zone: TypeAlias = str | whenever.TimeDelta
Aware: TypeAlias = whenever.OffsetDateTime | whenever.ZonedDateTime
Moment: TypeAlias = whenever.Date | Aware
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE | re.ASCII)
UTC = whenever.TimeDelta.ZERO
_MAX_SHOWN = 60
_MIN_SIMILARITY = 0.75  # below this ratio, the nearest name is probably not the intended one
_MAX_HOURS, _MINUTES_OF_HOUR = 23, 60


def find_zone(text: str) -> Zone:
    """Return a zone by its name, in any case, or by its offset; raise with the nearest name if it is unknown.

    >>> find_zone("europe/berlin")
    'Europe/Berlin'
    >>> find_zone("UTC+5:30")
    TimeDelta("PT5h30m")
    """
    if _OFFSET.fullmatch(text):
        return parse_offset(text)
    name = "utc" if text.upper() == "Z" else text.replace(" ", "_").lower()
    if found := _zones().get(name):
        return found
    near, similarity = (NICKNAMES[name], 1.0) if name in NICKNAMES else _find_nearest(name[:_MAX_SHOWN])
    hint = f"Did you mean {near!r}?"
    if similarity < _MIN_SIMILARITY:
        hint = f"The nearest name is {near!r}; names are such as 'Europe/Berlin', offsets such as +02:00"
    raise ToolExecutionError(f"Unknown timezone: {preview(text, _MAX_SHOWN)!r}. {hint}")


@cache
def _zones() -> Mapping[str, str]:
    """Return all zone names by lower-case name, without placeholders."""
    return {
        name.lower(): name for name in sorted(whenever.available_timezones() - {"Factory", "localtime", "posixrules"})
    }


def parse_offset(text: str) -> whenever.TimeDelta:
    """Return the offset for a text such as ``Z``, ``+02:00`` or ``UTC-5``.

    >>> parse_offset("-0330")
    TimeDelta("-PT3h30m")
    """
    found = _OFFSET.fullmatch(text)
    hours, minutes = (int(found[2]), int(found[3] or 0)) if found else (0, 0)
    if hours > _MAX_HOURS or minutes >= _MINUTES_OF_HOUR:
        raise ToolExecutionError(f"Invalid offset: {text!r}; write it from -23:59 to +23:59")
    return whenever.TimeDelta(minutes=(hours * 60 + minutes) * (-1 if found and found[1] == "-" else 1))


def _find_nearest(wanted: str) -> tuple[str, float]:
    """Return the zone whose name, or whose city, is most similar, and the similarity from 0 to 1."""
    whole = SequenceMatcher(b=wanted, autojunk=False)
    city = SequenceMatcher(b=wanted.rpartition("/")[2], autojunk=False)

    def similarity(zone: str) -> tuple[float, str]:
        whole.set_seq1(zone)
        city.set_seq1(zone.rpartition("/")[2])
        return max(whole.ratio(), city.ratio()), zone

    places = (zone for zone in _zones() if "/" in zone and not zone.startswith("etc/"))
    highest, found = max(map(similarity, places))
    return _zones()[found], highest


def to_zone(instant: whenever.Instant, zone: Zone) -> Aware:
    """Return an instant in a zone's local time."""
    return instant.to_fixed_offset(zone) if isinstance(zone, whenever.TimeDelta) else instant.to_tz(zone)


def resolve(plain: whenever.PlainDateTime, zone: Zone) -> Aware:
    """Return the moment of a zone's local time; raise if that time is skipped or repeated there.

    >>> resolve(whenever.PlainDateTime(2024, 3, 15, 8, 30), "America/New_York").to_instant()
    Instant("2024-03-15 12:30:00Z")
    """
    if isinstance(zone, whenever.TimeDelta):
        return plain.assume_fixed_offset(zone)
    try:
        return plain.assume_tz(zone, disambiguation="raise")
    except whenever.SkippedTime:
        what = f"does not exist in {zone}, where clocks are put forward then; the nearest times are"
    except whenever.RepeatedTime:
        what = f"happens twice in {zone}, where clocks are put back then:"
    earlier = plain.assume_tz(zone, disambiguation="earlier").to_fixed_offset().format_iso()
    later = plain.assume_tz(zone, disambiguation="later").to_fixed_offset().format_iso()
    raise ToolExecutionError(f"{plain.format_iso()} {what} {earlier} and {later}; send the one that is meant")


def format_moment(moment: Moment) -> str:
    """Return a moment as text: a date, a time with its offset, or a time with the name of its zone.

    >>> format_moment(whenever.Instant.from_timestamp(1710505800).to_tz("America/New_York"))
    '2024-03-15T08:30:00 America/New_York'
    """
    if isinstance(moment, whenever.Date):
        return moment.format_iso()
    fixed = moment.to_fixed_offset().format_iso()
    if isinstance(moment, whenever.OffsetDateTime):
        return f"{fixed.removesuffix('+00:00')}Z" if fixed.endswith("+00:00") else fixed
    shown = fixed if moment.is_repeated() else moment.to_plain().format_iso()
    return f"{shown} {moment.tz_id}"


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
    """Return a moment with a time: for a date, its start in UTC."""
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
        """Return the date or time in a text; raise if there is none."""
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
    """Return the nearest matching weekday: after today for ``next``, before it for ``last``, or today for ``this``."""
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


_FORMS = (
    "write the date itself, and ask like: weekday of 2024-03-15; days between 2024-03-01 and today; "
    "2024-03-15 - today; 2024-01-31 + 1 month; now; now in Asia/Tokyo; today; next friday; in 3 days; 2 weeks ago; "
    "week of today; convert 2024-03-15T12:00:00 from UTC to America/Chicago; "
    "business days between 2024-03-01 and 2024-03-15; epoch 1710504000; epoch of 2024-03-15T12:00:00Z"
)
_LAST_SECOND = 253_402_300_799


class Answer(NamedTuple):
    """An answer, as text and as a value of the standard library."""

    text: str
    """The text for the model."""
    value: datetime.date | datetime.timedelta | int | str
    """The value for programs."""


def answer(text: str, now: Instant) -> Answer:
    """Return the answer to a question; raise if it is not understood.

    >>> answer("2024-01-31 + 1 month", Instant.from_timestamp(0)).text
    '2024-02-29'
    """
    question = " ".join(text.split()).rstrip("?.")
    reader = Reader(now)
    try:
        for pattern, respond in _QUESTIONS:
            if found := pattern.fullmatch(question):
                return respond(reader, found)
        return _answer_moment(reader.read(question))
    except UnknownMomentError as problem:
        asked = question.replace(problem.text, "2024-03-15")
        advice = _FORMS if problem.text == question else f"write the date itself, as in: {asked}"
        raise UnknownMomentError(problem.text, advice) from None
    except (ValueError, OverflowError):  # the library raises these only for out-of-range dates
        raise ToolExecutionError(OUT_OF_RANGE) from None


def _answer_moment(moment: Moment) -> Answer:
    return Answer(format_moment(moment), moment.to_stdlib())


def _answer_conversion(reader: Reader, found: _Match) -> Answer:
    source = find_zone(found["source"]) if found["source"] else None
    target = find_zone(found["target"])
    moment = replace(reader, zone=source).read(found["moment"])
    if isinstance(moment, Date):
        raise ToolExecutionError(f"A date has no timezone; add a time, such as {moment.format_iso()}T12:00:00")
    offset = _MOMENT_OFFSET.search(found["moment"])
    if source is not None and offset and parse_offset(offset[0]) != moment.offset:
        raise ToolExecutionError(
            f"{found['moment']!r} has a different offset than {found['source']}, where it is {format_moment(moment)}; "
            "leave out the offset or the timezone"
        )
    return _answer_moment(to_zone(moment.to_instant(), target))


def _answer_weekday(reader: Reader, found: _Match) -> Answer:
    name = _to_date(reader.read(found["moment"])).day_of_week().name.capitalize()
    return Answer(name, name)


def _answer_week(reader: Reader, found: _Match) -> Answer:
    week = _to_date(reader.read(found["moment"])).iso_week_date()
    return Answer(f"{week.week} ({week.year}-W{week.week:02})", week.week)


def _answer_epoch(reader: Reader, found: _Match) -> Answer:
    seconds = to_time(reader.read(found["moment"])).to_instant().timestamp()
    return Answer(str(seconds), seconds)


def _answer_from_epoch(_: Reader, found: _Match) -> Answer:
    """Return the time of an epoch in seconds, or in milliseconds if seconds would be out of range."""
    count = Fraction(found["count"])
    is_milliseconds = bool(found["milli"]) or (abs(count) > _LAST_SECOND and not found["second"])
    nanoseconds = int(count * 10 ** (6 if is_milliseconds else 9))
    zone = find_zone(found["zone"]) if found["zone"] else UTC
    return _answer_moment(to_zone(Instant.from_timestamp(nanoseconds, unit="nanosecond"), zone))


def _answer_difference(reader: Reader, found: _Match) -> Answer:
    parts = found.groupdict()
    start = reader.read(parts.get("start") or _present_word(reader, parts["end"]))
    end = reader.read(parts.get("end") or _present_word(reader, parts["start"]))
    unit = parts.get("unit") or parts.get("inside")
    return Answer(*format_difference(start, end, normalize_unit(unit) if unit else None))


def _present_word(reader: Reader, other: str) -> str:
    """Return ``today`` for a date, or ``now`` for a time."""
    return "today" if isinstance(reader.read(other), Date) else "now"


def _to_date(moment: Moment) -> Date:
    return moment if isinstance(moment, Date) else moment.date()


_MOMENT_OFFSET = re.compile(r"(?<=:\d\d)(?:Z|[+-]\d\d:?\d\d)$", re.IGNORECASE | re.ASCII)
_EPOCH = r"(?:(?:unix )?(?:epoch|timestamp)|unix time|unix|epoch time)"
_COUNT = r"(?P<count>-?\d+(?:\.\d+)?)(?: ?(?:(?P<milli>ms|milliseconds?)|(?P<second>s|seconds?)))?"
_WHAT = rf"(?:(?:how many )?(?P<unit>{UNIT}) |(?:the )?(?:difference|time) )"
_ZONE_NAME = r"UTC|GMT|[a-z]+(?:/[a-z_+-]+\d*)+"  # not a date such as 3/15/2024
_INSIDE = rf"(?: in (?P<inside>{UNIT}))"
_QUESTIONS: list[tuple[re.Pattern[str], Callable[[Reader, _Match], Answer]]] = [
    (re.compile(pattern, re.IGNORECASE | re.ASCII), respond)
    for pattern, respond in [
        (NOW, lambda reader, _: _answer_moment(replace(reader, zone="UTC").present)),
        (rf"(?:from )?{_EPOCH} {_COUNT}(?: in (?P<zone>.+))?", _answer_from_epoch),
        (r"(?P<count>\d{9,13})(?P<milli>ms)?(?P<second>s)?(?: in (?P<zone>.+))?", _answer_from_epoch),
        (rf"{_EPOCH}(?: of| for)? (?P<moment>.+)", _answer_epoch),
        (rf"(?:convert )?(?P<moment>.+?) (?:to|as|in) {_EPOCH}", _answer_epoch),
        (r"convert (?P<moment>.+?)(?: from (?P<source>.+?))? (?:to|into) (?P<target>.+)", _answer_conversion),
        (r"(?:weekday|day of (?:the )?week)(?: of| for| on)? (?P<moment>.+)", _answer_weekday),
        (r"(?:what|which) (?:week)?day (?:is|was) (?P<moment>.+)", _answer_weekday),
        (r"(?:iso )?week(?: number)?(?: of| for)? (?P<moment>.+)", _answer_week),
        (
            rf"{_WHAT}?(?:between|from) (?P<start>.+?) (?:and|to|until) (?P<end>.+?){_INSIDE}?",
            _answer_difference,
        ),
        (rf"(?:(?:how many )?(?P<unit>{UNIT})|time) (?:until|till|to) (?P<end>.+)", _answer_difference),
        (rf"(?:(?:how many )?(?P<unit>{UNIT})|time) since (?P<start>.+)", _answer_difference),
        (rf"(?:how many )?(?P<unit>{UNIT}) (?P<start>.+?) (?:and|to|until) (?P<end>.+)", _answer_difference),
        (rf"(?P<moment>.+?)(?: from (?P<source>.+?))? (?:to|into) (?P<target>{_ZONE_NAME})", _answer_conversion),
        (rf"(?P<start>.+?) (?:to|until) (?P<end>.+?){_INSIDE}?", _answer_difference),
        (rf"(?P<end>.+?) - (?!-?{AMOUNT}|-?\d+(?:\.\d+)? ?[a-z]*$)(?P<start>.+)", _answer_difference),
    ]
]
