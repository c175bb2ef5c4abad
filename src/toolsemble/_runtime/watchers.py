"""Watchers: functions that receive the events of calls in the current context."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from typing import Any, TypeAlias

from toolsemble._runtime.metrics import ToolMetrics

Watcher: TypeAlias = Callable[[Any], object]
"""A function that takes an event, in any thread; it must neither block nor raise."""


class ScopedWatcher:
    """A watcher that is also called at the start and the end of calls and operations, in their thread and context.

    Like any watcher it must neither block nor raise. A span that it makes current is current in the body. It
    may not receive the events for the start and the end of calls. This base class does nothing.
    """

    __slots__ = ()
    metrics: ToolMetrics | None = None
    """Additional metrics that count the calls; None for none."""

    def __call__(self, event: Any) -> object:
        """Receive an event between start and end."""

    def begin(self, context: Any) -> Callable[[Any], object] | None:
        """Start to observe a call in its :class:`~toolsemble.ToolContext`; return a function that takes its outcome."""
        return None

    def enter(self, operation: str, facts: Mapping[str, Any]) -> Callable[..., object] | None:
        """Start to observe another operation; return a function that takes the exception or None, and the results."""
        return None

    def pack(self) -> Callable[[], object] | None:
        """Return a function that can be pickled and is called in a worker process before the body; None for none."""
        return None


_watchers: ContextVar[tuple[Watcher, ...]] = ContextVar("toolsemble.watchers", default=())
_MUTED: tuple[Watcher, ...] = (lambda _: None,)

watchers: Callable[[], tuple[Watcher, ...]] = _watchers.get
"""Return the watchers of this context; the only cost for most calls."""


set_watchers: Callable[[tuple[Watcher, ...]], object] = _watchers.set
"""Replace the watchers of this context by an earlier value: an interrupt can lose a token of
:func:`watch`, but not this value."""


def tell(event: object) -> None:
    """Send an event to the watchers of this context, if there are any."""
    for watcher in _watchers.get():
        watcher(event)


def watch(*added: Watcher) -> Token[tuple[Watcher, ...]]:
    """Add watchers to this context until :func:`unwatch`; each of them once."""
    known = _watchers.get()
    if not known and len(added) == 1:
        return _watchers.set(added)  # the common case for calls with sinks
    new = () if known is _MUTED else tuple(each for each in dict.fromkeys(added) if each not in known)
    return _watchers.set((*known, *new) if new else known)


def unwatch(token: Token[tuple[Watcher, ...]]) -> None:
    """Remove the watchers that were added with a token."""
    try:  # noqa: SIM105 - suppress() costs more than the reset
        _watchers.reset(token)
    except ValueError:
        pass  # a generator closed by the garbage collector may run in another context, with nothing to undo


def mute() -> Token[tuple[Watcher, ...]]:
    """Drop the events of this context until :func:`unwatch`, even when watchers are added.

    Sinks run muted: they must not receive events of their own calls.
    """
    return _watchers.set(_MUTED)
