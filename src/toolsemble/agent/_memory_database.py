"""Storage of conversations in a database: a SQLite file, or Postgres."""

from __future__ import annotations

from collections import OrderedDict

from toolsemble._runtime.storage.database import Rows
from toolsemble._runtime.storage.opening import Location, open_database
from toolsemble._runtime.storage.sqlite import Kind
from toolsemble._runtime.threads import fork_safe_lock
from toolsemble.agent._conversation import append_messages, merge_system, new_messages, read_kept_text
from toolsemble.models._message import Message, SystemMessage, Transcript, message_from_json, message_to_json

_BUSY_TIMEOUT = 5.0
_CACHE_SIZE = 64
_TABLES = """
    CREATE TABLE messages (
        number INTEGER PRIMARY KEY AUTOINCREMENT, memory_id TEXT NOT NULL, message TEXT NOT NULL
    );
    CREATE INDEX messages_by_memory ON messages (memory_id, number);
"""
_KIND = Kind("conversation memory", 0x746F6F6F, 1, _TABLES, "NORMAL")


class DatabaseMemoryStore:
    """Conversations in a database, one row per message; recent ones are cached, and only new rows are read.

    Agent instructions are not stored. System text written by people is stored as a whole when it changes: the last
    such row wins.
    """

    def __init__(self, location: Location) -> None:
        self._cache: OrderedDict[str, tuple[int, Transcript]] = OrderedDict()
        self._lock = fork_safe_lock(self)
        self._database = open_database(location, _KIND, _BUSY_TIMEOUT)
        self.in_place = self._database.in_place
        """Whether it is fast enough to run in the event loop."""

    def load(self, memory_id: str) -> Transcript:
        """Return a conversation, after reading its new messages."""
        with self._database.naming_errors(), self._database.reading() as rows:
            return self._read(rows, memory_id)[1]

    def extend(self, memory_id: str, before: Transcript | None, after: Transcript, count: int) -> None:
        """Write the last messages of a conversation, all or none."""
        new: list[Message] = new_messages(after, count)
        with self._database.naming_errors(), self._database.writing(key=memory_id) as rows:
            _, known = self._read(rows, memory_id)
            system = merge_system(known, after, count)
            if system is not None and system.text != read_kept_text(known):
                new.insert(0, system)
            values = [(memory_id, message_to_json(message)) for message in new]
            rows.executemany("INSERT INTO messages (memory_id, message) VALUES (?, ?)", values)
            # In the same transaction: rows that other writers add later are not in the cache.
            number = _last_number(rows, memory_id)
        self._keep(memory_id, number, append_messages(known, before, after, count))

    def clear(self, memory_id: str) -> None:
        """Delete a conversation."""
        with self._database.naming_errors(), self._database.writing(key=memory_id) as rows:
            rows.execute("DELETE FROM messages WHERE memory_id = ?", (memory_id,))
        with self._lock:
            self._cache.pop(memory_id, None)

    def ids(self) -> list[str]:
        """Return the ids of the conversations, in the order of their creation."""
        with self._database.naming_errors(), self._database.reading() as rows:
            found = rows.execute("SELECT memory_id FROM messages GROUP BY memory_id ORDER BY min(number)")
            return [memory_id for (memory_id,) in found]

    def close(self) -> None:
        """Close the file or the connections; the next use opens them again."""
        self._database.disconnect()

    def _read(self, rows: Rows, memory_id: str) -> tuple[int, Transcript]:
        """Return a stored conversation, and the number of its last row."""
        with self._lock:
            number, transcript = self._cache.get(memory_id, (0, Transcript()))
        if number and not _has_row(rows, memory_id, number):
            number, transcript = 0, Transcript()  # another program deleted it
        new = rows.execute(
            "SELECT number, message FROM messages WHERE memory_id = ? AND number > ? ORDER BY number",
            (memory_id, number),
        ).fetchall()
        if new:
            number, transcript = new[-1][0], _append(transcript, [message_from_json(text) for _, text in new])
        self._keep(memory_id, number, transcript)
        return number, transcript

    def _keep(self, memory_id: str, number: int, transcript: Transcript) -> None:
        with self._lock:
            self._cache[memory_id] = number, transcript
            self._cache.move_to_end(memory_id)
            if len(self._cache) > _CACHE_SIZE:
                self._cache.popitem(last=False)


def _append(transcript: Transcript, stored: list[Message]) -> Transcript:
    """Append the messages of further rows to a conversation; the last system message replaces the previous one."""
    longer = transcript.plus(*(message for message in stored if not isinstance(message, SystemMessage)))
    systems = [message for message in stored if isinstance(message, SystemMessage)]
    return longer.under(systems[-1]) if systems else longer


def _has_row(rows: Rows, memory_id: str, number: int) -> bool:
    found = rows.execute("SELECT 1 FROM messages WHERE number = ? AND memory_id = ?", (number, memory_id))
    return found.fetchone() is not None


def _last_number(rows: Rows, memory_id: str) -> int:
    (number,) = rows.execute("SELECT max(number) FROM messages WHERE memory_id = ?", (memory_id,)).fetchone()
    return number or 0
