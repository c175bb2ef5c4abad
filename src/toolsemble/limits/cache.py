"""The results of tools that only read, given again to calls of the same kind."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from toolsemble.context import ToolContext
from toolsemble.definition.definition import ToolDefinition
from toolsemble.definition.policy import Inner, Layer
from toolsemble.errors import ToolDefinitionError
from toolsemble.events import CacheHit
from toolsemble.limits.cache_store import Entry, FileResults, MemoryResults, Results, copied
from toolsemble.limits.call_key import Keying, UnclearKeyError
from toolsemble.limits.single_flight import CANNOT_WAIT, Flight, Flights
from toolsemble.masking.secrets import masked
from toolsemble.observers.watchers import tell
from toolsemble.record import count_and_log
from toolsemble.result import ToolResult
from toolsemble.runtime.checks import check_count, check_seconds, is_seconds
from toolsemble.serialization import without_retries
from toolsemble.shape import describe_error, to_result
from toolsemble.work.body import Work
from toolsemble.work.deadline import is_past
from toolsemble.work.thread import RunInThread


class Cache:
    """How long results are kept, how many and where, and which calls are of the same kind.

    Only successes are kept. Tools that are given the same cache share its room, not its results.

    :param ttl: how many seconds a result counts; None for any number
    :param size: how many results are kept
    :param store: the path of a SQLite file, for several processes and the next start of the program; None for memory
    :param key: a function of the arguments, or of the arguments and the context, that gives JSON values: calls with the
        same key are of the same kind; None for the arguments themselves
    :param clock: gives the seconds since the epoch

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
        clock: Callable[[], float] = time.time,
    ) -> None:
        if ttl is not None:
            check_seconds("Cache ttl", ttl)
        check_count("Cache size", size, least=1)
        path = _checked_path(store)
        self._made_of = {"ttl": ttl, "size": size, "store": path, "key": key, "clock": clock}
        self.ttl = ttl
        self.key = key
        self.clock = clock
        self.results: Results = MemoryResults(size) if path is None else FileResults(path, size)
        self.flights = Flights()

    def clear(self) -> None:
        """Let all results go."""
        self.results.clear()

    def close(self) -> None:
        """Close the file, until it is needed again."""
        self.results.close()

    def find(self, parts: list[Any]) -> tuple[str, ToolResult | None]:
        """Give the key of a call, and the result that counts for it."""
        key = self.results.digest(parts)
        return key, self.kept(key)

    def kept(self, key: str) -> ToolResult | None:
        """Give the result that counts for a key."""
        found = self.results.find(key)
        return found.result if found is not None and found.counts(self.clock(), self.ttl) else None

    def keep(self, key: str, result: ToolResult) -> None:
        """Keep a result from now on."""
        now = self.clock()
        self.results.keep(key, Entry(without_retries(result), now, None if self.ttl is None else now + self.ttl))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._made_of,)


