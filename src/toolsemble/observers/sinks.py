"""Those who are told of events, each served so that it can neither hold up calls nor fail them."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar, runtime_checkable

from toolsemble.errors import ToolDefinitionError
from toolsemble.metrics import ToolMetrics
from toolsemble.observers.watchers import Companion, rewatch, unheard, unwatch, watch, watchers
from toolsemble.runtime.concurrency import JobFuture, finish, is_async, is_awaitable, start_thread, wait_for

LOGGER = logging.getLogger("toolsemble.sink")
LOGGER.addHandler(logging.NullHandler())  # a program that has not set up logging gets nothing printed

P = ParamSpec("P")
T = TypeVar("T")

CAPACITY = 10_000
"""How many events wait for a sink that is slow; those that come then are lost, and counted."""
PATIENCE = 0.25
"""How many seconds the end of a call waits for sinks to have seen what was told."""
_IDLE = 0.25  # how many seconds a thread waits for the next event before it ends
_QUIET = 60.0  # how many seconds pass until the next complaint about the same sink


@runtime_checkable
class Emits(Protocol):
    """A sink that is an object; the other kind is any function that takes an event.

    A sink is told in a thread of its own, one event after the other. With an attribute ``inline`` that is true it is
    told at once, in the thread and the context of the call, so that it must never wait. If it also has a method
    ``begin``, it goes along with each call: ``begin(context)`` gives a function, which is told the
    :class:`~toolsemble.execution.outcome.FinishedCall` in the same context, and what it makes current in between, such
    as a span, is current in the body. Its attribute ``metrics``, if there is one, counts the calls.

    >>> class Printer:
    ...     def emit(self, event):
    ...         print(event.kind)
    >>> isinstance(Printer(), Emits)
    True
    """

    def emit(self, event: Any) -> Any:
        """Take an event; may be ``async def``."""
        ...


Sink: TypeAlias = Emits | Callable[[Any], Any]
"""Who is told of events: a function that takes one, or an object with a method ``emit`` that does."""


class Sinks:
    """The sinks of a toolbox or an agent.

    >>> from toolsemble.observers.watchers import tell
    >>> seen = []
    >>> Sinks("Toolbox", [seen.append]).do(lambda: tell("done"))
    >>> seen
    ['done']
    """

    def __init__(self, owner: str, sinks: object) -> None:
        """Take down the sinks; refuse what is none."""
        if isinstance(sinks, (str, bytes)) or not isinstance(sinks, Iterable):
            raise ToolDefinitionError(f"{owner} sinks must be a list of sinks, not {sinks!r:.80}")
        made = [_outlet(f"{owner} sinks[{index}]", each) for index, each in enumerate(sinks)]
        self.outlets = tuple(dict.fromkeys(made))
        """Who is told of each event, in whatever way its sink wants it."""
        self._wait = any(isinstance(each, _Served) for each in self.outlets)  # those that are told at once never lag

    @property
    def some(self) -> bool:
        """Whether there are any."""
        return bool(self.outlets)

    def do(self, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Do the work, and tell the sinks what happens; those that are quick have seen it all when this ends."""
        added, before = self._added(), watchers()
        try:
            watch(*added)
            return work(*given, **named)
        finally:
            rewatch(before)
            if self._wait:
                _settle([mark for each in added if (mark := each.mark()) is not None], PATIENCE)

    async def ado(self, work: Awaitable[T]) -> T:
        """Await the work, and tell the sinks what happens; those that are quick have seen it all when this ends."""
        added = self._added()
        token = watch(*added)
        try:
            return await work
        finally:
            unwatch(token)
            if self._wait:
                await _asettle([mark for each in added if (mark := each.mark()) is not None])

    def enter(self, operation: str, facts: Mapping[str, Any]) -> Entered:
        """Let those sinks that go along go along with something that is no call.

        >>> with Sinks("Agent", [print]).enter("chat", {}) as told:
        ...     told["gen_ai.usage.output_tokens"] = 3
        """
        return Entered(self.outlets, operation, facts)

    def flush(self, timeout: float | None) -> bool:
        """Wait until every sink has seen what was told; whether all have in time."""
        return _settle([mark for each in self.outlets if (mark := each.mark(even_late=True)) is not None], timeout)

    @property
    def lost(self) -> int:
        """How many events were lost, because a sink was too slow."""
        return sum(each.lost for each in self.outlets)

    def _added(self) -> Sequence[_Outlet]:
        """Give those sinks that nobody around has told already."""
        around = watchers()
        return self.outlets if not around else [each for each in self.outlets if each not in around]


