import asyncio
import functools
import json
import ssl
import subprocess
import sys
import threading
from urllib.parse import quote

import boto3
import pytest
from botocore.loaders import JSONFileLoader

from helpers.agent_scripts import add
from helpers.bedrock_wire import frame
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
    BedrockModel,
    CallDelta,
    ChatReply,
    ChatRequest,
    StreamEnd,
    SystemMessage,
    TextDelta,
    TokenUsage,
    ToolMessage,
    UserMessage,
    message_from_json,
    message_to_json,
    model_of,
)
from toolsemble.models.bedrock._http import track_connections

pytestmark = pytest.mark.slow

NAME = "anthropic.claude-sonnet-4-5-v1:0"
OWNER = f"bedrock:{NAME}"
IMAGE_BLOCK = {"image": {"format": "png", "source": {"bytes": "AP8="}}}
ADD = ToolSpecification("add", "Adds", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
ADD_TOOL = {
    "toolSpec": {
        "name": "add",
        "description": "Adds",
        "inputSchema": {"json": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}},
    }
}
CALL = ToolCall("add", {"a": 1}, id="t1")
SECRETS = ("AKIAEXAMPLEKEY", "wJalrEXAMPLEsecret", "FwoGZXEXAMPLEtoken")


# --- a server that speaks Bedrock's wire formats


def start_call(index, name, id, **more):
    return frame(
        "contentBlockStart", {"start": {"toolUse": {"toolUseId": id, "name": name, **more}}, "contentBlockIndex": index}
    )


def delta(index, **piece):
    return frame("contentBlockDelta", {"delta": piece, "contentBlockIndex": index})


def stop_block(index):
    return frame("contentBlockStop", {"contentBlockIndex": index})


def stop(reason="end_turn"):
    return frame("messageStop", {"stopReason": reason})


def metadata(**usage):
    return frame("metadata", {"usage": usage, "metrics": {"latencyMs": 7}})


def streamed_blocks(response):
    """Return a whole response as the frames of a stream that says the same."""
    frames = [frame("messageStart", {"role": "assistant"})]
    for index, block in enumerate(response["output"]["message"]["content"]):
        frames += _block_frames(index, block)
    return [*frames, stop(response["stopReason"]), metadata(**response.get("usage", {}))]


def _block_frames(index, block):
    if "toolUse" in block:
        use = dict(block["toolUse"])
        written = json.dumps(use.pop("input"), separators=(",", ":"))
        begun = frame("contentBlockStart", {"start": {"toolUse": use}, "contentBlockIndex": index})
        pieces = [delta(index, toolUse={"input": piece}) for piece in (written[:3], written[3:])]
        return [begun, *pieces, stop_block(index)]
    if "reasoningContent" in block:
        thought = block["reasoningContent"]
        parts = thought.get("reasoningText", thought)
        return [*(delta(index, reasoningContent={name: value}) for name, value in parts.items()), stop_block(index)]
    if "citationsContent" in block:
        pieces = [delta(index, text=each["text"]) for each in block["citationsContent"]["content"]]
        return [*pieces, delta(index, citation={"title": "A page"}), stop_block(index)]
    return [delta(index, **block), stop_block(index)]


def message(*content, reason="end_turn", usage=None):
    """Return a response of Converse."""
    counted = {"usage": usage} if usage else {}
    return {"output": {"message": {"role": "assistant", "content": list(content)}}, "stopReason": reason, **counted}


def text(words):
    return {"text": words}


def use(name="add", input=None, id="t1", **more):
    return {"toolUse": {"toolUseId": id, "name": name, "input": input or {}, **more}}


