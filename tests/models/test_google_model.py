import asyncio
import base64
import json
import threading
from contextlib import contextmanager
from email.utils import formatdate

import httpx2
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google import genai

from helpers.agent_scripts import add
from helpers.provider_checks import (
    HELLO,
    IMAGE,
    Waiting,
    asked,
    assert_hangs_up_when_cancelled,
    assert_hangs_up_when_closed,
    assert_hangs_up_with_its_loop,
    replied,
    result_of,
)
from helpers.web_server import serving
from toolsemble import (
    Agent,
    ChatModel,
    FileContent,
    ModelError,
    Retry,
    ToolCall,
    ToolConfigurationError,
    ToolReply,
    ToolResult,
    ToolSpecification,
)
from toolsemble.models import (
    ArgumentsDelta,
    AssistantMessage,
    CallDelta,
    ChatReply,
    ChatRequest,
    GoogleModel,
    StreamEnd,
    SystemMessage,
    TextDelta,
    ThoughtDelta,
    TokenUsage,
    ToolMessage,
    UserMessage,
    message_from_json,
    message_to_json,
    model_of,
)

pytestmark = pytest.mark.slow

OLD, NEW = "gemini-2.5-flash", "gemini-3-flash"
KEY = "AIza-secret-key"
IMAGE_PART = {"inlineData": {"data": "AP8=", "mimeType": "image/png"}}
ADD = ToolSpecification("add", "Adds", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
ADD_TOOL = {
    "functionDeclarations": [
        {
            "name": "add",
            "description": "Adds",
            "parameters": {"type": "OBJECT", "properties": {"a": {"type": "INTEGER"}}, "required": ["a"]},
        }
    ]
}
CALL = ToolCall("add", {"a": 1}, id="c1")
SIGNATURE = "+/8="
OWNER = f"google:{NEW}"
SKIPPED = base64.urlsafe_b64encode(b"skip_thought_signature_validator").decode()


def candidate(*parts, finish="STOP", usage=None, **more):
    """Return a response as Gemini writes it."""
    ended = {"finishReason": finish} if finish else {}
    counted = {"usageMetadata": usage} if usage else {}
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, **ended, **more}], **counted}


def text(words, **more):
    return {"text": words, **more}


def call(name="add", args=None, id=None, **more):
    named_by = {"id": id} if id else {}
    return {"functionCall": {"name": name, **({} if args is None else {"args": args}), **named_by}, **more}


class Gemini:
    """Answers as Gemini does: the next of its answers to each request."""

    def __init__(self, web):
        self._web = web
        self.answers = []
        for version in ("v1/models", "v1beta1/projects/p/locations/l/publishers/google/models"):
            for name in (OLD, NEW):
                web.answers[f"/{version}/{name}:generateContent"] = self._next
                web.answers[f"/{version}/{name}:streamGenerateContent"] = self._next

    def _next(self, handler):
        answer = self.answers.pop(0)
        answer(handler) if callable(answer) else handler.send(
            200, {"Content-Type": "application/json"}, json.dumps(answer)
        )

    @property
    def bodies(self):
        return [json.loads(body) for _, _, _, body in self._web.requests]

    @property
    def headers(self):
        return [{name.lower(): value for name, value in headers.items()} for _, _, headers, _ in self._web.requests]

    def model(self, name=NEW, **settings):
        return GoogleModel(name, **{"api_key": KEY, "base_url": self._web.url(), **settings})


@pytest.fixture
def gemini(monkeypatch):
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"):
        monkeypatch.delenv(name, raising=False)
    with serving() as web:
        yield Gemini(web)


def make_stream(*responses, ending=b"0\r\n\r\n"):
    """Return an answer that streams its responses; the ending tells the reader that it is complete."""

    def answer(handler):
        send_headers(handler)
        for response in responses:
            write(handler, response)
        handler.wfile.write(ending)

    return answer


def send_headers(handler):
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()


def write(handler, response):
    data = b"data: " + json.dumps(response).encode() + b"\r\n\r\n"
    handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    handler.wfile.flush()


def make_error(status, body, headers=None):
    return lambda handler: handler.send(status, headers or {}, body if isinstance(body, str) else json.dumps(body))


async def chunks(model, request=HELLO):
    return [chunk async for chunk in model.stream(request)]


# --- what is sent


