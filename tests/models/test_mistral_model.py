"""Mistral's models, against a fake server."""

import asyncio
import gc
import json
from functools import partial

import pytest
from mistralai.client import Mistral
from mistralai.client.utils import BackoffStrategy, RetryConfig

from helpers.provider_checks import (
    HELLO,
    IMAGE,
    WEATHER,
    Report,
    Waiting,
    assert_an_agent_runs_in_each_of_its_ways,
    assert_connections_are_worth_another_try,
    assert_hangs_up_when_cancelled,
    assert_hangs_up_when_closed,
    assert_serves_many_at_once,
    assert_serves_one_loop_after_the_other,
    failed,
    replied,
    streamed,
    weather,
)
from helpers.provider_server import provider_serving
from toolsemble import (
    Agent,
    AgentExecutionError,
    ToolCall,
    ToolConfigurationError,
    ToolResult,
    ToolSpecification,
)
from toolsemble.agent import Retry
from toolsemble.models import (
    ArgumentsDelta,
    AssistantMessage,
    CallDelta,
    ChatReply,
    ChatRequest,
    MistralModel,
    StreamEnd,
    SystemMessage,
    TextDelta,
    ThoughtDelta,
    TokenUsage,
    UserMessage,
    message_from_json,
    message_to_json,
    model_of,
)

pytestmark = pytest.mark.slow

WRITTEN_WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "Rome, I guess."}], "signature": "c2ln"}


def make_call(name="weather", arguments='{"city": "Rome"}', id="abcdefghi", **more):
    return {"id": id, "function": {"name": name, "arguments": arguments}, **more}


