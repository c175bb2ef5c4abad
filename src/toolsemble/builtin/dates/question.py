"""Questions about moments, and their answers."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from whenever import Date, Instant

from toolsemble.builtin.dates.difference import apart
from toolsemble.builtin.dates.moment import NOW, Reader, UnknownMomentError
from toolsemble.builtin.dates.span import AMOUNT, OUT_OF_RANGE, UNIT, midnight, unit_of
from toolsemble.builtin.dates.zone import UTC, Moment, at, offset_of, written, zone_of
from toolsemble.errors import ToolExecutionError

_FORMS = (
    "write the date itself, and ask like: weekday of 2024-03-15; days between 2024-03-01 and today; "
    "2024-03-15 - today; 2024-01-31 + 1 month; now; now in Asia/Tokyo; today; next friday; in 3 days; 2 weeks ago; "
    "week of today; convert 2024-03-15T12:00:00 from UTC to America/Chicago; "
    "business days between 2024-03-01 and 2024-03-15; epoch 1710504000; epoch of 2024-03-15T12:00:00Z"
)
_LAST_SECOND = 253_402_300_799
_Found: TypeAlias = re.Match[str]


class Answer(NamedTuple):
    """What the model is told, and the value as the standard library has it."""

    text: str
    """The answer in words."""
    value: datetime.date | datetime.timedelta | int | str
    """The answer for programs."""


def answer(text: str, now: Instant) -> Answer:
    """Give the answer to a question; refuse one that is not understood.

    >>> answer("2024-01-31 + 1 month", Instant.from_timestamp(0)).text
    '2024-02-29'
    """
    question = " ".join(text.split()).rstrip("?.")
    reader = Reader(now)
    try:
        for pattern, answering in _QUESTIONS:
            if found := pattern.fullmatch(question):
                return answering(reader, found)
        return _moment(reader.read(question))
    except UnknownMomentError as problem:
        asked = question.replace(problem.text, "2024-03-15")
        said = _FORMS if problem.text == question else f"write the date itself, as in: {asked}"
        raise UnknownMomentError(problem.text, said) from None
    except (ValueError, OverflowError):  # what is left for the library to refuse are numbers beyond its calendar
        raise ToolExecutionError(OUT_OF_RANGE) from None


def _moment(moment: Moment) -> Answer:
    return Answer(written(moment), moment.to_stdlib())


def _now(reader: Reader, _: _Found) -> Answer:
    return _moment(replace(reader, zone="UTC").present)


def _converted(reader: Reader, found: _Found) -> Answer:
    source = zone_of(found["source"]) if found["source"] else None
    target = zone_of(found["target"])
    moment = replace(reader, zone=source).read(found["moment"])
    if isinstance(moment, Date):
        raise ToolExecutionError(f"A date has no timezone; add a time, such as {moment.format_iso()}T12:00:00")
    offset = _OFFSET.search(found["moment"])
    if source is not None and offset and offset_of(offset[0]) != moment.offset:
        raise ToolExecutionError(
            f"{found['moment']!r} has another offset than {found['source']}, where it is {written(moment)}; "
            "leave out the offset or the timezone"
        )
    return _moment(at(moment.to_instant(), target))


def _weekday(reader: Reader, found: _Found) -> Answer:
    name = _date_of(reader.read(found["moment"])).day_of_week().name.capitalize()
    return Answer(name, name)


def _week(reader: Reader, found: _Found) -> Answer:
    week = _date_of(reader.read(found["moment"])).iso_week_date()
    return Answer(f"{week.week} ({week.year}-W{week.week:02})", week.week)


def _to_epoch(reader: Reader, found: _Found) -> Answer:
    moment = reader.read(found["moment"])
    exact = midnight(moment) if isinstance(moment, Date) else moment
    seconds = exact.to_instant().timestamp()
    return Answer(str(seconds), seconds)


def _from_epoch(_: Reader, found: _Found) -> Answer:
    """Take seconds, and milliseconds when seconds would lie beyond the calendar."""
    count = Fraction(found["count"])
    is_milliseconds = bool(found["milli"]) or (abs(count) > _LAST_SECOND and not found["second"])
    nanoseconds = int(count * 10 ** (6 if is_milliseconds else 9))
    zone = zone_of(found["zone"]) if found["zone"] else UTC
    return _moment(at(Instant.from_timestamp(nanoseconds, unit="nanosecond"), zone))


def _difference(reader: Reader, found: _Found) -> Answer:
    parts = found.groupdict()
    start = reader.read(parts.get("start") or _same_kind(reader, parts["end"]))
    end = reader.read(parts.get("end") or _same_kind(reader, parts["start"]))
    unit = parts.get("unit") or parts.get("inside")
    return Answer(*apart(start, end, unit_of(unit) if unit else None))


def _same_kind(reader: Reader, other: str) -> str:
    """Give the word for the present that fits beside a date, or beside a time."""
    return "today" if isinstance(reader.read(other), Date) else "now"


def _date_of(moment: Moment) -> Date:
    return moment if isinstance(moment, Date) else moment.date()


_OFFSET = re.compile(r"(?<=:\d\d)(?:Z|[+-]\d\d:?\d\d)$", re.IGNORECASE | re.ASCII)
_EPOCH = r"(?:(?:unix )?(?:epoch|timestamp)|unix time|unix|epoch time)"
_COUNT = r"(?P<count>-?\d+(?:\.\d+)?)(?: ?(?:(?P<milli>ms|milliseconds?)|(?P<second>s|seconds?)))?"
_WHAT = rf"(?:(?:how many )?(?P<unit>{UNIT}) |(?:the )?(?:difference|time) )"
_INSIDE = rf"(?: in (?P<inside>{UNIT}))"
_QUESTIONS: list[tuple[re.Pattern[str], Callable[[Reader, _Found], Answer]]] = [
    (re.compile(pattern, re.IGNORECASE | re.ASCII), answering)
    for pattern, answering in [
        (NOW, _now),
        (rf"(?:from )?{_EPOCH} {_COUNT}(?: in (?P<zone>.+))?", _from_epoch),
        (r"(?P<count>\d{9,13})(?P<milli>ms)?(?P<second>s)?(?: in (?P<zone>.+))?", _from_epoch),
        (rf"{_EPOCH}(?: of| for)? (?P<moment>.+)", _to_epoch),
        (rf"(?:convert )?(?P<moment>.+?) (?:to|as|in) {_EPOCH}", _to_epoch),
        (r"convert (?P<moment>.+?)(?: from (?P<source>.+?))? (?:to|into) (?P<target>.+)", _converted),
        (r"(?:weekday|day of (?:the )?week)(?: of| for| on)? (?P<moment>.+)", _weekday),
        (r"(?:what|which) (?:week)?day (?:is|was) (?P<moment>.+)", _weekday),
        (r"(?:iso )?week(?: number)?(?: of| for)? (?P<moment>.+)", _week),
        (
            rf"{_WHAT}?(?:between|from) (?P<start>.+?) (?:and|to|until) (?P<end>.+?){_INSIDE}?",
            _difference,
        ),
        (rf"(?:(?:how many )?(?P<unit>{UNIT})|time) (?:until|till|to) (?P<end>.+)", _difference),
        (rf"(?:(?:how many )?(?P<unit>{UNIT})|time) since (?P<start>.+)", _difference),
        (rf"(?:how many )?(?P<unit>{UNIT}) (?P<start>.+?) (?:and|to|until) (?P<end>.+)", _difference),
        (rf"(?P<start>.+?) (?:to|until) (?P<end>.+?){_INSIDE}?", _difference),
        (rf"(?P<end>.+?) - (?!-?{AMOUNT}|-?\d+(?:\.\d+)? ?[a-z]*$)(?P<start>.+)", _difference),
    ]
]
