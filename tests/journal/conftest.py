"""A journal in a temporary folder, or on Postgres."""

import pytest

from toolsemble import RunJournal, tool
from toolsemble.review import ReviewStore


@pytest.fixture(params=["file", "postgres"])
def place(request, tmp_path):
    """Return where a journal is."""
    return tmp_path / "runs.db" if request.param == "file" else request.getfixturevalue("postgres_url")


@pytest.fixture
def runs(place):
    with RunJournal(place) as journal:
        yield journal


@pytest.fixture
def store(tmp_path):
    with ReviewStore(tmp_path / "reviews.db") as made:
        yield made


@pytest.fixture
def paid():
    return []


@pytest.fixture
def pay(paid):
    @tool(effects="irreversible", requires_approval=True, approval_timeout=None)
    def pay(order: int) -> str:
        """Pay an order."""
        paid.append(order)
        return f"paid {order}"

    return pay
