"""Locks that a fork of the process has anew."""

from __future__ import annotations

import os
import threading
from typing import Any
from weakref import WeakValueDictionary

_owners: WeakValueDictionary[int, Any] = WeakValueDictionary()


def fork_safe_lock(owner: object) -> threading.RLock:
    """Give a lock that an object is to keep as its attribute ``_lock``; in a fork of the process it gets another.

    Whoever holds it while the process forks does not exist in the fork, and would never let it go there. It is
    reentrant: the collector may close a dropped call anywhere, also where the lock is held.

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
    """Give every object that has a lock of ours another one, as it is in a fork of the process.

    >>> renew_locks()
    """
    for owner in list(_owners.values()):
        owner._lock = threading.RLock()  # noqa: SLF001 - where its owner was told to keep it


getattr(os, "register_at_fork", lambda **_: None)(after_in_child=renew_locks)