USER = {"role": "user", "parts": [{"text": "hello"}]}
REQUESTS = {
    "text": (NEW, HELLO, {"contents": [USER], "generationConfig": {}}),
    "system": (
        NEW,
        ChatRequest([SystemMessage("Be brief."), SystemMessage(""), UserMessage("hello"), SystemMessage("Be kind.")]),
        {
            "contents": [USER],
            "systemInstruction": {"role": "user", "parts": [{"text": "Be brief.\n\nBe kind."}]},
            "generationConfig": {},
        },
    ),
    "images": (
        NEW,
        ChatRequest(
            [
                UserMessage("what?", (IMAGE,)),
                UserMessage(""),
                UserMessage("", (IMAGE,)),
            ]
        ),
        {
            "contents": [
                {
                    "role": "user",
                    "parts": [{"text": "what?"}, IMAGE_PART],
                },
                {"role": "user", "parts": [IMAGE_PART]},
            ],
            "generationConfig": {},
        },
    ),
    "tools": (
        NEW,
        ChatRequest([UserMessage("hello")], [ADD]),
        {"contents": [USER], "tools": [ADD_TOOL], "generationConfig": {}},
    ),
    "tools that must be used": (
        NEW,
        ChatRequest([UserMessage("hello")], [ADD], "required"),
        {
            "contents": [USER],
            "tools": [ADD_TOOL],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
            "generationConfig": {},
        },
    ),
    "tools that must not be used": (
        NEW,
        ChatRequest([UserMessage("hello")], [ADD], "none"),
        {
            "contents": [USER],
            "tools": [ADD_TOOL],
            "toolConfig": {"functionCallingConfig": {"mode": "NONE"}},
            "generationConfig": {},
        },
    ),
    "no tools to forbid": (
        NEW,
        ChatRequest([UserMessage("hello")], (), "none"),
        {"contents": [USER], "generationConfig": {}},
    ),
    "a schema": (
        OLD,
        ChatRequest([UserMessage("hello")], output_schema={"type": "object", "properties": {"n": {"type": "integer"}}}),
        {
            "contents": [USER],
            "generationConfig": {
                "responseMimeType": "application/json",
                "responseJsonSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
            },
        },
    ),
    "a schema beside tools": (
        NEW,
        ChatRequest([UserMessage("hello")], [ADD], output_schema={"type": "object"}),
        {
            "contents": [USER],
            "tools": [ADD_TOOL],
            "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": {"type": "object"}},
        },
    ),
    "settings": (
        NEW,
        ChatRequest(
            [UserMessage("hello")],
            [ADD],
            "required",
            settings={
                "temperature": 0,
                "max_output_tokens": 9,
                "thinking_config": {"include_thoughts": True},
                "tools": [{"google_search": {}}],
                "tool_config": {"include_server_side_tool_invocations": True},
            },
        ),
        {
            "contents": [USER],
            "tools": [{"googleSearch": {}}, ADD_TOOL],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY"}, "includeServerSideToolInvocations": True},
            "generationConfig": {
                "temperature": 0,
                "maxOutputTokens": 9,
                "thinkingConfig": {"include_thoughts": True},
            },
        },
    ),
    "replies of an older model": (
        OLD,
        ChatRequest(
            [
                UserMessage("hello"),
                AssistantMessage("Let me see.", (CALL, ToolCall("now"), ToolCall("now"))),
                replied(CALL, "1", contents=[IMAGE, FileContent(b"a", "application/zip", "a.zip")]),
                replied(ToolCall("now"), "noon"),
                ToolMessage(ToolReply(ToolCall("now"), ToolResult.failure("no clock"))),
                UserMessage("go on"),
            ]
        ),
        {
            "contents": [
                USER,
                {
                    "role": "model",
                    "parts": [
                        {"text": "Let me see."},
                        {"functionCall": {"id": "c1", "name": "add", "args": {"a": 1}}},
                        {"functionCall": {"name": "now", "args": {}}},
                        {"functionCall": {"name": "now", "args": {}}},
                    ],
                },
                {
                    "role": "user",
                    "parts": [
                        {
                            "functionResponse": {
                                "id": "c1",
                                "name": "add",
                                "response": {"output": "1\n[a.zip, application/zip, 1 bytes, not shown]"},
                            }
                        },
                        {"functionResponse": {"name": "now", "response": {"output": "noon"}}},
                        {"functionResponse": {"name": "now", "response": {"error": "Error: no clock"}}},
                        IMAGE_PART,
                    ],
                },
                {"role": "user", "parts": [{"text": "go on"}]},
            ],
            "generationConfig": {},
        },
    ),
    "replies of a newer model, with foreign calls": (
        NEW,
        ChatRequest(
            [
                UserMessage("hello"),
                AssistantMessage(
                    "",
                    (CALL, ToolCall("rm -rf /", "not JSON")),
                    {"google:gemini-2.5-flash": [{"type": "tool_use", "signature": "abc"}]},
                ),
                replied(CALL, "1", contents=[IMAGE]),
                replied(ToolCall("rm -rf /", "not JSON"), "no"),
            ]
        ),
        {
            "contents": [
                USER,
                {
                    "role": "model",
                    "parts": [
                        {
                            "functionCall": {"id": "c1", "name": "add", "args": {"a": 1}},
                            "thoughtSignature": SKIPPED,
                        },
                        {"functionCall": {"name": "rm_-rf__", "args": {"unreadable_arguments": "not JSON"}}},
                    ],
                },
                {
                    "role": "user",
                    "parts": [
                        {
                            "functionResponse": {
                                "id": "c1",
                                "name": "add",
                                "response": {"output": "1"},
                                "parts": [{"inline_data": {"data": "AP8=", "mime_type": "image/png"}}],
                            }
                        },
                        {"functionResponse": {"name": "rm_-rf__", "response": {"output": "no"}}},
                    ],
                },
            ],
            "generationConfig": {},
        },
    ),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("name", "request_", "body"), REQUESTS.values(), ids=REQUESTS.keys())