def sinks_of(owner: str, sinks: object) -> Sinks | None:
    """Give the sinks of a toolbox or an agent, None when there are none; refuse what is none.

    >>> sinks_of("Toolbox", []) is None
    True
    """
    made = Sinks(owner, sinks)
    return made if made.some else None


class _Outlet:
    """One sink, told at once in the thread of the call."""

    lost = 0

    def __init__(self, sink: Any) -> None:
        self._sink = sink  # kept, so that no other object gets its id
        self._emit: Callable[[Any], Any] = sink.emit if callable(getattr(sink, "emit", None)) else sink
        self._quiet_until = 0.0
        owner = getattr(sink, "__self__", None)
        # The methods of one object are new objects each time they are asked for.
        self._key = (id(sink), "") if owner is None else (id(owner), getattr(sink, "__name__", ""))

    def __call__(self, event: object) -> None:
        """Tell the sink; what it does about it, it is not told of."""
        token = unheard()
        try:
            self._emit(event)
        except Exception:  # noqa: BLE001 - a sink disturbs nothing
            self._complain("A sink failed: %r", self._sink, exc_info=True)
        finally:
            unwatch(token)

    def mark(self, *, even_late: bool = False) -> Future[None] | None:  # noqa: ARG002 - it is never late
        """Give None: it has seen everything."""
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Outlet) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def _complain(self, *line: Any, exc_info: bool = False) -> None:
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET
            LOGGER.warning(*line, exc_info=exc_info)


class _Along(_Outlet, Companion):
    """One sink that goes along with calls; what goes wrong in it disturbs nothing."""

    def __init__(self, sink: Any) -> None:
        super().__init__(sink)
        metrics = getattr(sink, "metrics", None)
        self.metrics = metrics if isinstance(metrics, ToolMetrics) else None
        self._begin: Callable[[Any], Any] = sink.begin
        self._enter: Callable[..., Any] = getattr(sink, "enter", _nothing)

    def begin(self, context: Any) -> Callable[[Any], object] | None:
        """Let the sink begin; give how it is told the end."""
        end = self._guarded(self._begin, context)
        return None if end is None else partial(self._guarded, end)

    def enter(self, operation: str, facts: Mapping[str, Any]) -> Callable[..., object] | None:
        """Let the sink go along with something that is no call, if it wants to."""
        end = self._guarded(self._enter, operation, facts)
        return None if end is None else partial(self._guarded, end)

    def pack(self) -> Callable[[], object] | None:
        """Give what the sink sends to a worker process, if it does."""
        packed: Callable[[], object] | None = self._guarded(getattr(self._sink, "pack", _nothing))
        return packed

    def _guarded(self, work: Callable[..., Any], *given: Any) -> Any:
        try:
            return work(*given)
        except Exception:  # noqa: BLE001 - as above
            self._complain("A sink failed: %r", self._sink, exc_info=True)
            return None


def _nothing(*_: Any) -> None:
    """Go along with nothing."""


class Entered:
    """Something that sinks go along with, from its beginning to its end; what is put into it is told at the end."""

    def __init__(self, outlets: Iterable[object], operation: str, facts: Mapping[str, Any]) -> None:
        self._outlets = outlets
        self._begun = operation, facts
        self._told: dict[str, Any] = {}

    def __enter__(self) -> dict[str, Any]:
        ends = [each.enter(*self._begun) for each in self._outlets if isinstance(each, Companion)]
        self._ends = [end for end in ends if end is not None]
        return self._told

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for end in reversed(self._ends):
            end(error, self._told)


