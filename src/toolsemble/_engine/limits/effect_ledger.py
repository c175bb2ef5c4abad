"""A ledger of the effects of calls: each is recorded before its body runs, and again with its outcome."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from toolsemble._engine.limits.single_flight import SingleFlight
from toolsemble._runtime.checks import check_seconds
from toolsemble._runtime.signing import is_signed, sign
from toolsemble._runtime.storage.database import ProcessIdentity, Rows, repeat_if_lost
from toolsemble._runtime.storage.opening import open_database, read_location
from toolsemble._runtime.storage.sqlite import Kind
from toolsemble._vocabulary.call import new_id
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError
from toolsemble._vocabulary.result import ToolResult
from toolsemble._vocabulary.serialization import read_result, write_result

State: TypeAlias = Literal["running", "done", "unknown"]
"""The state of an effect: its call is running, it is done, or its outcome is unknown."""

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
    """One entry of a ledger: a call with an effect, and its outcome.

    >>> Effect("4f3a", "pay", "run 1", "call 1", '{"order":17}', "unknown", 1700000000.0).state
    'unknown'
    """

    key: str
    """The key of the call; it reveals nothing about the arguments."""
    tool_name: str
    """The tool that was called."""
    run_id: str
    """The run that the call belonged to."""
    call_id: str
    """The call."""
    arguments: str
    """The arguments as JSON text, with secrets masked; truncated if they are long."""
    state: State
    """The state."""
    began: float
    """When it was recorded, in seconds since the epoch."""
    ended: float | None = None
    """When its outcome was recorded; None if it was not."""
    result: ToolResult | None = None
    """The answer to repeated calls, if it is done."""
    number: int = field(default=0, kw_only=True, compare=False)
    """Its number in the ledger, for pagination."""


class EffectLedger:
    """A record of effects that survives crashes: in a SQLite file for processes, or in Postgres for machines.

    A call is recorded before its body runs, and its result afterwards. An entry without a result, whose process ended,
    is of unknown outcome until an operator checks it and calls :meth:`resolve`. Without a path, it is in memory, and
    the latest 10,000 outcomes are kept; otherwise all are kept until :meth:`forget`.

    :param path: the file; created if it is missing, readable for its owner only, with its secret in ``<path>.key``; or
        a ``postgresql://`` URL (extra ``postgres``), whose secret is in the database
    :param clock: returns the seconds since the epoch; None: the system's clock, or the Postgres server's

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

    def __init__(self, path: str | os.PathLike[str] | None = None, *, clock: Callable[[], float] | None = None) -> None:
        if path is not None and os.fspath(path) in {"", ":memory:"}:
            raise ToolDefinitionError("An EffectLedger needs a file path, or None for one in memory")
        place = None if path is None else read_location(path, "EffectLedger")
        self._settings: dict[str, Any] = {"path": str(place) if isinstance(place, Path) else path, "clock": clock}
        self._id = new_id()
        self._live: set[str] = set()
        self.in_memory = place is None
        self.flights = SingleFlight()
        self._database = open_database(place, Kind("effect ledger", 0x746F6F6E, 1, _TABLES), _BUSY)
        self._clock = clock or self._database.clock
        self._secret = self._database.load_key("key of the effect ledger")
        if place is not None:
            self._check_secret()

    def entries(
        self, state: State | None = None, *, before: int | None = None, limit: int | None = None
    ) -> list[Effect]:
        """Return the entries, oldest first; all of them, or only the ones in one state.

        :param before: only entries with a smaller ``number``
        :param limit: maximum number of entries; with a limit, the newest come first
        """
        order, last = "" if limit is None else "DESC", 2**62 if before is None else before
        query = f"SELECT {_COLUMNS}, number FROM effects WHERE number < ? ORDER BY number {order}"
        with self._database.reading() as rows:
            # Whether a call is running is not in the database, so rows are read until there are enough.
            found = (self._read(row) for row in rows.execute(query, (last,)))
            return list(islice((effect for effect in found if state in (None, effect.state)), limit))

    def find(self, key: str) -> Effect | None:
        """Return the entry with a key, or None; nothing is reserved.

        >>> EffectLedger().find("4f3a") is None
        True
        """
        with self._database.reading() as rows:
            return self._find(rows, key)

    def unknown(self) -> list[Effect]:
        """Return the entries with unknown outcome, oldest first.

        >>> EffectLedger().unknown()
        []
        """
        return self.entries("unknown")

    def resolve(self, key: str, *, happened: bool, result: ToolResult | str = "") -> None:
        """Settle an entry with unknown outcome, after an operator has checked what happened.

        :param happened: whether the effect happened; if not, the entry is deleted, and the call may be repeated
        :param result: the answer to repeated calls, if it happened
        """
        made = result if isinstance(result, ToolResult) else ToolResult.success(result)
        with self._database.writing(key=key) as rows:
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
        """Delete entries that were done more than ``older_than`` seconds ago; return their number.

        Calls with their keys run again. Entries that are running or unknown stay.
        """
        check_seconds("EffectLedger.forget older_than", older_than, zero=True)
        with self._database.writing() as rows:
            done = "DELETE FROM effects WHERE state = 'done' AND ended <= ?"
            return rows.execute(done, (self._clock() - older_than,)).rowcount

    def close(self) -> None:
        """Close the ledger; calls that need it then fail."""
        self._database.close()

    def digest(self, parts: list[Any]) -> str:
        """Return the key of a call, which reveals nothing about the arguments without the secret."""
        return sign(self._secret, "effect", parts)[:32]

    def now(self) -> float:
        """Return the time of the ledger's clock."""
        return self._clock()

    def reserve(self, effect: Effect, token: str, *, again: bool, patience: float | None) -> Effect | None:
        """Record that a call is about to run, or return the entry that prevents it.

        :param token: marks the entry as this call's
        :param again: whether a call with unknown outcome may be repeated
        :param patience: seconds to wait for other writers
        """
        self._live.add(token)
        try:
            found = repeat_if_lost(partial(self._reserve, effect, token, again=again, patience=patience))
        except BaseException:
            self._live.discard(token)
            raise
        if found is not None:
            self._live.discard(token)
        return found

    def holds(self, token: str) -> bool:
        """Return whether a call is reserved and has not ended."""
        return token in self._live

    def finish(self, key: str, token: str, result: str) -> None:
        """Record that a call is done, and its result."""
        try:
            self._settle("state = 'done', result = ?", key, token, result)
        finally:
            self._live.discard(token)

    def lose(self, key: str, token: str) -> None:
        """Record that the outcome of a call is unknown."""
        self._live.discard(token)  # first: it is unknown even if the write fails
        self._settle("state = 'unknown'", key, token)

    def release(self, key: str, token: str) -> None:
        """Delete the reservation of a call that did not run."""
        try:
            self._change("DELETE FROM effects WHERE key = ? AND token = ? AND state = 'running'", key, token)
        finally:
            self._live.discard(token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(EffectLedger, **self._settings), ()

    def _reserve(self, effect: Effect, token: str, *, again: bool, patience: float | None) -> Effect | None:
        owner = json.dumps([*ProcessIdentity.current(), self._id])
        if self._database.presence is not None:
            self._database.presence.announce(owner)
        with self._database.writing(patience, key=effect.key) as rows:
            found = self._find(rows, effect.key)
            if found is None or (again and found.state == "unknown"):
                if found is not None:
                    rows.execute("DELETE FROM effects WHERE key = ?", (effect.key,))
                self._insert(rows, effect, token, owner)
                return None
            # It is the entry of this call if the connection was lost just after it was written.
            mine = rows.execute("SELECT 1 FROM effects WHERE key = ? AND token = ?", (effect.key, token)).fetchone()
            return found if mine is None else None

    def _insert(self, rows: Rows, effect: Effect, token: str, owner: str) -> None:
        columns = (effect.key, effect.tool_name, effect.run_id, effect.call_id, effect.arguments, "running")
        rows.execute(
            f"INSERT INTO effects ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, NULL, NULL, ?, ?)",
            (*columns, self._clock(), token, owner),
        )
        if self.in_memory:
            # The plus keeps SQLite from using the index on state: by number there are few rows to check.
            old = "DELETE FROM effects WHERE +state = 'done' AND number <= (SELECT max(number) FROM effects) - ?"
            rows.execute(old, (_IN_MEMORY,))

    def _settle(self, change: str, key: str, token: str, *values: Any) -> None:
        statement = f"UPDATE effects SET {change}, ended = ? WHERE key = ? AND token = ? AND state = 'running'"
        self._change(statement, *values, self._clock(), key, token)

    def _change(self, statement: str, *values: Any) -> None:
        """Change the entry of a call; its key and its token are the last two values."""

        def change() -> None:
            with self._database.writing(key=values[-2]) as rows:
                rows.execute(statement, values)

        repeat_if_lost(change)  # the token shows that the entry is still this call's

    def _find(self, rows: Rows, key: str) -> Effect | None:
        row = rows.execute(f"SELECT {_COLUMNS}, number FROM effects WHERE key = ?", (key,)).fetchone()
        return None if row is None else self._read(row)

    def _read(self, row: tuple[Any, ...]) -> Effect:
        key, tool, run, call, arguments, state, began, ended, result, token, owner, number = row
        try:
            if state == "running" and not self._is_running(token, owner):
                state = "unknown"
            kept = None if result is None else read_result(result)
        except (ValueError, TypeError, LookupError) as error:
            raise self._database.damaged_error(error) from error
        return Effect(key, tool, run, call, arguments, state, began, ended, kept, number=number)

    def _is_running(self, token: str, owner: str) -> bool:
        """Return whether the call of an entry is still running, here or in another process."""
        *values, ledger = json.loads(owner)
        process, presence = ProcessIdentity(*values), self._database.presence
        if ledger == self._id and process == ProcessIdentity.current():
            return token in self._live
        if presence is None:
            return process.is_running()
        return not process.has_ended() and presence.is_present(owner)

    def _check_secret(self) -> None:
        """Raise ToolConfigurationError for a file whose keys use another secret: no entry would be found."""
        with self._database.writing() as rows:
            known = rows.execute("SELECT fingerprint FROM secret").fetchone()
            if known is None:
                rows.execute("INSERT INTO secret VALUES (?)", (sign(self._secret, "ledger", ""),))
        if known is not None and not is_signed(known[0], self._secret, "ledger", ""):
            self._database.close()
            raise ToolConfigurationError("The effect ledger was created with another key; restore the file <path>.key")
