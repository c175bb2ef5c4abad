"""Conversations in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from toolsemble.agent.memory_store import continued, new_messages
from toolsemble.models.message import message_from_json, message_to_json
from toolsemble.models.transcript import Transcript
from toolsemble.runtime.sqlite import Database, Kind, translate_errors

_BUSY = 5.0
_AT_HAND = 64
_TABLES = """
    CREATE TABLE messages (
        number INTEGER PRIMARY KEY AUTOINCREMENT, memory_id TEXT NOT NULL, message TEXT NOT NULL
    );
    CREATE INDEX messages_by_memory ON messages (memory_id, number);
"""
_KIND = Kind("conversation memory", 0x746F6F6F, 1, _TABLES, "NORMAL")


class Archive:
    """Conversations in a file, one row for each message; the latest ones are kept at hand, and only news is read.

    System messages belong to the agent, not to the conversation, and are not written down. Writing takes so little
    time that it is done in place, where no cancellation can come in between.

    >>> import tempfile
    >>> from toolsemble.models import UserMessage
    >>> archive = Archive(Path(tempfile.mkdtemp()) / "conversations.db")
    >>> archive.extend("ada", Transcript(), Transcript([UserMessage("hello")]), 1)
    >>> archive.load("ada")
    [UserMessage(text='hello', images=())]
    >>> archive.close()
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at_hand: OrderedDict[str, tuple[int, Transcript]] = OrderedDict()
        self._database = Database(path, _KIND, _BUSY)

    def load(self, memory_id: str) -> Transcript:
        """Give a conversation, reading what is new in it."""
        with self._alone(self._database.reading()) as rows:
            return self._known(rows, memory_id)[1]

    def extend(self, memory_id: str, before: Transcript | None, after: Transcript, count: int) -> None:
        """Write the last messages of a conversation, all or none."""
        values = [(memory_id, message_to_json(message)) for message in new_messages(after, count)]
        with self._database.lock:
            with self._alone(self._database.writing()) as rows:
                _, known = self._known(rows, memory_id)
                rows.executemany("INSERT INTO messages (memory_id, message) VALUES (?, ?)", values)
                # Before others can write: what they add is not in what is kept at hand here.
                number = _last_number(rows, memory_id)
            self._keep(memory_id, number, continued(known, before, after, count))

    def clear(self, memory_id: str) -> None:
        """Delete a conversation."""
        with self._alone(self._database.writing()) as rows:
            rows.execute("DELETE FROM messages WHERE memory_id = ?", (memory_id,))
            self._at_hand.pop(memory_id, None)

    def ids(self) -> list[str]:
        """Give the ids of the conversations, in the order of their beginning."""
        with self._alone(self._database.reading()) as rows:
            found = rows.execute("SELECT memory_id FROM messages GROUP BY memory_id ORDER BY min(number)")
            return [memory_id for (memory_id,) in found]

    def close(self) -> None:
        """Close the file, until it is needed again."""
        with self._database.lock:
            self._database.disconnect()

    def _known(self, rows: sqlite3.Connection, memory_id: str) -> tuple[int, Transcript]:
        """Give a conversation as it stands in the file, and the number of its last row."""
        number, transcript = self._at_hand.get(memory_id, (0, Transcript()))
        if number and not _is_there(rows, memory_id, number):
            number, transcript = 0, Transcript()  # somebody has cleared it
        new = rows.execute(
            "SELECT number, message FROM messages WHERE memory_id = ? AND number > ? ORDER BY number",
            (memory_id, number),
        ).fetchall()
        if new:
            number, transcript = new[-1][0], transcript.plus(*(message_from_json(text) for _, text in new))
        self._keep(memory_id, number, transcript)
        return number, transcript

    def _keep(self, memory_id: str, number: int, transcript: Transcript) -> None:
        self._at_hand[memory_id] = number, transcript
        self._at_hand.move_to_end(memory_id)
        if len(self._at_hand) > _AT_HAND:
            self._at_hand.popitem(last=False)

    @contextmanager
    def _alone(self, connected: AbstractContextManager[sqlite3.Connection]) -> Iterator[sqlite3.Connection]:
        """Give the connection, and say which file it is that cannot be used."""
        with translate_errors(self._path, _KIND.what), connected as rows:
            yield rows


def _is_there(rows: sqlite3.Connection, memory_id: str, number: int) -> bool:
    return (
        rows.execute("SELECT 1 FROM messages WHERE number = ? AND memory_id = ?", (number, memory_id)).fetchone()
        is not None
    )


def _last_number(rows: sqlite3.Connection, memory_id: str) -> int:
    (number,) = rows.execute("SELECT max(number) FROM messages WHERE memory_id = ?", (memory_id,)).fetchone()
    return number or 0
