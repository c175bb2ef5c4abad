"""Offers of a server: the same for everyone, or returned by a function of the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from toolsemble._runtime.concurrency import is_awaitable
from toolsemble.mcp._server.caller import Caller

_T = TypeVar("_T")
_MOST = 64


class PerCaller(Generic[_T]):
    """An offer that is built from functions: one for everyone, or one for each caller.

    :param functions: functions, functions by URI, or a function of the caller that returns either, sync or async
    :param build: builds it; called again only for functions that it was not called for before

    >>> import asyncio
    >>> PerCaller([len], list).fixed
    [<built-in function len>]
    >>> asyncio.run(PerCaller(lambda caller: [len, sum] if caller.subject else [len], list).find(Caller()))
    [<built-in function len>]
    """

    def __init__(self, functions: Any, build: Callable[[Any], _T]) -> None:
        self._functions = functions
        self._build = build
        self._built: dict[Any, tuple[Any, _T]] = {}
        self.fixed: _T | None = None if callable(functions) else build(functions)

    @property
    def is_offered(self) -> bool:
        """Whether there is anything, at least for some callers."""
        return bool(self.fixed is None or self.fixed)

    async def find(self, caller: Caller) -> _T:
        """Return what a caller is offered."""
        if self.fixed is not None:
            return self.fixed
        found = self._functions(caller)
        found = await found if is_awaitable(found) else found
        functions = dict(found) if isinstance(found, Mapping) else tuple(found)
        key = identify(functions)
        if key not in self._built:
            if len(self._built) >= _MOST:
                del self._built[next(iter(self._built))]
            self._built[key] = functions, self._build(functions)  # with the functions: an id is that of a living object
        return self._built[key][1]


def identify(items: Any) -> tuple[Any, ...]:
    """Return what is equal for the same objects in the same order, under the same keys."""
    if isinstance(items, Mapping):
        return tuple((key, id(item)) for key, item in items.items())
    return tuple(id(item) for item in items)
