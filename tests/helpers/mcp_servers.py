"""Servers of MCP for tests: a program, and applications on a free port of this machine."""

import gc
import threading
import warnings
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import uvicorn

from helpers.uvicorn_server import QuickServer
from helpers.wait import until

PLAIN = str(Path(__file__).with_name("mcp_plain.py"))


@contextmanager
def run_app(app):
    """Run an ASGI application on a free port of this machine, and return its address."""
    server = QuickServer(uvicorn.Config(app, port=0, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join()
        with warnings.catch_warnings():  # connections that were cut off, and that no other test shall find
            warnings.simplefilter("ignore")
            gc.collect()


@contextmanager
def run_handler(handler, host="127.0.0.1"):
    """Run a handler of the standard library on a free port, and return its address."""
    server = ThreadingHTTPServer((host, 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://{host}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