def completion(content="", *calls, finish="stop", usage=None, **more):
    usage = usage or {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    message = {"role": "assistant", "content": content, "tool_calls": list(calls) or None}
    choices = [{"index": 0, "message": message, "finish_reason": finish}]
    about = {"id": "cmpl-1", "object": "chat.completion", "model": "mistral", "created": 1}
    return {**about, "usage": usage, "choices": choices, **more}


def delta(finish=None, usage=None, index=0, **fields):
    choice = {"index": index, "delta": fields, "finish_reason": finish}
    about = {"id": "cmpl-1", "object": "chat.completion.chunk", "model": "mistral", "created": 1, "p": "abc"}
    return {**about, "choices": [choice], **({"usage": usage} if usage else {})}


def events(whole):
    """Return a completion as the events in which it would come."""
    choice = whole["choices"][0]
    content, calls = choice["message"]["content"], choice["message"]["tool_calls"] or []
    sent = [delta(role="assistant", content="")]
    if isinstance(content, str):
        sent += [delta(content=part) for part in (content[: len(content) // 2], content[len(content) // 2 :])]
    else:
        sent += [delta(content=[chunk]) for chunk in content]
    sent += [delta(content=None, tool_calls=[{**call, "index": place}]) for place, call in enumerate(calls)]
    return [*sent, delta(choice["finish_reason"], whole["usage"], content=""), "data: [DONE]\n\n"]


def write_event(event):
    return f"data: {json.dumps(event)}\n\n".encode()


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    for name in ("MISTRAL_API_KEY", "MISTRAL_SA_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server():
    with provider_serving("/v1/chat/completions", write_event) as made:
        made.answers = [completion("hi")]
        yield made


def make_model(server, **given):
    return MistralModel("mistral-x", **{"api_key": "s3cret-key", "base_url": server.url, **given})


async def send(server, request, **given):
    """Return the body that a request becomes."""
    await make_model(server, **given).reply(request)
    return server.bodies[-1]


# --- requests


async def test_conversation_is_sent_in_mistral_format(server):
    first, second = ToolCall("weather", {"city": "Rome"}, "abcdefghi"), ToolCall("weather", '{"city": "Bonn"}', "c2")
    request = ChatRequest(
        [
            SystemMessage("You are brief."),
            UserMessage("What is this?", (IMAGE,)),
            AssistantMessage("Let me see.", (first, second)),
            replied(second, ToolResult.failure("no such city")),
            replied(first, contents=[IMAGE]),
            UserMessage("And now?"),
            AssistantMessage("", ()),
            SystemMessage("Be kind."),
            UserMessage("", (IMAGE,)),
            AssistantMessage("Warm."),
            UserMessage("Thanks"),
        ],
        [WEATHER, ToolSpecification("now", "The time")],
    )
    image = {"type": "image_url", "image_url": "data:image/png;base64,AP8="}
    assert await send(server, request) == {
        "model": "mistral-x",
        "stream": False,
        "messages": [
            {"role": "system", "content": "You are brief.\n\nBe kind."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    image,
                ],
            },
            {
                "role": "assistant",
                "content": "Let me see.",
                "tool_calls": [
                    make_call(arguments='{"city":"Rome"}', type="function", index=0),
                    make_call(arguments='{"city": "Bonn"}', id="call00000", type="function", index=0),
                ],
                "prefix": False,
            },
            {"role": "tool", "tool_call_id": "call00000", "name": "weather", "content": "Error: no such city"},
            {
                "role": "tool",
                "tool_call_id": "abcdefghi",
                "name": "weather",
                "content": [{"type": "text", "text": "21 degrees"}, image],
            },
            {"role": "assistant", "content": "OK.", "prefix": False},
            {"role": "user", "content": "And now?"},
            {"role": "user", "content": [image]},
            {"role": "assistant", "content": "Warm.", "prefix": False},
            {"role": "user", "content": "Thanks"},
        ],
        "tools": [
            WRITTEN_WEATHER,
            {
                "type": "function",
                "function": {
                    "name": "now",
                    "description": "The time",
                    "parameters": {"type": "object", "properties": {}},
                },
            },
        ],
    }
    assert server.headers[-1]["authorization"] == "Bearer s3cret-key"


@pytest.mark.parametrize(("choice", "written"), [("auto", None), ("required", "any"), ("none", "none")])
async def test_tool_choice_is_sent(server, choice, written):
    body = await send(server, ChatRequest(HELLO.messages, [WEATHER], choice))
    assert (body["tools"], body.get("tool_choice")) == ([WRITTEN_WEATHER], written)
    assert "tool_choice" not in await send(server, ChatRequest(HELLO.messages, (), choice))


async def test_output_schema_is_sent_as_format(server):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert (await send(server, ChatRequest(HELLO.messages, output_schema=schema)))["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {**schema, "additionalProperties": False}, "strict": True},
    }


async def test_unsupported_output_schema_is_rejected_with_hint(server):
    request = ChatRequest(HELLO.messages, output_schema={"type": "object", "additionalProperties": True})
    with pytest.raises(ToolConfigurationError, match=r"cannot enforce this schema: \$.*native_output=False"):
        await make_model(server).reply(request)
    assert server.bodies == []


async def test_settings_are_passed_on(server):
    search = {"type": "image_generation"}
    settings = {
        "temperature": 0,
        "max_tokens": 5,
        "random_seed": 7,
        "prompt_cache_key": "session",
        "http_headers": {"x-trace": "t1"},
        "tools": [search],
        "stream": True,
    }
    assert await send(server, ChatRequest(HELLO.messages, [WEATHER], settings=settings)) == {
        "model": "mistral-x",
        "stream": False,
        "messages": [{"role": "user", "content": "hello"}],
        "temperature": 0,
        "max_tokens": 5,
        "random_seed": 7,
        "prompt_cache_key": "session",
        "tools": [WRITTEN_WEATHER, search],
    }
    assert server.headers[-1]["x-trace"] == "t1"


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        ('{"city": "Rome"}', '{"city": "Rome"}'),
        ('{"city": "Köln"}', '{"city": "Köln"}'),
        ("", "{}"),
        ('{"city": "Ro', '{"unreadable_arguments":"{\\"city\\": \\"Ro"}'),
        ("[1]", '{"unreadable_arguments":"[1]"}'),
        ("\ud800", '{"unreadable_arguments":"\\\\ud800"}'),
    ],
)
async def test_any_arguments_can_be_sent_back(server, arguments, written):
    call = ToolCall("weather", arguments, "abcdefghi")
    body = await send(server, ChatRequest([AssistantMessage("", (call,)), replied(call)], [WEATHER]))
    assert body["messages"][0]["tool_calls"] == [make_call(arguments=written, type="function", index=0)]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([None, None], ["call00000", "call00001"]),
        (["call00000", None], ["call00000", "call00001"]),
        (["abcdefghi", "abcdefghi"], ["abcdefghi", "call00000"]),
        (["toolu_123", "x" * 40], ["call00000", "call00001"]),
    ],
)
async def test_invalid_call_ids_are_replaced_consistently(server, ids, expected):
    calls = tuple(ToolCall("weather", {"city": "Rome"}, each) for each in ids)
    body = await send(server, ChatRequest([AssistantMessage("", calls), *map(replied, calls)], [WEATHER]))
    messages = body["messages"]
    assert [call["id"] for call in messages[0]["tool_calls"]] == expected
    assert [message["tool_call_id"] for message in messages[1:]] == expected


