"""The model that asks the next model when one fails."""

import asyncio
import logging

import pytest

from toolsemble import Agent, AgentExecutionError, ModelError, Retry, ToolCall, ToolDefinitionError, tool
from toolsemble.models import ChatReply, ChatRequest, FallbackModel, FunctionModel, ScriptedModel, UserMessage
from toolsemble.models.chat import StreamEnd, TextDelta

ONCE = Retry(attempts=0)
REQUEST = ChatRequest([UserMessage("hello")])


class Streaming:
    """A model whose stream yields chunks, then raises an error or ends."""

    def __init__(self, *chunks, error=None):
        self._chunks = chunks
        self._error = error
        self.closed = False

    async def reply(self, request):
        raise NotImplementedError

    async def stream(self, request):
        try:
            for chunk in self._chunks:
                yield chunk
            if self._error is not None:
                raise self._error
        finally:
            self.closed = True


def chunks_from(model):
    async def collect():
        return [chunk async for chunk in model.stream(REQUEST)]

    return asyncio.run(collect())


@pytest.mark.parametrize("error", [ModelError("overloaded"), ConnectionError("refused"), TimeoutError("late")])
def test_next_model_answers_when_one_fails(error, caplog):
    first, second = ScriptedModel([error]), ScriptedModel(["Rome"])
    with caplog.at_level(logging.WARNING, "toolsemble.models.fallback"):
        assert Agent(FallbackModel(first, second), retry=ONCE).run_sync("hello").text == "Rome"
    assert caplog.messages == [f"ScriptedModel failed ({error}); asking the next model"]
    assert first.requests == second.requests


def test_first_model_is_tried_first_in_every_turn():
    @tool
    def now() -> str:
        """The time."""
        return "noon"

    first = ScriptedModel([ModelError("overloaded"), "It is noon."])
    second = ScriptedModel([ToolCall("now", {})])
    result = Agent(FallbackModel(first, second), [now], retry=ONCE).run_sync("What time is it?")
    assert (result.text, len(first.requests), len(second.requests)) == ("It is noon.", 2, 1)


def test_other_exceptions_are_raised_at_once():
    second = ScriptedModel(["Rome"])
    model = FallbackModel(FunctionModel(lambda _: 1 / 0), second)
    with pytest.raises(AgentExecutionError, match="division by zero"):
        Agent(model, retry=ONCE).run_sync("hello")
    assert second.requests == []


def test_function_can_decide_about_fallback():
    def only_overloaded(error):
        return "overloaded" in str(error)

    model = FallbackModel(ScriptedModel([ModelError("no such model")]), ScriptedModel([]), falls_back=only_overloaded)
    with pytest.raises(ModelError, match=r"^no such model$"):
        asyncio.run(model.reply(REQUEST))


@pytest.mark.parametrize(
    ("errors", "retryable", "retry_after"),
    [
        ([ModelError("a"), ModelError("b")], False, None),
        ([ModelError("a"), ModelError("b", retryable=True, retry_after=9)], True, 9),
        ([ModelError("a", retryable=True, retry_after=3), ModelError("b", retryable=True, retry_after=9)], True, 3),
        ([ModelError("a", retryable=True, retry_after=3), ConnectionError("b")], True, None),
    ],
)
def test_when_all_models_fail_the_error_names_each_reason(errors, retryable, retry_after):
    model = FallbackModel(*(ScriptedModel([error]) for error in errors))
    with pytest.raises(ModelError, match=r"^All models failed: ScriptedModel: a; ScriptedModel: b$") as raised:
        asyncio.run(model.reply(REQUEST))
    assert (raised.value.retryable, raised.value.retry_after) == (retryable, retry_after)
    assert list(raised.value.__cause__.exceptions) == errors


def test_stream_falls_back_before_its_first_chunk():
    first, end = Streaming(error=ModelError("overloaded")), StreamEnd()
    model = FallbackModel(first, Streaming(TextDelta("Rome"), end))
    assert chunks_from(model) == [TextDelta("Rome"), end]
    assert first.closed


def test_stream_that_breaks_after_its_first_chunk_raises():
    first, second = Streaming(TextDelta("Ro"), error=ModelError("cut off")), Streaming(StreamEnd())
    with pytest.raises(ModelError, match="cut off"):
        chunks_from(FallbackModel(first, second))
    assert (first.closed, second.closed) == (True, False)


def test_stream_raises_when_all_models_fail():
    with pytest.raises(ModelError, match="All models failed"):
        chunks_from(FallbackModel(Streaming(error=ModelError("a")), Streaming(error=ModelError("b"))))


def test_native_output_requires_all_models():
    native = FunctionModel(lambda _: "", native_output=True)
    assert FallbackModel(native, native).native_output
    assert not FallbackModel(native, ScriptedModel([])).native_output


def test_models_may_be_given_by_name():
    model = FallbackModel("vllm:qwen3", "vllm:qwen2")
    assert model.name == "qwen3 or qwen2"
    assert [each.name for each in model.models] == ["qwen3", "qwen2"]


def test_successful_reply_is_returned_unchanged():
    reply = ChatReply("")
    assert asyncio.run(FallbackModel(FunctionModel(lambda _: reply), ScriptedModel([])).reply(REQUEST)) is reply


@pytest.mark.parametrize(
    ("create", "problem"),
    [
        (lambda: FallbackModel(ScriptedModel([])), "FallbackModel needs at least two models"),
        (
            lambda: FallbackModel(ScriptedModel([]), ScriptedModel([]), falls_back=True),
            "FallbackModel falls_back must be a function of an error, not True",
        ),
    ],
)
def test_invalid_settings_are_rejected(create, problem):
    with pytest.raises(ToolDefinitionError, match=problem):
        create()
