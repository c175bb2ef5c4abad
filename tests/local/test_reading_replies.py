"""The readers of replies, while these are generated."""

from __future__ import annotations

import json

import pytest

from helpers.columns import column
from toolsemble.models._chat import ArgumentsDelta, CallDelta, TextDelta
from toolsemble.models._local.reply_reader import PlainReader, StepReader

CALL = '{"name": "weather", "arguments": {"city": "Rome", "days": {"n": 2}}}'
ANSWER = '{"name": "final_answer", "arguments": {"text": "It\'s \\"4\\" \\u00e9\\n\\\\ \\/"}}'


def read_chunks(reading, text, size):
    """Return the chunks of a text that comes in pieces of one size, each kind joined, without the ids."""
    chunks = [chunk for at in range(0, len(text), size) for chunk in reading.add(text[at : at + size])]
    chunks += reading.end()
    return (
        [chunk.name for chunk in chunks if isinstance(chunk, CallDelta)],
        "".join(chunk.text for chunk in chunks if isinstance(chunk, ArgumentsDelta)),
        "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta)),
    )


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_call_is_read_from_chunks_of_any_size(size):
    reading = StepReader(["weather", "weathering"], "final_answer")
    assert read_chunks(reading, CALL, size) == (["weather"], '{"city": "Rome", "days": {"n": 2}}', "")
    assert (reading.called, reading.repeated) == (True, False)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_answer_is_unescaped(size):
    reading = StepReader(["weather"], "final_answer")
    assert read_chunks(reading, ANSWER, size) == ([], "", 'It\'s "4" é\n\\ /')
    assert (reading.called, reading.repeated) == (False, False)


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_structured_answer_is_json_text_of_arguments(size):
    reading = StepReader([], "final_answer", structured=True)
    text = '{"name": "final_answer", "arguments": {"a": {}}}'
    assert read_chunks(reading, text, size) == ([], "", '{"a": {}}')


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_repeated_call_is_withheld(size):
    reading = StepReader(["weather"], "final_answer", made={CALL})
    assert read_chunks(reading, CALL, size)[:2] == ([], "")
    assert reading.repeated


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_call_is_reported_once_it_differs_from_earlier_call(size):
    reading = StepReader(["weather"], "final_answer", made={CALL})
    other = CALL.replace("Rome", "Roma")
    assert read_chunks(reading, other, size) == (["weather"], '{"city": "Roma", "days": {"n": 2}}', "")
    assert not reading.repeated


def test_chunks_are_reported_immediately():
    reading = StepReader(["weather"], "final_answer")
    assert list(reading.add('{"name": "final_answer", "arguments": {"text": "It ')) == [TextDelta("It ")]
    assert list(reading.add("is \\u00")) == [TextDelta("is ")]
    assert list(reading.add("e9")) == [TextDelta("é")]


def test_truncated_call_is_reported_up_to_the_cut():
    begun = len('{"name": "weather", "arguments": ')
    for length in range(len(CALL) + 1):
        reading = StepReader(["weather"], "final_answer")
        names, arguments, text = read_chunks(reading, CALL[:length], 3)
        with column(length):
            assert (names, arguments, text) == (
                ["weather"] if length >= begun else [],
                CALL[begun : length if length < len(CALL) else -1],
                "",
            )


def test_truncated_answer_is_a_prefix():
    whole = json.loads(ANSWER)["arguments"]["text"]
    for length in range(len(ANSWER)):
        with column(length):
            assert whole.startswith(read_chunks(StepReader([], "final_answer"), ANSWER[:length], 4)[2])


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_plan_is_read_but_not_reported(size):
    reading = StepReader(["weather", "a]b"], "final_answer")
    text = '{"plan": ["weather", "a]b"], ' + CALL[1:]
    assert read_chunks(reading, text, size) == (["weather"], '{"city": "Rome", "days": {"n": 2}}', "")
    assert reading.plan == ["weather", "a]b"]
    reading = StepReader(["weather"], "final_answer")
    assert read_chunks(reading, '{"plan": [], ' + ANSWER[1:], size) == ([], "", 'It\'s "4" é\n\\ /')
    assert reading.plan == []


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_note_is_read_but_not_reported(size):
    reading = StepReader(["weather"], "final_answer")
    text = '{"note": "Rome, 2 days", ' + CALL[1:]
    assert read_chunks(reading, text, size) == (["weather"], '{"city": "Rome", "days": {"n": 2}}', "")
    assert (reading.note, reading.plan) == ("Rome, 2 days", ())


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_note_is_ignored_when_calls_are_compared(size):
    reading = StepReader(["weather"], "final_answer", made={CALL})
    read_chunks(reading, '{"note": "Rome, at noon", ' + CALL[1:], size)
    assert reading.repeated


@pytest.mark.parametrize("length", range(20))
def test_truncated_plan_reports_nothing(length):
    reading = StepReader(["weather"], "final_answer")
    assert read_chunks(reading, '{"plan": ["weather"]'[:length], 3) == ([], "", "")


def test_plain_text_is_reported_unchanged():
    reading = PlainReader()
    assert [*reading.add("a"), *reading.add(""), *reading.add("b"), *reading.end()] == [TextDelta("a"), TextDelta("b")]
    assert (reading.called, reading.repeated) == (False, False)
