"""A client's background thread: its event loop owns the connection, restarts it, and sends calls."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, ListRootsResult, Root, ToolListChangedNotification

from toolsemble._runtime.checks import format_seconds
from toolsemble._runtime.text import describe_error
from toolsemble._runtime.threads import wait_for
from toolsemble._vocabulary.errors import LostError, ToolConfigurationError, ToolExecutionError, ToolsembleError
from toolsemble.mcp._client.dispatcher import CLOSED
from toolsemble.mcp._client.elicitation import QuestionDesk
from toolsemble.mcp._client.options import Options
from toolsemble.mcp._client.process_group import LOGGER
from toolsemble.mcp._client.remote_call import Outcome, RemoteCall, ServerEndedError, current_call
from toolsemble.mcp._client.results import find_cause, translate_error
from toolsemble.mcp._client.session import Session, Target, list_tools
from toolsemble.mcp._client.text_cleaning import Listing

_MAX_RESTARTS = 3
_PERIOD = 60.0
_BACKOFF = (0.0, 0.5, 2.0)
_PATIENCE = 5.0
_LONGEST_END = 30.0
_LIST_INTERVAL = 1.0

logging.getLogger("mcp").addHandler(logging.NullHandler())  # the SDK would print tracebacks

_running: WeakSet[ClientThread] = WeakSet()


class ClientThread:
    """A client's thread, from a start to the next close.

    :param publish: publishes a tool list, in the thread; yields when done, and before if a reviewer is asked
    """

    def __init__(
        self, target: Target, options: Options, publish: Callable[[Listing, Any], AsyncIterator[None]]
    ) -> None:
        self._target = target
        self._options = options
        self._publish = publish
        self._loop: Any = None
        self._opening: Any = None
        self._begun: Future[None] = Future()
        self._stop = asyncio.Event()
        self._lock = asyncio.Lock()
        self._session: Any = None
        self._restarts: deque[float] = deque(maxlen=_MAX_RESTARTS)
        self._calls: set[RemoteCall] = set()
        self._questions = QuestionDesk(options, self._calls)
        self._may_ask = options.review is not None
        self._changed = False
        self._listed = asyncio.Event()
        self._listed.set()
        self._refreshing: asyncio.Task[None] | None = None
        self._next_list = 0.0
        self.process = os.getpid()
        self.started: Future[None] = Future()
        self.ended: Future[None] = Future()

    def start(self) -> None:
        """Start the thread; the futures ``started`` and ``ended`` report its state."""
        _running.add(self)
        # A daemon: a program can exit without closing its client. end_all() stops the servers.
        name = f"toolsemble-mcp-{self._options.name}"
        threading.Thread(target=self._run, name=name, daemon=True).start()
        wait_for(self._begun, None)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
                runner.run(self._main())
        finally:
            self.ended.set_result(None)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._opening = self._loop.create_task(self._open())
        self._begun.set_result(None)
        await asyncio.wait([self._opening])
        if self._opening.cancelled():
            self.started.set_exception(ToolConfigurationError(f"The MCP server '{self._options.name}' was closed"))
        elif (error := self._opening.exception()) is not None:
            self.started.set_exception(error)
        else:
            self.started.set_result(None)
            await self._serve()

    async def _serve(self) -> None:
        await self._stop.wait()
        for call in self._calls:
            call.cancel()
        await self._session.close()

    def stop(self) -> None:
        """Stop the thread, even during startup; ``ended`` completes when it has stopped."""
        self._submit(self._end)

    def _end(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            self._opening.cancel()  # only once: a second cancellation would interrupt the server's shutdown

    def begin(self, call: RemoteCall) -> bool:
        """Send a call from any thread; return whether the worker is running."""
        return self._submit(self._start_call, call)

    def cancel(self, call: RemoteCall) -> None:
        """Cancel a call from any thread."""
        self._submit(call.cancel)

    def _submit(self, function: Callable[..., object], *args: Any) -> bool:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *args)
            return True
        return False

    async def _open(self) -> None:
        """Open a new session, and publish its tools."""
        limit = self._options.connect_timeout
        deadline = asyncio.get_running_loop().time() + limit
        session = self._new_session()
        try:
            listing = await session.open(limit)
        except ToolsembleError:
            if not session.is_misjudged:
                raise
            session = self._new_session()
            listing = await session.open(deadline - asyncio.get_running_loop().time())
        try:
            await self._begin_publishing(self._publish(listing, session.client))
        except BaseException:
            await session.close()
            raise
        self._session = session
        session.listen(self._note_change)
        if self._changed:
            self._note_change()  # the change came before there was a session

    def _new_session(self) -> Session:
        callbacks: dict[str, Any] = {
            "elicitation_callback": self._questions.ask,
            "message_handler": self._receive,
        }
        if self._options.roots:
            callbacks["list_roots_callback"] = self._list_roots
        return Session(self._target, self._options, callbacks, may_ask=self._may_ask)

    async def _begin_publishing(self, steps: AsyncIterator[None]) -> None:
        """Publish a list; after a restart, calls do not wait for a reviewer: changed tools are refused until then."""
        await anext(steps)
        if self._session is None:
            await _finish(steps)
        else:
            self._refreshing = asyncio.get_running_loop().create_task(self._finish_publishing(steps))

    async def _finish_publishing(self, steps: AsyncIterator[None]) -> None:
        try:
            await _finish(steps)
        except ToolConfigurationError as problem:
            LOGGER.warning("The tools of %s cannot be used: %s", self._options.name, problem)
        await self._refresh()  # for changes in the meantime

    async def _ready_session(self, call: RemoteCall) -> Session:
        """Return a live session that can ask a call's reviewer; restart the server if necessary."""
        if not self._lock.locked() and _is_ready(self._session, call):
            return self._session  # type: ignore[no-any-return]  # the usual case, without waiting for the lock
        async with self._lock:
            if not self._session.is_alive:
                await self._restart()
            elif not _is_ready(self._session, call):
                await self._reopen_with_questions(self._session)
            ready: Session = self._session
            return ready

    async def _reopen_with_questions(self, session: Session) -> None:
        """Repeat the handshake to declare elicitation; but keep a server that has already served calls."""
        self._may_ask = True
        if session.calls:
            LOGGER.warning(
                "%s was not told that a person can be asked; pass review= to its MCPClient", self._options.name
            )
            session.may_ask = True
            return
        await session.close()
        await self._open()

    async def _restart(self) -> None:
        """Restart the server; raise if it was restarted too often."""
        if self._target.is_program:
            await self._count_restart()
        await self._session.close()  # its process has exited, but was not reaped
        LOGGER.info("%s has exited; restarting it", self._options.name)
        await self._open()

    async def _count_restart(self) -> None:
        """Wait before a restart; raise if there were too many."""
        loop = asyncio.get_running_loop()
        recent = [each for each in self._restarts if loop.time() - each < _PERIOD]
        if len(recent) >= _MAX_RESTARTS:
            wait = format_seconds(_PERIOD - (loop.time() - recent[0]))
            raise ServerEndedError(
                f"The MCP server '{self._options.name}' ended {len(recent)} times within a minute, and is not started "
                f"again yet; try again in {wait}"
            )
        await asyncio.sleep(_BACKOFF[len(recent)])
        self._restarts.append(loop.time())

    def _start_call(self, call: RemoteCall) -> None:
        call.task = asyncio.get_running_loop().create_task(self._perform(call))

    async def _perform(self, call: RemoteCall) -> None:
        """Send a call, and pass its outcome to the caller."""
        self._calls.add(call)
        current_call.set(call)
        call.start_timer(self._options.name)
        try:
            outcome = Outcome(await self._send(call))
        except asyncio.CancelledError:
            outcome = Outcome(error=self._lost(call, ended=True))
        except Exception as error:  # raised by the waiting caller
            outcome = Outcome(error=error)
        finally:
            call.stop_timer()
            self._calls.discard(call)
        call.finish(outcome)

    async def _send(self, call: RemoteCall) -> Any:
        """Send a call; retry once if it certainly did not arrive, or may be repeated."""
        first = True
        while True:
            session = await self._start_session(call)
            if call.check is not None:
                call.check()  # after a restart, the server may list other tools
            call.prepare(over=self._target.is_program)
            try:
                session.calls += 1
                answer = await call.send(session.client, call)
            except Exception as error:  # translated; the SDK raises many kinds
                is_closed = _is_closed(error, session)
                if not (call.lost or is_closed):
                    if call.over and not self._target.is_program:
                        await session.close()
                    raise translate_error(error, self._options.name, call) from find_cause(error)
                call.problem = session.problem or call.problem
                if call.over or is_closed or not session.is_alive:
                    await session.close()
                if not first or (call.begun and not call.repeatable):
                    raise self._lost(call, ended=False) from find_cause(error)
                first = False
            else:
                if not self._listed.is_set():
                    await self._finish_refresh()
                return answer

    async def _start_session(self, call: RemoteCall) -> Session:
        try:
            return await self._ready_session(call)
        except ToolExecutionError:
            raise
        except ToolsembleError as error:
            raise ServerEndedError(describe_error(error)) from error

    def _lost(self, call: RemoteCall, *, ended: bool) -> ToolExecutionError:
        """Return the error for a call with a lost connection.

        :param ended: whether it was closed locally
        """
        name = self._options.name
        if not call.begun:
            why = f": {call.problem}" if call.problem else ""
            return ServerEndedError(
                f"The MCP server '{name}' is not running"
                if ended
                else f"The MCP server '{name}' cannot be reached{why}"
            )
        how = f" ({call.problem})" if call.problem and not ended else ""
        message = f"The MCP server '{name}' ended before it answered{how}"
        if call.repeatable:
            return ServerEndedError(message)
        return LostError(f"{message}; it is unknown whether the call took effect")

    async def _receive(self, message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._note_change()

    async def _list_roots(self, _: Any) -> ListRootsResult:
        return ListRootsResult(roots=[Root.model_validate({"uri": uri}) for uri in self._options.roots])

    def _note_change(self) -> None:
        """List the tools again; coalesce changes in the meantime."""
        self._changed = True
        if self._session is not None and (self._refreshing is None or self._refreshing.done()):
            self._listed.clear()
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())

    async def _refresh(self) -> None:
        loop = asyncio.get_running_loop()
        while self._changed:
            self._listed.clear()
            await asyncio.sleep(self._next_list - loop.time())  # a server may change its list continuously
            self._next_list = loop.time() + _LIST_INTERVAL
            self._changed = False
            try:
                async for _ in self._list_again():
                    self._listed.set()  # calls do not wait for a reviewer: changed tools are refused until then
            except ToolConfigurationError as problem:
                LOGGER.warning("The tools of %s cannot be used: %s", self._options.name, problem)
            finally:
                self._listed.set()

    async def _list_again(self) -> AsyncIterator[None]:
        """Publish a new list, in the steps of ``publish``; if listing fails, keep the tools."""
        session = self._session
        try:
            async with asyncio.timeout(self._options.connect_timeout):
                listing = await list_tools(session.client, session.screen, self._options)
        except Exception as error:
            LOGGER.warning(
                "The tools of %s cannot be listed: %s", self._options.name, describe_error(find_cause(error))
            )
            return
        async for _ in self._publish(listing, session.client):
            yield

    async def _finish_refresh(self) -> None:
        """Wait for a listing triggered by a call, so that its caller sees the updated tools."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._listed.wait()


def _is_ready(session: Session, call: RemoteCall) -> bool:
    """Return whether a session is alive, and can ask the call's reviewer if there is one."""
    return session.is_alive and (session.may_ask or call.context.review is None or session.is_modern)


def _is_closed(error: Exception, session: Session) -> bool:
    """Return whether an error means a lost connection; a server may use the same code for its own errors."""
    if not isinstance(error, MCPError) or error.code != CONNECTION_CLOSED:
        return False
    return not session.is_alive or error.message == CLOSED


async def _finish(steps: AsyncIterator[None]) -> None:
    async for _ in steps:
        pass


def end_all() -> None:
    """Stop the servers of all running clients, as at program exit.

    >>> end_all()
    """
    workers = [each for each in _running if each.process == os.getpid()]
    for each in workers:
        each.stop()
    for each in workers:
        wait_for(each.ended, _LONGEST_END)


atexit.register(end_all)
