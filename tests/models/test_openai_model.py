"""OpenAI's two APIs, against a fake server."""

import asyncio
import email.utils
import gc
import json
import re
import time
from contextlib import aclosing, suppress
from datetime import timedelta

import openai
import pytest

from helpers.openai_wire import (
    CHAT,
    KEY,
    PATHS,
    RESPONSES,
    begin,
    call_item,
    called,
    chunks,
    completion,
    delta,
    events_of,
    header,
    in_turn,
    model_at,
    put_together,
    response,
    say,
    sent,
    streamed,
    text_item,
    thought_item,
    tokens,
    whole,
)
from helpers.web_server import serving
from toolsemble import (
    Agent,
    AgentExecutionError,
    ImageContent,
    ModelError,
    TextContent,
    ToolCall,
    ToolConfigurationError,
    ToolDefinitionError,
    ToolReply,
    ToolResult,
    ToolSpecification,
    tool,
)
from toolsemble._vocabulary.call import received_call
from toolsemble.agent._options import Retry
from toolsemble.models import (
    ArgumentsDelta,
    AssistantMessage,
    CallDelta,
    ChatReply,
    ChatRequest,
    OpenAIModel,
    StreamEnd,
    SystemMessage,
    TextDelta,
    TokenUsage,
    ToolMessage,
    UserMessage,
    model_of,
)
from toolsemble.models._adapter.retry import parse_retry_after

pytestmark = pytest.mark.slow

APIS = ["chat", "responses"]
HELLO = ChatRequest([UserMessage("hello")])
IMAGE = ImageContent(b"hi", "image/png")
IMAGE_URL = "data:image/png;base64,aGk="
USAGE = TokenUsage(9, 2, 4, 1)
WEATHER = ToolSpecification(
    "weather", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
)
NOW = ToolSpecification("now", "The time", strict=True)
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer", "default": 0}},
    "required": ["city"],
}
STRICT = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "people": {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "default: 0"},
    },
    "required": ["city", "people"],
    "additionalProperties": False,
}
ROME = ToolCall("weather", '{"city": "Rome"}', "c1")
OSLO = ToolCall("weather", '{"city": "Oslo"}', "c2")


@pytest.fixture
def web():
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def _no_key_of_this_machine(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def set_answer(web, api, content="hi"):
    """Let a server answer everything with a text."""
    body = completion({"content": content}) if api == "chat" else response(text_item(content))
    web.answers[PATHS[api]] = whole(body)


def make_reply(call, *contents, output="sunny"):
    return ToolMessage(ToolReply(call, ToolResult.success(output, contents=contents)))


# --- what is sent


def test_chat_request_contains_all_fields(web):
    set_answer(web, "chat")
    request = ChatRequest(
        [
            SystemMessage("You are brief."),
            UserMessage("What is this?", (IMAGE,)),
            AssistantMessage("Let me see.", (ROME, OSLO)),
            make_reply(ROME, IMAGE, TextContent("in the shade")),
            ToolMessage(ToolReply(OSLO, ToolResult.failure("no such city"))),
            AssistantMessage("Sunny."),
            UserMessage("", (IMAGE,)),
        ],
        [WEATHER, NOW],
        "required",
        SCHEMA,
        {"temperature": 0.5, "top_k": 3, "extra_body": {"min_p": 0.1}, "parallel_tool_calls": None},
    )
    asyncio.run(model_at(web).reply(request))
    assert sent(web) == {
        "model": "gpt-test",
        "messages": [
            {"role": "system", "content": "You are brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image_url", "image_url": {"url": IMAGE_URL}},
                ],
            },
            {
                "role": "assistant",
                "content": "Let me see.",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"city": "Rome"}'},
                    },
                    {
                        "id": "c2",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
                    },
                ],
            },
            {
                "role": "tool",
                "tool_call_id": "c1",
                "content": "sunny\n[image/png, 2 bytes, not shown]\nin the shade",
            },
            {"role": "tool", "tool_call_id": "c2", "content": "Error: no such city"},
            {"role": "assistant", "content": "Sunny."},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": IMAGE_URL}}]},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "weather",
                    "description": "The weather",
                    "parameters": {
                        "type": "object",
                        "properties": {"city": {"type": "string"}},
                        "required": ["city"],
                    },
                },
            },
            {
                "type": "function",
                "function": {
                    "name": "now",
                    "description": "The time",
                    "parameters": {
                        "type": "object",
                        "properties": {},
                        "additionalProperties": False,
                        "required": [],
                    },
                    "strict": True,
                },
            },
        ],
        "tool_choice": "required",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": STRICT, "strict": True},
        },
        "stream": False,
        "temperature": 0.5,
        "top_k": 3,
        "min_p": 0.1,
    }


def test_responses_request_contains_all_fields(web):
    set_answer(web, "responses")
    request = ChatRequest(
        [
            SystemMessage("You are brief."),
            UserMessage("What is this?", (IMAGE,)),
            AssistantMessage("Let me see.", (ROME, OSLO)),
            make_reply(ROME, IMAGE),
            ToolMessage(ToolReply(OSLO, ToolResult.failure("no such city"))),
            AssistantMessage("Sunny."),
            UserMessage("", (IMAGE,)),
        ],
        [WEATHER],
        "none",
        SCHEMA,
        {"text": {"verbosity": "low"}, "tools": [{"type": "web_search"}], "reasoning": {"effort": "low"}},
    )
    asyncio.run(model_at(web, "responses").reply(request))
    assert sent(web) == {
        "model": "gpt-test",
        "input": [
            {"role": "system", "content": "You are brief."},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "What is this?"},
                    {"type": "input_image", "image_url": IMAGE_URL, "detail": "auto"},
                ],
            },
            {"role": "assistant", "content": "Let me see."},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Rome"}'},
            {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": '{"city": "Oslo"}'},
            {
                "type": "function_call_output",
                "call_id": "c1",
                "output": [
                    {"type": "input_text", "text": "sunny"},
                    {"type": "input_image", "image_url": IMAGE_URL},
                ],
            },
            {"type": "function_call_output", "call_id": "c2", "output": "Error: no such city"},
            {"role": "assistant", "content": "Sunny."},
            {"role": "user", "content": [{"type": "input_image", "image_url": IMAGE_URL, "detail": "auto"}]},
        ],
        "tools": [
            {
                "type": "function",
                "name": "weather",
                "description": "The weather",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
                "strict": False,
            },
            {"type": "web_search"},
        ],
        "tool_choice": "none",
        "text": {
            "verbosity": "low",
            "format": {"type": "json_schema", "name": "answer", "schema": STRICT, "strict": True},
        },
        "reasoning": {"effort": "low"},
        "stream": False,
    }


