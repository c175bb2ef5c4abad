"""The interface of one server: its data folder, tools and agents."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from toolsemble._engine.limits.effect_ledger import EffectLedger
from toolsemble._runtime.sinks import Sinks
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble.agent._agent import Agent
from toolsemble.agent._journal.journal import RunJournal
from toolsemble.models._message import Message
from toolsemble.review._store.queue import QueueReview
from toolsemble.review._store.store import ReviewStore
from toolsemble.telemetry._history import RunHistory

HISTORY, REVIEWS, RUNS, EFFECTS = "history.db", "reviews.db", "runs.db", "effects.db"
"""The file names."""
SECRET = "TOOLSEMBLE_REVIEW_SECRET"  # noqa: S105 - the name of a variable
"""The environment variable with the review store's secret, if it is not in a file."""

_Store = TypeVar("_Store", RunHistory, ReviewStore, RunJournal, EffectLedger)


class DataFolder:
    """The stores of a folder, opened on first use; thread-safe.

    :param path: the folder; created if missing, accessible only by its owner
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._opened: dict[str, RunHistory | ReviewStore | RunJournal | EffectLedger] = {}

    def history(self, *, create: bool = False) -> RunHistory | None:
        """Return the history of runs; None if there is none."""
        return self._open(HISTORY, RunHistory, create=create)

    def reviews(self, *, create: bool = False) -> ReviewStore | None:
        """Return the store of requests; None if there is none."""
        return self._open(REVIEWS, lambda path: ReviewStore(path, os.environ.get(SECRET) or None), create=create)

    def journal(self) -> RunJournal | None:
        """Return the journal of durable runs; None if there is none."""
        return self._open(RUNS, RunJournal)

    def ledger(self) -> EffectLedger | None:
        """Return the ledger of effects; None if there is none."""
        return self._open(EFFECTS, EffectLedger)

    def close(self) -> None:
        """Close the opened stores."""
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


@dataclass(frozen=True, slots=True)
class Targets:
    """The tools and agents that a server can call.

    >>> Targets().find("add") is None
    True
    """

    boxes: tuple[Toolbox, ...] = ()
    """The toolboxes; for duplicate tool names, the first one takes precedence."""
    agents: Mapping[str, Agent[Any]] = field(default_factory=dict)
    """The agents by name."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Each tool's command-line target."""
    deps: Any = None
    """The deps of calls and runs started here, or their factory; None: an agent's own."""
    deps_source: str = ""
    """The deps' command-line target."""

    @property
    def names(self) -> list[str]:
        """The names of all tools."""
        return list(dict.fromkeys(name for box in self.boxes for name in box.names))

    def find(self, name: str) -> Toolbox | None:
        """Return the toolbox with a tool; None if there is none."""
        return next((box for box in self.boxes if name in box), None)


@dataclass(slots=True)
class Interface:
    """The state that endpoints share."""

    folder: DataFolder
    """The data folder."""
    targets: Targets = field(default_factory=Targets)
    """The tools and agents."""
    read_only: bool = False
    """Whether the server is read-only."""
    address: str = "http://127.0.0.1:7771"
    """The server's address."""
    chats: dict[str, Sequence[Message]] = field(default_factory=dict)
    """The chat page's conversations with agents without a memory, by memory id."""
    poller: Any = None
    """Looks for changes in the data folder, for all open pages; None before the first one."""
    working: set[Any] = field(default_factory=set)
    """The tasks of runs resumed here."""

    def reviewer(self) -> QueueReview:
        """Return the default reviewer for tools and agents: the data folder's store."""
        store = self.folder.reviews(create=True)
        assert store is not None  # noqa: S101 - it was created
        return QueueReview(store)

    def choose_reviewer(self, agent: Agent[Any]) -> dict[str, Any]:
        """Return run settings with a reviewer, unless the agent has its own."""
        return {} if agent.list_reviewers() else {"review": self.reviewer()}

    def record(self) -> Sinks:
        """Return the sinks for runs started here: the data folder's history."""
        return Sinks("toolsemble ui", [self.folder.history(create=True)])
