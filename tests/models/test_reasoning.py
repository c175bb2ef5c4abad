"""The reasoning setting, and thoughts as events, for each provider."""

from __future__ import annotations

import json

import pytest

from helpers.openai_wire import (
    CHAT,
    RESPONSES,
    completion,
    delta,
    model_at,
    response,
    streamed as sse,
    text_item,
    whole,
)
from helpers.web_server import serving
from toolsemble import Agent, ToolConfigurationError, ToolDefinitionError
from toolsemble.models import (
    AnthropicModel,
    Assembly,
    BedrockModel,
    ChatRequest,
    FunctionModel,
    GoogleModel,
    MistralModel,
    RecordedModel,
    ScriptedModel,
    StreamEnd,
    TextDelta,
    ThoughtDelta,
    UserMessage,
)

pytestmark = pytest.mark.slow

KEY = "s3cret-key"


@pytest.fixture
def web():
    with serving() as server:
        server.answers[CHAT] = whole(completion({"content": "hi"}))
        server.answers[RESPONSES] = whole(response(text_item("hi")))
        message = {"content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn", "usage": {}}
        server.answers["/v1/messages"] = whole({"id": "m", "type": "message", "role": "assistant", **message})
        candidate = {"content": {"role": "model", "parts": [{"text": "hi"}]}, "finishReason": "STOP"}
        for name in ("gemini-2.5-pro", "gemini-3-flash"):
            server.answers[f"/v1/models/{name}:generateContent"] = whole({"candidates": [candidate]})
        output = {"message": {"role": "assistant", "content": [{"text": "hi"}]}}
        for name in ("amazon.nova-2", "anthropic.claude-sonnet-4-5-v1", "openai.gpt-oss", "meta.llama"):
            server.answers[f"/model/{name}/converse"] = whole({"output": output, "stopReason": "end_turn"})
        yield server


def anthropic(name):
    return lambda web: AnthropicModel(name, api_key=KEY, base_url=web.url(""))


def google(name):
    return lambda web: GoogleModel(name, api_key=KEY, base_url=web.url(""))


def bedrock(name):
    return lambda web: BedrockModel(name, api_key=KEY, region="us-east-1", base_url=web.url(""))


def mistral(web):
    return MistralModel("mistral", api_key=KEY, base_url=web.url(""))


def responses(web):
    return model_at(web, "responses")


ADAPTIVE = {"type": "adaptive", "display": "summarized"}
MAPPED = [
    (model_at, "low", {"reasoning_effort": "low"}),
    (responses, "high", {"reasoning": {"effort": "high", "summary": "auto"}}),
    (anthropic("claude-haiku-5-5"), "medium", {"thinking": ADAPTIVE, "output_config": {"effort": "medium"}}),
    (anthropic("claude-haiku-4-5"), "medium", {"thinking": {"type": "enabled", "budget_tokens": 6144}}),
    (anthropic("claude-haiku-5-5"), 3000, {"thinking": {"type": "enabled", "budget_tokens": 3000}}),
    (mistral, "high", {"reasoning_effort": "high"}),
    (bedrock("amazon.nova-2"), "low", {
        "additionalModelRequestFields": {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}}
    }),
    (bedrock("anthropic.claude-sonnet-4-5-v1"), 2000, {
        "additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 2000}}
    }),
    (bedrock("openai.gpt-oss"), "high", {"additionalModelRequestFields": {"reasoning_effort": "high"}}),
]  # fmt: skip


def last_body(web):
    return json.loads(web.requests[-1][3])


@pytest.mark.parametrize(("make", "reasoning", "expected"), MAPPED)
async def test_reasoning_is_sent_in_the_terms_of_the_provider(web, make, reasoning, expected):
    assert (await Agent(make(web), reasoning=reasoning).run("hello")).text == "hi"
    assert expected.items() <= last_body(web).items()


@pytest.mark.parametrize(
    ("name", "reasoning", "expected"),
    [
        ("gemini-3-flash", "low", {"thinking_level": "LOW"}),
        ("gemini-2.5-pro", "low", {"thinking_budget": 1024}),
        ("gemini-3-flash", 500, {"thinking_budget": 500}),
    ],
)
async def test_reasoning_of_gemini_is_a_level_or_a_number_of_tokens(web, name, reasoning, expected):
    await Agent(google(name)(web), reasoning=reasoning).run("hello")
    assert last_body(web)["generationConfig"]["thinkingConfig"] == {"include_thoughts": True, **expected}


@pytest.mark.parametrize("make", [model_at, responses, anthropic("claude-haiku-5-5"), mistral, bedrock("meta.llama")])
async def test_nothing_is_sent_by_default(web, make):
    await Agent(make(web)).run("hello")
    assert not {
        "reasoning", "reasoning_effort", "thinking", "output_config", "additionalModelRequestFields"
    } & last_body(web).keys()  # fmt: skip


@pytest.mark.parametrize(
    ("make", "reasoning", "message"),
    [
        (model_at, 500, r"takes reasoning as 'low', 'medium' or 'high', not as a number of tokens \(500\)"),
        (responses, 500, "OpenAI takes reasoning as 'low'"),
        (mistral, 500, "Mistral takes reasoning as 'low'"),
        (bedrock("amazon.nova-2"), 500, "Nova takes reasoning as 'low'"),
        (bedrock("meta.llama"), "low", "meta.llama has no reasoning setting; leave out reasoning="),
        (
            anthropic("claude-haiku-4-5"),
            500,
            r"1024 tokens of reasoning to less than max_tokens \(16384\), not 500",
        ),
        (anthropic("claude-haiku-4-5"), 16_384, "change reasoning= or the model's max_tokens"),
    ],
)
async def test_reasoning_that_cannot_be_mapped_is_refused_before_anything_is_sent(web, make, reasoning, message):
    with pytest.raises(ToolConfigurationError, match=message):
        await Agent(make(web), reasoning=reasoning).run("hello")
    assert web.requests == []