@pytest.mark.parametrize("api", APIS)
async def test_plain_question_sends_minimal_request(web, api):
    set_answer(web, api)
    model = model_at(web, api, headers={"X-Title": "a test"})
    await model.reply(ChatRequest([UserMessage("hello")], tool_choice="required"))
    messages = [{"role": "user", "content": "hello"}]
    name = {"chat": "messages", "responses": "input"}[api]
    assert sent(web) == {"model": "gpt-test", name: messages, "stream": False}
    assert (header(web, "authorization"), header(web, "x-title")) == (f"Bearer {KEY}", "a test")


async def test_chat_stream_requests_usage_by_default(web):
    web.answers[CHAT] = streamed(delta("stop", content="hi"))
    await chunks(model_at(web), HELLO)
    await chunks(model_at(web), ChatRequest(HELLO.messages, settings={"stream_options": None, "model": "other"}))
    question = {"messages": [{"role": "user", "content": "hello"}], "stream": True}
    assert [sent(web, 0), sent(web, 1)] == [
        {"model": "gpt-test", **question, "stream_options": {"include_usage": True}},
        {"model": "other", **question},
    ]


@pytest.mark.parametrize("api", APIS)
async def test_settings_cannot_override_request_fields(web, api):
    set_answer(web, api)
    settings = {"messages": [], "input": [], "stream": True}
    known = {"chat": {"input": []}, "responses": {"messages": []}}[api]  # of another API: the server may know it
    await model_at(web, api).reply(ChatRequest(HELLO.messages, settings=settings))
    name = {"chat": "messages", "responses": "input"}[api]
    assert sent(web) == {"model": "gpt-test", name: [{"role": "user", "content": "hello"}], "stream": False, **known}


@pytest.mark.parametrize("api", APIS)
async def test_schema_unsupported_by_strict_mode_is_sent_without_it(web, api):
    set_answer(web, api)
    open_object = {"type": "object", "additionalProperties": {"type": "integer"}}
    await model_at(web, api).reply(ChatRequest(HELLO.messages, output_schema=open_object))
    written = {"name": "answer", "schema": {"properties": {}, **open_object}, "strict": False}
    expected = {
        "chat": {"response_format": {"type": "json_schema", "json_schema": written}},
        "responses": {"text": {"format": {"type": "json_schema", **written}}},
    }[api]
    assert {name: sent(web)[name] for name in expected} == expected


def read_sent_ids(web, api):
    """Return the ids of calls and of replies, in their order."""
    body = sent(web)
    if api == "responses":
        of = {"function_call": [], "function_call_output": []}
        for item in body["input"]:
            of.get(item.get("type"), []).append(item.get("call_id"))
        return of["function_call"], of["function_call_output"]
    calls = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
    return calls, [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]


@pytest.mark.parametrize("api", APIS)
async def test_call_without_id_gets_id_shared_with_reply(web, api):
    set_answer(web, api)
    twin, long = ToolCall("now"), ToolCall("now", id="x" * 65)
    kept = ToolCall("now", id="y" * 40)
    messages = [
        AssistantMessage("", (twin, kept, twin, long)),
        *(make_reply(call) for call in (long, twin, kept, twin)),
        AssistantMessage("", (twin,)),
        make_reply(twin),
    ]
    await model_at(web, api).reply(ChatRequest(messages))
    calls = ["toolsemble_0", "y" * 40, "toolsemble_1", "toolsemble_2", "toolsemble_3"]
    assert read_sent_ids(web, api) == (
        calls,
        ["toolsemble_2", "toolsemble_0", "y" * 40, "toolsemble_1", "toolsemble_3"],
    )


@pytest.mark.parametrize("api", APIS)
async def test_reply_without_a_call_is_still_sent(web, api):
    set_answer(web, api)
    await model_at(web, api).reply(ChatRequest([make_reply(ToolCall("now", id="c9")), make_reply(ToolCall("now"))]))
    assert read_sent_ids(web, api) == ([], ["toolsemble_0", "toolsemble_1"])


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("now", "", ("now", "{}")),
        ("now", " \n", ("now", "{}")),
        ("now", '{"a": [1]}', ("now", '{"a": [1]}')),
        ("now", '{"a": "\\u00e9"}', ("now", '{"a": "\\u00e9"}')),
        ("now", '{"a": ', ("now", '{"unreadable_arguments":"{\\"a\\": "}')),
        ("now", "[1]", ("now", '{"unreadable_arguments":"[1]"}')),
        ("now", "null", ("now", '{"unreadable_arguments":"null"}')),
        ("now", '{"a": NaN}', ("now", '{"unreadable_arguments":"{\\"a\\": NaN}"}')),
        ("now", '{"a": "\\ud800"}', ("now", '{"unreadable_arguments":"{\\"a\\": \\"\\\\ud800\\"}"}')),
        ("now", "[" * 100_000, ("now", '{"unreadable_arguments":"' + "[" * 100_000 + '"}')),
        ("web search!", "{}", ("web_search_", "{}")),
        ("", "{}", ("_", "{}")),
        ("n" * 99, "{}", ("n" * 64, "{}")),
    ],
)
@pytest.mark.parametrize("api", APIS)
async def test_invalid_calls_are_sanitized(web, api, name, arguments, expected):
    set_answer(web, api)
    call = received_call(name, arguments, "c1")
    await model_at(web, api).reply(ChatRequest([AssistantMessage("", (call,)), make_reply(call)]))
    body = sent(web)
    if api == "chat":
        assert body["messages"][0]["content"] is None
        function = body["messages"][0]["tool_calls"][0]["function"]
    else:
        function = body["input"][0]
    assert (function["name"], function["arguments"]) == expected


@pytest.mark.parametrize("api", APIS)
async def test_lone_surrogate_is_escaped(web, api):
    set_answer(web, api)
    call = ToolCall("now", "{}", "c1")
    half = "a\ud800"
    messages = [
        SystemMessage(half),
        UserMessage(half),
        UserMessage(half, (IMAGE,)),
        AssistantMessage(half, (call,)),
        make_reply(call, output=half),
        AssistantMessage("", (call,)),
        make_reply(call, IMAGE, TextContent(half)),
    ]
    await model_at(web, api).reply(ChatRequest(messages))
    assert json.dumps(sent(web)).count("a\\\\ud800") == 6


# --- responses, whole and in chunks


def chat_forms(message, reason, pieces):
    """Return a completion as a whole and in pieces."""
    return whole(completion(message, reason)), streamed(*pieces, delta(reason), tokens())


