"""Read ``mcp.json``, the server configuration of Claude Desktop, Cursor and VS Code."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import pyjson5

from toolsemble._runtime.text import preview
from toolsemble._vocabulary.errors import ToolConfigurationError

_MAX_SIZE = 2**20
_VARIABLE = re.compile(r"\$\{(?P<kind>env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")
_LEFT = re.compile(r"\$\{[^}]*\}?")
_PLACE = re.compile(r" (?:starting )?near (\d+)")
_LISTS = ("mcpServers", "servers")
_SSE = ("sse",)
_HTTP = ("http", "streamable-http", "streamableHttp", "streamable_http")
_USED = {"command", "args", "env", "cwd", "url", "serverUrl", "headers", "type", "transport", "disabled", "enabled"}
_LOGGER = logging.getLogger("toolsemble.mcp")


@dataclass(frozen=True, slots=True)
class ConfiguredServer:
    """A server in a configuration file, with its variables expanded."""

    command: str = ""
    """The program; "" for a URL."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str = ""
    """The URL; "" for a program."""
    headers: Mapping[str, str] = field(default_factory=dict)
    transport: str = "http"
    """``"http"`` or ``"sse"``."""


def read_config(path: str | PathLike[str]) -> dict[str, ConfiguredServer]:
    """Return a file's enabled servers by name; raise ToolConfigurationError if the file is invalid."""
    where = f"{os.fspath(path)!r:.200}"
    try:
        if Path(path).stat().st_size > _MAX_SIZE:
            raise ToolConfigurationError(f"{where} is larger than {_MAX_SIZE} bytes; it is not a list of MCP servers")
        values = _decode(where, Path(path).read_text(encoding="utf-8"))
    except OSError as problem:
        raise ToolConfigurationError(f"{where} cannot be read: {problem.strerror}") from problem
    except ValueError as problem:  # of the encoding
        raise ToolConfigurationError(f"{where} is not JSON: {preview(str(problem))}") from None
    servers = {name: each for name, each in _find_servers(where, values).items() if _is_on(each)}
    return {name: _read_server(f"{where}, server {name!r:.80}", each) for name, each in servers.items()}


def _find_servers(where: str, values: Any) -> dict[str, Any]:
    """Return a file's servers, which may be in both lists."""
    found = [values[key] for key in _LISTS if key in values] if isinstance(values, dict) else []
    if not found or not all(isinstance(each, dict) for each in found):
        raise ToolConfigurationError(f"{where} has no object 'mcpServers' or 'servers'")
    if twice := set.intersection(*map(set, found)) if len(found) > 1 else set():
        raise ToolConfigurationError(
            f"{where} has a duplicate server {min(twice)!r:.80} in 'mcpServers' and 'servers'; remove one"
        )
    return {name: each for servers in found for name, each in servers.items()}


def _decode(where: str, text: str) -> Any:
    """Return a text's JSON values; comments and trailing commas are allowed, as in VS Code."""
    try:
        return pyjson5.decode(text)
    except pyjson5.Json5DecoderException as problem:
        # str(exception) includes the preceding values, and thereby secrets; its message does not.
        message = problem.message or "it cannot be read"
        place = _PLACE.search(message)
        line = text.count("\n", 0, max(int(place[1]) - 1, 0) if place else 0) + 1
        mistake = _PLACE.sub("", message).replace("b'", "'")
        raise ToolConfigurationError(f"{where} is not JSON: line {line}: {preview(mistake)}") from None


def _is_on(server: Any) -> bool:
    return not isinstance(server, dict) or not (server.get("disabled") is True or server.get("enabled") is False)


def _read_server(where: str, server: Any) -> ConfiguredServer:
    if not isinstance(server, dict):
        raise ToolConfigurationError(f"{where} must be an object, not {type(server).__name__}")
    url = _read_text(where, server, "url") or _read_text(where, server, "serverUrl")
    command = _read_text(where, server, "command")
    if bool(url) == bool(command):
        raise ToolConfigurationError(f"{where} needs either a 'command' or a 'url'")
    kind = server.get("type", server.get("transport", "stdio" if command else "http"))
    if kind not in (("stdio",) if command else (*_SSE, *_HTTP)):
        raise ToolConfigurationError(f"{where} has the unknown type {kind!r:.80}")
    args = server.get("args", [])
    if not isinstance(args, list) or not all(isinstance(each, str) for each in args):
        raise ToolConfigurationError(f"{where}: 'args' must be a list of str")
    if unused := sorted(server.keys() - _USED):  # such as an env file, or disabled tools
        _LOGGER.warning("%s: ignored settings: %.200s", where, ", ".join(unused))
    return ConfiguredServer(
        command,
        tuple(expand_variables(where, each) for each in args),
        _read_texts(where, server, "env"),
        _read_text(where, server, "cwd") or None,
        url,
        _read_texts(where, server, "headers"),
        "sse" if kind in _SSE else "http",
    )


def _read_text(where: str, server: Mapping[str, Any], key: str) -> str:
    value = server.get(key) or ""
    if not isinstance(value, str):
        raise ToolConfigurationError(f"{where}: {key!r} must be a str, not {type(value).__name__}")
    return expand_variables(where, value)


def _read_texts(where: str, server: Mapping[str, Any], key: str) -> dict[str, str]:
    values = server.get(key) or {}
    if not isinstance(values, dict) or not all(isinstance(each, (str, int, float)) for each in values.values()):
        raise ToolConfigurationError(f"{where}: {key!r} must map names to texts")
    return {name: expand_variables(where, str(each)) for name, each in values.items()}


def expand_variables(where: str, text: str) -> str:
    """Return a text with ``${NAME}``, ``${NAME:-default}`` and ``${env:NAME}`` replaced, once.

    :param where: the text's location, for errors

    >>> expand_variables("mcp.json", "${NOT_SET_HERE:-a default}")
    'a default'
    """

    def replace(found: re.Match[str]) -> str:
        value = os.environ.get(found["name"], found["default"])
        if value is None:
            raise ToolConfigurationError(
                f"{where}: the environment variable {found['name']} is not set; set it, or write "
                f"${{{found['name']}:-default}}"
            )
        return value

    if unknown := next((each[0] for each in _LEFT.finditer(_VARIABLE.sub("", text))), None):
        raise ToolConfigurationError(f"{where}: {unknown!r:.80} is not supported; write ${{NAME}}")
    return _VARIABLE.sub(replace, text)