async def test_request_is_sent_in_gemini_format(gemini, name, request_, body, streamed):
    gemini.answers = [make_stream(candidate(text("hi"))) if streamed else candidate(text("hi"))]
    assert (await asked(gemini.model(name), streaming=streamed, request=request_)).text == "hi"
    assert normalize(gemini.bodies) == normalize([body])
    assert gemini.headers[0]["x-goog-api-key"] == KEY


def normalize(value):
    """Return JSON with keys in one spelling: the SDK sends some in snake case, and Google takes both."""
    if isinstance(value, dict):
        return {_camel(key): normalize(each) for key, each in value.items() if each is not None}
    return [normalize(each) for each in value] if isinstance(value, list) else value


def _camel(key):
    first, *rest = key.split("_")
    return "".join([first, *map(str.capitalize, rest)])


# --- responses


USAGE = {
    "promptTokenCount": 10,
    "toolUsePromptTokenCount": 1,
    "candidatesTokenCount": 5,
    "thoughtsTokenCount": 7,
    "cachedContentTokenCount": 4,
    "totalTokenCount": 23,
}
REPLIES = {
    "text": (candidate(text("Rome"), usage=USAGE), ChatReply("Rome", usage=TokenUsage(11, 12, 4, 7))),
    "nothing counted": (candidate(text("Rome"), usage={"totalTokenCount": 0}), ChatReply("Rome")),
    "texts": (candidate(text("All "), text("roads")), ChatReply("All roads")),
    "thoughts are not told": (candidate(text("Hm.", thought=True), text("Rome")), ChatReply("Rome")),
    "a call": (
        candidate(call(args={"a": 1}, id="c1")),
        ChatReply("", (ToolCall("add", '{"a":1}', "c1"),), stop_reason="calls"),
    ),
    "a call without an id and arguments": (
        candidate(call("now")),
        ChatReply("", (ToolCall("now", "{}"),), stop_reason="calls"),
    ),
    "several calls": (
        candidate(text("Let me"), call(args={"a": 1}), call(args={"a": None})),
        ChatReply("Let me", (ToolCall("add", '{"a":1}'), ToolCall("add", '{"a":null}')), stop_reason="calls"),
    ),
    "a signed call": (
        candidate(text("Let me"), call(args={"a": 1}, thoughtSignature=SIGNATURE), call(args={"a": 2})),
        ChatReply(
            "Let me",
            (ToolCall("add", '{"a":1}'), ToolCall("add", '{"a":2}')),
            stop_reason="calls",
            details={
                OWNER: [
                    {"type": "text", "length": 6},
                    {"type": "tool_use", "signature": SIGNATURE},
                    {"type": "tool_use"},
                ]
            },
        ),
    ),
    "signed text": (
        candidate(text("Rome"), text("", thoughtSignature=SIGNATURE)),
        ChatReply(
            "Rome",
            details={OWNER: [{"type": "text", "length": 4}, {"type": "text", "length": 0, "signature": SIGNATURE}]},
        ),
    ),
    "other parts": (
        candidate(
            {"executableCode": {"code": "1 + 1", "language": "PYTHON"}},
            text("Hm.", thought=True, thoughtSignature=SIGNATURE),
            text("2"),
        ),
        ChatReply(
            "2",
            details={
                OWNER: [
                    {"type": "part", "part": {"executable_code": {"code": "1 + 1", "language": "PYTHON"}}},
                    {"type": "part", "part": {"text": "Hm.", "thought": True, "thought_signature": "-_8="}},
                    {"type": "text", "length": 1},
                ],
            },
        ),
    ),
    "the first candidate": (
        {"candidates": [*candidate(text("Rome"))["candidates"], *candidate(text("Paris"))["candidates"]]},
        ChatReply("Rome"),
    ),
    "no more room": (candidate(text("All ro"), finish="MAX_TOKENS"), ChatReply("All ro", stop_reason="length")),
    "no more room for a call": (
        candidate(call(args={"a": 1}), finish="MAX_TOKENS"),
        ChatReply("", (ToolCall("add", '{"a":1}'),), stop_reason="length"),
    ),
    "a refusal": (candidate(text("I ca"), finish="SAFETY"), ChatReply("I ca", stop_reason="refusal")),
    "another reason": (candidate(text("Rome"), finish="OTHER"), ChatReply("Rome", stop_reason="other")),
    "a call beside one that was lost": (
        candidate(call(args={"a": 1}), finish="MALFORMED_FUNCTION_CALL"),
        ChatReply("", (ToolCall("add", '{"a":1}'),), stop_reason="calls"),
    ),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("response", "reply"), REPLIES.values(), ids=REPLIES.keys())
