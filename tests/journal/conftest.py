"""A journal in a temporary folder, or on Postgres."""

import pytest

from toolsemble import RunJournal


@pytest.fixture(params=["file", "postgres"])
def place(request, tmp_path):
    """Return where a journal is."""
    return tmp_path / "runs.db" if request.param == "file" else request.getfixturevalue("postgres_url")


@pytest.fixture
def runs(place):
    with RunJournal(place) as journal:
        yield journal
