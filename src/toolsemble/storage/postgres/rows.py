"""Rows of a Postgres database, for statements that are written for SQLite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from toolsemble.storage.postgres.statements import clean, translate


class PostgresRows:
    """A connection that takes the statements of stores.

    :param execute: executes a statement of Postgres with a list of values
    """

    __slots__ = ("_execute",)

    def __init__(self, execute: Callable[[Any, list[Any]], Any]) -> None:
        self._execute = execute

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Any:
        """Execute a statement; return its cursor."""
        return self._execute(translate(statement), [clean(value) for value in values])

    def executemany(self, statement: str, values: Iterable[Sequence[Any]], /) -> None:
        """Execute a statement for each row of values."""
        for row in values:
            self.execute(statement, row)
