"""A ledger of what tools did to the world: taken down before it is done, and again when it is known to be done."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from toolsemble.call import new_id
from toolsemble.errors import ToolConfigurationError, ToolDefinitionError
from toolsemble.limits.single_flight import Flights
from toolsemble.processes.identity import ProcessIdentity
from toolsemble.result import ToolResult
from toolsemble.runtime.checks import check_seconds
from toolsemble.runtime.signing import is_signed, sign
from toolsemble.runtime.sqlite import Database, Kind, load_key
from toolsemble.serialization import read_result, write_result

State: TypeAlias = Literal["running", "done", "unknown"]
"""What is known of an effect: it is being made, it was made, or nobody knows."""

_BUSY = 5.0
_IN_MEMORY = 10_000
_TABLES = """
    CREATE TABLE effects (
        number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, tool TEXT NOT NULL, run TEXT NOT NULL, call TEXT NOT NULL,
        arguments TEXT NOT NULL, state TEXT NOT NULL, began REAL NOT NULL, ended REAL, result TEXT,
        token TEXT NOT NULL, owner TEXT NOT NULL
    );
    CREATE INDEX effects_by_state ON effects (state, ended);
    CREATE TABLE secret (fingerprint TEXT NOT NULL);
"""
_COLUMNS = "key, tool, run, call, arguments, state, began, ended, result, token, owner"


@dataclass(frozen=True, slots=True)
class Effect:
    """One entry of a ledger: a call that changes something, and what became of it.

    >>> Effect("4f3a", "pay", "run 1", "call 1", '{"order":17}', "unknown", 1700000000.0).state
    'unknown'
    """

    key: str
    """What it is known by; it tells nothing about the arguments."""
    tool_name: str
    """The tool that was called."""
    run_id: str
    """The run that the call belonged to."""
    call_id: str
    """The call."""
    arguments: str
    """The arguments as JSON text, with secrets hidden; cut when they are long."""
    state: State
    """What is known of it."""
    began: float
    """When it was taken down, in seconds since the epoch."""
    ended: float | None = None
    """When its outcome was taken down; None when none was."""
    result: ToolResult | None = None
    """What repeated calls are answered with, when it was made."""


class EffectLedger:
    """What was done, in memory, or in a SQLite file for any number of processes; that survives their sudden end.

    A call is entered before its body runs, and its result after. An entry without a result, whose process is gone, is
    of unknown outcome, and stays so until somebody who has looked says what happened: see :meth:`resolve`. In memory,
    the latest 10,000 outcomes are kept; in a file, all of them until :meth:`forget`.

    :param path: the file; it is made when it is missing, for its owner only, with its secret in ``<path>.key``
    :param clock: gives the seconds since the epoch

    >>> from toolsemble import Toolbox, ToolCall, tool
    >>> @tool(effects="write", idempotency=True)
    ... def pay(order: int) -> str:
    ...     return f"paid {order}"
    >>> with EffectLedger() as ledger:
    ...     box = Toolbox([pay], ledger=ledger)
    ...     replies = [box.execute(ToolCall("pay", {"order": 17}), run_id="run 1") for _ in range(2)]
    ...     [entry.state for entry in ledger.entries()]
    ['done']
    >>> [reply.result.attributes.get("repeated", False) for reply in replies]
    [False, True]
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, clock: Callable[[], float] = time.time) -> None:
        if path is not None and os.fspath(path) in {"", ":memory:"}:
            raise ToolDefinitionError("An EffectLedger needs the path of a file, or nothing for one in memory")
        place = None if path is None else Path(path).absolute()
        self._made_of = {"path": None if place is None else str(place), "clock": clock}
        self._clock = clock
        self._id = new_id()
        self._live: set[str] = set()
        self.in_memory = place is None
        self.flights = Flights()
        self._database = Database(place, Kind("effect ledger", 0x746F6F6E, 1, _TABLES), _BUSY)
        self._secret = os.urandom(32) if place is None else load_key(place, "key of the effect ledger")
        if place is not None:
            self._check_secret()

    def entries(self, state: State | None = None) -> list[Effect]:
        """Give what is in the ledger, oldest first; all of it, or what is in one state."""
        with self._database.reading() as rows:
            found = rows.execute(f"SELECT {_COLUMNS} FROM effects ORDER BY number").fetchall()  # noqa: S608 - constant
        effects = [self._read(row) for row in found]
        return [effect for effect in effects if state in (None, effect.state)]

    def unknown(self) -> list[Effect]:
        """Give the entries whose outcome nobody knows, oldest first.

        >>> EffectLedger().unknown()
        []
        """
        return self.entries("unknown")

    def resolve(self, key: str, *, happened: bool, result: ToolResult | str = "") -> None:
        """Say what became of an entry of unknown outcome, after a look at the world.

        :param happened: whether its effect is there; if not, the entry goes, and the call may be made again
        :param result: what repeated calls are answered with, when it happened
        """
        made = result if isinstance(result, ToolResult) else ToolResult.success(result)
        with self._database.writing() as rows:
            found = self._find(rows, key)
            if found is None or found.state != "unknown":
                what = "has no entry" if found is None else f"knows that '{found.tool_name}' is {found.state} for"
                raise ValueError(f"The effect ledger {what} {key!r:.80}; take one from unknown()")
            if happened:
                values = write_result(made), self._clock(), key
                rows.execute("UPDATE effects SET state = 'done', result = ?, ended = ? WHERE key = ?", values)
            else:
                rows.execute("DELETE FROM effects WHERE key = ?", (key,))

    def forget(self, older_than: float) -> int:
        """Delete what was done more than so many seconds ago, and give how many entries that were.

        Calls with their keys would be made again. What runs, and what is unknown, stays.
        """
        check_seconds("EffectLedger.forget older_than", older_than, zero=True)
        with self._database.writing() as rows:
            done = "DELETE FROM effects WHERE state = 'done' AND ended <= ?"
            return rows.execute(done, (self._clock() - older_than,)).rowcount

    def close(self) -> None:
        """Close the ledger; calls that need it are not made any more."""
        self._database.close()

    def digest(self, parts: list[Any]) -> str:
        """Give the key of a call: it tells nothing about the arguments to who does not have the secret."""
        return sign(self._secret, "effect", parts)[:32]

    def now(self) -> float:
        """Give the time of this ledger."""
        return self._clock()

    def reserve(self, effect: Effect, token: str, *, again: bool, patience: float | None) -> Effect | None:
        """Take down that a call is about to be made, or give the entry that stands in its way.

        :param token: by which the entry is known to be this call's
        :param again: whether a call of unknown outcome may be made again
        :param patience: how many seconds others who write are waited for
        """
        self._live.add(token)
        try:
            with self._database.writing(patience) as rows:
                found = self._find(rows, effect.key)
                if found is None or (again and found.state == "unknown"):
                    self._enter(rows, effect, token)
                    return None
        except BaseException:
            self._live.discard(token)
            raise
        self._live.discard(token)
        return found

    def holds(self, token: str) -> bool:
        """Whether a call is reserved, and has not ended yet."""
        return token in self._live

    def finish(self, key: str, token: str, result: str) -> None:
        """Take down that a call was made, and what came of it."""
        try:
            self._settle("state = 'done', result = ?", key, token, result)
        finally:
            self._live.discard(token)

    def lose(self, key: str, token: str) -> None:
        """Take down that nobody knows what became of a call."""
        self._live.discard(token)  # first: it is so, whether or not it can be written
        self._settle("state = 'unknown'", key, token)

    def release(self, key: str, token: str) -> None:
        """Take down that a call was not made."""
        try:
            with self._database.writing() as rows:
                rows.execute("DELETE FROM effects WHERE key = ? AND token = ? AND state = 'running'", (key, token))
        finally:
            self._live.discard(token)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._made_of,)

    def _enter(self, rows: sqlite3.Connection, effect: Effect, token: str) -> None:
        facts = (effect.key, effect.tool_name, effect.run_id, effect.call_id, effect.arguments, "running")
        rows.execute(
            f"INSERT OR REPLACE INTO effects ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, NULL, NULL, ?, ?)",  # noqa: S608 - as above
            (*facts, self._clock(), token, self._owner()),
        )
        if self.in_memory:
            # The plus keeps SQLite from walking all that is done by its index: by number there are few to look at.
            old = "DELETE FROM effects WHERE +state = 'done' AND number <= (SELECT max(number) FROM effects) - ?"
            rows.execute(old, (_IN_MEMORY,))

    def _settle(self, change: str, key: str, token: str, *values: Any) -> None:
        statement = f"UPDATE effects SET {change}, ended = ? WHERE key = ? AND token = ? AND state = 'running'"  # noqa: S608 - the change is one of the two above
        with self._database.writing() as rows:
            rows.execute(statement, (*values, self._clock(), key, token))

    def _find(self, rows: sqlite3.Connection, key: str) -> Effect | None:
        row = rows.execute(f"SELECT {_COLUMNS} FROM effects WHERE key = ?", (key,)).fetchone()  # noqa: S608 - as above
        return None if row is None else self._read(row)

    def _read(self, row: tuple[Any, ...]) -> Effect:
        key, tool, run, call, arguments, state, began, ended, result, token, owner = row
        try:
            if state == "running" and not self._is_running(token, owner):
                state = "unknown"
            kept = None if result is None else read_result(result)
        except (ValueError, TypeError, LookupError) as error:
            raise self._database.damaged_error(error) from error
        return Effect(key, tool, run, call, arguments, state, began, ended, kept)

    def _owner(self) -> str:
        return json.dumps([*ProcessIdentity.current(), self._id])

    def _is_running(self, token: str, owner: str) -> bool:
        """Whether the call of an entry still runs, here or in another process."""
        *process, ledger = json.loads(owner)
        if ledger == self._id and ProcessIdentity(*process) == ProcessIdentity.current():
            return token in self._live
        return ProcessIdentity(*process).is_running()

    def _check_secret(self) -> None:
        """Refuse a file whose keys were made with another secret: nothing in it would be found."""
        with self._database.writing() as rows:
            known = rows.execute("SELECT fingerprint FROM secret").fetchone()
            if known is None:
                rows.execute("INSERT INTO secret VALUES (?)", (sign(self._secret, "ledger", ""),))
        if known is not None and not is_signed(known[0], self._secret, "ledger", ""):
            self._database.close()
            raise ToolConfigurationError("The effect ledger was made with another key; put the file <path>.key back")


def _restored(made_of: Mapping[str, Any]) -> EffectLedger:
    return EffectLedger(**made_of)
