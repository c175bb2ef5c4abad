"""Stores of requests and answers: in memory, in a SQLite file shared by processes, or in Postgres for many machines.

Requests are asked, answered and used at most once, and every step is an event of the audit log.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self
from weakref import WeakSet

from toolsemble._runtime.checks import warn_deprecated
from toolsemble._runtime.signing import is_signed, secret_bytes
from toolsemble._runtime.storage.database import Database, Presence, ProcessIdentity
from toolsemble._runtime.storage.opening import open_database, read_location
from toolsemble._runtime.text import HIDDEN, preview
from toolsemble._vocabulary.call import new_id
from toolsemble._vocabulary.errors import ReviewRefusedError, ToolConfigurationError, ToolDefinitionError
from toolsemble.review._request import LOGGER, ExitEarly, ReviewDecision, ReviewEvent, ReviewRequest
from toolsemble.review._store.rows import KIND, USED, Receipt, Record, Records, StoredRequest

VALID_FOR = 3600.0
"""Seconds for which an approval is valid."""

_MAX_PID = 2**31


class Asker:
    """A store object of this process that asks and waits for answers.

    :param presence: tracks live askers on any machine; None: their processes are checked directly

    The asker of a row is not signed: write access to the file allows simpler ways to end a wait, and an answer is used
    only once in any case.

    >>> asker = Asker()
    >>> asker.has_left(asker.text()), asker.has_ended(asker.text())
    (True, False)
    """

    def __init__(self, presence: Presence | None = None) -> None:
        self.id = new_id()
        self._presence = presence
        _OPEN.add(self)

    def close(self) -> None:
        """Close this asker, which no longer waits for answers."""
        _OPEN.discard(self)

    def text(self) -> str:
        """Return this asker as stored with a request; a forked process gets another one."""
        text = json.dumps([*ProcessIdentity.current(), self.id])
        if self._presence is not None:
            self._presence.announce(text)
        return text

    def has_left(self, text: str) -> bool:
        """Return whether an asker may be gone: it has ended, is unknown here, or is this one.

        A restarted container looks like another machine, so askers on other machines count as ended. This asker knows
        its own waits.
        """
        read = _read(text)
        if read is None:
            return True
        process, id_ = read
        if process == ProcessIdentity.current():
            return id_ == self.id or not _is_open(id_)
        if self._presence is None:
            return not process.is_running()
        return process.has_ended() or not self._presence.is_present(text)

    def has_ended(self, text: str) -> bool:
        """Return whether an asker is certainly gone: its process has ended, or its store object was closed."""
        read = _read(text)
        if read is None:
            return False
        process, id_ = read
        if process == ProcessIdentity.current():
            return not _is_open(id_)
        return process.has_ended() or (self._presence is not None and not self._presence.is_present(text))


_OPEN: WeakSet[Asker] = WeakSet()


def _is_open(id: str) -> bool:
    return any(asker.id == id for asker in list(_OPEN))


def _read(text: str) -> tuple[ProcessIdentity, str] | None:
    """Return an asker's process and id; None for a row of an older version, or a damaged one."""
    try:
        values: Any = json.loads(text)
        place, pid, started, id_ = values
    except (ValueError, TypeError, RecursionError):
        return None
    if not (
        isinstance(pid, int) and 0 < pid < _MAX_PID and all(isinstance(each, str) for each in (place, started, id_))
    ):
        return None
    return ProcessIdentity(place, pid, started), id_


_MAX_SPENT = 10_000
# Seconds for which a request without a deadline stays open after its process has ended: its run may ask again.
_KEPT = 24 * 3600.0
# Seconds for which an answer to a journaled run is valid: in effect without a limit.
_UNTIL_THE_END = 100 * 365 * 24 * 3600.0
_CHANGED = "the request was changed in the store"
_ENDS = {
    "used": ExitEarly("the approval was already used"),
    "withdrawn": ExitEarly("the request was withdrawn"),
    "expired": ExitEarly("no answer in time", timed_out=True),
    "abandoned": ExitEarly("the process that asked has ended"),
}
_CLOSED = {
    "withdrawn": "it was withdrawn: the answer is no longer needed",
    "expired": "its deadline has passed",
    "abandoned": "the process that asked has ended, and its run cannot resume: it has no run_id of its own",
}
_NOT_RESUMED = "the process that asked has ended, and its run did not ask again"


