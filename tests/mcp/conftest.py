"""Servers for the tests of MCP."""

import sys
from pathlib import Path

import pytest

from toolsemble.mcp import MCPClient

SERVERS = Path(__file__).parent / "servers"


@pytest.fixture
def plain():
    """Return a function that builds a client of the plain server; all are closed afterwards."""
    clients = []

    def build(*args, **options):
        line = (sys.executable, "-u", str(SERVERS / "plain.py"), *map(str, args))
        clients.append(MCPClient.stdio(*line, **{"name": "plain", **options}))
        return clients[-1]

    yield build
    for client in clients:
        client.close()
