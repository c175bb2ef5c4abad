"""Where results are kept for the next call of the same kind: in memory, or in a SQLite file."""

from __future__ import annotations

import copy
import os
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from toolsemble.result import ToolResult
from toolsemble.runtime.fork_locks import fork_safe_lock
from toolsemble.runtime.signing import sign
from toolsemble.serialization import read_result, write_result

if TYPE_CHECKING:
    from toolsemble.runtime.sqlite import Database

_BUSY = 0.5
_TABLES = """
    CREATE TABLE results (
        number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, stored REAL NOT NULL, expires REAL, result TEXT NOT NULL
    );
    CREATE INDEX results_by_expiry ON results (expires);
"""


class Entry(NamedTuple):
    """A result, and how long it counts."""

    result: ToolResult
    """The result."""
    stored: float
    """Since when it is there."""
    expires: float | None
    """When it ceases to count; None for never."""

    def counts(self, now: float, ttl: float | None) -> bool:
        """Whether it may be given at a time; not where the clock was put back since, nor where it is too old.

        >>> Entry(ToolResult(), 10, 20).counts(15, None), Entry(ToolResult(), 10, 20).counts(15, 2)
        (True, False)
        """
        fresh = self.expires is None or now < self.expires
        return fresh and self.stored <= now and (ttl is None or now < self.stored + ttl)


class Results(Protocol):
    """What a place for results must do."""

    in_place: bool
    """Whether it takes no time worth speaking of."""

    def digest(self, parts: list[Any]) -> str:
        """Give the key of a call: it tells nothing about the arguments to who does not have the store's secret."""
        ...

    def find(self, key: str) -> Entry | None:
        """Give what is kept under a key."""
        ...

    def keep(self, key: str, kept: Entry) -> None:
        """Keep a result, and let others go for it; a ``ValueError`` says why it cannot be kept."""
        ...

    def clear(self) -> None:
        """Let everything go."""
        ...

    def close(self) -> None:
        """Let go of files, until they are needed again."""
        ...


class MemoryResults:
    """A number of results in memory; when there are too many, that goes which was not asked for longest.

    >>> results = MemoryResults(1)
    >>> results.keep("a", Entry(ToolResult.success("sunny"), 10, None))
    >>> results.keep("b", Entry(ToolResult.success("rainy"), 10, None))
    >>> results.find("a") is None
    True
    """

    in_place = True

    def __init__(self, size: int) -> None:
        self._size = size
        self._secret = os.urandom(32)
        self._lock = fork_safe_lock(self)
        self._kept: OrderedDict[str, Entry] = OrderedDict()

    def digest(self, parts: list[Any]) -> str:
        """Give the key of a call."""
        return sign(self._secret, "cache", parts)

    def find(self, key: str) -> Entry | None:
        """Give a copy of what is kept under a key."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
        return found._replace(result=copied(found.result))

    def keep(self, key: str, kept: Entry) -> None:
        """Keep a copy of a result."""
        made = kept._replace(result=copied(kept.result))
        with self._lock:
            self._kept[key] = made
            self._kept.move_to_end(key)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)

    def clear(self) -> None:
        """Let everything go."""
        with self._lock:
            self._kept.clear()

    def close(self) -> None:
        """Do nothing: there is no file."""


class FileResults:
    """A number of results in a file, for any number of processes; when there are too many, the oldest go.

    The file and its key, ``<path>.key``, are made when they are first needed, for their owner only.
    """

    in_place = False

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._size = size
        self._lock = fork_safe_lock(self)
        self._open: tuple[Database, bytes] | None = None

    def digest(self, parts: list[Any]) -> str:
        """Give the key of a call."""
        return sign(self._opened()[1], "cache", parts)

    def find(self, key: str) -> Entry | None:
        """Give what is kept under a key; what is no result is none."""
        with self._opened()[0].reading() as rows:
            found = rows.execute("SELECT result, stored, expires FROM results WHERE key = ?", (key,)).fetchone()
        try:
            return None if found is None else Entry(read_result(found[0]), float(found[1]), found[2])
        except (TypeError, ValueError):  # somebody changed the file
            return None

    def keep(self, key: str, kept: Entry) -> None:
        """Keep a result; those that have expired go."""
        text = write_result(kept.result)
        with self._opened()[0].writing() as rows:
            rows.execute("DELETE FROM results WHERE expires <= ?", (kept.stored,))
            rows.execute(
                "INSERT OR REPLACE INTO results (key, stored, expires, result) VALUES (?, ?, ?, ?)",
                (key, kept.stored, kept.expires, text),
            )
            rows.execute(
                "DELETE FROM results WHERE number <= "
                "(SELECT number FROM results ORDER BY number DESC LIMIT 1 OFFSET ?)",
                (self._size,),
            )

    def clear(self) -> None:
        """Let everything go."""
        with self._opened()[0].writing() as rows:
            rows.execute("DELETE FROM results")

    def close(self) -> None:
        """Close the file, until it is needed again."""
        with self._lock:
            if self._open is not None:
                with self._open[0].lock:  # somebody may be at work in it
                    self._open[0].disconnect()
                self._open = None

    def _opened(self) -> tuple[Database, bytes]:
        from toolsemble.runtime.sqlite import Database, Kind, load_key  # noqa: PLC0415 - only caches in files pay for it

        with self._lock:
            if self._open is None:
                made = Database(self._path, Kind("cache", 0x746F6F6D, 1, _TABLES, "NORMAL"), _BUSY)
                self._open = made, load_key(self._path, "key of the cache")
            return self._open


def copied(result: ToolResult) -> ToolResult:
    """Give a result whose payload nobody else holds; one that cannot be copied is a ``ValueError``.

    >>> payload = [1, 2]
    >>> copied(ToolResult.success("", payload)).structured_output is payload
    False
    """
    try:
        return copy.deepcopy(result)
    except Exception as problem:
        raise ValueError(f"its payload cannot be copied: {problem}") from problem
