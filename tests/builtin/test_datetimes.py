"""Tests of the tool for dates, times and time zones."""

from __future__ import annotations

import datetime
import os
import re
import subprocess
import sys
import zoneinfo

import pytest
from hypothesis import given, settings, strategies as st

from toolsemble import Toolbox, ToolCall
from toolsemble._runtime.extras import install_command
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError
from toolsemble.builtin import DateTimeTool

pytestmark = pytest.mark.slow

UTC = datetime.UTC
NOW = datetime.datetime(2024, 3, 15, 12, 30, 0, 999_999, tzinfo=UTC)  # a Friday
TOOL = DateTimeTool(lambda: NOW)
NO_ZONE = "Unknown timezone: '{}'. The nearest name is '{}'; names are such as 'Europe/Berlin', offsets such as +02:00"
UNITS = "units are second, minute, hour, business day, day, week, month, year"
OUT_OF_RANGE = "The result is outside the years 1 to 9999"


def parse_table(text):
    """Return the rows of a table of questions and answers."""
    return [tuple(part.strip() for part in line.split("=>")) for line in text.strip().splitlines()]


@pytest.mark.parametrize(
    ("question", "answer"),
    parse_table(
        """
        now => 2024-03-15T12:30:00 UTC
        Now? => 2024-03-15T12:30:00 UTC
        right now => 2024-03-15T12:30:00 UTC
        current time => 2024-03-15T12:30:00 UTC
        what time is it? => 2024-03-15T12:30:00 UTC
        what's the time => 2024-03-15T12:30:00 UTC
        what time is it in Asia/Tokyo => 2024-03-15T21:30:00 Asia/Tokyo
        current date => 2024-03-15
        what is today's date? => 2024-03-15
        the current date in Pacific/Auckland => 2024-03-16
        now in America/New_York => 2024-03-15T08:30:00 America/New_York
        NOW  in  america/new_york => 2024-03-15T08:30:00 America/New_York
        now in UTC => 2024-03-15T12:30:00 UTC
        now in Z => 2024-03-15T12:30:00 UTC
        now in Etc/GMT+5 => 2024-03-15T07:30:00 Etc/GMT+5
        now in +02:00 => 2024-03-15T14:30:00+02:00
        now in UTC+5:30 => 2024-03-15T18:00:00+05:30
        time in Asia/Kathmandu => 2024-03-15T18:15:00 Asia/Kathmandu
        today => 2024-03-15
        today in Pacific/Auckland => 2024-03-16
        tomorrow => 2024-03-16
        tomorrow in Pacific/Auckland => 2024-03-17
        yesterday => 2024-03-14
        the day after tomorrow => 2024-03-17
        day before yesterday => 2024-03-13
        next friday => 2024-03-22
        friday => 2024-03-15
        this friday => 2024-03-15
        last Friday => 2024-03-08
        next monday => 2024-03-18
        this saturday => 2024-03-16
        coming sunday => 2024-03-17
        previous thursday => 2024-03-14
        next friday in Pacific/Auckland => 2024-03-22
        next week => 2024-03-22
        last week => 2024-03-08
        next month => 2024-04-15
        previous year => 2023-03-15
        in 3 days => 2024-03-18
        in a week => 2024-03-22
        in 90 minutes => 2024-03-15T14:00:00Z
        in 1 hour and 30 minutes => 2024-03-15T14:00:00Z
        2 weeks ago => 2024-03-01
        an hour ago => 2024-03-15T11:30:00Z
        3 days from now => 2024-03-18
        2 months from today => 2024-05-15
        in 3 hours in Asia/Tokyo => 2024-03-16T00:30:00 Asia/Tokyo
        3 days after 2024-02-28 => 2024-03-02
        2 weeks before next friday => 2024-03-08
        1 month from 2024-01-31 => 2024-02-29
        """
    ),
)
def test_now_and_relative_words(question, answer):
    assert TOOL.execute(question).text == answer


