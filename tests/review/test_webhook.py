"""The webhook: only a signed answer to exactly what was asked lets a call run."""

import asyncio
import http.client
import json
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import ThreadingMixIn
from urllib.parse import urlsplit

import pytest

from helpers.wait import auntil, until
from toolsemble import Continue, Edit, ExitEarly, Toolbox, ToolCall, tool
from toolsemble._vocabulary.errors import ReviewRefusedError, ToolDefinitionError
from toolsemble.review import MemoryStore, ReviewRequest, ReviewStore, WebhookReview
from toolsemble.review._asking.question import Question
from toolsemble.review._webhook import Connections, check_signature, listen, sign_headers, webhook_key
from toolsemble.testing import FixedClock

pytestmark = pytest.mark.slow

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - the example of the specification
KEY = webhook_key(SECRET)
NOWHERE = "http://127.0.0.1:9/"


@tool(requires_approval=True)
def delete(path: str) -> str:
    """Deletes a file."""
    return f"deleted {path}"


def make_request(arguments="old.log", **given):
    return ReviewRequest("Deletes a file", "delete", arguments, **given)


@contextmanager
def open_webhook(url=NOWHERE, **given):
    given = {"poll": 0.005, "timeout": 5, **given}
    with MemoryStore() as store:
        yield WebhookReview(url, SECRET, **{"store": store, **given})


class Inbox:
    """The reviewer's end: takes messages, and answers them with a list of statuses."""

    def __init__(self, *statuses):
        self.statuses = list(statuses)
        self.messages = []
        self.headers = []

    def __call__(self, body, headers):
        check_signature(KEY, body, headers, time.time())
        self.headers.append({name.lower(): value for name, value in headers.items()})
        self.messages.append(json.loads(body))
        return (self.statuses.pop(0) if self.statuses else 200), "continue"

    @property
    def requests(self):
        return [request for message in self.messages for request in message["requests"]]


def make_answer(request, decision="continue", **more):
    digest = request["arguments_digest"] if isinstance(request, dict) else request.arguments_digest
    request_id = request["id"] if isinstance(request, dict) else request.id
    return {"request_id": request_id, "arguments_digest": digest, "decision": decision, **more}


def sign(answer, key=KEY, now=None):
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return body, sign_headers(key, "msg_1", body, time.time() if now is None else now)


def post(url, body, headers, method="POST"):
    parts = urlsplit(url)
    with closing(http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)) as connection:
        connection.request(method, "/", body, headers)
        response = connection.getresponse()
        return response.status, response.read().decode()


def send_answer(webhook, request=None, **more):
    """Store a request, and return the response to its answer."""
    request = request or make_request()
    webhook.store.ask([request])
    return webhook.receive(*sign(make_answer(request, **more)))


# Signatures.


def test_messages_are_signed_per_specification():
    assert sign_headers(KEY, "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', 1614265330.0) == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_one_of_several_signatures_is_enough():
    body, headers = sign({})
    headers["webhook-signature"] = f"v1,old v2,other {headers['webhook-signature']}"
    check_signature(KEY, body, {name.title(): value for name, value in headers.items()}, time.time())


NO_HEADERS = "the message has no webhook-id or no webhook-timestamp"
NO_FIT = "the signature does not fit"
OUT_OF_TIME = "the message is too old, or from the future; check the clock"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"webhook-id": ""}, NO_HEADERS),
        ({"webhook-id": "msg.1"}, NO_HEADERS),
        ({"webhook-id": "msg_2"}, NO_FIT),
        ({"webhook-id": "\ud800"}, NO_FIT),
        ({"webhook-timestamp": ""}, NO_HEADERS),
        ({"webhook-timestamp": "now"}, NO_HEADERS),
        ({"webhook-timestamp": "-1"}, NO_HEADERS),
        ({"webhook-timestamp": "1e9"}, NO_HEADERS),
        ({"webhook-timestamp": "٣"}, NO_HEADERS),
        ({"webhook-timestamp": "9" * 5000}, NO_HEADERS),
        ({"webhook-timestamp": "1"}, NO_FIT),
        ({"webhook-signature": ""}, NO_FIT),
        ({"webhook-signature": "v1,"}, NO_FIT),
        ({"webhook-signature": "v1,ü"}, NO_FIT),
        ({"webhook-signature": "\ud800"}, NO_FIT),
        ({"webhook-signature": None}, NO_FIT),
    ],
)
def test_rejects_missing_or_invalid_headers(changed, reason, caplog):
    with open_webhook() as webhook, caplog.at_level(logging.WARNING, "toolsemble.review"):
        webhook.store.ask([request := make_request()])
        body, headers = sign(make_answer(request))
        assert webhook.receive(body, {**headers, **changed}) == (401, reason)
        assert webhook.receive(body, {}) == (401, NO_HEADERS)
        assert webhook.store.pending() == [request]
    assert caplog.messages[0] == f"refused: a callback: {reason}"