class ReviewStoreProtocol(Protocol):
    """The store methods that a reviewer uses; implement them for your own store.

    >>> from toolsemble.review import Continue
    >>> def approve_all(store: ReviewStoreProtocol) -> None:
    ...     for request in store.pending():
    ...         store.answer(request, Continue(), person="ada")
    """

    def ask(self, requests: Sequence[ReviewRequest], *, held: Iterable[str] = ()) -> list[str]:
        """Store requests; return their stored ids, in the same order."""
        ...

    def pending(self) -> list[ReviewRequest]:
        """Return the pending requests, oldest first."""
        ...

    def find(self, request_id: str) -> ReviewRequest | None:
        """Return a stored request in any state, or None."""
        ...

    def answer(
        self,
        request: ReviewRequest,
        decision: ReviewDecision,
        *,
        person: str = "",
        role: str = "",
        arguments_digest: str | None = None,
    ) -> Receipt:
        """Store the answer to a request and return its receipt; raise ReviewRefusedError with the reason."""
        ...

    def take(self, requests: Mapping[str, ReviewRequest]) -> dict[str, ReviewDecision]:
        """Use the stored answers, each once."""
        ...

    def withdraw(self, ids: Iterable[str]) -> None:
        """Close requests whose answers are no longer needed.

        A store may also have ``release(ids)``, which leaves requests open for a cancelled run that may run again; and
        ``watch(changed)``, which calls a function after each change, to avoid polling.
        """
        ...

    def audit(self, request_id: str | None = None) -> list[ReviewEvent]:
        """Return the events of one request, or all, in order."""
        ...


