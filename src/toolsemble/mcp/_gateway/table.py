"""A table of a configuration file: values with checked types, and no unknown keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from toolsemble._engine.limits.cache import Cache
from toolsemble._engine.limits.rate import RateLimit
from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.mcp._client.config import expand_variables

T = TypeVar("T")
V = TypeVar("V")

_UNITS = {"second": 1.0, "s": 1.0, "minute": 60.0, "min": 60.0, "hour": 3600.0, "h": 3600.0, "day": 86400.0}
_SHOWN = 60
_DIGITS = 12


class Table:
    """The values under one key of a file; a value that is not read is an unknown key.

    :param file: the file, for errors
    :param path: the key of the table, such as ``servers.files``; "" for the file
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
        """Return the file and the key of a value, for errors."""
        return f"{self._file}: {'.'.join(filter(None, (self._path, key)))}"

    def end(self) -> None:
        """Raise ToolConfigurationError if there are keys that were not read."""
        for key in self._values:
            if key in self._known:
                continue
            near = get_close_matches(key, self._known, n=1)
            known = f"the keys here are {', '.join(self._known)}" if self._known else "there are no keys here"
            hint = f"did you mean {near[0]!r}?" if near else known
            unknown = ".".join(filter(None, (self._path, key)))
            raise ToolConfigurationError(f"{self._file}: unknown key {unknown[:200]}; {hint}")

    def table(self, key: str) -> Table | None:
        """Return a table inside; None if there is none."""
        value = self._take(key)
        return None if value is None else Table(self._file, self._inner(key), value)

    def tables(self, key: str) -> Iterator[tuple[str, Table]]:
        """Yield the tables by name inside of a table."""
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
        """Return whether a value is a text; for a key that may be a text or something else."""
        return isinstance(self._values.get(key), str)

    def is_flag(self, key: str) -> bool:
        """Return whether a value is true or false; for a key that may also be something else."""
        return isinstance(self._values.get(key), bool)

    def text(self, key: str, default: T, *, is_secret: bool = False) -> str | T:
        """Return a text with its variables expanded; an error does not show a secret."""
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