@pytest.mark.parametrize(
    ("key", "shift", "reason"), [(b"x", 0, NO_FIT), (KEY, -301, OUT_OF_TIME), (KEY, 302, OUT_OF_TIME)]
)
def test_rejects_other_key_or_time(key, shift, reason):
    with open_webhook() as webhook:
        webhook.store.ask([request := make_request()])
        assert webhook.receive(*sign(make_answer(request), key, time.time() + shift)) == (401, reason)


def test_rejects_changed_body():
    with open_webhook() as webhook:
        webhook.store.ask([request := make_request()])
        body, headers = sign(make_answer(request, "exit_early"))
        assert webhook.receive(body.replace(b"exit_early", b"continue"), headers) == (401, NO_FIT)


def test_rejects_its_own_request_as_an_answer():
    with open_webhook() as webhook:
        body = webhook._message([json.dumps({"request_id": "x"})])
        assert webhook.receive(*sign(body)) == (400, "unknown key: 'callback_url'")


@pytest.mark.parametrize("secret", ["whsec_", "whsec_no base64", "", b"", None])
def test_rejects_invalid_secret(secret):
    with pytest.raises(ToolDefinitionError, match=r"^A (review|webhook) secret must be"):
        WebhookReview(NOWHERE, secret)


# Answers.


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        ({"decision": "continue"}, Continue()),
        ({"decision": "continue", "always": "tool"}, Continue("tool")),
        ({"decision": "continue", "always": None}, Continue()),
        ({"decision": "edit", "revised": "older.log"}, Edit("older.log")),
        ({"decision": "exit_early"}, ExitEarly()),
        ({"decision": "exit_early", "reason": "nö"}, ExitEarly("nö")),
    ],
)
def test_signed_answer_is_stored(answer, decision):
    with open_webhook() as webhook:
        response = send_answer(webhook, request := make_request(), **answer, person="ada", role="admin")
        assert response == (200, "answered")
        assert webhook.store.take({request.id: request}) == {request.id: decision}
        event = webhook.store.audit()[1]
        assert (event.kind, event.person, event.role) == ("answered", "ada", "admin")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"decision": None}, "decision must be a string"),
        ({"decision": "approve"}, 'decision must be "continue", "edit" or "exit_early"'),
        ({"decision": True}, "decision must be a string"),
        ({"decision": "edit"}, "revised must be a string"),
        ({"decision": "edit", "revised": {"path": "x"}}, "revised must be a string"),
        ({"decision": "continue", "revised": "x"}, '"revised" does not go with the decision "continue"'),
        ({"decision": "exit_early", "reason": None}, "reason must be a string"),
        ({"decision": "continue", "always": "ever"}, 'always must be "tool", "arguments" or null'),
        ({"decision": "continue", "always": []}, 'always must be "tool", "arguments" or null'),
        ({"person": 5}, "person must be a string"),
        ({"role": ["admin"]}, "role must be a string"),
        ({"request_id": None}, "request_id must be a string"),
        ({"arguments_digest": None}, "arguments_digest must be a string"),
        ({"approved": True}, "unknown key: 'approved'"),
        ({"\ud800": True}, "unknown key: '\\ud800'"),
    ],
)
def test_rejects_malformed_answer(answer, reason):
    with open_webhook() as webhook:
        webhook.store.ask([request := make_request()])
        assert webhook.receive(*sign({**make_answer(request), **answer})) == (400, reason)
        assert webhook.store.pending() == [request]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is not JSON: "),
        (b"\xff", "the body is not JSON: 'utf-8' codec can't decode"),
        (b"[]", "the body is not a JSON object"),
        (b'"continue"', "the body is not a JSON object"),
        (b"[" * 100_000, "the body is not JSON: "),
        (b"9" * 10_000, "the body is not JSON: "),
        (b'{"decision": "exit_early", "decision": "continue"}', "the body is not JSON: duplicate key"),
        (b'{"decision": NaN}', "the body is not JSON: NaN is not a number"),
        (b'{"decision": -Infinity}', "the body is not JSON: -Infinity is not a number"),
        (b"{" + b" " * 1_000_000 + b"}", "the body is larger than 1000000 bytes"),
    ],
    ids=range(10),
)
def test_rejects_body_that_is_not_an_answer(body, reason):
    with open_webhook() as webhook:
        status, text = webhook.receive(*sign(body))
        assert (status, text[: len(reason)]) == (400, reason)


