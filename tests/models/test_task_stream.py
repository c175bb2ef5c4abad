import asyncio

import pytest

from toolsemble.models.google._model import stream_in_task


class Source:
    """A stream inside a stream, which waits after its first item and knows when it is closed."""

    def __init__(self, *items):
        self._items = items
        self.closed = False

    async def __call__(self):
        return self._outer()

    async def _outer(self):
        async for item in self._inner():
            yield item

    async def _inner(self):
        try:
            for item in self._items:
                if isinstance(item, Exception):
                    raise item
                yield item
            await asyncio.Event().wait()
        finally:
            self.closed = True
            await asyncio.sleep(0)


async def test_closing_stream_closes_inner_generators():
    source = Source(1)
    items = stream_in_task(source)
    assert await anext(items) == 1
    await asyncio.wait_for(items.aclose(), 30)
    assert source.closed


async def test_stream_error_follows_its_items():
    source = Source(1, ValueError("no more"))
    items = stream_in_task(source)
    assert await anext(items) == 1
    with pytest.raises(ValueError, match="no more"):
        await anext(items)
    assert source.closed


async def test_errors_of_a_stream_are_ignored_after_closing():
    source = Source(1, ValueError("no more"))
    items = stream_in_task(source)
    assert await anext(items) == 1
    await items.aclose()
    assert source.closed


async def test_cancelling_closes_the_stream():
    source = Source()
    task = asyncio.create_task(anext(stream_in_task(source)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 30)
