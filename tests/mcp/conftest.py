"""Servers for the tests of MCP."""

import sys
import threading
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
import uvicorn

from helpers.wait import until
from toolsemble.mcp import MCPClient

SERVERS = Path(__file__).parent / "servers"
sys.path.append(str(SERVERS))


@pytest.fixture
def plain():
    """Return a function that builds a client of the plain server; all are closed afterwards."""
    clients = []

    def build(*args, **options):
        line = (sys.executable, "-u", str(SERVERS / "plain.py"), *map(str, args))
        clients.append(MCPClient.stdio(*line, **{"name": "plain", **options}))
        return clients[-1]

    yield build
    for client in clients:
        client.close()


@contextmanager
def run_app(app):
    """Run an ASGI application on a free port of this machine, and return its address."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join()


@contextmanager
def run_handler(handler):
    """Run a handler of the standard library on a free port, and return its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
