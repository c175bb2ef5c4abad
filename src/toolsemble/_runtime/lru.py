"""A bounded cache: the least recently used value is evicted first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from toolsemble._runtime.threads import fork_safe_lock

V = TypeVar("V")


class LRUCache(Generic[V]):
    """A bounded cache, safe to share between threads."""

    __slots__ = ("__weakref__", "_lock", "_most", "_values")

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._lock = fork_safe_lock(self)

    def get(self, key: Hashable) -> V | None:
        """Return the value of a key; None if it is not cached."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key]

    def keep(self, key: Hashable, value: V) -> V:
        """Keep a value, and return it."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > self._most:
                self._values.popitem(last=False)
        return value