@pytest.mark.parametrize("missing", ["request_id", "decision", "arguments_digest"])
def test_rejects_answer_with_missing_keys(missing):
    with open_webhook() as webhook:
        webhook.store.ask([request := make_request()])
        answer = make_answer(request)
        del answer[missing]
        assert webhook.receive(*sign(answer)) == (400, f"{missing} must be a string")


def test_answer_is_accepted_once_and_only_for_its_request():
    with open_webhook() as webhook:
        webhook.store.ask([request := make_request(required_role="admin"), other := make_request("other")])
        differ = "the person saw other arguments than what is asked about"
        wrong = {**make_answer(request, role="admin"), "arguments_digest": other.arguments_digest}
        right = sign(make_answer(request, role="admin", person="ada"))
        assert [
            webhook.receive(*sign(make_answer(make_request()))),
            webhook.receive(*sign({**make_answer(request), "request_id": "\ud800"})),
            webhook.receive(*sign(wrong)),
            webhook.receive(*sign(make_answer(request, role="guest\ud800"))),
            webhook.receive(*right),
            webhook.receive(*right),
        ] == [
            (404, "the request is unknown"),
            (404, "the request is unknown"),
            (409, differ),
            (409, "it takes the role 'admin', not 'guest\\ud800'"),
            (200, "answered"),
            (409, "it was answered already by 'ada'"),
        ]
        assert webhook.store.pending() == [other]


def test_answer_received_in_another_process_is_stored(tmp_path):
    with ReviewStore(tmp_path / "reviews.db") as mine, ReviewStore(tmp_path / "reviews.db") as theirs:
        request = make_request()
        mine.ask([request])
        web = WebhookReview(NOWHERE, SECRET, store=theirs)
        assert web.receive(*sign(make_answer(request))) == (200, "answered")
        assert mine.take({request.id: request}) == {request.id: Continue()}


def test_uses_a_memory_store_by_default():
    webhook = WebhookReview(NOWHERE, SECRET)
    assert send_answer(webhook) == (200, "answered")
    webhook.store.close()


# The whole way.