class Caching(Layer):
    """The layer that answers calls with results that are kept.

    A store that cannot be used, whatever the reason, fails no call: the body runs, and the log says so.
    """

    binds = True

    def __init__(self, owner: str, cache: Cache) -> None:
        self._cache = cache
        self._keying = Keying(owner, cache.key)
        self._said_once = False

    def check(self, definition: ToolDefinition) -> None:
        """Refuse tools whose results depend on what the key does not tell."""
        owner = f"Tool '{definition.name}'"
        if definition.flow is not None:
            raise ToolDefinitionError(f"{owner}: cache is for a body; it is made of tools, so declare it on those")
        if self._cache.key is None:
            definition.check_no_init_vars("a cache could not tell calls by it")
        if self._cache.key is None and "parameters" in definition.sees:
            raise ToolDefinitionError(
                f"{owner}: cache cannot tell what it takes from its InvocationParameters: "
                "say it with Cache(key=lambda arguments, context: ...)"
            )
        if self._cache.results.in_place:
            self._keying.check(f"{owner} with a cache", definition)
        elif self._cache.key is None and _is_method(definition):
            raise ToolDefinitionError(
                f"{owner}: a cache in a file cannot tell the objects whose method it is from each other: "
                "say it with Cache(key=...)"
            )

    def around(
        self, definition: ToolDefinition, value: Any, context: ToolContext, inner: Inner
    ) -> Generator[Work, Any, Any]:
        """Give the result that is kept, that of the same call which runs already, or what is inside gives."""
        cache = self._cache
        try:
            parts = self._keying.parts(definition, value, context, shared=not cache.results.in_place)
        except UnclearKeyError as problem:
            count_and_log(context, "cache_errors", f"The cache of '{definition.name}' is not used: {problem}")
            return (yield from inner(context))
        found = yield from self._asked(context, partial(cache.find, parts))
        if found is None:
            return (yield from inner(context))
        key, result = found
        if result is not None:
            return _hit(result, context)
        own = Flight()
        try:
            flight = cache.flights.board(key, own)
            if flight is own:
                own.enter()
                return (yield from self._lead(own, key, context, inner))
        finally:
            try:
                cache.flights.land(key, own)
            except BaseException:
                cache.flights.land(key, own)  # an interrupt came before it was done
                raise
        try:
            yield from flight.wait(context)
            if flight.result is not None:
                return _hit(copied(flight.result), context)
        except (*CANNOT_WAIT, ValueError):
            pass  # the call needs nobody's result but its own
        return (yield from self._run(key, context, inner))

    def _lead(self, own: Flight, key: str, context: ToolContext, inner: Inner) -> Generator[Work, Any, Any]:
        """Walk what is inside, for all who wait for the same."""
        # It may have been kept while this call looked for it.
        result = yield from self._asked(context, partial(self._cache.kept, key))
        if result is not None:
            return _hit(result, context)
        returned = yield from self._run(key, context, inner)
        own.result = returned if _counts(returned, context) else None
        return returned

    def _run(self, key: str, context: ToolContext, inner: Inner) -> Generator[Work, Any, ToolResult]:
        """Walk what is inside, and keep its result when it is a success."""
        result = to_result((yield from inner(context)))
        if _counts(result, context):
            yield from self._asked(context, partial(self._keep, key, result, context))
        return result

    def _keep(self, key: str, result: ToolResult, context: ToolContext) -> None:
        try:
            self._cache.keep(key, result)
        except (ValueError, RecursionError) as problem:
            level = logging.DEBUG if self._said_once else logging.WARNING
            self._said_once = True
            said = masked(describe_error(problem))
            context.logger.log(level, "Results of '%s' are not cached: %s", context.tool_name, said)

    def _asked(self, context: ToolContext, function: Callable[[], Any]) -> Generator[Work, Any, Any]:
        """Give what the store says; None where it cannot be used."""
        work = partial(self._tried, context, function)
        return work() if self._cache.results.in_place else (yield RunInThread(work))

    def _tried(self, context: ToolContext, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the call can do without
            self._cache.close()
            line = (
                f"The cache of '{context.tool_name}' cannot be used, the call is made without: {describe_error(error)}"
            )
            count_and_log(context, "cache_errors", line)
            return None


def caching_layer(owner: str, said: object, *, reads: bool) -> Caching | None:
    """Give the layer for what a tool or a toolbox says; refuse what is unclear, and tools that do not just read.

    >>> caching_layer("Tool 'send'", 60, reads=False)
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: Tool 'send': cache is for tools that change nothing: declare effects="read"
    """
    if said is None or said is False:
        return None
    if not reads:
        raise ToolDefinitionError(f'{owner}: cache is for tools that change nothing: declare effects="read"')
    if said is True:
        return Caching(owner, Cache())
    if isinstance(said, Cache):
        return Caching(owner, said)
    if is_seconds(said):
        return Caching(owner, Cache(said))  # type: ignore[arg-type]  # just looked at
    raise ToolDefinitionError(f"{owner}: cache must be True, a number of seconds above 0, or a Cache, not {said!r:.80}")


def _is_method(definition: ToolDefinition) -> bool:
    """Whether it is the method of an object that is no tool itself, of which there are likely to be several."""
    holder, tool = definition.holder, getattr(definition.body, "__self__", None)
    return not (holder is None or holder is tool or isinstance(holder, type))


def _counts(result: ToolResult, context: ToolContext) -> bool:
    """Return whether a result is kept: what came too late may be what its tool made of calls that had no time."""
    return result.is_success and not is_past(context.deadline)


def _hit(result: ToolResult, context: ToolContext) -> ToolResult:
    count_and_log(context, "cache_hits", f"{context.tool_name} was answered from its cache", level=logging.DEBUG)
    tell(CacheHit.of(context))
    return replace(result, attributes=MappingProxyType({**result.attributes, "cached": True}))


def _checked_path(store: Any) -> Path | None:
    if store is None:
        return None
    if not isinstance(store, (str, os.PathLike)) or os.fspath(store) in {"", b"", ":memory:"}:
        raise ToolDefinitionError(f"Cache store must be the path of a file, or None for memory, not {store!r:.80}")
    # A program may change its folder before the file is opened.
    return Path(store).absolute()


def _restored(made_of: dict[str, Any]) -> Cache:
    return Cache(**made_of)
