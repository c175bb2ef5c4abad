"""Streams of messages that are read and written through others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextvars import Context
from typing import Any, Self


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
