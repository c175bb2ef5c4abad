"""Find time zones by name, nickname or offset, and convert times between them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import SequenceMatcher
from functools import cache
from types import MappingProxyType
from typing import TypeAlias

import whenever

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
