"""Who is told what happens inside of calls, while it happens."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token

_watcher: ContextVar[Callable[[object], None] | None] = ContextVar("toolsemble.watcher", default=None)


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
    watcher = _watcher.get()
    if watcher is not None:
        watcher(event)


def watch(watcher: Callable[[object], None]) -> Token[Callable[[object], None] | None]:
    """Have a function told, until :func:`unwatch`; it is called in any thread, and must neither wait nor raise."""
    return _watcher.set(watcher)


def unwatch(token: Token[Callable[[object], None] | None]) -> None:
    """Have the one told who was told before."""
    _watcher.reset(token)
