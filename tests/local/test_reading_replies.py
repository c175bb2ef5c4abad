"""The readers of replies, while these are generated."""

from __future__ import annotations

import json

import pytest

from toolsemble.local.reply_reader import PlainReader, StepReader
from toolsemble.models.chat import ArgumentsDelta, CallDelta, TextDelta

CALL = '{"name": "weather", "arguments": {"city": "Rome", "days": {"n": 2}}}'
ANSWER = '{"name": "final_answer", "arguments": {"text": "It\'s \\"4\\" \\u00e9\\n\\\\ \\/"}}'


def told(reading, text, size):
    """Return the chunks of a text that comes in pieces of one size, each kind joined, without the ids."""
    chunks = [chunk for at in range(0, len(text), size) for chunk in reading.add(text[at : at + size])]
    chunks += reading.end()
    return (
        [chunk.name for chunk in chunks if isinstance(chunk, CallDelta)],
        "".join(chunk.text for chunk in chunks if isinstance(chunk, ArgumentsDelta)),
        "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta)),
    )


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_call_is_reported_with_its_arguments_in_whatever_pieces_it_comes(size):
    reading = StepReader(["weather", "weathering"], "final_answer")
    assert told(reading, CALL, size) == (["weather"], '{"city": "Rome", "days": {"n": 2}}', "")
    assert (reading.called, reading.repeated) == (True, False)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_an_answer_is_reported_without_its_escapes(size):
    reading = StepReader(["weather"], "final_answer")
    assert told(reading, ANSWER, size) == ([], "", 'It\'s "4" é\n\\ /')
    assert (reading.called, reading.repeated) == (False, False)


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_structured_answer_is_the_json_text_of_its_arguments(size):
    reading = StepReader([], "final_answer", structured=True)
    text = '{"name": "final_answer", "arguments": {"a": {}}}'
    assert told(reading, text, size) == ([], "", '{"a": {}}')


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_call_that_was_made_before_is_held_back(size):
    reading = StepReader(["weather"], "final_answer", made={CALL})
    assert told(reading, CALL, size)[:2] == ([], "")
    assert reading.repeated


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_call_that_only_begins_like_an_earlier_one_is_reported_as_soon_as_it_differs(size):
    reading = StepReader(["weather"], "final_answer", made={CALL})
    other = CALL.replace("Rome", "Roma")
    assert told(reading, other, size) == (["weather"], '{"city": "Roma", "days": {"n": 2}}', "")
    assert not reading.repeated


def test_a_piece_is_reported_at_once():
    reading = StepReader(["weather"], "final_answer")
    assert list(reading.add('{"name": "final_answer", "arguments": {"text": "It ')) == [TextDelta("It ")]
    assert list(reading.add("is \\u00")) == [TextDelta("is ")]
    assert list(reading.add("e9")) == [TextDelta("é")]


@pytest.mark.parametrize("length", range(len(CALL) + 1))
def test_what_is_cut_anywhere_is_reported_as_far_as_it_came(length):
    reading = StepReader(["weather"], "final_answer")
    names, arguments, text = told(reading, CALL[:length], 3)
    begun = len('{"name": "weather", "arguments": ')
    assert (names, arguments, text) == (
        ["weather"] if length >= begun else [],
        CALL[begun : length if length < len(CALL) else -1],
        "",
    )


@pytest.mark.parametrize("length", range(len(ANSWER)))
def test_an_answer_that_is_cut_anywhere_is_the_beginning_of_it(length):
    whole = json.loads(ANSWER)["arguments"]["text"]
    assert whole.startswith(told(StepReader([], "final_answer"), ANSWER[:length], 4)[2])


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_plan_comes_before_the_first_step_and_is_not_told(size):
    reading = StepReader(["weather", "a]b"], "final_answer")
    text = '{"plan": ["weather", "a]b"], ' + CALL[1:]
    assert told(reading, text, size) == (["weather"], '{"city": "Rome", "days": {"n": 2}}', "")
    assert reading.plan == ["weather", "a]b"]
    reading = StepReader(["weather"], "final_answer")
    assert told(reading, '{"plan": [], ' + ANSWER[1:], size) == ([], "", 'It\'s "4" é\n\\ /')
    assert reading.plan == []


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_note_comes_before_a_later_step_and_is_not_told(size):
    reading = StepReader(["weather"], "final_answer")
    text = '{"note": "Rome, 2 days", ' + CALL[1:]
    assert told(reading, text, size) == (["weather"], '{"city": "Rome", "days": {"n": 2}}', "")
    assert (reading.note, reading.plan) == ("Rome, 2 days", ())


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_call_is_the_same_as_before_whatever_note_it_has(size):
    reading = StepReader(["weather"], "final_answer", made={CALL})
    told(reading, '{"note": "Rome, at noon", ' + CALL[1:], size)
    assert reading.repeated


@pytest.mark.parametrize("length", range(20))
def test_a_plan_that_is_cut_tells_nothing(length):
    reading = StepReader(["weather"], "final_answer")
    assert told(reading, '{"plan": ["weather"]'[:length], 3) == ([], "", "")


def test_plain_text_is_reported_as_it_comes():
    reading = PlainReader()
    assert [*reading.add("a"), *reading.add(""), *reading.add("b"), *reading.end()] == [TextDelta("a"), TextDelta("b")]
    assert (reading.called, reading.repeated) == (False, False)
