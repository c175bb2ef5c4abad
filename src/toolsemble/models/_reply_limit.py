"""The limit on the size of a provider's reply."""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Any, TypeVar

from toolsemble._vocabulary.errors import ModelError

T = TypeVar("T")

MAX_REPLY = 64 * 2**20
"""The default of a model's ``max_reply``: bytes of one response, including the JSON around the text."""


class ReplyTooLongError(ModelError):
    """A reply that is longer than ``max_reply``; not retryable, as the next one would probably be as long.

    >>> ReplyTooLongError(1000)
    ReplyTooLongError("The reply is longer than 1,000 bytes; raise the model's max_reply if this is expected")
    """

    def __init__(self, most: int) -> None:
        super().__init__(f"The reply is longer than {most:,} bytes; raise the model's max_reply if this is expected")


def limit_responses(client: T, most: int) -> T:
    """Make an ``httpx2.AsyncClient`` abort responses that are longer than this many bytes; return the client.

    Decompressed bytes are counted while they are read, so no more than that is held in memory.

    >>> import httpx2
    >>> len(limit_responses(httpx2.AsyncClient(), 1000).event_hooks["response"])
    1
    """

    async def limit(response: Any) -> None:
        response.aiter_bytes = _limit_reading(response, most)

    client.event_hooks["response"].append(limit)  # type: ignore[attr-defined]  # the package is optional
    return client


def _limit_reading(response: Any, most: int) -> Callable[..., AsyncGenerator[bytes, None]]:
    # A reference cycle would leave the response, and its connection, to the garbage collector.
    reference, read = weakref.ref(response), type(response).aiter_bytes

    async def aiter_bytes(chunk_size: int | None = None) -> AsyncGenerator[bytes, None]:
        received = 0
        async with aclosing(read(reference(), chunk_size)) as pieces:
            async for piece in pieces:
                received += len(piece)
                if received > most:
                    raise ReplyTooLongError(most)
                yield piece

    return aiter_bytes


def limit_pieces(pieces: Iterator[bytes], most: int) -> Iterator[bytes]:
    """Yield the pieces of a body; raise a :class:`ReplyTooLongError` if it is too long.

    >>> list(limit_pieces(iter([b"to ", b"Rome"]), 7))
    [b'to ', b'Rome']
    """
    received = 0
    for piece in pieces:
        received += len(piece)
        if received > most:
            raise ReplyTooLongError(most)
        yield piece


def find_too_long(error: BaseException | None) -> ReplyTooLongError | None:
    """Return the :class:`ReplyTooLongError` that an SDK wrapped in another error, or None.

    >>> find_too_long(ValueError()) is None
    True
    """
    while error is not None and not isinstance(error, ReplyTooLongError):
        error = error.__cause__ or error.__context__
    return error
