"""The data folder: the files that programs write and the interface reads, each where it exists."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from toolsemble._engine.limits.effect_ledger import EffectLedger
from toolsemble.agent._journal.journal import RunJournal
from toolsemble.review._store import SQLiteStore
from toolsemble.telemetry._history import RunHistory

HISTORY, REVIEWS, RUNS, EFFECTS = "history.db", "reviews.db", "runs.db", "effects.db"
"""The names of the files."""
SECRET = "TOOLSEMBLE_REVIEW_SECRET"  # noqa: S105 - the name of a variable
"""The environment variable with the secret of the review store, if it is not in a file."""

_Store = TypeVar("_Store", RunHistory, SQLiteStore, RunJournal, EffectLedger)


class DataFolder:
    """The stores of a folder, opened when they are used first; safe for any number of threads.

    :param path: the folder; created if it is missing, accessible for its owner only
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._opened: dict[str, RunHistory | SQLiteStore | RunJournal | EffectLedger] = {}

    def history(self, *, create: bool = False) -> RunHistory | None:
        """Return the history of runs; None if there is none."""
        return self._open(HISTORY, RunHistory, create=create)

    def reviews(self, *, create: bool = False) -> SQLiteStore | None:
        """Return the store of requests; None if there is none."""
        return self._open(REVIEWS, lambda path: SQLiteStore(path, os.environ.get(SECRET) or None), create=create)

    def journal(self) -> RunJournal | None:
        """Return the journal of durable runs; None if there is none."""
        return self._open(RUNS, RunJournal)

    def ledger(self) -> EffectLedger | None:
        """Return the ledger of effects; None if there is none."""
        return self._open(EFFECTS, EffectLedger)

    def close(self) -> None:
        """Close what was opened."""
        with self._lock:
            for store in self._opened.values():
                store.close()
            self._opened.clear()

    def _open(self, name: str, make: Callable[[Path], _Store], *, create: bool = False) -> _Store | None:
        with self._lock:
            store = self._opened.get(name)
            if store is None and (create or (self.path / name).exists()):
                store = self._opened[name] = make(self.path / name)
        return store  # type: ignore[return-value]  # each name has its own class
