"""``RunHistory``: a sink that keeps events in a SQLite file, where any process can query them."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol, Self

from toolsemble._runtime.checks import check_count, check_seconds
from toolsemble._runtime.sinks import BatchSink
from toolsemble._runtime.storage.database import ProcessIdentity
from toolsemble._runtime.storage.sqlite import Database, translate_errors
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.telemetry import _history_queries as queries, _history_records as records
from toolsemble.telemetry._event_json import write_event
from toolsemble.telemetry._history_writer import KIND, EventWriter

LOGGER = logging.getLogger("toolsemble.history")
LOGGER.addHandler(logging.NullHandler())
_BUSY = 5.0


class KnowsRuns(Protocol):
    """A journal, as a history sees it: the truth about the states of its runs."""

    def find(self, run_id: str) -> Any:
        """Return the record of a run, with its ``state``; None if the id is unknown."""
        ...

    def list(self) -> Sequence[Any]:
        """Return the records of all runs, each with its ``run_id`` and ``state``."""
        ...

    def find_work(self) -> Sequence[Any]:
        """Return the rows of the runs that no process drives, each with the id of its ``run``."""
        ...


class RunHistory(BatchSink):
    """A sink that keeps the events of runs, turns, calls and reviews in a SQLite file, to be queried.

    Any number of processes can write and read the file at the same time. Events are written in batches, by the thread
    of the sink: calls do not wait for the disk. Events have their secrets masked, and so has the file, which only its
    owner can read. Everything else that users, models and tools said is in it, until :meth:`forget`.

    :param path: the file; it and its folder are created if they are missing
    :param messages: whether what runs were asked and answered is kept, and not only their tokens and times
    :param max_text: the characters that are kept of each text in an event, such as the output of a tool
    :param clock: returns the seconds since the epoch

    >>> import tempfile
    >>> from toolsemble import Agent, ToolCall, tool
    >>> from toolsemble.testing import ScriptedModel
    >>> @tool
    ... def add(a: int, b: int) -> int:
    ...     '''Add two numbers.'''
    ...     return a + b
    >>> folder = tempfile.TemporaryDirectory()
    >>> with RunHistory(f"{folder.name}/history.db") as history:
    ...     model = ScriptedModel([ToolCall("add", {"a": 1, "b": 2}), "It is 3."])
    ...     result = Agent(model, [add], sinks=[history]).run_sync("What is 1 + 2?", run_id="sum")
    ...     run = history.run("sum")
    ...     [call.text for call in history.calls("sum")]
    ['3']
    >>> run.state, run.prompt, run.answer, run.turns, run.calls
    ('done', 'What is 1 + 2?', 'It is 3.', 2, 1)
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        messages: bool = True,
        max_text: int = 1_000_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if os.fspath(path) in {"", ":memory:"}:
            raise ToolDefinitionError("A RunHistory needs a file path, such as '.toolsemble/history.db'")
        check_count("RunHistory max_text", max_text, least=1)
        place = Path(path).absolute()  # the working directory may change before the file is opened again
        self._settings: dict[str, Any] = {
            "path": str(place), "messages": messages, "max_text": max_text, "clock": clock
        }  # fmt: skip
        self._messages = messages
        self._max_text = max_text
        self._clock = clock
        self.sink_key = ("run history", str(place))
        """Two histories of one file are one sink, so that no event is kept twice."""
        _create_folder(place.parent)
        self._database = Database(place, KIND, _BUSY)

    def emit(self, event: Any) -> None:
        """Write an event; raise if that fails."""
        self.emit_all([event])

    def emit_all(self, events: Sequence[Any]) -> None:
        """Write events in one transaction; raise if that fails.

        The thread of the sink calls this with all events that are waiting.
        """
        written = [each for each in map(self._serialize, events) if each is not None]
        with self._database.writing() as connection:
            writer = EventWriter(connection, _identify(os.getpid()), self._max_text)
            for values in written:
                writer.add(values)

    def runs(
        self,
        *,
        limit: int = 50,
        before: int | None = None,
        state: records.RunState | None = None,
        tool: str | None = None,
        text: str | None = None,
        journal: KnowsRuns | None = None,
    ) -> list[records.RunSummary]:
        """Return a page of runs, newest first.

        :param limit: the number of runs at most
        :param before: the ``number`` of the last run of the page before; None: the first page
        :param state: only runs in this state
        :param tool: only runs that called this tool
        :param text: only runs with this text in an event, such as an argument or an answer; ASCII letters match in
            either case
        :param journal: the :class:`~toolsemble.RunJournal` of the runs, whose states count: a run that was parked may
            have been cancelled since, without an event
        """
        wanted, states = queries.RunFilter(before, state, tool, text), _read_states(journal)
        with self._database.reading() as connection:
            return queries.find_runs(connection, wanted, limit, states)

    def run(self, run_id: str, *, journal: KnowsRuns | None = None) -> records.RunSummary | None:
        """Return one run; None if it is unknown.

        :param journal: the :class:`~toolsemble.RunJournal` of the run, whose state counts
        """
        states = _read_state(journal, run_id)
        with self._database.reading() as connection:
            return queries.find_run(connection, run_id, states)

    def agents(self, run_id: str, *, journal: KnowsRuns | None = None) -> list[records.AgentRun]:
        """Return the agents of a run in the order of their start: the outermost one, and those inside calls.

        :param journal: the :class:`~toolsemble.RunJournal` of the run, whose state counts
        """
        states = _read_state(journal, run_id)
        with self._database.reading() as connection:
            return queries.find_agents(connection, run_id, states)

    def turns(self, run_id: str, *, after: int = 0, limit: int = 1000) -> list[records.TurnSummary]:
        """Return a page of the replies of models in a run, in order, those of nested agents among them.

        :param after: the ``number`` of the last reply of the page before
        """
        with self._database.reading() as connection:
            return queries.find_turns(connection, run_id, after, limit)

    def calls(self, run_id: str, *, after: int = 0, limit: int = 1000) -> list[records.CallSummary]:
        """Return a page of the calls of a run, in the order of their start.

        :param after: the ``number`` of the last call of the page before
        """
        with self._database.reading() as connection:
            return queries.find_calls(connection, run_id, after, limit)

    def reviews(self, run_id: str) -> list[records.ReviewSummary]:
        """Return the questions to reviewers of a run, oldest first, with their answers."""
        with self._database.reading() as connection:
            return queries.find_reviews(connection, run_id)

    def events(
        self,
        after: int = 0,
        run: str | None = None,
        limit: int = 500,
        *,
        call: str | None = None,
        kinds: Collection[str] = (),
        max_text: int | None = None,
    ) -> list[records.HistoryEvent]:
        """Return a page of events, in order.

        The ``messages`` of a ``run_started`` are those that no earlier run started with; its ``earlier`` says which
        event has the others, and :meth:`event` returns all of them.

        :param after: the ``number`` of the last event that was seen; 0: from the beginning
        :param run: only events of the run with this id
        :param limit: the number of events at most
        :param call: only events of the call with this id
        :param kinds: only events of these kinds; empty: all
        :param max_text: the characters that are left of long texts, see :attr:`HistoryEvent.cut`; None: all
        """
        wanted = queries.EventFilter(after, run, call, tuple(kinds))
        with self._database.reading() as connection:
            return queries.find_events(connection, wanted, limit, max_text)

    def event(self, number: int) -> records.HistoryEvent | None:
        """Return one event in full; None if there is none with this number."""
        with self._database.reading() as connection:
            return queries.find_event(connection, number)

    def last(self) -> int:
        """Return the number of the latest event; 0 if there is none."""
        with self._database.reading() as connection:
            return queries.find_last(connection)

    def forget(self, older_than: float, *, journal: KnowsRuns | None = None) -> int:
        """Delete the runs whose latest event happened more than so many seconds ago; return how many.

        Runs that are queued, running or waiting are kept.

        :param journal: the :class:`~toolsemble.RunJournal` of the runs, whose states count
        """
        check_seconds("RunHistory.forget older_than", older_than, zero=True)
        states = _read_states(journal)
        with self._database.writing() as connection:
            return queries.delete_runs(connection, self._clock() - older_than, states)

    def close(self) -> None:
        """Close the history; events that come later are lost."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(RunHistory, **self._settings), ()

    def _serialize(self, event: Any) -> dict[str, Any] | None:
        """Return an event as JSON values; None for one that cannot be written: the others of its batch can."""
        try:
            return write_event(event, messages=self._messages)
        except Exception:  # a tool may report anything
            LOGGER.warning("An event cannot be written to the run history: %r", type(event).__name__, exc_info=True)
            return None


def _read_states(journal: KnowsRuns | None) -> queries.States:
    """Return the states of a journal's runs; "lost" until another process takes a run whose process has ended."""
    if journal is None:
        return queries.NO_STATES
    free = {row.run for row in journal.find_work()}
    return {run.run_id: _find_state(run, free) for run in journal.list()}


def _read_state(journal: KnowsRuns | None, run_id: str) -> queries.States:
    """Return the state of one run, as a journal knows it."""
    run = None if journal is None else journal.find(run_id)
    if journal is None or run is None:
        return queries.NO_STATES
    free = {row.run for row in journal.find_work()} if run.state == "running" else ()
    return {run_id: _find_state(run, free)}


def _find_state(run: Any, free: Collection[str]) -> records.RunState:
    state: records.RunState = run.state
    return "lost" if state == "running" and run.run_id in free else state


@lru_cache(maxsize=1)
def _identify(pid: int) -> str:  # noqa: ARG001 - a forked process is another one
    """Return the identity of this process as JSON; the system is asked once."""
    return json.dumps(ProcessIdentity.current())


def _create_folder(folder: Path) -> None:
    with translate_errors(folder, "folder of the run history"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
