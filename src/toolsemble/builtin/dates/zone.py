"""Time zones by name or by offset."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import SequenceMatcher
from functools import cache
from typing import TypeAlias

from whenever import (
    Date,
    Instant,
    OffsetDateTime,
    PlainDateTime,
    RepeatedTime,
    SkippedTime,
    TimeDelta,
    ZonedDateTime,
    available_timezones,
)

from toolsemble.builtin.dates.nickname import NICKNAMES
from toolsemble.errors import ToolExecutionError
from toolsemble.runtime.text import preview

Zone: TypeAlias = str | TimeDelta
Aware: TypeAlias = OffsetDateTime | ZonedDateTime
Moment: TypeAlias = Date | Aware
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE | re.ASCII)
UTC = TimeDelta.ZERO
_LONGEST = 60
_LIKE = 0.75  # below this, another zone is meant
_MOST_HOURS, _MINUTES = 23, 60


def zone_of(text: str) -> Zone:
    """Give a zone by its name, in any case, or by its offset; refuse others, naming the nearest.

    >>> zone_of("europe/berlin")
    'Europe/Berlin'
    >>> zone_of("UTC+5:30")
    TimeDelta("PT5h30m")
    """
    if _OFFSET.fullmatch(text):
        return offset_of(text)
    name = "utc" if text.upper() == "Z" else text.replace(" ", "_").lower()
    if found := _zones().get(name):
        return found
    near, likeness = (NICKNAMES[name], 1.0) if name in NICKNAMES else _nearest(name[:_LONGEST])
    hint = f"Did you mean {near!r}?"
    if likeness < _LIKE:
        hint = f"The nearest name is {near!r}; names are such as 'Europe/Berlin', offsets such as +02:00"
    raise ToolExecutionError(f"Unknown timezone: {preview(text, _LONGEST)!r}. {hint}")


@cache
def _zones() -> Mapping[str, str]:
    """Give the names of all zones by their names in lower case; those without a place and a rule are none."""
    return {name.lower(): name for name in sorted(available_timezones() - {"Factory", "localtime", "posixrules"})}


def offset_of(text: str) -> TimeDelta:
    """Give the offset that a text such as ``Z``, ``+02:00`` or ``UTC-5`` spells.

    >>> offset_of("-0330")
    TimeDelta("-PT3h30m")
    """
    found = _OFFSET.fullmatch(text)
    hours, minutes = (int(found[2]), int(found[3] or 0)) if found else (0, 0)
    if hours > _MOST_HOURS or minutes >= _MINUTES:
        raise ToolExecutionError(f"Invalid offset: {text!r}; write it from -23:59 to +23:59")
    return TimeDelta(minutes=(hours * 60 + minutes) * (-1 if found and found[1] == "-" else 1))


def _nearest(wanted: str) -> tuple[str, float]:
    """Give the place whose name, or whose city, is most like this one, and how like it is."""
    whole = SequenceMatcher(b=wanted, autojunk=False)
    city = SequenceMatcher(b=wanted.rpartition("/")[2], autojunk=False)

    def likeness(zone: str) -> tuple[float, str]:
        whole.set_seq1(zone)
        city.set_seq1(zone.rpartition("/")[2])
        return max(whole.ratio(), city.ratio()), zone

    places = (zone for zone in _zones() if "/" in zone and not zone.startswith("etc/"))
    likest, found = max(map(likeness, places))
    return _zones()[found], likest


def at(instant: Instant, zone: Zone) -> Aware:
    """Give what the clocks in a zone show."""
    return instant.to_fixed_offset(zone) if isinstance(zone, TimeDelta) else instant.to_tz(zone)


def resolved(plain: PlainDateTime, zone: Zone) -> Aware:
    """Give the moment at which the clocks of a zone show this; refuse when they never do, or do twice.

    >>> resolved(PlainDateTime(2024, 3, 15, 8, 30), "America/New_York").to_instant()
    Instant("2024-03-15 12:30:00Z")
    """
    if isinstance(zone, TimeDelta):
        return plain.assume_fixed_offset(zone)
    try:
        return plain.assume_tz(zone, disambiguation="raise")
    except SkippedTime:
        what = f"does not exist in {zone}, where clocks are put forward then; the nearest times are"
    except RepeatedTime:
        what = f"happens twice in {zone}, where clocks are put back then:"
    earlier = plain.assume_tz(zone, disambiguation="earlier").to_fixed_offset().format_iso()
    later = plain.assume_tz(zone, disambiguation="later").to_fixed_offset().format_iso()
    raise ToolExecutionError(f"{plain.format_iso()} {what} {earlier} and {later}; send the one that is meant")


def written(moment: Moment) -> str:
    """Give a moment as text: a date, a time with its offset, or a time with the name of its zone.

    >>> written(Instant.from_timestamp(1710505800).to_tz("America/New_York"))
    '2024-03-15T08:30:00 America/New_York'
    """
    if isinstance(moment, Date):
        return moment.format_iso()
    fixed = moment.to_fixed_offset().format_iso()
    if isinstance(moment, OffsetDateTime):
        return f"{fixed.removesuffix('+00:00')}Z" if fixed.endswith("+00:00") else fixed
    shown = fixed if moment.is_repeated() else moment.to_plain().format_iso()
    return f"{shown} {moment.tz_id}"
