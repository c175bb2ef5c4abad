"""Stores of cached results: in memory, or in a database."""

from __future__ import annotations

import copy
import os
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from toolsemble._runtime.fork_locks import fork_safe_lock
from toolsemble._runtime.signing import sign
from toolsemble._vocabulary.result import ToolResult
from toolsemble._vocabulary.serialization import read_result, write_result

if TYPE_CHECKING:
    from toolsemble._runtime.storage.database import Database
    from toolsemble._runtime.storage.opening import Location

_BUSY = 0.5
_TABLES = """
    CREATE TABLE results (
        number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, stored REAL NOT NULL, expires REAL, result TEXT NOT NULL
    );
    CREATE INDEX results_by_expiry ON results (expires);
"""


class Entry(NamedTuple):
    """A stored result and its expiry."""

    result: ToolResult
    stored: float
    """When it was stored, in seconds since the epoch."""
    expires: float | None
    """When it expires; None: never."""

    def is_valid(self, now: float, ttl: float | None) -> bool:
        """Return whether it may be used at a time; not if it is too old, or if the clock was set back since.

        >>> Entry(ToolResult(), 10, 20).is_valid(15, None), Entry(ToolResult(), 10, 20).is_valid(15, 2)
        (True, False)
        """
        fresh = self.expires is None or now < self.expires
        return fresh and self.stored <= now and (ttl is None or now < self.stored + ttl)


class MemoryResults:
    """A store in memory; least recently used results are evicted first.

    >>> results = MemoryResults(1)
    >>> results.keep("a", Entry(ToolResult.success("sunny"), 10, None))
    >>> results.keep("b", Entry(ToolResult.success("rainy"), 10, None))
    >>> results.find("a") is None
    True
    """

    in_place = True
    """Whether it is fast enough to be used in an event loop."""
    now = staticmethod(time.time)
    """Returns the time of the system."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._secret = os.urandom(32)
        self._lock = fork_safe_lock(self)
        self._entries: OrderedDict[str, Entry] = OrderedDict()

    def digest(self, parts: list[Any]) -> str:
        """Return the key of a call, which reveals nothing about the arguments without the secret."""
        return sign(self._secret, "cache", parts)

    def find(self, key: str) -> Entry | None:
        """Return a copy of the entry for a key, or None."""
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
        return found._replace(result=copy_result(found.result))

    def keep(self, key: str, entry: Entry) -> None:
        """Store a copy of an entry; raise ValueError if it cannot be copied."""
        copied = entry._replace(result=copy_result(entry.result))
        with self._lock:
            self._entries[key] = copied
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)

    def clear(self) -> None:
        """Delete all entries."""
        with self._lock:
            self._entries.clear()

    def close(self) -> None:
        """Do nothing: there is no file."""


class DatabaseResults:
    """A store in a database, for any number of processes; the oldest results are evicted first.

    A file and its key, ``<path>.key``, are created when they are first needed, readable for their owner only.
    """

    in_place = False
    """Whether it is fast enough to be used in an event loop."""

    def __init__(self, location: Location, size: int) -> None:
        self._location = location
        self._size = size
        self._lock = fork_safe_lock(self)
        self._open: tuple[Database, bytes] | None = None

    def digest(self, parts: list[Any]) -> str:
        """Return the key of a call."""
        return sign(self._connect()[1], "cache", parts)

    def find(self, key: str) -> Entry | None:
        """Return the entry for a key; None also if it cannot be read."""
        with self._connect()[0].reading() as rows:
            found = rows.execute("SELECT result, stored, expires FROM results WHERE key = ?", (key,)).fetchone()
        try:
            return None if found is None else Entry(read_result(found[0]), float(found[1]), found[2])
        except (TypeError, ValueError):  # the file was changed by someone else
            return None

    def keep(self, key: str, entry: Entry) -> None:
        """Store an entry, and delete expired ones; raise ValueError if it is not JSON."""
        text = write_result(entry.result)
        with self._connect()[0].writing() as rows:
            rows.execute("DELETE FROM results WHERE expires <= ?", (entry.stored,))
            rows.execute("DELETE FROM results WHERE key = ?", (key,))
            rows.execute(
                "INSERT INTO results (key, stored, expires, result) VALUES (?, ?, ?, ?)",
                (key, entry.stored, entry.expires, text),
            )
            rows.execute(
                "DELETE FROM results WHERE number <= "
                "(SELECT number FROM results ORDER BY number DESC LIMIT 1 OFFSET ?)",
                (self._size,),
            )

    def clear(self) -> None:
        """Delete all entries."""
        with self._connect()[0].writing() as rows:
            rows.execute("DELETE FROM results")

    def now(self) -> float:
        """Return the time of the database."""
        return self._connect()[0].clock()

    def close(self) -> None:
        """Close the file or the connections; they are opened again when needed."""
        with self._lock:
            if self._open is not None:
                self._open[0].disconnect()
                self._open = None

    def _connect(self) -> tuple[Database, bytes]:
        from toolsemble._runtime.sqlite import Kind
        from toolsemble._runtime.storage.opening import open_database

        with self._lock:
            if self._open is None:
                database = open_database(self._location, Kind("cache", 0x746F6F6D, 1, _TABLES, "NORMAL"), _BUSY)
                self._open = database, database.load_key("key of the cache")
            return self._open


def copy_result(result: ToolResult) -> ToolResult:
    """Return a deep copy of a result; raise ValueError if it cannot be copied.

    >>> payload = [1, 2]
    >>> copy_result(ToolResult.success("", payload)).structured_output is payload
    False
    """
    try:
        return copy.deepcopy(result)
    except Exception as problem:
        raise ValueError(f"its payload cannot be copied: {problem}") from problem
