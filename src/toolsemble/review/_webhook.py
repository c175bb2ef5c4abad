"""A reviewer at a URL: signed requests are posted there, and signed answers come back."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, TypeAlias
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, Request

from toolsemble._runtime.checks import check_count
from toolsemble._runtime.threads import ThreadPerJob, fork_safe_lock
from toolsemble._vocabulary.call import new_id
from toolsemble._vocabulary.errors import ReviewRefusedError, ToolDefinitionError
from toolsemble.review._automatic import MAX_BYTES, Callback
from toolsemble.review._request import LOGGER, ExitEarly, ReviewDecision, ReviewRequest
from toolsemble.review._store.queue import QueueReview
from toolsemble.review._store.store import MemoryStore, ReviewStoreProtocol
from toolsemble.review._webhook_service import check_signature, sign_headers, webhook_key

PATIENCE = 10.0
"""Seconds for a client to send a whole message, and again to read the reply."""


class Connections:
    """Open connections, oldest first, each with the time at which it is closed.

    A connection whose message is being processed is held and not closed.

    >>> import time
    >>> ours, theirs = socket.socketpair()
    >>> connections = Connections(1, time.monotonic)
    >>> connections.admit(ours), connections.hold(ours)
    (True, True)
    >>> with socket.socket() as other:
    ...     connections.admit(other)
    False
    >>> ours.close(), theirs.close()
    (None, None)
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
        """Allow a connection to be closed, after its client had time to read the reply."""
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
            with suppress(OSError):  # the client has closed it already
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
    """The URL of a webhook, and how often delivery is attempted.

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
    """Run a server that passes posted messages to a function; yield its URL. Port 0 is any free port.

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
            self.connections.forget(request)  # there is no thread to do it
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


# Requests made within _TOGETHER seconds go into one message, up to _MAX_REQUESTS and _MAX_CHARACTERS.
_TOGETHER = 0.01
_MAX_REQUESTS = 100
_MAX_CHARACTERS = 200_000


class _UnreachableError(Exception):
    """The message could not be delivered."""


class WebhookReview(QueueReview):
    """A reviewer that posts requests to a URL, and waits for a signed answer.

    The message is a JSON object with ``requests`` and ``callback_url``, signed as the Standard Webhooks specification
    says. A success status only means that it was delivered: only a signed answer, by :meth:`receive` or in the store,
    lets a call run. If it cannot be delivered, the call is rejected.

    :param url: where requests are posted, http or https
    :param secret: the secret that messages and answers are signed with; ``whsec_`` and base64, or any str
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
            self._bundles.pop(loop, None)  # even if a full one was replaced: the next request starts another
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
