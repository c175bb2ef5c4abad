"""A cache for the results of tools that only read, in memory or in a database."""

from __future__ import annotations

import copy
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition import Inner, Layer, ToolDefinition
from toolsemble._engine.limits.single_flight import CANNOT_WAIT, CallKey, SharedCall, SingleFlight, UnclearKeyError
from toolsemble._engine.record import count_and_log
from toolsemble._engine.work.body import Work, is_past
from toolsemble._engine.work.wait import RunInThread
from toolsemble._runtime.checks import check_count, check_seconds, is_seconds
from toolsemble._runtime.signing import sign
from toolsemble._runtime.text import describe_error
from toolsemble._runtime.threads import fork_safe_lock
from toolsemble._runtime.watchers import tell
from toolsemble._schema.masking import mask_text
from toolsemble._schema.result_shape import to_result
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.result import ToolResult
from toolsemble._vocabulary.serialization import read_result, without_retries, write_result
from toolsemble.events import CacheHit

if TYPE_CHECKING:
    from toolsemble._runtime.storage.database import Database
    from toolsemble._runtime.storage.opening import Location


_BUSY = 0.5
_TABLES = """
    CREATE TABLE results (
        number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, stored REAL NOT NULL, expires REAL, result TEXT NOT NULL
    );
    CREATE INDEX results_by_expiry ON results (expires);
"""


class Entry(NamedTuple):
    """A stored result and its expiry."""

    result: ToolResult
    stored: float
    """When it was stored, in seconds since the epoch."""
    expires: float | None
    """When it expires; None: never."""

    def is_valid(self, now: float, ttl: float | None) -> bool:
        """Return whether it is valid at a time: not expired, and not from the future, as after a clock change.

        >>> Entry(ToolResult(), 10, 20).is_valid(15, None), Entry(ToolResult(), 10, 20).is_valid(15, 2)
        (True, False)
        """
        fresh = self.expires is None or now < self.expires
        return fresh and self.stored <= now and (ttl is None or now < self.stored + ttl)


