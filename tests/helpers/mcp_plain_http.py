"""Servers over HTTP in plain Python that speak the handshake version, and misbehave as their tools say."""

import json
import queue
import threading
from http.server import BaseHTTPRequestHandler

ANY = {"type": "object", "properties": {"text": {"type": "string"}}}


class PlainHandler(BaseHTTPRequestHandler):
    """Answers JSON, with sessions that it can forget."""

    protocol_version = "HTTP/1.1"
    sessions: set = set()  # noqa: RUF012 - shared on purpose
    log: list = []  # noqa: RUF012 - as above
    release = threading.Event()
    """Ends the calls that hang."""

    def log_message(self, *args):
        """Print nothing."""

    def do_GET(self):
        number = self.headers["last-event-id"]
        if number is None:
            self.reply(405, b"")
            return
        error = {"code": -32000, "message": "out of tea"}
        message = {"jsonrpc": "2.0", "id": int(number), "error": error}
        self.reply(200, f"data: {json.dumps(message)}\n\n".encode(), content_type="text/event-stream")

    def do_DELETE(self):
        self.sessions.discard(self.headers["mcp-session-id"])
        self.reply(200, b"")

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, number = message.get("method"), message.get("id")
        if method == "initialize":
            session = f"s{len(self.log)}"
            self.sessions.add(session)
            self.log.append("session")
            info = {"name": "plain", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            self.answer(number, result, session)
        elif method == "server/discover" or self.headers["mcp-session-id"] not in self.sessions:
            self.reply(404, b"")
        elif number is None:
            self.reply(202, b"")
        elif method == "tools/list":
            self.answer(number, {"tools": self.list_tools()})
        else:
            self.log.append(message["params"]["name"])
            getattr(self, f"call_{message['params']['name']}")(number, message["params"]["arguments"].get("text", ""))

    @classmethod
    def list_tools(cls):
        names = [name.removeprefix("call_") for name in dir(cls) if name.startswith("call_")]
        return [{"name": name, "inputSchema": ANY} for name in names]

    def reply(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer(self, number, result, session=None, **headers):
        more = {"mcp_session_id": session} if session else {}
        body = json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()
        self.reply(200, body, content_type="application/json", **more, **headers)

    def call_echo(self, number, text):
        self.answer(number, {"content": [{"type": "text", "text": text}]})

    def call_cut(self, number, text):
        self.close_connection = True
        self.connection.close()
        self.wfile = open("/dev/null", "wb")  # noqa: SIM115, PTH123 - what is flushed afterwards

    def call_cut_body(self, number, text):
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "1000")
        self.end_headers()
        self.wfile.write(b'{"jsonrpc": ')
        self.close_connection = True

    def call_cut_stream(self, number, text):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(b": nothing yet\n\n")
        self.close_connection = True

    def call_streamed(self, number, text):
        self.call_cut_stream(number, text)
        result = {"content": [{"type": "text", "text": "streamed"}]}
        message = {"jsonrpc": "2.0", "id": number, "result": result}
        self.wfile.write(f"event: message\ndata: {json.dumps(message)}\n\n".encode())

    def call_huge(self, number, text):
        self.answer(number, {"content": [{"type": "text", "text": "x" * 200_000}]})

    def call_packed(self, number, text):
        self.answer(number, {"content": []}, content_encoding="gzip")

    def call_forget(self, number, text):
        self.sessions.clear()
        self.call_echo(number, "forgotten")

    def call_plain_text(self, number, text):
        self.reply(200, b"hello", content_type="text/plain")

    def call_sign_out(self, number, text):
        self.reply(401, b'{"error": "invalid_token"}', content_type="application/json")

    def call_unavailable(self, number, text):
        self.reply(503, b"no", content_type="text/plain")

    def call_own_code(self, number, text):
        error = {"code": -32000, "message": "out of tea"}
        body = json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode()
        self.reply(200, body, content_type="application/json")

    def call_hang(self, number, text):
        self.release.wait(60)
        self.call_echo(number, "late")

    def call_big_event(self, number, text):
        self.call_cut_stream(number, text)
        self.wfile.write(b"event: message\ndata: " + b"x" * 200_000 + b"\n\n")

    def call_page(self, number, text):
        self.reply(200, b"<h1>Please wait</h1>", content_type="text/html")

    def call_accepted(self, number, text):
        self.reply(202, b"")

    def call_gone(self, number, text):
        self.reply(404, b"")

    def call_gone_page(self, number, text):
        self.reply(404, b"<h1>Not here</h1>", content_type="text/html")

    def call_gone_in_words(self, number, text):
        self.refuse(number, -32001, "Session not found", 404)

    def call_moved(self, number, text):
        self.reply(307, b"", location="http://127.0.0.1:1/")

    def call_redirected(self, number, text):
        self.reply(307, b"", location=f"{self.path.partition('?')[0]}?again")

    def call_continued(self, number, text):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(f"id: {number}\nretry: 1\ndata: \n\n".encode())
        self.close_connection = True

    def call_empty(self, number, text):
        self.reply(200, b"", content_type="application/json")

    def call_broken_json(self, number, text):
        self.reply(200, b'{"jsonrpc": "2.0", ', content_type="application/json")

    def call_other_json(self, number, text):
        self.reply(200, b'{"paid": true}', content_type="application/json")

    def call_internal(self, number, text):
        self.refuse(number, -32603, "boom")

    def call_is_error(self, number, text):
        self.answer(number, {"content": [{"type": "text", "text": "out of tea"}], "isError": True})

    def call_forbidden(self, number, text):
        self.reply(403, b"<h1>Blocked</h1>", content_type="text/html")

    def call_too_many(self, number, text):
        self.reply(429, b"")

    def call_failed(self, number, text):
        self.reply(500, b'{"error": "boom"}', content_type="application/json")

    def call_bad_gateway(self, number, text):
        self.reply(502, b"<h1>Bad gateway</h1>", content_type="text/html")

    def call_slow_gateway(self, number, text):
        self.reply(504, b"")

    def refuse(self, number, code, message, status=200):
        error = {"code": code, "message": message}
        body = json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode()
        self.reply(status, body, content_type="application/json")


class StatelessHandler(PlainHandler):
    """Answers JSON, without sessions."""

    sessions: set = {None}  # noqa: RUF012 - as above

    def answer(self, number, result, session=None, **headers):
        super().answer(number, result, None, **headers)


class MovedHandler(PlainHandler):
    """Redirects what is posted to another path, as web frameworks do for a slash at the end."""

    def do_POST(self):
        if self.path.startswith("/moved"):
            super().do_POST()
            return
        self.rfile.read(int(self.headers["content-length"]))
        self.log.append("redirect")
        self.reply(307, b"", location=f"/moved{self.path}")

    def call_redirected(self, number, text):
        if "?" in self.path:
            self.reply(500, b"no")
        else:
            super().call_redirected(number, text)


class EventsHandler(PlainHandler):
    """Answers in one stream of events for each session, as servers did before streamable HTTP."""

    streams: dict = {}  # noqa: RUF012 - shared on purpose

    def do_GET(self):
        name = f"s{len(self.streams)}"
        events = self.streams[name] = queue.SimpleQueue()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.log.append("session")
        self.wfile.write(f"event: endpoint\ndata: /messages?session={name}\n\n".encode())
        while (text := events.get()) is not None:
            self.wfile.write(f"event: message\ndata: {text}\n\n".encode())
        self.close_connection = True

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.events = self.streams[self.path.rpartition("=")[2]]
        method, number = message.get("method"), message.get("id")
        if method == "initialize":
            info = {"name": "events", "version": "1"}
            self.answer(number, {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": info})
        elif number is None:
            self.reply(202, b"")
        elif method == "tools/list":
            self.answer(number, {"tools": self.list_tools()})
        elif method == "tools/call":
            self.log.append(message["params"]["name"])
            getattr(self, f"call_{message['params']['name']}")(number, message["params"]["arguments"].get("text", ""))
        else:
            self.refuse(number, -32601, "Method not found")

    def say(self, text):
        self.events.put(text)
        self.reply(202, b"")

    def answer(self, number, result, *more, **headers):
        self.say(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}))

    def refuse(self, number, code, message, status=200):
        self.say(json.dumps({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}))

    def call_own_code(self, number, text):
        self.refuse(number, -32000, "out of tea")

    def call_hang(self, number, text):
        self.reply(202, b"")
        self.release.wait(60)

    def call_cut_stream(self, number, text):
        self.events.put(None)
        self.reply(202, b"")

    def call_big_event(self, number, text):
        self.say("x" * 200_000)

    def call_broken_json(self, number, text):
        self.say(json.dumps({"jsonrpc": "2.0", "id": number, "result": 5}))


class MovedEventsHandler(MovedHandler, EventsHandler):
    """Takes requests at another path than the one that it names."""