async def test_invalid_names_and_texts_are_sanitized(server):
    call = ToolCall("rm -rf /", {}, "abcdefghi")
    messages = [SystemMessage("a\ud800"), UserMessage("b\ud800"), AssistantMessage("c\ud800", (call,)), replied(call)]
    written = (await send(server, ChatRequest(messages, [WEATHER])))["messages"]
    assert [message["content"] for message in written] == ["a\\ud800", "b\\ud800", "c\\ud800", "21 degrees"]
    assert (written[2]["tool_calls"][0]["function"]["name"], written[3]["name"]) == ("rm_-rf__", "rm_-rf__")


# --- replies

WHOLE = [
    (completion("Rome"), ChatReply("Rome", (), TokenUsage(9, 3), "stop")),
    (
        completion([{"type": "text", "text": "All roads "}, {"type": "text", "text": "lead to Rome"}]),
        ChatReply("All roads lead to Rome", usage=TokenUsage(9, 3)),
    ),
    (
        completion("Let me see.", make_call(), make_call("now", "{}", "jklmnopqr"), finish="tool_calls"),
        ChatReply(
            "Let me see.",
            (ToolCall("weather", '{"city": "Rome"}', "abcdefghi"), ToolCall("now", "{}", "jklmnopqr")),
            TokenUsage(9, 3),
            "calls",
        ),
    ),
    (
        completion(
            "x",
            usage={
                "prompt_tokens": 10,
                "completion_tokens": 7,
                "total_tokens": 17,
                "prompt_tokens_details": {"cached_tokens": 4},
            },
        ),
        ChatReply("x", (), TokenUsage(10, 7, 4)),
    ),
    (completion("x", finish="length"), ChatReply("x", (), TokenUsage(9, 3), "length")),
    (completion("x", finish="model_length"), ChatReply("x", (), TokenUsage(9, 3), "length")),
    (completion("x", finish="content_filter"), ChatReply("x", (), TokenUsage(9, 3), "refusal")),
    (completion("x", finish="something_new"), ChatReply("x", (), TokenUsage(9, 3), "other")),
    (completion(""), ChatReply("", (), TokenUsage(9, 3), "stop")),
    (
        completion([THOUGHT, {"type": "text", "text": "Rome"}, {"type": "novelty", "x": 1}]),
        ChatReply(
            "Rome",
            (),
            TokenUsage(9, 3),
            "stop",
            {"mistral": [THOUGHT, {"type": "text", "length": 4}, {"type": "novelty", "x": 1}]},
        ),
    ),
]


@pytest.mark.parametrize(("whole", "expected"), WHOLE)
async def test_reply_and_stream_agree(server, whole, expected):
    server.answers = [whole]
    assert await make_model(server).reply(HELLO) == expected
    server.answers = [events(whole)]
    chunks = await streamed(make_model(server))
    assert chunks[-1] == StreamEnd(expected.usage, expected.stop_reason, expected.details)
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta)) == expected.text
    assert [body.get("stream") for body in server.bodies] == [False, True]


async def test_stream_yields_chunks_as_received(server):
    server.answers = [
        events(completion("Let me see.", make_call(), make_call("now", {}, "jklmnopqr"), finish="tool_calls"))
    ]
    assert await streamed(make_model(server)) == [
        TextDelta("Let m"),
        TextDelta("e see."),
        CallDelta(0, "weather", "abcdefghi"),
        ArgumentsDelta(0, '{"city": "Rome"}'),
        CallDelta(1, "now", "jklmnopqr"),
        StreamEnd(TokenUsage(9, 3), "calls"),
    ]


