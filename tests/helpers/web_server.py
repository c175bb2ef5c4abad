"""A web server on this machine that answers as a test says, and remembers what it was asked."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Web:
    """Answers by path; an answer is a body, or a status, headers and a body, or a function of the handler."""

    def __init__(self, server):
        self._server = server
        self.answers = {}
        self.requests = []
        self.closing = threading.Event()

    def url(self, path="/", host="127.0.0.1"):
        scheme = "https" if hasattr(self._server.socket, "context") else "http"
        return f"{scheme}://{host}:{self._server.server_port}{path}"

    def html(self, path, body, content_type="text/html; charset=utf-8"):
        self.answers[path] = (200, {"Content-Type": content_type}, body)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    told_of_connection = False

    def log_message(self, *args):
        """Stay silent."""

    def answer(self):
        web = self.server.web
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        web.requests.append((self.command, self.path, dict(self.headers), body))
        found = web.answers.get(self.path, web.answers.get(self.path.partition("?")[0], (404, {}, b"no such page")))
        self.close_connection, self.told_of_connection = True, False
        with suppress(OSError):  # the client may have disconnected
            found(self) if callable(found) else self.send(*(found if isinstance(found, tuple) else (200, {}, found)))

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = do_PATCH = answer  # noqa: N815 - the library's names

    def send_header(self, keyword, value):
        self.told_of_connection |= keyword.lower() == "connection"
        super().send_header(keyword, value)

    def end_headers(self):
        if self.close_connection and not self.told_of_connection:
            # Else a client may send its next request just when the connection ends, and gets no answer to it.
            self.send_header("Connection", "close")
        super().end_headers()

    def send(self, status, headers, body):
        body = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 100  # many clients come at once

    def handle_error(self, request, client_address):
        """Stay silent: clients under test go away in the middle."""


@contextmanager
def serving(tls=None, address="127.0.0.1"):
    """Serve until the end of the block; with a TLS context, encrypted."""
    with Server((address, 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.web = web = Web(server)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield web
        finally:
            web.closing.set()
            server.shutdown()
            thread.join(30)
