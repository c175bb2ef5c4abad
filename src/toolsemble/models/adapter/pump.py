"""A stream that is read in a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")

_END = object()


async def pumped(start: Callable[[], Awaitable[AsyncIterator[T]]]) -> AsyncGenerator[T, None]:
    """Give what a stream gives; closed in the middle, it has the stream closed when it returns.

    A generator made of generators closes only its outermost one: the others, and the connection that the innermost
    one reads from, are left to the garbage collector. Cancelling the task that reads closes them from the inside out.

    >>> async def count():
    ...     async def numbers():
    ...         yield 1
    ...         yield 2
    ...     return numbers()
    >>> async def collect():
    ...     return [number async for number in pumped(count)]
    >>> asyncio.run(collect())
    [1, 2]
    """
    queue: asyncio.Queue[Any] = asyncio.Queue()

    async def pump() -> None:
        try:
            async for item in await start():
                queue.put_nowait(item)
        finally:
            queue.put_nowait(_END)

    task = asyncio.create_task(pump())
    try:
        while (item := await queue.get()) is not _END:
            yield item
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