@pytest.mark.parametrize(
    ("decision", "more", "text"),
    [
        ("continue", {}, "deleted old.log"),
        ("edit", {"revised": '{"path": "older.log"}'}, "deleted older.log"),
        ("exit_early", {"reason": "no"}, "Error: Rejected by reviewer: no"),
    ],
)
async def test_call_is_posted_and_answered_by_callback(decision, more, text):
    inbox = Inbox()
    with listen(inbox, "127.0.0.1", 0) as url, open_webhook(url) as webhook, webhook.listen() as callback:
        box = Toolbox([delete], review=webhook)
        reply = asyncio.create_task(box.aexecute(ToolCall("delete", {"path": "old.log"}, id="c1")))
        await auntil(lambda: inbox.requests)
        (message,) = inbox.messages
        (request,) = message["requests"]
        assert (message["callback_url"], message["type"]) == (callback, "review.requested")
        (stored,) = webhook.store.pending()
        extra = request.pop("deadline"), request["arguments_digest"]
        assert extra == (stored.deadline, stored.arguments_digest)
        shown = {name: value for name, value in request.items() if name != "arguments_digest"}
        assert ReviewRequest.from_json(json.dumps(shown)) == stored
        assert await asyncio.to_thread(post, callback, *sign(make_answer(request, decision, **more))) == (
            200,
            "answered",
        )
        assert (await reply).text == text
    assert webhook.callback_url == ""


async def test_concurrent_requests_share_one_message():
    inbox = Inbox()
    with listen(inbox, "127.0.0.1", 0) as url, open_webhook(url) as webhook:
        asked = [asyncio.create_task(webhook.review(make_request(f"{number}"))) for number in range(250)]
        await auntil(lambda: len(inbox.requests) == 250)
        for request in inbox.requests:
            assert webhook.receive(*sign(make_answer(request, "edit", revised=request["arguments"])))[0] == 200
        assert await asyncio.gather(*asked) == [Edit(f"{number}") for number in range(250)]
    assert len(inbox.messages) < 30
    assert max(len(message["requests"]) for message in inbox.messages) <= 100


async def test_unserializable_request_fails_alone():
    with listen(inbox := Inbox(), "127.0.0.1", 0) as url, open_webhook(url) as webhook:
        bad = asyncio.create_task(Question(webhook, make_request({"x": float("nan")})).ado())
        good = asyncio.create_task(Question(webhook, make_request()).ado())
        await auntil(lambda: inbox.requests)
        webhook.receive(*sign(make_answer(inbox.requests[0])))
        assert (await bad, await good) == (ExitEarly("the reviewer failed to answer"), Continue())


@pytest.mark.parametrize("statuses", [[503, 429], [500, 599]])
async def test_busy_reviewer_is_retried_with_the_same_id(statuses):
    with listen(inbox := Inbox(*statuses), "127.0.0.1", 0) as url, open_webhook(url) as webhook:
        asked = asyncio.create_task(webhook.review(make_request()))
        await auntil(lambda: len(inbox.messages) == 3)
        webhook.receive(*sign(make_answer(inbox.requests[0])))
        assert await asked == Continue()
    assert len({headers["webhook-id"] for headers in inbox.headers}) == 1


@pytest.mark.parametrize(
    ("statuses", "tried"),
    [([400], 1), ([401], 1), ([302], 1), ([304], 1), ([404], 1), ([500, 502, 503], 3), ([503, 410], 2)],
)
async def test_unreachable_reviewer_approves_nothing(statuses, tried):
    with listen(inbox := Inbox(*statuses), "127.0.0.1", 0) as url, open_webhook(url) as webhook:
        decision = await Question(webhook, make_request()).ado()
        assert decision == ExitEarly(f"the reviewer cannot be reached: it answered {statuses[-1]}")
        assert [event.kind for event in webhook.store.audit()] == ["asked", "withdrawn"]
    assert len(inbox.messages) == tried


class Redirecting(BaseHTTPRequestHandler):
    visited = ()

    def do_POST(self):
        type(self).visited += (self.path,)
        self.send_response(307)
        self.send_header("Location", "/approved")
        self.end_headers()

    do_GET = do_POST  # noqa: N815 - the name that the server looks for

    def log_message(self, *_):
        pass


