"""Sinks: receivers of events, isolated so that they can neither delay calls nor make them fail."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar, runtime_checkable

from toolsemble._runtime.event_loops import finish, is_async, is_awaitable
from toolsemble._runtime.metrics import ToolMetrics
from toolsemble._runtime.threads import JobFuture, start_thread, wait_for
from toolsemble._runtime.watchers import ScopedWatcher, mute, set_watchers, unwatch, watch, watchers
from toolsemble._vocabulary.errors import ToolDefinitionError

LOGGER = logging.getLogger("toolsemble.sink")
LOGGER.addHandler(logging.NullHandler())  # a program that has not set up logging gets nothing printed

P = ParamSpec("P")
T = TypeVar("T")

CAPACITY = 10_000
"""The number of events queued for a slow sink; further ones are dropped, and counted."""
PATIENCE = 0.25
"""Seconds that the end of a call waits for sinks to process its events."""
_MAX_BATCH = 500  # events that a sink with ``emit_all`` gets at once
_IDLE = 0.25  # seconds that a thread waits for the next event before it ends
_QUIET = 60.0  # seconds until the next warning about the same sink


@runtime_checkable
class Emits(Protocol):
    """A sink that is an object; any function that takes an event is a sink, too.

    A sink receives events in a thread of its own, one after the other. With a true attribute ``inline`` it receives
    them immediately, in the thread and the context of the call, so that it must never block. If it also has a method
    ``begin``, that is called for each call: ``begin(context)`` returns a function that takes the ``FinishedCall`` in
    the same context, and what it makes current in between, such as a span, is current in the body. Its attribute
    ``metrics``, if there is one, counts the calls. A sink with a thread of its own may also have a method ``emit_all``:
    it gets all events that are waiting, as a list. Sinks with an equal attribute ``sink_key`` count as one: of those
    around a call, only the outermost receives its events.

    >>> class Printer:
    ...     def emit(self, event):
    ...         print(event.kind)
    >>> isinstance(Printer(), Emits)
    True
    """

    def emit(self, event: Any) -> Any:
        """Receive an event; may be ``async def``."""
        ...


Sink: TypeAlias = Emits | Callable[[Any], Any]
"""A receiver of events: a function that takes one, or an object with a method ``emit``."""


class Sinks:
    """The sinks of a toolbox or an agent.

    >>> from toolsemble._runtime.watchers import tell
    >>> seen = []
    >>> Sinks("Toolbox", [seen.append]).do(lambda: tell("done"))
    >>> seen
    ['done']
    """

    def __init__(self, owner: str, sinks: object) -> None:
        """Raise ToolDefinitionError for anything that is not a sink."""
        if isinstance(sinks, (str, bytes)) or not isinstance(sinks, Iterable):
            raise ToolDefinitionError(f"{owner} sinks must be a list of sinks, not {sinks!r:.80}")
        made = [_wrap_sink(f"{owner} sinks[{index}]", each) for index, each in enumerate(sinks)]
        self.outlets = tuple(dict.fromkeys(made))
        """The watchers that deliver events to the sinks."""
        self._wait = any(isinstance(each, _ThreadedSink) for each in self.outlets)  # inline sinks never lag

    @property
    def some(self) -> bool:
        """Whether there are any sinks."""
        return bool(self.outlets)

    def do(self, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Call a function and send its events to the sinks; fast sinks have processed them when this returns."""
        added, before = self._find_new(), watchers()
        try:
            watch(*added)
            return work(*given, **named)
        finally:
            set_watchers(before)
            if self._wait:
                _wait_until_seen([mark for each in added if (mark := each.mark()) is not None], PATIENCE)

    async def ado(self, work: Awaitable[T]) -> T:
        """Await an awaitable and send its events to the sinks; fast sinks have processed them when this returns."""
        added = self._find_new()
        token = watch(*added)
        try:
            return await work
        finally:
            unwatch(token)
            if self._wait:
                await _await_until_seen([mark for each in added if (mark := each.mark()) is not None])

    def enter(self, operation: str, facts: Mapping[str, Any]) -> OperationScope:
        """Return a context manager that lets scoped sinks observe an operation that is not a call.

        >>> with Sinks("Agent", [print]).enter("chat", {}) as results:
        ...     results["gen_ai.usage.output_tokens"] = 3
        """
        return OperationScope(self.outlets, operation, facts)

    def flush(self, timeout: float | None) -> bool:
        """Wait until every sink has processed all events; return whether all did in time."""
        return _wait_until_seen(
            [mark for each in self.outlets if (mark := each.mark(even_late=True)) is not None], timeout
        )

    @property
    def lost(self) -> int:
        """The number of events that were dropped because a sink was too slow."""
        return sum(each.lost for each in self.outlets)

    def _find_new(self) -> Sequence[_InlineSink]:
        """Return the sinks that do not receive the events of this context yet."""
        around = watchers()
        return self.outlets if not around else [each for each in self.outlets if each not in around]


