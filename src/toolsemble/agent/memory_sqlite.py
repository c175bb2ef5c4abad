"""Storage of conversations in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from toolsemble.agent.instructions import read_kept_text
from toolsemble.agent.memory_store import append_messages, merge_system, new_messages
from toolsemble.models.message import Message, SystemMessage, message_from_json, message_to_json
from toolsemble.models.transcript import Transcript
from toolsemble.runtime.sqlite import Database, Kind, translate_errors

_BUSY_TIMEOUT = 5.0
_CACHE_SIZE = 64
_TABLES = """
    CREATE TABLE messages (
        number INTEGER PRIMARY KEY AUTOINCREMENT, memory_id TEXT NOT NULL, message TEXT NOT NULL
    );
    CREATE INDEX messages_by_memory ON messages (memory_id, number);
"""
_KIND = Kind("conversation memory", 0x746F6F6F, 1, _TABLES, "NORMAL")


class SQLiteMemoryStore:
    """Conversations in a file, one row for each message; recent ones are cached, and only new rows are read.

    The instructions of agents are not stored. What people wrote into system messages is stored as a whole when it
    changes: the last such row counts. Writing is so fast that it is done directly, where it cannot be cancelled
    halfway.

    >>> import tempfile
    >>> from toolsemble.models import UserMessage
    >>> store = SQLiteMemoryStore(Path(tempfile.mkdtemp()) / "conversations.db")
    >>> store.extend("ada", Transcript(), Transcript([UserMessage("hello")]), 1)
    >>> store.load("ada")
    [UserMessage(text='hello', contents=())]
    >>> store.close()
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cache: OrderedDict[str, tuple[int, Transcript]] = OrderedDict()
        self._database = Database(path, _KIND, _BUSY_TIMEOUT)

    def load(self, memory_id: str) -> Transcript:
        """Return a conversation, after reading its new messages."""
        with self._connect(self._database.reading()) as rows:
            return self._read(rows, memory_id)[1]

    def extend(self, memory_id: str, before: Transcript | None, after: Transcript, count: int) -> None:
        """Write the last messages of a conversation, all or none."""
        new: list[Message] = new_messages(after, count)
        with self._database.lock:
            with self._connect(self._database.writing()) as rows:
                _, known = self._read(rows, memory_id)
                system = merge_system(known, after, count)
                if system is not None and system.text != read_kept_text(known):
                    new.insert(0, system)
                values = [(memory_id, message_to_json(message)) for message in new]
                rows.executemany("INSERT INTO messages (memory_id, message) VALUES (?, ?)", values)
                # In the same transaction: rows that others add later are not in the cache.
                number = _last_number(rows, memory_id)
            self._keep(memory_id, number, append_messages(known, before, after, count))

    def clear(self, memory_id: str) -> None:
        """Delete a conversation."""
        with self._connect(self._database.writing()) as rows:
            rows.execute("DELETE FROM messages WHERE memory_id = ?", (memory_id,))
            self._cache.pop(memory_id, None)

    def ids(self) -> list[str]:
        """Return the ids of the conversations, in the order of their creation."""
        with self._connect(self._database.reading()) as rows:
            found = rows.execute("SELECT memory_id FROM messages GROUP BY memory_id ORDER BY min(number)")
            return [memory_id for (memory_id,) in found]

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._database.lock:
            self._database.disconnect()

    def _read(self, rows: sqlite3.Connection, memory_id: str) -> tuple[int, Transcript]:
        """Return a conversation as stored in the file, and the number of its last row."""
        number, transcript = self._cache.get(memory_id, (0, Transcript()))
        if number and not _has_row(rows, memory_id, number):
            number, transcript = 0, Transcript()  # another program has deleted it
        new = rows.execute(
            "SELECT number, message FROM messages WHERE memory_id = ? AND number > ? ORDER BY number",
            (memory_id, number),
        ).fetchall()
        if new:
            number, transcript = new[-1][0], _append(transcript, [message_from_json(text) for _, text in new])
        self._keep(memory_id, number, transcript)
        return number, transcript

    def _keep(self, memory_id: str, number: int, transcript: Transcript) -> None:
        self._cache[memory_id] = number, transcript
        self._cache.move_to_end(memory_id)
        if len(self._cache) > _CACHE_SIZE:
            self._cache.popitem(last=False)

    @contextmanager
    def _connect(self, connected: AbstractContextManager[sqlite3.Connection]) -> Iterator[sqlite3.Connection]:
        """Open the connection; errors name the file."""
        with translate_errors(self._path, _KIND.what), connected as rows:
            yield rows


def _append(transcript: Transcript, stored: list[Message]) -> Transcript:
    """Return a conversation with the messages of further rows; the last system message replaces the one before."""
    longer = transcript.plus(*(message for message in stored if not isinstance(message, SystemMessage)))
    systems = [message for message in stored if isinstance(message, SystemMessage)]
    return longer.under(systems[-1]) if systems else longer


def _has_row(rows: sqlite3.Connection, memory_id: str, number: int) -> bool:
    found = rows.execute("SELECT 1 FROM messages WHERE number = ? AND memory_id = ?", (number, memory_id))
    return found.fetchone() is not None


def _last_number(rows: sqlite3.Connection, memory_id: str) -> int:
    (number,) = rows.execute("SELECT max(number) FROM messages WHERE memory_id = ?", (memory_id,)).fetchone()
    return number or 0