@pytest.mark.parametrize(
    ("question", "answer"),
    parse_table(
        """
        2024-03-15 + 5 days => 2024-03-20
        2024-03-15 - 1 day => 2024-03-14
        2024-03-15+2 weeks => 2024-03-29
        2024-01-31 + 1 month => 2024-02-29
        2023-01-31 + 1 month => 2023-02-28
        2024-03-31 - 1 month => 2024-02-29
        2024-02-29 + 1 year => 2025-02-28
        2024-02-29 + 4 years => 2028-02-29
        2024-01-31 + 1 month - 1 day => 2024-02-28
        2024-01-31 + 1 month, 1 day => 2024-03-01
        2024-03-15 + 36 hours => 2024-03-16T12:00:00Z
        2024/03/15 + 0 days => 2024-03-15
        2024-3-5 + 1 day => 2024-03-06
        2024/3/15 9:05 => 2024-03-15T09:05:00Z
        2024-03-15 + -5 days => 2024-03-10
        2024-03-15 - -5 days => 2024-03-20
        2024-03-15 +-5 days - 1 day => 2024-03-09
        March 15, 2024 => 2024-03-15
        Sept 1st 2024 + 1 day => 2024-09-02
        15 Mar 2024 + 1 week => 2024-03-22
        today + 5 days => 2024-03-20
        now - 2 hours => 2024-03-15T10:30:00Z
        now + 1 second => 2024-03-15T12:30:01Z
        now + 1 min => 2024-03-15T12:31:00Z
        now + 1.5 hours => 2024-03-15T14:00:00Z
        now in America/New_York + 2 hours => 2024-03-15T10:30:00 America/New_York
        now + 2 hours in Asia/Tokyo => 2024-03-15T23:30:00 Asia/Tokyo
        2024-03-15T12:00:00 + 1 hour => 2024-03-15T13:00:00Z
        2024-03-15T12:00:00Z + 1 hour => 2024-03-15T13:00:00Z
        2024-03-15t12:00:00z + 1 hour => 2024-03-15T13:00:00Z
        2024-03-15T12:00:00+02:00 + 1 hour => 2024-03-15T13:00:00+02:00
        2024-03-15T12:00:00-0530 + 1 month => 2024-04-15T12:00:00-05:30
        2024-01-31T12:00:00-05:00 + 1 month => 2024-02-29T12:00:00-05:00
        2024-03-15 14:30 => 2024-03-15T14:30:00Z
        2024-03-15 9:05 + 1 minute => 2024-03-15T09:06:00Z
        2024-03-15 09:05:07 + 1 year => 2025-03-15T09:05:07Z
        2024-03-15T12:00:00.25Z + 1 second => 2024-03-15T12:00:01.25Z
        2024-03-15T12:00:00Z in Asia/Tokyo => 2024-03-15T21:00:00 Asia/Tokyo
        2024-03-15T12:00:00[Asia/Tokyo] => 2024-03-15T12:00:00 Asia/Tokyo
        2024-03-15T08:30:00 America/New_York => 2024-03-15T08:30:00 America/New_York
        2024-03-15 08:30 UTC => 2024-03-15T08:30:00 UTC
        2024-03-15 + 1 business day => 2024-03-18
        2024-03-15 + 5 business days => 2024-03-22
        2024-03-15 + 5 business_days => 2024-03-22
        2024-03-16 + 1 business day => 2024-03-18
        2024-03-17 + 1 weekday => 2024-03-18
        2024-03-16 - 1 business day => 2024-03-15
        2024-03-17 - 6 business days => 2024-03-08
        2024-03-16 + 0 business days => 2024-03-16
        3 working days before 2024-03-18 => 2024-03-13
        2024-03-15T09:00:00 America/New_York + 1 business day => 2024-03-18T09:00:00 America/New_York
        """
    ),
)
def test_durations_are_added_and_subtracted(question, answer):
    assert TOOL.execute(question).text == answer


@pytest.mark.parametrize(
    ("question", "answer"),
    parse_table(
        """
        convert 2024-03-15T12:00:00 from UTC to America/Chicago => 2024-03-15T07:00:00 America/Chicago
        convert 2024-03-15T12:00:00Z to America/Chicago => 2024-03-15T07:00:00 America/Chicago
        convert 2024-03-15T12:00:00Z from UTC to America/Chicago => 2024-03-15T07:00:00 America/Chicago
        convert 2024-03-15 12:00 from Asia/Tokyo to +00:00 => 2024-03-15T03:00:00Z
        convert 2024-03-15T12:00:00-04:00 from America/New_York to UTC => 2024-03-15T16:00:00 UTC
        convert now to Asia/Kolkata => 2024-03-15T18:00:00 Asia/Kolkata
        convert 2024-07-01T12:00:00 from Europe/London into Europe/Berlin => 2024-07-01T13:00:00 Europe/Berlin
        2024-03-15T12:00:00 UTC to America/Chicago => 2024-03-15T07:00:00 America/Chicago
        2024-03-15T12:00:00 from UTC to America/Chicago => 2024-03-15T07:00:00 America/Chicago
        now to Asia/Kolkata => 2024-03-15T18:00:00 Asia/Kolkata
        """
    ),
)
def test_times_are_converted_between_zones(question, answer):
    assert TOOL.execute(question).text == answer


