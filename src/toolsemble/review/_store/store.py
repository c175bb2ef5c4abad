"""Stores of requests and answers: in memory, in a SQLite file for all processes, or in Postgres for all machines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from toolsemble._runtime.signing import secret_bytes
from toolsemble._runtime.storage.opening import open_database, read_location
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.review._request import ReviewDecision, ReviewEvent, ReviewRequest
from toolsemble.review._store.base import Ledger
from toolsemble.review._store.signed import KIND, Receipt

VALID_FOR = 3600.0
"""Seconds for which an approval is valid."""


class ReviewStore(Protocol):
    """A store of requests and answers, with an audit log.

    >>> from toolsemble.review import Continue
    >>> def approve_all(store: ReviewStore) -> None:
    ...     for request in store.pending():
    ...         store.answer(request, Continue(), person="ada")
    """

    def ask(self, requests: Sequence[ReviewRequest], *, held: Iterable[str] = ()) -> list[str]:
        """Store requests; return the ids that they are stored under, in the same order."""
        ...

    def pending(self) -> list[ReviewRequest]:
        """Return the requests that wait for an answer, oldest first."""
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
        """Close requests that are no longer waited for.

        A store may also have ``release(ids)``: it leaves them open, for a run that was cancelled and may be repeated;
        and ``watch(changed)``: it calls a function after each change, so that nobody has to poll.
        """
        ...

    def audit(self, request_id: str | None = None) -> list[ReviewEvent]:
        """Return the events of one request, or all, in order."""
        ...


class MemoryStore(Ledger):
    """A store in memory; a forked child starts with an empty one.

    :param secret: the secret that answers are signed with; None: a random one
    :param valid_for: seconds for which an approval is valid
    :param clock: returns the seconds since the epoch; None: the time of the system

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
        super().__init__(open_database(None, KIND), key, valid_for, clock)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("A MemoryStore cannot be pickled; use a SQLiteStore")


class SQLiteStore(Ledger):
    """A store in a SQLite file that any number of processes share, or in Postgres for machines; it survives crashes.

    Files are readable for their owner only. Anyone who can read the secret can sign answers.

    :param path: the file; created if it is missing; or a ``postgresql://`` URL (extra ``postgres``)
    :param secret: the secret that requests and answers are signed with; None: a random one in ``<path>.key``, or in the
        tables on Postgres
    :param valid_for: seconds for which an approval is valid
    :param clock: returns the seconds since the epoch; None: the time of the system, or of the Postgres server

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with SQLiteStore(f"{folder.name}/reviews.db") as store:
    ...     store.pending()
    []
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        secret: str | bytes | None = None,
        *,
        valid_for: float = VALID_FOR,
        clock: Callable[[], float] | None = None,
    ) -> None:
        if os.fspath(path) in {"", ":memory:"}:
            raise ToolDefinitionError("A SQLiteStore needs a file path; for a store in memory use MemoryStore()")
        place = read_location(path, "A SQLiteStore")
        kept = str(place) if isinstance(place, Path) else path
        self._settings: dict[str, Any] = {"path": kept, "secret": secret, "valid_for": valid_for, "clock": clock}
        given = None if secret is None else secret_bytes(secret)
        database = open_database(place, KIND)  # first: no key file for a path that cannot be used
        # Anyone who can read the key can sign answers.
        key = database.load_key("review key", ", or pass a secret") if given is None else given
        super().__init__(database, key, valid_for, clock)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(SQLiteStore, **self._settings), ()
