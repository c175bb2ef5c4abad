"""Streams read in a separate task, so that closing them closes their connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")

_END = object()


async def stream_in_task(start: Callable[[], Awaitable[AsyncIterator[T]]]) -> AsyncGenerator[T, None]:
    """Yield the items of a stream; closing this generator closes the stream before it returns.

    Closing nested async generators closes only the outermost one: the inner ones, and the connection, are left to the
    garbage collector. Cancelling the task that reads closes them from the inside out.

    >>> async def count():
    ...     async def numbers():
    ...         yield 1
    ...         yield 2
    ...     return numbers()
    >>> async def collect():
    ...     return [number async for number in stream_in_task(count)]
    >>> asyncio.run(collect())
    [1, 2]
    """
    queue: asyncio.Queue[Any] = asyncio.Queue()

    async def read() -> None:
        try:
            async for item in await start():
                queue.put_nowait(item)
        finally:
            queue.put_nowait(_END)

    task = asyncio.create_task(read())
    try:
        while (item := await queue.get()) is not _END:
            yield item
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
