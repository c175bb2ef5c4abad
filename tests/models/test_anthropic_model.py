"""Anthropic's models, against a fake server; test_llama_server.py uses llama.cpp's server."""

import asyncio
import gc
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial

import anthropic
import pytest

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
    FileContent,
    ToolCall,
    ToolConfigurationError,
    ToolResult,
    ToolSpecification,
)
from toolsemble._runtime.event_loops import finish
from toolsemble.agent import Retry
from toolsemble.models import (
    AnthropicModel,
    ArgumentsDelta,
    AssistantMessage,
    CallDelta,
    ChatReply,
    ChatRequest,
    StreamEnd,
    SystemMessage,
    TextDelta,
    TokenUsage,
    UserMessage,
    message_from_json,
    message_to_json,
    model_of,
)

pytestmark = pytest.mark.slow

WRITTEN_WEATHER = {
    "name": "weather",
    "description": "The weather in a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
MARK = {"cache_control": {"type": "ephemeral"}}
THOUGHT = {"type": "thinking", "thinking": "Rome, I guess.", "signature": "c2ln"}
HIDDEN = {"type": "redacted_thinking", "data": "ZGF0YQ=="}


def text(content, **more):
    return {"type": "text", "text": content, **more}


def use(name="weather", input=None, id="toolu_1"):
    return {"type": "tool_use", "id": id, "name": name, "input": {"city": "Rome"} if input is None else input}


def message(*content, stop="end_turn", usage=None, **more):
    usage = usage or {"input_tokens": 9, "output_tokens": 3}
    about = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "stop_sequence": None}
    return {**about, "content": list(content), "stop_reason": stop, "usage": usage, **more}


def pieces(block):
    """Return a block's beginning, and what it grows by."""
    kind = block["type"]
    if kind == "text":
        half = len(block["text"]) // 2
        deltas = [{"type": "text_delta", "text": part} for part in (block["text"][:half], block["text"][half:])]
        cited = [{"type": "citations_delta", "citation": each} for each in block.get("citations") or ()]
        return {**text(""), "citations": None}, deltas + cited
    if kind == "thinking":
        half = len(block["thinking"]) // 2
        thoughts = block["thinking"][:half], block["thinking"][half:]
        deltas = [{"type": "thinking_delta", "thinking": part} for part in thoughts]
        return {**block, "thinking": "", "signature": ""}, [
            *deltas,
            {"type": "signature_delta", "signature": block.get("signature", "")},
        ]
    if kind in {"tool_use", "server_tool_use"}:
        written = json.dumps(block["input"]) if block["input"] else ""
        parts = written[:5], written[5:]
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in parts]
    return block, []


def events(whole):
    """Return a message as the events in which it would come."""
    content, usage = whole["content"], whole["usage"]
    start = {**whole, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    sent = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(content):
        begun, deltas = pieces(block)
        sent.append({"type": "content_block_start", "index": index, "content_block": begun})
        sent += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        sent.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None, "stop_details": whole.get("stop_details")}
    sent.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": usage["output_tokens"]}})
    return [*sent, {"type": "message_stop"}]


def write_event(event):
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch, tmp_path):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("ANTHROPIC_CONFIG_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))  # where the package looks for profiles
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


@pytest.fixture
def server():
    with provider_serving("/v1/messages", write_event) as made:
        made.answers = [message(text("hi"))]
        yield made


def make_model(server, **given):
    return AnthropicModel("claude-x", **{"api_key": "sk-secret", "base_url": server.url, "cache": False, **given})


async def send(server, request, **given):
    """Return the body that a request becomes."""
    await make_model(server, **given).reply(request)
    return server.bodies[-1]


# --- requests


async def test_conversation_is_sent_in_anthropic_format(server):
    first, second = ToolCall("weather", {"city": "Rome"}, "toolu_1"), ToolCall("weather", '{"city": "Bonn"}')
    request = ChatRequest(
        [
            SystemMessage("You are brief."),
            UserMessage("What is this?", (IMAGE,)),
            AssistantMessage("Let me see.", (first, second)),
            replied(second, ToolResult.failure("no such city")),
            replied(first, contents=[IMAGE, FileContent(b"a,b", "text/csv", "a.csv")]),
            UserMessage("And now?"),
            AssistantMessage("", ()),
            SystemMessage("Be kind."),
            UserMessage("", ()),
            AssistantMessage("Warm."),
            UserMessage("Thanks"),
        ],
        [WEATHER, ToolSpecification("now", "The time")],
    )
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AP8="}}
    source = {"type": "text", "media_type": "text/plain", "data": "a,b"}
    document = {"type": "document", "source": source, "title": "a.csv"}
    assert await send(server, request) == {
        "model": "claude-x",
        "max_tokens": 16384,
        "system": [text("You are brief."), text("Be kind.")],
        "messages": [
            {
                "role": "user",
                "content": [image, text("What is this?")],
            },
            {
                "role": "assistant",
                "content": [text("Let me see."), use(), use(input={"city": "Bonn"}, id="call_0")],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_0",
                        "content": "Error: no such city",
                        "is_error": True,
                    },
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "content": [text("21 degrees"), image, document],
                    },
                    text("And now?"),
                ],
            },
            {"role": "assistant", "content": [text("Warm.")]},
            {"role": "user", "content": [text("Thanks")]},
        ],
        "tools": [
            WRITTEN_WEATHER,
            {"name": "now", "description": "The time", "input_schema": {"type": "object", "properties": {}}},
        ],
    }
    assert server.headers[-1]["authorization"] == "Bearer sk-secret"


