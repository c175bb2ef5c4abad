"""A webhook reviewer: posts signed requests to a URL, and receives signed answers."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, TypeAlias
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, Request

from toolsemble._runtime.checks import check_count
from toolsemble._runtime.signing import secret_bytes
from toolsemble._runtime.threads import ThreadPerJob, fork_safe_lock
from toolsemble._vocabulary.call import new_id
from toolsemble._vocabulary.errors import ReviewRefusedError, ToolDefinitionError
from toolsemble.review._automatic import MAX_BYTES, Callback
from toolsemble.review._request import LOGGER, Continue, Edit, ExitEarly, ReviewDecision, ReviewRequest
from toolsemble.review._store.queue import QueueReview
from toolsemble.review._store.rows import MAX_CLOCK_SKEW, split_decision
from toolsemble.review._store.store import MemoryStore, ReviewStoreProtocol

_PREFIX = "whsec_"


def webhook_key(secret: str | bytes) -> bytes:
    """Return the key of a secret: base64 after ``whsec_``, as in the specification, else the text itself.

    >>> webhook_key("whsec_c2VjcmV0"), webhook_key("secret")
    (b'secret', b'secret')
    """
    if not isinstance(secret, str) or not secret.startswith(_PREFIX):
        return secret_bytes(secret)
    try:
        return secret_bytes(base64.b64decode(secret.removeprefix(_PREFIX), validate=True))
    except binascii.Error as error:
        raise ToolDefinitionError(f"A webhook secret must be base64 after '{_PREFIX}': {error}") from None


def sign_headers(key: bytes, id: str, body: bytes, now: float) -> dict[str, str]:
    """Return the headers with the id, the time and the signature of a message.

    >>> sign_headers(b"secret", "msg_1", b"{}", 1700000000.0)["webhook-timestamp"]
    '1700000000'
    """
    timestamp = f"{now:.0f}"
    return {
        "webhook-id": id,
        "webhook-timestamp": timestamp,
        "webhook-signature": _signature(key, id, timestamp, body).decode(),
    }


def check_signature(key: bytes, body: bytes, headers: Mapping[str, str], now: float) -> None:
    """Raise ReviewRefusedError for a message that is not signed with the key, or is too old or too new.

    >>> check_signature(b"secret", b"{}", sign_headers(b"secret", "msg_1", b"{}", 1700000000.0), 1700000000.0)
    """
    given = {f"{name}".lower(): f"{value}" for name, value in headers.items()}
    id_, timestamp = given.get("webhook-id", ""), given.get("webhook-timestamp", "")
    # With a dot, the end of an id could be read as a timestamp.
    if not re.fullmatch(r"[^.]+", id_) or not re.fullmatch(r"[0-9]{1,12}", timestamp):
        raise ReviewRefusedError("the message has no webhook-id or no webhook-timestamp")
    expected = _signature(key, id_, timestamp, body)
    signatures = given.get("webhook-signature", "").split(" ")
    if not any(hmac.compare_digest(expected, each.encode(errors="replace")) for each in signatures):
        raise ReviewRefusedError("the signature does not match")
    if abs(now - int(timestamp)) > MAX_CLOCK_SKEW:
        raise ReviewRefusedError("the message is too old, or from the future; check the clock")


def _signature(key: bytes, id: str, timestamp: str, body: bytes) -> bytes:
    signed = f"{id}.{timestamp}.".encode(errors="replace") + body
    return b"v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256))


_UNREADABLE = "the message is not from a WebhookReview"
_ADDED = ("deadline", "arguments_digest")  # computed properties, posted for services without this library


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """The message that a WebhookReview posts: requests for approval, and the URL for their answers.

    >>> WebhookMessage((ReviewRequest("Pays", "pay", {"order": 7}),), "https://example.com/answers").requests[0].tool_name
    'pay'
    """

    requests: tuple[ReviewRequest, ...]
    """The requests; each gets its own answer."""
    callback_url: str
    """The URL to which answers are posted; "" if the reviewer has none."""


def read_webhook(
    body: bytes, headers: Mapping[str, str], secret: str | bytes, *, now: float | None = None
) -> WebhookMessage:
    """Return the message in a request body; raise ReviewRefusedError if it is not signed with the secret.

    A message may arrive twice, because a WebhookReview posts it again if it gets no answer: requests have the same ids.

    :param body: the body, byte by byte as it was posted
    :param headers: the HTTP headers, in any case
    :param secret: the secret of the WebhookReview
    :param now: the time in seconds since the epoch; None: the clock

    >>> read_webhook(b"{}", {}, "secret")
    Traceback (most recent call last):
    ...
    toolsemble.ReviewRefusedError: the message has no webhook-id or no webhook-timestamp
    """
    check_signature(webhook_key(secret), body, headers, time.time() if now is None else now)
    try:
        values = json.loads(body)
        requests = tuple(_read_request(each) for each in values["requests"])
        return WebhookMessage(requests, str(values["callback_url"]))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise ReviewRefusedError(_UNREADABLE) from None


def sign_answer(
    request: ReviewRequest,
    decision: ReviewDecision,
    secret: str | bytes,
    *,
    person: str = "",
    role: str = "",
    now: float | None = None,
) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of an answer, to be posted to the callback URL of its message.

    The response status is 200 for success, 404 for an unknown request, and 409 for a request that was already answered
    or closed. The response text has the reason.

    :param request: the request that the person saw
    :param decision: Continue, Edit or ExitEarly
    :param secret: the secret of the WebhookReview
    :param person: who decided
    :param role: the person's role, if the request requires one
    :param now: the time in seconds since the epoch; None: the clock

    >>> request = ReviewRequest("Pays", "pay", {"order": 7}, id="4f1c")
    >>> body, headers = sign_answer(request, Continue(), "secret", person="ada")
    >>> json.loads(body)["decision"], sorted(headers)
    ('continue', ['content-type', 'webhook-id', 'webhook-signature', 'webhook-timestamp'])
    """
    answer: dict[str, Any] = {
        "request_id": request.id,
        "arguments_digest": request.arguments_digest,
        "person": person,
        "role": role,
        **_to_fields(decision),
    }
    body = json.dumps(answer).encode()
    signed = sign_headers(webhook_key(secret), f"msg_{new_id()}", body, time.time() if now is None else now)
    return body, {"content-type": "application/json", **signed}


