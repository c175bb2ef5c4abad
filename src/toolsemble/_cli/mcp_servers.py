"""Targets that are MCP servers: ``mcp:URL``, ``mcp:FILE.json`` and ``mcp:"command line"``."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolsemble._vocabulary.errors import ToolDefinitionError

if TYPE_CHECKING:
    from toolsemble.mcp import MCPClient

PREFIX = "mcp:"
"""How such a target begins."""
_LONGEST = 39


def load_servers(target: str) -> list[object]:
    """Start the servers of a target, and return their tools; they end with the program.

    >>> load_servers("mcp:")
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: 'mcp:' names no server: write mcp:URL, mcp:FILE.json or mcp:"command line"
    """
    return [tool for client in build_clients(target) for tool in client.start()]


def build_clients(target: str, **options: Any) -> list[MCPClient]:
    """Return a client for each server of a target, not started.

    :param options: options of all clients

    >>> build_clients("mcp:https://tools.example.com/mcp")
    [<MCPClient 'tools.example.com', not running>]
    """
    from toolsemble.mcp import MCPClient
    from toolsemble.mcp._client.config import read_config

    where = target.removeprefix(PREFIX).strip()
    if where.startswith(("http://", "https://")):
        return [MCPClient.http(where, **options)]
    if where.endswith(".json") and Path(where).is_file():
        servers = read_config(where)
        return [
            MCPClient.from_server(each, {"name": name, "prefix": _make_prefix(name), **options})
            for name, each in servers.items()
        ]
    try:
        line = shlex.split(where)
    except ValueError as problem:
        raise ToolDefinitionError(f"{target!r:.80} is not a command line: {problem}") from None
    if not line:
        raise ToolDefinitionError(f'{target!r:.80} names no server: write mcp:URL, mcp:FILE.json or mcp:"command line"')
    if len(line) == 1 and where.endswith(".json"):
        raise ToolDefinitionError(f"{target!r:.80}: there is no file {where!r:.80}")
    return [MCPClient.stdio(*line, **options)]


def _make_prefix(name: str) -> str:
    return f"{re.sub('[^a-zA-Z0-9_-]', '_', name)[:_LONGEST]}_"
