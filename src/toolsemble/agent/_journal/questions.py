"""The questions of parked runs: who asked them here, and how they are closed when their run is cancelled."""

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
    """A reviewer or a store, which can close questions."""

    def withdraw(self, ids: Iterable[str]) -> object:
        """Close requests; return False if that is not possible."""
        ...


FindReviewers: TypeAlias = Callable[[str, str, str], Iterable[Withdraws]]
"""Returns the reviewers and stores that may have a question, for its run, its agent and its id."""

_PARTS = 3  # of a question: when it was asked, its token, and the id of its request
_MOST = 10_000  # parked runs whose reviewers are remembered


class Questions:
    """The questions that runs of a journal have asked people."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._parked: LRUCache[Mapping[str, Reviewer | None]] = LRUCache(_MOST)

    def note_parked(self, run: str, reviewers: Mapping[str, ReviewHandler | None]) -> None:
        """Remember the reviewers that a run was parked with in this process, by the ids of their requests."""
        self._parked.keep(run, {id_: None if each is None else to_reviewer(each) for id_, each in reviewers.items()})

    def find_reviewers(self, run: str) -> Mapping[str, Reviewer | None]:
        """Return the reviewers that a run was parked with in this process; empty if it was not parked here."""
        return self._parked.get(run) or {}

    def find_reviewer(self, run: str, id: str) -> list[Reviewer]:
        """Return the reviewer of one request, in a list; empty if it is not known in this process."""
        reviewer = self.find_reviewers(run).get(id)
        return [] if reviewer is None else [reviewer]

    def close(self, find: FindReviewers) -> None:
        """Close the open questions of cancelled runs, which nobody needs to answer; those nobody here has stay."""
        with self._storage.reading() as tables:
            closing = tables.list_closing()
        for run, agent, step in closing:
            if not isinstance(step.data, list) or len(step.data) < _PARTS:  # something else has changed the row
                continue
            if withdraw_question(find(run, agent, find_id(step)), find_id(step)):
                with self._storage.writing(run) as tables:
                    tables.settle_question(run, step.place)


def find_id(step: Step) -> str:
    """Return the id of the request of a question."""
    id_: str = step.data[2]
    return id_


def mark_closing(tables: Tables, run: str) -> None:
    """Record that the open questions of a run are to be closed: those of calls without a result."""
    steps = tables.list_steps(run)
    done = {step.place for step in steps if step.kind == "call" and step.is_done}
    for step in steps:
        if step.kind == "question" and step.place.partition("?")[0] not in done:
            tables.mark_question(run, step.place)


def withdraw_question(reviewers: Iterable[Withdraws], id: str) -> bool:
    """Close a question wherever it may be; return whether all who may have it were reached, and there is one."""
    try:
        closed = [each.withdraw([id]) is not False for each in reviewers]
    except Exception as error:  # of any store; the run is cancelled all the same, and a worker tries again
        LOGGER.warning("A question of a run that has ended could not be closed: %s", describe_error(error))
        return False
    return any(closed)