def _to_fields(decision: ReviewDecision) -> dict[str, Any]:
    """Return a decision as the fields of an answer; raise ReviewRefusedError for anything else."""
    kind, text, always = split_decision(decision)
    if type(decision) is Continue:
        return {"decision": kind, "always": always}
    return {"decision": kind, "revised" if type(decision) is Edit else "reason": text}


def _read_request(values: dict[str, Any]) -> ReviewRequest:
    return ReviewRequest.from_json(json.dumps({name: value for name, value in values.items() if name not in _ADDED}))


PATIENCE = 10.0
"""Seconds that a client has to send a whole message, and again to read the reply."""


class Connections:
    """Open connections, oldest first, each with the time at which it is closed.

    A connection whose message is being processed is held and not closed.
    """

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._lock = fork_safe_lock(self)
        self._deadlines: dict[socket.socket, float] = {}
        self._held: set[socket.socket] = set()

    def admit(self, connection: socket.socket) -> bool:
        """Add a new connection, closing the oldest one if necessary; return whether there was room."""
        with self._lock:
            if len(self._deadlines) + len(self._held) >= self._most:
                if not self._deadlines:
                    return False
                self._close([next(iter(self._deadlines))])
            self._deadlines[connection] = self._clock() + PATIENCE
        return True

    def hold(self, connection: socket.socket) -> bool:
        """Protect a connection from being closed; return whether it is still open."""
        with self._lock:
            if self._deadlines.pop(connection, None) is None:
                return False
            self._held.add(connection)
        return True

    def release(self, connection: socket.socket) -> None:
        """Allow a connection to be closed, after its client has had time to read the reply."""
        with self._lock:
            self._held.discard(connection)
            self._deadlines[connection] = self._clock() + PATIENCE

    def forget(self, connection: socket.socket) -> None:
        """Remove a connection that has ended."""
        with self._lock:
            self._held.discard(connection)
            self._deadlines.pop(connection, None)

    def close_late(self) -> None:
        """Close the connections that have timed out."""
        with self._lock:
            now = self._clock()
            self._close([connection for connection, deadline in self._deadlines.items() if deadline <= now])

    def close_all(self) -> None:
        """Close all connections that are not held."""
        with self._lock:
            self._close(list(self._deadlines))

    def _close(self, connections: Iterable[socket.socket]) -> None:
        for connection in connections:
            del self._deadlines[connection]
            with suppress(OSError):  # the client has already closed it
                connection.shutdown(socket.SHUT_RDWR)  # wakes its thread, which closes it


