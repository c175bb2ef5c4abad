"""Databases that the garbage collector finds while a thread uses them."""

import sqlite3
import threading

import pytest

from helpers.wait import LONG
from toolsemble._runtime.storage.sqlite import Database, Kind

KIND = Kind("list", 1, 1, "CREATE TABLE list (x);")


def collect(database):
    """Let another thread finalize a database, as the garbage collector does."""
    thread = threading.Thread(target=database.__del__)
    thread.start()
    thread.join(LONG)
    assert not thread.is_alive()


def test_a_connection_in_use_is_closed_by_its_user():
    database = Database(None, KIND)
    with database.reading() as connection:
        collect(database)
        assert connection.execute("SELECT count(*) FROM list").fetchone() == (0,)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


def test_a_connection_stays_open_for_the_outer_of_two_uses():
    database = Database(None, KIND)
    with database.writing() as connection:
        collect(database)
        with database.reading():
            pass
        connection.execute("INSERT INTO list VALUES (1)")
        assert connection.execute("SELECT x FROM list").fetchone() == (1,)


def test_an_unused_connection_is_closed_at_once():
    database = Database(None, KIND)
    with database.reading() as connection:
        pass
    collect(database)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
