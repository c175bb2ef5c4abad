"""The contents of a review store: signed receipts and requests, and their rows in one transaction."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from toolsemble._runtime.signing import canonical_json, is_signed, sign
from toolsemble._runtime.storage.database import Rows
from toolsemble._runtime.storage.sqlite import Kind
from toolsemble._runtime.text import HIDDEN, preview, preview_lines
from toolsemble._vocabulary.errors import ReviewRefusedError
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.review._request import Continue, Edit, ExitEarly, ReviewDecision, ReviewEvent, ReviewRequest, digest

MAX_CLOCK_SKEW = 300.0
"""Maximum clock skew between machines, in seconds."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """A signed answer to one request; not valid for another tool, schema, arguments or run.

    It is not valid for another call id either, unless the program chose the run id: after a crash, the same call of the
    run has another id.

    >>> request = ReviewRequest("Deletes a file", "delete", "old.log")
    >>> receipt = Receipt.issue(request, Continue(), person="ada", role="", expires_at=2e9, secret="s")
    >>> receipt.check(request, "s", request.asked_at)
    >>> receipt.decision, receipt.person
    (Continue(always=None), 'ada')
    """

    request_id: str
    """The id of the request."""
    tool_name: str
    """The tool."""
    schema_digest: str
    """The digest of the tool's schema."""
    arguments_digest: str
    """The digest of the arguments that the person saw."""
    call_id: str
    """The id of the call."""
    run_id: str
    """The id of the run."""
    kind: Literal["continue", "edit", "exit_early"]
    """The kind of decision."""
    text: str
    """The revised text of an edit, or the reason for a rejection."""
    always: Literal["tool", "arguments"] | None
    """What is approved for the rest of the run."""
    person: str
    """Who answered, if known."""
    role: str
    """The person's role."""
    issued_at: float
    """When it was answered, in seconds since the epoch."""
    expires_at: float
    """When it expires, in seconds since the epoch."""
    signature: str = ""
    """The signature of the other fields."""

    @classmethod
    def issue(
        cls,
        request: ReviewRequest,
        decision: ReviewDecision,
        *,
        person: str,
        role: str,
        expires_at: float,
        secret: str | bytes,
        issued_at: float | None = None,
    ) -> Receipt:
        """Return the signed receipt of a decision; raise ReviewRefusedError for anything else.

        A decision's ``timed_out`` is not kept: an existing answer was in time.
        """
        kind, text, always = split_decision(decision)
        receipt = cls(
            request.id,
            request.tool_name,
            request.schema_digest,
            request.arguments_digest,
            request.call_id,
            request.run_id,
            kind,
            text,
            always,
            person,
            role,
            time.time() if issued_at is None else issued_at,
            expires_at,
        )
        return replace(receipt, signature=sign(secret, "receipt", asdict(receipt)))

    @property
    def decision(self) -> ReviewDecision:
        """The decision."""
        if self.kind == "continue":
            return Continue(self.always, person=self.person)
        if self.kind == "edit":
            return Edit(self.text, person=self.person)
        return ExitEarly(self.text, person=self.person)

    def check(self, request: ReviewRequest, secret: str | bytes, now: float) -> None:
        """Raise ReviewRefusedError unless this is the signed answer to exactly this request and still valid."""
        if not self._is_sealed("receipt", secret):
            spent = self._is_sealed("spent", secret)
            raise ReviewRefusedError("it is no longer valid" if spent else "the signature does not match")
        for what, mine, asked in (
            ("another tool", self.tool_name, request.tool_name),
            ("another schema", self.schema_digest, request.schema_digest),
            ("other arguments", self.arguments_digest, request.arguments_digest),
            # After a crash, the provider is asked again and sends another call id.
            ("another call", self.call_id, self.call_id if request.resumable else request.call_id),
            ("another run", self.run_id, request.run_id),
            ("another request", self.request_id, request.id),
        ):
            if mine != asked:
                raise ReviewRefusedError(f"it is for {what}")
        if request.durable:
            return  # it is valid until the run ends, regardless of the clock
        if now >= self.expires_at:
            raise ReviewRefusedError("it has expired")
        # A clock that was set back would make every old approval valid again.
        if now < self.issued_at - MAX_CLOCK_SKEW:
            raise ReviewRefusedError("it was given in the future; check the clock")

    def spent(self, secret: str | bytes, *, hidden: bool) -> Receipt | None:
        """Return the receipt with a signature that marks it as used; None if it was never valid.

        Without the secret it cannot be made valid again, except by restoring an older copy.

        :param hidden: whether to mask the text of an edit, because it may contain secrets
        """
        if not self._is_sealed("receipt", secret):
            return None
        kept = replace(self, text=HIDDEN if hidden and self.kind == "edit" else self.text, signature="")
        return replace(kept, signature=sign(secret, "spent", asdict(kept)))

    def is_genuine(self, secret: str | bytes) -> bool:
        """Return whether it was signed with the secret, used or not."""
        return self._is_sealed("receipt", secret) or self._is_sealed("spent", secret)

    def _is_sealed(self, kind: str, secret: str | bytes) -> bool:
        return is_signed(self.signature, secret, kind, asdict(replace(self, signature="")))

    def to_json(self) -> str:
        """Return the receipt as JSON text; :meth:`from_json` reads it."""
        return canonical_json(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Receipt:
        """Return the receipt from the text of :meth:`to_json`; reject any other text, even an equivalent one.

        >>> Receipt.from_json("{}")
        Traceback (most recent call last):
        ...
        toolsemble.ReviewRefusedError: the receipt cannot be read
        """
        try:
            values = json.loads(text)
            receipt = cls(**{each.name: values.pop(each.name) for each in fields(cls)})
            whole = not values and receipt.to_json() == text and isinstance(receipt.signature, str)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            whole = False
        if not whole:
            raise ReviewRefusedError("the receipt cannot be read")
        return receipt


def split_decision(
    decision: ReviewDecision,
) -> tuple[Literal["continue", "edit", "exit_early"], str, Literal["tool", "arguments"] | None]:
    """Return a decision as JSON values; raise ReviewRefusedError for anything else.

    >>> split_decision(ExitEarly("too much"))
    ('exit_early', 'too much', None)
    """
    if type(decision) is Continue and decision.always in (None, "tool", "arguments"):
        return "continue", "", decision.always
    if type(decision) is Edit and issubclass(type(decision.revised), str):
        return "edit", str.__str__(decision.revised), None
    if type(decision) is ExitEarly and issubclass(type(decision.reason), str):
        return "exit_early", str.__str__(decision.reason), None
    raise ReviewRefusedError("the answer is not a decision; pass Continue, Edit or ExitEarly")


_TABLES = """
    CREATE TABLE requests (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL, bound TEXT NOT NULL,
        deadline REAL, request TEXT NOT NULL, seal TEXT NOT NULL, receipt TEXT, expires REAL, asker TEXT
    );
    CREATE INDEX requests_by_state ON requests (state, deadline);
    CREATE INDEX requests_by_bound ON requests (bound, state);
    CREATE TABLE events (
        number INTEGER PRIMARY KEY, kind TEXT NOT NULL, request_id TEXT NOT NULL, tool_name TEXT NOT NULL,
        at REAL NOT NULL, person TEXT NOT NULL, role TEXT NOT NULL, detail TEXT NOT NULL
    );
    CREATE INDEX events_by_request ON events (request_id);
    CREATE TABLE secret (fingerprint TEXT NOT NULL);
"""
_SCHEMAS = "CREATE TABLE IF NOT EXISTS schemas (digest TEXT PRIMARY KEY, schema TEXT NOT NULL, seal TEXT NOT NULL);"


def _add_askers(connection: Rows) -> None:
    """Upgrade the tables of version 1: rows had no asker, and questions were bound to the call id."""
    connection.execute("ALTER TABLE requests ADD COLUMN asker TEXT")
    live = "SELECT number, request FROM requests WHERE state IN ('open', 'answered')"
    for number, text in connection.execute(live).fetchall():
        with suppress(ValueError, TypeError, LookupError):  # a damaged row is kept, and rejected when read
            bound = binding(ReviewRequest.from_json(text))
            connection.execute("UPDATE requests SET bound = ? WHERE number = ?", (bound, number))


def _add_schemas(connection: Rows) -> None:
    """Upgrade the tables of version 2, which had no request schemas."""
    connection.execute(_SCHEMAS)


_UPGRADES = {1: _add_askers, 2: _add_schemas}
KIND = Kind("review store", 0x746F6F6C, 3, _TABLES + _SCHEMAS, upgrades=_UPGRADES, append_only=("events",))
"""The kind of its databases."""


def binding(request: ReviewRequest) -> str:
    """Return a digest of the fields that make two requests the same question.

    It includes the call id only if the answer could not be found without it.

    >>> first, again = (ReviewRequest("Pays", "pay", {"order": 7}, run_id="r1", call_id=id) for id in ("a", "b"))
    >>> binding(first) == binding(again)
    True
    """
    return digest(
        [
            request.tool_name,
            request.schema_digest,
            request.arguments_digest,
            "" if request.resumable else request.call_id,
            request.run_id,
            request.memory_id,
            request.agent_role,
            request.timing.value,
            request.description,
            request.required_role,
            request.editable,
            request.prompt,
        ]
    )


USED = "it was already used"
"""The reason for refusing an answer that was used before."""
_LAST = 2**62
_AMONG = "id IN (SELECT value FROM json_each(?))"
_RECORD = "SELECT id, state, request, seal, receipt, expires, asker, deadline FROM requests WHERE "


@dataclass(frozen=True, slots=True)
class Record:
    """One row of the table of requests."""

    id: str
    """The id under which it is stored."""
    state: str
    """The state: open, answered, or one of the final states."""
    request: ReviewRequest | None
    """The request; None if it was tampered with."""
    receipt: str | None
    """The text of the receipt, not yet verified."""
    expires: float | None
    """When the answer expires."""
    asker: str = ""
    """The asker that waits for the answer, as :class:`~toolsemble.review._store.store.Asker` writes it; not signed."""
    deadline: float | None = None
    """The deadline until which it stays open; not signed."""


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A stored request, in any state.

    >>> StoredRequest(1, "open", ReviewRequest("Deletes a file", "delete", "old.log"), None).state
    'open'
    """

    number: int
    """Its number in the store, the cursor for paging."""
    state: str
    """The state: open, answered, used, withdrawn, expired, abandoned or refused."""
    request: ReviewRequest
    """The request."""
    receipt: Receipt | None
    """Who answered what and when; None if it was not answered."""


class Records:
    """The tables of a review database."""

    def __init__(self, connection: Rows, secret: bytes) -> None:
        self._connection = connection
        self._secret = secret

    def add(self, request: ReviewRequest, asker: str = "") -> None:
        """Store a new request with its asker."""
        self._connection.execute(
            "INSERT INTO requests (id, state, bound, asker, deadline, request, seal) VALUES (?, 'open', ?, ?, ?, ?, ?)",
            (request.id, binding(request), asker, *self._serialize(request)),
        )
        self._add_schema(request)

    def renew(self, request: ReviewRequest, asker: str) -> None:
        """Replace the stored request with the same id and binding, and its asker."""
        self._connection.execute(
            "UPDATE requests SET asker = ?, deadline = ?, request = ?, seal = ? WHERE id = ?",
            (asker, *self._serialize(request), request.id),
        )

    def release(self, ids: Iterable[str]) -> None:
        """Clear the askers of requests."""
        query = f"UPDATE requests SET asker = '' WHERE {_AMONG}"
        self._connection.execute(query, (json.dumps(list(ids)),))

    def set_deadline(self, ids: Iterable[str], deadline: float) -> None:
        """Set the deadline of requests without one."""
        query = f"UPDATE requests SET deadline = ? WHERE {_AMONG} AND deadline IS NULL"
        self._connection.execute(query, (deadline, json.dumps(list(ids))))

    def get(self, id: str) -> Record | None:
        """Return the record of an id, or None."""
        return next(self._read("id = ?", replace_surrogates(id)), None)

    def page(self, state: str | None, before: int | None, limit: int) -> list[StoredRequest]:
        """Return a page of requests, newest first, without tampered ones."""
        chosen = "number < ?" if state is None else "number < ? AND state = ?"
        values = (_LAST if before is None else before, *(() if state is None else (state,)), limit)
        query = f"SELECT number, id FROM requests WHERE {chosen} ORDER BY number DESC LIMIT ?"
        found = self._connection.execute(query, values).fetchall()
        return [
            StoredRequest(number, record.state, record.request, self._read_receipt(record))
            for number, id_ in found
            if (record := self.get(id_)) is not None and record.request is not None
        ]

    def schema(self, digest: str) -> dict[str, Any] | None:
        """Return the schema of a digest; None if it is unknown or was tampered with."""
        query = "SELECT schema, seal FROM schemas WHERE digest = ?"
        found = self._connection.execute(query, (replace_surrogates(digest),)).fetchone()
        if found is None or not is_signed(f"{found[1]}", self._secret, "schema", [digest, found[0]]):
            return None
        schema: dict[str, Any] = json.loads(found[0])
        return schema

    def open(self) -> list[Record]:
        """Return the open records, oldest first."""
        return list(self._read("state = 'open' ORDER BY number"))

    def known(self, ids: Iterable[str]) -> set[str]:
        """Return which of the ids are stored."""
        query = f"SELECT id FROM requests WHERE {_AMONG}"
        return {known for (known,) in self._connection.execute(query, (json.dumps(list(ids)),))}

    def find_ended(self, ids: Iterable[str]) -> list[Record]:
        """Return the records of the ids that are not open."""
        return list(self._read(f"{_AMONG} AND state <> 'open'", json.dumps(list(ids))))

    def live(self, ids: Iterable[str]) -> list[Record]:
        """Return the records of the ids that are open or answered."""
        return list(self._read(f"{_AMONG} AND state IN ('open', 'answered')", json.dumps(list(ids))))

    def find_orphan(
        self, request: ReviewRequest, held: Collection[str], now: float, has_left: Callable[[str], bool]
    ) -> Record | None:
        """Return the run's record of the same question whose asker is gone; else None.

        The oldest one: of several equal calls of a run, the first one gets the first answer.

        :param has_left: returns whether an asker may have ended
        """
        if not request.resumable:
            return None
        bound = binding(request)
        for record in self._read("bound = ? AND state IN ('open', 'answered') ORDER BY number", bound):
            # An expired answer would be refused, so the person is asked again.
            alive = record.state == "open" or (record.expires or 0) > now
            intact = record.request is not None and binding(record.request) == bound
            if alive and intact and record.id not in held and has_left(record.asker):
                return record
        return None

    def find_asked(self, request: ReviewRequest) -> Record | None:
        """Return the open or answered record of the same question with the same id; else None."""
        bound = binding(request)
        for record in self._read("id = ? AND state IN ('open', 'answered')", request.id):
            if record.request is not None and binding(record.request) == bound:
                return record
        return None

    def count_waiting(self, ids: Iterable[str], now: float) -> int:
        """Return how many of the ids are open and not overdue."""
        alive = "state = 'open' AND (deadline IS NULL OR deadline > ?)"
        query = f"SELECT count(*) FROM requests WHERE {_AMONG} AND {alive}"
        (count,) = self._connection.execute(query, (json.dumps(list(ids)), now)).fetchone()
        return int(count)

    def overdue(self, now: float) -> list[Record]:
        """Return the open records whose deadline has passed."""
        return list(self._read("state = 'open' AND deadline <= ?", now))

    def move(self, state: str, records: Iterable[Record]) -> None:
        """Move records to a final state and invalidate their answers."""
        moved = [(state, self._invalidate(record), record.id) for record in records]
        self._connection.executemany("UPDATE requests SET state = ?, receipt = ? WHERE id = ?", moved)

    def answer(self, receipt: Receipt) -> None:
        """Store the receipt of the answer to an open request."""
        self._connection.execute(
            "UPDATE requests SET state = 'answered', receipt = ?, expires = ? WHERE id = ?",
            (receipt.to_json(), receipt.expires_at, receipt.request_id),
        )

    def note(self, event: ReviewEvent) -> None:
        """Add an event to the audit log, with text that is safe to show; the detail may have several lines."""
        shown = [preview(text) for text in (event.tool_name, event.person, event.role)]
        shown.append(preview_lines(event.detail))
        self._connection.execute(
            "INSERT INTO events (kind, request_id, at, tool_name, person, role, detail) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (event.kind, replace_surrogates(event.request_id), event.at, *shown),
        )

    def events(self, request_id: str | None, before: int | None = None, limit: int | None = None) -> list[ReviewEvent]:
        """Return the events of one request, or all, in order; with a limit, the newest ones first."""
        columns = "kind, request_id, tool_name, at, person, role, detail, number"
        conditions: dict[str, Any] = {}
        if request_id is not None:
            conditions["request_id = ?"] = replace_surrogates(request_id)
        if before is not None:
            conditions["number < ?"] = before
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        order, values = ("", ()) if limit is None else ("DESC LIMIT ?", (limit,))
        query = f"SELECT {columns} FROM events {where} ORDER BY number {order}"
        rows = self._connection.execute(query, (*conditions.values(), *values))
        return [ReviewEvent(*row, number=number) for *row, number in rows]

    def check_unused(self, id: str) -> None:
        """Raise ReviewRefusedError if the answer was used by the audit log, regardless of its row."""
        query = "SELECT 1 FROM events WHERE request_id = ? AND kind = 'used'"
        if self._connection.execute(query, (id,)).fetchone() is not None:
            raise ReviewRefusedError(USED)

    def fingerprint(self) -> str:
        """Return the fingerprint of the secret that the store was created with; write it if there is none."""
        found = self._connection.execute("SELECT fingerprint FROM secret").fetchone()
        if found is None:
            found = (sign(self._secret, "store", ""),)
            self._connection.execute("INSERT INTO secret (fingerprint) VALUES (?)", found)
        return str(found[0])

    def _invalidate(self, record: Record) -> str | None:
        """Return the text of an invalidated receipt; None for none."""
        try:
            receipt = Receipt.from_json(f"{record.receipt}")
        except ReviewRefusedError:
            return None
        hidden = record.request is None or bool(record.request.hidden_digest)
        spent = receipt.spent(self._secret, hidden=hidden)
        return None if spent is None else spent.to_json()

    def _read_receipt(self, record: Record) -> Receipt | None:
        """Return the receipt of the answer to a request; None if there is none, or it was tampered with."""
        try:
            receipt = Receipt.from_json(f"{record.receipt}")
        except ReviewRefusedError:
            return None
        return receipt if receipt.is_genuine(self._secret) and receipt.request_id == record.id else None

    def _add_schema(self, request: ReviewRequest) -> None:
        if request.schema is None or not request.schema_digest:
            return
        text = compact_json(request.schema, ensure_ascii=True, default=str)
        seal = sign(self._secret, "schema", [request.schema_digest, text])
        self._connection.execute(
            "INSERT INTO schemas (digest, schema, seal) VALUES (?, ?, ?) ON CONFLICT (digest) DO NOTHING",
            (request.schema_digest, text, seal),
        )

    def _serialize(self, request: ReviewRequest) -> tuple[float | None, str, str]:
        text = request.to_json()
        return request.deadline, text, sign(self._secret, "request", text)

    def _read(self, where: str, *values: object) -> Iterator[Record]:
        for row in self._connection.execute(_RECORD + where, values).fetchall():
            key, state, text, given, receipt, expires, asker, deadline = row
            request = self._verify(key, text, given)
            yield Record(key, state, request, receipt, expires, f"{asker or ''}", deadline)

    def _verify(self, id: str, text: object, given: object) -> ReviewRequest | None:
        if not isinstance(text, str) or not is_signed(f"{given}", self._secret, "request", text):
            return None
        request = ReviewRequest.from_json(text)
        return request if request.id == id else None  # else another row was copied over it


def replace_surrogates(text: str) -> str:
    """Return a text that a database can store: lone surrogates are replaced."""
    return text.encode(errors="replace").decode()