@pytest.mark.parametrize(
    ("question", "answer"),
    parse_table(
        """
        convert 2024-11-03T05:30:00Z to America/New_York => 2024-11-03T01:30:00-04:00 America/New_York
        convert 2024-11-03T06:30:00Z to America/New_York => 2024-11-03T01:30:00-05:00 America/New_York
        convert 2024-11-03T01:30:00-05:00 from America/New_York to UTC => 2024-11-03T06:30:00 UTC
        2024-11-03T01:30:00-04:00 America/New_York + 1 hour => 2024-11-03T01:30:00-05:00 America/New_York
        2024-03-09T02:30:00 America/New_York + 24 hours => 2024-03-10T03:30:00 America/New_York
        2024-03-09T12:00:00 America/New_York + 1 day => 2024-03-10T12:00:00 America/New_York
        2024-03-09T12:00:00 America/New_York to 2024-03-10T12:00:00 America/New_York => 23 hours
        """
    ),
)
def test_daylight_saving_is_applied(question, answer):
    assert TOOL.execute(question).text == answer


@pytest.mark.parametrize(
    "question",
    ["convert 2024-03-10T02:30:00 from America/New_York to UTC", "2024-03-09T02:30:00 America/New_York + 1 day"],
)
def test_skipped_local_time_is_rejected(question):
    assert TOOL.execute(question).error_message == (
        "2024-03-10T02:30:00 does not exist in America/New_York, where clocks are put forward then; "
        "the nearest times are 2024-03-10T01:30:00-05:00 and 2024-03-10T03:30:00-04:00; send the one that is meant"
    )


@pytest.mark.parametrize(
    "question",
    ["convert 2024-11-03T01:30:00 from America/New_York to UTC", "2024-11-02T01:30:00 America/New_York + 1 day"],
)
def test_ambiguous_local_time_is_rejected(question):
    assert TOOL.execute(question).error_message == (
        "2024-11-03T01:30:00 happens twice in America/New_York, where clocks are put back then: "
        "2024-11-03T01:30:00-04:00 and 2024-11-03T01:30:00-05:00; send the one that is meant"
    )


