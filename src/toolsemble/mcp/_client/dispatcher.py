"""A session's messages: read from the transport, bounded, and passed to waiting calls.

The SDK opens a span, two streams and a scope per request, which takes longer than the rest of a call. A request without
tracing and progress reports needs none of them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from contextvars import Context
from itertools import count
from typing import Any, Self

import mcp_types as types
from anyio import BrokenResourceError, ClosedResourceError
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from opentelemetry.propagate import inject
from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider, get_tracer_provider
from pydantic_core import from_json

_LOGGER = logging.getLogger("toolsemble.mcp")
_MAX_SKIPPED = 20
_LONGEST_END = 100
# An answer's id comes before or after its result; anything in between is skipped.
_NUMBER_FIRST = re.compile(r'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*,\s*"(?:result|error)"')
_NUMBER_LAST = re.compile(r',\s*"id"\s*:\s*(\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


class WrappedStream:
    """A wrapper for a message stream, which closes it; the SDK uses it as a context manager."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()


class MessageReader(WrappedStream, ABC):
    """A message stream for the SDK; subclasses define the processing of messages."""

    @property
    def last_context(self) -> Context | None:
        """The context variables of the last answered request."""
        return getattr(self._stream, "last_context", None)

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    async def __anext__(self) -> Any:
        """Return the next message."""


class MessageParser:
    """A parser for the messages of one untrusted server."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._skipped = 0

    def parse(self, text: str) -> Any:
        """Return the message in a text; None if it is not a message.

        >>> MessageParser("files").parse('{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}').method
        'notifications/tools/list_changed'
        """
        if not text.strip():
            return None
        try:
            # In two steps: validating the message union would build a long answer several times.
            return types.jsonrpc_message_adapter.validate_python(_decode(text), by_name=False)
        except ValueError:
            self._skipped += 1
            if self._skipped <= _MAX_SKIPPED:
                _LOGGER.warning("%s wrote a line that is not a message: %.200r", self._server, text)
            return _refuse_answer(text)


def _decode(text: str) -> Any:
    """Return a text's values, including ones too deep for the fast parser: one listed tool may be too deep."""
    try:
        return from_json(text)
    except ValueError as problem:
        if "recursion" not in str(problem):
            raise
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse_answer(text: str) -> Any:
    """Return an error for an invalid answer, so that its request does not hang; None if it is not an answer."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = _find_number(text)
    number = values.get("id") if isinstance(values, dict) and "method" not in values else None
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, (int, str)):
        return None
    error = types.ErrorData(code=types.PARSE_ERROR, message="it is not an answer of JSON-RPC")
    return types.JSONRPCError(jsonrpc="2.0", id=number, error=error)


def _find_number(text: str) -> dict[str, int] | None:
    """Return the id of an unparseable answer, such as one nested too deeply.

    >>> _find_number('{"jsonrpc": "2.0", "id": 7, "result": [[[[')
    {'id': 7}
    """
    found = _NUMBER_FIRST.match(text) or _NUMBER_LAST.search(text[-_LONGEST_END:])
    return None if found is None else {"id": int(found[1])}


_CANCELLED = "notifications/cancelled"
_SIMPLE = {"headers", "timeout", "cancel_on_abandon"}
_FIRST = 2**30  # far from the SDK's own request ids, which start at 1
_PATIENCE = 5.0

CLOSED = "Connection closed"
"""The error message for a request with a lost connection, here and in the SDK."""

Answer = asyncio.Future[dict[str, Any] | MCPError]
"""A request's result, or its error."""


def build_client(transport: Any, **options: Any) -> Client:
    """Return an SDK client whose requests take the fast path."""
    client = Client(transport, **options)

    async def connect(stack: AsyncExitStack, *_: object) -> CallDispatcher:
        return CallDispatcher(*await stack.enter_async_context(transport))

    # There is no public API for this; an SDK version without this attribute uses its normal path.
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
        """Send a request and return the result; raise MCPError for an error or a lost connection."""
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
        """Notify the server that the request was cancelled; do not wait for a server that reads nothing."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self.notify(_CANCELLED, {"requestId": number, "reason": "caller cancelled"})


class Answers:
    """A connection's pending requests."""

    def __init__(self) -> None:
        self._waiting: dict[types.RequestId, Answer] = {}
        self._numbers = count(_FIRST)
        self._is_closed = False

    def expect(self) -> tuple[int, Answer]:
        """Return a new request's id and its future answer; raise MCPError if the connection is lost."""
        if self._is_closed:
            raise _closed()
        number = next(self._numbers)
        self._waiting[number] = answer = asyncio.get_running_loop().create_future()
        return number, answer

    def forget(self, number: int) -> None:
        """Drop a pending request."""
        self._waiting.pop(number, None)

    def take(self, message: Any) -> bool:
        """Pass a message to the request that it answers; return whether there is one."""
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
        """Fail all requests because the connection is lost."""
        self._is_closed = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(_closed())


class AnswerReader(MessageReader):
    """A message stream without the answers handled here."""

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
    """Return an answer; raise TimeoutError if it does not arrive in time."""
    return await (answer if seconds is None else asyncio.wait_for(answer, seconds))


def _build_message(
    number: int, method: str, params: Mapping[str, Any], headers: dict[str, str] | None
) -> SessionMessage:
    given = _add_context(params)
    fields: dict[str, Any] = {"params": given} if given else {}
    message = types.JSONRPCRequest(jsonrpc="2.0", id=number, method=method, **fields)
    return SessionMessage(message, ClientMessageMetadata(headers=headers) if headers else None)


def _is_traced() -> bool:
    """Return whether tracing is active, so that the SDK must open spans."""
    return not isinstance(get_tracer_provider(), ProxyTracerProvider | NoOpTracerProvider)


def _add_context(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request's parameters with the caller's trace context, if there is one."""
    meta = dict(params.get("_meta") or {})
    inject(meta)
    return {**params, "_meta": meta} if meta else dict(params)


def read_number(number: Any) -> Any:
    """Return an answer's id, which a server may send as text.

    >>> read_number(7), read_number("7"), read_number("seven")
    (7, 7, 'seven')
    """
    with suppress(ValueError):
        return int(number) if isinstance(number, str) else number
    return number


def _closed() -> MCPError:
    return MCPError(code=types.CONNECTION_CLOSED, message=CLOSED)