class ReviewStore:
    """A store in a SQLite file shared by any number of processes, or in Postgres for many machines; survives crashes.

    It has requests, answers and an audit log, signed with one secret. Files are readable by their owner only. Read
    access to the secret allows signing answers.

    :param url: the file; created if missing; or a ``postgresql://`` URL (extra ``postgres``)
    :param secret: the signing secret for requests and answers; None: a random one in ``<url>.key``, or in the tables
        on Postgres
    :param valid_for: seconds for which an approval is valid
    :param clock: returns the seconds since the epoch; default: the system clock, or the Postgres server's
    :param path: deprecated, use ``url``

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with ReviewStore(f"{folder.name}/reviews.db") as store:
    ...     ids = store.ask([ReviewRequest("Deletes a file", "delete", "old.log")])
    ...     [request.arguments for request in store.pending()]
    ['old.log']
    >>> folder.cleanup()
    """

    def __init__(
        self,
        url: str | os.PathLike[str] = "",
        secret: str | bytes | None = None,
        *,
        valid_for: float = VALID_FOR,
        clock: Callable[[], float] | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        if path is not None:
            if url:
                raise TypeError("ReviewStore takes url, or its old name path, not both")
            warn_deprecated("ReviewStore(path=…)", "ReviewStore(url=…)", removed_in="0.5")
            url = path
        if os.fspath(url) in {"", ":memory:"}:
            raise ToolDefinitionError(
                "A ReviewStore needs a file path or a postgresql:// URL; for a store in memory use MemoryStore()"
            )
        place = read_location(url, "A ReviewStore")
        kept = str(place) if isinstance(place, Path) else url
        self._settings: dict[str, Any] = {"url": kept, "secret": secret, "valid_for": valid_for, "clock": clock}
        given = None if secret is None else secret_bytes(secret)
        database = open_database(place, KIND)  # first: no key file for a path that cannot be used
        # Read access to the key allows signing answers.
        key = database.load_key("review key", ", or pass a secret") if given is None else given
        self._open(database, key, valid_for, clock)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(ReviewStore, **self._settings), ()

    def _open(self, database: Database, secret: bytes, valid_for: float, clock: Callable[[], float] | None) -> None:
        if not valid_for > 0:
            raise ToolDefinitionError(f"valid_for must be a number of seconds > 0, not {valid_for!r}")
        self._database = database
        self._secret = secret
        self._valid_for = valid_for
        self._clock = clock or database.clock
        self._asker = Asker(database.presence)
        # Answers used by this process, until they expire: an older copy of the file may be restored.
        self._spent: dict[str, float] = {}
        with self._changing() as (records, _):
            fingerprint = records.fingerprint()
        if not is_signed(fingerprint, secret, "store", ""):
            database.close()
            raise ToolConfigurationError("The review store was created with another secret; pass the same one")

    def ask(self, requests: Sequence[ReviewRequest], *, held: Iterable[str] = ()) -> list[str]:
        """Store requests, all or none; return their stored ids, in the same order.

        A run's earlier request for the same tool and arguments, with any call id, is reused if it is open or has an
        unused answer, and its process has ended. Of several equal requests, the oldest is reused first, each one once.
        This requires a run id chosen by the program. Requests in ``held`` are not reused, because this process is
        waiting for them.
        """
        stored: list[str] = []
        asker = self._asker.text()
        with self._changing() as (records, now):
            taken = set(held)
            for request in self._set_clock(requests, now):
                if request.durable:  # its id identifies the call
                    found = records.find_asked(request)
                else:
                    found = records.find_orphan(request, taken, now, self._asker.has_left)
                if found is not None:
                    kept = replace(request, id=found.id)
                    records.renew(kept, asker)
                else:
                    kept = replace(request, id=new_id()) if records.get(request.id) else request
                    records.add(kept, asker)
                stored.append(kept.id)
                taken.add(kept.id)
                if found is None or not request.durable:  # a journaled run asks each question once
                    said = _describe_arguments(request)
                    detail = f"again: {said}" if found else said
                    records.note(ReviewEvent("asked", kept.id, kept.tool_name, now, detail=detail))
        return stored

    def pending(self) -> list[ReviewRequest]:
        """Return the pending requests, oldest first, without tampered ones.

        Requests of a dead process are skipped and closed, unless their run can ask again.
        """
        with self._database.reading() as connection:
            records = Records(connection, self._secret)
            found, overdue = records.open(), records.overdue(self._clock())
        # Reading does not block writers; write only if necessary.
        if overdue or any(record.request is None for record in found) or self._find_abandoned(found):
            found = self._close_unusable()
        return [record.request for record in found if record.request is not None]

    def find(self, request_id: str) -> ReviewRequest | None:
        """Return a stored request in any state; None if it is unknown or was tampered with."""
        if not isinstance(request_id, str):
            raise TypeError(f"find takes the id of a request, a str, not {request_id!r:.80}")
        with self._database.reading() as connection:
            record = Records(connection, self._secret).get(request_id)
        return None if record is None else record.request

    def answer(
        self,
        request: ReviewRequest,
        decision: ReviewDecision,
        *,
        person: str = "",
        role: str = "",
        arguments_digest: str | None = None,
    ) -> Receipt:
        """Store the answer to a request and return its receipt; raise ReviewRefusedError with the reason.

        ``arguments_digest`` is the digest of the arguments that the person saw, if it was sent with the answer.
        """
        _check_request(request)
        seen = request.arguments_digest if arguments_digest is None else arguments_digest
        refusal = None
        with self._changing() as (records, now):
            event = ReviewEvent("answered", request.id, request.tool_name, now, f"{person}", f"{role}")
            try:
                record = self._get(records, request.id, now)
                stored = _check_open(record, request, seen, person, role)
                receipt = self._issue(stored, decision, event)
                records.answer(receipt)
                records.note(replace(event, detail=_describe(stored, receipt)))
            except ReviewRefusedError as error:
                refusal = error  # raised once the event is stored
                _record_refusal(records, replace(event, kind="refused", detail=f"{error}"))
        if refusal is not None:
            raise refusal
        LOGGER.info("answered: %s by '%s': %s", request.tool_name, preview(person), receipt.kind)
        return receipt

    def take(self, requests: Mapping[str, ReviewRequest]) -> dict[str, ReviewDecision]:
        """Use the stored answers; the requests are passed by stored id.

        An answer can be used once, and only for the request passed here, regardless of the database. The answer of a
        journaled run can be reused for the same call: the journal records whether the call was made.
        """
        with self._database.reading() as connection:
            if Records(connection, self._secret).count_waiting(requests, self._clock()) == len(requests):
                return {}
        decisions: dict[str, ReviewDecision] = {}
        used: dict[str, float] = {}
        with self._changing() as (records, now):
            for lost in requests.keys() - records.known(requests):
                decisions[lost] = ExitEarly("the request is no longer in the store")
            for record in records.find_ended(requests):
                if record.state == "answered":
                    request = replace(requests[record.id], id=record.id)
                    decisions[record.id] = self._use(records, request, record, now, used)
                else:
                    decisions[record.id] = _ENDS.get(record.state, ExitEarly(_CHANGED))
        self._remember(used, now)
        return decisions

    def withdraw(self, ids: Iterable[str]) -> None:
        """Close requests whose answers are no longer needed; an answer that is already stored will not be used."""
        with self._changing() as (records, now):
            live = records.live(ids)
            records.move("withdrawn", live)
            for record in live:
                records.note(ReviewEvent("withdrawn", record.id, _tool_name(record), now))

    def release(self, ids: Iterable[str]) -> None:
        """Leave requests open without a waiting process; the same question of the same run reuses them.

        An answer is valid until it expires. A request without a deadline stays open for a day; a journaled run's
        request, until the run ends.
        """
        with self._changing() as (records, now):
            live = records.live(ids)
            records.release(record.id for record in live)
            durable = {record.id for record in live if record.request is not None and record.request.durable}
            records.set_deadline([record.id for record in live if record.id not in durable], now + _KEPT)

    def requests(self, *, state: str | None = None, before: int | None = None, limit: int = 50) -> list[StoredRequest]:
        """Return a page of requests in any state, newest first, without tampered ones.

        :param state: only requests in this state: open, answered, used, withdrawn, expired, abandoned or refused
        :param before: the ``number`` of the last request on the previous page; None: the first page
        """
        self.pending()  # closes requests that can no longer be answered
        with self._database.reading() as connection:
            return Records(connection, self._secret).page(state, before, limit)

    def schema(self, digest: str) -> dict[str, Any] | None:
        """Return the JSON Schema of requests with this ``schema_digest``; None if unknown or tampered with."""
        with self._database.reading() as connection:
            return Records(connection, self._secret).schema(digest)

    def audit(
        self, request_id: str | None = None, *, before: int | None = None, limit: int | None = None
    ) -> list[ReviewEvent]:
        """Return the events of one request, or all, in order; events are never changed.

        :param before: only events with a smaller ``number``
        :param limit: maximum events; with a limit, the newest come first
        """
        with self._database.reading() as connection:
            return Records(connection, self._secret).events(request_id, before, limit)

    def watch(self, changed: Callable[[], object]) -> Callable[[], None] | None:
        """Call a function, in another thread, after each change; return a function that unsubscribes.

        Return None if there are no notifications: a file has to be polled.
        """
        return self._database.watch(changed)

    def close(self) -> None:
        """Close the store; further use raises."""
        self._asker.close()
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _changing(self) -> Iterator[tuple[Records, float]]:
        """Yield the records in a transaction, and the time; overdue requests are marked as expired first."""
        with self._database.writing(notify=True) as connection:
            records, now = Records(connection, self._secret), self._clock()
            overdue = records.overdue(now)
            records.move("expired", overdue)
            for record in overdue:
                records.note(ReviewEvent("expired", record.id, _tool_name(record), now))
            yield records, now

    def _set_clock(self, requests: Iterable[ReviewRequest], now: float) -> Iterable[ReviewRequest]:
        """Return requests with their times by the store's clock, which all machines share."""
        if self._clock != self._database.clock or self._database.presence is None:
            return requests
        ahead = now - time.time()
        return [replace(request, asked_at=request.asked_at + ahead) for request in requests]

    def _close_unusable(self) -> list[Record]:
        """Close tampered and abandoned open requests; return the others."""
        with self._changing() as (records, now):
            found = records.open()
            changed = [record for record in found if record.request is None]
            records.move("refused", changed)
            for record in changed:
                _record_refusal(records, ReviewEvent("refused", record.id, "", now, detail=_CHANGED))
            self._abandon(records, found, now)
            return records.open()

    def _find_abandoned(self, records: Iterable[Record]) -> list[Record]:
        """Return the open records to close, or to set a deadline for, because their process has ended."""
        found = [record for record in records if record.request is not None and record.state == "open"]
        ended = {asker for asker in {record.asker for record in found} if self._asker.has_ended(asker)}
        return [
            record
            for record in found
            if record.asker in ended
            and not (record.request is not None and record.request.durable)
            and (record.deadline is None or not _may_be_resumed(record))
        ]

    def _abandon(self, records: Records, found: Iterable[Record], now: float) -> None:
        abandoned = self._find_abandoned(found)
        closed = [record for record in abandoned if not _may_be_resumed(record)]
        records.move("abandoned", closed)
        for record in closed:
            records.note(ReviewEvent("abandoned", record.id, _tool_name(record), now))
        records.set_deadline([record.id for record in abandoned if _may_be_resumed(record)], now + _KEPT)

    def _get(self, records: Records, id: str, now: float) -> Record | None:
        """Return a record; close it first if it is abandoned."""
        record = records.get(id)
        if record is None or not self._find_abandoned([record]):
            return record
        self._abandon(records, [record], now)
        return records.get(id)

    def _issue(self, stored: ReviewRequest, decision: ReviewDecision, event: ReviewEvent) -> Receipt:
        # The deadline column is not signed; the request is.
        if stored.deadline is not None and event.at >= stored.deadline:
            raise ReviewRefusedError(_CLOSED["expired"])
        return Receipt.issue(
            stored,
            decision,
            person=event.person,
            role=event.role,
            issued_at=event.at,
            expires_at=event.at + (_UNTIL_THE_END if stored.durable else self._valid_for),
            secret=self._secret,
        )

    def _remember(self, used: Mapping[str, float], now: float) -> None:
        """Remember used answers until they expire."""
        self._spent.update(used)
        for id_, until in list(self._spent.items()) if used else ():
            if until > now and len(self._spent) <= _MAX_SPENT:
                break  # the oldest come first
            self._spent.pop(id_, None)

    def _use(
        self, records: Records, request: ReviewRequest, record: Record, now: float, used: dict[str, float]
    ) -> ReviewDecision:
        if not request.durable:
            records.move("used", [record])
        try:
            if not request.durable:  # else the run's journal records whether the call was made
                self._check_unused(records, record)
            receipt = Receipt.from_json(f"{record.receipt}")
            receipt.check(request, self._secret, now)
        except ReviewRefusedError as error:
            _record_refusal(records, ReviewEvent("refused", record.id, request.tool_name, now, detail=f"{error}"))
            return ExitEarly(f"the approval is not valid: {error}")
        records.note(ReviewEvent("used", record.id, request.tool_name, now, receipt.person, receipt.role, receipt.kind))
        if not request.durable:
            used[record.id] = receipt.expires_at
        return receipt.decision

    def _check_unused(self, records: Records, record: Record) -> None:
        """Raise ReviewRefusedError if an answer was used before."""
        if record.id in self._spent:
            raise ReviewRefusedError(USED)
        records.check_unused(record.id)


class MemoryStore(ReviewStore):
    """A store in memory; a forked child starts with an empty one.

    :param secret: the signing secret for answers; None: a random one
    :param valid_for: seconds for which an approval is valid
    :param clock: returns the seconds since the epoch; default: the system clock

    >>> from toolsemble.review import Continue
    >>> with MemoryStore() as store:
    ...     asked = store.ask([ReviewRequest("Deletes a file", "delete", "old.log")])
    ...     receipt = store.answer(store.pending()[0], Continue(), person="ada")
    ...     [event.kind for event in store.audit()]
    ['asked', 'answered']
    """

    def __init__(
        self,
        *,
        secret: str | bytes | None = None,
        valid_for: float = VALID_FOR,
        clock: Callable[[], float] | None = None,
    ) -> None:
        key = os.urandom(32) if secret is None else secret_bytes(secret)
        self._open(open_database(None, KIND), key, valid_for, clock)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("A MemoryStore cannot be pickled; use a ReviewStore")


def _check_request(request: object) -> None:
    """Raise for anything but a request: ReviewRefusedError for what ``find`` returns for an unknown id."""
    if request is None:
        raise ReviewRefusedError("the request is unknown: find() returned None for its id; take one from pending()")
    if not isinstance(request, ReviewRequest):
        raise TypeError(f"answer takes a ReviewRequest from pending() or find(), not {request!r:.80}")


def _check_open(
    record: Record | None, request: ReviewRequest, arguments_digest: str, person: str, role: str
) -> ReviewRequest:
    """Return the stored request; raise ReviewRefusedError unless it is open and is what the person saw."""
    if not all(isinstance(each, str) for each in (person, role)):
        raise ReviewRefusedError("the person and the role must be strings")
    if record is None:
        raise ReviewRefusedError("the request is unknown")
    stored = record.request
    if stored is None:
        raise ReviewRefusedError(_CHANGED)
    if record.state != "open":
        raise ReviewRefusedError(_why_closed(record))
    for what, seen, kept in (
        ("another tool", request.tool_name, stored.tool_name),
        ("another schema", request.schema_digest, stored.schema_digest),
        ("another description", request.description, stored.description),
        ("other arguments", arguments_digest, stored.arguments_digest),
    ):
        if seen != kept:
            raise ReviewRefusedError(f"the person saw {what} than the request has")
    if stored.required_role is not None and role != stored.required_role:
        raise ReviewRefusedError(f"it requires the role '{stored.required_role}', not '{preview(role)}'")
    return stored


def _describe_arguments(request: ReviewRequest) -> str:
    """Return the arguments as text for the audit: on one line, unless they are a multi-line text."""
    arguments = request.arguments
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)


