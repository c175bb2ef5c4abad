"""Read ``toolsemble.toml``; a wrong type, an unknown key or a variable that is not set is named with its key."""

from __future__ import annotations

import re
import tomllib
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from toolsemble._runtime.text import preview
from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.mcp._gateway.settings import (
    AccessToken,
    ApprovalSettings,
    GatewaySettings,
    HttpSettings,
    LockSettings,
    ServerSettings,
    SinkSettings,
    ToolRule,
)
from toolsemble.mcp._gateway.table import Table
from toolsemble.review._terms import OnTimeout

_MAX_SIZE = 2**20
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,39}")
_REVIEWERS = ("client", "reject", "queue")
_SHORTEST_TOKEN = 16


def read_gateway(path: str | PathLike[str]) -> GatewaySettings:
    """Return the settings of a file; raise ToolConfigurationError with the key of what is wrong.

    >>> read_gateway("nothing.toml")
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: 'nothing.toml' cannot be read: No such file or directory
    """
    where = f"{fspath(path)!r:.200}"
    try:
        if Path(path).stat().st_size > _MAX_SIZE:
            raise ToolConfigurationError(f"{where} is larger than {_MAX_SIZE} bytes; it is not a gateway")
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as problem:
        raise ToolConfigurationError(f"{where} cannot be read: {problem.strerror}") from problem
    except (ValueError, RecursionError) as problem:
        raise ToolConfigurationError(f"{where} is not TOML: {preview(str(problem))}") from None
    return _read_gateway(Table(where, "", values))


def _read_gateway(table: Table) -> GatewaySettings:
    limits = table.table("limits")
    ledger = None if limits is None else limits.text("ledger", None)
    settings = GatewaySettings(
        table.text("name", None),
        table.text("instructions", ""),
        table.texts("targets", ()),
        tuple(_read_server(name, each) for name, each in table.tables("servers")),
        tuple(_read_rule(name, each) for name, each in table.tables("tools")),
        _read_approval(table.table("approve")),
        {} if limits is None else _read_limits(limits, "max_concurrency", "pages"),
        ledger,
        _read_sinks(table.table("sinks")),
        _read_http(table.table("http")),
        _read_lock(table),
    )
    table.end()
    if not settings.servers and not settings.targets:
        raise ToolConfigurationError(f"{table.place()}there is nothing to serve: add [servers.NAME] or targets = [...]")
    return settings


def _read_server(name: str, table: Table) -> ServerSettings:
    if not _NAME.fullmatch(name):
        raise ToolConfigurationError(
            f"{table.place()}: the name of a server must be at most 39 letters, digits, '_' or '-'; choose another one"
        )
    command, url = table.text("command", ""), table.text("url", "")
    program = {"args": table.texts("args", ()), "env": table.texts_by_name("env"), "cwd": table.text("cwd", None)}
    address = {
        "headers": table.texts_by_name("headers"),
        "token": table.text("token", None, is_secret=True),
        "transport": table.choice("transport", ("http", "sse"), None),
    }
    others: dict[str, Any] = {
        "options": _read_options(name, table),
        "resources": _read_passed_on(table, "resources"),
        "prompts": _read_passed_on(table, "prompts"),
        "required": table.flag("required", default=True),
    }
    table.end()  # first: a misspelled command is a key that is not known
    if bool(command) == bool(url):
        raise ToolConfigurationError(f"{table.place()} needs either a command or a url")
    for key, value in (address if command else program).items():
        if value:
            raise ToolConfigurationError(f"{table.place(key)} is for a {'url' if command else 'command'}; remove it")
    used: Any = program if command else {**address, "transport": address["transport"] or "http"}
    return ServerSettings(name, command, url=url, **used, **others)


def _read_options(name: str, table: Table) -> dict[str, Any]:
    """Return the options of a client that are set."""
    options: dict[str, Any] = {
        "only": table.texts("only", None),
        "approve": table.text("approve", None) if table.is_text("approve") else table.texts("approve", None),
        "effects": table.choice("effects", ("read", "write", "irreversible"), None),
        "rate_limit": table.rate("rate_limit", None),
        "cache": table.cache("cache", None),
    }
    for key in ("timeout", "connect_timeout"):
        options[key] = table.seconds(key, None)
    for key in ("max_message", "max_tools", "max_output", "max_concurrency", "retries"):
        options[key] = table.count(key, None)
    for key in ("trust_hints", "idempotent", "idempotency"):
        options[key] = table.flag(key, None)
    options["roots"] = table.texts("roots", None)
    found = {key: value for key, value in options.items() if value is not None}
    return {"name": name, "prefix": table.text("prefix", f"{name}_"), **found}


