"""The requests of one connection and their answers: the SDK's dispatcher, with a shorter way for most requests.

For each request the SDK opens a span, two streams and a scope, which takes more time than the rest of a call. A request
that nobody traces, and that does not report progress, needs none of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from itertools import count
from typing import Any

import mcp_types as types
from anyio import BrokenResourceError, ClosedResourceError
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from opentelemetry.propagate import inject
from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider, get_tracer_provider

from toolsemble.mcp._client.message_streams import MessageReader

_CANCELLED = "notifications/cancelled"
_SIMPLE = {"headers", "timeout", "cancel_on_abandon"}
_FIRST = 2**30  # far from the numbers that the SDK gives to its requests, which begin at 1
_PATIENCE = 5.0

CLOSED = "Connection closed"
"""The message of the error for a request whose connection is gone, here and in the SDK."""

Answer = asyncio.Future[dict[str, Any] | MCPError]
"""The result of a request, or the error that came instead."""


def build_client(transport: Any, **options: Any) -> Client:
    """Return a client of the SDK whose requests take the shorter way."""
    client = Client(transport, **options)

    async def connect(stack: AsyncExitStack, *_: object) -> CallDispatcher:
        return CallDispatcher(*await stack.enter_async_context(transport))

    # There is no public way to it; a version of the SDK without this attribute takes its own way.
    client._connect = connect  # noqa: SLF001 - as above
    return client


class CallDispatcher(JSONRPCDispatcher[Any]):
    """The dispatcher of a connection."""

    def __init__(self, read: Any, write: Any) -> None:
        self._answers = Answers()
        self._output = write
        reader: Any = AnswerReader(read, self._answers)
        super().__init__(reader, write)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: Any = None, **related: Any
    ) -> dict[str, Any]:
        """Send a request, and return the result; raise MCPError for an error, or if the connection is gone."""
        options = opts or {}
        if related or not options.keys() <= _SIMPLE or _is_traced():
            return await super().send_raw_request(method, params, opts, **related)
        number, answer = self._answers.expect()
        try:
            await self._output.send(_build_message(number, method, params or {}, options.get("headers")))
            outcome = await _wait(answer, options.get("timeout"))
        except (BrokenResourceError, ClosedResourceError):
            raise _closed() from None
        except (asyncio.CancelledError, TimeoutError) as reason:
            if options.get("cancel_on_abandon", True):
                await self._report_cancellation(number)
            if isinstance(reason, TimeoutError):
                raise MCPError(code=types.REQUEST_TIMEOUT, message=f"Request {method!r} timed out") from None
            raise
        finally:
            self._answers.forget(number)
        if isinstance(outcome, MCPError):
            raise outcome
        return outcome

    async def _report_cancellation(self, number: int) -> None:
        """Tell the server that nobody waits for an answer; a server that reads nothing is not waited for."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self.notify(_CANCELLED, {"requestId": number, "reason": "caller cancelled"})


class Answers:
    """The requests of a connection that wait for their answers."""

    def __init__(self) -> None:
        self._waiting: dict[types.RequestId, Answer] = {}
        self._numbers = count(_FIRST)
        self._is_closed = False

    def expect(self) -> tuple[int, Answer]:
        """Return the number of a new request, and its answer to come; raise MCPError if the connection is gone."""
        if self._is_closed:
            raise _closed()
        number = next(self._numbers)
        self._waiting[number] = answer = asyncio.get_running_loop().create_future()
        return number, answer

    def forget(self, number: int) -> None:
        """Let nobody wait for the answer to a request."""
        self._waiting.pop(number, None)

    def take(self, message: Any) -> bool:
        """Pass a message to the request that it answers; return whether it answers one."""
        if not isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            return False
        waiting = self._waiting.pop(read_number(message.id), None)
        if waiting is None or waiting.done():
            return False
        if isinstance(message, types.JSONRPCResponse):
            waiting.set_result(message.result)
        else:
            error = message.error
            waiting.set_result(MCPError(code=error.code, message=error.message, data=error.data))
        return True

    def close(self) -> None:
        """Fail all requests: the connection is gone."""
        self._is_closed = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(_closed())


class AnswerReader(MessageReader):
    """A stream of messages without the answers that are waited for here."""

    def __init__(self, stream: Any, answers: Answers) -> None:
        super().__init__(stream)
        self._answers = answers

    async def __anext__(self) -> Any:
        try:
            while True:
                item = await self._stream.__anext__()
                if not (isinstance(item, SessionMessage) and self._answers.take(item.message)):
                    return item
        except BaseException:
            self._answers.close()
            raise

    async def aclose(self) -> None:
        """Close the stream."""
        self._answers.close()
        await super().aclose()


async def _wait(answer: Answer, seconds: float | None) -> dict[str, Any] | MCPError:
    """Return an answer; raise TimeoutError if it does not come within some seconds."""
    return await (answer if seconds is None else asyncio.wait_for(answer, seconds))


def _build_message(
    number: int, method: str, params: Mapping[str, Any], headers: dict[str, str] | None
) -> SessionMessage:
    given = _add_context(params)
    fields: dict[str, Any] = {"params": given} if given else {}
    message = types.JSONRPCRequest(jsonrpc="2.0", id=number, method=method, **fields)
    return SessionMessage(message, ClientMessageMetadata(headers=headers) if headers else None)


def _is_traced() -> bool:
    """Return whether a program collects spans, so that the SDK must open them."""
    return not isinstance(get_tracer_provider(), ProxyTracerProvider | NoOpTracerProvider)


def _add_context(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a request with the trace context of the caller, if there is one."""
    meta = dict(params.get("_meta") or {})
    inject(meta)
    return {**params, "_meta": meta} if meta else dict(params)


def read_number(number: Any) -> Any:
    """Return the number of an answer, which a server may write as a text.

    >>> read_number(7), read_number("7"), read_number("seven")
    (7, 7, 'seven')
    """
    with suppress(ValueError):
        return int(number) if isinstance(number, str) else number
    return number


def _closed() -> MCPError:
    return MCPError(code=types.CONNECTION_CLOSED, message=CLOSED)
