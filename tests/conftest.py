"""Fixtures that many tests use."""

import os

import pytest

# The programs that tests start have tools without a description, as the tests do themselves.
os.environ.setdefault("PYTHONWARNINGS", "ignore:Tool ")

pytest.register_assert_rewrite("helpers")

from helpers.postgres_server import postgres_server  # noqa: E402 - as below
from helpers.stopped_clock import clock, stopped_clock  # noqa: E402 - what it asserts is shown in detail from here on

__all__ = ["clock", "impatient", "postgres", "postgres_url", "stopped_clock"]


@pytest.fixture
def impatient(monkeypatch):
    """Let calls wait for their sinks as long as outside tests."""
    monkeypatch.setattr("toolsemble._runtime.sinks.PATIENCE", 0.25)


@pytest.fixture(scope="session")
def postgres(request):
    """Return a Postgres server that the tests of one process share."""
    if request.config.option.markexpr == "not slow":
        pytest.skip("only quick tests run, and a server takes a second to start")
    with postgres_server() as server:
        if server is None:
            pytest.skip("there is no Postgres server; install postgresql, or the extra dev")
        yield server


@pytest.fixture
def postgres_url(postgres):
    """Return the URL of a schema that no other test uses."""
    return postgres.new_url()
