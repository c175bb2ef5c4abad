"""A journal's database: its tables, and the ownership of its runs."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from json import JSONEncoder
from types import NoneType
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

from toolsemble._runtime.storage.database import Database, ProcessIdentity, Rows
from toolsemble._runtime.storage.opening import Location, open_database
from toolsemble._runtime.storage.sqlite import Kind
from toolsemble._runtime.text import describe_error
from toolsemble._vocabulary.call import new_id
from toolsemble._vocabulary.errors import JournalError, ToolConfigurationError, ToolsembleError
from toolsemble.agent._journal.records import STATES, RunRecord, RunStatus, Step


def to_json_object(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy of the parameters; raise :class:`ToolConfigurationError` if JSON cannot round-trip them.

    >>> to_json_object({"user": "ada"})
    {'user': 'ada'}
    """
    if not isinstance(parameters, (Mapping, NoneType)):
        raise TypeError(f"The parameters of a run must be a mapping, such as {{'user': 'ada'}}, not {parameters!r:.80}")
    values = dict(parameters or {})
    try:
        copied: dict[str, Any] = json.loads(json.dumps(values, allow_nan=False))
        if copied == values:
            return copied
    except (TypeError, ValueError, RecursionError):
        pass
    raise ToolConfigurationError(
        "The parameters of a journaled run must be JSON values, which another process can read; pass other "
        "objects as deps"
    )


_TABLES = """
    CREATE TABLE runs (
        number INTEGER PRIMARY KEY, run TEXT NOT NULL UNIQUE, agent TEXT NOT NULL, state TEXT NOT NULL,
        prompt TEXT NOT NULL, settings TEXT NOT NULL, result TEXT, error TEXT NOT NULL, waiting TEXT NOT NULL,
        owner TEXT NOT NULL, fence INTEGER NOT NULL, created REAL NOT NULL, updated REAL NOT NULL
    );
    CREATE INDEX runs_by_state ON runs (state, number);
    CREATE TABLE steps (
        number INTEGER PRIMARY KEY, run TEXT NOT NULL, place TEXT NOT NULL, kind TEXT NOT NULL, state TEXT NOT NULL,
        tool TEXT NOT NULL, arguments TEXT NOT NULL, data TEXT, elapsed REAL NOT NULL, at REAL NOT NULL
    );
    CREATE UNIQUE INDEX steps_by_place ON steps (run, place, kind);
"""
_OPEN = "state NOT IN ('done', 'repeatable')"  # few steps are open: most never enter this index
_INDEX = f"CREATE INDEX steps_by_state ON steps (state) WHERE {_OPEN};"


def _shrink_index(connection: Rows) -> None:
    """Upgrade the tables of version 1, where all steps were in the index."""
    connection.execute("DROP INDEX steps_by_state")
    connection.execute(_INDEX)


KIND = Kind("run journal", 0x746F6F72, 2, _TABLES + _INDEX, "NORMAL", {1: _shrink_index})
"""The kind of journal files."""

_STEP = (
    "INSERT INTO steps (run, place, kind, state, tool, arguments, data, elapsed, at) "
    "SELECT ?, ?, ?, ?, ?, ?, ?, ?, ? {condition} ON CONFLICT (run, place, kind) DO UPDATE SET "
    "state = excluded.state, tool = excluded.tool, arguments = CASE WHEN excluded.arguments = '' "
    "THEN steps.arguments ELSE excluded.arguments END, data = excluded.data, elapsed = excluded.elapsed"
)
_PUT_STEP = _STEP.format(condition="WHERE true")
_WRITE_STEP = _STEP.format(condition="FROM runs WHERE run = ? AND fence = ? AND state <> 'cancelled'")
_ENCODE = JSONEncoder(separators=(",", ":")).encode  # made once: every record needs it

_COLUMNS = "run, agent, state, prompt, settings, result, error, waiting, owner, fence, created, updated"


_OWNER = 5  # values of a driver
_OPTIONAL = ("result", "owner")
_FORMS: dict[str, Callable[[Any], bool]] = {
    "prompt": lambda value: (
        isinstance(value, list)
        and all(isinstance(each, dict) and isinstance(each.get("text", ""), str) for each in value)
    ),
    "settings": lambda value: (
        isinstance(value, dict) and "memory_id" in value and isinstance(value["parameters"], dict)
    ),
    "result": lambda value: isinstance(value, dict),
    "waiting": lambda value: isinstance(value, dict) and all(isinstance(call, str) for call in value.values()),
    "owner": lambda value: isinstance(value, list) and len(value) == _OWNER,
}


