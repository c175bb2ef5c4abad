"""How calls are told from each other: by the tool, its arguments, and whose they are."""

from __future__ import annotations

import inspect
import os
import re
import weakref
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from toolsemble.context import ToolContext
from toolsemble.definition.definition import ToolDefinition
from toolsemble.errors import ToolDefinitionError, UnclearError
from toolsemble.runtime.concurrency import is_async
from toolsemble.runtime.fork_locks import fork_safe_lock
from toolsemble.runtime.signing import canonical_json
from toolsemble.schema.attributes import names_of
from toolsemble.schema.display import presented
from toolsemble.shape import describe_error

# The text of an object that has none: another one can have the same when this one is gone.
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+>")


class UnclearKeyError(UnclearError):
    """What a call is told from others by cannot be found out."""


class Keying:
    """What tells the calls of one tool from each other.

    >>> keying = Keying("Tool 'weather'", lambda arguments: arguments.city.casefold())
    >>> weather = ToolDefinition("weather", "", body=str, decode=None, accept=None)
    >>> keying.parts(weather, {"city": "Rome", "unit": "K"}, ToolContext(), shared=True)
    ['weather', '', None, 'rome']
    """

    def __init__(self, owner: str, function: Callable[..., Any] | None) -> None:
        self.function = function
        self._takes_context = function is not None and _takes_context(owner, function)
        self._own = os.urandom(8).hex()
        self._holders = Holders()

    def parts(self, definition: ToolDefinition, value: Any, context: ToolContext, *, shared: bool) -> list[Any]:
        """Give what a call is told from others by, as JSON values; refuse what cannot be told.

        :param shared: whether other processes must find the same, so that a tool is known by its name
        """
        place = _named(definition.holder) if shared else self._own + self._holders.number(definition.holder)
        whose = context.memory_id if "memory_id" in definition.sees else None
        try:
            source, told = self._told(definition, value, context)
            parts = [definition.name, place, whose, told]
            nameless = _ADDRESS.search(canonical_json(parts)) is not None and _nameless(source)
        except Exception as error:
            raise UnclearKeyError(f"Its key cannot be told: {describe_error(error)}") from error
        if nameless:
            raise UnclearKeyError("Its key cannot be told: an argument has no text of its own")
        return parts

    def check(self, owner: str, definition: ToolDefinition) -> None:
        """Refuse the method of an object that cannot be told from others."""
        try:
            self._holders.number(definition.holder)
        except TypeError:
            kind = type(definition.holder).__name__
            raise ToolDefinitionError(
                f"{owner} is a method, and objects of {kind} cannot be told from each other: "
                "add '__weakref__' to its __slots__"
            ) from None

    def _told(self, definition: ToolDefinition, value: Any, context: ToolContext) -> tuple[Any, Any]:
        """Give what a call is told by, and the same as JSON values."""
        if self.function is None:
            return value, definition.present(value, reveal=True)
        given = SimpleNamespace(**value) if isinstance(value, dict) else value
        made = self.function(given, context) if self._takes_context else self.function(given)
        return made, presented(made, reveal=True)


class Holders:
    """A number for each object, for as long as it lives; the next object at its place in memory gets another."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock(self)
        self._numbers: dict[int, tuple[weakref.ref[Any], str]] = {}

    def number(self, holder: object) -> str:
        """Give the number of an object; of None, the empty text. Objects without weak references are a TypeError."""
        if holder is None:
            return ""
        with self._lock:
            known = self._numbers.get(id(holder))
            if known is None or known[0]() is not holder:
                known = weakref.ref(holder, self._forget(id(holder))), os.urandom(8).hex()
                self._numbers[id(holder)] = known
            return known[1]

    def _forget(self, place: int) -> Callable[[object], None]:
        def forget(gone: object) -> None:
            with self._lock:
                if place in self._numbers and self._numbers[place][0] is gone:
                    del self._numbers[place]

        return forget


def _nameless(value: Any) -> bool:
    """Whether something in a value is written as its place in memory; a text that only looks so is a text."""
    if isinstance(value, str):
        return False
    if isinstance(value, Mapping):
        return any(map(_nameless, value.values()))
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(map(_nameless, value))
    if names := names_of(type(value)):
        return any(_nameless(getattr(value, name, None)) for name in names)
    return _ADDRESS.search(str(value)) is not None


def _named(holder: object) -> str:
    return f"{holder.__module__}.{holder.__qualname__}" if isinstance(holder, type) else ""


def _takes_context(owner: str, function: Any) -> bool:
    """Whether a key function takes the context beside the arguments; refuse one that takes neither."""
    if not callable(function):
        raise ToolDefinitionError(f"{owner}: key must be a function of the arguments, not {function!r:.80}")
    if is_async(function):
        raise ToolDefinitionError(f"{owner}: key must be a sync function; it is asked before each call")
    try:
        signature = inspect.signature(function)
    except ValueError:  # a function in C that does not tell
        return False
    for count in (2, 1):
        try:
            signature.bind(*(None,) * count)
        except TypeError:
            continue
        return count == 2  # noqa: PLR2004 - arguments and context
    raise ToolDefinitionError(f"{owner}: key must take the arguments, or the arguments and the context")
