"""Parsing and validation of a gateway's configuration file."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeVar

from toolsemble._engine.limits.cache import Cache
from toolsemble._engine.limits.rate import RateLimit
from toolsemble._runtime.text import preview
from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.mcp._client.config import expand_variables
from toolsemble.mcp._gateway import settings as gateway_settings
from toolsemble.review._terms import OnTimeout

T = TypeVar("T")
V = TypeVar("V")

_UNITS = {"second": 1.0, "s": 1.0, "minute": 60.0, "min": 60.0, "hour": 3600.0, "h": 3600.0, "day": 86400.0}
_SHOWN = 60
_DIGITS = 12


class Table:
    """The values under one key of a file; keys that are never read are unknown.

    :param file: the file, for errors
    :param path: the table's key, such as ``servers.files``; "" for the file
    :param values: the values

    >>> Table("gateway.toml", "http", {"adress": "127.0.0.1:8000"}).end()
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: gateway.toml: unknown key http.adress; there are no keys here
    """

    def __init__(self, file: str, path: str, values: Any) -> None:
        self._file = file
        self._path = path
        if not isinstance(values, dict):
            raise ToolConfigurationError(f"{file}: {path} must be a table, not {_describe(values)}")
        self._values: dict[str, Any] = values
        self._known: list[str] = []

    def place(self, key: str = "") -> str:
        """Return a value's file and key, for errors."""
        return f"{self._file}: {'.'.join(filter(None, (self._path, key)))}"

    def end(self) -> None:
        """Raise ToolConfigurationError if some keys were not read."""
        for key in self._values:
            if key in self._known:
                continue
            near = get_close_matches(key, self._known, n=1)
            known = f"the keys here are {', '.join(self._known)}" if self._known else "there are no keys here"
            hint = f"did you mean {near[0]!r}?" if near else known
            unknown = ".".join(filter(None, (self._path, key)))
            raise ToolConfigurationError(f"{self._file}: unknown key {unknown[:200]}; {hint}")

    def table(self, key: str) -> Table | None:
        """Return a nested table; None if there is none."""
        value = self._take(key)
        return None if value is None else Table(self._file, self._inner(key), value)

    def tables(self, key: str) -> Iterator[tuple[str, Table]]:
        """Yield a table's nested tables by name."""
        found = self.table(key)
        names = () if found is None else tuple(self._values[key])
        for name in names:
            yield name, Table(self._file, f"{self._inner(key)}.{name}", self._values[key][name])

    def listed_tables(self, key: str) -> Iterator[Table]:
        """Yield the tables of a list."""
        value = self._take(key)
        if value is not None and not isinstance(value, list):
            raise self._wrong(key, "a list of tables", value)
        for index, each in enumerate(value or ()):
            yield Table(self._file, f"{self._inner(key)}[{index}]", each)

    def is_text(self, key: str) -> bool:
        """Return whether a value is a text; for a key with several types."""
        return isinstance(self._values.get(key), str)

    def is_flag(self, key: str) -> bool:
        """Return whether a value is true or false; for a key with several types."""
        return isinstance(self._values.get(key), bool)

    def text(self, key: str, default: T, *, is_secret: bool = False) -> str | T:
        """Return a text with its variables expanded; errors do not show secrets."""
        return self._read(key, default, "a text", self._read_text, is_secret=is_secret)

    def choice(self, key: str, choices: Sequence[str], default: T) -> str | T:
        """Return one of some texts."""
        value = self.text(key, default)
        if isinstance(value, str) and value not in choices:
            raise self._wrong(key, f"one of {', '.join(map(repr, choices))}", value)
        return value

    def texts(self, key: str, default: T) -> tuple[str, ...] | T:
        """Return a list of texts, or one text as a list."""

        def read(key: str, value: Any) -> tuple[str, ...] | None:
            if isinstance(value, str):
                return (self._expand(key, value),)
            if not isinstance(value, list):
                return None
            return tuple(self._read_item(f"{key}[{index}]", each) for index, each in enumerate(value))

        return self._read(key, default, "a list of texts", read)

    def texts_by_name(self, key: str) -> dict[str, str]:
        """Return a table of texts; empty if there is none."""

        def read(key: str, value: Any) -> dict[str, str] | None:
            if not isinstance(value, dict):
                return None
            return {name: self._read_item(f"{key}.{name}", each, is_secret=True) for name, each in value.items()}

        return self._read(key, {}, "a table of texts", read, is_secret=True)

    def flag(self, key: str, default: T) -> bool | T:
        """Return true or false."""
        return self._read(key, default, "true or false", lambda _, value: value if isinstance(value, bool) else None)

    def count(self, key: str, default: T) -> int | T:
        """Return an integer >= 1."""

        def read(_: str, value: Any) -> int | None:
            return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None

        return self._read(key, default, "an integer >= 1", read)

    def seconds(self, key: str, default: T) -> float | T:
        """Return a number of seconds > 0."""
        return self._read(key, default, "a number of seconds > 0", _read_seconds)

    def cache(self, key: str, default: T) -> Cache | bool | T:
        """Return a cache for a number of seconds, or for true; false for none."""
        seconds = self._read(key, None, "a number of seconds > 0, true or false", _read_cache)
        if seconds is None:
            return default
        if isinstance(seconds, bool):
            return Cache() if seconds else False
        return Cache(seconds)

    def rate(self, key: str, default: T) -> RateLimit | T:
        """Return a limit such as ``"10/minute"``."""
        return self._read(key, default, "a rate such as '10/minute' (second, minute, hour or day)", _read_rate)

    def _read(
        self, key: str, default: T, expected: str, read: Callable[[str, Any], V | None], *, is_secret: bool = False
    ) -> V | T:
        value = self._take(key)
        if value is None:
            return default
        result = read(key, value)
        if result is None:
            raise self._wrong(key, expected, type(value).__name__ if is_secret else value)
        return result

    def _read_item(self, key: str, value: Any, *, is_secret: bool = False) -> str:
        if not isinstance(value, str):
            raise self._wrong(key, "a text", type(value).__name__ if is_secret else value)
        return self._expand(key, value)

    def _read_text(self, key: str, value: Any) -> str | None:
        return self._expand(key, value) if isinstance(value, str) else None

    def _expand(self, key: str, text: str) -> str:
        return expand_variables(self.place(key), text)

    def _take(self, key: str) -> Any:
        self._known.append(key)
        return self._values.get(key)

    def _inner(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def _wrong(self, key: str, expected: str, value: Any) -> ToolConfigurationError:
        return ToolConfigurationError(f"{self.place(key)} must be {expected}, not {_describe(value)}")


def _describe(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "a list"
    shown = str(value).lower() if isinstance(value, bool) else repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


def _read_seconds(_: str, value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) and value > 0 else None


def _read_cache(key: str, value: Any) -> float | bool | None:
    return value if isinstance(value, bool) else _read_seconds(key, value)


def _read_rate(__: str, value: Any) -> RateLimit | None:
    calls, _, unit = value.replace(" ", "").partition("/") if isinstance(value, str) else ("", "", "")
    if unit not in _UNITS or not (calls.isascii() and calls.isdigit() and int(calls[:_DIGITS]) > 0):
        return None
    return RateLimit(int(calls[:_DIGITS]), per=_UNITS[unit])


_MAX_SIZE = 2**20
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,39}")
_REVIEWERS = ("client", "reject", "queue")
_SHORTEST_TOKEN = 16


def read_gateway(path: str | PathLike[str]) -> gateway_settings.GatewaySettings:
    """Return a file's settings; raise ToolConfigurationError with the invalid key.

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


def _read_gateway(table: Table) -> gateway_settings.GatewaySettings:
    limits = table.table("limits")
    ledger = None if limits is None else limits.text("ledger", None)
    settings = gateway_settings.GatewaySettings(
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
        raise ToolConfigurationError(f"{table.place()}nothing to serve: add [servers.NAME] or targets = [...]")
    return settings


def _read_server(name: str, table: Table) -> gateway_settings.ServerSettings:
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
    table.end()  # first: a misspelled command is an unknown key
    if bool(command) == bool(url):
        raise ToolConfigurationError(f"{table.place()} needs either a command or a url")
    for key, value in (address if command else program).items():
        if value:
            raise ToolConfigurationError(f"{table.place(key)} is for a {'url' if command else 'command'}; remove it")
    used: Any = program if command else {**address, "transport": address["transport"] or "http"}
    return gateway_settings.ServerSettings(name, command, url=url, **used, **others)


def _read_options(name: str, table: Table) -> dict[str, Any]:
    """Return a client's explicit options."""
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


def _read_rule(pattern: str, table: Table) -> gateway_settings.ToolRule:
    hide, approve = table.flag("hide", default=False), table.flag("approve", default=False)
    return gateway_settings.ToolRule(pattern, hide, approve, _read_limits(table))


def _read_limits(table: Table, *more: str) -> dict[str, Any]:
    """Return explicit limits as toolbox settings."""
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


def _read_approval(table: Table | None) -> gateway_settings.ApprovalSettings:
    if table is None:
        return gateway_settings.ApprovalSettings()
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
    settings = gateway_settings.ApprovalSettings(
        table.texts("tools", ()),
        reviewer,
        file,
        {key: value for key, value in terms.items() if value is not None},
    )
    table.end()
    return settings


def _read_sinks(table: Table | None) -> gateway_settings.SinkSettings:
    if table is None:
        return gateway_settings.SinkSettings()
    settings = gateway_settings.SinkSettings(
        table.text("trace", None),
        table.flag("console", default=False),
        table.flag("opentelemetry", default=False),
        table.texts("custom", ()),
    )
    table.end()
    return settings


def _read_http(table: Table | None) -> gateway_settings.HttpSettings | None:
    if table is None:
        return None
    settings = gateway_settings.HttpSettings(
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
        raise ToolConfigurationError(f"{table.place('tokens')}: use either tokens, or auth with OAuth URLs")
    if len({each.token for each in settings.tokens}) < len(settings.tokens):
        raise ToolConfigurationError(f"{table.place('tokens')}: duplicate token; give each entry its own")
    return settings


def _read_token(table: Table) -> gateway_settings.AccessToken:
    settings = gateway_settings.AccessToken(
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


def _read_lock(table: Table) -> gateway_settings.LockSettings | None:
    if table.is_text("lock"):
        return gateway_settings.LockSettings(str(table.text("lock", "")))
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
    settings = gateway_settings.LockSettings(found.text("file", "toolsemble.lock"), actions)
    found.end()
    return settings