class RunRow(NamedTuple):
    """A row of the runs table."""

    run: str
    agent: str
    state: RunStatus
    prompt: str
    """Messages as JSON text."""
    settings: str
    """The run's other settings, as JSON text."""
    result: str | None
    error: str
    waiting: str
    """The calls that wait for approval by request id, as JSON text."""
    owner: str
    """The driver, as JSON text; empty for none."""
    fence: int
    """The number of drivers so far; only the latest may write."""
    created: float
    updated: float

    def to_record(self) -> RunRecord:
        """Return the row as a public record."""
        prompt = "\n".join(message.get("text", "") for message in json.loads(self.prompt))
        result = {} if self.result is None else json.loads(self.result)
        owner = f"process {json.loads(self.owner)[1]}" if self.owner else ""
        waiting = json.loads(self.waiting) if self.state == "waiting" else {}
        return RunRecord(
            self.run,
            self.agent,
            self.state,
            prompt,
            self.error,
            self.created,
            self.updated,
            result.get("text", ""),
            owner,
            ", ".join(waiting.values()),
            result.get("output"),
            result.get("usage"),
            result.get("stop_reason"),
        )

    def find_damage(self) -> str:
        """Return what is wrong with a damaged row; empty if it can be read.

        >>> RunRow("r1", "clerk", "queued", "[]", "{", None, "", "{}", "", 0, 1.0, 1.0).find_damage()
        'its settings are not JSON of the expected form'
        """
        for name, is_fitting in _FORMS.items():
            text = getattr(self, name)
            try:
                fits = (not text and name in _OPTIONAL) or is_fitting(json.loads(text))
            except (ValueError, TypeError, KeyError, RecursionError):
                fits = False
            if not fits:
                return f"its {name} {'are' if name == 'settings' else 'is'} not JSON of the expected form"
        if not all(isinstance(each, (int, float)) for each in (self.fence, self.created, self.updated)):
            return "its times are not numbers"
        return "" if self.state in STATES else f"unknown state '{self.state!s:.80}'"


class Tables:
    """The tables of a journal inside a transaction."""

    def __init__(self, connection: Rows, clock: Callable[[], float] = time.time) -> None:
        self._rows = connection
        self.now = clock
        """Returns the time that rows are stamped with."""

    def add_run(self, row: RunRow) -> None:
        """Add a run."""
        marks = ", ".join("?" * len(row))
        self._rows.execute(f"INSERT INTO runs ({_COLUMNS}) VALUES ({marks})", tuple(row))

    def change_run(self, run: str, **values: Any) -> None:
        """Change columns of a run."""
        changes = ", ".join(f"{name} = ?" for name in values)
        self._rows.execute(f"UPDATE runs SET {changes} WHERE run = ?", (*values.values(), run))

    def find_run(self, run: str) -> RunRow | None:
        """Return a run, or None."""
        row = self._rows.execute(f"SELECT {_COLUMNS} FROM runs WHERE run = ?", (run,)).fetchone()
        return None if row is None else RunRow(*row)

    def find_owner(self, run: str) -> tuple[RunStatus, str, int] | None:
        """Return the state, the owner and the fence of a run, or None; every write of a driver checks them."""
        row = self._rows.execute("SELECT state, owner, fence FROM runs WHERE run = ?", (run,)).fetchone()
        return None if row is None else (row[0], row[1], row[2])

    def list_runs(self, states: Iterable[str] = ()) -> list[RunRow]:
        """Return the runs in some states, or all, oldest first."""
        wanted = tuple(states)
        where = f"WHERE state IN ({', '.join('?' * len(wanted))})" if wanted else ""
        found = self._rows.execute(f"SELECT {_COLUMNS} FROM runs {where} ORDER BY number", wanted)
        return [RunRow(*row) for row in found.fetchall()]

    def delete_run(self, run: str) -> None:
        """Delete a run and its steps."""
        self._rows.execute("DELETE FROM steps WHERE run = ?", (run,))
        self._rows.execute("DELETE FROM runs WHERE run = ?", (run,))

    def put_step(self, run: str, step: Step, at: float) -> None:
        """Add a step, or replace the one at the same place."""
        self._rows.execute(_PUT_STEP, _to_values(run, step, at))

    def delete_step(self, run: str, place: str) -> None:
        """Delete the call at a place."""
        self._rows.execute("DELETE FROM steps WHERE run = ? AND place = ? AND kind = 'call'", (run, place))

    def mark_question(self, run: str, place: str) -> None:
        """Record that a question is to be closed."""
        self._set_question(run, place, "closing")

    def settle_question(self, run: str, place: str) -> None:
        """Record that a question is closed."""
        self._set_question(run, place, "settled")

    def list_closing(self) -> list[tuple[str, str, Step]]:
        """Return the questions to be closed, with their runs and agents."""
        found = self._rows.execute(
            "SELECT steps.run, agent, place, kind, steps.state, tool, arguments, data, elapsed FROM steps "
            f"JOIN runs ON runs.run = steps.run WHERE steps.state = 'closing' AND steps.{_OPEN} ORDER BY steps.number"
        )
        steps = []
        for run, agent, *row in found.fetchall():
            with suppress(ToolConfigurationError):  # a damaged run must not affect the others
                steps.append((run, agent, _read_step(run, row)))
        return steps

    def list_steps(self, run: str) -> list[Step]:
        """Return the steps of a run, in start order."""
        found = self._rows.execute(
            "SELECT place, kind, state, tool, arguments, data, elapsed FROM steps WHERE run = ? ORDER BY number", (run,)
        )
        return [_read_step(run, row) for row in found.fetchall()]

    def list_open_steps(self) -> list[tuple[str, Step]]:
        """Return the calls whose outcome may be unknown, with their runs, in start order."""
        found = self._rows.execute(
            "SELECT run, place, kind, state, tool, arguments, NULL, elapsed FROM steps "
            f"WHERE state IN ('started', 'unknown') AND {_OPEN} ORDER BY number"
        )
        return [(run, _read_step(run, row)) for run, *row in found.fetchall()]

    def _set_question(self, run: str, place: str, state: str) -> None:
        changed = "UPDATE steps SET state = ? WHERE run = ? AND place = ? AND kind = 'question'"
        self._rows.execute(changed, (state, run, place))


