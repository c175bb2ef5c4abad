"""Who is told what happens inside of calls, while it happens."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any, TypeAlias

Watcher: TypeAlias = Callable[[Any], object]
"""A function that takes an event, in any thread; it must neither wait nor raise."""

_watchers: ContextVar[tuple[Watcher, ...]] = ContextVar("toolsemble.watchers", default=())
_NOBODY: tuple[Watcher, ...] = (lambda _: None,)

watchers: Callable[[], tuple[Watcher, ...]] = _watchers.get
"""Gives those who watch the calls of this context; most calls pay for this, and for nothing more."""


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


def unheard() -> Token[tuple[Watcher, ...]]:
    """Have nobody told of the calls that are made here until :func:`unwatch`, whoever else begins to watch.

    That is for those who are told: what they do about it would be told to them once more.

    >>> token = unheard()
    >>> inner = watch(print)
    >>> tell("nobody hears this")
    >>> unwatch(inner), unwatch(token)
    (None, None)
    """
    return _watchers.set(_NOBODY)
