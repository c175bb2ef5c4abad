"""Where requests and answers wait for each other: in memory, or in a file that any process can open."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from toolsemble.errors import ToolDefinitionError
from toolsemble.review.audit import ReviewEvent
from toolsemble.review.database import Database, key_beside
from toolsemble.review.decision import ReviewDecision
from toolsemble.review.ledger import Ledger
from toolsemble.review.receipt import Receipt
from toolsemble.review.request import ReviewRequest
from toolsemble.runtime.signing import secret_bytes

VALID_FOR = 3600.0
"""How many seconds an approval counts, from when it was given."""


class ReviewStore(Protocol):
    """What a store must do: for those who ask, for those who answer, and for those who look at what happened.

    >>> from toolsemble.review import Continue
    >>> def approve_all(store: ReviewStore) -> None:
    ...     for request in store.pending():
    ...         store.answer(request, Continue(), person="ada")
    """

    def ask(self, requests: Sequence[ReviewRequest], *, held: Iterable[str] = ()) -> list[str]:
        """Store requests, and give the ids that they are stored under, in the same order."""
        ...

    def pending(self) -> list[ReviewRequest]:
        """Give the requests that wait for an answer, oldest first."""
        ...

    def find(self, request_id: str) -> ReviewRequest | None:
        """Give a stored request, whatever became of it."""
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
        """Store the answer to a request as the person saw it, or refuse it with the reason."""
        ...

    def take(self, requests: Mapping[str, ReviewRequest]) -> dict[str, ReviewDecision]:
        """Use the answers that are there, each once."""
        ...

    def withdraw(self, ids: Iterable[str]) -> None:
        """Close requests that nobody waits for any more."""
        ...

    def audit(self, request_id: str | None = None) -> list[ReviewEvent]:
        """Give what happened, in order."""
        ...


class MemoryStore(Ledger):
    """A store inside this process; a fork begins with an empty one.

    :param secret: what answers are signed with; a random one when None
    :param valid_for: how many seconds an approval counts, from when it was given
    :param clock: gives the seconds since the epoch

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
        clock: Callable[[], float] = time.time,
    ) -> None:
        key = os.urandom(32) if secret is None else secret_bytes(secret)
        super().__init__(Database(None), key, valid_for, clock)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("A MemoryStore cannot leave its process; use a SQLiteStore")


class SQLiteStore(Ledger):
    """A store in a file, for any number of processes; what it has taken down survives their sudden end.

    Files are made for their owner only. Who can read the secret can sign answers.

    :param path: the file; it is made when it is missing
    :param secret: what requests and answers are signed with; when None, a random one in the file ``<path>.key``
    :param valid_for: how many seconds an approval counts, from when it was given
    :param clock: gives the seconds since the epoch

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
        clock: Callable[[], float] = time.time,
    ) -> None:
        if os.fspath(path) in {"", ":memory:"}:
            raise ToolDefinitionError("A SQLiteStore needs the path of a file; for a store in memory use MemoryStore()")
        # A program may change its folder before it opens the file again.
        place = Path(path).absolute()
        self._made_of = {"path": str(place), "secret": secret, "valid_for": valid_for, "clock": clock}
        given = None if secret is None else secret_bytes(secret)
        database = Database(place)  # first: beside a path that cannot be used, no key is made
        super().__init__(database, key_beside(place) if given is None else given, valid_for, clock)

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (self._made_of,)


def _opened(made_of: Mapping[str, Any]) -> SQLiteStore:
    return SQLiteStore(**made_of)
