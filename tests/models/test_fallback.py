"""The model that asks the next model when one fails."""

import asyncio
import logging
from dataclasses import replace

import pytest

from toolsemble import (
    Agent,
    AgentExecutionError,
    ModelError,
    Retry,
    ToolCall,
    ToolDefinitionError,
    tool,
)
from toolsemble.models import (
    ChatReply,
    ChatRequest,
    FallbackModel,
    FunctionModel,
    RecordedModel,
    ScriptedModel,
    UserMessage,
)
from toolsemble.models._chat import (
    ArgumentsDelta,
    Assembly,
    CallDelta,
    StreamEnd,
    StreamRestart,
    TextDelta,
    TokenUsage,
)

ONCE = Retry(attempts=1)
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


def chunks_from(model, request=REQUEST):
    async def collect():
        return [chunk async for chunk in model.stream(request)]

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


class Named(Streaming):
    """A streaming model with a name."""

    def __init__(self, name, *chunks, error=None):
        super().__init__(*chunks, error=error)
        self.name = name


def test_stream_that_breaks_after_its_first_chunk_raises_an_error_that_names_both_models():
    broken = ModelError("cut off", retryable=True, retry_after=3)
    first, second = Named("one", TextDelta("Ro"), error=broken), Named("two", StreamEnd())
    with pytest.raises(
        ModelError, match=r"^one failed after its answer had begun: cut off; two was not asked, because .* can_restart"
    ) as raised:
        chunks_from(FallbackModel(first, second))
    assert (first.closed, second.closed) == (True, False)
    assert (raised.value.retryable, raised.value.retry_after) == (True, 3)


def test_last_stream_that_breaks_after_its_first_chunk_raises_its_error():
    first, second = Streaming(error=ModelError("down")), Streaming(TextDelta("Ro"), error=ModelError("cut off"))
    with pytest.raises(ModelError, match=r"^cut off$"):
        chunks_from(FallbackModel(first, second))


def test_stream_that_breaks_for_another_reason_raises_its_error():
    with pytest.raises(KeyError):
        chunks_from(FallbackModel(Streaming(TextDelta("Ro"), error=KeyError("x")), Streaming(StreamEnd())))


def test_stream_begins_anew_with_the_next_model_if_its_reader_can():
    first, end = Streaming(TextDelta("Ro"), error=ModelError("cut off")), StreamEnd()
    model = FallbackModel(first, Streaming(TextDelta("Athens"), end))
    expected = [TextDelta("Ro"), StreamRestart("cut off"), TextDelta("Athens"), end]
    chunks = chunks_from(model, replace(REQUEST, can_restart=True))
    assert chunks == expected
    assert Assembly().assemble(chunks).text == "Athens"


def test_last_stream_that_breaks_does_not_announce_another_model():
    streams = [Streaming(TextDelta(text), error=ModelError(text)) for text in ("a", "b")]
    with pytest.raises(ModelError, match="All models failed: Streaming: a; Streaming: b"):
        chunks_from(FallbackModel(*streams), replace(REQUEST, can_restart=True))


def test_restart_gives_back_the_room_for_the_reply():
    assembly = Assembly(max_reply=5)
    assert assembly.assemble([TextDelta("12345"), StreamRestart("x"), TextDelta("67890"), StreamEnd()]).text == "67890"


async def test_stream_of_an_agent_falls_back_after_the_first_chunk():
    @tool
    def now() -> str:
        """The time."""
        return "noon"

    call = (CallDelta(0, "now", "c1"), ArgumentsDelta(0, '{"x'))
    first = Streaming(TextDelta("It "), TextDelta("is"), *call, error=ModelError("cut off"))
    second = Streaming(TextDelta("Noon."), StreamEnd(TokenUsage(10, 2)))
    seen = []
    agent = Agent(FallbackModel(first, second), [now], retry=ONCE, sinks=[seen.append])
    events = [event async for event in agent.stream("What time is it?")]
    kinds = [event.kind for event in events]
    assert kinds == [
        *("text_delta", "text_delta", "call_delta", "arguments_delta"),
        *("model_retried", "text_delta", "turn_ended", "final"),
    ]
    assert (events[4].reason, events[4].seconds, events[4].discarded) == ("cut off", 0.0, "It is")
    result = events[-1].result
    assert (result.text, result.tool_calls, result.usage.model_calls) == ("Noon.", [], 1)
    assert [(step.kind, step.detail) for step in result.trace] == [("retry", "cut off"), ("model", "stop")]
    assert [event.reason for event in seen if event.kind == "model_retried"] == ["cut off"]


async def test_retry_after_a_restart_discards_the_text_of_the_last_model_only():
    first = Streaming(TextDelta("Ro"), error=ModelError("cut off", retryable=True))
    second = Streaming(TextDelta("Ath"), error=ModelError("cut off", retryable=True))
    discarded = []
    agent = Agent(FallbackModel(first, second), retry=Retry(attempts=2, wait=0))
    async for event in agent.stream("hello"):
        if event.kind == "model_retried":
            discarded.append(event.discarded)
            if len(discarded) == 2:
                first._error = None
                first._chunks = (TextDelta("Oslo"), StreamEnd())
    assert discarded == ["Ro", "Ath"]
    assert event.result.text == "Oslo"


async def test_recorded_stream_begins_anew_as_well(tmp_path):
    path = tmp_path / "recording.jsonl"
    model = FallbackModel(Streaming(TextDelta("Ro"), error=ModelError("x")), Streaming(TextDelta("Oslo"), StreamEnd()))
    for asked in ([model], []):
        agent = Agent(RecordedModel(path, *asked), retry=ONCE)
        events = [event async for event in agent.stream("hello")]
        assert (events[-1].result.text, [event.kind for event in events].count("model_retried")) == ("Oslo", 1)


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
