"""A clock for tests that only moves when a test advances it."""

from __future__ import annotations

import datetime
import threading
from typing import Any

from toolsemble._runtime.sinks import Sink
from toolsemble.review import Continue, Reviewer, ReviewRequest


class FixedClock:
    """A callable that returns a fixed, aware datetime.

    Pass :meth:`time` if seconds are expected.

    >>> from toolsemble.builtin import DateTimeTool
    >>> clock = FixedClock("2024-02-28T23:30:00+00:00")
    >>> tool = DateTimeTool(clock)
    >>> tool.execute("today").text
    '2024-02-28'
    >>> clock.advance(hours=1)
    >>> tool.execute("today").text, clock.time()
    ('2024-02-29', 1709166600.0)
    """

    def __init__(self, now: str | datetime.datetime = "2024-01-01T00:00:00+00:00") -> None:
        """Set the time; raise ``ValueError`` if it has no time zone.

        :param now: an aware datetime, or its text in ISO 8601
        """
        self._lock = threading.Lock()
        self._now = _parse_aware(now)

    def __call__(self) -> datetime.datetime:
        """Return the time."""
        return self._now

    def time(self) -> float:
        """Return the time in seconds since the epoch, like ``time.time``."""
        return self._now.timestamp()

    def advance(self, seconds: float = 0.0, **units: float) -> None:
        """Move the clock by seconds or by the units of a ``timedelta``; negative numbers move it back.

        >>> clock = FixedClock()
        >>> clock.advance(90)
        >>> clock.advance(days=1, minutes=1)
        >>> str(clock)
        '2024-01-02T00:02:30+00:00'
        """
        with self._lock:
            self._now += datetime.timedelta(seconds=seconds, **units)

    def set(self, now: str | datetime.datetime) -> None:
        """Set the clock to another time.

        >>> clock = FixedClock()
        >>> clock.set("2030-01-01T12:00:00Z")
        >>> clock().year
        2030
        """
        with self._lock:
            self._now = _parse_aware(now)

    def __str__(self) -> str:
        return self._now.isoformat()

    def __repr__(self) -> str:
        return f"FixedClock({self._now.isoformat()!r})"


def _parse_aware(now: str | datetime.datetime) -> datetime.datetime:
    moment = datetime.datetime.fromisoformat(now) if isinstance(now, str) else now
    if moment.utcoffset() is None:
        raise ValueError(f"FixedClock needs a time zone: write {moment.isoformat()}+00:00 for UTC")
    return moment


class FakeReviewer(Reviewer):
    """A reviewer that returns its answers in order, repeats the last one, and records the requests.

    An answer is a decision, an exception to raise, or a function of the request that returns a decision. Any other
    value is returned unchanged, to test that the call is rejected. Without answers it always approves.

    >>> from toolsemble import ExitEarly, Toolbox, ToolCall, tool
    >>> @tool(requires_approval=True)
    ... def delete(path: str) -> str:
    ...     return f"deleted {path}"
    >>> reviewer = FakeReviewer(Continue(), ExitEarly("not that one"))
    >>> box = Toolbox([delete], review=reviewer)
    >>> [box.execute(ToolCall("delete", {"path": path})).text for path in ("a.log", "b.log")]
    ['deleted a.log', 'Error: Rejected by reviewer: not that one']
    >>> [request.arguments for request in reviewer.requests]
    [{'path': 'a.log'}, {'path': 'b.log'}]
    """

    def __init__(self, *answers: Any) -> None:
        self.requests: list[ReviewRequest] = []
        """The requests so far, in order."""
        self._answers = answers or (Continue(),)
        self._lock = threading.Lock()

    # Not async, so that the call path runs it in a worker thread and enforces the timeout.
    def review(self, request: ReviewRequest) -> Any:
        """Return the next answer."""
        with self._lock:
            self.requests.append(request)
            answer = self._answers[min(len(self.requests), len(self._answers)) - 1]
        if isinstance(answer, BaseException) or (isinstance(answer, type) and issubclass(answer, BaseException)):
            raise answer
        # A class is not called: a decision class that was passed by mistake must be rejected.
        return answer(request) if callable(answer) and not isinstance(answer, type) else answer


class RecordingSink(Sink):
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
