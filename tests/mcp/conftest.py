"""Clients for the tests of MCP."""

import sys

import pytest

from helpers.mcp_servers import PLAIN
from toolsemble.mcp import MCPClient


@pytest.fixture
def plain():
    """Return a function that builds a client of the plain server; all are closed afterwards."""
    clients = []

    def build(*args, **options):
        line = (sys.executable, "-u", PLAIN, *map(str, args))
        clients.append(MCPClient.stdio(*line, **{"name": "plain", **options}))
        return clients[-1]

    yield build
    for client in clients:
        client.close()
