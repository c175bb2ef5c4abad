"""``datetime``: a tool that answers questions about dates, times and time zones."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TypeAlias

from toolsemble._runtime.extras import import_extra
from toolsemble._tools.base import Tool
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError, ToolExecutionError
from toolsemble._vocabulary.result import ToolResult

Clock: TypeAlias = Callable[[], datetime.datetime]
_MAX_LENGTH = 200


class DateTimeTool(Tool):
    """A tool that answers questions about dates, times and time zones.

    The structured output is a ``date``, an aware ``datetime``, a ``timedelta`` for a difference, an ``int`` for a
    count, a week or an epoch, and a ``str`` for a weekday. ``clock`` returns the current time as an aware datetime;
    the default is the system's clock.

    >>> tool = DateTimeTool(lambda: datetime.datetime(2024, 3, 15, 12, 30, tzinfo=datetime.UTC))
    >>> tool.execute("now in America/New_York").text
    '2024-03-15T08:30:00 America/New_York'
    >>> tool.execute("2024-01-31 + 1 month").structured_output
    datetime.date(2024, 2, 29)
    """

    name = "datetime"
    description = (
        "Answers questions about dates and times, such as: today, weekday of 2024-03-15, 30 days after 2024-03-15, "
        "days between 2024-01-01 and 2024-12-25. Input: one of these forms.\n"
        "- the present: now, now in Asia/Tokyo, today, today in America/New_York, tomorrow, next friday, last month\n"
        "- day of the week: weekday of 2024-03-15\n"
        "- ISO week number: week of 2024-03-15\n"
        "- days, weeks or hours between two dates: days between 2024-01-01 and 2024-12-25, weeks between 2024-01-01 "
        "and 2024-12-25, 2024-03-01 to 2024-03-15, days until 2030-01-01\n"
        "- business days: business days between 2024-03-01 and 2024-03-15 (Monday to Friday, no holidays, last date "
        "not counted), 3 business days after 2024-03-15\n"
        "- a later or earlier time: 2024-01-31 + 1 month, today + 5 days, 2024-03-15T12:00:00Z - 90 minutes, "
        "in 3 days, 2 weeks ago\n"
        "- another time zone: convert 2024-03-15T12:00:00 from UTC to America/Chicago, convert now to Asia/Kolkata\n"
        "- Unix time: epoch 1710504000, epoch of 2024-03-15T12:00:00Z\n"
        "Units: second, minute, hour, day, week, month, year, business day. Zones are names such as Europe/Berlin, or "
        "offsets such as +02:00; a time without either is UTC. next friday is the first after today."
    )
    inline = True

    def __init__(self, clock: Clock | None = None, *, name: str | None = None, description: str | None = None) -> None:
        """Check the clock, and that the extra is installed.

        :param name: another name for the model
        :param description: another description for the model
        """
        self._set_names(name, description)
        if clock is not None and not callable(clock):
            raise ToolDefinitionError(f"clock must be a callable without arguments, not {type(clock).__name__}")
        for package in ("whenever", "tzdata"):
            import_extra(package, extra="datetime", user=type(self).__name__)
        self._clock = clock or _system_clock

    def run(self, input: str) -> ToolResult:
        """Answer one question."""
        from whenever import Instant  # the constructor reports a missing extra

        from toolsemble.builtin._dates import answer

        if len(input) > _MAX_LENGTH:
            raise ToolExecutionError(f"The question is too long: {len(input):,} characters, at most {_MAX_LENGTH}")
        now: object = self._clock()
        if not isinstance(now, datetime.datetime) or now.utcoffset() is None:
            raise ToolConfigurationError(f"The clock of {self.name!r} must return an aware datetime, not {now!r:.60}")
        return ToolResult.success(*answer(input, Instant(now)))


def _system_clock() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