REFUSAL = {**text_item(""), "content": [{"type": "refusal", "refusal": "I will not."}]}
CALLS = (ROME, OSLO)
FORMS = {
    "text": (
        chat_forms(
            {"content": "Rome"}, "stop", [delta(role="assistant", content=""), delta(content="Ro"), delta(content="me")]
        ),
        response(text_item("Rome")),
        ChatReply("Rome", (), USAGE, "stop"),
    ),
    "calls": (
        chat_forms(
            {
                "content": None,
                "tool_calls": [
                    called(id="c1", name="weather", arguments='{"city": "Rome"}'),
                    called(id="c2", name="weather", arguments='{"city": "Oslo"}'),
                ],
            },
            "tool_calls",
            [
                delta(role="assistant", content=None, tool_calls=[called(0, "c1", "weather", "")]),
                delta(tool_calls=[called(0, arguments='{"city": ')]),
                delta(tool_calls=[called(1, "c2", "weather", "")]),
                delta(tool_calls=[called(1, arguments='{"city": "Os'), called(0, arguments='"Rome"}')]),
                delta(tool_calls=[called(1, arguments='lo"}')]),
            ],
        ),
        response(call_item("c1", "weather", '{"city": "Rome"}'), call_item("c2", "weather", '{"city": "Oslo"}')),
        ChatReply("", CALLS, USAGE, "calls"),
    ),
    "text and a call": (
        chat_forms(
            {"content": "Let me see.", "tool_calls": [called(id="c1", name="weather", arguments='{"city": "Rome"}')]},
            "tool_calls",
            [delta(content="Let me see."), delta(tool_calls=[called(0, "c1", "weather", '{"city": "Rome"}')])],
        ),
        response(text_item("Let me see."), call_item("c1", "weather", '{"city": "Rome"}')),
        ChatReply("Let me see.", (ROME,), USAGE, "calls"),
    ),
    "arguments that are no JSON": (
        chat_forms(
            {"content": "", "tool_calls": [called(id="c1", name="weather", arguments='{"city": ')]},
            "length",
            [delta(tool_calls=[called(0, "c1", "weather", '{"ci')]), delta(tool_calls=[called(0, arguments='ty": ')])],
        ),
        response(
            call_item("c1", "weather", '{"city": '),
            status="incomplete",
            incomplete_details={"reason": "max_output_tokens"},
        ),
        ChatReply("", (ToolCall("weather", '{"city": ', "c1"),), USAGE, "length"),
    ),
    "a refusal": (
        chat_forms(
            {"content": None, "refusal": "I will not."}, "stop", [delta(refusal="I will "), delta(refusal="not.")]
        ),
        response(REFUSAL),
        ChatReply("I will not.", (), USAGE, "refusal"),
    ),
    "a filtered answer": (
        chat_forms({"content": "Well"}, "content_filter", [delta(content="Well")]),
        response(text_item("Well"), status="incomplete", incomplete_details={"reason": "content_filter"}),
        ChatReply("Well", (), USAGE, "refusal"),
    ),
    "an unknown end": (
        chat_forms({"content": "Well"}, "mystery", [delta(content="Well")]),
        response(text_item("Well"), status="incomplete", incomplete_details={"reason": "steered"}),
        ChatReply("Well", (), USAGE, "other"),
    ),
    "silence": (
        chat_forms({"content": ""}, "stop", [delta(content="")]),
        response(),
        ChatReply("", (), USAGE, "stop"),
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("api", APIS)
async def test_reply_and_stream_agree(web, api, form):
    chat, body, expected = FORMS[form]
    forms = {"chat": chat, "responses": (whole(body), streamed(*events_of(body), done=False))}[api]
    web.answers[PATHS[api]] = in_turn(*forms)
    model = model_at(web, api)
    assert [await model.reply(HELLO), await put_together(model, HELLO)] == [expected, expected]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("api", APIS)
async def test_server_without_streaming_yields_one_chunk(web, api, form):
    chat, body, expected = FORMS[form]
    web.answers[PATHS[api]] = {"chat": chat[0], "responses": whole(body)}[api]
    assert await put_together(model_at(web, api), HELLO) == expected


@pytest.mark.parametrize("api", APIS)
async def test_stream_yields_chunks_as_received(web, api):
    pieces = {
        "chat": [
            delta(content="Let"),
            delta(tool_calls=[called(0, "c1", "weather", "")]),
            delta(tool_calls=[called(0, arguments='{"city": ')]),
            delta("tool_calls", tool_calls=[called(0, arguments='"Rome"}')]),
            tokens(),
        ],
        "responses": events_of(response(text_item("Letme"), call_item("c1", "weather", '{"ci"a"}'))),
    }[api]
    expected = {
        "chat": [
            TextDelta("Let"),
            CallDelta(0, "weather", "c1"),
            ArgumentsDelta(0, '{"city": '),
            ArgumentsDelta(0, '"Rome"}'),
        ],
        "responses": [
            TextDelta("Le"),
            TextDelta("tme"),
            CallDelta(0, "weather", "c1"),
            ArgumentsDelta(0, '{"ci'),
            ArgumentsDelta(0, '"a"}'),
        ],
    }[api]
    web.answers[PATHS[api]] = streamed(*pieces, done=api == "chat")
    assert await chunks(model_at(web, api), HELLO) == [*expected, StreamEnd(USAGE, "calls")]


async def test_messages_of_response_are_joined_by_newlines(web):
    body = response(text_item("I look it up."), text_item("Rome", id="msg_2"))
    web.answers[RESPONSES] = in_turn(whole(body), streamed(*events_of(body)))
    model = model_at(web, "responses")
    assert [(await model.reply(HELLO)).text, (await put_together(model, HELLO)).text] == ["I look it up.\nRome"] * 2


LATE = response(text_item("Rome"), call_item("c1", "weather", '{"city": "Rome"}'))
PART = {"type": "output_text", "annotations": []}
LEFT_OUT = {
    "everything but the end": [events_of(LATE)[-1]],
    "the pieces": [event for event in events_of(LATE) if "delta" not in event],
    "the ends of items": [event for event in events_of(LATE) if event["type"] != "response.output_item.done"],
    "places": [{key: value for key, value in event.items() if key != "output_index"} for event in events_of(LATE)],
    "names of items": [{key: value for key, value in event.items() if key != "item_id"} for event in events_of(LATE)],
    "the same names at the end": [
        *events_of(LATE)[:-1],
        {
            "type": "response.completed",
            "response": response(text_item("Rome"), {**LATE["output"][1], "id": "fc_9"}),
        },
    ],
    "a text in a part": [
        *events_of(LATE)[:-1],
        {"type": "response.completed", "response": {**LATE, "output": [{**text_item("Rome"), "content": [PART]}]}},
    ],
    "items at the end": [
        *events_of(LATE)[:-1],
        {"type": "response.completed", "response": {**LATE, "output": None, "status": None}},
    ],
}


@pytest.mark.parametrize("what", LEFT_OUT)
async def test_streamed_response_with_missing_fields_is_read(web, what):
    web.answers[RESPONSES] = streamed(*LEFT_OUT[what])
    assert await put_together(model_at(web, "responses"), HELLO) == ChatReply("Rome", (ROME,), USAGE, "calls")


async def test_message_parts_without_text_are_skipped(web):
    item = text_item("Rome")
    web.answers[RESPONSES] = whole(response({**item, "content": [PART, *item["content"], {"type": "audio"}]}))
    assert (await model_at(web, "responses").reply(HELLO)).text == "Rome"


async def test_call_of_a_response_needs_no_ids(web):
    items = [{"type": "function_call", "name": "now"}, {"type": "function_call", "arguments": {"a": 1}, "call_id": 7}]
    web.answers[RESPONSES] = in_turn(
        whole(response(*items)), streamed(events_of(response())[-1] | {"response": response(*items)})
    )
    model = model_at(web, "responses")
    calls = (ToolCall("now", "{}"), received_call("", '{"a":1}', "7"))
    expected = ChatReply("", calls, USAGE, "calls")
    assert [await model.reply(HELLO), await put_together(model, HELLO)] == [expected, expected]


# --- what the provider wants back


THINKING = response(thought_item(), text_item("Let me see."), call_item("c1", "weather", '{"city": "Rome"}'))


async def test_reasoning_of_a_response_is_sent_back_unchanged_and_in_its_position(web):
    web.answers[RESPONSES] = in_turn(whole(THINKING), streamed(*events_of(THINKING)), whole(response(text_item("hi"))))
    model = model_at(web, "responses")
    replies = [await model.reply(HELLO), await put_together(model, HELLO)]
    assert replies[0] == replies[1]
    answer = AssistantMessage(replies[0].text, replies[0].calls, replies[0].details)
    await model.reply(ChatRequest([answer, make_reply(ROME)]))
    assert sent(web)["input"] == [
        *THINKING["output"],
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    ]


async def test_message_phase_is_sent_back(web):
    web.answers[RESPONSES] = whole(response(text_item("Rome", phase="final_answer")))
    model = model_at(web, "responses")
    reply = await model.reply(HELLO)
    await model.reply(ChatRequest([AssistantMessage(reply.text, (), reply.details)]))
    assert sent(web)["input"] == [text_item("Rome", phase="final_answer")]


REBUILT = [
    {"role": "assistant", "content": "Let me see."},
    {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Rome"}'},
]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"text": "Changed."}, [{"role": "assistant", "content": "Changed."}, REBUILT[1]]),
        ({"calls": (ToolCall("weather", '{"city": "Rome"}', "c7"),)}, [REBUILT[0], {**REBUILT[1], "call_id": "c7"}]),
        ({"details": None}, REBUILT),
        ({"details": {"anthropic": {"items": [1]}}}, REBUILT),
        ({"details": {"responses of elsewhere": {"items": THINKING["output"]}}}, REBUILT),
        ({"details": {"ORIGIN": None}}, REBUILT),
        ({"details": {"ORIGIN": {"items": "nonsense"}}}, REBUILT),
        ({"details": {"ORIGIN": {"items": [*THINKING["output"], "nonsense"]}}}, REBUILT),
    ],
)
async def test_stored_items_that_do_not_match_the_message_are_not_sent(web, change, expected):
    web.answers[RESPONSES] = whole(THINKING)
    model = model_at(web, "responses")
    reply = await model.reply(HELLO)
    (origin,) = reply.details
    fields = {"text": reply.text, "calls": reply.calls, "details": reply.details, **change}
    if fields["details"]:
        fields["details"] = {name.replace("ORIGIN", origin): value for name, value in fields["details"].items()}
    message = AssistantMessage(**fields)
    await model.reply(ChatRequest([message, make_reply(message.calls[0])]))
    assert sent(web)["input"][:-1] == expected


