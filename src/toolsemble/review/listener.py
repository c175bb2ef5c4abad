"""A small HTTP server for callbacks."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer, ThreadingTCPServer
from typing import Any, TypeAlias

from toolsemble.review.callback import LARGEST
from toolsemble.review.event import LOGGER

Receive: TypeAlias = Callable[[bytes, Mapping[str, str]], tuple[int, str]]


@contextmanager
def listening(receive: Receive, host: str, port: int) -> Iterator[str]:
    """Give the URL at which posted messages go to a function, while the block runs; port 0 is any free one.

    >>> with listening(lambda body, headers: (200, "taken"), "127.0.0.1", 0) as url:
    ...     url.startswith("http://127.0.0.1:")
    True
    """
    with _Server(receive, host, port) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="toolsemble-listener", daemon=True)
        thread.start()
        try:
            shown = f"[{host}]" if ":" in host else host
            yield f"http://{shown}:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingTCPServer):
    # Not http.server's own class, which asks the name service who it is before it listens.
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, receive: Receive, host: str, port: int) -> None:
        self.receive = receive
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - as the base class calls it
        LOGGER.debug("A callback from %s broke off", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = 10.0  # a client that says nothing does not keep its thread
    server_version = "toolsemble"
    sys_version = ""
    server: BaseServer

    def do_POST(self) -> None:
        """Hand the message over, and answer with what became of it."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 10 and int(length) <= LARGEST):  # noqa: PLR2004 - digits
            self._answer(400, f"the body needs a Content-Length of at most {LARGEST}")
            return
        body = self.rfile.read(int(length))
        try:
            status, text = self.server.receive(body, dict(self.headers.items()))  # type: ignore[attr-defined]  # ours
        except Exception:  # noqa: BLE001 - the store failed; whoever answers may try again
            LOGGER.exception("A callback could not be taken")
            status, text = 500, "the answer could not be stored"
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
