"""A call in flight, and the inbox of its caller."""

from __future__ import annotations

import asyncio
import queue
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from toolsemble._engine.context import ToolContext
from toolsemble._runtime.checks import format_seconds
from toolsemble._runtime.threads import running_loop
from toolsemble._vocabulary.errors import LostError, ToolExecutionError, ToolTimeoutError
from toolsemble.mcp._client.text_cleaning import clean_text


@dataclass(frozen=True, slots=True)
class Progress:
    """A call's progress, as reported by its server."""

    fraction: float | None
    """The completed fraction, from 0 to 1; None: unknown."""
    message: str
    """The progress message."""


@dataclass(frozen=True, slots=True)
class ServerQuestion:
    """A server's question to a person."""

    server: str
    """The name of the server."""
    params: Any
    """The parameters of the SDK's request."""
    answer: Future[Any]
    """Set to the ``ElicitResult``, in any thread."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A call's outcome: a value or an exception."""

    value: Any = None
    error: BaseException | None = None


class Inbox(Protocol):
    """A queue from the connection's thread to one caller."""

    def add(self, item: Any) -> None:
        """Add an item, in any thread."""
        ...


class ThreadInbox:
    """The inbox of a caller that blocks its thread."""

    __slots__ = ("_queue", "add")

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.add: Callable[[Any], None] = self._queue.put

    def get(self, seconds: float | None) -> Any:
        """Return the next item; None on timeout."""
        try:
            return self._queue.get(timeout=seconds)
        except queue.Empty:
            return None


class LoopInbox:
    """The inbox of a caller that waits on an event loop."""

    __slots__ = ("_items", "_loop", "_waiter")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._items: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def add(self, item: Any) -> None:
        """Add an item, in any thread; drop it if the loop is closed."""
        with suppress(RuntimeError):  # the loop is closed, so there is no waiter
            self._loop.call_soon_threadsafe(self._append, item)

    def _append(self, item: Any) -> None:
        self._items.append(item)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self) -> Any:
        """Return the next item."""
        while not self._items:
            self._waiter = self._loop.create_future()
            await self._waiter
        return self._items.popleft()


def is_in_loop() -> bool:
    """Return whether the caller runs on an event loop.

    >>> is_in_loop()
    False
    """
    return running_loop() is not None


_MAX_PROGRESS = 500
_MAX_WAITING = 100


class ServerTimeoutError(ToolTimeoutError):
    """Signals that a server did not answer in time; the call may be repeated."""


class ServerEndedError(ToolExecutionError, ConnectionError):
    """Signals a dead or unreachable server; nothing was done, or the call may be repeated."""


class Delivery:
    """The delivery state of a request: a call's or the handshake's."""

    begun = False
    """Whether any part of the request may have reached the server."""
    lost = False
    """Whether the connection broke during the request."""
    over = True
    """Whether the session ended with it: always for a program; an HTTP session may continue."""
    problem = ""
    """Why the connection broke, as text; "" if the server just exited."""
    status = 0
    """The status of the last HTTP response, if it was an error; else 0."""
    answered = True
    """Whether the response is a server message; over HTTP it may be something else, such as a proxy's page."""
    refused = False
    """Whether the server requires other credentials, so that it did nothing."""
    arrived = 0
    """The number of HTTP requests that may have reached the server."""

    def begin_request(self) -> None:
        """Record, before an HTTP request is sent, that it may reach the server."""
        self.arrived += 1
        self.begun = True

    def take_back(self) -> None:
        """Record that a request certainly did not reach the server, or was rejected without effect."""
        self.arrived -= 1
        self.begun = self.arrived > 0


class RemoteCall(Delivery):
    """A call in flight; used in the connection's thread after its creation.

    :param send: sends the request over an SDK session, and returns the answer
    :param repeatable: whether it may be retried
    :param timeout: seconds to wait for the answer; None: no limit
    :param check: raises if it may not be sent to the server in its current state; None: no check
    """

    def __init__(
        self,
        send: Callable[[Any, RemoteCall], Any],
        context: ToolContext,
        inbox: Inbox,
        *,
        repeatable: bool,
        timeout: float | None,
        watched: bool,
        check: Callable[[], None] | None = None,
    ) -> None:
        self.send = send
        self.context = context
        self.repeatable = repeatable
        self.watched = watched
        """Whether progress is wanted."""
        self.check = check
        """Raises if it may not be sent; None: no check."""
        self.task: Any = None
        """The sending task; set before anything can cancel it."""
        self.done = False
        """Whether the caller has received the outcome."""
        self._inbox = inbox
        self._timeout = timeout
        self._left = timeout
        self._timer: asyncio.TimerHandle | None = None
        self._started = 0.0
        self._reported = 0
        self.received = 0
        """The number of progress reports that the caller has received."""
        self.questions = 0
        """The number of questions that the server has asked."""

    def prepare(self, *, over: bool) -> None:
        """Reset the delivery state for a new attempt.

        :param over: whether a session ends with its connection
        """
        self.begun = self.lost = self.refused = False
        self.answered = True
        self.over = over
        self.problem = ""
        self.status = self.arrived = 0

    def start_timer(self, server: str) -> None:
        """Start the timeout."""
        if self._left is not None and not self.done:
            loop = asyncio.get_running_loop()
            self._started = loop.time()
            self._timer = loop.call_later(self._left, self._time_out, server)

    def stop_timer(self) -> None:
        """Stop the timeout: the call has ended, or a person is asked."""
        if self._timer is not None and self._left is not None:
            self._timer.cancel()
            self._timer = None
            self._left -= asyncio.get_running_loop().time() - self._started

    def _time_out(self, server: str) -> None:
        """Fail the call with a timeout, and cancel the request, which notifies the server."""
        waited = format_seconds(self._timeout or 0)
        message = f"The MCP server '{server}' did not answer within {waited}; the call was cancelled"
        if self.repeatable or not self.begun:
            self.finish(Outcome(error=ServerTimeoutError(message)))
        else:
            self.finish(Outcome(error=LostError(f"{message}, and it is unknown whether it took effect")))
        self.cancel()

    def cancel(self) -> None:
        """Cancel the request; the SDK notifies the server."""
        self.task.cancel()

    def finish(self, outcome: Outcome) -> None:
        """Pass the outcome to the caller, once."""
        if not self.done:
            self.done = True
            self._inbox.add(outcome)

    def add(self, item: Any) -> None:
        """Pass progress or a question to the caller."""
        self._inbox.add(item)

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Pass progress to the caller; drop it if the caller is far behind, to bound memory."""
        if self._reported - self.received < _MAX_WAITING:
            self._reported += 1
            self.add(Progress(progress / total if total else None, clean_text(message, _MAX_PROGRESS)))


current_call: ContextVar[Delivery] = ContextVar("toolsemble.mcp.call", default=Delivery())  # noqa: B039 - see there
"""The call that the SDK is currently processing."""
