"""Talking to the server that llama.cpp runs inside of this process."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpcore2

from toolsemble.errors import ModelError

_BAD_STATUS = 400


class Wire:
    """Sends requests to one server.

    Each has a connection of its own, as requests come from any event loop; on one machine it costs well under a
    millisecond. Closing it in the middle is what makes the server stop.
    """

    def __init__(self, address: str, key: str) -> None:
        self._address = address
        self._headers = [("Authorization", f"Bearer {key}"), ("Content-Type", "application/json")]

    async def asked(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Give the answer to a request; without a body it is a GET."""
        async with self._exchange(path, body) as answer:
            return json.loads(await answer.aread())

    async def streamed(self, path: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Give the events of an answer as they come, the last of which says that it is."""
        async with self._exchange(path, body) as answer, aclosing(answer.aiter_stream()) as chunks:
            begun = b""
            async for chunk in chunks:
                *lines, begun = (begun + chunk).split(b"\n")
                for line in lines:
                    kind, _, data = line.partition(b": ")
                    if kind == b"error":
                        raise ModelError(_message(data))
                    if kind == b"data":
                        event = json.loads(data)
                        yield event
                        if event.get("stop"):
                            return
        raise ModelError("llama.cpp broke off in the middle of an answer", retryable=True)

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
                    raise ModelError(_message(await answer.aread()))
                yield answer
        except (httpcore2.NetworkError, httpcore2.ProtocolError) as problem:
            raise ModelError(f"llama.cpp broke off: {problem!r}") from problem


def _message(data: bytes) -> str:
    """Give the words of an error."""
    try:
        said = json.loads(data)
        return f"llama.cpp: {said.get('error', said)['message']}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"llama.cpp: {data.decode(errors='replace'):.200}"