def make_call_chunk(index, name, id, arguments=""):
    return {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    "pieces",
    [
        # further pieces with an empty name and without an id, in turns
        [
            [make_call_chunk(0, "a", "aaaaaaaaa")],
            [make_call_chunk(1, "b", "bbbbbbbbb")],
            [{"index": 1, "function": {"name": "", "arguments": '{"b"'}}],
            [{"index": 0, "id": "null", "function": {"name": "", "arguments": '{"a"'}}],
            [
                {"index": 1, "function": {"name": "", "arguments": ":1}"}},
                {"index": 0, "function": {"name": "", "arguments": ":0}"}},
            ],
        ],
        # further pieces without a name
        [
            [make_call_chunk(0, "a", "aaaaaaaaa", '{"a"'), make_call_chunk(1, "b", "bbbbbbbbb", '{"b":1}')],
            [{"index": 0, "function": {"arguments": ":0}"}}],
        ],
        # no place that makes sense
        [
            [make_call_chunk([0], "a", "aaaaaaaaa", '{"a":0}')],
            [make_call_chunk(None, "b", "bbbbbbbbb", '{"b":1}')],
        ],
        # no place at all
        [
            [{"id": "aaaaaaaaa", "function": {"name": "a", "arguments": '{"a":0}'}}],
            [{"id": "bbbbbbbbb", "function": {"name": "b", "arguments": '{"b"'}}],
            [{"function": {"arguments": ":1}"}}],
        ],
        # the same place for each
        [[make_call_chunk(0, "a", "aaaaaaaaa", '{"a":0}'), make_call_chunk(0, "b", "bbbbbbbbb", '{"b":1}')]],
        # a piece that says nothing yet
        [
            [{"index": 0, "id": "aaaaaaaaa", "function": None}],
            [make_call_chunk(0, "a", "aaaaaaaaa", '{"a":0}')],
            [make_call_chunk(1, "b", "bbbbbbbbb", {"b": 1})],
        ],
    ],
)
async def test_call_chunks_are_assembled_in_any_order(server, pieces):
    sent = [delta(tool_calls=calls) for calls in pieces]
    server.answers = [[*sent, delta("tool_calls", content="")]]
    chunks = await streamed(make_model(server))
    arguments = {0: "", 1: ""}
    for chunk in chunks:
        if isinstance(chunk, ArgumentsDelta):
            arguments[chunk.index] += chunk.text
    assert [chunk for chunk in chunks if isinstance(chunk, CallDelta)] == [
        CallDelta(0, "a", "aaaaaaaaa"),
        CallDelta(1, "b", "bbbbbbbbb"),
    ]
    assert arguments == {0: '{"a":0}', 1: '{"b":1}'}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([1, 2], "[1, 2]"),
        ('{"city": "Ro', '{"city": "Ro'),
        ({"city": "Rome"}, '{"city":"Rome"}'),
        ("", ""),
        (7, "7"),
    ],
)
async def test_non_object_arguments_are_passed_on_unchanged(server, arguments, expected):
    server.answers = [completion("", make_call(arguments=arguments), finish="tool_calls")]
    assert (await make_model(server).reply(HELLO)).calls == (ToolCall("weather", expected, "abcdefghi"),)


async def test_call_without_id_is_accepted(server):
    server.answers = [completion("", {"function": {"name": "now", "arguments": "{}"}}, finish="tool_calls")]
    assert (await make_model(server).reply(HELLO)).calls == (ToolCall("now", "{}"),)


async def test_other_choices_and_malformed_chunks_are_skipped(server):
    odd = [
        delta(index=1, content="not asked for"),
        delta(content=[None, {"type": 7}, {"type": "text"}, {"type": "text", "text": "Ro"}]),
        delta(content=7, tool_calls=7),
        {"choices": "none"},
        {"choices": [None]},
    ]
    server.answers = [[*odd, delta("stop", content="me", usage={"prompt_tokens": "many"})]]
    assert await streamed(make_model(server)) == [TextDelta("Ro"), TextDelta("me"), StreamEnd(TokenUsage(0, 0))]


