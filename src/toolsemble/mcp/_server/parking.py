"""Calls that wait for their client's answers, in the protocol version without server requests.

Such a call runs in its own task. When it asks, the request is answered with its questions and a handle, and the task
keeps waiting. The client sends the request again, with the handle and the answers, and is attached to the same task:
nothing runs twice.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, InputRequest, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolsemble._vocabulary.errors import ToolExecutionError
from toolsemble.mcp._server.exchange import Caller, Exchange, use_exchange

Work: TypeAlias = Callable[[Exchange], Awaitable[Any]]
"""Runs a client's request, and returns its result."""

SECONDS = 600.0
"""How long a call waits for its client's next request."""
_MOST_CALLS = 1000
_MOST_CALLS_OF_A_CALLER = 20


class UnansweredError(ToolExecutionError):
    """Signals that a call's question gets no answer: its client is gone, or too many calls are waiting."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The part of a request that a repetition must match."""

    caller: tuple[str | None, ...]
    """The caller."""
    method: str
    """The method of the request."""
    target: str
    """The tool's or prompt's name, or the resource's URI."""
    arguments: Any
    """The arguments."""


class WaitingCall(Exchange):
    """A call in its own task, which waits for its client between requests."""

    def __init__(
        self, request: ServerRequestContext[Any, Any], identity: Identity, answers: dict[str, Any], parking: Parking
    ) -> None:
        super().__init__(request)
        self.identity = identity
        self._answers = answers  # sent before they were asked for
        self._parking = parking
        self._open: dict[str, tuple[InputRequest, asyncio.Future[Any]]] = {}
        self._changed = asyncio.Event()
        self._is_abandoned = False

    def start(self, work: Work) -> None:
        """Run the work in a task."""
        with use_exchange(self):
            self.task: asyncio.Task[Any] = asyncio.ensure_future(work(self))
        self.task.add_done_callback(lambda _: self._changed.set())

    async def _send(self, request: InputRequest, key: str | None) -> Any:
        if key in self._answers:
            return self._answers.pop(key)
        if self._is_abandoned:
            raise UnansweredError("The client did not come back for this call")
        self._parking.admit(self)
        name = key or secrets.token_hex(8)
        future = asyncio.get_running_loop().create_future()
        self._open[name] = request, future
        self._changed.set()
        try:
            return await future
        finally:
            del self._open[name]

    def answer(self, answers: dict[str, Any]) -> None:
        """Pass answers to pending questions; ignore others."""
        for name, (_, future) in list(self._open.items()):
            if name in answers and not future.done():
                future.set_result(answers[name])

    def abandon(self) -> None:
        """Fail all open and later questions."""
        self._is_abandoned = True
        for _, future in self._open.values():  # a parked call has no answered ones
            future.set_exception(UnansweredError("The client did not come back for this call"))

    async def follow(self) -> dict[str, InputRequest] | None:
        """Wait until the call has ended or asks; return its open questions, or None if it has ended.

        Cancelling the request cancels the call.
        """
        try:
            while not self.task.done() and not self._questions():
                self._changed.clear()
                await self._changed.wait()
        except asyncio.CancelledError:
            self.task.cancel()
            raise
        return None if self.task.done() else self._questions()

    def _questions(self) -> dict[str, InputRequest]:
        return {name: request for name, (request, future) in self._open.items() if not future.done()}


class Parking:
    """A server's calls that wait for answers; bounded per caller and in total."""

    def __init__(self) -> None:
        self._parked: dict[str, tuple[WaitingCall, asyncio.TimerHandle]] = {}
        self._calls: set[WaitingCall] = set()
        self._asking: set[WaitingCall] = set()

    async def run(
        self, request: ServerRequestContext[Any, Any], params: Any, arguments: Any, caller: Caller, work: Work
    ) -> Any:
        """Return a request's result, or questions that its client must answer first.

        :param params: the request's parameters
        :param arguments: the arguments in them
        """
        is_new = params.request_state is None
        if request.protocol_version not in MODERN_PROTOCOL_VERSIONS or (is_new and not _can_answer(request)):
            return await _run_in_place(Exchange(request), work)
        target = str(getattr(params, "name", None) or params.uri)
        identity = Identity(caller.identity, request.method, target, arguments)
        answers = dict(params.input_responses or {})
        if is_new:
            call = WaitingCall(request, identity, answers, self)
            self._calls.add(call)
            call.start(work)
        else:
            call = self._take(params.request_state, identity)
            call.request, call.is_attached = request, True
            call.answer(answers)
        return await self._follow(call)

    async def _follow(self, call: WaitingCall) -> Any:
        try:
            questions = await call.follow()
        except BaseException:
            self._forget(call)
            raise
        if questions is None:
            self._forget(call)
            return call.task.result()
        call.is_attached = False
        handle = secrets.token_urlsafe(32)
        timer = asyncio.get_running_loop().call_later(SECONDS, self._expire, handle)
        self._parked[handle] = call, timer
        return InputRequiredResult(input_requests=questions, request_state=handle)

    def admit(self, call: WaitingCall) -> None:
        """Register a waiting call; raise UnansweredError if too many calls are waiting."""
        if call in self._asking:
            return
        caller = call.identity.caller
        of_caller = sum(each.identity.caller == caller for each in self._asking)
        if of_caller >= _MOST_CALLS_OF_A_CALLER or len(self._asking) >= _MOST_CALLS:
            raise UnansweredError("Too many calls of this client wait for an answer already; answer those first")
        self._asking.add(call)

    async def close(self) -> None:
        """Cancel all calls, and wait until they have ended."""
        for _, timer in self._parked.values():
            timer.cancel()
        tasks = [call.task for call in self._calls]
        for task in tasks:
            task.cancel()
        self._parked.clear()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self, handle: str, identity: Identity) -> WaitingCall:
        """Pop a parked call; raise if it is missing, or belongs to another request."""
        call, timer = self._parked.get(handle, (None, None))
        if call is None or timer is None or call.identity != identity:
            _refuse_state()
        timer.cancel()
        del self._parked[handle]
        return call

    def _expire(self, handle: str) -> None:
        call, _ = self._parked.pop(handle)
        call.abandon()
        self._forget(call)

    def _forget(self, call: WaitingCall) -> None:
        """Stop counting a call; keep a running one until it has ended."""
        self._asking.discard(call)
        call.task.add_done_callback(lambda task: self._end(call, task))

    def _end(self, call: WaitingCall, task: asyncio.Task[Any]) -> None:
        self._calls.discard(call)
        if not task.cancelled():
            task.exception()  # there may be no other reader


async def _run_in_place(exchange: Exchange, work: Work) -> Any:
    with use_exchange(exchange):
        return await work(exchange)


def _can_answer(request: ServerRequestContext[Any, Any]) -> bool:
    """Return whether the client can answer any question; otherwise the call needs no task."""
    declared = request.session.client_capabilities
    kinds = () if declared is None else (declared.elicitation, declared.sampling, declared.roots)
    return any(kind is not None for kind in kinds)


def _refuse_state() -> NoReturn:
    raise MCPError(INVALID_PARAMS, "Invalid or expired requestState", {"reason": "invalid_request_state"})