@pytest.mark.parametrize(
    ("question", "answer"),
    parse_table(
        """
        2024-03-01 to 2024-03-15 => 14 days
        from 2024-03-15 to 2024-03-01 => -14 days
        between 2024-03-01 and 2024-03-02 => 1 day
        2024-03-15 - 2024-03-01 => 14 days
        2024-03-15 - 1 Mar 2024 => 14 days
        today - last week => 7 days
        difference between 2024-03-01 and 2024-03-15 => 14 days
        the difference between 2024-03-01 and 2024-03-15 in weeks => 2 weeks
        2024-03-01 to 2024-03-02 in hours => 24 hours
        days 2024-03-01 to 2024-03-15 => 14 days
        business days 2024-03-01 to 2024-03-15 => 10 business days (Monday to Friday, 2024-03-15 not counted)
        2024-03-01 until 2024-03-01 => 0 days
        2024-01-31 to 2025-03-15 => 409 days (1 year 1 month 15 days)
        2025-03-15 to 2024-01-31 => -409 days (-1 year 1 month 15 days)
        weeks between 2024-03-01 and 2024-03-16 => 2 weeks 1 day
        hours between 2024-03-01 and 2024-03-02 => 24 hours
        minutes from 2024-03-01T00:00:00Z to 2024-03-01T02:00:30Z => 120 minutes 30 seconds
        seconds between 2024-03-01 and 2024-03-01 => 0 seconds
        months between 2024-01-31 and 2025-03-15 => 13 months 15 days
        years between 2000-02-29 and 2024-03-15 => 24 years 15 days
        how many days until 2024-12-25 => 285 days
        days until next friday => 7 days
        days since 2000-01-01 => 8840 days
        time until 2024-03-15T18:00:00Z => 5 hours 30 minutes
        time since 2024-03-15T12:00:00Z => 30 minutes
        2024-03-01T00:00:00Z to 2024-03-15T12:30:15.5Z => 14 days 12 hours 30 minutes 15.5 seconds
        2024-03-15T12:00:00+02:00 to 2024-03-15T12:00:00Z => 2 hours
        2024-03-15 to now => 12 hours 30 minutes
        business days between 2024-03-01 and 2024-03-15 => 10 business days (Monday to Friday, 2024-03-15 not counted)
        working days from 2024-03-16 to 2024-03-18 => 0 business days (Monday to Friday, 2024-03-18 not counted)
        business days until 2024-03-18 => 1 business day (Monday to Friday, 2024-03-18 not counted)
        weekday of 2024-03-15 => Friday
        weekday 2024-02-29 => Thursday
        day of the week of 2000-01-01 => Saturday
        what day is tomorrow? => Saturday
        which weekday was 2024-03-15T23:30:00-05:00 => Friday
        week of 2024-03-15 => 11 (2024-W11)
        week number of 2024-12-30 => 1 (2025-W01)
        iso week 2021-01-01 => 53 (2020-W53)
        epoch 1710504000 => 2024-03-15T12:00:00Z
        unix timestamp 1710504000 => 2024-03-15T12:00:00Z
        from epoch 1710504000.5 => 2024-03-15T12:00:00.5Z
        epoch 1710504000 in Asia/Tokyo => 2024-03-15T21:00:00 Asia/Tokyo
        1710504000 in +02:00 => 2024-03-15T14:00:00+02:00
        1710504000 => 2024-03-15T12:00:00Z
        1710504000000 => 2024-03-15T12:00:00Z
        epoch 1710504000 ms => 1970-01-20T19:08:24Z
        epoch 0 => 1970-01-01T00:00:00Z
        epoch -1 => 1969-12-31T23:59:59Z
        epoch of 2024-03-15T12:00:00Z => 1710504000
        epoch of 2024-03-15 => 1710460800
        epoch now => 1710505800
        2024-03-15T12:00:00Z to epoch => 1710504000
        convert 2024-03-15T12:00:00+02:00 to unix time => 1710496800
        """
    ),
)
def test_questions_about_dates_are_answered(question, answer):
    assert TOOL.execute(question).text == answer


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ("today", datetime.date(2024, 3, 15)),
        ("now", datetime.datetime(2024, 3, 15, 12, 30, tzinfo=zoneinfo.ZoneInfo("UTC"))),
        ("now - 2 hours", datetime.datetime(2024, 3, 15, 10, 30, tzinfo=UTC)),
        ("2024-03-01 to 2024-03-15", datetime.timedelta(days=14)),
        ("2024-03-09T12:00:00 America/New_York to 2024-03-10T12:00:00 America/New_York", datetime.timedelta(hours=23)),
        ("business days between 2024-03-01 and 2024-03-15", 10),
        ("weekday of today", "Friday"),
        ("week of today", 11),
        ("epoch of 2024-03-15T12:00:00Z", 1710504000),
    ],
)
def test_structured_output_is_standard_library_type(question, value):
    result = TOOL.execute(question).structured_output
    assert (type(result), result) == (type(value), value)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("now in America/New_Yrok", "Unknown timezone: 'America/New_Yrok'. Did you mean 'America/New_York'?"),
        ("now in Tokyo", "Unknown timezone: 'Tokyo'. Did you mean 'Asia/Tokyo'?"),
        ("today in new york", "Unknown timezone: 'new york'. Did you mean 'America/New_York'?"),
        (
            "convert 2024-03-15T12:00:00 from UTC to Europe/Berlim",
            "Unknown timezone: 'Europe/Berlim'. Did you mean 'Europe/Berlin'?",
        ),
        ("now in ../../etc/Europe/Paris", "Unknown timezone: '../../etc/Europe/Paris'. Did you mean 'Europe/Paris'?"),
        ("now in Fake/Zone", NO_ZONE.format("Fake/Zone", "Pacific/Ponape")),
        ("now in localtime", NO_ZONE.format("localtime", "Africa/Lome")),
        ("now in posixrules", NO_ZONE.format("posixrules", "America/Buenos_Aires")),
        ("now in Factory", NO_ZONE.format("Factory", "Australia/ACT")),
        ("now in posix/Europe/Rome", "Unknown timezone: 'posix/Europe/Rome'. Did you mean 'Europe/Rome'?"),
        ("2024-03-15 + 5 fortnights", f"Unknown unit: 'fortnights'; {UNITS}"),
        ("2024-03-15 - 5 moons", f"Unknown unit: 'moons'; {UNITS}"),
        ("2024-03-15 + 1 quarter", f"Unknown unit: 'quarter'; {UNITS}"),
        ("2024-03-15 + 1 day + 2 blah", f"Unknown unit: 'blah'; {UNITS}"),
        ("2024-03-15 + 5", f"Missing unit after '5'; {UNITS}"),
        ("2024-03-15 - 5", f"Missing unit after '5'; {UNITS}"),
        ("2024-03-15 + five days", "Unknown number: 'five'; write it in digits, as in 5 days"),
        ("2024-03-15 - five days", "Unknown number: 'five'; write it in digits, as in 5 days"),
        ("now in +25:00", "Invalid offset: '+25:00'; write it from -23:59 to +23:59"),
        ("2024-03-15T12:00:00+02:75", "Invalid offset: '+02:75'; write it from -23:59 to +23:59"),
        ("2024-02-30", "Invalid date: '2024-02-30' is not in the calendar"),
        ("2023-02-29 + 1 day", "Invalid date: '2023-02-29' is not in the calendar"),
        ("0000-01-01", "Invalid date: '0000-01-01' is not in the calendar"),
        ("Feb 30, 2024", "Invalid date: '2024-02-30' is not in the calendar"),
        ("2024-03-15T25:00:00", "Invalid time: '25:00:00'; write it from 00:00:00 to 23:59:59"),
        ("2024-03-15 9:60", "Invalid time: '9:60'; write it from 00:00:00 to 23:59:59"),
        ("03/04/2024", "'03/04/2024' can mean more than one date; write year, month and day, as in 2024-03-15"),
        ("2024-03-15 in Asia/Tokyo", "A date has no timezone; add a time, such as 2024-03-15T12:00:00"),
        ("convert today to Asia/Tokyo", "A date has no timezone; add a time, such as 2024-03-15T12:00:00"),
        (
            "convert 2024-03-15T12:00:00Z from America/New_York to Asia/Tokyo",
            (
                "'2024-03-15T12:00:00Z' has a different offset than America/New_York, where it is "
                "2024-03-15T08:00:00 America/New_York; leave out the offset or the timezone"
            ),
        ),
        ("today + 1.5 days", "Only whole days can be added, not 1.5"),
        ("today + 999999999 years", OUT_OF_RANGE),
        ("today + 99999999999999999999 days", OUT_OF_RANGE),
        ("now + 99999999999 hours", OUT_OF_RANGE),
        ("now + 99999999999999 hours", OUT_OF_RANGE),
        ("9999-12-31 + 1 day", OUT_OF_RANGE),
        ("0001-01-01 - 1 day", OUT_OF_RANGE),
        ("9999-12-31 + 999999999999 business days", OUT_OF_RANGE),
        ("0001-01-01 - 1 business day", OUT_OF_RANGE),
        ("convert 9999-12-31T23:59:59Z to Asia/Tokyo", OUT_OF_RANGE),
        ("epoch 99999999999999999", OUT_OF_RANGE),
        (f"epoch {'9' * 150}", OUT_OF_RANGE),
        ("x" * 201, "The question is too long: 201 characters, at most 200"),
    ],
)
def test_errors_quote_invalid_part(question, message):
    assert TOOL.execute(question).error_message == message


