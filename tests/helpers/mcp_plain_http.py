"""A server over HTTP in plain Python that speaks the handshake version, and misbehaves as its tools say."""

import json
from http.server import BaseHTTPRequestHandler

ANY = {"type": "object", "properties": {"text": {"type": "string"}}}
NAMES = [
    "echo",
    "cut",
    "cut_body",
    "huge",
    "packed",
    "forget",
    "plain_text",
    "unavailable",
    "sign_out",
    "own_code",
    "cut_stream",
    "streamed",
]


class PlainHandler(BaseHTTPRequestHandler):
    """Answers JSON, with sessions that it can forget."""

    protocol_version = "HTTP/1.1"
    sessions: set = set()  # noqa: RUF012 - shared on purpose
    log: list = []  # noqa: RUF012 - as above

    def log_message(self, *args):
        """Print nothing."""

    def do_GET(self):
        self.reply(405, b"")

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
            self.answer(number, {"tools": [{"name": name, "inputSchema": ANY} for name in NAMES]})
        else:
            self.log.append(message["params"]["name"])
            getattr(self, f"call_{message['params']['name']}")(number, message["params"]["arguments"].get("text", ""))

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