@pytest.mark.parametrize(
    ("choice", "written"), [("auto", None), ("required", {"type": "any"}), ("none", {"type": "none"})]
)
async def test_tool_choice_is_sent(server, choice, written):
    body = await send(server, ChatRequest(HELLO.messages, [WEATHER], choice))
    assert (body["tools"], body.get("tool_choice")) == ([WRITTEN_WEATHER], written)
    assert "tool_choice" not in await send(server, ChatRequest(HELLO.messages, (), choice))


async def test_tool_choice_setting_applies_when_request_is_auto(server):
    settings = {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    for choice, written in (("auto", settings["tool_choice"]), ("none", {"type": "none"})):
        body = await send(server, ChatRequest(HELLO.messages, [WEATHER], choice, settings=settings))
        assert body["tool_choice"] == written


async def test_called_tools_are_declared_without_offered_tools(server):
    call = ToolCall("look up!", {}, "toolu_1")
    body = await send(server, ChatRequest([UserMessage("a"), AssistantMessage("", (call, call)), *[replied(call)] * 2]))
    gone = {
        "name": "look_up_",
        "description": "Not available any more",
        "input_schema": {"type": "object", "properties": {}},
    }
    assert (body["tools"], body["tool_choice"]) == ([gone], {"type": "none"})


async def test_output_schema_is_sent_as_format(server):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "default": 1}}, "required": []}
    request = ChatRequest(HELLO.messages, output_schema=schema, settings={"output_config": {"effort": "low"}})
    assert (await send(server, request))["output_config"] == {
        "effort": "low",
        "format": {
            "type": "json_schema",
            "schema": {
                "type": "object",
                "properties": {"n": {"type": "integer", "description": "default: 1"}},
                "required": [],
                "additionalProperties": False,
            },
        },
    }


async def test_unsupported_output_schema_is_rejected_with_hint(server):
    request = ChatRequest(HELLO.messages, output_schema={"type": "object", "additionalProperties": True})
    with pytest.raises(ToolConfigurationError, match=r"cannot enforce this schema: \$.*native_output=False"):
        await make_model(server).reply(request)
    assert server.bodies == []


async def test_known_and_unknown_settings_are_passed_on(server):
    search = {"type": "web_search_20260318", "name": "web_search"}
    settings = {
        "max_tokens": 5,
        "stop_sequences": ["\n"],
        "temperature": 0,
        "extra_body": {"seed": 1},
        "extra_headers": {"x-trace": "t1"},
        "timeout": 30,
        "tools": [search],
        "stream": True,
    }
    body = await send(server, ChatRequest(HELLO.messages, [WEATHER], settings=settings))
    assert body == {
        "model": "claude-x",
        "max_tokens": 5,
        "messages": [{"role": "user", "content": [text("hello")]}],
        "stop_sequences": ["\n"],
        "temperature": 0,
        "seed": 1,
        "tools": [WRITTEN_WEATHER, search],
    }
    assert (server.headers[-1]["x-trace"], server.headers[-1]["x-stainless-timeout"]) == ("t1", "30")


@pytest.mark.parametrize(
    ("messages", "tools", "marked"),
    [
        (["system"], True, ["system", "messages"]),
        ([], True, ["tools", "messages"]),
        (["system"], False, ["system"]),
        ([], False, []),
    ],
)
async def test_repeated_content_is_marked_for_cache(server, messages, tools, marked):
    request = ChatRequest(
        [
            *(SystemMessage(each) for each in messages),
            UserMessage("one"),
            AssistantMessage("two"),
            UserMessage("three"),
        ],
        [ToolSpecification("now", "The time"), WEATHER] if tools else [],
    )
    body = await send(server, request, cache=True)
    plain = await send(server, request)
    for part in marked:
        blocks = plain[part][-1]["content"] if part == "messages" else plain[part]
        blocks[-1] |= MARK
    assert body == plain


