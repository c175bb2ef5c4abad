"""Answer questions about dates and times."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from whenever import Date, Instant

from toolsemble._vocabulary.errors import ToolExecutionError
from toolsemble.builtin._dates.difference import format_difference
from toolsemble.builtin._dates.moment import NOW, Reader, UnknownMomentError
from toolsemble.builtin._dates.span import AMOUNT, OUT_OF_RANGE, UNIT, normalize_unit, to_time
from toolsemble.builtin._dates.zone import UTC, Moment, find_zone, format_moment, parse_offset, to_zone

_FORMS = (
    "write the date itself, and ask like: weekday of 2024-03-15; days between 2024-03-01 and today; "
    "2024-03-15 - today; 2024-01-31 + 1 month; now; now in Asia/Tokyo; today; next friday; in 3 days; 2 weeks ago; "
    "week of today; convert 2024-03-15T12:00:00 from UTC to America/Chicago; "
    "business days between 2024-03-01 and 2024-03-15; epoch 1710504000; epoch of 2024-03-15T12:00:00Z"
)
_LAST_SECOND = 253_402_300_799
_Match: TypeAlias = re.Match[str]


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
    except (ValueError, OverflowError):  # the library raises these only for dates that are out of range
        raise ToolExecutionError(OUT_OF_RANGE) from None


def _answer_moment(moment: Moment) -> Answer:
    return Answer(format_moment(moment), moment.to_stdlib())


def _answer_conversion(reader: Reader, found: _Match) -> Answer:
    source = find_zone(found["source"]) if found["source"] else None
    target = find_zone(found["target"])
    moment = replace(reader, zone=source).read(found["moment"])
    if isinstance(moment, Date):
        raise ToolExecutionError(f"A date has no timezone; add a time, such as {moment.format_iso()}T12:00:00")
    offset = _OFFSET.search(found["moment"])
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


_OFFSET = re.compile(r"(?<=:\d\d)(?:Z|[+-]\d\d:?\d\d)$", re.IGNORECASE | re.ASCII)
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
