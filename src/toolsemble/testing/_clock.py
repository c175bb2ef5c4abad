"""A clock for tests that only moves when a test advances it."""

from __future__ import annotations

import datetime
import threading


class FixedClock:
    """A callable that returns a fixed, aware datetime.

    Pass :meth:`time` if seconds are expected.

    >>> from toolsemble.builtin import DateTimeTool
    >>> clock = FixedClock("2024-02-28T23:30:00+00:00")
    >>> tool = DateTimeTool(clock)
    >>> tool.execute("today").text
    '2024-02-28'
    >>> clock.advance(hours=1)
    >>> tool.execute("today").text, clock.time()
    ('2024-02-29', 1709166600.0)
    """

    def __init__(self, now: str | datetime.datetime = "2024-01-01T00:00:00+00:00") -> None:
        """Set the time; raise ``ValueError`` if it has no time zone.

        :param now: an aware datetime, or its text in ISO 8601
        """
        self._lock = threading.Lock()
        self._now = _parse_aware(now)

    def __call__(self) -> datetime.datetime:
        """Return the time."""
        return self._now

    def time(self) -> float:
        """Return the time in seconds since the epoch, like ``time.time``."""
        return self._now.timestamp()

    def advance(self, seconds: float = 0.0, **units: float) -> None:
        """Move the clock by seconds or by the units of a ``timedelta``; negative numbers move it back.

        >>> clock = FixedClock()
        >>> clock.advance(90)
        >>> clock.advance(days=1, minutes=1)
        >>> str(clock)
        '2024-01-02T00:02:30+00:00'
        """
        with self._lock:
            self._now += datetime.timedelta(seconds=seconds, **units)

    def set(self, now: str | datetime.datetime) -> None:
        """Set the clock to another time.

        >>> clock = FixedClock()
        >>> clock.set("2030-01-01T12:00:00Z")
        >>> clock().year
        2030
        """
        with self._lock:
            self._now = _parse_aware(now)

    def __str__(self) -> str:
        return self._now.isoformat()

    def __repr__(self) -> str:
        return f"FixedClock({self._now.isoformat()!r})"


def _parse_aware(now: str | datetime.datetime) -> datetime.datetime:
    moment = datetime.datetime.fromisoformat(now) if isinstance(now, str) else now
    if moment.utcoffset() is None:
        raise ValueError(f"FixedClock needs a time zone: write {moment.isoformat()}+00:00 for UTC")
    return moment