async def test_reasoning_of_another_model_is_not_sent(web):
    web.answers[RESPONSES] = whole(THINKING)
    reply = await model_at(web, "responses").reply(HELLO)
    other = OpenAIModel("other", api="responses", base_url=web.url("/v1"))
    await other.reply(ChatRequest([AssistantMessage(reply.text, reply.calls, reply.details), make_reply(ROME)]))
    assert sent(web)["input"][:-1] == REBUILT


@pytest.mark.parametrize(
    ("output", "kept"),
    [
        ([thought_item()], []),
        ([text_item("Rome"), thought_item()], [text_item("Rome")]),
        ([thought_item(), text_item("Rome")], [thought_item(), text_item("Rome")]),
    ],
)
async def test_trailing_reasoning_is_not_sent(web, output, kept):
    web.answers[RESPONSES] = whole(response(*output))
    model = model_at(web, "responses")
    reply = await model.reply(HELLO)
    await model.reply(ChatRequest([AssistantMessage(reply.text, (), reply.details), UserMessage("And?")]))
    assert sent(web)["input"] == [*kept, {"role": "user", "content": "And?"}]


async def test_empty_message_is_not_sent(web):
    set_answer(web, "chat")
    await model_at(web).reply(ChatRequest([AssistantMessage("", (), {"a": 1}), UserMessage("And?")]))
    assert sent(web)["messages"] == [{"role": "user", "content": "And?"}]


@pytest.mark.parametrize(
    ("settings", "content", "kept"), [({}, None, 3), ({"store": False}, None, 2), ({"store": False}, "gAAAA", 3)]
)
async def test_reasoning_without_content_is_sent_only_to_a_server_that_stores_it(web, settings, content, kept):
    web.answers[RESPONSES] = whole(response(thought_item(content), *THINKING["output"][1:]))
    model = model_at(web, "responses")
    reply = await model.reply(HELLO)
    answer = AssistantMessage(reply.text, reply.calls, reply.details)
    await model.reply(ChatRequest([answer, make_reply(ROME)], settings=settings))
    assert len(sent(web)["input"]) == kept + 1


async def test_reasoning_of_a_completion_is_sent_back_to_its_server(web):
    thoughts = {"reasoning_content": "Hm. Rome?", "reasoning_details": [{"type": "a", "data": "x"}, {"type": "b"}]}
    message = {"content": "Rome", **thoughts, "reasoning": "not asked for"}
    pieces = [
        delta(reasoning_content="Hm. ", reasoning_details=[{"type": "a", "data": "x"}]),
        delta(reasoning_content="Rome?", reasoning_details=[{"type": "b"}]),
        delta("stop", content="Rome", reasoning_content="", reasoning_details=None),
    ]
    web.answers[CHAT] = in_turn(whole(completion(message)), streamed(*pieces, tokens()), whole(completion(message)))
    model = model_at(web)
    replies = [await model.reply(HELLO), await put_together(model, HELLO)]
    assert replies[0] == replies[1]
    answer = AssistantMessage("Rome", (), replies[0].details)
    await model.reply(ChatRequest([answer]))
    assert sent(web)["messages"] == [{"role": "assistant", "content": "Rome", **thoughts}]
    elsewhere = web.url("/v1", host="localhost")
    await model_at(web, base_url=elsewhere).reply(ChatRequest([answer]))
    assert sent(web)["messages"] == [{"role": "assistant", "content": "Rome"}]