def build_sinks(owner: str, sinks: object) -> Sinks | None:
    """Return the sinks of a toolbox or an agent, None for none; raise ToolDefinitionError for anything else.

    >>> build_sinks("Toolbox", []) is None
    True
    """
    made = Sinks(owner, sinks)
    return made if made.some else None


class _InlineSink:
    """A sink that receives events immediately, in the thread of the call."""

    lost = 0

    def __init__(self, sink: Any) -> None:
        self._sink = sink  # a reference, so that no other object gets its id
        self._emit: Callable[[Any], Any] = sink.emit if callable(getattr(sink, "emit", None)) else sink
        self._quiet_until = 0.0
        owner = getattr(sink, "__self__", None)
        # A bound method is a new object at each access.
        own = (id(sink), "") if owner is None else (id(owner), getattr(sink, "__name__", ""))
        self._key = getattr(sink, "sink_key", own)

    def __call__(self, event: object) -> None:
        """Send an event to the sink; events of what it does itself are dropped."""
        token = mute()
        try:
            self._emit(event)
        except Exception:  # a sink must not fail a call
            self._warn("A sink failed: %r", self._sink, exc_info=True)
        finally:
            unwatch(token)

    def mark(self, *, even_late: bool = False) -> Future[None] | None:
        """Return None: it has processed everything."""
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InlineSink) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def _warn(self, *line: Any, exc_info: bool = False) -> None:
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET
            LOGGER.warning(*line, exc_info=exc_info)


class _ScopedSink(_InlineSink, ScopedWatcher):
    """An inline sink that observes the start and the end of calls; its exceptions are logged, not raised."""

    def __init__(self, sink: Any) -> None:
        super().__init__(sink)
        metrics = getattr(sink, "metrics", None)
        self.metrics = metrics if isinstance(metrics, ToolMetrics) else None
        self._begin: Callable[[Any], Any] = sink.begin
        self._enter: Callable[..., Any] = getattr(sink, "enter", _do_nothing)

    def begin(self, context: Any) -> Callable[[Any], object] | None:
        """Start the sink for a call; return a function that takes the outcome."""
        end = self._call_safely(self._begin, context)
        return None if end is None else partial(self._call_safely, end)

    def enter(self, operation: str, facts: Mapping[str, Any]) -> Callable[..., object] | None:
        """Start the sink for an operation that is not a call, if it supports that."""
        end = self._call_safely(self._enter, operation, facts)
        return None if end is None else partial(self._call_safely, end)

    def pack(self) -> Callable[[], object] | None:
        """Return what the sink sends to a worker process; None for nothing."""
        packed: Callable[[], object] | None = self._call_safely(getattr(self._sink, "pack", _do_nothing))
        return packed

    def _call_safely(self, work: Callable[..., Any], *given: Any) -> Any:
        try:
            return work(*given)
        except Exception:
            self._warn("A sink failed: %r", self._sink, exc_info=True)
            return None


def _do_nothing(*_: Any) -> None:
    """Do nothing."""


class OperationScope:
    """An operation that scoped sinks observe; they get the entries of its dict at the end."""

    def __init__(self, outlets: Iterable[object], operation: str, facts: Mapping[str, Any]) -> None:
        self._outlets = outlets
        self._begun = operation, facts
        self._results: dict[str, Any] = {}

    def __enter__(self) -> dict[str, Any]:
        ends = [each.enter(*self._begun) for each in self._outlets if isinstance(each, ScopedWatcher)]
        self._ends = [end for end in ends if end is not None]
        return self._results

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for end in reversed(self._ends):
            end(error, self._results)