@pytest.mark.parametrize(
    ("called", "zone"),
    parse_table(
        """
        PST => America/Los_Angeles
        edt => America/New_York
        CST => America/Chicago
        BST => Europe/London
        CEST => Europe/Berlin
        IST => Asia/Kolkata
        JST => Asia/Tokyo
        India => Asia/Kolkata
        Germany => Europe/Berlin
        South Korea => Asia/Seoul
        """
    ),
)
def test_zone_nickname_suggests_zone_name(called, zone):
    message = f"Unknown timezone: {called!r}. Did you mean {zone!r}?"
    assert TOOL.execute(f"now in {called}").error_message == message
    assert TOOL.execute(f"now in {zone}").is_success


def test_every_nickname_names_existing_zone():
    from toolsemble.builtin._dates import NICKNAMES  # the one test that looks inside

    assert set(NICKNAMES.values()) <= zoneinfo.available_timezones()


@pytest.mark.parametrize(
    ("question", "part"), [("2024-03-15 noon", "2024-03-15 noon"), ("days in february 2024", "days")]
)
def test_invalid_date_is_not_reported_as_zone(question, part):
    assert TOOL.execute(question).error_message.startswith(f"Not a date or time: {part!r}; write ")


@pytest.mark.parametrize(
    ("question", "part", "asked"),
    [
        ("due date - today", "due date", "2024-03-15 - today"),
        ("next service - last service", "last service", "next service - 2024-03-15"),
        ("weekday of departure", "departure", "weekday of 2024-03-15"),
        ("days between 2024-01-01 and delivery", "delivery", "days between 2024-01-01 and 2024-03-15"),
        ("arrival + 3 days", "arrival", "2024-03-15 + 3 days"),
    ],
)
def test_word_instead_of_date_is_rejected(question, part, asked):
    message = TOOL.execute(question).error_message
    assert message == f"Not a date or time: {part!r}; write the date itself, as in: {asked}"


