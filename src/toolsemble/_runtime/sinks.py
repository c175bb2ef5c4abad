"""Sinks: receivers of events, isolated so that they can neither delay calls nor fail them."""

from __future__ import annotations

import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeGuard, TypeVar, runtime_checkable

from toolsemble._runtime.event_loops import finish, is_async, is_awaitable
from toolsemble._runtime.metrics import ToolMetrics
from toolsemble._runtime.threads import JobFuture, start_thread, wait_for
from toolsemble._runtime.watchers import ScopedWatcher, mute, set_watchers, unwatch, watch, watchers
from toolsemble._vocabulary.errors import ToolDefinitionError

LOGGER = logging.getLogger("toolsemble.sink")
LOGGER.addHandler(logging.NullHandler())  # prints nothing if the program has not configured logging

P = ParamSpec("P")
T = TypeVar("T")

CAPACITY = 10_000
"""The number of events queued for a slow sink; further events are dropped and counted."""
PATIENCE = 0.25
"""Seconds that a call waits at its end for sinks to process its events."""
_MAX_BATCH = 500  # maximum events in a batch
_IDLE = 0.25  # seconds that an idle thread waits for the next event
_QUIET = 60.0  # minimum seconds between warnings about the same sink


class Sink(ABC):
    """The base class of sinks: receivers of events.

    A function of an event is also a sink, and so is any object with a method ``emit``.

    >>> from toolsemble import Toolbox, ToolCall, tool
    >>> class Kinds(Sink):
    ...     inline = True
    ...     def emit(self, event):
    ...         print(event.kind)
    >>> @tool
    ... def add(a: int, b: int) -> int:
    ...     return a + b
    >>> reply = Toolbox([add], sinks=[Kinds()]).execute(ToolCall("add", {"a": 1, "b": 2}))
    call_started
    call_finished
    """

    inline: bool = False
    """False: events are received in the sink's thread, one after another. True: immediately, in the thread and the
    context of the call; such a sink must never block."""
    sink_key: Hashable = None
    """Sinks with equal keys are one sink: only the outermost one receives a call's events. None: only the object
    itself is the same sink."""

    @abstractmethod
    def emit(self, event: Any) -> Any:
        """Receive an event; may be ``async def`` if the sink is not inline."""


class BatchSink(Sink):
    """The base class of sinks that receive all waiting events at once, such as one that writes to a database.

    >>> class Batches(BatchSink):
    ...     def emit_all(self, events):
    ...         print([event.kind for event in events])
    >>> from toolsemble.events import CallProgress
    >>> Batches().emit(CallProgress("scrape", "call_1", 0.4))
    ['call_progress']
    """

    @abstractmethod
    def emit_all(self, events: list[Any]) -> Any:
        """Receive the events that are waiting, in order; may be ``async def``."""

    def emit(self, event: Any) -> Any:
        """Receive one event, as a list of one."""
        return self.emit_all([event])


class ScopedSink(Sink):
    """The base class of inline sinks that are called at the start and the end of each call, in its thread and context.

    A span or context variable that :meth:`begin` makes current is current in the body. These sinks do not
    receive the events ``call_started`` and ``call_finished``. Override the methods that are needed.

    >>> from toolsemble import Toolbox, ToolCall, tool
    >>> class Outcomes(ScopedSink):
    ...     def begin(self, context):
    ...         print(context.tool_name)
    ...         return lambda finished: print(finished.outcome)
    >>> @tool
    ... def add(a: int, b: int) -> int:
    ...     return a + b
    >>> reply = Toolbox([add], sinks=[Outcomes()]).execute(ToolCall("add", {"a": 1, "b": 2}))
    add
    success
    """

    inline = True
    metrics: ToolMetrics | None = None
    """Additional metrics that count the calls; None for none."""

    def emit(self, event: Any) -> Any:
        """Receive an event between the start and the end of a call, or of a run; does nothing here."""

    def begin(self, context: Any) -> Callable[[Any], object] | None:
        """Start to observe a call in its :class:`~toolsemble.ToolContext`; does nothing here.

        Return a function that receives the end of the call, with ``outcome``, ``reason``, ``message``, ``arguments``,
        ``result`` and ``duration``; or None.
        """
        return None

    def enter(self, operation: str, facts: Mapping[str, Any]) -> Callable[..., object] | None:
        """Start to observe an operation of an agent: ``"invoke_agent"`` or ``"chat"``; does nothing here.

        Return a function that receives the exception or None, and a mapping with the results; or None.
        """
        return None

    def pack(self) -> Callable[[], object] | None:
        """Return a picklable function that a worker process calls before the body; None for none."""
        return None


