"""Misbehaving providers: endless replies, replies that are too long, repeated keys."""

import asyncio
import gzip
import json
import threading
import traceback
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from helpers.bedrock_wire import frame
from helpers.provider_checks import HELLO, asked, failed
from helpers.web_server import serving
from toolsemble import Agent, BudgetExceededError, ModelError, ToolDefinitionError
from toolsemble.agent import Retry
from toolsemble.models import (
    AnthropicModel,
    Assembly,
    BedrockModel,
    CallDelta,
    GoogleModel,
    MistralModel,
    OpenAIModel,
    StreamEnd,
    TextDelta,
)

pytestmark = pytest.mark.slow

WAIT = 60
KEY = "sk-a-very-secret-key-1234567890"
MOST = 1_000_000
TOO_LONG = "The reply is longer than 1,000,000 bytes; raise the model's max_reply if this is expected"


def event(data, kind=None):
    named = f"event: {kind}\n" if kind else ""
    return f"{named}data: {json.dumps(data)}\n\n".encode()


def make_typed_event(kind, **data):
    return event({"type": kind, **data}, kind)


@dataclass
class Provider:
    """How one provider is asked, and how it streams a text."""

    make: Any
    start: tuple[bytes, ...]
    piece: Any
    kind: str = "text/event-stream"

    def model(self, web, **settings):
        return self.make(web.url("").rstrip("/"), **{"api_key": KEY, **settings})


MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": [], "stop_reason": None,
           "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip
RESPONSE = {"id": "r", "object": "response", "created_at": 1, "model": "x", "status": "in_progress", "output": []}
ITEM = {"id": "m", "type": "message", "role": "assistant", "status": "in_progress", "content": []}


def choice(**fields):
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "model": "x",
        "created": 1,
        "choices": [{"index": 0, **fields}],
    }