async def test_conversation_ending_with_assistant_is_not_marked_for_cache(server):
    request = ChatRequest([UserMessage("one"), AssistantMessage("The answer is")], [WEATHER])
    assert (await send(server, request, cache=True))["messages"][-1]["content"] == [text("The answer is")]


@pytest.mark.parametrize(
    ("arguments", "input"),
    [
        ('{"city": "Rome"}', {"city": "Rome"}),
        ("", {}),
        ("  ", {}),
        ('{"city": "Ro', {"unreadable_arguments": '{"city": "Ro'}),
        ("[1]", {"unreadable_arguments": "[1]"}),
        ('{"x": NaN}', {"unreadable_arguments": '{"x": NaN}'}),
        ('{"x": 1e999}', {"unreadable_arguments": '{"x": 1e999}'}),
        ('{"x": "\\ud800"}', {"unreadable_arguments": '{"x": "\\ud800"}'}),
        ("\ud800", {"unreadable_arguments": "\\ud800"}),
        ('{"x": ' * 99 + "1" + "}" * 99, json.loads('{"x": ' * 99 + "1" + "}" * 99)),
        ('{"x":' * 150 + "1" + "}" * 150, {"unreadable_arguments": '{"x":' * 150 + "1" + "}" * 150}),
        ('{"x":' + "[" * 5000, {"unreadable_arguments": '{"x":' + "[" * 5000}),
        ('{"x":' + "[" * 5000 + "]" * 5000 + "}", {"unreadable_arguments": '{"x":' + "[" * 5000 + "]" * 5000 + "}"}),
    ],
)
async def test_any_arguments_can_be_sent_back(server, arguments, input):
    call = ToolCall("weather", arguments, "toolu_1")
    body = await send(server, ChatRequest([AssistantMessage("", (call,)), replied(call)], [WEATHER]))
    assert body["messages"][0]["content"] == [use(input=input)]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([None, None], ["call_0", "call_1"]),
        (["call_0", None], ["call_0", "call_1"]),
        ([None, "call_0"], ["call_1", "call_0"]),
        (["same", "same"], ["same", "call_0"]),
        (["functions.search:0", ""], ["call_0", "call_1"]),
        (["x" * 65, "ü"], ["call_0", "call_1"]),
    ],
)
async def test_invalid_call_ids_are_replaced_consistently(server, ids, expected):
    calls = tuple(ToolCall("weather", {"city": "Rome"}, each) for each in ids)
    turns = [entry for call in calls for entry in (AssistantMessage("", (call,)), replied(call))]
    for messages in ([AssistantMessage("", calls), *map(replied, calls)], turns):
        body = await send(server, ChatRequest([UserMessage("a"), *messages], [WEATHER]))
        blocks = [block for each in body["messages"] for block in each["content"]]
        assert [block["id"] for block in blocks if block["type"] == "tool_use"] == expected
        assert [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"] == expected


async def test_invalid_names_and_texts_are_sanitized(server):
    call = ToolCall("rm -rf / ; \ud800" + "x" * 100, {}, "c1")
    messages = [SystemMessage("a\ud800"), UserMessage("b\ud800"), AssistantMessage("c\ud800", (call,)), replied(call)]
    body = await send(server, ChatRequest(messages, [WEATHER]))
    texts = [block.get("text") for each in body["messages"] for block in each["content"]]
    assert (body["system"], texts) == ([text("a\\ud800")], ["b\\ud800", "c\\ud800", None, None])
    name = body["messages"][1]["content"][1]["name"]
    assert name == "rm_-rf______" + "x" * 52


async def test_reply_without_call_is_sent(server):
    body = await send(server, ChatRequest([replied(ToolCall("now", id="c1"))], [WEATHER]))
    assert body["messages"][0]["content"][0]["tool_use_id"] == "call_0"


# --- replies

WHOLE = [
    (message(text("Rome")), ChatReply("Rome", (), TokenUsage(9, 3), "stop")),
    (message(text("All roads "), text("lead to Rome")), ChatReply("All roads lead to Rome", usage=TokenUsage(9, 3))),
    (
        message(text("Let me see."), use(), use("now", {}, "toolu_2"), stop="tool_use"),
        ChatReply(
            "Let me see.",
            (ToolCall("weather", '{"city": "Rome"}', "toolu_1"), ToolCall("now", "{}", "toolu_2")),
            TokenUsage(9, 3),
            "calls",
        ),
    ),
    (
        message(
            text("x"),
            usage={
                "input_tokens": 10,
                "cache_creation_input_tokens": 20,
                "cache_read_input_tokens": 30,
                "output_tokens": 7,
                "output_tokens_details": {"thinking_tokens": 5},
                "service_tier": "standard",
            },
        ),
        ChatReply("x", (), TokenUsage(60, 7, 30, 5, 20)),
    ),
    (message(text("x"), stop="max_tokens"), ChatReply("x", (), TokenUsage(9, 3), "length")),
    (message(text("x"), stop="stop_sequence"), ChatReply("x", (), TokenUsage(9, 3), "stop")),
    (message(text("x"), stop="refusal"), ChatReply("x", (), TokenUsage(9, 3), "refusal")),
    (message(text("x"), stop="something_new"), ChatReply("x", (), TokenUsage(9, 3), "other")),
    (message(), ChatReply("", (), TokenUsage(9, 3), "stop")),
    (
        message(THOUGHT, HIDDEN, text("Rome")),
        ChatReply(
            "Rome", (), TokenUsage(9, 3), "stop", {"anthropic": [THOUGHT, HIDDEN, {"type": "text", "length": 4}]}
        ),
    ),
    (
        message({"type": "thinking", "thinking": "without a signature"}, text("Rome")),
        ChatReply("Rome", (), TokenUsage(9, 3)),
    ),
    (
        message(
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Rome"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
            text("Rome", citations=[{"type": "char_location", "cited_text": "Rome"}]),
        ),
        ChatReply(
            "Rome",
            (),
            TokenUsage(9, 3),
            "stop",
            {
                "anthropic": [
                    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Rome"}},
                    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
                    {"type": "text", "length": 4, "citations": [{"type": "char_location", "cited_text": "Rome"}]},
                ]
            },
        ),
    ),
]


def summarize(reply):
    """Return a reply with its calls' arguments as values: how they are laid out is the server's."""
    calls = tuple(ToolCall(call.name, json.loads(call.json), call.id) for call in reply.calls)
    return ChatReply(reply.text, calls, reply.usage, reply.stop_reason, reply.details)


@pytest.mark.parametrize(("whole", "expected"), WHOLE)
async def test_reply_and_stream_agree(server, whole, expected):
    server.answers = [whole]
    assert summarize(await make_model(server).reply(HELLO)) == summarize(expected)
    server.answers = [events(whole)]
    chunks = await streamed(make_model(server))
    assert chunks[-1] == StreamEnd(expected.usage, expected.stop_reason, expected.details)
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta)) == expected.text
    server.answers = [events(whole)]
    assert [body.get("stream") for body in server.bodies] == [None, True]