@runtime_checkable
class Emits(Protocol):
    """An object that is a sink without the base class."""

    def emit(self, event: Any) -> Any:
        """Receive an event; may be ``async def``."""
        ...


SinkLike: TypeAlias = Emits | Callable[[Any], Any]
"""The type of a toolbox's or agent's sink: a function of an event, or an object with a method ``emit``."""


class Sinks:
    """The sinks of a toolbox or an agent."""

    def __init__(self, owner: str, sinks: object) -> None:
        """Raise ToolDefinitionError for anything that is not a sink."""
        if isinstance(sinks, (str, bytes)) or not isinstance(sinks, Iterable):
            raise ToolDefinitionError(f"{owner} sinks must be a list of sinks, not {sinks!r:.80}")
        made = [_build_outlet(f"{owner} sinks[{index}]", each) for index, each in enumerate(sinks)]
        self.outlets = tuple(dict.fromkeys(made))
        """The watchers that deliver events to the sinks."""
        self._wait = any(isinstance(each, _ThreadedOutlet) for each in self.outlets)  # inline sinks never lag

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
        """Wait until every sink has processed all events; return whether all did within the timeout."""
        return _wait_until_seen(
            [mark for each in self.outlets if (mark := each.mark(even_late=True)) is not None], timeout
        )

    @property
    def lost(self) -> int:
        """The number of events dropped because a sink was too slow."""
        return sum(each.lost for each in self.outlets)

    def _find_new(self) -> Sequence[_InlineOutlet]:
        """Return the sinks that do not yet receive this context's events."""
        around = watchers()
        return self.outlets if not around else [each for each in self.outlets if each not in around]


def build_sinks(owner: str, sinks: object) -> Sinks | None:
    """Return the sinks of a toolbox or an agent, None for none; raise ToolDefinitionError for anything else.

    >>> build_sinks("Toolbox", []) is None
    True
    """
    made = Sinks(owner, sinks)
    return made if made.some else None


class _InlineOutlet:
    """A sink that receives events immediately, in the thread of the call."""

    lost = 0

    def __init__(self, sink: Sink) -> None:
        self._sink = sink  # a reference, so that no other object gets its id
        self._emit: Callable[[Any], Any] = sink.emit
        self._quiet_until = 0.0
        self._key: Hashable = id(sink) if sink.sink_key is None else sink.sink_key

    def __call__(self, event: object) -> None:
        """Send an event to the sink; events that the sink itself causes are dropped."""
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
        return isinstance(other, _InlineOutlet) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def _warn(self, *line: Any, exc_info: bool = False) -> None:
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET
            LOGGER.warning(*line, exc_info=exc_info)


class _ScopedOutlet(_InlineOutlet, ScopedWatcher):
    """An inline sink that observes the start and the end of calls; its exceptions are logged, not raised."""

    def __init__(self, sink: ScopedSink) -> None:
        super().__init__(sink)
        self.metrics = sink.metrics if isinstance(sink.metrics, ToolMetrics) else None
        self._begin, self._enter, self._pack = sink.begin, sink.enter, sink.pack

    def begin(self, context: Any) -> Callable[[Any], object] | None:
        """Start the sink for a call; return a function that takes the outcome."""
        end = self._call_safely(self._begin, context)
        return None if end is None else partial(self._call_safely, end)

    def enter(self, operation: str, facts: Mapping[str, Any]) -> Callable[..., object] | None:
        """Start the sink for an operation that is not a call."""
        end = self._call_safely(self._enter, operation, facts)
        return None if end is None else partial(self._call_safely, end)

    def pack(self) -> Callable[[], object] | None:
        """Return the function that the sink sends to a worker process; None for none."""
        packed: Callable[[], object] | None = self._call_safely(self._pack)
        return packed

    def _call_safely(self, work: Callable[..., Any], *given: Any) -> Any:
        try:
            return work(*given)
        except Exception:
            self._warn("A sink failed: %r", self._sink, exc_info=True)
            return None