async def test_streamed_reasoning_is_sent_back_whole(server):
    def thinking(*thoughts, **more):
        return delta(content=[{"type": "thinking", "thinking": list(thoughts), **more}])

    reference = {"type": "reference", "reference_ids": [1]}
    server.answers = [
        [
            thinking({"type": "text", "text": "Rome,"}, signature=None),
            thinking({"type": "text", "text": " I "}, {"type": "text", "text": "guess"}),
            thinking(reference, {"type": "text", "text": "."}, signature="c2ln", closed=True),
            delta(content=[{"type": "text", "text": "Ro"}]),
            delta("stop", content="me"),
        ]
    ]
    chunks = await streamed(make_model(server))
    thought = {
        "type": "thinking",
        "thinking": [{"type": "text", "text": "Rome, I guess"}, reference, {"type": "text", "text": "."}],
        "signature": "c2ln",
        "closed": True,
    }
    details = {"mistral": [thought, {"type": "text", "length": 4}]}
    thoughts = [ThoughtDelta(piece) for piece in ("Rome,", " I ", "guess", ".")]
    assert chunks == [*thoughts, TextDelta("Ro"), TextDelta("me"), StreamEnd(stop_reason="stop", details=details)]
    answer = message_from_json(message_to_json(AssistantMessage("Rome", (), details)))
    server.answers = [completion("hi")]
    body = await send(server, ChatRequest([*HELLO.messages, answer, UserMessage("thanks")]))
    assert body["messages"][1] == {
        "role": "assistant",
        "content": [thought, {"type": "text", "text": "Rome"}],
        "prefix": False,
    }
    other = AssistantMessage("Rome", (), {"anthropic": [THOUGHT]})
    body = await send(server, ChatRequest([*HELLO.messages, other, UserMessage("thanks")]))
    assert body["messages"][1]["content"] == "Rome"


@pytest.mark.parametrize(
    ("whole", "words", "retryable"),
    [
        (
            completion("", finish="length"),
            "Mistral reached the token limit before it answered (length); raise the limit",
            False,
        ),
        (completion([THOUGHT], finish="model_length"), "reached the token limit before it answered", False),
        (completion(" ", finish="content_filter"), "Mistral refused to answer (content_filter)", False),
        (completion("All roads", finish="error"), "Mistral ended the answer with an error", True),
    ],
)
async def test_empty_reply_error_explains_stop_reason(server, whole, words, retryable):
    for answer, streaming in ((whole, False), (events(whole), True)):
        server.answers = [answer]
        error = await failed(make_model(server), streaming=streaming)
        assert words in str(error)
        assert error.retryable is retryable


@pytest.mark.parametrize("choices", [[], None, "none", [{"index": 0, "finish_reason": None}]])
async def test_answer_without_choices_is_retryable(server, choices):
    server.answers = [completion("x", choices=choices)]
    error = await failed(make_model(server))
    assert "is empty" in str(error)
    assert error.retryable


# --- what goes wrong


def make_error(status, body, **headers):
    return status, {"Content-Type": "application/json", **headers}, json.dumps(body)


@pytest.mark.parametrize(
    ("answer", "words", "retryable", "retry_after"),
    [
        (
            make_error(400, {"object": "error", "message": "Unexpected role", "code": "3230"}),
            "(400): Unexp",
            False,
            None,
        ),
        (make_error(401, {"detail": "Unauthorized"}), "(401): Unauthorized; it refused the key passed as", False, None),
        (make_error(403, {"message": "not you"}), "(403): not you", False, None),
        (make_error(404, {"error": {"message": "no such model"}}), "(404): no such model", False, None),
        (
            make_error(422, {"detail": [{"loc": ["body", "model"], "msg": "missing", "type": "missing"}]}),
            '(422): [{"loc": ["body", "model"], "msg": "missing", "type": "missing"}]',
            False,
            None,
        ),
        (make_error(422, {"message": {"detail": "not the usual shape"}}), "(422): not the usual shape", False, None),
        (make_error(422, {"detail": "not the usual shape"}), "(422): not the usual shape", False, None),
        (make_error(408, {"message": "slow"}), "(408): slow", True, None),
        (make_error(429, {"message": "slow down"}, **{"retry-after": "7"}), "(429): slow down", True, 7.0),
        (make_error(429, {"message": "x"}, **{"retry-after-ms": "1500", "retry-after": "9"}), "(429)", True, 1.5),
        (make_error(500, {"message": "oops"}), "(500): oops", True, None),
        ((502, {"Content-Type": "text/html"}, "<html>Bad gateway</html>"), "(502): <html>Bad gateway", True, None),
        (make_error(400, {"message": "key s3cret-key\nis bad"}), "(400): key ***\\nis bad", False, None),
        ((200, {"Content-Type": "text/html"}, "<html>Hi</html>"), "(200): <html>Hi</html>", False, None),
        ((200, {"Content-Type": "application/json"}, '{"choices": ['), "cannot be read", True, None),
        ((200, {"Content-Type": "application/json"}, "[" * 100_000), "cannot be read", True, None),
    ],
)
async def test_error_has_server_message_and_retryable(server, answer, words, retryable, retry_after):
    for streaming in (False, True):
        if streaming and answer[0] == 200:
            continue
        server.answers = [answer]
        error = await failed(make_model(server), streaming=streaming)
        assert words in str(error)
        assert (error.retryable, error.retry_after) == (retryable, retry_after)
        assert "s3cret-key" not in str(error)
    assert len(server.bodies) == (1 if answer[0] == 200 else 2)


