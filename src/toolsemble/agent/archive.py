"""Conversations in a SQLite file."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from toolsemble.agent.shelf import continued, new_messages
from toolsemble.errors import ToolConfigurationError
from toolsemble.models.message import message_from_json, message_to_json
from toolsemble.models.transcript import Transcript

_BUSY = 5.0
_AT_HAND = 64
_TABLES = """
    PRAGMA journal_mode = WAL;
    CREATE TABLE IF NOT EXISTS messages (
        number INTEGER PRIMARY KEY AUTOINCREMENT, memory_id TEXT NOT NULL, message TEXT NOT NULL
    );
    CREATE INDEX IF NOT EXISTS messages_by_memory ON messages (memory_id, number);
"""

# A connection of the parent's must be neither used nor closed in a fork.
_LEFT_ALONE: list[sqlite3.Connection] = []


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
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._process = os.getpid()
        self._at_hand: OrderedDict[str, tuple[int, Transcript]] = OrderedDict()
        with self._rows():
            pass  # a file that cannot be used is refused here, not in the middle of a run

    def load(self, memory_id: str) -> Transcript:
        """Give a conversation, reading what is new in it."""
        with self._rows() as rows:
            return self._known(rows, memory_id)[1]

    def extend(self, memory_id: str, before: Transcript | None, after: Transcript, count: int) -> None:
        """Write the last messages of a conversation, all or none."""
        values = [(memory_id, message_to_json(message)) for message in new_messages(after, count)]
        with self._rows() as rows:
            rows.execute("BEGIN IMMEDIATE")
            with rows:
                _, known = self._known(rows, memory_id)
                rows.executemany("INSERT INTO messages (memory_id, message) VALUES (?, ?)", values)
            self._keep(memory_id, _last_number(rows, memory_id), continued(known, before, after, count))

    def clear(self, memory_id: str) -> None:
        """Delete a conversation."""
        with self._rows() as rows:
            rows.execute("DELETE FROM messages WHERE memory_id = ?", (memory_id,))
            self._at_hand.pop(memory_id, None)

    def ids(self) -> list[str]:
        """Give the ids of the conversations, in the order of their beginning."""
        with self._rows() as rows:
            found = rows.execute("SELECT memory_id FROM messages GROUP BY memory_id ORDER BY min(number)")
            return [memory_id for (memory_id,) in found]

    def close(self) -> None:
        """Close the file, until it is needed again."""
        with self._lock:
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        self.close()

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
    def _rows(self) -> Iterator[sqlite3.Connection]:
        """Give the connection, to this thread alone."""
        with self._lock:
            try:
                yield self._connected()
            except (OSError, ValueError, sqlite3.Error) as problem:
                raise ToolConfigurationError(
                    f"The conversations in '{self._path}' cannot be used: {problem}"
                ) from problem

    def _connected(self) -> sqlite3.Connection:
        if self._process != os.getpid() and self._connection is not None:
            _LEFT_ALONE.append(self._connection)
            self._connection = None
        if self._connection is None:
            # What people said is for the owner of the file to read.
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
            self._process = os.getpid()
            self._connection = sqlite3.connect(self._path, _BUSY, isolation_level=None, check_same_thread=False)
            self._connection.executescript(_TABLES)
            self._connection.execute("PRAGMA synchronous = NORMAL")
        return self._connection


def _is_there(rows: sqlite3.Connection, memory_id: str, number: int) -> bool:
    return (
        rows.execute("SELECT 1 FROM messages WHERE number = ? AND memory_id = ?", (number, memory_id)).fetchone()
        is not None
    )


def _last_number(rows: sqlite3.Connection, memory_id: str) -> int:
    (number,) = rows.execute("SELECT max(number) FROM messages WHERE memory_id = ?", (memory_id,)).fetchone()
    return number or 0
