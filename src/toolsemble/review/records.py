"""The rows of a review database, inside one transaction: read with their seals checked, written sealed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from toolsemble.errors import ReviewRefusedError
from toolsemble.review.audit import ReviewEvent
from toolsemble.review.receipt import Receipt
from toolsemble.review.request import ReviewRequest, digest
from toolsemble.runtime.signing import is_signed, sign
from toolsemble.runtime.text import preview

USED = "it was used already"
"""Why an answer is refused that was used before."""
_AMONG = "id IN (SELECT value FROM json_each(?))"
_RECORD = "SELECT id, state, request, seal, receipt, expires FROM requests WHERE "


@dataclass(frozen=True, slots=True)
class Record:
    """One request as it stands in the database."""

    id: str
    """The id that it is stored under."""
    state: str
    """What became of it: open, answered, or one of the ends."""
    request: ReviewRequest | None
    """The request; None when somebody without the secret changed it."""
    receipt: str | None
    """The text of the receipt, to be checked by whoever uses it."""
    expires: float | None
    """When the answer ceases to count."""


class Records:
    """What the tables hold, and what can be done to it.

    >>> from toolsemble.review.database import Database
    >>> with Database(None).writing() as connection:
    ...     records = Records(connection, b"secret")
    ...     records.add(ReviewRequest("Deletes a file", "delete", "old.log", id="q1"))
    ...     [record.state for record in records.open()]
    ['open']
    """

    def __init__(self, connection: sqlite3.Connection, secret: bytes) -> None:
        self._connection = connection
        self._secret = secret

    def add(self, request: ReviewRequest) -> None:
        """Store a new request."""
        self._connection.execute(
            "INSERT INTO requests (id, state, bound, deadline, request, seal) VALUES (?, 'open', ?, ?, ?, ?)",
            (request.id, binding(request), *self._written(request)),
        )

    def renew(self, request: ReviewRequest) -> None:
        """Store a request in place of the one of the same id and binding."""
        self._connection.execute(
            "UPDATE requests SET deadline = ?, request = ?, seal = ? WHERE id = ?",
            (*self._written(request), request.id),
        )

    def get(self, id: str) -> Record | None:
        """Give the record of an id, if there is one."""
        return next(self._read("id = ?", whole(id)), None)

    def open(self) -> list[Record]:
        """Give the records that wait for an answer, oldest first."""
        return list(self._read("state = 'open' ORDER BY number"))

    def known(self, ids: Iterable[str]) -> set[str]:
        """Give those of some ids that are stored."""
        query = f"SELECT id FROM requests WHERE {_AMONG}"  # noqa: S608 - a constant
        return {known for (known,) in self._connection.execute(query, (json.dumps(list(ids)),))}

    def ended(self, ids: Iterable[str]) -> list[Record]:
        """Give the records of some ids that wait no longer."""
        return list(self._read(f"{_AMONG} AND state <> 'open'", json.dumps(list(ids))))

    def live(self, ids: Iterable[str]) -> list[Record]:
        """Give the records of some ids that are not at their end."""
        return list(self._read(f"{_AMONG} AND state IN ('open', 'answered')", json.dumps(list(ids))))

    def left_over(self, request: ReviewRequest, held: Collection[str], now: float) -> Record | None:
        """Give the record of the same question about the same call of a run, which a process that died has left."""
        if not request.call_id or not request.run_id:
            return None
        bound = binding(request)
        for record in self._read("bound = ? AND state IN ('open', 'answered') ORDER BY number", bound):
            # An answer that has expired would be refused; the person is asked again instead.
            alive = record.state == "open" or (record.expires or 0) > now
            if alive and record.id not in held and record.request is not None and binding(record.request) == bound:
                return record
        return None

    def count_waiting(self, ids: Iterable[str], now: float) -> int:
        """Give how many of some ids wait for an answer and have time left."""
        query = f"SELECT count(*) FROM requests WHERE {_AMONG} AND state = 'open' AND coalesce(deadline > ?, 1)"  # noqa: S608 - a constant
        (count,) = self._connection.execute(query, (json.dumps(list(ids)), now)).fetchone()
        return int(count)

    def overdue(self, now: float) -> list[Record]:
        """Give the open records whose deadline has passed."""
        return list(self._read("state = 'open' AND deadline <= ?", now))

    def move(self, state: str, records: Iterable[Record]) -> None:
        """Bring records to an end: no answer to them counts any more, whatever becomes of the row."""
        moved = [(state, self._spent(record), record.id) for record in records]
        self._connection.executemany("UPDATE requests SET state = ?, receipt = ? WHERE id = ?", moved)

    def answer(self, receipt: Receipt) -> None:
        """Store the receipt of the answer to an open request."""
        self._connection.execute(
            "UPDATE requests SET state = 'answered', receipt = ?, expires = ? WHERE id = ?",
            (receipt.to_json(), receipt.expires_at, receipt.request_id),
        )

    def note(self, event: ReviewEvent) -> None:
        """Add an event to the audit, in text that is safe to show."""
        shown = [preview(text) for text in (event.tool_name, event.person, event.role, event.detail)]
        self._connection.execute(
            "INSERT INTO events (kind, request_id, at, tool_name, person, role, detail) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (event.kind, whole(event.request_id), event.at, *shown),
        )

    def events(self, request_id: str | None) -> list[ReviewEvent]:
        """Give the events of one request or of all, in the order in which they happened."""
        query = "SELECT kind, request_id, tool_name, at, person, role, detail FROM events"
        if request_id is None:
            return [ReviewEvent(*row) for row in self._connection.execute(f"{query} ORDER BY number")]
        found = self._connection.execute(f"{query} WHERE request_id = ? ORDER BY number", (whole(request_id),))
        return [ReviewEvent(*row) for row in found]

    def check_unused(self, id: str) -> None:
        """Refuse an answer that is on record as used, whatever its row says."""
        query = "SELECT 1 FROM events WHERE request_id = ? AND kind = 'used'"
        if self._connection.execute(query, (id,)).fetchone() is not None:
            raise ReviewRefusedError(USED)

    def fingerprint(self) -> str:
        """Give the seal that the store's first user left, which shows whether another has the same secret."""
        found = self._connection.execute("SELECT fingerprint FROM secret").fetchone()
        if found is None:
            found = (sign(self._secret, "store", ""),)
            self._connection.execute("INSERT INTO secret (fingerprint) VALUES (?)", found)
        return str(found[0])

    def _spent(self, record: Record) -> str | None:
        """Return what is kept of a receipt that counts no more; None for nothing."""
        try:
            receipt = Receipt.from_json(f"{record.receipt}")
        except ReviewRefusedError:
            return None
        hidden = record.request is None or bool(record.request.hidden_digest)
        spent = receipt.spent(self._secret, hidden=hidden)
        return None if spent is None else spent.to_json()

    def _written(self, request: ReviewRequest) -> tuple[float | None, str, str]:
        text = request.to_json()
        return request.deadline, text, sign(self._secret, "request", text)

    def _read(self, where: str, *values: object) -> Iterator[Record]:
        for key, state, text, given, receipt, expires in self._connection.execute(_RECORD + where, values).fetchall():
            yield Record(key, state, self._unsealed(key, text, given), receipt, expires)

    def _unsealed(self, id: str, text: object, given: object) -> ReviewRequest | None:
        if not isinstance(text, str) or not is_signed(f"{given}", self._secret, "request", text):
            return None
        request = ReviewRequest.from_json(text)
        return request if request.id == id else None  # a row that was copied over another one


def binding(request: ReviewRequest) -> str:
    """Give a digest of all that makes two requests the same question."""
    return digest(
        [
            request.tool_name,
            request.schema_digest,
            request.arguments_digest,
            request.call_id,
            request.run_id,
            request.timing.value,
            request.description,
            request.required_role,
            request.editable,
            request.prompt,
        ]
    )


def whole(text: str) -> str:
    """Give a text that a database can hold: halves of surrogate pairs are replaced."""
    return text.encode(errors="replace").decode()
