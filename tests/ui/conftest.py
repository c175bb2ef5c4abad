"""A data folder, and clients of the interface on it."""

import pytest

from helpers.ui_client import Desk


@pytest.fixture
def desk(tmp_path):
    """An interface on an empty folder, for the user of this machine."""
    with Desk(tmp_path / "data") as made:
        yield made
