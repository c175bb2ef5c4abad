"""A call in flight to a server, and the inbox of the thread that makes it."""

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
from toolsemble.mcp._client.cleaning import clean_text


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a call, as its server reports it."""

    fraction: float | None
    """The part of the work that is done, from 0 to 1; None: unknown."""
    message: str
    """What is being done."""


@dataclass(frozen=True, slots=True)
class ServerQuestion:
    """A question of a server to a person."""

    server: str
    """The name of the server."""
    params: Any
    """The parameters of the request of the SDK."""
    answer: Future[Any]
    """Set to the ``ElicitResult``, in any thread."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a call: a value, or an exception."""

    value: Any = None
    error: BaseException | None = None


class Inbox(Protocol):
    """A queue from the thread of the connection to one caller."""

    def add(self, item: Any) -> None:
        """Add an item, in any thread."""
        ...


class ThreadInbox:
    """The inbox of a caller that waits in its thread.

    >>> inbox = ThreadInbox()
    >>> inbox.add("done")
    >>> inbox.get(None)
    'done'
    """

    __slots__ = ("_queue", "add")

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.add: Callable[[Any], None] = self._queue.put

    def get(self, seconds: float | None) -> Any:
        """Return the next item; None if there is none within some seconds."""
        try:
            return self._queue.get(timeout=seconds)
        except queue.Empty:
            return None


class LoopInbox:
    """The inbox of a caller that waits in an event loop."""

    __slots__ = ("_items", "_loop", "_waiter")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._items: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def add(self, item: Any) -> None:
        """Add an item, in any thread; after the end of the loop it is dropped."""
        with suppress(RuntimeError):  # the loop is closed: nobody waits
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
    """Return whether the caller waits in an event loop.

    >>> is_in_loop()
    False
    """
    return running_loop() is not None


_MAX_PROGRESS = 500
_MAX_WAITING = 100


class ServerTimeoutError(ToolTimeoutError):
    """A server did not answer in time; the call may be repeated."""


class ServerEndedError(ToolExecutionError, ConnectionError):
    """A server ended, or cannot be reached; nothing was done, or the call may be repeated."""


class Delivery:
    """The progress of a request on its way: of a call, or of the handshake."""

    begun = False
    """Whether a part of the request may have reached the server."""
    lost = False
    """Whether the connection broke under the request."""
    over = True
    """Whether the session ended with it: always that of a program; that of a URL may go on."""
    problem = ""
    """Why the connection broke, in words; "" if the server just ended."""
    status = 0
    """The status of the last answer over HTTP, if that was an error; 0 if not."""
    answered = True
    """Whether what came back is a message of the server; over HTTP it may be something else, such as a proxy's page."""
    refused = False
    """Whether the server asks for other credentials, so that it did nothing."""
    arrived = 0
    """How many requests over HTTP may have reached the server."""

    def begin_request(self) -> None:
        """Record, before a request is handed to HTTP, that it may reach the server."""
        self.arrived += 1
        self.begun = True

    def take_back(self) -> None:
        """Record that a request certainly did not reach the server, or was refused before anything was done."""
        self.arrived -= 1
        self.begun = self.arrived > 0


class RemoteCall(Delivery):
    """A call on its way to a server; used in the thread of the connection, but for its creation.

    :param send: sends the request over a session of the SDK, and returns the answer
    :param repeatable: whether it may be sent twice
    :param timeout: seconds to wait for the answer; None: no limit
    :param check: raises if it may not be sent, to the server as it is now; None: it may
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
        """Raises if it may not be sent; None: it may."""
        self.task: Any = None
        """The task that sends it; set before anything can cancel it."""
        self.done = False
        """Whether the caller has its outcome."""
        self._inbox = inbox
        self._timeout = timeout
        self._left = timeout
        self._timer: asyncio.TimerHandle | None = None
        self._started = 0.0
        self._reported = 0
        self.received = 0
        """How many reports of progress the caller has received."""
        self.questions = 0
        """How many questions the server has asked."""

    def prepare(self, *, over: bool) -> None:
        """Forget how far an earlier attempt got.

        :param over: whether a session ends with its connection
        """
        self.begun = self.lost = self.refused = False
        self.answered = True
        self.over = over
        self.problem = ""
        self.status = self.arrived = 0

    def start_timer(self, server: str) -> None:
        """Let the time run until the call is given up."""
        if self._left is not None and not self.done:
            loop = asyncio.get_running_loop()
            self._started = loop.time()
            self._timer = loop.call_later(self._left, self._time_out, server)

    def stop_timer(self) -> None:
        """Stop the time: the call has ended, or a person is asked."""
        if self._timer is not None and self._left is not None:
            self._timer.cancel()
            self._timer = None
            self._left -= asyncio.get_running_loop().time() - self._started

    def _time_out(self, server: str) -> None:
        """End the call for its caller, and cancel the request, which tells the server."""
        waited = format_seconds(self._timeout or 0)
        message = f"The MCP server '{server}' did not answer within {waited}; the call was cancelled"
        if self.repeatable or not self.begun:
            self.finish(Outcome(error=ServerTimeoutError(message)))
        else:
            self.finish(Outcome(error=LostError(f"{message}, and it is unknown whether it took effect")))
        self.cancel()

    def cancel(self) -> None:
        """Cancel the request; the SDK tells the server."""
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
        """Pass progress to the caller; drop it if the caller is far behind, so that a flood is not stored."""
        if self._reported - self.received < _MAX_WAITING:
            self._reported += 1
            self.add(Progress(progress / total if total else None, clean_text(message, _MAX_PROGRESS)))


current_call: ContextVar[Delivery] = ContextVar("toolsemble.mcp.call", default=Delivery())  # noqa: B039 - see there
"""The call that the running code of the SDK works for."""