@pytest.mark.parametrize("question", ["", "hello", "2024-03-15T12:00:60Z", "3 days", "\u0661\u0662\u0663\u0664-03-15"])
def test_unknown_question_lists_working_forms(question):
    message = TOOL.execute(question).error_message
    assert message.startswith(f"Not a date or time: {question!r}; write the date itself, and ask like: ")
    examples = message.partition(" like: ")[2].split("; ")
    assert len(examples) == 15
    assert [TOOL.execute(example).error_message for example in examples] == [None] * 15


def test_examples_in_description_work():
    lines = [line.partition(": ")[2] for line in TOOL.description.splitlines() if line.startswith("- ")]
    examples = [example for line in lines for example in re.sub(r" \(.*?\)", "", line).split(", ")]
    assert len(examples) > 20
    assert [example for example in examples if not TOOL.execute(example).is_success] == []


async def test_sync_and_async_calls_agree():
    box = Toolbox([TOOL])
    call = ToolCall("datetime", {"input": "2024-01-31 + 1 month"})
    assert box.execute(call).result == (await box.aexecute(call)).result == await TOOL.aexecute("2024-01-31 + 1 month")


def test_default_clock_is_system_clock():
    before = datetime.datetime.now(UTC).replace(microsecond=0)
    assert before <= DateTimeTool().execute("now").structured_output <= datetime.datetime.now(UTC)


def test_clock_may_use_any_zone():
    clock = DateTimeTool(lambda: datetime.datetime(2024, 3, 15, 21, 30, tzinfo=zoneinfo.ZoneInfo("Asia/Tokyo")))
    assert clock.execute("now").text == "2024-03-15T12:30:00 UTC"


@pytest.mark.parametrize("given", [datetime.datetime(2024, 3, 15), None, 1710504000])  # noqa: DTZ001 - naive is the test
def test_naive_clock_is_a_configuration_error(given):
    with pytest.raises(ToolConfigurationError, match="The clock of 'datetime' must return an aware datetime, not "):
        DateTimeTool(lambda: given).execute("now")


def test_clock_must_be_callable():
    with pytest.raises(ToolDefinitionError, match="clock must be a callable without arguments, not datetime"):
        DateTimeTool(NOW)


