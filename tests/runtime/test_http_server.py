"""What clients can hold open at a server: connections, and requests that do not arrive."""

import asyncio
import socket
import threading
from contextlib import ExitStack, contextmanager

import httpx
import pytest
import uvicorn

from helpers.wait import LONG, until
from toolsemble._runtime.http_server import bound_server

HALF = [
    b"",
    b"GET / HT",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n12345",
    b"POST /early HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
]


class App:
    """Reads a whole body, then answers when it is told to; at ``/early`` it answers at once."""

    def __init__(self):
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.reached = threading.Event()

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        while scope["path"] != "/early" and (await receive()).get("more_body"):
            pass
        self.reached.set()
        if scope["path"] == "/slow":
            await asyncio.to_thread(self.may_answer.wait, LONG)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def serving(app, connections=100, seconds=LONG):
    """Serve with limits; yield the port, and a function that connects and sends."""
    settings = bound_server(connections, seconds)
    config = uvicorn.Config(app, port=0, log_level="critical", lifespan="off", timeout_graceful_shutdown=1, **settings)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    with ExitStack() as opened:
        until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]

        def connect(data=b""):
            connection = opened.enter_context(socket.create_connection(("127.0.0.1", port), LONG))
            connection.sendall(data)
            return connection

        try:
            yield port, connect, server
        finally:
            server.should_exit = True
            thread.join(LONG)


def is_closed(connection):
    """Read until the server closes the connection; fail if it does not."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("half", HALF)
def test_a_request_that_does_not_arrive_in_time_is_closed(half):
    with serving(App(), seconds=0.05) as (_, connect, _server):
        assert is_closed(connect(half))


def test_a_request_that_has_arrived_may_take_longer():
    app = App()
    app.may_answer.clear()
    with serving(app, seconds=0.05) as (port, connect, _):
        answered = []
        waiting = threading.Thread(
            target=lambda: answered.append(httpx.get(f"http://127.0.0.1:{port}/slow", timeout=LONG).text)
        )
        waiting.start()
        assert app.reached.wait(LONG)
        assert is_closed(connect(HALF[1]))  # later than the first, which is still there
        app.may_answer.set()
        waiting.join(LONG)
    assert answered == ["ok"]


def test_the_connection_that_waits_longest_makes_room_for_a_new_one():
    with serving(App(), connections=2) as (port, connect, server):
        first, second = connect(HALF[1]), connect(HALF[1])
        until(lambda: len(server.server_state.connections) == 2)
        assert httpx.get(f"http://127.0.0.1:{port}/", timeout=LONG).text == "ok"
        assert is_closed(first)
        second.sendall(b"TP/1.1\r\nHost: localhost\r\n\r\n")
        assert second.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize("half", HALF)
def test_more_connections_at_once_than_allowed_leave_room_for_a_request(half):
    with serving(App(), connections=2) as (port, connect, server):
        opened = [connect(half) for _ in range(50)]
        assert all(map(is_closed, opened[:48]))
        until(lambda: len(server.server_state.tasks) <= 2)
        assert httpx.get(f"http://127.0.0.1:{port}/", timeout=LONG).text == "ok"


def test_a_server_whose_connections_are_all_busy_answers_503():
    app = App()
    app.may_answer.clear()
    with serving(app, connections=1) as (port, connect, _):
        busy = connect(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert app.reached.wait(LONG)
        assert httpx.get(f"http://127.0.0.1:{port}/", timeout=LONG).status_code == 503
        app.may_answer.set()
        assert busy.recv(12) == b"HTTP/1.1 200"


def test_one_connection_serves_many_requests():
    with serving(App()) as (port, _, _server), httpx.Client(timeout=LONG) as client:
        for _ in range(3):
            assert client.post(f"http://127.0.0.1:{port}/", content=b"12345").text == "ok"