async def test_reply_and_stream_agree(gemini, response, reply, streamed):
    gemini.answers = [make_stream(response) if streamed else response]
    assert await asked(gemini.model(), streaming=streamed) == reply


async def test_stream_yields_chunks_as_received(gemini):
    gemini.answers = [
        make_stream(
            candidate(text("Hm.", thought=True), finish=None),
            candidate(text("All "), finish=None, usage={"promptTokenCount": 3, "candidatesTokenCount": 1}),
            {"usageMetadata": {"promptTokenCount": 3}},
            candidate(text("roads"), finish=None),
            candidate(call(args={"a": 1}, id="c1", thoughtSignature=SIGNATURE), call("now"), finish=None),
            {
                "candidates": [{"finishReason": "STOP"}],
                "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 9},
            },
        )
    ]
    assert await chunks(gemini.model()) == [
        ThoughtDelta("Hm."),
        TextDelta("All "),
        TextDelta("roads"),
        CallDelta(0, "add", "c1"),
        ArgumentsDelta(0, '{"a":1}'),
        CallDelta(1, "now"),
        ArgumentsDelta(1, "{}"),
        StreamEnd(
            TokenUsage(3, 9),
            "calls",
            {
                OWNER: [
                    {"type": "text", "length": 9},
                    {"type": "tool_use", "signature": SIGNATURE},
                    {"type": "tool_use"},
                ]
            },
        ),
    ]


async def test_signed_content_is_sent_back_unchanged(gemini):
    parts = [
        text("Let me"),
        {"executableCode": {"code": "1 + 1", "language": "PYTHON"}},
        call(args={"a": 1}, thoughtSignature=SIGNATURE),
        text("and", thoughtSignature="AAAA"),
        call(args={"a": 2}),
    ]
    gemini.answers = [candidate(*parts), candidate(text("done"))]
    model = gemini.model()
    reply = await model.reply(HELLO)
    answer = message_from_json(message_to_json(AssistantMessage(reply.text, reply.calls, reply.details)))
    await model.reply(ChatRequest([UserMessage("hello"), answer, *map(replied, answer.calls)]))
    assert normalize(gemini.bodies[1]["contents"][1]) == {
        "role": "model",
        "parts": [
            text("Let me"),
            {"executableCode": {"code": "1 + 1", "language": "PYTHON"}},
            call(args={"a": 1}, thoughtSignature="-_8="),  # the same bytes in the other alphabet
            text("and", thoughtSignature="AAAA"),
            call(args={"a": 2}),
        ],
    }


ERRORS = {
    "blocked": (
        {"promptFeedback": {"blockReason": "SAFETY"}},
        "Gemini blocked the prompt (SAFETY)",
        False,
    ),
    "blocked, with a reason": (
        {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "not that"}},
        "Gemini blocked the prompt (PROHIBITED_CONTENT): not that",
        False,
    ),
    "no candidates": ({"promptFeedback": {}}, "Gemini's answer was cut off before its end", True),
    "nothing": ({}, "Gemini's answer was cut off before its end", True),
    "no end": (candidate(text("Ro"), finish=None), "Gemini's answer was cut off before its end", True),
    "a call without an end": (
        candidate(call("now"), finish=None),
        "Gemini's answer was cut off before its end",
        True,
    ),
    "safety": (
        {"candidates": [{"finishReason": "SAFETY"}]},
        "Gemini refused to answer (SAFETY)",
        False,
    ),
    "recitation": (candidate(finish="RECITATION"), "Gemini refused to answer (RECITATION)", False),
    "only thoughts": (
        candidate(text("Hm.", thought=True), finish="MAX_TOKENS"),
        "Gemini reached the token limit before it answered (MAX_TOKENS); raise the limit, or send less",
        False,
    ),
    "silence": (candidate(text("")), "Gemini sent an empty answer (STOP)", True),
    "a call that was lost": (
        candidate(text("Let me"), finish="MALFORMED_FUNCTION_CALL"),
        "Gemini wrote a call that cannot be read (MALFORMED_FUNCTION_CALL)",
        True,
    ),
    "a call in pieces": (
        candidate({"functionCall": {"name": "add", "willContinue": True}}),
        "Gemini streamed arguments of a call, which is not supported; turn off stream_function_call_arguments",
        False,
    ),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("response", "message", "retryable"), ERRORS.values(), ids=ERRORS.keys())