async def test_stream_yields_chunks_as_received(server):
    server.answers = [events(message(text("Let me see."), use(), use("now", {}, "toolu_2"), stop="tool_use"))]
    assert await streamed(make_model(server)) == [
        TextDelta("Let m"),
        TextDelta("e see."),
        CallDelta(0, "weather", "toolu_1"),
        ArgumentsDelta(0, '{"cit'),
        ArgumentsDelta(0, 'y": "Rome"}'),
        CallDelta(1, "now", "toolu_2"),
        ArgumentsDelta(1, "{}"),
        StreamEnd(TokenUsage(9, 3), "calls"),
    ]


async def test_interleaved_call_chunks_are_separated(server):
    def delta(index, piece):
        return {
            "type": "content_block_delta",
            "index": index,
            "delta": {"type": "input_json_delta", "partial_json": piece},
        }

    def start(index, id):
        return {"type": "content_block_start", "index": index, "content_block": use(id=id, input={})}

    stream = events(message(stop="tool_use"))
    between = [start(0, "a"), start(1, "b"), delta(1, '{"b"'), delta(0, '{"a"'), delta(1, ":1}"), delta(0, ":0}")]
    stray = [delta(7, "of nothing"), {"type": "content_block_stop", "index": 7}, {"type": "news"}]
    server.answers = [[*stream[:1], *between, *stray, *stream[1:]]]
    chunks = await streamed(make_model(server))
    assert [(chunk.index, chunk.text) for chunk in chunks if isinstance(chunk, ArgumentsDelta)] == [
        (1, '{"b"'),
        (0, '{"a"'),
        (1, ":1}"),
        (0, ":0}"),
    ]


@pytest.mark.parametrize(
    ("input", "arguments"),
    [([1, 2], "[1, 2]"), ("Rome", "Rome"), (None, "{}"), (7, "7"), ({"city": None}, '{"city":null}')],
)
async def test_non_object_arguments_are_passed_on_unchanged(server, input, arguments):
    server.answers = [message({**use(), "input": input}, stop="tool_use")]
    assert (await make_model(server).reply(HELLO)).calls == (ToolCall("weather", arguments, "toolu_1"),)


