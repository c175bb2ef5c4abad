"""The other side of a webhook: a service that reads requests, and posts signed answers, over real connections."""

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from toolsemble import Continue, Edit, ExitEarly, ReviewRefusedError, Toolbox, ToolCall, tool
from toolsemble.review import MemoryStore, ReviewRequest, WebhookMessage, WebhookReview, read_webhook, sign_answer
from toolsemble.review._webhook import sign_headers, webhook_key

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - the example of the specification
NOW = 1_700_000_000.0
REQUEST = ReviewRequest(
    "Pays", "pay", {"order": 7, "price": 4.0}, timeout=None, id="4f1c", run_id="r1", memory_id="ada"
)


@tool(requires_approval=True)
def pay(order: int) -> str:
    """Pays an order."""
    return f"paid {order}"


def post(url, body, headers):
    """Return the status and the text of the response."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as response:  # noqa: S310 - a URL of this test
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


@contextmanager
def serve(decide):
    """Run a service that answers each request with what a function decides; yield its URL and the responses."""
    responses, answering = [], []

    class Service(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            message = read_webhook(body, dict(self.headers.items()), SECRET)
            self.send_response(202)
            self.end_headers()
            for request in message.requests:
                thread = threading.Thread(target=answer, args=(message.callback_url, request))
                thread.start()
                answering.append(thread)

        def log_message(self, *_): ...

    def answer(url, request):
        responses.append(post(url, *sign_answer(request, decide(request), SECRET, person="ada", role="boss")))

    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", responses
    finally:
        for each in answering:
            each.join(60)
        server.shutdown()
        thread.join(60)
        server.server_close()


@pytest.mark.parametrize(
    ("decision", "text"),
    [
        (Continue(), "paid 7"),
        (Edit('{"order": 8}'), "paid 8"),
        (ExitEarly("not today"), "Error: Rejected by reviewer: not today"),
        (ExitEarly(), 'Error: Rejected by reviewer: pay({"order": 7})'),
    ],
)
async def test_service_answers_a_request(decision, text):
    with serve(lambda _: decision) as (url, responses), MemoryStore() as store:
        webhook = WebhookReview(url, SECRET, store=store, poll=0.01)
        with webhook.listen():
            reply = await Toolbox([pay], review=webhook).aexecute(ToolCall("pay", {"order": 7}))
        answered = [(event.person, event.role) for event in store.audit() if event.kind == "answered"]
    assert (reply.text, answered) == (text, [("ada", "boss")])
    assert responses == [(200, "answered")]


async def test_service_answers_each_request_of_a_turn():
    def decide(request):
        return Continue() if request.arguments["order"] % 2 else ExitEarly(f"not {request.arguments['order']}")

    with serve(decide) as (url, responses), MemoryStore() as store:
        webhook = WebhookReview(url, SECRET, store=store, poll=0.01)
        with webhook.listen():
            calls = [ToolCall("pay", {"order": number}) for number in range(4)]
            replies = await Toolbox([pay], review=webhook).aexecute_all(calls)
        people = {event.person for event in store.audit() if event.kind == "answered"}
    assert [reply.is_error for reply in replies] == [True, False, True, False]
    assert (responses, people) == ([(200, "answered")] * 4, {"ada"})


async def test_second_answer_is_refused_with_its_reason():
    with MemoryStore() as store:
        store.ask([REQUEST])
        webhook = WebhookReview("http://127.0.0.1:9/", SECRET, store=store)
        with webhook.listen() as url:
            statuses = [
                await asyncio.to_thread(post, url, *sign_answer(REQUEST, Continue(), secret, person="ada"))
                for secret in ("another", SECRET, SECRET)
            ]
    assert statuses == [
        (401, "the signature does not match"),
        (200, "answered"),
        (409, "it was already answered by 'ada'"),
    ]


@pytest.mark.parametrize("secret", [SECRET, "plain", b"bytes"])
@pytest.mark.parametrize("decision", [Continue(), Continue("tool"), Edit("é \ud800"), ExitEarly("no")])
def test_reviewer_accepts_a_signed_answer(secret, decision):
    with MemoryStore() as store:
        store.ask([REQUEST])
        webhook = WebhookReview("http://127.0.0.1:9/", secret, store=store)
        assert webhook.receive(*sign_answer(REQUEST, decision, secret)) == (200, "answered")
        assert store.take({REQUEST.id: REQUEST}) == {REQUEST.id: decision}


def message(values, secret=SECRET, now=NOW):
    body = values if isinstance(values, bytes) else json.dumps(values).encode()
    return body, sign_headers(webhook_key(secret), "msg_1", body, now)


def to_values(request):
    return {**json.loads(request.to_json()), "deadline": request.deadline, "arguments_digest": request.arguments_digest}


def test_reads_the_requests_of_a_message():
    body, headers = message(
        {"type": "review.requested", "callback_url": "https://x/", "requests": [to_values(REQUEST)]}
    )
    shouted = {name.upper(): value for name, value in headers.items()}
    assert read_webhook(body, shouted, SECRET, now=NOW) == WebhookMessage((REQUEST,), "https://x/")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"body": b"{ }"}, "the signature does not match"),
        ({"secret": "another"}, "the signature does not match"),
        ({"headers": {}}, "the message has no webhook-id or no webhook-timestamp"),
        ({"now": NOW + 301}, "the message is too old, or from the future; check the clock"),
        ({"now": None}, "the message is too old, or from the future; check the clock"),
    ],
)
def test_rejects_a_message_with_a_wrong_signature_or_time(change, reason):
    body, headers = message(b"{}")
    given = {"body": body, "headers": headers, "secret": SECRET, "now": NOW, **change}
    with pytest.raises(ReviewRefusedError, match=f"^{reason}$"):
        read_webhook(given["body"], given["headers"], given["secret"], now=given["now"])


@pytest.mark.parametrize(
    "values",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        [],
        {},
        5,
        {"callback_url": "", "requests": [5]},
        {"callback_url": "", "requests": [{}]},
        {"callback_url": "", "requests": 5},
        {"requests": []},
        {"callback_url": "", "requests": [{**to_values(REQUEST), "timing": "never"}]},
        {"callback_url": "", "requests": [{**to_values(REQUEST), "unknown": 1}]},
    ],
)
def test_rejects_a_signed_message_of_another_kind(values):
    with pytest.raises(ReviewRefusedError, match=r"^the message is not from a WebhookReview$"):
        read_webhook(*message(values), SECRET, now=NOW)


@pytest.mark.parametrize("decision", [None, "continue", Continue, Edit(5)])
def test_does_not_sign_an_invalid_decision(decision):
    with pytest.raises(ReviewRefusedError, match=r"^the answer is not a decision"):
        sign_answer(REQUEST, decision, SECRET)


def test_answer_has_the_time_of_the_clock():
    assert sign_answer(REQUEST, Continue(), SECRET, now=NOW)[1]["webhook-timestamp"] == "1700000000"
    assert abs(int(sign_answer(REQUEST, Continue(), SECRET)[1]["webhook-timestamp"]) - time.time()) < 60
