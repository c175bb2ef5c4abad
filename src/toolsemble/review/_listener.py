"""A small HTTP server that receives callbacks."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer, ThreadingTCPServer
from typing import Any, TypeAlias

from toolsemble.review._audit import LOGGER
from toolsemble.review._callback import MAX_BYTES
from toolsemble.review._connections import PATIENCE, Connections

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
    server: BaseServer

    def do_POST(self) -> None:
        """Pass the message on, and send the outcome as the response."""
        length = self.headers.get("Content-Length", "")
        is_number = length.isascii() and length.isdigit() and len(length) < 10  # noqa: PLR2004 - digits
        if not is_number or int(length) > MAX_BYTES or "Transfer-Encoding" in self.headers:
            self._answer(400, f"the body needs a Content-Length of at most {MAX_BYTES}")
            return
        body = self.rfile.read(int(length))
        if len(body) < int(length) or not self.server.connections.hold(self.request):  # type: ignore[attr-defined]  # ours
            return  # the client disconnected, or took too long
        try:
            status, text = self.server.receive(body, dict(self.headers.items()))  # type: ignore[attr-defined]  # ours
        except Exception:  # the store failed; the client may try again
            LOGGER.exception("A callback could not be processed")
            status, text = 500, "the answer could not be stored"
        self.server.connections.release(self.request)  # type: ignore[attr-defined]  # as above
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
