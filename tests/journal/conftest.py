"""A journal in a temporary folder."""

import pytest

from toolsemble import RunJournal


@pytest.fixture
def runs(tmp_path):
    with RunJournal(tmp_path / "runs.db") as journal:
        yield journal