def _read_passed_on(table: Table, key: str) -> tuple[str, ...] | bool:
    return table.flag(key, default=True) if table.is_flag(key) else table.texts(key, default=True)


def _read_rule(pattern: str, table: Table) -> ToolRule:
    hide, approve = table.flag("hide", default=False), table.flag("approve", default=False)
    return ToolRule(pattern, hide, approve, _read_limits(table))


def _read_limits(table: Table, *more: str) -> dict[str, Any]:
    """Return limits as settings of a toolbox; those that are not set are left out."""
    settings: dict[str, Any] = {
        "timeout": table.seconds("timeout", None),
        "rate_limit": table.rate("rate_limit", None),
        "cache": table.cache("cache", None),
        "retries": table.count("retries", None),
        "max_output": table.count("max_output", None),
    }
    if "max_concurrency" in more:
        settings["max_concurrency"] = table.count("max_concurrency", None)
    if "pages" in more:
        settings["pages"] = table.flag("pages", None)
    table.end()
    return {key: value for key, value in settings.items() if value is not None}


def _read_approval(table: Table | None) -> ApprovalSettings:
    if table is None:
        return ApprovalSettings()
    reviewer, file = table.text("reviewer", "client"), table.text("file", "")
    if reviewer not in _REVIEWERS and ":" not in reviewer:
        raise ToolConfigurationError(
            f"{table.place('reviewer')} must be 'client', 'reject', 'queue' or a module:attribute, not {reviewer!r:.80}"
        )
    if (reviewer == "queue") != bool(file):
        raise ToolConfigurationError(f"{table.place('file')}: reviewer = 'queue' and a file belong together")
    on_timeout = table.choice("on_timeout", tuple(each.value for each in OnTimeout), None)
    terms = {
        "approval_timeout": table.seconds("timeout", None),
        "approval_on_timeout": None if on_timeout is None else OnTimeout(on_timeout),
        "approval_role": table.text("role", None),
    }
    settings = ApprovalSettings(
        table.texts("tools", ()),
        reviewer,
        file,
        {key: value for key, value in terms.items() if value is not None},
    )
    table.end()
    return settings


def _read_sinks(table: Table | None) -> SinkSettings:
    if table is None:
        return SinkSettings()
    settings = SinkSettings(
        table.text("trace", None),
        table.flag("console", default=False),
        table.flag("opentelemetry", default=False),
        table.texts("custom", ()),
    )
    table.end()
    return settings


def _read_http(table: Table | None) -> HttpSettings | None:
    if table is None:
        return None
    settings = HttpSettings(
        table.text("address", ""),
        table.texts("allowed_hosts", ()),
        tuple(_read_token(each) for each in table.listed_tables("tokens")),
        table.text("auth", None),
        table.text("issuer_url", None),
        table.text("resource_url", None),
    )
    table.end()
    if not settings.address:
        raise ToolConfigurationError(f"{table.place('address')} is missing: write an address such as '127.0.0.1:8000'")
    if settings.tokens and (settings.auth or settings.issuer_url or settings.resource_url):
        raise ToolConfigurationError(f"{table.place('tokens')}: use either tokens, or auth with the URLs of OAuth")
    if len({each.token for each in settings.tokens}) < len(settings.tokens):
        raise ToolConfigurationError(f"{table.place('tokens')}: two entries have the same token; give each its own")
    return settings


def _read_token(table: Table) -> AccessToken:
    settings = AccessToken(
        table.text("token", "", is_secret=True),
        table.text("subject", None),
        table.text("client", "gateway"),
        table.texts("scopes", ()),
    )
    table.end()
    if len(settings.token) < _SHORTEST_TOKEN:
        raise ToolConfigurationError(
            f'{table.place("token")} must have at least {_SHORTEST_TOKEN} characters; write token = "${{NAME}}" for '
            "an environment variable"
        )
    return settings


def _read_lock(table: Table) -> LockSettings | None:
    if table.is_text("lock"):
        return LockSettings(str(table.text("lock", "")))
    found = table.table("lock")
    if found is None:
        return None
    choices = {
        "changed": ("refuse", "ask", "warn"),
        "added": ("hide", "ask", "warn"),
        "removed": ("warn", "refuse", "ignore"),
        "first": ("refuse", "trust"),
    }
    actions = {key: value for key, known in choices.items() if (value := found.choice(key, known, None)) is not None}
    settings = LockSettings(found.text("file", "toolsemble.lock"), actions)
    found.end()
    return settings
