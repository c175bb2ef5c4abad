"""Messages of a server: read from texts, and passed through streams."""

from __future__ import annotations

import json
import logging
import re
from abc import ABC, abstractmethod
from contextvars import Context
from typing import Any, Self

import mcp_types as types
from pydantic_core import from_json

_LOGGER = logging.getLogger("toolsemble.mcp")
_MAX_SKIPPED = 20
_LONGEST_END = 100
# The number of an answer stands before or after its result; anything else in between is not looked at.
_NUMBER_FIRST = re.compile(r'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*,\s*"(?:result|error)"')
_NUMBER_LAST = re.compile(r',\s*"id"\s*:\s*(\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


class WrappedStream:
    """A stream of messages around another one, which is closed with it; the SDK enters and leaves it."""

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
    """A stream of messages as the SDK reads it; what is done with a message is defined by subclasses."""

    @property
    def last_context(self) -> Context | None:
        """The context variables of the request that the last message answers."""
        return getattr(self._stream, "last_context", None)

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    async def __anext__(self) -> Any:
        """Return the next message."""


class MessageParser:
    """A parser of the messages of one server, which may write anything."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._skipped = 0

    def parse(self, text: str) -> Any:
        """Return the message in a text; None for a text that is not one.

        >>> MessageParser("files").parse('{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}').method
        'notifications/tools/list_changed'
        """
        if not text.strip():
            return None
        try:
            # In two steps: the union of messages would build the values of a long answer several times.
            return types.jsonrpc_message_adapter.validate_python(_decode(text), by_name=False)
        except ValueError:
            self._skipped += 1
            if self._skipped <= _MAX_SKIPPED:
                _LOGGER.warning("%s wrote a line that is not a message: %.200r", self._server, text)
            return _refuse_answer(text)


def _decode(text: str) -> Any:
    """Return the values of a text; also deeper ones than the fast parser reads: one tool of a list may be too deep."""
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
    """Return an error for an invalid answer to a request, which would wait for ever; None if it is no answer."""
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
    """Return the number of an answer that is not JSON, such as one with a value that is nested too deeply.

    >>> _find_number('{"jsonrpc": "2.0", "id": 7, "result": [[[[')
    {'id': 7}
    """
    found = _NUMBER_FIRST.match(text) or _NUMBER_LAST.search(text[-_LONGEST_END:])
    return None if found is None else {"id": int(found[1])}
