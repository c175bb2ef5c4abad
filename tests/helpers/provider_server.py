"""A provider's HTTP API on this machine: it gives one scripted answer after the other, and keeps what it was sent."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager

from helpers.web_server import serving


class ProviderServer:
    """Answers are dicts (sent as JSON), lists of dicts (sent as events), (status, headers, body), or functions."""

    def __init__(self, web, path, write_event):
        web.answers[path] = self._answer
        self._web = web
        self._write_event = write_event
        self._lock = threading.Lock()
        self.url = web.url("")
        self.answers = []
        self.bodies = []
        self.headers = []
        self.ports = []

    def _answer(self, handler):
        _, _, headers, body = self._web.requests[-1]
        with self._lock:
            answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        self.bodies.append(json.loads(body))
        self.headers.append({name.lower(): value for name, value in headers.items()})
        self.ports.append(handler.client_address[1])
        handler.close_connection = False
        if isinstance(answer, list):
            answer = self.streaming(*answer, ends=True)
        if callable(answer):
            answer(handler)
        elif isinstance(answer, dict):
            handler.send(200, {"Content-Type": "application/json"}, json.dumps(answer))
        else:
            handler.send(*answer)

    def streaming(self, *events, ends=False, then=None):
        """Return a streamed answer, to its end or until the connection breaks; ``then`` is called before."""

        def answer(handler):
            handler.send_response(200)
            handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            for event in events:
                data = event.encode() if isinstance(event, str) else self._write_event(event)
                handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                handler.wfile.flush()
            if then is not None:
                then(handler)
            if ends:
                handler.wfile.write(b"0\r\n\r\n")
            else:
                handler.close_connection = True

        return answer


@contextmanager
def provider_serving(path, write_event):
    """Serve until the end of the block."""
    with serving() as web:
        yield ProviderServer(web, path, write_event)
