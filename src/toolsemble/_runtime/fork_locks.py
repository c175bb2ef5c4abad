"""Locks that are replaced in a forked process."""

from __future__ import annotations

import os
import threading
from typing import Any
from weakref import WeakValueDictionary

_owners: WeakValueDictionary[int, Any] = WeakValueDictionary()


def fork_safe_lock(owner: object) -> threading.RLock:
    """Return a lock that an object must store as its attribute ``_lock``; a forked process replaces it.

    The thread that holds it during a fork does not exist in the child and would never release it there. The lock is
    reentrant: the garbage collector may close a dropped call while the lock is held.

    >>> class Counter:
    ...     def __init__(self):
    ...         self._lock = fork_safe_lock(self)
    >>> with Counter()._lock:
    ...     print("alone")
    alone
    """
    _owners[id(owner)] = owner
    return threading.RLock()


def renew_locks() -> None:
    """Replace the lock of every owner, as in a forked process.

    >>> renew_locks()
    """
    for owner in list(_owners.values()):
        owner._lock = threading.RLock()  # noqa: SLF001 - fork_safe_lock() documents this attribute


getattr(os, "register_at_fork", lambda **_: None)(after_in_child=renew_locks)