@pytest.mark.parametrize("package", ["whenever", "tzdata"])
def test_missing_extra_is_named(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    expected = f"DateTimeTool needs the package '{package}': {install_command('datetime')}"
    with pytest.raises(ToolDefinitionError, match=re.escape(expected)):
        DateTimeTool()


def test_works_without_system_time_zones():
    code = (
        "from toolsemble.builtin import DateTimeTool; "
        "print(DateTimeTool().execute('convert 2024-03-15T12:00:00Z to America/Chicago').text)"
    )
    environment = {**os.environ, "PYTHONTZPATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "2024-03-15T07:00:00 America/Chicago\n"


DATES = st.dates(datetime.date(10, 1, 1), datetime.date(9990, 1, 1))
ZONES = st.sampled_from(
    ["America/New_York", "Europe/London", "Asia/Tokyo", "Australia/Lord_Howe", "Pacific/Apia", "UTC"]
)


@given(DATES, st.integers(-300, 300), st.sampled_from(["day", "days", "week", "weeks"]))
@settings(max_examples=100, deadline=None)
def test_dates_agree_with_the_standard_library(date, count, unit):
    sign = "-" if count < 0 else "+"
    expected = date + datetime.timedelta(days=count * (7 if unit.startswith("week") else 1))
    assert TOOL.execute(f"{date} {sign} {abs(count)} {unit}").structured_output == expected


@given(DATES, DATES)
@settings(max_examples=100, deadline=None)
def test_differences_agree_with_the_standard_library(start, end):
    assert TOOL.execute(f"{start} to {end}").structured_output == end - start


@given(DATES, st.integers(-60, 60))
@settings(max_examples=100, deadline=None)
def test_business_days_agree_with_counting(date, count):
    expected, left = date, abs(count)
    while left:
        expected += datetime.timedelta(days=1 if count > 0 else -1)
        left -= expected.weekday() < 5
    question = f"{date} {'-' if count < 0 else '+'} {abs(count)} business days"
    assert TOOL.execute(question).structured_output == expected
    days = (date + datetime.timedelta(days=day) for day in range(abs(count)))
    counted = TOOL.execute(f"business days between {date} and {date + datetime.timedelta(days=abs(count))}")
    assert counted.structured_output == sum(day.weekday() < 5 for day in days)


@given(DATES)
@settings(max_examples=100, deadline=None)
def test_weeks_and_weekdays_agree_with_the_standard_library(date):
    assert TOOL.execute(f"week of {date}").structured_output == date.isocalendar().week
    assert TOOL.execute(f"weekday of {date}").structured_output == date.strftime("%A")


@given(st.datetimes(datetime.datetime(1970, 1, 1), datetime.datetime(2037, 1, 1)), ZONES, ZONES)  # noqa: DTZ001 - walls
@settings(max_examples=200, deadline=None)
def test_conversions_agree_with_zoneinfo(wall, source, target):
    wall = wall.replace(microsecond=0, fold=0)
    first, second = (wall.replace(fold=fold, tzinfo=zoneinfo.ZoneInfo(source)) for fold in (0, 1))
    result = TOOL.execute(f"convert {wall.isoformat()} from {source} to {target}")
    if first.utcoffset() == second.utcoffset():
        assert result.structured_output == first.astimezone(zoneinfo.ZoneInfo(target))
    else:
        kind = "does not exist" if first.utcoffset() < second.utcoffset() else "happens twice"
        assert f"{wall.isoformat()} {kind} in {source}" in result.error_message


@given(st.integers(-62_135_596_800, 253_402_300_799))
@settings(max_examples=100, deadline=None)
def test_epoch_conversion_round_trips(seconds):
    moment = TOOL.execute(f"epoch {seconds}")
    assert moment.structured_output == datetime.datetime(1970, 1, 1, tzinfo=UTC) + datetime.timedelta(seconds=seconds)
    assert TOOL.execute(f"epoch of {moment.text}").structured_output == seconds


WORDS = ["now", "today", " in ", " to ", " from ", "convert ", "next ", "friday", " and ", "between ", "until ", " ago"]
SPANS = [" + ", " - ", "1 d ", "3 days", "2 months", "9" * 20, "business days", "days "]
MOMENTS = ["2024-02-29", "T12:00:00", "Z", "+02:00", " UTC", "Asia/Tokyo", "epoch ", "9999-12-31", "0001-01-01"]
PIECES = st.sampled_from([*WORDS, *SPANS, *MOMENTS, "week of ", "[", "]", "\x00", "é", "?", "."])


@given(st.lists(PIECES, max_size=20).map("".join) | st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_no_input_raises_or_crashes(text):
    result = TOOL.execute(text)
    assert result.is_success or not result.error_message.endswith("Error")


@pytest.mark.parametrize(
    "question",
    ["now + " + "1 d " * 48 + "x", "1 d " * 49 + "x", "now " + "+1 d" * 48, " to " * 49, "in " * 66, "1,1 d" * 40],
)
def test_hostile_repetitions_terminate(question):
    assert TOOL.execute(question).text