async def test_truncated_arguments_are_passed_on_unchanged(server):
    stream = events(message(use(), stop="max_tokens"))
    server.answers = [[event for event in stream if event.get("delta", {}).get("partial_json") != 'y": "Rome"}']]
    assert await streamed(make_model(server)) == [
        CallDelta(0, "weather", "toolu_1"),
        ArgumentsDelta(0, '{"cit'),
        StreamEnd(TokenUsage(9, 3), "length"),
    ]


async def test_input_in_call_start_event_is_used(server):
    stream = events(message(use(input={}), stop="tool_use"))
    server.answers = [
        [{**each, "content_block": use()} if each["type"] == "content_block_start" else each for each in stream]
    ]
    assert (await streamed(make_model(server)))[:2] == [
        CallDelta(0, "weather", "toolu_1"),
        ArgumentsDelta(0, '{"city":"Rome"}'),
    ]


async def test_malformed_blocks_are_skipped(server):
    broken = {"type": "server_tool_use", "id": "s1", "name": "x", "input": {}}
    stream = events(message(broken, text("Rome")))
    begin = {"type": "content_block_start", "index": 9}
    bad_json = {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{"}}
    odd = [
        begin,
        {**begin, "index": [9]},
        {**begin, "content_block": None},
        {**begin, "content_block": {"type": 7}},
        {**begin, "delta": None},
    ]
    server.answers = [[*stream[:3], bad_json, *odd, *stream[3:]]]
    details = {"anthropic": [broken, {"type": "text", "length": 4}]}
    assert (await streamed(make_model(server)))[-1] == StreamEnd(TokenUsage(9, 3), "stop", details)


@pytest.mark.parametrize(
    ("whole", "words"),
    [
        (
            message(stop="refusal", stop_details={"type": "refusal", "category": "cyber", "explanation": "No malware"}),
            "refused to answer (refusal): No malware",
        ),
        (
            message(stop="refusal", stop_details={"type": "refusal", "category": "bio"}),
            "refused to answer (refusal): bio",
        ),
        (message(text(" "), stop="refusal"), "Anthropic refused to answer (refusal)"),
        (message(THOUGHT, stop="max_tokens"), "token limit before it answered (max_tokens); raise the limit"),
    ],
)
async def test_empty_reply_error_explains_stop_reason(server, whole, words):
    for answer, streaming in ((whole, False), (events(whole), True)):
        server.answers = [answer]
        error = await failed(make_model(server), streaming=streaming)
        assert words in str(error)
        assert not error.retryable


async def test_paused_turn_is_continued(server):
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Rome"}}
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    usage = {"input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": 4}
    parts = [
        message(text("Searching. "), text(" "), search, stop="pause_turn", usage=usage),
        message(result, text("Rome"), use(), stop="tool_use"),
    ]
    noted = [
        {"type": "text", "length": 11},
        {"type": "text", "length": 1},
        search,
        result,
        {"type": "text", "length": 4},
        {"type": "tool_use"},
    ]
    call = ToolCall("weather", {"city": "Rome"}, "toolu_1")
    expected = ChatReply("Searching.  Rome", (call,), TokenUsage(16, 7, 2), "calls", {"anthropic": noted})
    server.answers = [*parts]
    assert await make_model(server).reply(HELLO) == expected
    assert server.bodies[1]["messages"] == [
        {"role": "user", "content": [text("hello")]},
        {"role": "assistant", "content": [text("Searching. "), search]},
    ]
    server.answers = [events(part) for part in parts]
    chunks = await streamed(make_model(server))
    assert chunks[-1] == StreamEnd(expected.usage, "calls", expected.details)
    assert server.bodies[3]["messages"] == server.bodies[1]["messages"]
    server.answers = [message(text("hi"))]
    back = AssistantMessage(expected.text, expected.calls, expected.details)
    body = await send(server, ChatRequest([UserMessage("hello"), back, replied(call)], [WEATHER]))
    assert body["messages"][1]["content"] == [text("Searching. "), search, result, text("Rome"), use()]


async def test_number_of_pauses_is_limited(server):
    server.answers = [message(text("x"), stop="pause_turn")]
    assert (await make_model(server).reply(HELLO)).text == "x" * 10
    assert len(server.bodies) == 10


# --- what goes back


async def test_reasoning_is_sent_back_in_its_position(server):
    server.answers = [message(THOUGHT, text("See: "), HIDDEN, text("Rome"), use(), stop="tool_use")]
    reply = await make_model(server).reply(HELLO)
    answer = message_from_json(message_to_json(AssistantMessage(reply.text, reply.calls, reply.details)))
    body = await send(server, ChatRequest([*HELLO.messages, answer, replied(answer.calls[0])], [WEATHER]))
    assert body["messages"][1]["content"] == [THOUGHT, text("See: "), HIDDEN, text("Rome"), use()]


@pytest.mark.parametrize(
    ("details", "content"),
    [
        (None, [text("Rome"), use()]),
        ({"openai": [THOUGHT]}, [text("Rome"), use()]),
        ({"anthropic": "nonsense"}, [text("Rome"), use()]),
        ({"anthropic": [THOUGHT, "nonsense"]}, [text("Rome"), use()]),
        ({"anthropic": [THOUGHT, {"type": "text"}]}, [text("Rome"), use()]),
        ({"anthropic": [THOUGHT, {"type": "text", "length": -1}]}, [text("Rome"), use()]),
        ({"anthropic": [THOUGHT, {"thinking": "no type"}]}, [text("Rome"), use()]),
        ({"anthropic": [THOUGHT]}, [THOUGHT, text("Rome"), use()]),
        ({"anthropic": [THOUGHT, {"type": "tool_use"}, {"type": "text", "length": 3}]}, [THOUGHT, text("Rome"), use()]),
        ({"anthropic": [{"type": "tool_use"}, {"type": "tool_use"}, THOUGHT]}, [text("Rome"), use(), THOUGHT]),
    ],
)
async def test_foreign_and_outdated_details_are_ignored(server, details, content):
    call = ToolCall("weather", {"city": "Rome"}, "toolu_1")
    messages = [UserMessage("hello"), AssistantMessage("Rome", (call,), details), replied(call)]
    assert (await send(server, ChatRequest(messages, [WEATHER])))["messages"][1]["content"] == content


# --- what goes wrong


def make_error(status, kind, problem, **headers):
    body = {"type": "error", "error": {"type": kind, "message": problem}, "request_id": "req_1"}
    return status, {"Content-Type": "application/json", **headers}, json.dumps(body)


@pytest.mark.parametrize(
    ("answer", "words", "retryable", "retry_after"),
    [
        (
            make_error(400, "invalid_request_error", "max_tokens: too many"),
            "(400, invalid_request_error): max",
            False,
            None,
        ),
        (make_error(401, "authentication_error", "no"), "no; it refused the key passed as api_key=", False, None),
        (make_error(403, "permission_error", "not you"), "(403, permission_error): not you", False, None),
        (make_error(404, "not_found_error", "model: claude-x"), "(404, not_found_error): model: claude-x", False, None),
        (make_error(413, "request_too_large", "too large"), "(413, request_too_large): too large", False, None),
        (make_error(408, "timeout_error", "slow"), "(408, timeout_error)", True, None),
        (make_error(409, "conflict_error", "again"), "(409, conflict_error)", True, None),
        (make_error(429, "rate_limit_error", "slow down", **{"retry-after": "7"}), "(429, rate_limit", True, 7.0),
        (make_error(429, "rate_limit_error", "x", **{"retry-after-ms": "1500", "retry-after": "9"}), "(429", True, 1.5),
        (make_error(429, "rate_limit_error", "x", **{"retry-after": "soon"}), "(429", True, None),
        (make_error(429, "rate_limit_error", "spent", **{"x-should-retry": "false"}), "spent", False, None),
        (make_error(400, "invalid_request_error", "x", **{"x-should-retry": "true"}), "(400", True, None),
        (make_error(500, "api_error", "oops"), "(500, api_error): oops", True, None),
        (make_error(529, "overloaded_error", "Overloaded"), "(529, overloaded_error): Overloaded", True, None),
        ((502, {}, "<html>Bad gateway</html>"), "(502, None): <html>Bad gateway</html>", True, None),
        ((503, {}, ""), "(503, None): Error code: 503", True, None),
        (make_error(400, "invalid_request_error", "key sk-secret\nis bad"), "key ***\\nis bad", False, None),
        (make_error(400, 7, {"not": "text"}), "(400, 7): Error code: 400", False, None),
        ((200, {"Content-Type": "text/html"}, "<html>Hi</html>"), "is not a message; is base_url right?", False, None),
        ((200, {"Content-Type": "application/json"}, "[1]"), "is not a message; is base_url right?", False, None),
        ((200, {"Content-Type": "application/json"}, "{}"), "is not a message; is base_url right?", False, None),
        ((200, {"Content-Type": "application/json"}, '{"content": ['), "cannot be read", True, None),
    ],
)
async def test_error_has_server_message_and_retryable(server, answer, words, retryable, retry_after):
    server.answers = [answer]
    error = await failed(make_model(server))
    assert words in str(error)
    assert (error.retryable, error.retry_after) == (retryable, retry_after)
    assert len(server.bodies) == 1
    assert "sk-secret" not in str(error)


async def test_retry_after_date_is_parsed(server):
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=3600), usegmt=True)
    server.answers = [make_error(429, "rate_limit_error", "x", **{"retry-after": date})]
    assert 3500 < (await failed(make_model(server))).retry_after <= 3600


