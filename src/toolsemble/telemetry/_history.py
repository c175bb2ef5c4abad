"""``RunHistory``: a sink that stores events in a SQLite file that any process can query."""

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
from toolsemble.telemetry._history_writer import KIND, EventWriter
from toolsemble.telemetry._trace_file import write_event

LOGGER = logging.getLogger("toolsemble.history")
LOGGER.addHandler(logging.NullHandler())
_BUSY = 5.0


class KnowsRuns(Protocol):
    """The part of a journal that a history uses: the authoritative states of its runs."""

    def find(self, run_id: str) -> Any:
        """Return the record of a run, with its ``state``; None if the id is unknown."""
        ...

    def list(self) -> Sequence[Any]:
        """Return the records of all runs, each with its ``run_id`` and ``state``."""
        ...

    def find_work(self) -> Sequence[Any]:
        """Return the rows of runs without a driver, each with the id of its ``run``."""
        ...


class RunHistory(BatchSink):
    """A sink that stores the events of runs, turns, calls and reviews in a queryable SQLite file.

    Any number of processes can read and write the file concurrently. Events are written in batches, on the sink's
    thread: calls do not wait for the disk. Secrets are masked, and only the owner can read the file. Everything else
    that users, models and tools said is in it, until :meth:`forget`.

    :param path: the file; it and its folder are created if missing
    :param messages: whether to store prompts, replies and answers, not only tokens and times
    :param max_text: the maximum stored length of each text in an event, such as a tool's output
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
        place = Path(path).absolute()  # the working directory may change before the file is reopened
        self._settings: dict[str, Any] = {
            "path": str(place), "messages": messages, "max_text": max_text, "clock": clock
        }  # fmt: skip
        self._messages = messages
        self._max_text = max_text
        self._clock = clock
        self.sink_key = ("run history", str(place))
        """Two histories of one file count as one sink, so that no event is stored twice."""
        _create_folder(place.parent)
        self._database = Database(place, KIND, _BUSY)

    def emit(self, event: Any) -> None:
        """Write an event; raise if that fails."""
        self.emit_all([event])

    def emit_all(self, events: Sequence[Any]) -> None:
        """Write events in one transaction; raise if that fails.

        The sink's thread calls this with all queued events.
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

        :param limit: the maximum number of runs
        :param before: the ``number`` of the previous page's last run; None: the first page
        :param state: only runs in this state
        :param tool: only runs that called this tool
        :param text: only runs with this text in an event, such as an argument or an answer; ASCII letters match in
            either case
        :param journal: the runs' :class:`~toolsemble.RunJournal`, whose states are authoritative: a parked run may have
        been cancelled since, without an event
        """
        wanted, states = queries.RunFilter(before, state, tool, text), _read_states(journal)
        with self._database.reading() as connection:
            return queries.find_runs(connection, wanted, limit, states)

    def run(self, run_id: str, *, journal: KnowsRuns | None = None) -> records.RunSummary | None:
        """Return one run; None if it is unknown.

        :param journal: the run's :class:`~toolsemble.RunJournal`, whose state is authoritative
        """
        states = _read_state(journal, run_id)
        with self._database.reading() as connection:
            return queries.find_run(connection, run_id, states)

    def agents(self, run_id: str, *, journal: KnowsRuns | None = None) -> list[records.AgentRun]:
        """Return a run's agents in start order: the outermost one and nested ones.

        :param journal: the run's :class:`~toolsemble.RunJournal`, whose state is authoritative
        """
        states = _read_state(journal, run_id)
        with self._database.reading() as connection:
            return queries.find_agents(connection, run_id, states)

    def turns(self, run_id: str, *, after: int = 0, limit: int = 1000) -> list[records.TurnSummary]:
        """Return a page of model replies in a run, in order, including nested agents' replies.

        :param after: the ``number`` of the previous page's last reply
        """
        with self._database.reading() as connection:
            return queries.find_turns(connection, run_id, after, limit)

    def calls(self, run_id: str, *, after: int = 0, limit: int = 1000) -> list[records.CallSummary]:
        """Return a page of a run's calls, in start order.

        :param after: the ``number`` of the previous page's last call
        """
        with self._database.reading() as connection:
            return queries.find_calls(connection, run_id, after, limit)

    def reviews(self, run_id: str) -> list[records.ReviewSummary]:
        """Return a run's review requests, oldest first, with their answers."""
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
        values: bool = True,
    ) -> list[records.HistoryEvent]:
        """Return a page of events, in order.

        The ``messages`` of a ``run_started`` event are only the ones that no earlier run started with; its ``earlier``
        names the event that has the others, and :meth:`event` returns all of them.

        :param after: the ``number`` of the last seen event; 0: from the beginning
        :param run: only events of the run with this id
        :param limit: the maximum number of events
        :param call: only events of the call with this id
        :param kinds: only events of these kinds; empty: all
        :param max_text: the maximum length of texts, see :attr:`HistoryEvent.cut`; None: no limit
        :param values: whether the events have their ``values``; without them, little is read of long events
        """
        wanted = queries.EventFilter(after, run, call, tuple(kinds))
        with self._database.reading() as connection:
            return queries.find_events(connection, wanted, limit, max_text, has_values=values)

    def event(self, number: int) -> records.HistoryEvent | None:
        """Return the event with a number in full; None if there is none."""
        with self._database.reading() as connection:
            return queries.find_event(connection, number)

    def last(self) -> int:
        """Return the number of the latest event; 0 if there is none."""
        with self._database.reading() as connection:
            return queries.find_last(connection)

    def forget(self, older_than: float, *, journal: KnowsRuns | None = None) -> int:
        """Delete runs whose latest event is older than this many seconds; return their number.

        Queued, running and waiting runs are kept.

        :param journal: the runs' :class:`~toolsemble.RunJournal`, whose states are authoritative
        """
        check_seconds("RunHistory.forget older_than", older_than, zero=True)
        states = _read_states(journal)
        with self._database.writing() as connection:
            return queries.delete_runs(connection, self._clock() - older_than, states)

    def close(self) -> None:
        """Close the history; later events are lost."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(RunHistory, **self._settings), ()

    def _serialize(self, event: Any) -> dict[str, Any] | None:
        """Return an event as JSON values; None if it is not serializable, so that it does not fail its batch."""
        try:
            return write_event(event, messages=self._messages)
        except Exception:  # a tool may report anything
            LOGGER.warning("An event cannot be written to the run history: %r", type(event).__name__, exc_info=True)
            return None


def _read_states(journal: KnowsRuns | None) -> queries.States:
    """Return the states of a journal's runs; "lost" for runs of dead processes that were not taken over yet."""
    if journal is None:
        return queries.NO_STATES
    free = {row.run for row in journal.find_work()}
    return {run.run_id: _find_state(run, free) for run in journal.list()}


def _read_state(journal: KnowsRuns | None, run_id: str) -> queries.States:
    """Return a run's state in a journal."""
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
    """Return this process's identity as JSON, cached."""
    return json.dumps(ProcessIdentity.current())


def _create_folder(folder: Path) -> None:
    with translate_errors(folder, "folder of the run history"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