async def test_redirect_is_not_followed():
    with ThreadingHTTPServer(("127.0.0.1", 0), Redirecting) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            with open_webhook(f"http://127.0.0.1:{server.server_port}/ask") as webhook:
                decision = await webhook.review(make_request())
        finally:
            server.shutdown()
            thread.join(60)
    assert decision == ExitEarly("the reviewer cannot be reached: it answered 307")
    assert Redirecting.visited == ("/ask",)


def url_of(server):
    return f"http://127.0.0.1:{server.getsockname()[1]}/"


@contextmanager
def serve_bytes(reply):
    """Return the URL of a server that accepts one connection after another and sends the same bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(100_000)
                    connection.sendall(reply)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield url_of(server)
        server.shutdown(socket.SHUT_RDWR)
        thread.join(60)


@pytest.mark.parametrize("reply", [b"", b"approved\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 2"])
async def test_invalid_http_response_is_not_a_delivery(reply):
    with serve_bytes(reply) as url, open_webhook(url, attempts=2) as webhook:
        decision = await webhook.review(make_request())
    assert decision.reason.startswith("the reviewer cannot be reached: ")


async def test_proxies_of_the_environment_are_not_used(monkeypatch):
    monkeypatch.setenv("http_proxy", NOWHERE)
    monkeypatch.setenv("no_proxy", "")
    with listen(inbox := Inbox(), "127.0.0.1", 0) as url, open_webhook(url) as webhook:
        asked = asyncio.create_task(webhook.review(make_request()))
        await auntil(lambda: inbox.requests)
        webhook.receive(*sign(make_answer(inbox.requests[0])))
        assert await asked == Continue()


async def test_closed_port_is_a_rejection():
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = url_of(server)
    with open_webhook(url, attempts=1) as webhook:
        decision = await webhook.review(make_request())
    assert decision == ExitEarly("the reviewer cannot be reached: [Errno 111] Connection refused")


async def test_delivery_times_out():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        open_webhook(url_of(server), attempts=1, timeout=0.05) as webhook,
    ):
        decision = await webhook.review(make_request())
    assert decision == ExitEarly("the reviewer cannot be reached: timed out")


async def test_unanswered_message_approves_nothing(stopped_clock, monkeypatch):
    delivered = asyncio.Event()

    async def announce(request):
        await WebhookReview.announce(webhook, request)
        delivered.set()

    store = MemoryStore(clock=stopped_clock.time)
    with listen(Inbox(), "127.0.0.1", 0) as url, store, open_webhook(url, store=store) as webhook:
        monkeypatch.setattr(webhook, "announce", announce)
        question = asyncio.create_task(Question(webhook, make_request(timeout=36_000)).ado())
        with stopped_clock.running():
            await auntil(delivered.is_set)
        stopped_clock.advance(36_001)
        assert await question == ExitEarly("no answer within 36000 s", timed_out=True)
        assert [event.kind for event in webhook.store.audit()] == ["asked", "expired"]


async def test_cancelled_request_does_not_stop_the_others():
    with listen(inbox := Inbox(), "127.0.0.1", 0) as url, open_webhook(url) as webhook:
        first, second = (asyncio.create_task(webhook.review(make_request(name))) for name in ("first", "second"))
        await auntil(lambda: len(webhook.store.pending()) == 2)
        first.cancel()
        await auntil(lambda: "second" in [request["arguments"] for request in inbox.requests])
        (request,) = (request for request in inbox.requests if request["arguments"] == "second")
        webhook.receive(*sign(make_answer(request)))
        assert await second == Continue()
        await asyncio.wait([first], timeout=60)
        assert first.cancelled()


def test_ended_event_loop_drops_its_message():
    with open_webhook() as webhook:

        async def ends_too_soon():
            task = asyncio.create_task(webhook.review(make_request()))
            await auntil(lambda: webhook._bundles)
            return task

        assert asyncio.run(ends_too_soon()).cancelled()
        assert webhook._bundles == {}


def test_sync_call_is_posted():
    with listen(inbox := Inbox(), "127.0.0.1", 0) as url, open_webhook(url) as webhook:

        def reviewer():
            until(lambda: inbox.requests)
            webhook.receive(*sign(make_answer(inbox.requests[0])))

        thread = threading.Thread(target=reviewer)
        thread.start()
        reply = Toolbox([delete], review=webhook).execute(ToolCall("delete", {"path": "old.log"}))
        thread.join(60)
    assert reply.text == "deleted old.log"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "reviews",
        "ftp://x/",
        "file:///etc/passwd",
        "http://",
        "http:///x",
        "http://a:99999/",
        "http://me:pw@x/",
        "http://x:0/",
        "http://x/ y",
        "http://x/\n",
        "http://ü/",
        None,
        b"http://x/",
        "http://[x/",
    ],
)
def test_rejects_invalid_url(url):
    with pytest.raises(ToolDefinitionError, match=r"^A webhook needs an http or https URL"):
        WebhookReview(url, SECRET)


@pytest.mark.parametrize("given", [{"timeout": 0}, {"timeout": float("nan")}, {"attempts": 0}])
def test_rejects_invalid_settings(given):
    with pytest.raises(
        ToolDefinitionError,
        match=r"^(timeout must be a number of seconds > 0|attempts must be an int >= 1), not (0|nan)$",
    ):
        WebhookReview(NOWHERE, SECRET, **given)


# The listener.


@pytest.mark.parametrize("length", [None, "-1", "x", "1000001", "9" * 100, "٣".encode().decode("latin-1")])
def test_rejects_missing_or_too_large_content_length(length):
    with open_webhook() as webhook, webhook.listen() as url:
        parts = urlsplit(url)
        with closing(http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)) as connection:
            connection.putrequest("POST", "/")
            if length is not None:
                connection.putheader("Content-Length", length)
            connection.endheaders()
            response = connection.getresponse()
            response_parts = response.status, response.read()
    assert response_parts == (400, b"the body needs a Content-Length of at most 1000000")


def test_rejects_a_body_with_two_lengths():
    refusal = (400, "the body needs a Content-Length of at most 1000000")
    with open_webhook() as webhook, webhook.listen() as url:
        assert post(url, b"{}", {"Content-Length": "2", "Transfer-Encoding": "chunked"}) == refusal


def test_only_post_is_accepted():
    with open_webhook() as webhook, webhook.listen() as url:
        assert post(url, None, {}, "GET")[0] == 501
        assert post(url, b"{}", {}) == (401, NO_HEADERS)


def test_store_failure_is_a_server_error(caplog):
    with open_webhook() as webhook, webhook.listen() as url:
        webhook.store.close()
        assert post(url, *sign(make_answer(make_request()))) == (500, "the answer could not be stored")
    assert "A callback could not be processed" in caplog.messages


async def test_aborted_connection_is_ignored(caplog):
    taken, go_on = threading.Event(), threading.Event()

    def slow(body, headers):
        taken.set()
        go_on.wait(60)
        return 200, "x" * 5_000_000

    with caplog.at_level(logging.DEBUG, "toolsemble.review"), listen(slow, "127.0.0.1", 0) as url:
        client = socket.create_connection(("127.0.0.1", urlsplit(url).port))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # reset when it is closed
        client.sendall(b"POST / HTTP/1.0\r\nContent-Length: 0\r\n\r\n")
        await auntil(taken.is_set)
        client.close()
        go_on.set()
        await auntil(lambda: any(message.endswith("was interrupted") for message in caplog.messages))


def test_listens_on_ipv6():
    with listen(lambda *_: (200, "taken"), "::1", 0) as url:
        assert url.startswith("http://[::1]:")
        assert post(url, b"", {"Content-Length": "0"}) == (200, "taken")


def test_wrong_secret_fails_the_signature_check():
    with open_webhook() as webhook, pytest.raises(ReviewRefusedError):
        check_signature(b"guess", b"{}", sign_headers(webhook._key, "msg_1", b"{}", 0), 0)


# Clients that take their time.


def open_slow_client(url):
    """Open a connection whose message never ends."""
    client = socket.create_connection(("127.0.0.1", urlsplit(url).port), timeout=60)
    client.sendall(b"POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\nab")
    return client


def is_closed(client):
    try:
        return client.recv(1) == b""
    except ConnectionResetError:  # before all was read that it had sent
        return True


def request_threads(before=frozenset()):
    """Return the threads in which requests are answered, but for those that were there before."""
    return {each for each in threading.enumerate() if each.name.endswith("(process_request_thread)")} - before


async def test_slow_clients_do_not_exhaust_threads():
    with ExitStack() as clients:
        before = request_threads()
        with listen(lambda body, headers: (200, "taken"), "127.0.0.1", 0, most=4) as url:
            dripped = [clients.enter_context(open_slow_client(url)) for _ in range(50)]
            assert post(url, b"", {"Content-Length": "0"}) == (200, "taken")
            assert all(map(is_closed, dripped[:46]))  # those that had taken longest
            await auntil(lambda: len(request_threads(before)) <= 4)
            assert post(url, b"", {"Content-Length": "0"}) == (200, "taken")
        assert all(map(is_closed, dripped[46:]))
        await auntil(lambda: not request_threads(before))


def test_slow_client_is_disconnected_at_its_deadline():
    clock, taken = FixedClock(), []

    def take(body, headers):
        taken.append(body)
        return 200, ""

    with listen(take, "127.0.0.1", 0, clock=clock.time) as url, open_slow_client(url) as client:
        assert post(url, b"", {"Content-Length": "0"}) == (200, "")  # so the one before was admitted, too
        clock.advance(9)
        client.sendall(b"c")
        clock.advance(1)
        assert is_closed(client)
    assert taken == [b""]


async def test_running_callback_is_answered_after_its_deadline():
    clock, inside, go_on = FixedClock(), threading.Event(), threading.Event()

    def slow(body, headers):
        inside.set()
        assert go_on.wait(60)
        return 200, "taken"

    before = request_threads()
    with listen(slow, "127.0.0.1", 0, most=2, clock=clock.time) as url, ThreadPoolExecutor() as workers:
        first = workers.submit(post, url, b"", {"Content-Length": "0"})
        assert inside.wait(60)
        inside.clear()
        with open_slow_client(url) as client:
            await auntil(lambda: len(request_threads(before)) == 2)
            clock.advance(60)
            assert is_closed(client)  # the server has looked whose time is up
        second = workers.submit(post, url, b"", {"Content-Length": "0"})
        assert inside.wait(60)
        with open_slow_client(url) as client:
            assert is_closed(client)  # there is no room, and nobody to be sent away
        go_on.set()
        assert (first.result(60), second.result(60)) == ((200, "taken"), (200, "taken"))


def test_truncated_message_is_rejected():
    taken = []
    with (
        listen(lambda body, headers: (taken.append(body) or 200, ""), "127.0.0.1", 0) as url,
        open_slow_client(url) as client,
    ):
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
    assert taken == []


def test_late_message_is_rejected():
    clock = FixedClock()
    connections = Connections(4, clock.time)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert connections.admit(ours)
        clock.advance(10)
        connections.close_late()
        assert not connections.hold(ours)
        connections.forget(ours)
        assert connections.admit(ours)
        theirs.close()
        ours.close()
        connections.close_all()  # what is closed already is no reason to fail


def test_connection_without_a_thread_frees_its_slot(monkeypatch):
    def none(*_):
        raise RuntimeError("can't start new thread")

    with listen(lambda body, headers: (200, "taken"), "127.0.0.1", 0, most=1) as url:
        with monkeypatch.context() as patched:
            patched.setattr(ThreadingMixIn, "process_request", none)
            with open_slow_client(url) as client:
                assert is_closed(client)
        assert post(url, b"", {"Content-Length": "0"}) == (200, "taken")