async def test_deeply_nested_input_is_a_model_error(server):
    for depth in (300, 100_000):
        body = json.dumps(message(use(input={"x": 1}))).replace('"x": 1', '"x": ' + "[" * depth + "]" * depth)
        server.answers = [(200, {"Content-Type": "application/json"}, body)]
        error = await failed(make_model(server))
        assert "cannot be read" in str(error)
        assert error.retryable


@pytest.mark.parametrize(
    ("kind", "retryable"), [("overloaded_error", True), ("api_error", True), ("invalid_request_error", False)]
)
async def test_error_event_in_stream_is_raised(server, kind, retryable):
    stream = events(message(text("All roads")))
    server.answers = [[*stream[:4], {"type": "error", "error": {"type": kind, "message": "Overloaded"}}]]
    error = await failed(make_model(server), streaming=True)
    assert (str(error), error.retryable) == (f"Anthropic refused the request (200, {kind}): Overloaded", retryable)


@pytest.mark.parametrize("kept", [0, 1, 4, -1])
@pytest.mark.parametrize("ends", [True, False])
async def test_truncated_stream_is_retryable(server, kept, ends):
    stream = events(message(text("All roads lead to Rome")))
    server.answers = [server.streaming(*stream[:kept], ends=ends)]
    error = await failed(make_model(server), streaming=True)
    assert ("cut off" if ends else "The connection to Anthropic failed") in str(error)
    assert error.retryable