def send_headers(handler, **headers):
    handler.send_response(200)
    handler.send_header("Content-Type", "application/vnd.amazon.eventstream")
    for name, value in {"Transfer-Encoding": "chunked", **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()


def write(handler, *frames):
    for each in frames:
        handler.wfile.write(f"{len(each):x}\r\n".encode() + each + b"\r\n")
        handler.wfile.flush()


def make_stream(*frames, ending=b"0\r\n\r\n"):
    def answer(handler):
        send_headers(handler)
        write(handler, *frames)
        handler.wfile.write(ending)

    return answer


def make_error(status, code, problem, **headers):
    sent = {"x-amzn-ErrorType": code, "Content-Type": "application/json", **headers}
    body = {"message": problem} if isinstance(problem, str) else problem
    return lambda handler: handler.send(status, sent, json.dumps(body))


class Bedrock:
    """Answers as Bedrock does: the next of its answers to each request."""

    def __init__(self, web):
        self.web = web
        self.answers = []
        for operation in ("converse", "converse-stream"):
            web.answers[f"/model/{quote(NAME, safe='')}/{operation}"] = self._next

    def _next(self, handler):
        answer = self.answers.pop(0)
        answer(handler) if callable(answer) else handler.send(
            200, {"Content-Type": "application/json"}, json.dumps(answer)
        )

    @property
    def bodies(self):
        return [json.loads(body) for _, _, _, body in self.web.requests]

    def model(self, **settings):
        return BedrockModel(NAME, **{"base_url": self.web.url(), **settings})


@pytest.fixture(scope="module", autouse=True)
def _cache_botocore_files():
    """Keep what botocore reads of its own for each client, which takes longer than all the rest of a test."""
    read = functools.cache(JSONFileLoader().load_file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", lambda _, path: read(path))
        yield


@pytest.fixture
def aws(monkeypatch, tmp_path):
    """Leave nothing of this machine's own settings, and put credentials that are made up in their place."""
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    for name, value in zip(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"), SECRETS, strict=True):
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.fixture
def bedrock(aws):
    with serving() as web:
        yield Bedrock(web)


@pytest.fixture
def encrypted(aws, monkeypatch):
    """A server with a certificate that is trusted here."""
    key, certificate = aws / "key.pem", aws / "certificate.pem"
    kind = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1"]
    made = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", *kind, *made], check=True, capture_output=True, timeout=60)  # noqa: S607 - as installed
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serving(context) as web:
        yield Bedrock(web)


def make_answer(response, streamed):
    return make_stream(*streamed_blocks(response)) if streamed else response


# --- what is sent


USER = {"role": "user", "content": [{"text": "hello"}]}
CHAT = {"messages": [USER]}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
REQUESTS = {
    "text": (HELLO, CHAT),
    "system": (
        ChatRequest([SystemMessage("Be brief."), SystemMessage(" "), UserMessage("hello"), SystemMessage("Be kind.")]),
        {**CHAT, "system": [{"text": "Be brief."}, {"text": "Be kind."}]},
    ),
    "images": (
        ChatRequest(
            [
                UserMessage("what?", (IMAGE,)),
                UserMessage(" "),
                UserMessage("", (IMAGE,)),
            ]
        ),
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"text": "what?"},
                        IMAGE_BLOCK,
                        IMAGE_BLOCK,
                    ],
                }
            ]
        },
    ),
    "tools": (ChatRequest([UserMessage("hello")], [ADD]), {**CHAT, "toolConfig": {"tools": [ADD_TOOL]}}),
    "tools that must be used": (
        ChatRequest([UserMessage("hello")], [ADD], "required"),
        {**CHAT, "toolConfig": {"tools": [ADD_TOOL], "toolChoice": {"any": {}}}},
    ),
    "tools that must not be used": (ChatRequest([UserMessage("hello")], [ADD], "none"), CHAT),
    "tools that must no longer be used": (
        ChatRequest([UserMessage("hello"), AssistantMessage("", (CALL,)), replied(CALL, "done")], [ADD], "none"),
        {
            "messages": [
                USER,
                {"role": "assistant", "content": [use(input={"a": 1})]},
                {
                    "role": "user",
                    "content": [
                        {"toolResult": {"toolUseId": "t1", "status": "success", "content": [{"text": "done"}]}}
                    ],
                },
            ],
            "toolConfig": {"tools": [ADD_TOOL]},
        },
    ),
    "a schema": (
        ChatRequest([UserMessage("hello")], output_schema=SCHEMA),
        {
            **CHAT,
            "outputConfig": {
                "textFormat": {
                    "type": "json_schema",
                    "structure": {
                        "jsonSchema": {
                            "name": "answer",
                            "schema": json.dumps({**SCHEMA, "additionalProperties": False}),
                        }
                    },
                }
            },
        },
    ),
    "settings": (
        ChatRequest(
            [UserMessage("hello")],
            [ADD],
            settings={
                "inferenceConfig": {"temperature": 0, "maxTokens": 9},
                "additionalModelRequestFields": {"thinking": {"type": "enabled"}},
                "toolConfig": {"toolChoice": {"auto": {}}},
            },
        ),
        {
            **CHAT,
            "toolConfig": {"tools": [ADD_TOOL], "toolChoice": {"auto": {}}},
            "inferenceConfig": {"temperature": 0, "maxTokens": 9},
            "additionalModelRequestFields": {"thinking": {"type": "enabled"}},
        },
    ),
    "foreign calls": (
        ChatRequest(
            [
                AssistantMessage("How can I help?"),
                UserMessage("hello"),
                AssistantMessage(
                    "Let me see.",
                    (CALL, ToolCall("now"), ToolCall("now"), ToolCall("rm -rf /", "not JSON", "a b")),
                    {"bedrock:another": [{"type": "reasoning", "redactedContent": "AP8="}]},
                ),
                replied(CALL, "1", contents=[IMAGE, FileContent(b"a", "application/zip", "a.zip")]),
                replied(ToolCall("now"), "noon"),
                ToolMessage(ToolReply(ToolCall("now"), ToolResult.failure("no clock"))),
                replied(ToolCall("rm -rf /", "not JSON", "a b"), ""),
                UserMessage("go on"),
                AssistantMessage("", (CALL,)),
                replied(CALL, "done"),
            ]
        ),
        {
            "messages": [
                {"role": "user", "content": [{"text": "(The conversation goes on.)"}]},
                {"role": "assistant", "content": [{"text": "How can I help?"}]},
                USER,
                {
                    "role": "assistant",
                    "content": [
                        {"text": "Let me see."},
                        use(input={"a": 1}),
                        use("now", id="call_0"),
                        use("now", id="call_1"),
                        use("rm_-rf__", {"unreadable_arguments": "not JSON"}, "call_2"),
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "toolResult": {
                                "toolUseId": "t1",
                                "status": "success",
                                "content": [
                                    {"text": "1"},
                                    IMAGE_BLOCK,
                                    {"text": "[a.zip, application/zip, 1 bytes, not shown]"},
                                ],
                            }
                        },
                        {"toolResult": {"toolUseId": "call_0", "status": "success", "content": [{"text": "noon"}]}},
                        {
                            "toolResult": {
                                "toolUseId": "call_1",
                                "status": "error",
                                "content": [{"text": "Error: no clock"}],
                            }
                        },
                        {
                            "toolResult": {
                                "toolUseId": "call_2",
                                "status": "success",
                                "content": [{"text": "(no output)"}],
                            }
                        },
                        {"text": "go on"},
                    ],
                },
                {"role": "assistant", "content": [use(input={"a": 1}, id="call_3")]},
                {
                    "role": "user",
                    "content": [
                        {"toolResult": {"toolUseId": "call_3", "status": "success", "content": [{"text": "done"}]}}
                    ],
                },
            ],
            "toolConfig": {
                "tools": [
                    {
                        "toolSpec": {
                            "name": name,
                            "description": "Not available any more",
                            "inputSchema": {"json": {"type": "object", "properties": {}}},
                        }
                    }
                    for name in ("add", "now", "rm_-rf__")
                ]
            },
        },
    ),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("request_", "body"), REQUESTS.values(), ids=REQUESTS.keys())