class _Served(_Outlet):
    """One sink, told in order by a thread of its own, which is there while there is something to tell."""

    def __init__(self, sink: Any) -> None:
        super().__init__(sink)
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.RLock()
        # The collector may close a dropped call, which tells its end, at any place here: this queue can take that.
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._serving = False
        self._alone = threading.Lock()  # taken by the one thread that serves
        self._late = False
        self.lost = 0

    def __call__(self, event: object) -> None:
        """Put the event into the line; it is lost when that is too long."""
        self._check_process()
        if self._queue.qsize() < CAPACITY:
            self._put(event)
            return
        with self._lock:
            self.lost += 1
        self._complain("A sink is too slow, events are lost: %r", self._sink)

    def mark(self, *, even_late: bool = False) -> Future[None] | None:
        """Give what is done when the sink has seen everything until now; None when it is known to be late."""
        self._check_process()
        if self._late and not even_late:
            return None
        seen = _Seen(self)
        self._put(seen)
        return seen

    def late(self) -> None:
        """Take down that it is not to be waited for until it has caught up."""
        self._late = True

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            self._begin()  # a fork: the thread is the parent's, and so is what waits

    def _put(self, item: object) -> None:
        self._queue.put(item)
        try:
            with self._lock:
                first, self._serving = not self._serving, True
            if first:
                start_thread(self._serve_alone, "toolsemble-sink", daemon=True)
        except RuntimeError:
            self._serving = False  # the program ends, or has too many threads: the next event tries again
        except BaseException:
            self._serving = False  # an interrupt: nobody knows whether there is a thread; another one may be started
            raise

    def _serve_alone(self) -> None:
        with self._alone:
            self._serve()

    def _serve(self) -> None:
        unheard()
        while (items := self._next()) is not None:
            for item in items:
                self._take(item)
            del items[:]  # or the last event would be kept until the next one
            if self._late and self._queue.empty():
                self._late = False

    def _next(self) -> list[Any] | None:
        """Give the next item, if there is one soon; None when the thread is to end."""
        try:
            return [self._queue.get(timeout=_IDLE)]
        except Empty:
            with self._lock:
                # Something may have come in the last moment, from somebody who saw us serve.
                self._serving = not self._queue.empty()
                return [] if self._serving else None

    def _take(self, item: Any) -> None:
        if isinstance(item, _Seen):
            if item.set_running_or_notify_cancel():
                item.set_result(None)
            return
        try:
            made = self._emit(item)
            if is_awaitable(made):
                finish(made)
        except BaseException:  # noqa: BLE001 - a sink disturbs nothing, and a thread that ends would lose the rest
            self._complain("A sink failed: %r", self._sink, exc_info=True)


class _Seen(JobFuture[None]):
    """Done when a sink has come to this place in its line."""

    def __init__(self, outlet: _Served) -> None:
        super().__init__()
        self.outlet = outlet


def _settle(marks: list[Any], timeout: float | None) -> bool:
    """Wait for sinks, for as long as one may wait for all of them; whether they have seen everything."""
    if not marks:
        return True
    ends = None if timeout is None else time.monotonic() + timeout
    for mark in marks:
        seconds = None if ends is None else min(max(0.0, ends - time.monotonic()), threading.TIMEOUT_MAX)
        if not wait_for(mark, seconds):
            mark.outlet.late()
    return all(mark.done() for mark in marks)


async def _asettle(marks: list[Any]) -> None:
    if not marks:
        return
    import asyncio  # noqa: PLC0415 - sync programs never pay for it

    waiting = [asyncio.wrap_future(mark) for mark in marks]
    try:
        await asyncio.wait(waiting, timeout=PATIENCE)
    finally:
        for future, mark in zip(waiting, marks, strict=True):
            if not future.done():
                future.cancel()
                mark.outlet.late()


def _outlet(place: str, sink: Any) -> _Outlet:
    """Give how a sink is served; refuse what is none."""
    if isinstance(sink, type):
        raise ToolDefinitionError(f"{place} ({sink.__name__}) is a class; pass an instance: {sink.__name__}(...)")
    emit = getattr(sink, "emit", None)
    if not callable(emit) and not callable(sink):
        raise ToolDefinitionError(f"{place} must be a function of an event, or have emit(event), not {sink!r:.80}")
    if getattr(sink, "inline", False) is not True:
        return _Served(sink)
    if is_async(emit if callable(emit) else sink):
        raise ToolDefinitionError(f"{place} cannot be inline, for it is async: leave inline out")
    return _Along(sink) if callable(getattr(sink, "begin", None)) else _Outlet(sink)