PROVIDERS = {
    "openai chat": Provider(
        lambda url, **settings: OpenAIModel("x", api="chat", base_url=f"{url}/v1", **settings),
        (),
        lambda text: event(choice(delta={"content": text}, finish_reason=None)),
    ),
    "openai responses": Provider(
        lambda url, **settings: OpenAIModel("x", api="responses", base_url=f"{url}/v1", **settings),
        (
            make_typed_event("response.created", response=RESPONSE, sequence_number=0),
            make_typed_event("response.output_item.added", output_index=0, item=ITEM, sequence_number=1),
        ),
        lambda text: make_typed_event(
            "response.output_text.delta", delta=text, output_index=0, content_index=0, item_id="m", sequence_number=2,
            logprobs=[],
        ),
    ),
    "anthropic": Provider(
        lambda url, **settings: AnthropicModel("x", base_url=url, **settings),
        (
            make_typed_event("message_start", message=MESSAGE),
            make_typed_event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        ),
        lambda text: make_typed_event("content_block_delta", index=0, delta={"type": "text_delta", "text": text}),
    ),
    "google": Provider(
        lambda url, **settings: GoogleModel("gemini-3-flash", base_url=url, **settings),
        (),
        lambda text: event({"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}}]}),
    ),
    "mistral": Provider(
        lambda url, **settings: MistralModel("x", base_url=url, **settings),
        (),
        lambda text: event(choice(delta={"content": text}, finish_reason=None)),
    ),
    "bedrock": Provider(
        lambda url, **settings: BedrockModel("x", base_url=url, region="us-east-1", **settings),
        (frame("messageStart", {"role": "assistant"}),),
        lambda text: frame("contentBlockDelta", {"delta": {"text": text}, "contentBlockIndex": 0}),
        "application/vnd.amazon.eventstream",
    ),
}  # fmt: skip


class SameAnswer(dict):
    """The same answer at every path."""

    def __init__(self, answer):
        super().__init__()
        self._answer = answer

    def get(self, *_):
        return self._answer


class Endless:
    """An endless answer: it goes on until the client has disconnected."""

    def __init__(self, kind, start, piece, *, pause=0.0, status=200, headers=()):
        self._kind, self._start, self._piece = kind, start, piece
        self._pause, self._status, self._headers = pause, status, dict(headers)
        self._changed = threading.Condition()
        self.begun = self.gone = self.sent = 0

    def __call__(self, handler):
        with self._changed:
            self.begun += 1
        try:
            self._answer(handler)
        finally:
            with self._changed:
                self.gone += 1
                self._changed.notify_all()

    def _answer(self, handler):
        handler.send_response(self._status)
        fields = {"Content-Type": self._kind, "Transfer-Encoding": "chunked", **self._headers}
        for name, value in fields.items():
            handler.send_header(name, value)
        handler.end_headers()
        for data in self._start:
            self._write(handler, data)
        never = threading.Event()
        while True:
            self._write(handler, self._piece)
            if self._pause:
                never.wait(self._pause)

    def _write(self, handler, data):
        handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        handler.wfile.flush()
        self.sent += len(data)

    def wait_until_all_have_gone(self):
        with self._changed:
            return self._changed.wait_for(lambda: self.begun == self.gone, WAIT)


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch, tmp_path):
    for name in (
        "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE", "GOOGLE_API_KEY", "GEMINI_API_KEY",
        "GOOGLE_GENAI_USE_VERTEXAI", "MISTRAL_API_KEY", "MISTRAL_SA_TOKEN_PATH", "OPENAI_API_KEY", "AWS_PROFILE",
        "AWS_BEARER_TOKEN_BEDROCK",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def web():
    with serving() as made:
        yield made


@pytest.fixture(params=PROVIDERS.values(), ids=PROVIDERS)
def provider(request):
    return request.param


# --- for ever


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
async def test_max_seconds_ends_endless_answer(web, provider, streaming, monkeypatch):
    monkeypatch.setattr("toolsemble.agent._run.spending.LAST_ANSWER", 0.2)
    drip = Endless(provider.kind, provider.start, provider.piece("a"), pause=0.02)
    if not streaming:
        drip = Endless("application/json", (b'{"a": "',), b"a", pause=0.02)
    web.answers = SameAnswer(drip)
    agent = Agent(provider.model(web), max_seconds=0.4, retry=Retry(attempts=1))
    with pytest.raises(BudgetExceededError) as caught:
        await asyncio.wait_for(_last_event(agent) if streaming else agent.run("go"), WAIT)
    assert str(caught.value) == "Maximum time (0.4 s) reached, and the model returned no final answer"
    assert caught.value.partial.stop_reason == "max_seconds"
    assert [step.detail for step in caught.value.partial.trace if step.kind == "model"] == ["out of time"] * 2
    assert await asyncio.to_thread(drip.wait_until_all_have_gone)


async def _last_event(agent):
    return [event async for event in agent.stream("go")][-1]


# --- too much


def make_endless_answers(provider):
    """Return answers without an end, by the way in which they are asked for."""
    text = "a" * 10_000
    return {
        "a whole body": (False, Endless("application/json", (b'{"a": "',), text.encode())),
        "the body of an error": (False, Endless("application/json", (b'{"error": "',), text.encode(), status=500)),
        "a stream": (True, Endless(provider.kind, provider.start, provider.piece(text))),
        "one event of a stream": (True, Endless(provider.kind, (b"data: ",), text.encode())),
        "JSON in place of a stream": (True, Endless("application/json", (b'{"a": "',), text.encode())),
        "the error of a stream": (True, Endless("application/json", (b'{"a": "',), text.encode(), status=400)),
    }


@pytest.mark.parametrize("flood", make_endless_answers(PROVIDERS["google"]))
async def test_too_long_answer_is_aborted(web, provider, flood):
    if provider is PROVIDERS["bedrock"] and flood in {"one event of a stream", "JSON in place of a stream"}:
        pytest.skip("its events begin with their length and a checksum, and the package reads nothing else")
    streaming, endless = make_endless_answers(provider)[flood]
    web.answers = SameAnswer(endless)
    error = await asyncio.wait_for(failed(provider.model(web, max_reply=MOST), streaming=streaming), WAIT)
    assert (str(error), error.retryable) == (TOO_LONG, False)
    assert await asyncio.to_thread(endless.wait_until_all_have_gone)
    assert endless.begun == 1
    assert endless.sent < 100 * MOST  # what was under way when the connection ended


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
async def test_reply_limit_counts_decompressed_bytes(web, provider, streaming):
    if provider is PROVIDERS["bedrock"]:
        pytest.skip("its package decompresses nothing")
    body = gzip.compress(b'{"a": "' + b"a" * (20 * MOST))
    assert len(body) < MOST
    web.answers = SameAnswer((200, {"Content-Type": "application/json", "Content-Encoding": "gzip"}, body))
    error = await asyncio.wait_for(failed(provider.model(web, max_reply=MOST), streaming=streaming), WAIT)
    assert str(error) == TOO_LONG


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, None, "many"])
def test_max_reply_must_be_an_integer(web, provider, wrong):
    with pytest.raises(ToolDefinitionError, match=f"max_reply must be an int >= 1, not {wrong!r}"):
        provider.model(web, max_reply=wrong)


async def test_custom_model_stream_is_limited():
    class Flood:
        max_reply = MOST
        stopped = False

        async def reply(self, request):
            raise NotImplementedError

        async def stream(self, request):
            try:
                while True:
                    yield TextDelta("a" * 1000)
            finally:
                Flood.stopped = True

    with pytest.raises(Exception, match="longer than 1,000,000 bytes"):
        await _last_event(Agent(Flood()))
    assert Flood.stopped


