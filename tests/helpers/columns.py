"""Columns of a table: cases that share a test, because an id for each of them would add nothing."""

from contextlib import contextmanager


@contextmanager
def column(name):
    """Add the name of the column to an exception, so that a failure says which one it was."""
    try:
        yield
    except Exception as error:
        error.add_note(f"column: {name}")
        raise