_BACKOFF = 0.2
_POST_THREADS = ThreadPerJob(daemon=True)


def _build_opener() -> OpenerDirector:
    # No redirects, no proxies from the environment, no file URLs.
    opener = OpenerDirector()
    opener.addheaders = [("User-Agent", "toolsemble")]
    for handler in (HTTPHandler(), HTTPSHandler()):
        opener.add_handler(handler)
    return opener


class Delivery:
    """The delivery of messages to a webhook's URL, with retries.

    >>> Delivery("ftp://example.com", b"secret", 10.0, 3)
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: A webhook needs an http or https URL in ASCII, with a host and no password
    """

    def __init__(self, url: str, key: bytes, timeout: float, attempts: int) -> None:
        if not _is_http_url(url):
            raise ToolDefinitionError("A webhook needs an http or https URL in ASCII, with a host and no password")
        if not timeout > 0:
            raise ToolDefinitionError(f"timeout must be a number of seconds > 0, not {timeout!r:.80}")
        check_count("attempts", attempts, least=1)
        self._url = url
        self._key = key
        self._timeout = timeout
        self._attempts = attempts
        self._opener = _build_opener()

    async def deliver(self, body: bytes) -> str | None:
        """Post a message, with retries; return the problem, or None when it was accepted."""
        id_ = f"msg_{new_id()}"
        problem, again = None, True
        for attempt in range(self._attempts):
            if attempt:
                await asyncio.sleep(_BACKOFF * 2 ** (attempt - 1))
            problem, again = await asyncio.wrap_future(_POST_THREADS.submit(self._post, id_, body))
            if not again:
                break
        return problem

    def _post(self, id: str, body: bytes) -> tuple[str | None, bool]:
        """Return the problem, if any, and whether a retry may help."""
        headers = {"Content-Type": "application/json", **sign_headers(self._key, id, body, time.time())}
        request = Request(self._url, body, headers, method="POST")  # noqa: S310 - the scheme was checked: http or https
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                status = response.status
        except URLError as error:
            return f"{error.reason}", True
        except (OSError, HTTPException) as error:
            return f"{error}" or type(error).__name__, True
        if status // 100 == 2:  # noqa: PLR2004 - 200 to 299: accepted
            return None, False
        return f"it answered {status}", status == 429 or status >= 500  # noqa: PLR2004 - too many requests, server errors


def _is_http_url(url: object) -> bool:
    try:
        if not isinstance(url, str) or not re.fullmatch(r"[!-~]+", url):
            return False
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and not parts.username
    except ValueError:
        return False


Receive: TypeAlias = Callable[[bytes, Mapping[str, str]], tuple[int, str]]


_MAX_CONNECTIONS = 64


