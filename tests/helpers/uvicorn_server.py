"""A real uvicorn server on this machine, in a thread of the test."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager

import uvicorn

WAIT = 60


class QuickServer(uvicorn.Server):
    """A server that looks every hundredth of a second whether it shall exit, not every tenth."""

    async def main_loop(self):
        """Serve until the server shall exit."""
        while not await self.on_tick(0):  # which also writes the date of answers at the tick 0
            await asyncio.sleep(0.01)


@contextmanager
def serving_app(app):
    """Serve an application until the end of the block; yield its address."""
    server = QuickServer(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=WAIT))
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
