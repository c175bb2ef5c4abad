"""The initial conversations of runs: messages shared with an earlier run are stored once, and referenced.

A chat run starts with all earlier messages. Stored in full each time, a chat would grow quadratically.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from toolsemble._runtime.text import escape_surrogates
from toolsemble._vocabulary.serialization import compact_json

TABLES = """
    CREATE TABLE conversations (
        number INTEGER PRIMARY KEY, run TEXT NOT NULL, digest BLOB NOT NULL, earlier INTEGER
    );
    CREATE INDEX conversations_by_digest ON conversations (digest);
    CREATE INDEX conversations_by_run ON conversations (run);
    CREATE INDEX conversations_by_earlier ON conversations (earlier) WHERE earlier IS NOT NULL;
"""
"""The conversations table: each one's event, the digest of its messages, and the event that it continues."""

_PLACE = "/messages/"
_LAST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Conversation:
    """The start of a run, as stored."""

    values: dict[str, Any]
    """The event's values, without messages stored in another event."""
    digest: bytes
    """The digest of all messages except the instructions."""
    earlier: int | None
    """The number of the event with the omitted messages."""


def shorten(connection: sqlite3.Connection, values: dict[str, Any]) -> Conversation | None:
    """Return a run's start without messages stored by an earlier run; None if it has no messages.

    Instructions stay, because they may differ from run to run.
    """
    messages = values.get("messages")
    if not messages:
        return None
    at = _count_instructions(messages)
    digests = _digest_prefixes(messages[at:])
    found = _find_longest(connection, digests[:-1])
    if found is None:
        return Conversation(values, digests[-1] if digests else b"", None)
    number, run, count = found
    kept = [*messages[:at], *messages[at + count :]]
    earlier = {"event": number, "run_id": run, "messages": count}
    return Conversation({**values, "messages": kept, "earlier": earlier}, digests[-1], number)


def add(connection: sqlite3.Connection, number: int, run: str, conversation: Conversation) -> None:
    """Add an event's conversation, for reference by later events."""
    connection.execute(
        "INSERT INTO conversations VALUES (?, ?, ?, ?)", (number, run, conversation.digest, conversation.earlier)
    )


def restore(connection: sqlite3.Connection, values: dict[str, Any], cut: dict[str, int]) -> tuple[Any, dict[str, int]]:
    """Return an event's values including the omitted messages, and the lengths of all truncated texts.

    If a referenced event is gone, return the known messages.
    """
    rests, last = [(values, cut)], _LAST
    query = "SELECT number, body, cut FROM events WHERE number = ? AND number < ?"  # else a corrupted file loops
    while (earlier := rests[-1][0].get("earlier")) is not None:
        row = connection.execute(query, (earlier["event"], last)).fetchone()
        if row is None:
            return values, cut
        last = row[0]
        rests.append((json.loads(row[1]), json.loads(row[2] or "{}")))
    known: list[tuple[Any, dict[str, int]]] = []
    for each, lengths in reversed(rests):
        known = _join(known, each, lengths)
    whole = {name: value for name, value in values.items() if name != "earlier"}
    others = {place: length for place, length in cut.items() if not place.startswith(_PLACE)}
    places = {f"{_PLACE}{at}{place}": length for at, (_, own) in enumerate(known) for place, length in own.items()}
    return {**whole, "messages": [message for message, _ in known]}, {**others, **places}


def detach(connection: sqlite3.Connection, runs: str) -> None:
    """Complete the conversations that refer to runs about to be deleted, and delete the runs' own.

    :param runs: the ids of the runs, as a JSON array
    """
    gone = "SELECT value FROM json_each(:runs)"
    query = (
        "SELECT number FROM conversations WHERE earlier IN"
        f" (SELECT number FROM conversations WHERE run IN ({gone})) AND run NOT IN ({gone})"
    )
    for (number,) in connection.execute(query, {"runs": runs}).fetchall():
        body, cut = connection.execute("SELECT body, cut FROM events WHERE number = ?", (number,)).fetchone()
        values, lengths = restore(connection, json.loads(body), json.loads(cut or "{}"))
        written = escape_surrogates(compact_json(values)), compact_json(lengths) if lengths else None
        connection.execute("UPDATE events SET body = ?, cut = ? WHERE number = ?", (*written, number))
        connection.execute("UPDATE conversations SET earlier = NULL WHERE number = ?", (number,))
    connection.execute(f"DELETE FROM conversations WHERE run IN ({gone})", {"runs": runs})


def _join(
    known: Sequence[tuple[Any, dict[str, int]]], values: dict[str, Any], cut: dict[str, int]
) -> list[tuple[Any, dict[str, int]]]:
    """Return an event's messages with their truncated texts; omitted ones come from the referenced event."""
    messages = values.get("messages") or []
    own: list[tuple[Any, dict[str, int]]] = [(message, {}) for message in messages]
    for place, length in cut.items():
        if place.startswith(_PLACE):
            index, slash, rest = place.removeprefix(_PLACE).partition("/")
            own[int(index)][1][f"{slash}{rest}"] = length
    at, earlier = _count_instructions(messages), values.get("earlier") or {"messages": 0}
    said = known[_count_instructions([message for message, _ in known]) :]
    return [*own[:at], *said[: earlier["messages"]], *own[at:]]


def _count_instructions(messages: Sequence[Any]) -> int:
    """Return the number of leading system messages."""
    for index, message in enumerate(messages):
        if message.get("role") != "system":
            return index
    return len(messages)


def _digest_prefixes(messages: Sequence[Any]) -> list[bytes]:
    """Return the digest of the first message, of the first two, and so on."""
    digest, found = blake2b(digest_size=16), []
    for message in messages:
        digest.update(escape_surrogates(compact_json(message)).encode() + b"\0")
        found.append(digest.digest())
    return found


def _find_longest(connection: sqlite3.Connection, digests: Sequence[bytes]) -> tuple[int, str, int] | None:
    """Return the event with the longest known prefix of a conversation, its run, and the number of its messages."""
    query = "SELECT number, run FROM conversations WHERE digest = ? ORDER BY number DESC LIMIT 1"
    for index in range(len(digests) - 1, -1, -1):
        found = connection.execute(query, (digests[index],)).fetchone()
        if found is not None:
            return (*found, index + 1)
    return None