@contextmanager
def listen(
    receive: Receive, host: str, port: int, *, most: int = _MAX_CONNECTIONS, clock: Callable[[], float] = time.monotonic
) -> Iterator[str]:
    """Run a server that passes posted messages to a function; yield its URL. Port 0 picks a free port.

    A client has ten seconds for its whole message. When there are too many connections, the oldest one is closed.

    :param most: the maximum number of connections, and so of threads
    :param clock: returns monotonic seconds

    >>> with listen(lambda body, headers: (200, "taken"), "127.0.0.1", 0) as url:
    ...     url.startswith("http://127.0.0.1:")
    True
    """
    with _Server(receive, host, port, Connections(most, clock)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="toolsemble-listener", daemon=True)
        thread.start()
        try:
            shown = f"[{host}]" if ":" in host else host
            yield f"http://{shown}:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingTCPServer):
    # Not HTTPServer, which does a DNS lookup before it listens.
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, receive: Receive, host: str, port: int, connections: Connections) -> None:
        self.receive = receive
        self.connections = connections
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Process a request in a new thread; close the connection if there are too many."""
        if not self.connections.admit(request):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self.connections.forget(request)  # no thread was started to do it
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Process a request, then remove its connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.forget(request)

    def service_actions(self) -> None:
        """Close the connections that have timed out; called regularly by the server loop."""
        self.connections.close_late()

    def server_close(self) -> None:
        """Close the server and all connections that are not held."""
        super().server_close()
        self.connections.close_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        LOGGER.debug("A callback from %s was interrupted", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE  # of a single read; the server limits the whole message
    server_version = "toolsemble"
    sys_version = ""
    server: _Server

    def do_POST(self) -> None:
        """Pass the message on, and send the outcome as the response."""
        length = self.headers.get("Content-Length", "")
        is_number = length.isascii() and length.isdigit() and len(length) < 10  # noqa: PLR2004 - digits
        if not is_number or int(length) > MAX_BYTES or "Transfer-Encoding" in self.headers:
            self._answer(400, f"the body needs a Content-Length of at most {MAX_BYTES}")
            return
        body = self.rfile.read(int(length))
        if len(body) < int(length) or not self.server.connections.hold(self.request):
            return  # the client disconnected, or took too long
        try:
            status, text = self.server.receive(body, dict(self.headers.items()))
        except Exception:  # the store failed; the client may try again
            LOGGER.exception("A callback could not be processed")
            status, text = 500, "the answer could not be stored"
        self.server.connections.release(self.request)
        self._answer(status, text)

    def _answer(self, status: int, text: str) -> None:
        body = text.encode(errors="replace")
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", f"{len(body)}")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        LOGGER.debug("callback: " + format, *args)


# Requests within _TOGETHER seconds are sent in one message, up to _MAX_REQUESTS and _MAX_CHARACTERS.
_TOGETHER = 0.01
_MAX_REQUESTS = 100
_MAX_CHARACTERS = 200_000


class _UnreachableError(Exception):
    """The message could not be delivered."""


class WebhookReview(QueueReview):
    """A reviewer that posts requests to a URL, and waits for a signed answer.

    The message is a JSON object with ``requests`` and ``callback_url``, signed according to the Standard Webhooks
    specification. A success status only means that it was delivered: only a signed answer, by :meth:`receive` or in the
    store, lets a call run. If it cannot be delivered, the call is rejected.

    :param url: where requests are posted, http or https
    :param secret: the signing secret for messages and answers; ``whsec_`` and base64, or any str
    :param store: the store of requests; by default in memory
    :param callback_url: the URL to which answers are posted; part of the message
    :param timeout: seconds for one attempt to post
    :param attempts: the maximum number of attempts
    :param poll: seconds between checks of the store

    >>> webhook = WebhookReview("https://example.com/reviews", "secret")
    >>> webhook.receive(b"{}", {})
    (401, 'the message has no webhook-id or no webhook-timestamp')
    """

    def __init__(
        self,
        url: str,
        secret: str | bytes,
        *,
        store: ReviewStoreProtocol | None = None,
        callback_url: str = "",
        timeout: float = 10.0,
        attempts: int = 3,
        poll: float = 0.05,
    ) -> None:
        self._key = webhook_key(secret)
        self._delivery = Delivery(url, self._key, timeout, attempts)
        self._bundles: dict[asyncio.AbstractEventLoop, _Bundle] = {}
        self.callback_url = callback_url
        super().__init__(MemoryStore(secret=self._key) if store is None else store, poll=poll)

    async def review(self, request: ReviewRequest) -> ReviewDecision:
        """Return the answer; a rejection if the request cannot be delivered."""
        try:
            return await super().review(request)
        except _UnreachableError as problem:
            return ExitEarly(f"the reviewer cannot be reached: {problem}")

    async def announce(self, request: ReviewRequest) -> None:
        """Post the request, in one message with concurrent ones."""
        loop, text = asyncio.get_running_loop(), _to_json(request)
        bundle = self._bundles.get(loop)
        if bundle is None or not bundle.has_room:
            bundle = self._bundles[loop] = _Bundle()
            bundle.task = loop.create_task(self._send(loop, bundle))
        bundle.requests.append(text)
        # Shielded: the message also contains requests that are not cancelled.
        problem = await asyncio.shield(bundle.task)
        if problem is not None:
            raise _UnreachableError(problem)

    def receive(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        """Store a posted answer, from any web framework; return the HTTP status and text of the response.

        The body is a JSON object with ``request_id``, ``decision`` ("continue", "edit" or "exit_early"),
        ``arguments_digest`` as it was posted, and, where they apply, ``revised``, ``reason``, ``always``, ``person``
        and ``role``. The status is 200 for success, 400 for an invalid body, 401 for a missing, wrong or outdated
        signature, 404 for an unknown request, and 409 for an answer that is refused.
        """
        if len(body) > MAX_BYTES:
            return 400, f"the body is larger than {MAX_BYTES} bytes"
        try:
            check_signature(self._key, body, headers, time.time())
        except ReviewRefusedError as refusal:
            LOGGER.warning("refused: a callback: %s", refusal)
            return 401, f"{refusal}"
        try:
            answer = Callback.read(body)
        except ValueError as problem:
            return 400, f"{problem}"
        request = self.store.find(answer.request_id)
        if request is None:
            return 404, "the request is unknown"
        return self._store_answer(request, answer)

    @contextmanager
    def listen(self, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
        """Run a small server for answers during the block; yield its URL, which is the callback URL meanwhile."""
        with listen(self.receive, host, port) as url:
            before, self.callback_url = self.callback_url, url
            try:
                yield url
            finally:
                self.callback_url = before

    def _store_answer(self, request: ReviewRequest, answer: Callback) -> tuple[int, str]:
        try:
            self.store.answer(
                request,
                answer.decision,
                person=answer.person,
                role=answer.role,
                arguments_digest=answer.arguments_digest,
            )
        except ReviewRefusedError as refusal:
            return 409, f"{refusal}"
        return 200, "answered"

    async def _send(self, loop: asyncio.AbstractEventLoop, bundle: _Bundle) -> str | None:
        try:
            await asyncio.sleep(_TOGETHER)
        finally:
            self._bundles.pop(loop, None)  # even if it replaced a full one: the next request starts another
        return await self._delivery.deliver(self._message(bundle.requests))

    def _message(self, requests: list[str]) -> bytes:
        head = json.dumps({"type": "review.requested", "callback_url": self.callback_url})
        return f'{head[:-1]}, "requests": [{", ".join(requests)}]}}'.encode()


class _Bundle:
    """A message with several requests, and the task that sends it."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.task: asyncio.Task[str | None]

    @property
    def has_room(self) -> bool:
        return len(self.requests) < _MAX_REQUESTS and sum(map(len, self.requests)) < _MAX_CHARACTERS


def _to_json(request: ReviewRequest) -> str:
    """Return a request as strict JSON; raise ValueError for NaN and infinity."""
    values = json.loads(request.to_json())
    shown = {**values, "deadline": request.deadline, "arguments_digest": request.arguments_digest}
    return json.dumps(shown, allow_nan=False)
