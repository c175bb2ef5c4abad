"""The schema of a store in a Postgres database: created at its first use, and checked at each opening."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from psycopg import sql

from toolsemble._runtime.sqlite import Kind
from toolsemble._runtime.storage.postgres import presence
from toolsemble._runtime.storage.postgres.rows import PostgresRows
from toolsemble._runtime.storage.postgres.statements import create_tables, hash_name
from toolsemble._runtime.storage.url import PostgresUrl
from toolsemble._vocabulary.errors import ToolConfigurationError

if TYPE_CHECKING:
    from toolsemble._runtime.storage.postgres.driver import Link

_STORE = "CREATE TABLE store (number BIGINT NOT NULL, version BIGINT NOT NULL, key BYTEA NOT NULL);"


class Schema(NamedTuple):
    """The schema of a store: all its tables, under names that do not meet those of other stores."""

    url: PostgresUrl
    kind: Kind

    @property
    def name(self) -> str:
        """Its name in the database.

        >>> Schema(PostgresUrl("", ""), Kind("run journal", 1, 1, "")).name
        'toolsemble_run_journal'
        """
        return f"{self.url.prefix}_{self.kind.what.replace(' ', '_')}"

    def prepare(self, link: Link) -> bytes:
        """Create the tables if they are missing; return the key of the store. Raise if it is of another version."""
        found = self._find(link)
        if found is None or found[1] in self.kind.upgrades:
            with link.transaction():
                link.execute("SET LOCAL synchronous_commit TO DEFAULT")  # a crash must not undo it
                link.execute("SELECT pg_advisory_xact_lock(%s)", [hash_name("schema", self.name)])
                # Read again: another process may have been faster.
                found = self._find(link) or self._create(link)
                found = self._upgrade(link, *found)
        number, version, key = found
        if (number, version) != (self.kind.number, self.kind.version):
            raise ToolConfigurationError(f"The {self.kind.what} '{self.url}' cannot be used: {self._explain(*found)}")
        return key

    def _find(self, link: Link) -> tuple[int, int, bytes] | None:
        """Return the kind, the version and the key of the store; None if there is none."""
        # Not to_regclass, which may not know yet what another session has just created.
        known = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = %s AND tablename = 'store'"
        if link.execute(known, [self.name]).fetchone() is None:
            return None
        row = link.execute(sql.SQL("SELECT number, version, key FROM {}").format(self._identify("store"))).fetchone()
        return None if row is None else (row[0], row[1], bytes(row[2]))

    def _create(self, link: Link) -> tuple[int, int, bytes]:
        kind, key = self.kind, os.urandom(32)
        link.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self.name)))
        link.execute(_STORE + presence.TABLE + create_tables(kind))
        link.execute("INSERT INTO store VALUES (%s, %s, %s)", [kind.number, kind.version, key])
        return kind.number, kind.version, key

    def _upgrade(self, link: Link, number: int, version: int, key: bytes) -> tuple[int, int, bytes]:
        """Bring the tables of an earlier version up to date."""
        while number == self.kind.number and (change := self.kind.upgrades.get(version)) is not None:
            change(PostgresRows(link))
            version += 1
            link.execute("UPDATE store SET version = %s", [version])
        return number, version, key

    def _explain(self, number: int, version: int, _: bytes) -> str:
        if number != self.kind.number:
            return f"the schema {self.name} belongs to something else; choose another one with ?schema=name"
        if version > self.kind.version:
            return (
                f"a newer toolsemble wrote it (version {version} of its tables; this one reads version "
                f"{self.kind.version}); update toolsemble here"
            )
        return f"its tables are of version {version}, which this toolsemble does not read any more"

    def _identify(self, table: str) -> sql.Identifier:
        return sql.Identifier(self.name, table)
