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

from helpers.wait import auntil
from toolsemble import Continue, Edit, ExitEarly, Toolbox, ToolCall, tool
from toolsemble.errors import ReviewRefusedError, ToolDefinitionError
from toolsemble.review import MemoryStore, ReviewRequest, SQLiteStore, WebhookReview
from toolsemble.review.connections import Connections
from toolsemble.review.listener import listen
from toolsemble.review.question import Question
from toolsemble.review.signature import check_signature, sign_headers, webhook_key
from toolsemble.testing import FixedClock

pytestmark = pytest.mark.slow

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - the example of the specification
KEY = webhook_key(SECRET)
NOWHERE = "http://127.0.0.1:9/"


@tool(requires_approval=True)
def delete(path: str) -> str:
    """Deletes a file."""
    return f"deleted {path}"


def asking(arguments="old.log", **given):
    return ReviewRequest("Deletes a file", "delete", arguments, **given)


@contextmanager
def opened(url=NOWHERE, **given):
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


def answer_to(request, decision="continue", **more):
    digest = request["arguments_digest"] if isinstance(request, dict) else request.arguments_digest
    request_id = request["id"] if isinstance(request, dict) else request.id
    return {"request_id": request_id, "arguments_digest": digest, "decision": decision, **more}


def signed(answer, key=KEY, now=None):
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return body, sign_headers(key, "msg_1", body, time.time() if now is None else now)


def posted(url, body, headers, method="POST"):
    parts = urlsplit(url)
    with closing(http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)) as connection:
        connection.request(method, "/", body, headers)
        response = connection.getresponse()
        return response.status, response.read().decode()


def answered(webhook, request=None, **more):
    """Store a request, and give what the answer to it is told."""
    request = request or asking()
    webhook.store.ask([request])
    return webhook.receive(*signed(answer_to(request, **more)))


# Signatures.


