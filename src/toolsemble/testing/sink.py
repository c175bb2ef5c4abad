"""A sink that keeps what it is told."""

from __future__ import annotations

import threading
from typing import Any


class RecordingSink:
    """Keeps the events of calls; it is told in the thread of the call, so they are there when the call ends.

    >>> from toolsemble import Toolbox, ToolCall, tool
    >>> @tool
    ... def shout(text: str) -> str:
    ...     return text.upper()
    >>> sink = RecordingSink()
    >>> reply = Toolbox([shout], sinks=[sink]).execute(ToolCall("shout", {"text": "hello"}))
    >>> sink.kinds, sink.of("call_finished")[0].text
    (['call_started', 'call_finished'], 'HELLO')
    """

    inline = True

    def __init__(self) -> None:
        self._events: list[Any] = []
        # Reentrant: the collector may close a dropped call, which tells its end, while the lock is held.
        self._arrived = threading.Condition(threading.RLock())

    def emit(self, event: Any) -> None:
        """Keep an event."""
        with self._arrived:
            self._events.append(event)
            self._arrived.notify_all()

    @property
    def events(self) -> list[Any]:
        """Everything so far, in order."""
        with self._arrived:
            return list(self._events)

    @property
    def kinds(self) -> list[str]:
        """The kinds of everything so far, in order."""
        return [event.kind for event in self.events]

    def of(self, kind: str | type) -> list[Any]:
        """Give the events of a kind, which is a name such as ``"call_finished"``, or the class."""
        if isinstance(kind, type):
            return [event for event in self.events if isinstance(event, kind)]
        return [event for event in self.events if event.kind == kind]

    def wait(self, kind: str | type, count: int = 1, timeout: float = 5.0) -> list[Any]:
        """Give the events of a kind when there are as many, such as from a thread that outlives its call.

        It waits in this thread, so that async code awaits ``asyncio.to_thread(sink.wait, ...)``. It raises
        ``TimeoutError`` when they do not come.

        >>> RecordingSink().wait("call_finished", timeout=0.01)
        Traceback (most recent call last):
        ...
        TimeoutError: There are 0 of 1 events 'call_finished' after 0.01 s; there are: nothing
        """
        name = kind.__name__ if isinstance(kind, type) else kind
        with self._arrived:
            if self._arrived.wait_for(lambda: len(self.of(kind)) >= count, timeout):
                return self.of(kind)
            there, seen = f"{len(self.of(kind))} of {count} events {name!r}", ", ".join(self.kinds) or "nothing"
            raise TimeoutError(f"There are {there} after {timeout:g} s; there are: {seen}")

    def clear(self) -> None:
        """Forget everything."""
        with self._arrived:
            self._events.clear()
