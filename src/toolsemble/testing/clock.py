"""A clock that stands still until it is put forward."""

from __future__ import annotations

import datetime
import threading


class FixedClock:
    """The time as a test wants it: for whatever takes a function that gives an aware datetime.

    Where seconds are wanted in place of a datetime, hand over :meth:`time`.

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
        """Take down the time; refuse one without a time zone.

        :param now: an aware datetime, or its text in ISO 8601
        """
        self._lock = threading.Lock()
        self._now = _aware(now)

    def __call__(self) -> datetime.datetime:
        """Give the time."""
        return self._now

    def time(self) -> float:
        """Give the time in seconds since the epoch, as ``time.time`` does."""
        return self._now.timestamp()

    def advance(self, seconds: float = 0.0, **units: float) -> None:
        """Put the clock forward, by seconds or by the units of a ``timedelta``; a negative number puts it back.

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
            self._now = _aware(now)

    def __str__(self) -> str:
        return self._now.isoformat()

    def __repr__(self) -> str:
        return f"FixedClock({self._now.isoformat()!r})"


def _aware(now: str | datetime.datetime) -> datetime.datetime:
    moment = datetime.datetime.fromisoformat(now) if isinstance(now, str) else now
    if moment.utcoffset() is None:
        raise ValueError(f"FixedClock needs a time zone: write {moment.isoformat()}+00:00 for UTC")
    return moment
