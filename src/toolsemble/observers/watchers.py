"""Who is told what happens inside of calls, while it happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from typing import Any, TypeAlias

from toolsemble.metrics import ToolMetrics

Watcher: TypeAlias = Callable[[Any], object]
"""A function that takes an event, in any thread; it must neither wait nor raise."""


class ScopedWatcher:
    """A watcher that goes along with what it watches, in the same thread and context, from its beginning to its end.

    Like any watcher it must neither wait nor raise. What it makes current, such as a span, is current in the body. The
    beginning and the end of calls may be left out of the events that it is told. This one does nothing.
    """

    __slots__ = ()
    metrics: ToolMetrics | None = None
    """Where the calls are counted, beside where they are counted anyway."""

    def __call__(self, event: Any) -> object:
        """Take an event of the time between."""

    def begin(self, context: Any) -> Callable[[Any], object] | None:  # noqa: ARG002 - as the others
        """Go along with a call in its :class:`~toolsemble.ToolContext`; give who takes its ``Ending``."""
        return None

    def enter(self, operation: str, facts: Mapping[str, Any]) -> Callable[..., object] | None:  # noqa: ARG002 - as the others
        """Go along with something else; give who takes what was raised, if anything was, and what came of it."""
        return None

    def pack(self) -> Callable[[], object] | None:
        """Give what can be sent to a worker process, to be called there before the body; None for nothing."""
        return None


_watchers: ContextVar[tuple[Watcher, ...]] = ContextVar("toolsemble.watchers", default=())
_NOBODY: tuple[Watcher, ...] = (lambda _: None,)

watchers: Callable[[], tuple[Watcher, ...]] = _watchers.get
"""Gives those who watch the calls of this context; most calls pay for this, and for nothing more."""


set_watchers: Callable[[tuple[Watcher, ...]], object] = _watchers.set
"""Has only those told who are given: those of before, read before others were added. An interrupt cannot come between
that and :func:`watch`, as it can before the token of that is known."""


def tell(event: object) -> None:
    """Tell whoever watches the calls of this context, from any thread; nobody may.

    >>> seen = []
    >>> token = watch(seen.append)
    >>> tell("half of it is done")
    >>> unwatch(token)
    >>> tell("nobody hears this")
    >>> seen
    ['half of it is done']
    """
    for watcher in _watchers.get():
        watcher(event)


def watch(*added: Watcher) -> Token[tuple[Watcher, ...]]:
    """Have some more told, beside those who are told already, until :func:`unwatch`; each of them once."""
    known = _watchers.get()
    if not known and len(added) == 1:
        return _watchers.set(added)  # what most calls with sinks do
    new = () if known is _NOBODY else tuple(each for each in dict.fromkeys(added) if each not in known)
    return _watchers.set((*known, *new) if new else known)


def unwatch(token: Token[tuple[Watcher, ...]]) -> None:
    """Have only those told who were told before."""
    try:  # noqa: SIM105 - as where contexts are left: suppress() costs more than the rest
        _watchers.reset(token)
    except ValueError:
        pass  # closed by the collector, it may stand in another context, where there is nothing to undo


def mute() -> Token[tuple[Watcher, ...]]:
    """Have nobody told of the calls that are made here until :func:`unwatch`, whoever else begins to watch.

    That is for those who are told: what they do about it would be told to them once more.

    >>> token = mute()
    >>> inner = watch(print)
    >>> tell("nobody hears this")
    >>> unwatch(inner), unwatch(token)
    (None, None)
    """
    return _watchers.set(_NOBODY)
