"""How much a provider may send in one reply."""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Any, TypeVar

from toolsemble.errors import ModelError

T = TypeVar("T")

MAX_REPLY = 64 * 2**20
"""Bytes of one reply, with all that is around its words, unless a model's ``max_reply`` says otherwise."""


class ReplyTooLongError(ModelError):
    """A provider sent more than a reply may be long; asked again, it may well do the same.

    >>> ReplyTooLongError(1000)
    ReplyTooLongError('The reply is longer than 1,000 bytes; if it is meant to be, give the model a larger max_reply')
    """

    def __init__(self, most: int) -> None:
        super().__init__(
            f"The reply is longer than {most:,} bytes; if it is meant to be, give the model a larger max_reply"
        )


def limit_responses(client: T, most: int) -> T:
    """Have an ``httpx2.AsyncClient`` break responses off that are longer than so many bytes; return the client.

    Bytes are counted after they are decompressed, as they are read, so no more than that is ever held.

    >>> import httpx2
    >>> len(limit_responses(httpx2.AsyncClient(), 1000).event_hooks["response"])
    1
    """

    async def limit(response: Any) -> None:
        response.aiter_bytes = _limited(response, most)

    client.event_hooks["response"].append(limit)  # type: ignore[attr-defined]  # the package need not be there
    return client


def _limited(response: Any, most: int) -> Callable[..., AsyncGenerator[bytes, None]]:
    # A response that refers to itself would be freed by the garbage collector only, and its connection with it.
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


def limited(pieces: Iterator[bytes], most: int) -> Iterator[bytes]:
    """Yield the pieces of a body, and raise a :class:`ReplyTooLongError` when they are too much.

    >>> list(limited(iter([b"to ", b"Rome"]), 7))
    [b'to ', b'Rome']
    """
    received = 0
    for piece in pieces:
        received += len(piece)
        if received > most:
            raise ReplyTooLongError(most)
        yield piece


def too_long(error: BaseException | None) -> ReplyTooLongError | None:
    """Return the error about a reply that is too long, if an SDK has made an error of its own of it.

    >>> too_long(ValueError()) is None
    True
    """
    while error is not None and not isinstance(error, ReplyTooLongError):
        error = error.__cause__ or error.__context__
    return error
