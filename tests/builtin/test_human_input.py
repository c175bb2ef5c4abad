"""Tests of the tool with which a model asks a person."""

import asyncio

import pytest

from toolsemble import (
    Continue,
    Edit,
    ExitEarly,
    ExitEarlyError,
    OnTimeout,
    ReviewTiming,
    Toolbox,
    ToolCall,
    ToolDefinitionError,
)
from toolsemble.builtin import HumanInputTool
from toolsemble.review import CallbackReview

QUESTION = ToolCall("human_input", {"input": "Which one?"})


async def ask_reviewer(handler, tool=None):
    box = Toolbox([tool or HumanInputTool()], review=handler)
    texts = {box.execute(QUESTION).text, (await box.aexecute(QUESTION)).text}
    assert len(texts) == 1
    return texts.pop()


@pytest.mark.parametrize(
    ("decision", "text"),
    [
        (Continue(), "Understood. Please continue."),
        (Edit("the blue one"), "the blue one"),
        (Edit(""), ""),
    ],
)
async def test_model_receives_answer(decision, text):
    assert await ask_reviewer(CallbackReview(lambda _: decision)) == text


async def test_model_continues_without_reviewer():
    assert await ask_reviewer(None) == "No reviewer is available. Please proceed with your best judgment."


@pytest.mark.parametrize(
    ("decision", "message", "timed_out"),
    [
        (ExitEarly("enough"), "enough", False),
        (ExitEarly("", timed_out=True), "A person stopped the run", True),
        (None, "the answer was not a decision", False),
    ],
)
async def test_exit_early_stops_the_run(decision, message, timed_out):
    with pytest.raises(ExitEarlyError, match=message) as raised:
        await ask_reviewer(CallbackReview(lambda _: decision))
    assert raised.value.timed_out is timed_out
    box = Toolbox([HumanInputTool()], review=CallbackReview(lambda _: decision))
    with pytest.raises(ExitEarlyError) as raised:
        await box.aexecute_all([QUESTION, ToolCall("unknown")])
    assert [reply.call.name for reply in raised.value.replies] == ["unknown"]


async def test_reviewer_receives_question():
    asked = []
    await ask_reviewer(CallbackReview(lambda request: asked.append(request) or Continue()))
    (request, _) = asked
    assert (request.description, request.tool_name, request.arguments) == ("Which one?", "human_input", "Which one?")
    assert (request.timing, request.timeout) == (ReviewTiming.DURING_EXECUTION, 300)
    assert request.on_timeout is OnTimeout.CONTINUE


class SilentReviewer:
    async def review(self, request):
        await asyncio.Event().wait()


async def test_on_timeout_decides_about_silence():
    assert await ask_reviewer(SilentReviewer(), HumanInputTool(timeout=0.02)) == "Understood. Please continue."
    with pytest.raises(ExitEarlyError) as raised:
        await ask_reviewer(SilentReviewer(), HumanInputTool(timeout=0.02, on_timeout=OnTimeout.EXIT_EARLY))
    assert raised.value.timed_out
    failed = await ask_reviewer(SilentReviewer(), HumanInputTool(timeout=0.02, on_timeout=OnTimeout.FAIL))
    assert failed == "Error: No answer to the review of 'human_input' within 0.02 s"


@pytest.mark.parametrize("terms", [{"timeout": "5"}, {"timeout": -1}, {"on_timeout": "fail"}])
def test_invalid_timeout_settings_are_rejected(terms):
    with pytest.raises(ToolDefinitionError, match="HumanInputTool: "):
        HumanInputTool(**terms)


def test_empty_question_is_rejected():
    asked = []
    box = Toolbox([HumanInputTool()], review=CallbackReview(asked.append))
    reply = box.execute(ToolCall("human_input", {"input": " "}))
    assert (reply.text, asked) == ("Error: The question is empty; ask one that a person can answer", [])