async def test_request_is_sent_in_bedrock_format(bedrock, request_, body, streamed):
    bedrock.answers = [make_answer(message(text("hi")), streamed)]
    assert (await asked(bedrock.model(), streaming=streamed, request=request_)).text == "hi"
    assert bedrock.bodies == [body]


@pytest.mark.parametrize("streamed", [False, True])
async def test_request_is_signed_for_its_region(bedrock, streamed):
    bedrock.answers = [make_answer(message(text("hi")), streamed)] * 2
    for model in (bedrock.model(), bedrock.model(region="us-west-2")):
        await asked(model, streaming=streamed)
    scopes = [headers["Authorization"].split("/")[2:4] for _, _, headers, _ in bedrock.web.requests]
    assert scopes == [["eu-central-1", "bedrock"], ["us-west-2", "bedrock"]]


@pytest.mark.parametrize("streamed", [False, True])
async def test_api_key_replaces_signature(encrypted, streamed, monkeypatch):
    encrypted.answers = [make_answer(message(text("hi")), streamed)] * 2
    await asked(encrypted.model(api_key="own-key"), streaming=streamed)
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "key-of-the-environment")
    await asked(encrypted.model(), streaming=streamed)
    sent = [headers["Authorization"] for _, _, headers, _ in encrypted.web.requests]
    assert sent == ["Bearer own-key", "Bearer key-of-the-environment"]


# --- responses