@pytest.mark.parametrize(
    "event", ["event: message_delta\ndata: {not json\n\n", "event: message_delta\ndata: \udcff\n\n"]
)
async def test_stream_that_is_not_json_is_retryable(server, event):
    data = event.encode(errors="surrogateescape")
    server.answers = [server.streaming(ends=True, then=lambda handler: send_chunk(handler, data))]
    error = await failed(make_model(server), streaming=True)
    assert "cannot be read" in str(error)
    assert error.retryable


def send_chunk(handler, data):
    handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


async def test_connection_errors_are_retryable(server):
    make = partial(make_model, server)
    await assert_connections_are_worth_another_try(server, make, "Anthropic")


async def test_errors_of_the_package_are_raised_as_model_errors(server):
    async def no_token():
        raise anthropic.CredentialsError("no token for sk-secret")

    async with anthropic.AsyncAnthropic(credentials=no_token, base_url=server.url) as client:
        error = await failed(AnthropicModel("claude-x", client=client))
    assert "no token for" in str(error)
    assert not error.retryable


# --- cancellation, loops and clients


async def test_closing_stream_early_closes_connection(server):
    waiting = Waiting(server.streaming(*events(message(text("All roads")))[:4]))
    server.answers = [waiting]
    await assert_hangs_up_when_closed(make_model(server), waiting, "All ")


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
    server.answers = [events(message(text("hi")))]
    await streamed(model)
    await streamed(model)
    assert len(set(server.ports)) == 1


async def test_requests_run_concurrently(server):
    await assert_serves_many_at_once(make_model(server), server, message(text("hi")))


async def test_garbage_collected_model_closes_connections(server):
    for _ in range(3):
        model = make_model(server)
        model.itself = model  # found by the garbage collector only, with all that hangs on it
        await model.reply(HELLO)
        del model
        gc.collect()
    async with asyncio.timeout(60):
        while asyncio.all_tasks() != {asyncio.current_task()}:
            await asyncio.sleep(0)
    assert len(set(server.ports)) == 3


def test_model_works_after_loop_is_closed(server):
    model = make_model(server)
    loop = asyncio.new_event_loop()
    server.answers = [
        (200, {"Content-Type": "application/json", "Connection": "close"}, json.dumps(message(text("a"))))
    ]
    assert loop.run_until_complete(model.reply(HELLO)).text == "a"
    loop.close()
    assert finish(model.reply(HELLO)).text == "a"