def write_step(database: Database, run: str, fence: int, step: Step, at: float, *, synced: bool) -> bool:
    """Add or replace a step in one statement if the fence is the latest driver's; return whether it was written.

    It is not written if another driver has taken over, or if the run was cancelled.
    """
    values = (*_to_values(run, step, at), run, fence)
    return database.write(_WRITE_STEP, values, key=run, synced=synced) == 1


def _to_values(run: str, step: Step, at: float) -> tuple[Any, ...]:
    data = None if step.data is None else _ENCODE(step.data)
    return run, step.place, step.kind, step.state, step.tool, step.arguments, data, step.elapsed, at


def _read_step(run: str, row: Any) -> Step:
    place, kind, state, tool, arguments, data, elapsed = row
    try:
        read = None if data is None else json.loads(data)
    except (ValueError, TypeError, RecursionError) as problem:
        raise ToolConfigurationError(
            f"Run '{run}' is damaged: the record of its {kind} at {place!r:.80} is not JSON"
        ) from problem
    return Step(place, kind, state, tool, arguments, read, elapsed)


LEASE = 30.0
"""Default seconds without a heartbeat after which a driver's lease has expired."""
_ELSEWHERE = 60.0  # the same for a driver on another machine or before a reboot, which files do not support

_live: set[str] = set()  # the drivers of this process
getattr(os, "register_at_fork", lambda **_: None)(after_in_child=_live.clear)


def new_owner() -> str:
    """Return a new owner for a driver of this process, as stored with a run; it is live until :func:`end_owner`."""
    token = new_id()
    _live.add(token)
    return json.dumps([*ProcessIdentity.current(), token, time.time()])


def end_owner(owner: str) -> None:
    """End a driver of this process."""
    _live.discard(json.loads(owner)[3])


def is_here(owner: str) -> bool:
    """Return whether an owner is a live driver of this process."""
    *process, token, _ = json.loads(owner)
    return ProcessIdentity(*process) == ProcessIdentity.current() and token in _live


def describe_owner(owner: str) -> str:
    """Describe a driver.

    >>> describe_owner('["a boot", 4711, "", "token", 0.0]')
    'process 4711 since 1970-01-01 00:00:00 UTC'
    """
    _, pid, _, _, since = json.loads(owner)
    return f"process {pid} since {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(since))} UTC"


def needs_beats() -> bool:
    """Return whether this process needs a heartbeat because other processes cannot check whether it is alive."""
    return not ProcessIdentity.current().started