SIGNED = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}}
HIDDEN = {"reasoningContent": {"redactedContent": "AP8="}}
REPLIES = {
    "text": (
        message(text("Rome"), usage={"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}),
        ChatReply("Rome", usage=TokenUsage(10, 5)),
    ),
    "cached": (
        message(
            text("Rome"),
            usage={
                "inputTokens": 10,
                "outputTokens": 5,
                "totalTokens": 22,
                "cacheReadInputTokens": 4,
                "cacheWriteInputTokens": 3,
            },
        ),
        ChatReply("Rome", usage=TokenUsage(17, 5, 4, cache_write=3)),
    ),
    "texts": (message(text("All "), text("roads")), ChatReply("All roads")),
    "quotations": (
        message({"citationsContent": {"content": [text("All "), text("roads")], "citations": []}}),
        ChatReply("All roads"),
    ),
    "a call": (
        message(text("Let me"), use(input={"a": 1}), reason="tool_use"),
        ChatReply("Let me", (ToolCall("add", '{"a":1}', "t1"),), stop_reason="calls"),
    ),
    "several calls": (
        message(use(input={"a": 1}), use("now", id="t2"), reason="tool_use"),
        ChatReply("", (ToolCall("add", '{"a":1}', "t1"), ToolCall("now", "{}", "t2")), stop_reason="calls"),
    ),
    "a tool of Bedrock's own": (
        message(use("nova_grounding", type="server_tool_use"), text("Rome")),
        ChatReply("Rome"),
    ),
    "signed thoughts": (
        message(SIGNED, HIDDEN, text("Let me"), use(input={"a": 1}), reason="tool_use"),
        ChatReply(
            "Let me",
            (ToolCall("add", '{"a":1}', "t1"),),
            stop_reason="calls",
            details={
                OWNER: [
                    {"type": "reasoning", "reasoningText": {"text": "Hm.", "signature": "c2ln"}},
                    {"type": "reasoning", "redactedContent": "AP8="},
                    {"type": "text", "length": 6},
                    {"type": "tool_use"},
                ]
            },
        ),
    ),
    "unsigned thoughts": (
        message({"reasoningContent": {"reasoningText": {"text": "Hm."}}}, text("Rome")),
        ChatReply("Rome"),
    ),
    "nothing to add": (message(), ChatReply()),
    "no more room": (message(text("All ro"), reason="max_tokens"), ChatReply("All ro", stop_reason="length")),
    "no more room for a call": (
        message(use(input={"a": 1}), reason="max_tokens"),
        ChatReply("", (ToolCall("add", '{"a":1}', "t1"),), stop_reason="length"),
    ),
    "a guardrail": (message(text("Sorry."), reason="guardrail_intervened"), ChatReply("Sorry.", stop_reason="refusal")),
    "another reason": (message(text("Rome"), reason="tired"), ChatReply("Rome", stop_reason="other")),
    "a call beside one that was lost": (
        message(use(input={"a": 1}), reason="malformed_tool_use"),
        ChatReply("", (ToolCall("add", '{"a":1}', "t1"),), stop_reason="calls"),
    ),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("response", "reply"), REPLIES.values(), ids=REPLIES.keys())
async def test_reply_and_stream_agree(bedrock, response, reply, streamed):
    bedrock.answers = [make_answer(response, streamed)]
    assert await asked(bedrock.model(), streaming=streamed) == reply


async def test_stream_yields_chunks_as_received(bedrock):
    bedrock.answers = [
        make_stream(
            frame("messageStart", {"role": "assistant"}),
            delta(0, text="All "),
            delta(0, text="roads"),
            stop_block(0),
            start_call(1, "add", "t1"),
            start_call(3, "now", "t2"),
            delta(1, toolUse={"input": '{"a": '}),
            delta(3, toolUse={"input": ""}),
            delta(1, toolUse={"input": "not JSON"}),
            delta(7, toolUse={"input": "of no call"}),
            stop_block(1),
            stop_block(3),
            stop("tool_use"),
            metadata(inputTokens=3, outputTokens=9, totalTokens=12),
        )
    ]
    assert [chunk async for chunk in bedrock.model().stream(HELLO)] == [
        TextDelta("All "),
        TextDelta("roads"),
        CallDelta(1, "add", "t1"),
        CallDelta(3, "now", "t2"),
        ArgumentsDelta(1, '{"a": '),
        ArgumentsDelta(3, ""),
        ArgumentsDelta(1, "not JSON"),
        StreamEnd(TokenUsage(3, 9), "calls"),
    ]


async def test_streamed_reasoning_is_assembled(bedrock):
    frames = [delta(0, reasoningContent={"text": piece}) for piece in ("H", "m.")]
    signed = [delta(0, reasoningContent={"signature": "c2ln"}), stop_block(0)]
    bedrock.answers = [make_stream(*frames, *signed, delta(1, text="Rome"), stop())]
    assert (await asked(bedrock.model(), streaming=True)).details == {
        OWNER: [
            {"type": "reasoning", "reasoningText": {"text": "Hm.", "signature": "c2ln"}},
            {"type": "text", "length": 4},
        ]
    }


@pytest.mark.parametrize("streamed", [False, True])
async def test_signed_content_is_sent_back_unchanged(bedrock, streamed):
    content = [SIGNED, text("Let me"), use(input={"a": 1}), HIDDEN, text("and"), use(input={"a": 2}, id="t2")]
    bedrock.answers = [make_answer(message(*content, reason="tool_use"), streamed), message(text("done"))]
    model = bedrock.model()
    reply = await asked(model, streaming=streamed)
    answer = message_from_json(message_to_json(AssistantMessage(reply.text, reply.calls, reply.details)))
    await model.reply(ChatRequest([UserMessage("hello"), answer, *map(replied, answer.calls)]))
    assert bedrock.bodies[1]["messages"][1] == {"role": "assistant", "content": content}


ERRORS = {
    "no end": (
        {"output": {"message": {"role": "assistant", "content": [text("Ro")]}}},
        "Bedrock's answer was cut off before its end",
        True,
    ),
    "filtered": (message(reason="content_filtered"), "Bedrock refused to answer (content_filtered)", False),
    "only thoughts": (
        message(SIGNED, reason="max_tokens"),
        "Bedrock reached the token limit before it answered (max_tokens); raise the limit, or send less",
        False,
    ),
    "a call that was lost": (
        message(text("Let me"), reason="malformed_tool_use"),
        "Bedrock wrote a call that cannot be read (malformed_tool_use)",
        True,
    ),
}


@pytest.mark.parametrize(("response", "problem", "retryable"), ERRORS.values(), ids=ERRORS.keys())
async def test_unusable_reply_is_an_error(bedrock, response, problem, retryable):
    bedrock.answers = [response]
    with pytest.raises(ModelError) as caught:
        await bedrock.model().reply(HELLO)
    assert (str(caught.value), caught.value.retryable) == (problem, retryable)


# --- what goes wrong


HINT = (
    "; set AWS_PROFILE, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_BEARER_TOKEN_BEDROCK, "
    "or pass profile= or api_key="
)
REFUSED = "; it refused the AWS credentials of this program"
SIGNATURE = f"The signature does not match.\n\nThe Canonical String should have been\nx-amz-security-token:{SECRETS[2]}"
REFUSALS = {
    "400": (
        make_error(400, "ValidationException", "No such field"),
        "Bedrock refused the request (ValidationException): No such field",
        False,
        None,
    ),
    "403": (
        make_error(403, "AccessDeniedException", "No"),
        f"Bedrock refused the request (AccessDeniedException): No{REFUSED}",
        False,
        None,
    ),
    "a signature": (
        make_error(403, "InvalidSignatureException", SIGNATURE),
        f"Bedrock refused the request (InvalidSignatureException): The signature does not match.{REFUSED}",
        False,
        None,
    ),
    "credentials": (
        make_error(400, "IncompleteSignature", " ".join(SECRETS)),
        "Bedrock refused the request (IncompleteSignature): *** *** ***",
        False,
        None,
    ),
    "404": (
        make_error(404, "ResourceNotFoundException", "No model"),
        "Bedrock refused the request (ResourceNotFoundException): No model",
        False,
        None,
    ),
    "throttled": (
        make_error(429, "ThrottlingException", "Slow"),
        "Bedrock refused the request (ThrottlingException): Slow",
        True,
        None,
    ),
    "throttled for a while": (
        make_error(429, "ThrottlingException", "Slow", **{"Retry-After": "7"}),
        "Bedrock refused the request (ThrottlingException): Slow",
        True,
        7.0,
    ),
    "throttled for a short while": (
        make_error(429, "ThrottlingException", "Slow", **{"x-amz-retry-after": "1500"}),
        "Bedrock refused the request (ThrottlingException): Slow",
        True,
        1.5,
    ),
    "throttled as older services do": (
        make_error(400, "ThrottlingException", "Slow"),
        "Bedrock refused the request (ThrottlingException): Slow",
        True,
        None,
    ),
    "timed out": (
        make_error(408, "ModelTimeoutException", "Late"),
        "Bedrock refused the request (ModelTimeoutException): Late",
        True,
        None,
    ),
    "not ready": (
        make_error(429, "ModelNotReadyException", "Wait"),
        "Bedrock refused the request (ModelNotReadyException): Wait",
        True,
        None,
    ),
    "a model's error": (
        make_error(424, "ModelErrorException", "Oops"),
        "Bedrock refused the request (ModelErrorException): Oops",
        True,
        None,
    ),
    "a model's refusal": (
        make_error(424, "ModelErrorException", {"message": "Oops", "originalStatusCode": 400}),
        "Bedrock refused the request (ModelErrorException): Oops",
        False,
        None,
    ),
    "500": (
        make_error(500, "InternalServerException", "Oops"),
        "Bedrock refused the request (InternalServerException): Oops",
        True,
        None,
    ),
    "503": (
        make_error(503, "ServiceUnavailableException", "Down"),
        "Bedrock refused the request (ServiceUnavailableException): Down",
        True,
        None,
    ),
    "a page": (
        lambda handler: handler.send(502, {"Content-Type": "text/html"}, "<html>Bad Gateway</html>"),
        "Bedrock failed to answer (502): Bad Gateway",
        True,
        None,
    ),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("answer", "problem", "retryable", "wait"), REFUSALS.values(), ids=REFUSALS.keys())
async def test_error_has_service_message(bedrock, answer, problem, retryable, wait, streamed):
    bedrock.answers = [answer]
    with pytest.raises(ModelError) as caught:
        await asked(bedrock.model(), streaming=streamed)
    error = caught.value
    assert (str(error), error.retryable, error.retry_after) == (problem, retryable, wait)
    assert error.__cause__ is None


async def test_errors_do_not_contain_key(bedrock):
    bedrock.answers = [make_error(403, "UnrecognizedClientException", "The key own-key is wrong")]
    with pytest.raises(ModelError, match=r"The key \*\*\* is wrong"):
        await bedrock.model(api_key="own-key").reply(HELLO)


async def test_refused_key_error_names_where_the_key_comes_from(encrypted, monkeypatch):
    async def fail(model):
        encrypted.answers = [make_error(403, "UnrecognizedClientException", "No")]
        with pytest.raises(ModelError) as caught:
            await model.reply(HELLO)
        return str(caught.value)

    assert (await fail(encrypted.model(api_key="own-key"))).endswith("No; it refused the key passed as api_key=")
    client = boto3.client("bedrock-runtime", region_name="us-east-1", endpoint_url=encrypted.web.url())
    assert (await fail(BedrockModel(NAME, client=client))).endswith("No; it refused the credentials of the client")
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "own-key")
    assert (await fail(encrypted.model())).endswith("No; it refused the key from AWS_BEARER_TOKEN_BEDROCK")


@pytest.mark.parametrize(
    ("kind", "retryable"),
    [
        ("throttlingException", True),
        ("modelStreamErrorException", True),
        ("internalServerException", True),
        ("serviceUnavailableException", True),
        ("validationException", False),
    ],
)
async def test_error_event_in_stream_is_raised(bedrock, kind, retryable):
    bedrock.answers = [make_stream(delta(0, text="Ro"), frame(kind, {"message": "Oops"}, "exception"))]
    stream = bedrock.model().stream(HELLO)
    assert await anext(stream) == TextDelta("Ro")
    with pytest.raises(ModelError) as caught:
        await anext(stream)
    assert (str(caught.value), caught.value.retryable) == (f"Bedrock refused the request ({kind}): Oops", retryable)


def hang_up(handler):
    handler.connection.close()


def send_half(handler):
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"output": {')


BROKEN = {
    "hung up": (hang_up, "The connection to Bedrock failed"),
    "half an answer": (send_half, "Bedrock"),
    "an empty answer": (lambda handler: handler.send(200, {}, b'{"output": {}}'), "Bedrock"),
    "no JSON": (lambda handler: handler.send(200, {}, b"not JSON"), "Bedrock"),
    "no response": (lambda handler: handler.send(200, {}, b'{"output": 7, "stopReason": "end_turn"}'), "Bedrock"),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("answer", "problem"), BROKEN.values(), ids=BROKEN.keys())
async def test_broken_answer_is_retryable(bedrock, answer, problem, streamed):
    bedrock.answers = [answer]
    with pytest.raises(ModelError, match=problem) as caught:
        await asked(bedrock.model(), streaming=streamed)
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("ending", "problem"),
    [
        (b"", "connection to Bedrock failed"),
        (b"20\r\nabc", "connection to Bedrock failed"),
        (b"0\r\n\r\n", "was cut off before its end"),
        (b"4\r\n\x00\x00\x00\x99\r\n0\r\n\r\n", "was cut off before its end"),
    ],
)
async def test_truncated_stream_is_retryable(bedrock, ending, problem):
    bedrock.answers = [make_stream(delta(0, text="Ro"), ending=ending)]
    with pytest.raises(ModelError, match=problem) as caught:
        await asked(bedrock.model(), streaming=True)
    assert caught.value.retryable


@pytest.mark.parametrize("place", [8, -1])
async def test_frame_with_wrong_checksum_is_retryable(bedrock, place):
    wrong = bytearray(delta(0, text="Rome"))
    wrong[place] ^= 1
    bedrock.answers = [make_stream(bytes(wrong), stop())]
    with pytest.raises(ModelError, match="Bedrock's answer cannot be read: Checksum mismatch") as caught:
        await asked(bedrock.model(), streaming=True)
    assert caught.value.retryable


async def test_frames_received_byte_by_byte_are_assembled(bedrock):
    frames = b"".join([delta(0, text="Rome"), stop()])
    bedrock.answers = [make_stream(*(bytes([each]) for each in frames))]
    assert await asked(bedrock.model(), streaming=True) == ChatReply("Rome")


async def test_refused_connection_is_retryable(aws):
    with serving() as web:
        url = web.url()
    with pytest.raises(ModelError, match="The connection to Bedrock failed") as caught:
        await BedrockModel(NAME, base_url=url).reply(HELLO)
    assert caught.value.retryable


@pytest.mark.parametrize("streamed", [False, True])
async def test_timeout_is_retryable(bedrock, streamed):
    def silent(handler):
        if streamed:
            send_headers(handler)
            write(handler, delta(0, text="Ro"))
        handler.server.web.closing.wait(30)

    bedrock.answers = [silent]
    with pytest.raises(ModelError, match=r"The connection to Bedrock failed: .*[Tt]imed? ?out") as caught:
        await asked(bedrock.model(timeout=0.05), streaming=streamed)
    assert caught.value.retryable


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (ChatRequest([UserMessage("hi")], settings={"heat": 7}), "(?s)Invalid request for Bedrock: .*heat"),
        (
            ChatRequest([UserMessage("hi")], output_schema={}),
            "Bedrock cannot enforce this schema: .*native_output=False",
        ),
    ],
)
async def test_invalid_request_is_a_configuration_error(bedrock, request_, problem, streamed):
    with pytest.raises(ToolConfigurationError, match=problem):
        await asked(bedrock.model(), streaming=streamed, request=request_)
    assert bedrock.bodies == []


