"""Served toolboxes over real HTTP and real pipes, and the official client for both."""

import socket
import sys
import threading
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx2
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from helpers.uvicorn_server import QuickServer
from toolsemble.mcp import asgi

SECONDS = 30
ERAS = {"2026-07-28": "auto", "2025-11-25": "legacy"}


class Server(QuickServer):
    """A server in a thread, which says when it has started."""

    def __init__(self, app):
        super().__init__(uvicorn.Config(app, log_level="error", lifespan="on", timeout_graceful_shutdown=1))
        self.has_started = threading.Event()

    async def startup(self, sockets=None):
        await super().startup(sockets)
        self.has_started.set()


@contextmanager
def run_app(app):
    """Run an ASGI application on a free port of loopback; yield its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = Server(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            assert server.has_started.wait(SECONDS)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(SECONDS)
            assert not thread.is_alive()


@asynccontextmanager
async def connect(url, era="2026-07-28", headers=None, **settings):
    """Yield the official client of a server over HTTP, in an era of the protocol."""
    async with httpx2.AsyncClient(headers=headers or {}, timeout=SECONDS) as http:
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(transport, mode=ERAS[era], read_timeout_seconds=SECONDS, **settings) as client:
            assert client.protocol_version == era
            yield client


@asynccontextmanager
async def serve_http(source, era="2026-07-28", *, client=None, **settings):
    """Serve over HTTP; yield the official client."""
    with run_app(asgi(source, **settings)) as url:
        async with connect(url, era, **(client or {})) as connected:
            yield connected


@asynccontextmanager
async def serve_program(path: Path, era="2026-07-28", *arguments, **settings):
    """Start a program as a server on its standard streams; yield the official client."""
    program = StdioServerParameters(command=sys.executable, args=[str(path), *arguments])
    async with Client(program, mode=ERAS[era], read_timeout_seconds=SECONDS, **settings) as client:
        assert client.protocol_version == era
        yield client


def text_of(result):
    """Return the texts of a result."""
    return "\n".join(block.text for block in result.content if block.type == "text")
