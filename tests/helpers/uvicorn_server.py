"""A real uvicorn server on this machine, in a thread of the test."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import uvicorn

WAIT = 60


@contextmanager
def serving_app(app):
    """Serve an application until the end of the block; yield its address."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=WAIT))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        deadline = time.monotonic() + WAIT
        while not server.started:
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.005)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(WAIT)