def is_driven(row: RunRow, now: float, lease: float = LEASE, *, shared: bool) -> bool:
    """Return whether a live driver owns a run.

    :param now: the time by the same clock as the row's times
    :param lease: seconds without a heartbeat after which a driver's lease has expired
    :param shared: whether drivers may be on any machine, and send heartbeats
    """
    if row.state != "running" or not row.owner:
        return False
    *process, token, _ = _read(row.owner)
    identity = ProcessIdentity(*process)
    if identity == ProcessIdentity.current():
        return token in _live
    age = now - row.updated
    if shared:
        # The row may be a few milliseconds in the future: between two queries, the server's time is estimated.
        return abs(age) < lease and not identity.has_ended()
    if identity.place == ProcessIdentity.current().place and not identity.started:
        return 0 <= age < lease
    if identity.place != ProcessIdentity.current().place:
        return 0 <= age < _ELSEWHERE  # a clock that was set back proves nothing
    return identity.is_running()


def _read(owner: str) -> list[Any]:
    values: list[Any] = json.loads(owner)
    return values


@contextmanager
def report_failures(run: str) -> Iterator[None]:
    """Raise ``JournalError`` for a database error, such as a full disk."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise JournalError(f"Run '{run}' cannot continue: journal error: {describe_error(error)}") from error


class Driver(Protocol):
    """A run's driver, as its storage sees it."""

    def beat(self) -> None:
        """Send a heartbeat."""
        ...

    def drain(self) -> None:
        """Wake up the tasks that wait for it to stop."""
        ...


class Storage:
    """The tables of a journal in a file, or in a Postgres database.

    :param lease: seconds without a heartbeat after which a driver's lease has expired
    :param clock: returns the time that rows are stamped with; default: the system clock, or the server's
    """

    def __init__(
        self, location: Location | None, lease: float = LEASE, clock: Callable[[], float] | None = None
    ) -> None:
        self._database = open_database(location, KIND)
        self._lease = lease
        self.now = clock or self._database.clock
        """Returns the time that rows are stamped with."""
        self.in_place = self._database.in_place
        """Whether writes that are not synced are fast enough to run in the event loop."""
        self._is_shared = self._database.presence is not None
        self._drivers: WeakSet[Driver] = WeakSet()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._beating: threading.Thread | None = None

    @contextmanager
    def reading(self) -> Iterator[Tables]:
        """Yield the tables for reading."""
        with self._database.reading() as connection:
            yield Tables(connection, self.now)

    @contextmanager
    def writing(self, run: str | None = None, *, synced: bool = False, notify: bool = False) -> Iterator[Tables]:
        """Yield the tables inside a transaction.

        :param run: the run to change, so that other runs are not locked; None: several runs
        :param synced: whether it must survive a power failure
        :param notify: whether to wake the workers
        """
        with self._database.writing(key=run, synced=synced, notify=notify) as connection:
            yield Tables(connection, self.now)

    def write_step(self, run: str, fence: int, step: Step, *, synced: bool) -> bool:
        """Add or replace a step of a run; return False if the fence is not the latest, or the run was cancelled.

        :param synced: as in :meth:`writing`
        """
        return write_step(self._database, run, fence, step, self.now(), synced=synced)

    def find_offset(self) -> float:
        """Return how many seconds the server's clock is ahead of this machine's; 0 for a file."""
        return self._database.clock() - time.time() if self._is_shared else 0.0

    def watch(self, changed: Callable[[], object]) -> Callable[[], None] | None:
        """Call a function, in another thread, when there may be work; return a function that unsubscribes.

        Return None if there are no notifications, and the caller has to poll.
        """
        return self._database.watch(changed)

    def is_driven(self, row: RunRow, now: float) -> bool:
        """Return whether a live driver owns a run.

        :param now: the time by the same clock as the row's times
        """
        return is_driven(row, now, self._lease, shared=self._is_shared)

    def add(self, driver: Driver) -> None:
        """Keep a driver, and start its heartbeat if its process cannot be checked."""
        with self._lock:
            self._drivers.add(driver)
            if (self._is_shared or needs_beats()) and self._beating is None:
                self._beating = threading.Thread(target=self._beat, name="toolsemble-journal", daemon=True)
                self._beating.start()

    def forget(self, driver: Driver) -> None:
        """Forget a closed driver."""
        with self._lock:
            self._drivers.discard(driver)

    def drain(self) -> None:
        """Wake up all drivers whose calls wait for a person."""
        with self._lock:
            drivers = list(self._drivers)
        for driver in drivers:
            driver.drain()

    def close(self) -> None:
        """Close the database."""
        self._closed.set()
        self._database.close()

    def _beat(self) -> None:
        # In a thread: a body that blocks the event loop must not lose the run.
        while not self._closed.wait(self._lease / 3):
            with self._lock:
                drivers = list(self._drivers)
            for driver in drivers:
                with suppress(ToolsembleError, OSError):  # the next one may succeed; the driver notices a lost run
                    driver.beat()