@pytest.mark.parametrize(("streaming", "words"), [(False, "(503): no reason is given"), (True, "without a reason")])
async def test_rejection_with_an_empty_body_is_retryable(server, streaming, words):
    server.answers = [(503, {}, "")]
    error = await failed(make_model(server), streaming=streaming)
    assert words in str(error)
    assert error.retryable


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"object": "error", "message": "Overloaded"}, "ended the answer with an error: Overloaded"),
        ({"error": {"message": "Overloaded"}}, "ended the answer with an error: Overloaded"),
        ({"error": 7}, "ended the answer with an error: 7"),
        ("data: {not json\n\n", "ended the answer with an error: {not json"),
    ],
)
async def test_error_event_in_stream_is_raised(server, event, words):
    server.answers = [[delta(content="All roads"), event]]
    error = await failed(make_model(server), streaming=True)
    assert words in str(error)
    assert error.retryable


@pytest.mark.parametrize("kept", [0, 1, 3])
@pytest.mark.parametrize("ends", [True, False])
async def test_truncated_stream_is_retryable(server, kept, ends):
    server.answers = [server.streaming(*events(completion("All roads lead to Rome"))[:kept], ends=ends)]
    error = await failed(make_model(server), streaming=True)
    assert ("cut off" if ends else "The connection to Mistral failed") in str(error)
    assert error.retryable


async def test_stream_that_is_not_text_is_retryable(server):
    data = b"data: \xff\n\n"
    server.answers = [server.streaming(ends=True, then=lambda handler: handler.wfile.write(b"9\r\n" + data + b"\r\n"))]
    assert "cannot be read" in str(await failed(make_model(server), streaming=True))


async def test_connection_errors_are_retryable(server):
    make = partial(make_model, server)
    await assert_connections_are_worth_another_try(server, make, "Mistral")


# --- cancellation, loops and clients


async def test_closing_stream_early_closes_connection(server):
    waiting = Waiting(server.streaming(delta(content="All roads")))
    server.answers = [waiting]
    await assert_hangs_up_when_closed(make_model(server), waiting, "All roads")


@pytest.mark.parametrize("streaming", [True, False])
async def test_cancelling_request_closes_connection(server, streaming):
    server.answers = [waiting := Waiting()]
    await assert_hangs_up_when_cancelled(make_model(server), waiting, streaming=streaming)


def test_model_works_in_successive_loops(server):
    assert_serves_one_loop_after_the_other(make_model(server), server)


async def test_requests_in_one_loop_share_connections(server):
    model = make_model(server)
    for _ in range(3):
        await model.reply(HELLO)
    assert len(set(server.ports)) == 1


async def test_requests_run_concurrently(server):
    await assert_serves_many_at_once(make_model(server), server, completion("hi"))


def test_garbage_collected_model_closes_connections(server):
    async def ask():
        return (await make_model(server).reply(HELLO)).text

    assert [asyncio.run(ask()) for _ in range(2)] == ["hi", "hi"]
    gc.collect()


async def test_given_client_is_used_without_retries_and_left_open(server):
    retries = RetryConfig("backoff", BackoffStrategy(1, 10, 1.0, 1000), retry_connection_errors=True)
    async with Mistral(api_key="other", server_url=server.url, retry_config=retries) as client:
        model = MistralModel("mistral-x", client=client)
        assert (await model.reply(HELLO)).text == "hi"
        assert server.headers[-1]["authorization"] == "Bearer other"
        server.answers = [make_error(503, {"message": "later"})]
        await failed(model)
        assert len(server.bodies) == 2
        assert not client.sdk_configuration.async_client.is_closed


