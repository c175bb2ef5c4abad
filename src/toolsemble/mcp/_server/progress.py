"""The progress of a call, sent to its client: always increasing, in order, before the result."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any

from toolsemble.events import CallProgress
from toolsemble.mcp._server.exchange import Exchange

LOGGER = logging.getLogger("toolsemble.mcp")
_MOST_WAITING = 64
_STEP = 1000  # reports without a fraction move by this part of what is left


class ProgressReporter:
    """A watcher that sends the progress of a call to the client that asked for it.

    The protocol demands increasing numbers, so reports that do not increase are dropped. If a tool reports faster than
    the client reads, the oldest reports are dropped.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._loop = asyncio.get_running_loop()
        self._last = -1.0
        self._waiting: deque[tuple[float, float | None, str]] = deque(maxlen=_MOST_WAITING)
        self._sending: asyncio.Task[None] | None = None

    def __call__(self, event: Any) -> None:
        """Receive an event, in any thread."""
        if not isinstance(event, CallProgress):
            return
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            self._add(event)
        else:
            self._loop.call_soon_threadsafe(self._add, event)

    def _add(self, event: CallProgress) -> None:
        least = max(self._last, 0.0)
        progress = least + (1 - least) / _STEP if event.fraction is None else event.fraction
        if progress <= self._last:
            return
        self._last = progress
        self._waiting.append((progress, None if event.fraction is None else 1.0, event.message))
        if self._sending is None or self._sending.done():
            self._sending = self._loop.create_task(self._send())

    async def _send(self) -> None:
        while self._waiting:
            progress, total, message = self._waiting.popleft()
            try:
                await self._exchange.report_progress(progress, total, message or None)
            except Exception:
                # A client that is gone must not fail the call.
                LOGGER.debug("progress was not sent", exc_info=True)

    async def finish(self) -> None:
        """Wait until all reports are sent."""
        if self._sending is not None:
            await self._sending