class MemoryResults:
    """A store in memory; least recently used results are evicted first."""

    in_place = True
    """Whether it is fast enough to be used in an event loop."""
    now = staticmethod(time.time)
    """Returns the system time."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._secret = os.urandom(32)
        self._lock = fork_safe_lock(self)
        self._entries: OrderedDict[str, Entry] = OrderedDict()

    def digest(self, parts: list[Any]) -> str:
        """Return the key of a call, which reveals nothing about the arguments without the secret."""
        return sign(self._secret, "cache", parts)

    def find(self, key: str) -> Entry | None:
        """Return a copy of the entry for a key, or None."""
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
        return found._replace(result=copy_result(found.result))

    def keep(self, key: str, entry: Entry) -> None:
        """Store a copy of an entry; raise ValueError if it cannot be copied."""
        copied = entry._replace(result=copy_result(entry.result))
        with self._lock:
            self._entries[key] = copied
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)

    def clear(self) -> None:
        """Delete all entries."""
        with self._lock:
            self._entries.clear()

    def close(self) -> None:
        """Do nothing: there is no file."""


class DatabaseResults:
    """A store in a database, for any number of processes; the oldest results are evicted first.

    A file and its key, ``<path>.key``, are created when they are first needed, readable for their owner only.
    """

    in_place = False
    """Whether it is fast enough to be used in an event loop."""

    def __init__(self, location: Location, size: int) -> None:
        self._location = location
        self._size = size
        self._lock = fork_safe_lock(self)
        self._open: tuple[Database, bytes] | None = None

    def digest(self, parts: list[Any]) -> str:
        """Return the key of a call."""
        return sign(self._connect()[1], "cache", parts)

    def find(self, key: str) -> Entry | None:
        """Return the entry for a key; None also if it cannot be read."""
        with self._connect()[0].reading() as rows:
            found = rows.execute("SELECT result, stored, expires FROM results WHERE key = ?", (key,)).fetchone()
        try:
            return None if found is None else Entry(read_result(found[0]), float(found[1]), found[2])
        except (TypeError, ValueError):  # another program changed the file
            return None

    def keep(self, key: str, entry: Entry) -> None:
        """Store an entry, and delete expired ones; raise ValueError if it is not JSON."""
        text = write_result(entry.result)
        with self._connect()[0].writing() as rows:
            rows.execute("DELETE FROM results WHERE expires <= ?", (entry.stored,))
            rows.execute("DELETE FROM results WHERE key = ?", (key,))
            rows.execute(
                "INSERT INTO results (key, stored, expires, result) VALUES (?, ?, ?, ?)",
                (key, entry.stored, entry.expires, text),
            )
            rows.execute(
                "DELETE FROM results WHERE number <= "
                "(SELECT number FROM results ORDER BY number DESC LIMIT 1 OFFSET ?)",
                (self._size,),
            )

    def clear(self) -> None:
        """Delete all entries."""
        with self._connect()[0].writing() as rows:
            rows.execute("DELETE FROM results")

    def now(self) -> float:
        """Return the time of the database."""
        return self._connect()[0].clock()

    def close(self) -> None:
        """Close the file or the connections; they are opened again when needed."""
        with self._lock:
            if self._open is not None:
                self._open[0].disconnect()
                self._open = None

    def _connect(self) -> tuple[Database, bytes]:
        from toolsemble._runtime.storage.opening import open_database
        from toolsemble._runtime.storage.sqlite import Kind

        with self._lock:
            if self._open is None:
                database = open_database(self._location, Kind("cache", 0x746F6F6D, 1, _TABLES, "NORMAL"), _BUSY)
                self._open = database, database.load_key("key of the cache")
            return self._open


def copy_result(result: ToolResult) -> ToolResult:
    """Return a deep copy of a result; raise ValueError if it cannot be copied.

    >>> payload = [1, 2]
    >>> copy_result(ToolResult.success("", payload)).structured_output is payload
    False
    """
    try:
        return copy.deepcopy(result)
    except Exception as problem:
        raise ValueError(f"its payload cannot be copied: {problem}") from problem


class Cache:
    """A cache for successful results: its size, where it is stored, how long results are valid, and their key.

    Tools that share a cache share its size, not its results.

    :param ttl: seconds for which a result is valid; None: no limit
    :param size: the maximum number of results
    :param store: the path of a SQLite file, shared by processes and kept between runs, or a ``postgresql://`` URL
        (extra ``postgres``), shared by machines; None: in memory
    :param key: a function of the arguments, or of the arguments and the context, that returns JSON values: calls with
        equal keys share a result; None: the arguments themselves
    :param clock: returns the seconds since the epoch; None: the system's clock, or the Postgres server's

    >>> from toolsemble import tool
    >>> @tool(effects="read", cache=Cache(60, key=lambda arguments: arguments.city.casefold()))
    ... def weather(city: str) -> str:
    ...     return f"sunny in {city}"
    >>> weather.execute('{"city": "Rome"}').output
    'sunny in Rome'
    >>> again = weather.execute('{"city": "ROME"}')
    >>> again.output, again.attributes["cached"]
    ('sunny in Rome', True)
    """

    def __init__(
        self,
        ttl: float | None = None,
        *,
        size: int = 256,
        store: str | os.PathLike[str] | None = None,
        key: Callable[..., Any] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        if ttl is not None:
            check_seconds("Cache ttl", ttl)
        check_count("Cache size", size, least=1)
        location = _read_store(store)
        kept = location if isinstance(location, Path) else store
        self._settings: dict[str, Any] = {"ttl": ttl, "size": size, "store": kept, "key": key, "clock": clock}
        self.ttl = ttl
        self.key = key
        self.results = MemoryResults(size) if location is None else DatabaseResults(location, size)
        self.clock = clock or self.results.now
        self.flights = SingleFlight()

    def clear(self) -> None:
        """Delete all results."""
        self.results.clear()

    def close(self) -> None:
        """Close the file or the connections; they are opened again when needed."""
        self.results.close()

    def find(self, parts: list[Any]) -> tuple[str, ToolResult | None]:
        """Return the key of a call, and its valid result or None."""
        key = self.results.digest(parts)
        return key, self.kept(key)

    def kept(self, key: str) -> ToolResult | None:
        """Return the valid result for a key, or None."""
        found = self.results.find(key)
        return found.result if found is not None and found.is_valid(self.clock(), self.ttl) else None

    def keep(self, key: str, result: ToolResult) -> None:
        """Store a result."""
        now = self.clock()
        self.results.keep(key, Entry(without_retries(result), now, None if self.ttl is None else now + self.ttl))

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Cache, **self._settings), ()


class CacheLayer(Layer):
    """The layer that answers calls from a cache.

    A store that cannot be used does not fail a call: the body runs, and a warning is logged.
    """

    binds = True
    keeps_outcomes = True

    def __init__(self, owner: str, cache: Cache) -> None:
        self._cache = cache
        self._call_key = CallKey(owner, cache.key)
        self._warned = False

    def check(self, definition: ToolDefinition) -> None:
        """Raise ToolDefinitionError for a tool whose results depend on something outside the key."""
        owner = f"Tool '{definition.name}'"
        if definition.flow is not None:
            raise ToolDefinitionError(f"{owner}: cache is for a tool with a body; declare it on the tools inside")
        if self._cache.key is None:
            definition.check_no_init_vars("a cache could not distinguish calls by it")
        for field, source in (("parameters", "InvocationParameters"), ("deps", "deps")):
            if self._cache.key is None and field in definition.sees:
                raise ToolDefinitionError(
                    f"{owner}: the cache key does not contain what the tool takes from its {source}; "
                    "pass Cache(key=lambda arguments, context: ...)"
                )
        if self._cache.results.in_place:
            self._call_key.check(f"{owner} with a cache", definition)
        elif self._cache.key is None and _is_method(definition):
            raise ToolDefinitionError(
                f"{owner}: a cache in a file cannot distinguish the objects of a method; pass Cache(key=...)"
            )

    def around(
        self, definition: ToolDefinition, value: Any, context: ToolContext, inner: Inner
    ) -> Generator[Work, Any, Any]:
        """Return a cached result, the result of the same call in flight, or the inner path's result."""
        cache = self._cache
        try:
            parts = self._call_key.parts(definition, value, context, shared=not cache.results.in_place)
        except UnclearKeyError as problem:
            count_and_log(context, "cache_errors", f"The cache of '{definition.name}' is not used: {problem}")
            return (yield from inner(context))
        found = yield from self._use_store(context, partial(cache.find, parts))
        if found is None:
            return (yield from inner(context))
        key, result = found
        if result is not None:
            return _report_hit(result, context)
        own = SharedCall()
        try:
            flight = cache.flights.join(key, own)
            if flight is own:
                own.hold.enter()  # nested calls then know that it is in flight
                return (yield from self._lead(own, key, context, inner))
        finally:
            try:
                cache.flights.finish(key, own)
            except BaseException:
                cache.flights.finish(key, own)  # an interrupt cut it off
                raise
        try:
            yield from flight.wait(context)
            if flight.result is not None:
                return _report_hit(copy_result(flight.result), context)
        except (*CANNOT_WAIT, ValueError):
            pass  # the call runs on its own
        return (yield from self._run(key, context, inner))

    def _lead(self, own: SharedCall, key: str, context: ToolContext, inner: Inner) -> Generator[Work, Any, Any]:
        """Run the inner path once for all calls with the same key."""
        # Another call may have stored it in the meantime.
        result = yield from self._use_store(context, partial(self._cache.kept, key))
        if result is not None:
            return _report_hit(result, context)
        returned = yield from self._run(key, context, inner)
        own.result = returned if _is_storable(returned, context) else None
        return returned

    def _run(self, key: str, context: ToolContext, inner: Inner) -> Generator[Work, Any, ToolResult]:
        """Run the inner path, and store its result if it succeeds."""
        result = to_result((yield from inner(context)))
        if _is_storable(result, context):
            yield from self._use_store(context, partial(self._keep, key, result, context))
        return result

    def _keep(self, key: str, result: ToolResult, context: ToolContext) -> None:
        try:
            self._cache.keep(key, result)
        except (ValueError, RecursionError) as problem:
            level = logging.DEBUG if self._warned else logging.WARNING
            self._warned = True
            message = mask_text(describe_error(problem))
            context.logger.log(level, "Results of '%s' are not cached: %s", context.tool_name, message)

    def _use_store(self, context: ToolContext, function: Callable[[], Any]) -> Generator[Work, Any, Any]:
        """Return the result of a store operation; None if the store cannot be used."""
        work = partial(self._try, context, function)
        return work() if self._cache.results.in_place else (yield RunInThread(work))

    def _try(self, context: ToolContext, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except Exception as error:  # the call does not need the cache
            self._cache.close()
            line = (
                f"The cache of '{context.tool_name}' cannot be used; the call runs without it: {describe_error(error)}"
            )
            count_and_log(context, "cache_errors", line)
            return None


def cache_layer(owner: str, setting: object, *, reads: bool) -> CacheLayer | None:
    """Return the layer for a setting, None for no cache; raise ToolDefinitionError if it is not valid.

    >>> cache_layer("Tool 'send'", 60, reads=False)
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Tool 'send': cache needs a tool that changes nothing; declare effects="read"
    """
    if setting is None or setting is False:
        return None
    if not reads:
        raise ToolDefinitionError(f'{owner}: cache needs a tool that changes nothing; declare effects="read"')
    if setting is True:
        return CacheLayer(owner, Cache())
    if isinstance(setting, Cache):
        return CacheLayer(owner, setting)
    if is_seconds(setting):
        return CacheLayer(owner, Cache(setting))  # type: ignore[arg-type]  # just checked
    raise ToolDefinitionError(f"{owner}: cache must be True, a number of seconds > 0, or a Cache, not {setting!r:.80}")


def _is_method(definition: ToolDefinition) -> bool:
    """Return whether the body is a method of an object that is not itself a tool; several such objects may exist."""
    holder, tool = definition.holder, getattr(definition.body, "__self__", None)
    return not (holder is None or holder is tool or isinstance(holder, type))


def _is_storable(result: ToolResult, context: ToolContext) -> bool:
    """Return whether a result may be stored: after the deadline it may come from nested calls that timed out."""
    return result.is_success and not is_past(context.deadline)


def _report_hit(result: ToolResult, context: ToolContext) -> ToolResult:
    count_and_log(context, "cache_hits", f"{context.tool_name} was answered from its cache", level=logging.DEBUG)
    tell(CacheHit.of(context))
    return replace(result, attributes=MappingProxyType({**result.attributes, "cached": True}))


def _read_store(store: Any) -> Location | None:
    if store is None:
        return None
    from toolsemble._runtime.storage.opening import read_location

    if not isinstance(store, (str, os.PathLike)) or os.fspath(store) in {"", b"", ":memory:"}:
        raise ToolDefinitionError(f"Cache store must be a file path, or None for memory, not {store!r:.80}")
    return read_location(store, "Cache")