class OperationScope:
    """An operation that scoped sinks observe; they receive the entries of its dict at the end."""

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


class _ThreadedOutlet(_InlineOutlet):
    """A sink that receives events in order in its own thread, which runs while there are events."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._emit_all = sink.emit_all if isinstance(sink, BatchSink) else None
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
        """Mark the sink as late: calls do not wait for it until it has caught up."""
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
            self._running = False  # at shutdown, or with too many threads: the next event tries again
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
                # Another thread may have queued an event while this one still counted as running.
                self._running = not self._queue.empty()
                return [] if self._running else None

    def _take_waiting(self) -> Iterator[Any]:
        """Yield the queued items, if the sink receives batches."""
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
    """A future that is done when a sink has reached this position in its queue."""

    def __init__(self, outlet: _ThreadedOutlet) -> None:
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


def _build_outlet(place: str, sink: Any) -> _InlineOutlet:
    """Return the watcher that delivers to a sink; raise ToolDefinitionError for anything that is not a sink."""
    if isinstance(sink, type):
        raise ToolDefinitionError(f"{place} ({sink.__name__}) is a class; pass an instance: {sink.__name__}(...)")
    made = sink if _has_base(sink) else _adapt(place, sink)
    if made.inline is not True:
        return _ThreadedOutlet(made)
    if is_async(made.emit):
        raise ToolDefinitionError(f"{place} is async and cannot be inline; remove the attribute inline")
    return _ScopedOutlet(made) if isinstance(made, ScopedSink) else _InlineOutlet(made)


def _has_base(sink: Any) -> TypeGuard[Sink]:
    """Return whether a sink has the base class that its methods belong to."""
    if isinstance(sink, (BatchSink, ScopedSink)):
        return True
    return isinstance(sink, Sink) and not hasattr(sink, "emit_all") and not hasattr(sink, "begin")


def _adapt(place: str, given: Any) -> Sink:
    """Return a sink of the base classes for a function, or for an object that has some of their methods.

    Besides the check above, this is the only place that finds a sink's methods by name.
    """
    emit = getattr(given, "emit", None)
    if not callable(emit) and not callable(given):
        raise ToolDefinitionError(f"{place} must be a function of an event, or have emit(event), not {given!r:.80}")
    emit, inline = emit if callable(emit) else given, getattr(given, "inline", False) is True
    if inline and callable(getattr(given, "begin", None)):
        return _AdaptedScope(given, emit, inline=inline)
    if not inline and callable(getattr(given, "emit_all", None)):
        return _AdaptedBatches(given, emit, inline=inline)
    return _Adapted(given, emit, inline=inline)


class _Adapted(Sink):
    """A function, or an object without the base class, as a sink."""

    def __init__(self, given: Any, emit: Callable[[Any], Any], *, inline: bool) -> None:
        self._given = given
        self.inline = inline
        self.emit = emit  # type: ignore[method-assign, assignment]  # saves a frame for each event
        owner = getattr(given, "__self__", None)
        # A bound method is a new object at each access.
        own = (id(given), "") if owner is None else (id(owner), getattr(given, "__name__", ""))
        key = getattr(given, "sink_key", None)
        self.sink_key = own if key is None else key

    def emit(self, event: Any) -> Any:
        """Receive an event; each instance replaces this with the given function."""

    def __repr__(self) -> str:
        return repr(self._given)


class _AdaptedBatches(_Adapted, BatchSink):
    """An object with a method ``emit_all``."""

    def emit_all(self, events: list[Any]) -> Any:
        """Receive the queued events."""
        return self._given.emit_all(events)


class _AdaptedScope(_Adapted, ScopedSink):
    """An inline object with a method ``begin``, and any other methods of a scoped sink."""

    def __init__(self, given: Any, emit: Callable[[Any], Any], *, inline: bool) -> None:
        super().__init__(given, emit, inline=inline)
        for name in ("begin", "enter", "pack", "metrics"):
            if (found := getattr(given, name, None)) is not None:
                setattr(self, name, found)
