"""The client of llama.cpp's server inside this process."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpcore2

from toolsemble._vocabulary.errors import ModelError

_BAD_STATUS = 400


class ServerClient:
    """A client of one server.

    Each request has its own connection, because requests come from any event loop; on one machine that takes well under
    a millisecond. Closing the connection stops the server's computation.
    """

    def __init__(self, address: str, key: str) -> None:
        self._address = address
        self._headers = [("Authorization", f"Bearer {key}"), ("Content-Type", "application/json")]

    async def request(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the response to a request; a GET without a body."""
        async with self._exchange(path, body) as answer:
            return json.loads(await answer.aread())

    async def stream(self, path: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the events of a response as they come; the last one is marked as such."""
        async with self._exchange(path, body) as answer, aclosing(answer.aiter_stream()) as chunks:
            partial = b""
            async for chunk in chunks:
                *lines, partial = (partial + chunk).split(b"\n")
                for line in lines:
                    kind, _, data = line.partition(b": ")
                    if kind == b"error":
                        raise ModelError(_read_error(data))
                    if kind == b"data":
                        event = json.loads(data)
                        yield event
                        if event.get("stop"):
                            return
        raise ModelError("llama.cpp closed the connection before the end of the answer", retryable=True)

    @asynccontextmanager
    async def _exchange(self, path: str, body: dict[str, Any] | None) -> AsyncIterator[httpcore2.Response]:
        content = None if body is None else json.dumps(body).encode()
        try:
            async with (
                httpcore2.AsyncConnectionPool() as pool,
                pool.stream(
                    "GET" if body is None else "POST", self._address + path, headers=self._headers, content=content
                ) as answer,
            ):
                if answer.status >= _BAD_STATUS:
                    raise ModelError(_read_error(await answer.aread()))
                yield answer
        except (httpcore2.NetworkError, httpcore2.ProtocolError) as problem:
            raise ModelError(f"llama.cpp closed the connection: {problem!r}") from problem


def _read_error(data: bytes) -> str:
    """Return the message of an error response."""
    try:
        error = json.loads(data)
        return f"llama.cpp: {error.get('error', error)['message']}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"llama.cpp: {data.decode(errors='replace'):.200}"