def test_call_starts_count_toward_reply_length():
    assembly = Assembly(max_reply=1000)
    assembly.add(StreamEnd())
    for index in range(9):
        assembly.add(CallDelta(index, "now"))
    with pytest.raises(ModelError, match="longer than 1,000 bytes"):
        assembly.add(CallDelta(9, "now"))


# --- the key


SAID = f"Incorrect key: {KEY}"
BODIES = {
    "an error with words": {"error": {"message": SAID, "type": "invalid", "code": "invalid_api_key"}},
    "an error that is a text": {"error": SAID},
    "an error as Anthropic writes it": {"type": "error", "error": {"type": "authentication_error", "message": SAID}},
    "a message": {"message": SAID, "object": "error"},
    "a detail": {"detail": [{"msg": SAID, "input": KEY}]},
    "a failed response": {"id": "r", "object": "response", "status": "failed", "error": {"code": "x", "message": SAID},
                          "output": []},
    "a status of its own": {"id": "r", "object": "response", "status": KEY, "output": []},
    "a choice that is none": {"choices": [{"index": 0, "message": KEY, "finish_reason": KEY}], "usage": KEY},
    "a message that is none": {"type": "message", "content": [{"type": "text", "text": {"key": KEY}}],
                               "stop_reason": "refusal", "stop_details": {"explanation": KEY}, "usage": KEY},
    "a prompt that is blocked": {"promptFeedback": {"blockReason": "OTHER", "blockReasonMessage": SAID}},
    "a candidate that is none": {"candidates": [{"content": KEY, "finishReason": KEY, "finishMessage": SAID}]},
    "an output that is none": {"output": {"message": {"role": "assistant", "content": KEY}}, "stopReason": KEY},
    "a list": [SAID],
    "a text": SAID,
    "no JSON": f"<html>{SAID}</html>".encode(),
    "half a JSON": f'{{"error": "{SAID}'.encode(),
}  # fmt: skip


def chain(error):
    """Return an exception and everything that it was made of."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
async def test_errors_do_not_contain_key(web, provider, streaming):
    model, masked = provider.model(web), 0
    for status, (name, body) in product((200, 400, 401, 429, 500), BODIES.items()):
        web.answers = SameAnswer((status, {"Content-Type": "application/json"}, encode_body(body)))
        error = await _catch_model_error(model, streaming=streaming)
        assert KEY not in show(error), (status, name)
        masked += "***" in str(error)
    assert masked  # some of it is shown, without the key


async def test_stream_errors_do_not_contain_key(web, provider):
    model = provider.model(web)
    for name, body in BODIES.items():
        data = encode_body(body)
        events = [*provider.start, b"event: error\ndata: " + data + b"\n\n", b"data: " + data + b"\n\n"]
        if provider is PROVIDERS["bedrock"]:
            words = body if isinstance(body, dict) else {"message": SAID}
            events = [*provider.start, frame("internalServerException", words, "exception")]
        web.answers = SameAnswer((200, {"Content-Type": provider.kind}, b"".join(events)))
        assert KEY not in show(await _catch_model_error(model, streaming=True)), name


def encode_body(body):
    return body if isinstance(body, bytes) else json.dumps(body).encode()


async def _catch_model_error(model, *, streaming):
    """Return what a model raises; None when it makes an answer of what it was sent."""
    try:
        await asyncio.wait_for(asked(model, streaming=streaming, request=HELLO), WAIT)
    except ModelError as error:
        return error
    return None


def show(error):
    """Return everything that is visible of an exception, its causes and its contexts."""
    chained = " ".join(f"{each} {each!r}" for each in chain(error))
    return chained + ("" if error is None else "".join(traceback.format_exception(error)))


async def test_keys_from_functions_and_headers_are_masked(web):
    async def key():
        return KEY

    error = {"error": {"message": f"{SAID}, cookie abcdefgh-session", "code": "x"}}
    web.answers = SameAnswer((200, {"Content-Type": "application/json"}, json.dumps(error)))
    headers = {"Cookie": "abcdefgh-session", "X-Team": "x"}
    model = OpenAIModel("x", api="chat", base_url=web.url("/v1"), api_key=key, headers=headers)
    assert str(await failed(model)) == "127.0.0.1: Incorrect key: ***, cookie ***"


async def test_error_without_key_keeps_its_cause(web):
    web.answers = SameAnswer(
        (400, {"Content-Type": "application/json"}, json.dumps({"error": {"message": "too long"}}))
    )
    error = await failed(PROVIDERS["openai chat"].model(web))
    assert error.__cause__.status_code == 400