async def test_unusable_reply_is_an_error(gemini, response, message, retryable, streamed):
    gemini.answers = [make_stream(response) if streamed else response]
    with pytest.raises(ModelError) as caught:
        await asked(gemini.model(), streaming=streamed)
    assert (str(caught.value), caught.value.retryable) == (message, retryable)


async def test_unknown_finish_reason_is_other(gemini):
    gemini.answers = [candidate(text("Rome"), finish="TIRED")]
    with pytest.warns(UserWarning, match="TIRED is not a valid FinishReason"):
        assert await gemini.model().reply(HELLO) == ChatReply("Rome", stop_reason="other")


# --- what goes wrong


def make_error_body(code, status, message, *details):
    return {"error": {"code": code, "status": status, "message": message, "details": list(details)}}


WAIT = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}
HINT = "; it refused the key passed as api_key="
REFUSALS = {
    "400": (
        400,
        {},
        make_error_body(400, "INVALID_ARGUMENT", "No such field"),
        "Gemini refused the request (400, INVALID_ARGUMENT): No such field",
        False,
        None,
    ),
    "wrong key": (
        400,
        {},
        make_error_body(400, "INVALID_ARGUMENT", f"API key not valid: {KEY}"),
        f"Gemini refused the request (400, INVALID_ARGUMENT): API key not valid: ***{HINT}",
        False,
        None,
    ),
    "403": (
        403,
        {},
        make_error_body(403, "PERMISSION_DENIED", "No"),
        f"Gemini refused the request (403, PERMISSION_DENIED): No{HINT}",
        False,
        None,
    ),
    "404": (
        404,
        {},
        make_error_body(404, "NOT_FOUND", "No such model"),
        "Gemini refused the request (404, NOT_FOUND): No such model",
        False,
        None,
    ),
    "409": (
        409,
        {},
        make_error_body(409, "ABORTED", "Again"),
        "Gemini refused the request (409, ABORTED): Again",
        True,
        None,
    ),
    "429": (
        429,
        {},
        make_error_body(429, "RESOURCE_EXHAUSTED", "Slow", "?", {}, WAIT),
        "Gemini refused the request (429, RESOURCE_EXHAUSTED): Slow",
        True,
        34.5,
    ),
    "429 with a header": (
        429,
        {"Retry-After": "7"},
        make_error_body(429, "RESOURCE_EXHAUSTED", "Slow", WAIT),
        "Gemini refused the request (429, RESOURCE_EXHAUSTED): Slow",
        True,
        7.0,
    ),
    "429 in milliseconds": (
        429,
        {"retry-after-ms": "1500"},
        make_error_body(429, "RESOURCE_EXHAUSTED", "Slow"),
        "Gemini refused the request (429, RESOURCE_EXHAUSTED): Slow",
        True,
        1.5,
    ),
    "429 with a date of the past": (
        429,
        {"Retry-After": formatdate(0, usegmt=True)},
        make_error_body(429, "RESOURCE_EXHAUSTED", "Slow"),
        "Gemini refused the request (429, RESOURCE_EXHAUSTED): Slow",
        True,
        0.0,
    ),
    "500": (
        500,
        {},
        make_error_body(500, "INTERNAL", "Oops"),
        "Gemini failed to answer (500, INTERNAL): Oops",
        True,
        None,
    ),
    "503": (
        503,
        {},
        make_error_body(503, "UNAVAILABLE", "Overloaded"),
        "Gemini failed to answer (503, UNAVAILABLE): Overloaded",
        True,
        None,
    ),
    "a page": (
        502,
        {},
        "<html>Bad Gateway</html>",
        "Gemini failed to answer (502, Bad Gateway): <html>Bad Gateway</html>",
        True,
        None,
    ),
    "a list": (
        500,
        {},
        [make_error_body(500, "INTERNAL", "Oops")],
        "Gemini failed to answer (500, INTERNAL): Oops",
        True,
        None,
    ),
    "another list": (500, {}, [1, 2], "Gemini failed to answer (500, None): no reason is given", True, None),
    "a redirect": (
        302,
        {"Location": "/elsewhere"},
        "gone",
        "Gemini refused the request (302, Found): gone",
        False,
        None,
    ),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("status", "headers", "body", "message", "retryable", "wait"), REFUSALS.values(), ids=REFUSALS.keys()
)
async def test_error_has_service_message(gemini, status, headers, body, message, retryable, wait, streamed):
    gemini.answers = [make_error(status, body, headers)]
    with pytest.raises(ModelError) as caught:
        await asked(gemini.model(), streaming=streamed)
    error = caught.value
    assert (str(error), error.retryable, error.retry_after) == (message, retryable, wait)
    assert error.__cause__ is None


