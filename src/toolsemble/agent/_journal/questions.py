"""The questions of parked runs: their reviewers in this process, and closing them when their run is cancelled."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

from toolsemble._runtime.lru import LRUCache
from toolsemble._runtime.text import describe_error
from toolsemble.agent._journal.records import Step
from toolsemble.agent._journal.storage import Storage, Tables
from toolsemble.review._request import Reviewer, ReviewHandler, to_reviewer

LOGGER = logging.getLogger("toolsemble.journal")
LOGGER.addHandler(logging.NullHandler())  # a program without logging prints nothing


class Withdraws(Protocol):
    """A reviewer or a store that can close questions."""

    def withdraw(self, ids: Iterable[str]) -> object:
        """Close requests; return False if it cannot."""
        ...


FindReviewers: TypeAlias = Callable[[str, str, str], Iterable[Withdraws]]
"""Returns the reviewers and stores that may hold a question, by its run, its agent and its id."""

_PARTS = 3  # of a question: when it was asked, its token, and the id of its request
_MOST = 10_000  # parked runs whose reviewers are remembered


class Questions:
    """The questions that a journal's runs have asked people."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._parked: LRUCache[Mapping[str, Reviewer | None]] = LRUCache(_MOST)

    def note_parked(self, run: str, reviewers: Mapping[str, ReviewHandler | None]) -> None:
        """Remember the reviewers of a run that was parked in this process, by request id."""
        self._parked.keep(run, {id_: None if each is None else to_reviewer(each) for id_, each in reviewers.items()})

    def find_reviewers(self, run: str) -> Mapping[str, Reviewer | None]:
        """Return the reviewers of a run that was parked in this process; empty if it was not parked here."""
        return self._parked.get(run) or {}

    def find_reviewer(self, run: str, id: str) -> list[Reviewer]:
        """Return the reviewer of one request, in a list; empty if unknown in this process."""
        reviewer = self.find_reviewers(run).get(id)
        return [] if reviewer is None else [reviewer]

    def close(self, find: FindReviewers) -> None:
        """Close the open questions of cancelled runs; a question without a known reviewer stays open."""
        with self._storage.reading() as tables:
            closing = tables.list_closing()
        for run, agent, step in closing:
            if not isinstance(step.data, list) or len(step.data) < _PARTS:  # the row is damaged
                continue
            if withdraw_question(find(run, agent, find_id(step)), find_id(step)):
                with self._storage.writing(run) as tables:
                    tables.settle_question(run, step.place)


def find_id(step: Step) -> str:
    """Return the request id of a question."""
    id_: str = step.data[2]
    return id_


def mark_closing(tables: Tables, run: str) -> None:
    """Mark the open questions of a run, whose calls have no result, as to be closed."""
    steps = tables.list_steps(run)
    done = {step.place for step in steps if step.kind == "call" and step.is_done}
    for step in steps:
        if step.kind == "question" and step.place.partition("?")[0] not in done:
            tables.mark_question(run, step.place)


def withdraw_question(reviewers: Iterable[Withdraws], id: str) -> bool:
    """Close a question with every reviewer that may hold it; return whether there is one and all were reached."""
    try:
        closed = [each.withdraw([id]) is not False for each in reviewers]
    except Exception as error:  # from any store; the run is cancelled anyway, and a worker retries
        LOGGER.warning("A question of a finished run could not be closed: %s", describe_error(error))
        return False
    return any(closed)