async def test_given_client_is_used_without_retries_and_left_open(server):
    async with anthropic.AsyncAnthropic(api_key="other", base_url=server.url) as client:
        model = AnthropicModel("claude-x", client=client, max_tokens=7)
        assert (await model.reply(HELLO)).text == "hi"
        assert (server.headers[-1]["authorization"], server.bodies[-1]["max_tokens"]) == ("Bearer other", 7)
        server.answers = [make_error(529, "overloaded_error", "Overloaded")]
        await failed(model)
        assert len(server.bodies) == 2
        assert not client.is_closed()


# --- how it is made


def test_missing_key_error_names_variable(monkeypatch):
    with pytest.raises(ToolConfigurationError, match="needs a key: set ANTHROPIC_API_KEY, or pass api_key="):
        AnthropicModel("claude-x")
    monkeypatch.setenv("ANTHROPIC_PROFILE", "missing")
    with pytest.raises(ToolConfigurationError, match=r"cannot find a key: .*set ANTHROPIC_API_KEY"):
        AnthropicModel("claude-x")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    assert repr(AnthropicModel("claude-x")) == "AnthropicModel('claude-x')"


async def test_refused_key_error_names_where_the_key_comes_from(server, monkeypatch):
    async def fail(**settings):
        server.answers = [make_error(401, "authentication_error", "No")]
        return str(await failed(AnthropicModel("claude-x", **settings)))

    assert (await fail(base_url=server.url)).endswith("No; set ANTHROPIC_API_KEY, or pass api_key=")
    async with anthropic.AsyncAnthropic(api_key="other", base_url=server.url) as client:
        assert (await fail(client=client)).endswith("No; it refused the key of the client")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "sk-token")
    assert (await fail(base_url=server.url)).endswith("No; it refused the key from ANTHROPIC_AUTH_TOKEN")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    assert (await fail(base_url=server.url)).endswith("No; it refused the key from ANTHROPIC_API_KEY")


async def test_custom_server_needs_no_key(server):
    await AnthropicModel("claude-x", base_url=server.url).reply(HELLO)
    assert server.headers[-1]["authorization"] == "Bearer none"


def test_invalid_client_is_rejected():
    with pytest.raises(TypeError, match="takes a client, or api_key and base_url, not both"):
        AnthropicModel("claude-x", client=object(), api_key="sk-secret")
    with (
        anthropic.Anthropic(api_key="sk-secret") as client,
        pytest.raises(TypeError, match="needs an async client"),
    ):
        AnthropicModel("claude-x", client=client)


def test_model_is_created_by_name(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    model = model_of("anthropic:claude-haiku-5-5")
    assert (type(model), model.name, model.native_output) == (AnthropicModel, "claude-haiku-5-5", True)
    with pytest.raises(ToolConfigurationError, match="'anthropic' needs a model name"):
        model_of("anthropic")


@pytest.mark.parametrize(
    ("given", "native"),
    [({}, True), ({"base_url": "http://here"}, False), ({"base_url": "http://here", "native_output": True}, True)],
)
def test_native_output_defaults_to_true_for_anthropics_own_server_only(given, native):
    assert AnthropicModel("claude-x", api_key="sk-secret", **given).native_output is native


# --- whole runs


TURNS = [message(THOUGHT, use(), stop="tool_use"), message(text("It is 21 degrees."))]


async def test_agent_runs_with_this_model(server):
    await assert_an_agent_runs_in_each_of_its_ways(Agent(make_model(server), [weather]), server, TURNS, events)
    assert [body["messages"] for body in server.bodies[1::2]] == [
        [
            {"role": "user", "content": [text("Rome?")]},
            {"role": "assistant", "content": [THOUGHT, use()]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "21 degrees in Rome"}],
            },
        ]
    ] * 3


async def test_agent_retries_overloaded_server(server):
    server.answers = [make_error(529, "overloaded_error", "Overloaded", **{"retry-after": "0"}), message(text("hi"))]
    result = await Agent(make_model(server), retry=Retry(attempts=2)).run("hello")
    assert (result.text, len(server.bodies)) == ("hi", 2)
    server.answers = [make_error(401, "authentication_error", "invalid key")]
    with pytest.raises(AgentExecutionError, match="it refused the key passed as api_key="):
        await Agent(make_model(server), retry=Retry(attempts=2)).run("hello")


@pytest.mark.parametrize("native", [True, False])
async def test_agent_gets_typed_answer(server, native):
    report = {"city": "Rome", "degrees": 21}
    answer = message(text(json.dumps(report))) if native else message(use("final_answer", report), stop="tool_use")
    server.answers = [answer]
    result = await Agent(make_model(server, native_output=native), output_type=Report).run("Rome?")
    assert result.output == Report("Rome", 21)
    assert ("output_config" in server.bodies[0], "tools" in server.bodies[0]) == (native, not native)
