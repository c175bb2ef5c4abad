"""Rows of a Postgres database, for statements that are written for SQLite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from toolsemble._runtime.storage.postgres.statements import clean, translate


class PostgresRows:
    """A connection that takes the statements of stores.

    :param link: a connection of the driver, or one with the same ``execute``
    """

    __slots__ = ("_link",)

    def __init__(self, link: Any) -> None:
        self._link = link

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Any:
        """Execute a statement; return its cursor."""
        return self._link.execute(translate(statement), [clean(value) for value in values])

    def executemany(self, statement: str, values: Iterable[Sequence[Any]], /) -> None:
        """Execute a statement for each row of values, in one message to the server; inside transactions."""
        cleaned = [[clean(value) for value in row] for row in values]
        self._link.cursor().executemany(translate(statement), cleaned)