# --- what goes wrong


def make_error(status, error, **headers):
    return whole({"error": error}, status, headers.items())


SOON = email.utils.format_datetime(email.utils.localtime())
QUOTA = {"message": "You have no credits", "code": "insufficient_quota"}
ERRORS = [
    (
        make_error(400, {"message": "Unknown parameter: 'x'"}),
        r"refused the request \(400\): Unknown parameter: 'x'",
        False,
        None,
    ),
    (
        make_error(401, {"message": f"Incorrect key: {KEY}"}),
        r"refused the request \(401\): .* key: \*\*\*; it refused the key passed as api_key=$",
        False,
        None,
    ),
    (make_error(403, {"message": "Not here"}), r"refused the request \(403\): Not here", False, None),
    (make_error(404, {"message": "No such model"}), r"refused the request \(404\): No such model", False, None),
    (make_error(408, {"message": "Slow"}), r"refused the request \(408\): Slow", True, None),
    (make_error(409, {"message": "Busy"}), r"refused the request \(409\): Busy", True, None),
    (make_error(422, {"message": "Odd"}), r"refused the request \(422\): Odd", False, None),
    (
        make_error(429, {"message": "Slow down"}, **{"retry-after": "7"}),
        r"refused the request \(429\): Slow down",
        True,
        7.0,
    ),
    (
        make_error(429, {"message": "S"}, **{"retry-after-ms": "250", "retry-after": "7"}),
        r"refused the request \(429\): S",
        True,
        0.25,
    ),
    (make_error(429, {"message": "S"}, **{"retry-after": SOON}), r"refused the request \(429\): S", True, 0.0),
    (make_error(429, QUOTA), r"refused the request \(429\): You have no credits", False, None),
    (make_error(500, {"message": "Oops"}), r"failed to answer \(500\): Oops", True, None),
    (make_error(529, {"message": "Overloaded"}), r"failed to answer \(529\): Overloaded", True, None),
    (
        make_error(500, {"message": "Never"}, **{"x-should-retry": "false"}),
        r"failed to answer \(500\): Never",
        False,
        None,
    ),
    (
        make_error(400, {"message": "Again"}, **{"x-should-retry": "true"}),
        r"refused the request \(400\): Again",
        True,
        None,
    ),
    (whole({"detail": [{"msg": "bad"}]}, 422), r'refused the request \(422\): \[{"msg": "bad"}\]', False, None),
    (whole({"message": "plain"}, 400), r"refused the request \(400\): plain", False, None),
    (
        (502, {"Content-Type": "text/html"}, "<h1>Bad\nGateway"),
        r"failed to answer \(502\): <h1>Bad\\nGateway",
        True,
        None,
    ),
    ((503, {}, ""), r"failed to answer \(503\): Error code: 503", True, None),
    (whole({"error": {"message": "x" * 9999}}, 400), r"refused the request \(400\): x{500}...$", False, None),
]


@pytest.mark.parametrize(("answer", "message", "retryable", "retry_after"), ERRORS)
@pytest.mark.parametrize("api", APIS)
async def test_error_quotes_the_message_of_the_provider(web, api, answer, message, retryable, retry_after):
    web.answers[PATHS[api]] = answer
    model = model_at(web, api)
    for ask in (model.reply, lambda request: chunks(model, request)):
        with pytest.raises(ModelError, match=message) as caught:
            await ask(HELLO)
        assert (caught.value.retryable, caught.value.retry_after) == (retryable, retry_after)
        assert KEY not in str(caught.value)
    assert len(web.requests) == 2  # the SDK itself asks only once


def test_wrong_key_error_names_variable(web, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", web.url("/v1"))
    web.answers[CHAT] = make_error(401, {"message": "Incorrect key"})
    agent = Agent("openai:gpt-test")
    with pytest.raises(AgentExecutionError, match=r"Incorrect key; it refused the key from OPENAI_API_KEY$"):
        agent.run_sync("hello")


async def get_key():
    return KEY


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({}, "pass api_key="),
        ({"api_key": "  "}, "pass api_key="),
        ({"key_variable": "TOY_KEY"}, "set TOY_KEY or pass api_key="),
        ({"api_key": KEY}, "it refused the key passed as api_key="),
        ({"api_key": get_key}, "it refused the key passed as api_key="),
        ({"api_key": KEY, "headers": {"Authorization": "Bearer other-secret"}}, "it refused the key in headers="),
    ],
)
async def test_refused_key_error_names_where_the_key_comes_from(web, settings, hint):
    web.answers[CHAT] = make_error(401, {"message": "No"})
    model = OpenAIModel("gpt-test", base_url=web.url("/v1"), **settings)
    with pytest.raises(ModelError, match=rf"\(401\): No; {hint}$"):
        await model.reply(HELLO)


async def test_refused_key_error_names_the_client(web):
    web.answers[CHAT] = make_error(401, {"message": "No"})
    async with openai.AsyncOpenAI(api_key=KEY, base_url=web.url("/v1")) as client:
        with pytest.raises(ModelError, match=r"No; it refused the key of the client$"):
            await OpenAIModel("gpt-test", client=client).reply(HELLO)


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        ({"message": "Overloaded", "code": 503}, True),
        ({"message": "Overloaded", "type": "server_error"}, True),
        ({"message": "Overloaded", "code": "rate_limit_exceeded"}, True),
        ({"message": "Overloaded", "code": "400"}, False),
        ({"message": "Overloaded", "code": "invalid_prompt"}, False),
    ],
)
@pytest.mark.parametrize("api", APIS)
async def test_error_in_successful_response_is_raised(web, api, error, retryable):
    web.answers[CHAT] = in_turn(whole({"error": error}), streamed(delta(content="Ro"), {"error": error}))
    failed = response(status="failed", error=error)
    web.answers[RESPONSES] = in_turn(whole(failed), streamed(*events_of(failed)))
    model = model_at(web, api)
    for ask in (model.reply, lambda request: chunks(model, request)):
        with pytest.raises(ModelError, match="Overloaded") as caught:
            await ask(HELLO)
        assert caught.value.retryable is retryable