async def test_invalid_base_url_is_rejected(aws):
    with pytest.raises(ToolConfigurationError, match="Invalid request for Bedrock: Invalid endpoint"):
        await BedrockModel(NAME, base_url="nowhere").reply(HELLO)


async def test_missing_credentials_error_names_variables(bedrock, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    with pytest.raises(
        ModelError, match="Amazon's package says: Unable to locate credentials; set AWS_PROFILE"
    ) as caught:
        await bedrock.model().reply(HELLO)
    assert not caught.value.retryable


# --- threads and connections


def make_stalled_stream(*frames, **headers):
    """Return an answer that comes to a stop after these frames; after none, it never begins."""

    def start(handler):
        send_headers(handler, **headers)
        write(handler, *frames)

    return Waiting(start if frames else None)


@pytest.mark.parametrize("streamed", [False, True])
async def test_cancelling_closes_the_connection(bedrock, streamed):
    waiting = make_stalled_stream(*([delta(0, text="Ro")] if streamed else []))
    bedrock.answers = [waiting]
    await assert_hangs_up_when_cancelled(bedrock.model(), waiting, streaming=streamed)


@pytest.mark.parametrize("headers", [{}, {"Connection": "close"}])
async def test_closing_stream_closes_connection(bedrock, headers):
    waiting = make_stalled_stream(delta(0, text="Ro"), delta(0, text="me"), **headers)
    bedrock.answers = [waiting]
    await assert_hangs_up_when_closed(bedrock.model(), waiting, "Ro")


def test_abandoned_stream_is_closed_with_loop(bedrock):
    waiting = make_stalled_stream(delta(0, text="Ro"))
    bedrock.answers = [waiting]
    assert_hangs_up_with_its_loop(bedrock.model(), waiting, "Ro")


async def test_given_client_is_used_unchanged(bedrock):
    client = boto3.client("bedrock-runtime", region_name="us-east-1", endpoint_url=bedrock.web.url())
    model = BedrockModel(NAME, client=client)
    bedrock.answers = [message(text("hi")), make_stream(delta(0, text="hi"), stop()), make_error(400, "X", SECRETS[0])]
    assert [await asked(model, streaming=False), await asked(model, streaming=True)] == [ChatReply("hi")] * 2
    with pytest.raises(ModelError, match=r"Bedrock refused the request \(X\): "):
        await model.reply(HELLO)
    client.close()


def test_tracked_connections_work_without_exchange(bedrock):
    client = boto3.client("bedrock-runtime", region_name="us-east-1", endpoint_url=bedrock.web.url())
    track_connections(client)
    track_connections(object())  # a client that is made in another way is left as it is
    bedrock.answers = [message(text("hi"))]
    response = client.converse(modelId=NAME, messages=[USER])
    assert response["output"]["message"]["content"] == [text("hi")]
    client.close()


async def test_cancelling_does_not_wait_for_a_given_client(bedrock):
    client = boto3.client("bedrock-runtime", region_name="us-east-1", endpoint_url=bedrock.web.url())
    go_on, gone = threading.Event(), threading.Event()

    def answer(handler):
        send_headers(handler)
        write(handler, delta(0, text="Ro"))
        go_on.wait(30)
        write(handler, delta(0, text="me"))
        handler.connection.settimeout(30)
        if handler.connection.recv(1) == b"":
            gone.set()

    bedrock.answers = [answer]
    stream = BedrockModel(NAME, client=client).stream(HELLO)
    assert await anext(stream) == TextDelta("Ro")
    await asyncio.wait_for(stream.aclose(), 30)
    go_on.set()
    assert await asyncio.to_thread(gone.wait, 30)  # at the next thing that it would have read
    client.close()


def test_model_keeps_connection_across_loops(bedrock):
    ports = set()

    def keep(handler):
        handler.close_connection = False
        ports.add(handler.client_address[1])
        handler.send(200, {"Content-Type": "application/json"}, json.dumps(message(text("hi"))))

    bedrock.answers = [keep] * 6
    model = bedrock.model()

    async def thrice():
        return [(await model.reply(HELLO)).text for _ in range(3)]

    assert [asyncio.run(thrice()), asyncio.run(thrice())] == [["hi"] * 3] * 2
    assert len(ports) == 1


@pytest.mark.parametrize("streamed", [False, True])
async def test_requests_run_concurrently(bedrock, streamed):
    meeting = threading.Barrier(20)
    last = make_answer(message(text("hi")), streamed)

    def together(handler):
        meeting.wait(30)
        last(handler) if callable(last) else handler.send(200, {}, json.dumps(last))

    bedrock.answers = [together] * 20
    model = bedrock.model()
    replies = await asyncio.wait_for(asyncio.gather(*(asked(model, streaming=streamed) for _ in range(20))), 60)
    assert replies == [ChatReply("hi")] * 20


def test_program_exit_does_not_wait_for_answer(bedrock):
    waiting = Waiting()
    bedrock.answers = [waiting]
    program = f"""
import asyncio
from toolsemble.models import BedrockModel, ChatRequest, UserMessage

model = BedrockModel({NAME!r}, base_url={bedrock.web.url()!r})

async def main():
    asyncio.get_running_loop().create_task(model.reply(ChatRequest([UserMessage("hello")])))
    await asyncio.get_running_loop().run_in_executor(None, input)

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        assert waiting.began.wait(60)
        process.communicate(b"\n", timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize("streamed", [False, True])
async def test_cancelling_closes_tls_connection(encrypted, streamed):
    waiting = make_stalled_stream(*([delta(0, text="Ro")] if streamed else []))
    encrypted.answers = [waiting]
    await assert_hangs_up_when_cancelled(encrypted.model(), waiting, streaming=streamed)


# --- agents


def make_two_turns(streamed):
    turns = [
        message(
            SIGNED,
            use(input={"a": 1, "b": 2}),
            reason="tool_use",
            usage={"inputTokens": 5, "outputTokens": 1, "totalTokens": 6},
        ),
        message(text("It is 3."), usage={"inputTokens": 9, "outputTokens": 3, "totalTokens": 12}),
    ]
    return [make_answer(turn, streamed) for turn in turns]


@pytest.mark.parametrize("way", ["run", "run_sync", "stream"])
def test_agent_runs_with_this_model(bedrock, way):
    bedrock.answers = make_two_turns(way == "stream")
    agent = Agent(bedrock.model(), [add], goal="Add.")
    result = result_of(agent, "1 + 2?", way)
    assert (result.text, result.usage.input_tokens, result.usage.output_tokens) == ("It is 3.", 14, 4)
    assert bedrock.bodies[1]["messages"] == [
        {"role": "user", "content": [{"text": "1 + 2?"}]},
        {"role": "assistant", "content": [SIGNED, use(input={"a": 1, "b": 2})]},
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "t1", "status": "success", "content": [{"text": "3"}]}}],
        },
    ]


@pytest.mark.parametrize("streamed", [False, True])
async def test_agent_retries_after_rate_limit_and_truncated_stream(bedrock, streamed):
    cut = make_stream(delta(0, text="Ro"), ending=b"") if streamed else send_half
    bedrock.answers = [make_error(429, "ThrottlingException", "Slow"), cut, *make_two_turns(streamed)]
    agent = Agent(bedrock.model(), [add], retry=Retry(wait=0))
    if streamed:
        result = [event async for event in agent.stream("1 + 2?")][-1].result
    else:
        result = await agent.run("1 + 2?")
    assert result.text == "It is 3."


@pytest.mark.parametrize(
    ("native", "content"), [(True, text('{"answer": 3}')), (False, use("final_answer", {"answer": 3}))]
)
async def test_typed_answer_by_schema_or_tool(bedrock, native, content):
    bedrock.answers = [message(content)]
    result = await Agent(bedrock.model(native_output=native), [add], output_type=int).run("1 + 2?")
    assert (result.output, "outputConfig" in bedrock.bodies[0]) == (3, native)


# --- how it is made


def test_model_has_name_and_repr(aws):
    model = model_of(f"bedrock:{NAME}")
    assert (isinstance(model, ChatModel), repr(model)) == (True, f"BedrockModel({NAME!r})")


def test_profile_sets_region(aws, monkeypatch):
    monkeypatch.delenv("AWS_REGION")
    (aws / "config").write_text("[profile lab]\nregion = ap-south-1\n")
    assert repr(BedrockModel(NAME, profile="lab")) == f"BedrockModel({NAME!r})"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"name": NAME}, "Bedrock needs a region: set AWS_REGION, or pass region="),
        ({"name": NAME, "profile": "lab"}, r"The config profile \(lab\) could not be found; see the files in ~/.aws"),
    ],
)
def test_missing_settings_are_reported_when_the_model_is_created(aws, monkeypatch, settings, problem):
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(ToolConfigurationError, match=problem):
        BedrockModel(**settings)


def test_provider_name_without_model_is_rejected():
    with pytest.raises(ToolConfigurationError, match="'bedrock' needs a model name"):
        model_of("bedrock:")


@pytest.mark.parametrize("name", ["api_key", "base_url", "region", "profile"])
def test_client_excludes_connection_settings(name):
    with pytest.raises(TypeError, match="takes a client, or api_key, base_url, region and profile, not both"):
        BedrockModel(NAME, client=object(), **{name: "x"})