def test_messages_are_signed_as_the_specification_says():
    assert sign_headers(KEY, "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', 1614265330.0) == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_one_of_several_signatures_is_enough_and_names_of_headers_have_no_case():
    body, headers = signed({})
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
def test_a_message_without_the_right_headers_is_refused(changed, reason, caplog):
    with opened() as webhook, caplog.at_level(logging.WARNING, "toolsemble.review"):
        webhook.store.ask([request := asking()])
        body, headers = signed(answer_to(request))
        assert webhook.receive(body, {**headers, **changed}) == (401, reason)
        assert webhook.receive(body, {}) == (401, NO_HEADERS)
        assert webhook.store.pending() == [request]
    assert caplog.messages[0] == f"refused: a callback: {reason}"


@pytest.mark.parametrize(
    ("key", "shift", "reason"), [(b"x", 0, NO_FIT), (KEY, -301, OUT_OF_TIME), (KEY, 302, OUT_OF_TIME)]
)
def test_a_message_of_another_key_or_time_is_refused(key, shift, reason):
    with opened() as webhook:
        webhook.store.ask([request := asking()])
        assert webhook.receive(*signed(answer_to(request), key, time.time() + shift)) == (401, reason)


def test_a_body_that_was_changed_on_its_way_is_refused():
    with opened() as webhook:
        webhook.store.ask([request := asking()])
        body, headers = signed(answer_to(request, "exit_early"))
        assert webhook.receive(body.replace(b"exit_early", b"continue"), headers) == (401, NO_FIT)


def test_our_own_message_is_no_answer():
    with opened() as webhook:
        body = webhook._message([json.dumps({"request_id": "x"})])
        assert webhook.receive(*signed(body)) == (400, "unknown key: 'callback_url'")


@pytest.mark.parametrize("secret", ["whsec_", "whsec_no base64", "", b"", None])
def test_a_secret_that_is_none_is_refused(secret):
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
def test_a_signed_answer_is_stored(answer, decision):
    with opened() as webhook:
        assert answered(webhook, request := asking(), **answer, person="ada", role="admin") == (200, "answered")
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
def test_an_answer_that_is_not_well_formed_is_refused(answer, reason):
    with opened() as webhook:
        webhook.store.ask([request := asking()])
        assert webhook.receive(*signed({**answer_to(request), **answer})) == (400, reason)
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
def test_a_body_that_is_no_answer_is_refused(body, reason):
    with opened() as webhook:
        status, text = webhook.receive(*signed(body))
        assert (status, text[: len(reason)]) == (400, reason)


@pytest.mark.parametrize("missing", ["request_id", "decision", "arguments_digest"])
def test_an_answer_needs_all_its_parts(missing):
    with opened() as webhook:
        webhook.store.ask([request := asking()])
        answer = answer_to(request)
        del answer[missing]
        assert webhook.receive(*signed(answer)) == (400, f"{missing} must be a string")


def test_an_answer_counts_for_what_was_seen_once():
    with opened() as webhook:
        webhook.store.ask([request := asking(required_role="admin"), other := asking("other")])
        differ = "the person saw other arguments than what is asked about"
        wrong = {**answer_to(request, role="admin"), "arguments_digest": other.arguments_digest}
        right = signed(answer_to(request, role="admin", person="ada"))
        assert [
            webhook.receive(*signed(answer_to(asking()))),
            webhook.receive(*signed({**answer_to(request), "request_id": "\ud800"})),
            webhook.receive(*signed(wrong)),
            webhook.receive(*signed(answer_to(request, role="guest\ud800"))),
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


def test_an_answer_in_another_process_reaches_the_store(tmp_path):
    with SQLiteStore(tmp_path / "reviews.db") as mine, SQLiteStore(tmp_path / "reviews.db") as theirs:
        request = asking()
        mine.ask([request])
        web = WebhookReview(NOWHERE, SECRET, store=theirs)
        assert web.receive(*signed(answer_to(request))) == (200, "answered")
        assert mine.take({request.id: request}) == {request.id: Continue()}


def test_without_a_store_requests_wait_in_memory():
    webhook = WebhookReview(NOWHERE, SECRET)
    assert answered(webhook) == (200, "answered")
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
async def test_a_call_is_posted_and_answered_by_callback(decision, more, text):
    inbox = Inbox()
    with listen(inbox, "127.0.0.1", 0) as url, opened(url) as webhook, webhook.listen() as callback:
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
        assert await asyncio.to_thread(posted, callback, *signed(answer_to(request, decision, **more))) == (
            200,
            "answered",
        )
        assert (await reply).text == text
    assert webhook.callback_url == ""


async def test_requests_of_one_moment_go_into_one_message_and_each_gets_its_answer():
    inbox = Inbox()
    with listen(inbox, "127.0.0.1", 0) as url, opened(url) as webhook:
        asked = [asyncio.create_task(webhook.review(asking(f"{number}"))) for number in range(250)]
        await auntil(lambda: len(inbox.requests) == 250)
        for request in inbox.requests:
            assert webhook.receive(*signed(answer_to(request, "edit", revised=request["arguments"])))[0] == 200
        assert await asyncio.gather(*asked) == [Edit(f"{number}") for number in range(250)]
    assert len(inbox.messages) < 30
    assert max(len(message["requests"]) for message in inbox.messages) <= 100


async def test_a_request_that_json_cannot_hold_fails_alone():
    with listen(inbox := Inbox(), "127.0.0.1", 0) as url, opened(url) as webhook:
        bad = asyncio.create_task(Question(webhook, asking({"x": float("nan")})).ado())
        good = asyncio.create_task(Question(webhook, asking()).ado())
        await auntil(lambda: inbox.requests)
        webhook.receive(*signed(answer_to(inbox.requests[0])))
        assert (await bad, await good) == (ExitEarly("the reviewer failed to answer"), Continue())


@pytest.mark.parametrize("statuses", [[503, 429], [500, 599]])
async def test_a_reviewer_who_is_busy_is_asked_again_under_the_same_id(statuses):
    with listen(inbox := Inbox(*statuses), "127.0.0.1", 0) as url, opened(url) as webhook:
        asked = asyncio.create_task(webhook.review(asking()))
        await auntil(lambda: len(inbox.messages) == 3)
        webhook.receive(*signed(answer_to(inbox.requests[0])))
        assert await asked == Continue()
    assert len({headers["webhook-id"] for headers in inbox.headers}) == 1


@pytest.mark.parametrize(
    ("statuses", "tried"),
    [([400], 1), ([401], 1), ([302], 1), ([304], 1), ([404], 1), ([500, 502, 503], 3), ([503, 410], 2)],
)
async def test_a_reviewer_who_cannot_be_reached_approves_nothing(statuses, tried):
    with listen(inbox := Inbox(*statuses), "127.0.0.1", 0) as url, opened(url) as webhook:
        decision = await Question(webhook, asking()).ado()
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


async def test_a_redirect_is_not_followed():
    with ThreadingHTTPServer(("127.0.0.1", 0), Redirecting) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            with opened(f"http://127.0.0.1:{server.server_port}/ask") as webhook:
                decision = await webhook.review(asking())
        finally:
            server.shutdown()
            thread.join(60)
    assert decision == ExitEarly("the reviewer cannot be reached: it answered 307")
    assert Redirecting.visited == ("/ask",)


def url_of(server):
    return f"http://127.0.0.1:{server.getsockname()[1]}/"


@contextmanager
def speaking(reply):
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
async def test_an_answer_that_is_no_http_is_no_delivery(reply):
    with speaking(reply) as url, opened(url, attempts=2) as webhook:
        decision = await webhook.review(asking())
    assert decision.reason.startswith("the reviewer cannot be reached: ")


async def test_proxies_of_the_environment_are_not_used(monkeypatch):
    monkeypatch.setenv("http_proxy", NOWHERE)
    monkeypatch.setenv("no_proxy", "")
    with listen(inbox := Inbox(), "127.0.0.1", 0) as url, opened(url) as webhook:
        asked = asyncio.create_task(webhook.review(asking()))
        await auntil(lambda: inbox.requests)
        webhook.receive(*signed(answer_to(inbox.requests[0])))
        assert await asked == Continue()


async def test_a_port_where_nobody_listens_is_a_refusal():
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = url_of(server)
    with opened(url, attempts=1) as webhook:
        decision = await webhook.review(asking())
    assert decision == ExitEarly("the reviewer cannot be reached: [Errno 111] Connection refused")


async def test_a_reviewer_who_says_nothing_is_not_waited_for():
    with socket.create_server(("127.0.0.1", 0)) as server, opened(url_of(server), attempts=1, timeout=0.05) as webhook:
        decision = await webhook.review(asking())
    assert decision == ExitEarly("the reviewer cannot be reached: timed out")


async def test_a_delivered_message_that_nobody_answers_approves_nothing(stopped_clock, monkeypatch):
    delivered = asyncio.Event()

    async def announce(request):
        await WebhookReview.announce(webhook, request)
        delivered.set()

    store = MemoryStore(clock=stopped_clock.time)
    with listen(Inbox(), "127.0.0.1", 0) as url, store, opened(url, store=store) as webhook:
        monkeypatch.setattr(webhook, "announce", announce)
        question = asyncio.create_task(Question(webhook, asking(timeout=36_000)).ado())
        with stopped_clock.running():
            await auntil(delivered.is_set)
        stopped_clock.advance(36_001)
        assert await question == ExitEarly("no answer within 36000 s", timed_out=True)
        assert [event.kind for event in webhook.store.audit()] == ["asked", "expired"]


async def test_who_is_cancelled_leaves_the_message_to_the_others():
    with listen(inbox := Inbox(), "127.0.0.1", 0) as url, opened(url) as webhook:
        first, second = (asyncio.create_task(webhook.review(asking(name))) for name in ("first", "second"))
        await auntil(lambda: len(webhook.store.pending()) == 2)
        first.cancel()
        await auntil(lambda: "second" in [request["arguments"] for request in inbox.requests])
        (request,) = (request for request in inbox.requests if request["arguments"] == "second")
        webhook.receive(*signed(answer_to(request)))
        assert await second == Continue()
        await asyncio.wait([first], timeout=60)
        assert first.cancelled()


def test_a_loop_that_ends_takes_its_message_along():
    with opened() as webhook:

        async def ends_too_soon():
            task = asyncio.create_task(webhook.review(asking()))
            await auntil(lambda: webhook._bundles)
            return task

        assert asyncio.run(ends_too_soon()).cancelled()
        assert webhook._bundles == {}


def test_a_call_can_be_posted_from_sync_code():
    with listen(inbox := Inbox(), "127.0.0.1", 0) as url, opened(url) as webhook:

        def reviewer():
            ends = time.monotonic() + 60
            while not inbox.requests and time.monotonic() < ends:
                pass
            webhook.receive(*signed(answer_to(inbox.requests[0])))

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
def test_what_is_no_web_address_is_refused(url):
    with pytest.raises(ToolDefinitionError, match=r"^A webhook needs an http or https URL"):
        WebhookReview(url, SECRET)


@pytest.mark.parametrize("given", [{"timeout": 0}, {"timeout": float("nan")}, {"attempts": 0}])
def test_settings_that_deliver_nothing_are_refused(given):
    with pytest.raises(
        ToolDefinitionError,
        match=r"^(timeout must be a number of seconds > 0|attempts must be an int >= 1), not (0|nan)$",
    ):
        WebhookReview(NOWHERE, SECRET, **given)


# The listener.


@pytest.mark.parametrize("length", [None, "-1", "x", "1000001", "9" * 100, "٣".encode().decode("latin-1")])
def test_a_body_of_unknown_or_great_length_is_not_read(length):
    with opened() as webhook, webhook.listen() as url:
        parts = urlsplit(url)
        with closing(http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)) as connection:
            connection.putrequest("POST", "/")
            if length is not None:
                connection.putheader("Content-Length", length)
            connection.endheaders()
            response = connection.getresponse()
            told = response.status, response.read()
    assert told == (400, b"the body needs a Content-Length of at most 1000000")


def test_only_posts_are_taken():
    with opened() as webhook, webhook.listen() as url:
        assert posted(url, None, {}, "GET")[0] == 501
        assert posted(url, b"{}", {}) == (401, NO_HEADERS)


def test_a_store_that_fails_is_told_as_such(caplog):
    with opened() as webhook, webhook.listen() as url:
        webhook.store.close()
        assert posted(url, *signed(answer_to(asking()))) == (500, "the answer could not be stored")
    assert "A callback could not be processed" in caplog.messages


async def test_a_client_that_breaks_off_harms_nobody(caplog):
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


def test_it_listens_on_the_newer_internet_too():
    with listen(lambda *_: (200, "taken"), "::1", 0) as url:
        assert url.startswith("http://[::1]:")
        assert posted(url, b"", {"Content-Length": "0"}) == (200, "taken")


def test_a_reviewer_without_the_secret_learns_nothing_of_it():
    with opened() as webhook, pytest.raises(ReviewRefusedError):
        check_signature(b"guess", b"{}", sign_headers(webhook._key, "msg_1", b"{}", 0), 0)


# Clients that take their time.


def dripping(url):
    """Open a connection whose message never ends."""
    client = socket.create_connection(("127.0.0.1", urlsplit(url).port), timeout=60)
    client.sendall(b"POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\nab")
    return client


def closed(client):
    try:
        return client.recv(1) == b""
    except ConnectionResetError:  # before all was read that it had sent
        return True


def threads(before=frozenset()):
    """Return the threads in which requests are answered, but for those that were there before."""
    return {each for each in threading.enumerate() if each.name.endswith("(process_request_thread)")} - before


async def test_however_many_clients_drip_there_are_few_threads_and_a_callback_is_answered():
    with ExitStack() as clients:
        before = threads()
        with listen(lambda body, headers: (200, "taken"), "127.0.0.1", 0, most=4) as url:
            dripped = [clients.enter_context(dripping(url)) for _ in range(50)]
            assert posted(url, b"", {"Content-Length": "0"}) == (200, "taken")
            assert all(map(closed, dripped[:46]))  # those that had taken longest
            await auntil(lambda: len(threads(before)) <= 4)
            assert posted(url, b"", {"Content-Length": "0"}) == (200, "taken")
        assert all(map(closed, dripped[46:]))
        await auntil(lambda: not threads(before))


def test_a_client_has_some_seconds_for_its_whole_message_however_often_it_sends_something():
    clock, taken = FixedClock(), []

    def take(body, headers):
        taken.append(body)
        return 200, ""

    with listen(take, "127.0.0.1", 0, clock=clock.time) as url, dripping(url) as client:
        assert posted(url, b"", {"Content-Length": "0"}) == (200, "")  # so the one before was admitted, too
        clock.advance(9)
        client.sendall(b"c")
        clock.advance(1)
        assert closed(client)
    assert taken == [b""]


async def test_a_callback_that_is_being_taken_is_answered_although_time_is_up_and_all_room_is_taken():
    clock, inside, go_on = FixedClock(), threading.Event(), threading.Event()

    def slow(body, headers):
        inside.set()
        assert go_on.wait(60)
        return 200, "taken"

    before = threads()
    with listen(slow, "127.0.0.1", 0, most=2, clock=clock.time) as url, ThreadPoolExecutor() as workers:
        first = workers.submit(posted, url, b"", {"Content-Length": "0"})
        assert inside.wait(60)
        inside.clear()
        with dripping(url) as client:
            await auntil(lambda: len(threads(before)) == 2)
            clock.advance(60)
            assert closed(client)  # the server has looked whose time is up
        second = workers.submit(posted, url, b"", {"Content-Length": "0"})
        assert inside.wait(60)
        with dripping(url) as client:
            assert closed(client)  # there is no room, and nobody to be sent away
        go_on.set()
        assert (first.result(60), second.result(60)) == ((200, "taken"), (200, "taken"))


def test_a_message_that_ends_too_early_is_not_taken():
    taken = []
    with (
        listen(lambda body, headers: (taken.append(body) or 200, ""), "127.0.0.1", 0) as url,
        dripping(url) as client,
    ):
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
    assert taken == []


def test_a_message_that_is_whole_too_late_is_not_taken():
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


def test_a_connection_that_no_thread_can_be_had_for_makes_room_again(monkeypatch):
    def none(*_):
        raise RuntimeError("can't start new thread")

    with listen(lambda body, headers: (200, "taken"), "127.0.0.1", 0, most=1) as url:
        with monkeypatch.context() as patched:
            patched.setattr(ThreadingMixIn, "process_request", none)
            with dripping(url) as client:
                assert closed(client)
        assert posted(url, b"", {"Content-Length": "0"}) == (200, "taken")