async def test_error_event_ends_a_streamed_response(web):
    error = {"type": "error", "code": "server_error", "message": "Oops", "param": None, "sequence_number": 1}
    web.answers[RESPONSES] = streamed(error)
    with pytest.raises(ModelError, match=r"127.0.0.1: Oops") as caught:
        await chunks(model_at(web, "responses"), HELLO)
    assert caught.value.retryable


async def test_error_without_message_shows_body(web):
    web.answers[CHAT] = in_turn(streamed({"error": "no such thing"}), streamed({"error": {"code": 7}}))
    for message in ("An error occurred during streaming", '{"code": 7}'):
        with pytest.raises(ModelError, match=message):
            await chunks(model_at(web), HELLO)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "Mon, 99 Foo 2026 00:00:00 GMT"}, None),
        ({"retry-after": "Mon, 01 Jan 99999 00:00:00 GMT"}, None),
        ({"retry-after": "Mon, 01 Jan 0001 00:00:00 +2359"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 -0000"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
    ],
)
def test_retry_after_header_is_parsed(headers, expected):
    assert parse_retry_after(headers) == expected


def test_retry_after_date_is_parsed():
    soon = email.utils.format_datetime(email.utils.localtime() + timedelta(hours=1), usegmt=False)
    assert 3000 < parse_retry_after({"retry-after": soon}) <= 3600


async def test_other_sdk_errors_become_model_errors(web):
    async def refused():
        raise openai.OpenAIError("no token today")

    with pytest.raises(ModelError, match=r"127.0.0.1: no token today") as caught:
        await model_at(web, api_key=refused).reply(HELLO)
    assert not caught.value.retryable


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("api", APIS)
async def test_truncated_stream_is_retryable(web, api, cut):
    events = {"chat": [delta(content="Ro")], "responses": events_of(response(text_item("Rome")))[:-1]}[api]
    web.answers[PATHS[api]] = streamed(*events, done=False, cut=cut)
    async with aclosing(model_at(web, api).stream(HELLO)) as pieces:
        assert await anext(pieces) == TextDelta("Ro")
        with pytest.raises(ModelError) as caught:
            [piece async for piece in pieces]
    assert caught.value.retryable


@pytest.mark.parametrize("api", APIS)
async def test_closed_connection_is_retryable(web, api):
    web.answers[PATHS[api]] = lambda handler: handler.connection.close()
    model = model_at(web, api)
    for ask in (model.reply, lambda request: chunks(model, request)):
        with pytest.raises(ModelError, match=r"The connection to 127.0.0.1 at http://.*/v1 failed: ") as caught:
            await ask(HELLO)
        assert caught.value.retryable


