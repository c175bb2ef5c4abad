"""An event loop whose clock does not depend on what else the machine does."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Mapping
from typing import Any

from timing import PROCESSOR


class _SkippingSelector(selectors.BaseSelector):
    """A selector that does not wait: it counts the seconds that it would have waited."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self.skipped = 0.0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._selector.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._selector.unregister(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return self._selector.select()  # another thread has to wake it up
        found = self._selector.select(0)
        self.skipped += 0 if found else max(timeout, 0)
        return found

    def close(self) -> None:
        self._selector.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._selector.get_map()


class SteadyLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is processor time plus the time it would have waited; it never waits.

    That is how long the same would take on a machine without other work. Only for work that needs no threads.

    >>> with asyncio.Runner(loop_factory=SteadyLoop) as runner:
    ...     runner.run(asyncio.sleep(86400))
    """

    def __init__(self) -> None:
        self._waits = _SkippingSelector()
        super().__init__(self._waits)

    def time(self) -> float:
        """Return the time of this loop, which its timers go by."""
        return PROCESSOR() + self._waits.skipped