# --- how it is made


def test_missing_key_error_names_variable(monkeypatch):
    with pytest.raises(ToolConfigurationError, match="needs a key: set MISTRAL_API_KEY, or pass api_key="):
        MistralModel("mistral-x")
    monkeypatch.setenv("MISTRAL_SA_TOKEN_PATH", "/run/token")
    assert repr(MistralModel("mistral-x")) == "MistralModel('mistral-x')"


async def test_key_of_environment_is_used(server, monkeypatch):
    monkeypatch.setenv("MISTRAL_API_KEY", "s3cret-key")
    server.answers = [make_error(401, {"detail": "wrong: s3cret-key"})]
    error = await failed(MistralModel("mistral-x", base_url=server.url))
    assert server.headers[-1]["authorization"] == "Bearer s3cret-key"
    assert "wrong: ***" in str(error)


async def test_refused_key_error_names_where_the_key_comes_from(server, monkeypatch):
    async def fail(**settings):
        server.answers = [make_error(401, {"detail": "No"})]
        return str(await failed(MistralModel("mistral-x", **settings)))

    assert (await fail(base_url=server.url)).endswith("No; set MISTRAL_API_KEY, or pass api_key=")
    async with Mistral(api_key="other", server_url=server.url) as client:
        assert (await fail(client=client)).endswith("No; it refused the key of the client")
    monkeypatch.setenv("MISTRAL_API_KEY", "s3cret-key")
    assert (await fail(base_url=server.url)).endswith("No; it refused the key from MISTRAL_API_KEY")


async def test_custom_server_needs_no_key(server):
    await MistralModel("mistral-x", base_url=server.url).reply(HELLO)
    assert "authorization" not in server.headers[-1]


def test_client_excludes_key():
    with pytest.raises(TypeError, match="takes a client, or api_key and base_url, not both"):
        MistralModel("mistral-x", client=object(), base_url="http://here")


def test_model_is_created_by_name(monkeypatch):
    monkeypatch.setenv("MISTRAL_API_KEY", "s3cret-key")
    model = model_of("mistral:mistral-large-latest")
    assert (type(model), model.name, model.native_output) == (MistralModel, "mistral-large-latest", False)
    with pytest.raises(ToolConfigurationError, match="'mistral' needs a model name"):
        model_of("mistral:")


# --- whole runs


TURNS = [completion([THOUGHT], make_call(), finish="tool_calls"), completion("It is 21 degrees.")]


async def test_agent_runs_with_this_model(server):
    await assert_an_agent_runs_in_each_of_its_ways(Agent(make_model(server), [weather]), server, TURNS, events)
    call = make_call(arguments='{"city": "Rome"}', type="function", index=0)
    assert [body["messages"] for body in server.bodies[1::2]] == [
        [
            {"role": "user", "content": "Rome?"},
            {"role": "assistant", "content": [THOUGHT], "tool_calls": [call], "prefix": False},
            {"role": "tool", "tool_call_id": "abcdefghi", "name": "weather", "content": "21 degrees in Rome"},
        ]
    ] * 3


async def test_agent_retries_busy_server(server):
    server.answers = [make_error(429, {"message": "slow down"}, **{"retry-after": "0"}), completion("hi")]
    result = await Agent(make_model(server), retry=Retry(attempts=2)).run("hello")
    assert (result.text, len(server.bodies)) == ("hi", 2)
    server.answers = [make_error(401, {"detail": "Unauthorized"})]
    with pytest.raises(AgentExecutionError, match="it refused the key passed as api_key="):
        await Agent(make_model(server), retry=Retry(attempts=2)).run("hello")


@pytest.mark.parametrize("native", [True, False])
async def test_agent_gets_typed_answer(server, native):
    report = json.dumps({"city": "Rome", "degrees": 21})
    server.answers = [completion(report) if native else completion("", make_call("final_answer", report))]
    result = await Agent(make_model(server, native_output=native), output_type=Report).run("Rome?")
    assert result.output == Report("Rome", 21)
    assert ("response_format" in server.bodies[0], "tools" in server.bodies[0]) == (native, not native)
