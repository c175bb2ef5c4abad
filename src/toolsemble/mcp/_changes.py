"""Notifications of changed tools, resources and prompts, from clients and programs to servers."""

from __future__ import annotations

import threading
from collections.abc import Callable

_lock = threading.Lock()
_followers: dict[object, Callable[[], object]] = {}


def follow_changes(follower: Callable[[], object]) -> Callable[[], None]:
    """Call a function, in any thread, on each announced change; return a function that unsubscribes it."""
    key = object()
    with _lock:
        _followers[key] = follower

    def stop() -> None:
        with _lock:
            _followers.pop(key, None)

    return stop


def announce_changes() -> None:
    """Notify this program's servers, from any thread, that tools, resources or prompts may have changed.

    A server then calls its functions of the :class:`Caller` again for each listening caller, and notifies the clients
    whose lists changed. An :class:`MCPClient` announces its changes itself.

    >>> announce_changes()
    """
    with _lock:
        followers = list(_followers.values())
    for follower in followers:
        follower()
