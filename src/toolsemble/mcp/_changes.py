"""Changes of tools, resources and prompts: announced by clients and programs, followed by servers."""

from __future__ import annotations

import threading
from collections.abc import Callable

_lock = threading.Lock()
_followers: dict[object, Callable[[], object]] = {}


def follow_changes(follower: Callable[[], object]) -> Callable[[], None]:
    """Call a function, in any thread, whenever a change is announced; return a function that ends this.

    >>> seen = []
    >>> stop = follow_changes(lambda: seen.append("changed"))
    >>> announce_changes()
    >>> stop()
    >>> announce_changes()
    >>> seen
    ['changed']
    """
    key = object()
    with _lock:
        _followers[key] = follower

    def stop() -> None:
        with _lock:
            _followers.pop(key, None)

    return stop


def announce_changes() -> None:
    """Tell the servers of this program that tools, resources or prompts may have changed; from any thread.

    A server then calls its functions of the :class:`Caller` again for each caller that listens, and notifies the
    clients whose lists differ. Changes of an :class:`MCPClient` are announced by itself.

    >>> announce_changes()
    """
    with _lock:
        followers = list(_followers.values())
    for follower in followers:
        follower()