class _ThreadedSink(_InlineSink):
    """A sink that receives events in order in a thread of its own, which runs while there are events."""

    def __init__(self, sink: Any) -> None:
        super().__init__(sink)
        self._emit_all: Callable[[list[Any]], Any] | None = getattr(sink, "emit_all", None)
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.RLock()
        # The garbage collector may close a dropped call, which emits events, anywhere here: this queue is reentrant.
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._running = False
        self._alone = threading.Lock()  # held by the one thread that delivers
        self._late = False
        self.lost = 0

    def __call__(self, event: object) -> None:
        """Queue an event; drop it when the queue is full."""
        self._check_process()
        if self._queue.qsize() < CAPACITY:
            self._enqueue(event)
            return
        with self._lock:
            self.lost += 1
        self._warn("A sink is too slow, events are lost: %r", self._sink)

    def mark(self, *, even_late: bool = False) -> Future[None] | None:
        """Return a future that is done when all events so far are processed; None when the sink is known to be late."""
        self._check_process()
        if self._late and not even_late:
            return None
        seen = _Seen(self)
        self._enqueue(seen)
        return seen

    def late(self) -> None:
        """Mark the sink as late: it is not waited for until it has caught up."""
        self._late = True

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            self._begin()  # forked: the thread and the queued events belong to the parent

    def _enqueue(self, item: object) -> None:
        self._queue.put(item)
        try:
            with self._lock:
                first, self._running = not self._running, True
            if first:
                start_thread(self._deliver_alone, "toolsemble-sink", daemon=True)
        except RuntimeError:
            self._running = False  # the interpreter ends, or there are too many threads: the next event tries again
        except BaseException:
            self._running = False  # an interrupt: the thread may not run; another one may be started
            raise

    def _deliver_alone(self) -> None:
        with self._alone:
            self._deliver()

    def _deliver(self) -> None:
        mute()
        while (items := self._next()) is not None:
            self._handle_all(items)
            del items[:]  # else the last event would be referenced until the next one
            if self._late and self._queue.empty():
                self._late = False

    def _next(self) -> list[Any] | None:
        """Return the next items, an empty list to try again, or None to end the thread."""
        try:
            return [self._queue.get(timeout=_IDLE), *self._take_waiting()]
        except Empty:
            with self._lock:
                # An event may have been queued by a thread that still saw this one running.
                self._running = not self._queue.empty()
                return [] if self._running else None

    def _take_waiting(self) -> Iterator[Any]:
        """Return the items that are waiting, if the sink takes several at once."""
        for _ in range(0 if self._emit_all is None else _MAX_BATCH - 1):
            try:
                yield self._queue.get_nowait()
            except Empty:
                return

    def _handle_all(self, items: list[Any]) -> None:
        """Deliver events, and complete the marks between them, in order."""
        events: list[Any] = []
        for item in items:
            if not isinstance(item, _Seen):
                events.append(item)
                continue
            self._send(events)
            events = []
            if item.set_running_or_notify_cancel():
                item.set_result(None)
        self._send(events)

    def _send(self, events: list[Any]) -> None:
        batches = events if self._emit_all is None else [events] if events else []
        for batch in batches:
            self._try(self._emit_all or self._emit, batch)

    def _try(self, emit: Callable[[Any], Any], given: Any) -> None:
        try:
            made = emit(given)
            if is_awaitable(made):
                finish(made)
        except BaseException:  # a sink must not fail a call, and the thread has more to deliver
            self._warn("A sink failed: %r", self._sink, exc_info=True)


class _Seen(JobFuture[None]):
    """A future that is done when a sink has reached this place in its queue."""

    def __init__(self, outlet: _ThreadedSink) -> None:
        super().__init__()
        self.outlet = outlet


def _wait_until_seen(marks: list[Any], timeout: float | None) -> bool:
    """Wait for all sinks together, at most `timeout` seconds; return whether they have processed everything."""
    if not marks:
        return True
    ends = None if timeout is None else time.monotonic() + timeout
    for mark in marks:
        seconds = None if ends is None else min(max(0.0, ends - time.monotonic()), threading.TIMEOUT_MAX)
        if not wait_for(mark, seconds):
            mark.outlet.late()
    return all(mark.done() for mark in marks)


async def _await_until_seen(marks: list[Any]) -> None:
    if not marks:
        return
    import asyncio

    waiting = [asyncio.wrap_future(mark) for mark in marks]
    try:
        await asyncio.wait(waiting, timeout=PATIENCE)
    finally:
        for future, mark in zip(waiting, marks, strict=True):
            if not future.done():
                future.cancel()
                mark.outlet.late()


def _wrap_sink(place: str, sink: Any) -> _InlineSink:
    """Return the watcher that delivers to a sink; raise ToolDefinitionError for anything that is not a sink."""
    if isinstance(sink, type):
        raise ToolDefinitionError(f"{place} ({sink.__name__}) is a class; pass an instance: {sink.__name__}(...)")
    emit = getattr(sink, "emit", None)
    if not callable(emit) and not callable(sink):
        raise ToolDefinitionError(f"{place} must be a function of an event, or have emit(event), not {sink!r:.80}")
    if getattr(sink, "inline", False) is not True:
        return _ThreadedSink(sink)
    if is_async(emit if callable(emit) else sink):
        raise ToolDefinitionError(f"{place} is async and cannot be inline; remove the attribute inline")
    return _ScopedSink(sink) if callable(getattr(sink, "begin", None)) else _InlineSink(sink)
