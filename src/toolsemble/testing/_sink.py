"""A sink for tests that records events."""

from __future__ import annotations

import threading
from typing import Any


class RecordingSink:
    """A sink that records events in the thread of the call, so that they are complete when the call ends.

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
        # Reentrant: the garbage collector may close a call, which emits an event, while the lock is held.
        self._arrived = threading.Condition(threading.RLock())

    def emit(self, event: Any) -> None:
        """Record an event."""
        with self._arrived:
            self._events.append(event)
            self._arrived.notify_all()

    @property
    def events(self) -> list[Any]:
        """The events so far, in order."""
        with self._arrived:
            return list(self._events)

    @property
    def kinds(self) -> list[str]:
        """The kinds of the events so far, in order."""
        return [event.kind for event in self.events]

    def of(self, kind: str | type) -> list[Any]:
        """Return the events of a kind: a name such as ``"call_finished"``, or a class."""
        if isinstance(kind, type):
            return [event for event in self.events if isinstance(event, kind)]
        return [event for event in self.events if event.kind == kind]

    def wait(self, kind: str | type, count: int = 1, timeout: float = 5.0) -> list[Any]:
        """Wait for this many events of a kind, such as from a background thread, and return them.

        It blocks the thread, so async code awaits ``asyncio.to_thread(sink.wait, ...)``. It raises ``TimeoutError``
        if they do not arrive.

        >>> RecordingSink().wait("call_finished", timeout=0.01)
        Traceback (most recent call last):
        ...
        TimeoutError: 0 of 1 events 'call_finished' after 0.01 s; recorded: nothing
        """
        name = kind.__name__ if isinstance(kind, type) else kind
        with self._arrived:
            if self._arrived.wait_for(lambda: len(self.of(kind)) >= count, timeout):
                return self.of(kind)
            found, kinds = len(self.of(kind)), ", ".join(self.kinds) or "nothing"
            raise TimeoutError(f"{found} of {count} events {name!r} after {timeout:g} s; recorded: {kinds}")

    def clear(self) -> None:
        """Delete all recorded events."""
        with self._arrived:
            self._events.clear()