def _describe(request: ReviewRequest, receipt: Receipt) -> str:
    """Return a decision as text for the audit; an edit of secret arguments is masked."""
    text = HIDDEN if receipt.kind == "edit" and request.hidden_digest else receipt.text
    return f"{receipt.kind} {text}".rstrip()


def _why_closed(record: Record) -> str:
    """Return why a request can no longer be answered."""
    if record.state == "expired" and record.request is not None and record.request.deadline is None:
        return _NOT_RESUMED
    if record.state not in ("answered", "used"):
        return _CLOSED.get(record.state, _CHANGED)
    try:
        person = Receipt.from_json(f"{record.receipt}").person
    except ReviewRefusedError:
        return _CHANGED
    answered = f"it was already answered by '{preview(person)}'" if person else "it was already answered"
    return answered if record.state == "answered" else f"{answered}, and the answer was used"


def _record_refusal(records: Records, event: ReviewEvent) -> None:
    LOGGER.warning("refused: %s %s: %s", preview(event.tool_name), preview(event.request_id), event.detail)
    records.note(event)


def _may_be_resumed(record: Record) -> bool:
    # A request without a run id is a program's own; only a generated id means that the run cannot resume.
    return record.request is None or record.request.chosen_run


def _tool_name(record: Record) -> str:
    return record.request.tool_name if record.request is not None else ""