async def test_error_event_in_stream_is_raised(gemini):
    gemini.answers = [
        make_stream(candidate(text("Ro"), finish=None), make_error_body(503, "UNAVAILABLE", "Overloaded"))
    ]
    stream = gemini.model().stream(HELLO)
    assert await anext(stream) == TextDelta("Ro")
    with pytest.raises(ModelError, match=r"\(503, UNAVAILABLE\): Overloaded") as caught:
        await anext(stream)
    assert caught.value.retryable


def hang_up(handler):
    handler.connection.close()


def send_half(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"candidates": [')


BROKEN = {
    "hung up": (hang_up, "The connection to Gemini failed"),
    "half an answer": (send_half, "The connection to Gemini failed"),
    "no JSON": (lambda handler: handler.send(200, {}, b"not JSON"), "Gemini's answer cannot be read"),
    "no response": (
        lambda handler: handler.send(200, {}, b'{"candidates": 7}'),
        "Gemini's answer cannot be read",
    ),
    "a call of no kind": (
        lambda handler: handler.send(200, {}, json.dumps(candidate(call(args="not an object")))),
        "Gemini's answer cannot be read",
    ),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("answer", "message"), BROKEN.values(), ids=BROKEN.keys())
async def test_broken_answer_is_retryable(gemini, answer, message, streamed):
    gemini.answers = [answer]
    with pytest.raises(ModelError, match=message) as caught:
        await asked(gemini.model(), streaming=streamed)
    assert caught.value.retryable


@pytest.mark.parametrize("ending", [b"", b"20\r\ndata: "])
async def test_truncated_stream_is_retryable(gemini, ending):
    gemini.answers = [make_stream(candidate(text("Ro"), finish=None), ending=ending)]
    with pytest.raises(ModelError, match="The connection to Gemini failed") as caught:
        await chunks(gemini.model())
    assert caught.value.retryable


async def test_refused_connection_is_retryable(gemini):
    with serving() as web:
        url = web.url()
    with pytest.raises(ModelError, match="The connection to Gemini failed") as caught:
        await gemini.model(base_url=url).reply(HELLO)
    assert caught.value.retryable


async def test_timeout_is_retryable(gemini, clock):
    def silent(handler):
        with clock.running():  # from now on: it is connected
            handler.server.web.closing.wait(30)

    gemini.answers = [silent]
    with pytest.raises(ModelError, match=r"The connection to Gemini failed: .*ReadTimeout") as caught:
        await gemini.model(timeout=0.05).reply(HELLO)
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("name", "request_", "problem"),
    [
        (NEW, ChatRequest([UserMessage("hi")], settings={"heat": 7}), "(?s)Invalid request for Gemini: .*heat"),
        (
            NEW,
            ChatRequest([UserMessage("hi")], settings={"audio_timestamp": True}),
            "Invalid request for Gemini: audio_timestamp",
        ),
        (
            OLD,
            ChatRequest([UserMessage("hi")], [ADD], output_schema={"type": "object"}),
            "takes no answer schema together with tools",
        ),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_invalid_request_is_a_configuration_error(gemini, name, request_, problem, streamed):
    with pytest.raises(ToolConfigurationError, match=problem):
        await asked(gemini.model(name), streaming=streamed, request=request_)
    assert gemini.bodies == []


# --- loops and connections


def make_stalled_stream(*responses):
    """Return an answer that comes to a stop after these responses; after none, it never begins."""

    def start(handler):
        send_headers(handler)
        for response in responses:
            write(handler, response)

    return Waiting(start if responses else None)


@pytest.mark.parametrize("streamed", [False, True])
async def test_cancelling_closes_the_connection(gemini, streamed):
    waiting = make_stalled_stream(*([candidate(text("Ro"), finish=None)] if streamed else []))
    gemini.answers = [waiting]
    await assert_hangs_up_when_cancelled(gemini.model(), waiting, streaming=streamed)


async def test_closing_stream_closes_connection(gemini):
    waiting = make_stalled_stream(candidate(text("Ro"), finish=None), candidate(text("me"), finish=None))
    gemini.answers = [waiting]
    await assert_hangs_up_when_closed(gemini.model(), waiting, "Ro")


def test_abandoned_stream_is_closed_with_loop(gemini):
    waiting = make_stalled_stream(candidate(text("Ro"), finish=None))
    gemini.answers = [waiting]
    assert_hangs_up_with_its_loop(gemini.model(), waiting, "Ro")


def keep_alive(answer):
    def keep(handler):
        handler.close_connection = False
        handler.send(200, {"Content-Type": "application/json"}, json.dumps(answer))
        handler.server.web.ports.add(handler.client_address[1])

    return keep


def test_model_keeps_connections_within_each_loop(gemini):
    gemini._web.ports = set()
    gemini.answers = [keep_alive(candidate(text("hi")))] * 6
    model = gemini.model()

    async def thrice():
        return [(await model.reply(HELLO)).text for _ in range(3)]

    assert [asyncio.run(thrice()), asyncio.run(thrice())] == [["hi"] * 3] * 2
    assert len(gemini._web.ports) == 2


async def test_requests_run_concurrently(gemini):
    meeting = threading.Barrier(30)

    def together(handler):
        meeting.wait(30)
        handler.send(200, {}, json.dumps(candidate(text("hi"))))

    gemini.answers = [together] * 30
    model = gemini.model()
    replies = await asyncio.wait_for(asyncio.gather(*(model.reply(HELLO) for _ in range(30))), 60)
    assert replies == [ChatReply("hi")] * 30


def test_model_works_in_loops_of_several_threads(gemini):
    gemini.answers = [make_stream(candidate(text("hi")))] * 8
    model, got = gemini.model(), []
    threads = [threading.Thread(target=lambda: got.append(asyncio.run(asked(model, streaming=True)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert got == [ChatReply("hi")] * 8


# --- agents


def make_two_turns(streamed):
    turns = [
        candidate(call(args={"a": 1, "b": 2}, thoughtSignature=SIGNATURE), usage={"promptTokenCount": 5}),
        candidate(text("It is 3."), usage={"promptTokenCount": 9, "candidatesTokenCount": 3}),
    ]
    return [make_stream(turn) if streamed else turn for turn in turns]


@pytest.mark.parametrize("way", ["run", "run_sync", "stream"])
def test_agent_runs_with_this_model(gemini, way):
    gemini.answers = make_two_turns(way == "stream")
    agent = Agent(gemini.model(), [add], goal="Add.")
    result = result_of(agent, "1 + 2?", way)
    assert (result.text, result.usage.input_tokens, result.usage.output_tokens) == ("It is 3.", 14, 3)
    assert normalize(gemini.bodies[1]["contents"]) == [
        {"role": "user", "parts": [{"text": "1 + 2?"}]},
        {"role": "model", "parts": [call(args={"a": 1, "b": 2}, thoughtSignature="-_8=")]},
        {"role": "user", "parts": [{"functionResponse": {"name": "add", "response": {"output": "3"}}}]},
    ]


@pytest.mark.parametrize("streamed", [False, True])
async def test_agent_retries_after_rate_limit_and_truncated_stream(gemini, streamed):
    cut = make_stream(candidate(text("Ro"), finish=None), ending=b"") if streamed else send_half
    gemini.answers = [
        make_error(429, make_error_body(429, "RESOURCE_EXHAUSTED", "Slow")),
        cut,
        *make_two_turns(streamed),
    ]
    agent = Agent(gemini.model(), [add], retry=Retry(wait=0))
    if streamed:
        result = [event async for event in agent.stream("1 + 2?")][-1].result
    else:
        result = await agent.run("1 + 2?")
    assert result.text == "It is 3."


@pytest.mark.parametrize(("name", "answer"), [(NEW, text('{"answer": 3}')), (OLD, call("final_answer", {"answer": 3}))])
async def test_typed_answer_by_schema_or_tool(gemini, name, answer):
    gemini.answers = [candidate(answer)]
    result = await Agent(gemini.model(name), [add], output_type=int).run("1 + 2?")
    assert result.output == 3
    assert ("responseJsonSchema" in gemini.bodies[0]["generationConfig"]) is (name == NEW)


# --- how it is made


def test_model_has_name_and_repr(gemini):
    model = gemini.model()
    assert (isinstance(model, ChatModel), repr(model)) == (True, "GoogleModel('gemini-3-flash')")


@pytest.mark.parametrize("provider", ["google", "gemini"])
def test_model_is_created_by_name(gemini, monkeypatch, provider):
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    assert repr(model_of(f"{provider}:{NEW}")) == "GoogleModel('gemini-3-flash')"


@pytest.mark.parametrize(
    ("name", "given", "native"), [(OLD, None, False), (NEW, None, True), (OLD, True, True), (NEW, False, False)]
)
def test_native_output_defaults_by_model_name(gemini, name, given, native):
    assert gemini.model(name, native_output=given).native_output is native


def test_missing_key_error_names_variable(gemini):
    with pytest.raises(ToolConfigurationError, match=r"No API key was provided.*set GOOGLE_API_KEY, or pass api_key="):
        GoogleModel(NEW)
    with pytest.raises(ToolConfigurationError, match="'gemini' needs a model name, such as 'gemini:"):
        model_of("gemini:")


async def test_refused_key_error_names_where_the_key_comes_from(gemini, monkeypatch):
    async def fail(**settings):
        gemini.answers = [make_error(403, make_error_body(403, "PERMISSION_DENIED", "No"))]
        with pytest.raises(ModelError) as caught:
            await GoogleModel(NEW, **settings).reply(HELLO)
        return str(caught.value)

    client = genai.Client(api_key=KEY, http_options={"base_url": gemini._web.url()})
    assert (await fail(client=client)).endswith("No; it refused the key of the client")
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    assert (await fail(base_url=gemini._web.url())).endswith("No; it refused the key from GEMINI_API_KEY")


@pytest.mark.parametrize("name", ["api_key", "base_url", "project", "location"])
def test_client_excludes_connection_settings(gemini, name):
    with pytest.raises(TypeError, match="takes a client, or api_key, base_url, project and location, not both"):
        GoogleModel(NEW, client=object(), **{name: "x"})


async def test_unexpected_error_is_quoted(gemini):
    client = genai.Client(
        api_key=KEY, http_options={"base_url": gemini._web.url(), "httpx_async_client": FailingClient()}
    )
    with pytest.raises(ModelError, match="Google's package says: odd") as caught:
        await GoogleModel(NEW, client=client).reply(HELLO)
    assert not caught.value.retryable


class FailingClient(httpx2.AsyncClient):
    async def send(self, request, **options):
        raise RuntimeError("odd")


async def test_given_client_is_used_unchanged(gemini):
    gemini.answers = [candidate(text("hi")), make_stream(candidate(text("hi")))]
    client = genai.Client(api_key="another", http_options={"base_url": gemini._web.url()})
    model = GoogleModel(NEW, client=client)
    assert [await asked(model, streaming=False), await asked(model, streaming=True)] == [ChatReply("hi")] * 2
    assert [headers["x-goog-api-key"] for headers in gemini.headers] == ["another"] * 2
    await client.aio.aclose()
    client.close()


@contextmanager
def service_account(tmp_path, monkeypatch, token_uri):
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    fields = {"type": "service_account", "client_email": "me@p", "private_key": pem, "token_uri": token_uri}
    path = tmp_path / "account.json"
    path.write_text(json.dumps(fields))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    yield


async def test_vertex_uses_credentials_of_environment(gemini, tmp_path, monkeypatch):
    token = {"access_token": "ya29", "expires_in": 3600, "token_type": "Bearer"}
    gemini._web.answers["/token"] = (200, {"Content-Type": "application/json"}, json.dumps(token))
    gemini.answers = [candidate(text("hi"))]
    with service_account(tmp_path, monkeypatch, gemini._web.url("/token")):
        model = gemini.model(api_key=None, project="p", location="l")
        assert await model.reply(HELLO) == ChatReply("hi")
        assert gemini.headers[-1]["authorization"] == "Bearer ya29"
        gemini.answers = [make_error(403, make_error_body(403, "PERMISSION_DENIED", "No"))]
        with pytest.raises(ModelError, match="No; it refused the credentials of Google Cloud"):
            await model.reply(HELLO)


async def test_rejected_credentials_error_names_next_step(gemini, tmp_path, monkeypatch):
    gemini._web.answers["/token"] = (400, {"Content-Type": "application/json"}, '{"error": "invalid_grant"}')
    with service_account(tmp_path, monkeypatch, gemini._web.url("/token")):
        model = gemini.model(api_key=None, project="p", location="l")
        with pytest.raises(ModelError, match=r"refused the credentials: .*invalid_grant.*gcloud auth") as caught:
            await model.reply(HELLO)
    assert not caught.value.retryable