@pytest.mark.parametrize("reasoning", ["max", "", 0, -1, True, 1.5, ["low"]])
def test_rejects_values_that_are_neither_a_level_nor_tokens(reasoning):
    with pytest.raises(ToolDefinitionError, match="Agent reasoning must be 'low', 'medium', 'high', or a number"):
        Agent(ScriptedModel([]), reasoning=reasoning)


@pytest.mark.parametrize(
    ("make", "settings", "expected"),
    [
        (responses, {"reasoning": {"summary": "detailed"}}, {"reasoning": {"effort": "low", "summary": "detailed"}}),
        (model_at, {"reasoning_effort": "minimal"}, {"reasoning_effort": "minimal"}),
        (anthropic("claude-x"), {"output_config": {"effort": "max"}}, {"output_config": {"effort": "max"}}),
    ],
)
async def test_settings_of_the_provider_take_precedence(web, make, settings, expected):
    await Agent(make(web), reasoning="low", settings=settings).run("hello")
    assert expected.items() <= last_body(web).items()


@pytest.mark.parametrize("make", [anthropic("claude-x"), bedrock("anthropic.claude-sonnet-4-5-v1")])
async def test_claude_is_not_asked_to_reason_before_a_call_that_it_must_make(web, make):
    request = ChatRequest([UserMessage("hello")], tool_choice="required", reasoning="low")
    await make(web).reply(request)
    assert not {"thinking", "additionalModelRequestFields"} & last_body(web).keys()


# --- thoughts


async def chunks_of(model):
    return [
        chunk async for chunk in model.stream(ChatRequest([UserMessage("hello")])) if not isinstance(chunk, StreamEnd)
    ]


THOUGHT, ANSWER = ThoughtDelta("Hm."), TextDelta("hi")


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_thoughts_of_chat_completions_are_chunks(web, name):
    web.answers[CHAT] = sse(delta(**{name: "Hm."}), delta(**{name: ""}), delta("stop", content="hi"))
    assert await chunks_of(model_at(web)) == [THOUGHT, ANSWER]


@pytest.mark.parametrize("kind", ["reasoning_summary_text", "reasoning_text"])
async def test_thoughts_of_responses_are_chunks(web, kind):
    def thought(text):
        about = {"item_id": "r", "output_index": 0, "summary_index": 0, "content_index": 0, "sequence_number": 0}
        return {"type": f"response.{kind}.delta", "delta": text, **about}

    done = {"type": "response.completed", "sequence_number": 1, "response": response(text_item("hi"))}
    web.answers[RESPONSES] = sse(thought("Hm."), thought(""), done)
    assert await chunks_of(responses(web)) == [THOUGHT, ANSWER]


async def test_thoughts_of_claude_are_chunks(web):
    events = [
        {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": ""}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "hi"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]
    body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    web.answers["/v1/messages"] = (200, {"Content-Type": "text/event-stream"}, body)
    assert await chunks_of(anthropic("claude-x")(web)) == [THOUGHT, ANSWER]


async def test_thoughts_that_are_sent_whole_are_not_part_of_the_answer(web):
    blocks = [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}, {"type": "text", "text": "hi"}]
    message = {"id": "m", "type": "message", "role": "assistant", "content": blocks, "stop_reason": "end_turn"}
    web.answers["/v1/messages"] = whole({**message, "usage": {"output_tokens": 3}})
    assert (await anthropic("claude-x")(web).reply(ChatRequest([UserMessage("hello")]))).text == "hi"
    content = [{"reasoningContent": {"reasoningText": {"text": "Hm."}}}, {"text": "hi"}]
    output = {"message": {"role": "assistant", "content": content}}
    web.answers["/model/amazon.nova-2/converse"] = whole({"output": output, "stopReason": "end_turn"})
    assert (await bedrock("amazon.nova-2")(web).reply(ChatRequest([UserMessage("hello")]))).text == "hi"


class Thinker(FunctionModel):
    async def stream(self, request):
        yield THOUGHT
        yield ANSWER
        yield StreamEnd()


async def test_thoughts_are_events_of_a_run_and_not_part_of_its_answer():
    events = [event async for event in Agent(Thinker(lambda _: "hi")).stream("hello")]
    assert [event.kind for event in events] == ["thought_delta", "text_delta", "turn_ended", "final"]
    assert (events[0], events[-1].result.text) == (THOUGHT, "hi")


def test_thoughts_count_against_the_size_of_a_reply():
    with pytest.raises(Exception, match="longer than"):
        Assembly(5).assemble([ThoughtDelta("a" * 6), StreamEnd()])


async def test_thoughts_and_their_setting_are_recorded(tmp_path):
    path, request = tmp_path / "a.jsonl", ChatRequest([UserMessage("hello")], reasoning="low")
    recorder = RecordedModel(path, Thinker(lambda _: "hi"))
    assert [chunk async for chunk in recorder.stream(request)][0] == THOUGHT  # noqa: RUF015 - the whole is recorded
    replayed = RecordedModel(path)
    with pytest.raises(Exception, match="has no recording of this request"):
        await replayed.reply(ChatRequest([UserMessage("hello")]))
    assert [chunk async for chunk in replayed.stream(request)] == [THOUGHT, ANSWER, StreamEnd()]