async def test_connection_error_names_server():
    model = OpenAIModel("m", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(ModelError, match=r"The connection to 127.0.0.1 at http://127.0.0.1:9/v1 failed: ") as caught:
        await model.reply(HELLO)
    assert caught.value.retryable


@pytest.mark.parametrize("api", APIS)
async def test_silent_server_times_out(web, api):
    web.answers[PATHS[api]] = lambda handler: web.closing.wait(30)
    model = model_at(web, api, timeout=0.2)
    for ask in (model.reply, lambda request: chunks(model, request)):
        with pytest.raises(
            ModelError, match=r"The connection to 127.0.0.1 at http://.*/v1 failed: .*Timeout"
        ) as caught:
            await ask(HELLO)
        assert caught.value.retryable


@pytest.mark.parametrize(
    ("answer", "message", "retryable"),
    [
        (whole({"id": "x", "choices": []}), "answered without any choices", False),
        (whole({"id": "x"}), "answered without any choices", False),
        (whole([]), "answered without any choices", False),
        (whole(None), "answered without any choices", False),
        (whole(completion({"content": ""}, "length")), "reached the token limit before it answered", False),
        (whole(completion({"content": None}, "content_filter")), r"refused to answer \(content_filter\)", False),
        ((200, {"Content-Type": "text/html"}, "<h1>Welcome</h1>"), r"sent '<h1>.*not JSON; .*Most end with /v1", False),
        ((200, {"Content-Type": "application/json"}, '{"id": '), "answer cannot be read", True),
        ((200, {"Content-Type": "application/json"}, "[" * 100_000), "answer cannot be read", True),
        ((200, {"Content-Type": "application/json"}, b'{"id": "\xff"}'), "answer cannot be read", True),
    ],
)
async def test_chat_completion_without_content_is_an_error(web, answer, message, retryable):
    web.answers[CHAT] = answer
    with pytest.raises(ModelError, match=message) as caught:
        await model_at(web).reply(HELLO)
    assert caught.value.retryable is retryable


@pytest.mark.parametrize(
    ("answer", "message", "retryable"),
    [
        (whole({"object": "other"}), "cut off before its end", True),
        (whole(response(status="queued")), "a response with status 'queued' and no answer", False),
        (
            whole(response(status="incomplete", incomplete_details={"reason": "max_output_tokens"})),
            "reached the token limit before it answered",
            False,
        ),
        (
            whole(response(status="incomplete", incomplete_details={"reason": "content_filter"})),
            r"refused to answer \(content_filter\)",
            False,
        ),
    ],
)
async def test_response_without_content_is_an_error(web, answer, message, retryable):
    web.answers[RESPONSES] = answer
    with pytest.raises(ModelError, match=message) as caught:
        await model_at(web, "responses").reply(HELLO)
    assert caught.value.retryable is retryable


@pytest.mark.parametrize(
    ("answer", "message", "retryable"),
    [
        (streamed(), "answered without any choices", True),
        (streamed("data: {nonsense\n\n"), "answer cannot be read", True),
        (streamed(delta("length", content="")), "reached the token limit before it answered", False),
        ((200, {"Content-Type": "text/html; charset=utf-8"}, "<h1>Hi</h1>"), "sent a web page; is http", False),
    ],
)
async def test_stream_without_content_is_an_error(web, answer, message, retryable):
    web.answers[CHAT] = answer
    with pytest.raises(ModelError, match=message) as caught:
        await chunks(model_at(web), HELLO)
    assert caught.value.retryable is retryable


NONSENSE = [
    5,
    "text",
    [],
    {},
    {"choices": 5},
    {"choices": [5]},
    {"choices": [{"delta": 5, "finish_reason": "stop"}]},
    {"choices": [{"delta": {"content": 5, "tool_calls": 5, "refusal": 5}, "finish_reason": "stop"}]},
    {"choices": [{"delta": {"content": [5, {"text": 5}], "tool_calls": [5]}, "finish_reason": "stop"}]},
    {"choices": [{"delta": {"tool_calls": [{"index": "x", "id": 5, "function": {"name": 5}}]}}]},
    {"choices": [{"finish_reason": {"a": 1}}], "usage": 5},
    {"choices": [], "usage": {"prompt_tokens": "x"}},
    {"type": "response.output_item.added", "item": 5},
    {"type": "response.output_text.delta", "delta": 5},
    {"type": "response.output_item.done", "item": {"type": "function_call"}},
    {"type": 5},
    {"type": "response.function_call_arguments.delta", "delta": "x"},
    {"type": "response.completed"},
    {"type": "response.completed", "response": {"output": [5, {"type": "message", "content": 5}]}},
    {"type": "response.completed", "response": {"output": {"a": 1}, "usage": [1], "status": 5}},
]


@pytest.mark.parametrize("nonsense", NONSENSE, ids=repr)
@pytest.mark.parametrize("api", APIS)
async def test_malformed_data_gives_reply_or_model_error(web, api, nonsense):
    line = f"data: {json.dumps(nonsense)}\n\n"
    web.answers[PATHS[api]] = in_turn(streamed(line), whole(nonsense))
    model = model_at(web, api)
    for ask in (lambda request: put_together(model, request), model.reply):
        with suppress(ModelError):
            assert isinstance(await ask(HELLO), ChatReply)


# --- connections


@pytest.mark.parametrize("api", APIS)
async def test_closing_a_stream_early_closes_the_connection(web, api):
    left = []

    def endless(handler):
        begin(handler)
        piece = {"chat": delta(content="on "), "responses": {"type": "response.output_text.delta", "delta": "on "}}[api]
        try:
            while not web.closing.wait(0.001):
                say(handler, piece)
        except OSError:
            left.append(True)

    web.answers[PATHS[api]] = endless
    async with aclosing(model_at(web, api).stream(HELLO)) as pieces:
        assert await anext(pieces) == TextDelta("on ")
    await wait_for_item(left)


async def wait_for_item(left, seconds=30):
    """Wait until a list is not empty."""
    deadline = time.monotonic() + seconds
    while not left and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert left


@pytest.mark.parametrize("api", APIS)
async def test_cancelled_request_closes_the_connection(web, api):
    asked, left = asyncio.Event(), []
    loop = asyncio.get_running_loop()

    def silent(handler):
        loop.call_soon_threadsafe(asked.set)
        handler.connection.settimeout(30)
        left.append(handler.connection.recv(1) == b"")

    web.answers[PATHS[api]] = silent
    model = model_at(web, api)
    for work in (model.reply(HELLO), chunks(model, HELLO)):
        left.clear()
        asked.clear()
        task = asyncio.create_task(work)
        await asyncio.wait_for(asked.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await wait_for_item(left)
        assert left == [True]


def test_connections_are_reused_only_within_a_loop():
    seen = []

    def keep(handler):
        seen.append(handler.client_address)
        handler.close_connection = False
        handler.send(200, {"Content-Type": "application/json"}, json.dumps(completion({"content": "hi"})))

    with serving() as web:
        web.answers[CHAT] = keep
        model = model_at(web)

        async def three():
            return [(await model.reply(HELLO)).text for _ in range(3)]

        assert [asyncio.run(three()), asyncio.run(three())] == [["hi"] * 3] * 2
    assert [seen[0]] * 3 == seen[:3]
    assert [seen[3]] * 3 == seen[3:]
    assert seen[0] != seen[3]


def test_garbage_collected_model_closes_connections(web):
    set_answer(web, "chat")

    async def used():
        await model_at(web).reply(HELLO)
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(used())


def test_model_works_after_loop_is_closed(web):
    set_answer(web, "chat")
    model = model_at(web)
    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(model.reply(HELLO)).text == "hi"
    # As a loop does whose generators are not shut down; its connections are closed by the server.
    loop.close()
    assert asyncio.run(model.reply(HELLO)).text == "hi"
    del loop


def test_model_supports_concurrent_runs_in_several_loops(web):
    set_answer(web, "chat")
    agent = Agent(model_at(web))

    async def many():
        return [result.text for result in await asyncio.gather(*(agent.run(f"question {n}") for n in range(20)))]

    assert asyncio.run(many()) == ["hi"] * 20
    assert {sent(web, place)["messages"][0]["content"] for place in range(20)} == {f"question {n}" for n in range(20)}
    assert [agent.run_sync("again").text for _ in range(3)] == ["hi"] * 3


# --- whole runs


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


def make_two_turns(api):
    """Return the two turns of a run, whole and in pieces."""
    if api == "chat":
        call = called(0, "c1", "weather", '{"city": "Rome"}')
        both = [
            completion({"content": None, "tool_calls": [call]}, "tool_calls"),
            completion({"content": "Take sunglasses."}),
        ]
        pieces = [
            [delta("tool_calls", tool_calls=[call]), tokens()],
            [delta("stop", content="Take sunglasses."), tokens()],
        ]
        return [whole(each) for each in both], [streamed(*each) for each in pieces]
    both = [
        response(thought_item(), call_item("c1", "weather", '{"city": "Rome"}')),
        response(text_item("Take sunglasses.")),
    ]
    return [whole(each) for each in both], [streamed(*events_of(each)) for each in both]


@pytest.mark.parametrize("way", ["run", "run_sync", "stream"])
@pytest.mark.parametrize("api", APIS)
def test_agent_runs_with_this_model(web, api, way):
    web.answers[PATHS[api]] = in_turn(*make_two_turns(api)[way == "stream"])
    agent = Agent(model_at(web, api), [weather], role="a travel guide")

    async def result():
        if way == "run":
            return await agent.run("What do I need in Rome?")
        return [event async for event in agent.stream("What do I need in Rome?")][-1].result

    done = agent.run_sync("What do I need in Rome?") if way == "run_sync" else asyncio.run(result())
    assert (done.text, [record.reply.text for record in done.tool_calls]) == ("Take sunglasses.", ["sunny in Rome"])
    assert (done.usage.input_tokens, done.usage.output_tokens, done.usage.cached_tokens) == (18, 4, 8)
    name, system, call = {
        "chat": ("messages", "system", [2, 3]),
        "responses": ("input", "system", [2, 3, 4]),
    }[api]
    messages = sent(web)[name]
    assert messages[0] == {"role": system, "content": "You are a travel guide."}
    assert len(messages) == call[-1] + 1
    assert (
        messages[-1]
        == {
            "chat": {"role": "tool", "tool_call_id": "c1", "content": "sunny in Rome"},
            "responses": {"type": "function_call_output", "call_id": "c1", "output": "sunny in Rome"},
        }[api]
    )


@pytest.mark.parametrize("api", APIS)
def test_agent_retries_retryable_errors(web, api):
    set_answer(web, api)
    answer = web.answers[PATHS[api]]
    busy = make_error(429, {"message": "Slow down"}, **{"retry-after": "0"})
    web.answers[PATHS[api]] = in_turn(busy, lambda handler: handler.connection.close(), answer)
    assert Agent(model_at(web, api), retry=Retry(attempts=3, wait=0)).run_sync("hello").text == "hi"


@pytest.mark.parametrize("api", APIS)
def test_typed_answer_by_schema_or_tool(web, api):
    set_answer(web, api, '{"answer": 21}')
    assert Agent(model_at(web, api, native_output=True), output_type=int).run_sync("How warm?").output == 21
    assert {"chat": "response_format", "responses": "text"}[api] in sent(web)
    call = ToolCall("final_answer", '{"answer": 21}', "c1")
    web.answers[CHAT] = whole(
        completion({"content": None, "tool_calls": [called(0, "c1", call.name, call.json)]}, "tool_calls")
    )
    web.answers[RESPONSES] = whole(response(call_item("c1", call.name, call.json)))
    assert Agent(model_at(web, api), output_type=int).run_sync("How warm?").output == 21
    assert sent(web)["tool_choice"] == "required"


# --- how a model is made


@pytest.mark.parametrize(
    ("settings", "shown", "native"),
    [
        ({}, "OpenAIModel('m', api='responses')", True),
        ({"api": "chat"}, "OpenAIModel('m', api='chat')", True),
        ({"base_url": "https://eu.api.openai.com/v1"}, "OpenAIModel('m', api='responses')", True),
        ({"base_url": "http://h:1/v1/"}, "OpenAIModel('m', api='chat', base_url='http://h:1/v1')", False),
        (
            {"base_url": "http://h/v1", "api": "responses", "native_output": True},
            "OpenAIModel('m', api='responses', base_url='http://h/v1')",
            True,
        ),
    ],
)
def test_api_defaults_by_server(settings, shown, native):
    model = OpenAIModel("m", api_key="k", **settings)
    assert (repr(model), model.native_output) == (shown, native)


@pytest.mark.parametrize(
    ("name", "api"), [("openai:m", "responses"), ("openai-chat:m", "chat"), ("openai-responses:m", "responses")]
)
def test_model_name_selects_api(monkeypatch, name, api):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    model = model_of(name)
    assert (type(model), model.name, model.api) == (OpenAIModel, "m", api)


@pytest.mark.parametrize("name", ["openai", "openai:", "openai-chat: "])
def test_provider_name_without_model_is_rejected(name):
    provider = name.partition(":")[0]
    with pytest.raises(ToolConfigurationError, match=f"needs a model name, such as '{provider}:gpt-5-mini'"):
        model_of(name)


def test_base_url_variable_selects_server(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://gateway/v1")
    assert repr(model_of("openai:m")) == "OpenAIModel('m', api='chat', base_url='http://gateway/v1')"


def test_openai_key_is_not_sent_to_other_servers(web, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("GATEWAY_KEY", f" {KEY}2\n")
    set_answer(web, "chat")
    for settings in ({}, {"key_variable": "GATEWAY_KEY"}):
        asyncio.run(OpenAIModel("m", base_url=web.url("/v1"), **settings).reply(HELLO))
    assert [header(web, "authorization", place) for place in (0, 1)] == ["Bearer none", f"Bearer {KEY}2"]


async def test_key_may_be_a_function(web):
    set_answer(web, "chat")

    async def fresh():
        return "fresh"

    await model_at(web, api_key=fresh).reply(HELLO)
    assert header(web, "authorization") == "Bearer fresh"
    web.answers[CHAT] = make_error(401, {"message": "No"})
    with pytest.raises(ModelError, match=r"refused the request \(401\): No"):
        await model_at(web, api_key=fresh).reply(HELLO)


async def test_error_of_key_function_is_raised_unchanged(web):
    async def broken():
        raise LookupError("no vault")

    with pytest.raises(LookupError, match=r"^no vault$"):
        await model_at(web, api_key=broken).reply(HELLO)


async def test_given_client_is_used_without_retries(web):
    web.answers[CHAT] = in_turn(make_error(500, {"message": f"Oops {KEY}"}), whole(completion({"content": "hi"})))
    async with openai.AsyncOpenAI(api_key=KEY, base_url=web.url("/v1"), default_headers={"X-Own": "1"}) as client:
        model = OpenAIModel("m", client=client)
        assert repr(model) == f"OpenAIModel('m', api='chat', base_url={web.url('/v1')!r})"
        with pytest.raises(ModelError, match=r"failed to answer \(500\): Oops \*\*\*"):
            await model.reply(HELLO)
        assert (await model.reply(HELLO)).text == "hi"
    assert [header(web, "x-own", place) for place in (0, 1)] == ["1", "1"]


def test_proxy_is_not_used_for_localhost(web, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    set_answer(web, "chat")
    assert asyncio.run(model_at(web).reply(HELLO)).text == "hi"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"name": ""}, "needs a model name, such as 'gpt-5-mini', not ''"),
        ({"name": 7}, "needs a model name"),
        ({"api": "completions"}, "api must be 'chat' or 'responses', not 'completions'"),
        ({"timeout": 0}, "timeout must be a number of seconds > 0, not 0"),
        ({"timeout": "1"}, "timeout must be a number of seconds > 0, not '1'"),
        ({"base_url": "localhost:8000"}, "must be a URL such as 'http://127.0.0.1:8000/v1', not 'localhost:8000'"),
        ({"base_url": "http://"}, "base_url must be a URL"),
        ({"base_url": "http://[::/v1"}, "base_url must be a URL"),
        ({"base_url": "http://h:port/v1"}, "base_url must be a URL"),
        ({"base_url": "ftp://h/v1"}, "base_url must be a URL"),
        ({"base_url": "http://ada:secret@h/v1"}, "base_url contains a password; pass it as api_key= or in headers="),
    ],
)
def test_invalid_settings_are_rejected(settings, problem):
    with pytest.raises(ToolDefinitionError, match=re.escape(problem)) as caught:
        OpenAIModel(**{"name": "m", "api_key": "k", **settings})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (None, "OpenAIModel has no key: set OPENAI_API_KEY or pass api_key="),
        ("", "OpenAIModel has no key"),
        (" \n", "OpenAIModel has no key"),
        (
            "sk-secret\nsecond",
            "The key for OpenAIModel in OPENAI_API_KEY contains invalid characters",
        ),
        ("sk-sécret", "contains invalid characters"),
    ],
)
def test_missing_or_invalid_key_is_rejected_without_showing_it(monkeypatch, key, problem):
    if key is not None:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ToolConfigurationError, match=problem) as caught:
        model_of("openai:m")
    assert "cret" not in str(caught.value)


def test_invalid_key_without_variable_is_rejected():
    with pytest.raises(ToolConfigurationError, match="The key for OpenAIModel contains invalid characters"):
        OpenAIModel("m", base_url="http://h/v1", api_key="a\tb")
