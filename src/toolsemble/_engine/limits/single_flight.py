"""Single flight: concurrent calls with the same key run once and share the result."""

from __future__ import annotations

import inspect
import os
import re
import weakref
from collections.abc import Callable, Generator, Hashable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition import ToolDefinition
from toolsemble._engine.work.body import Work
from toolsemble._engine.work.wait import WouldBlockLoopError, acquire
from toolsemble._runtime.event_loops import is_async
from toolsemble._runtime.locks import TABLE, DeadlockError, Hold, current_hold
from toolsemble._runtime.signing import canonical_json
from toolsemble._runtime.text import describe_error
from toolsemble._runtime.threads import fork_safe_lock
from toolsemble._schema.display import to_display
from toolsemble._schema.members import names_of
from toolsemble._vocabulary.errors import ToolDefinitionError, UnclearError

CANNOT_WAIT = (DeadlockError, WouldBlockLoopError)
"""Raised when waiting for a call in flight would never end."""


class SharedCall:
    """A call in flight, on which calls with the same key wait."""

    __slots__ = ("hold", "process", "result", "settle")

    def __init__(self) -> None:
        self.result: Any = None
        """The result, if the waiting calls may use it."""
        self.settle: Callable[[], None] | None = None
        """Cleanup for a call whose event loop was closed before it ended; None for none."""
        self.process = os.getpid()
        """The id of the process in which it runs; in a forked child it does not run."""
        # Waiting calls wait in the lock table, which detects deadlocks. Brief: no call waits for a body that outlives
        # its call, because its outcome is no longer the call's outcome.
        self.hold = Hold([self], current_hold(), brief=True)
        """What the waiting calls wait for."""

    @property
    def is_open(self) -> bool:
        """Whether it is running and can still end."""
        loop = self.hold.loop
        return bool(self.hold.slots) and self.process == os.getpid() and not (loop and loop.is_closed())

    def wait(self, context: ToolContext) -> Generator[Work, Any, None]:
        """Wait until it has ended, or raise at the deadline; a nested call does not wait."""
        hold = Hold([self], current_hold(), brief=True)
        try:
            yield from acquire(hold, context)
        finally:  # the other waiting calls must not wait for this one
            try:
                hold.leave()
            except BaseException:
                hold.leave()  # an interrupt cut it off
                raise


class SingleFlight:
    """The calls in flight, by key."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock(self)
        self._open: dict[Hashable, SharedCall] = {}

    def join(self, key: Hashable, own: SharedCall) -> SharedCall:
        """Return the call in flight for a key; if there is none, register and return the caller's own.

        The caller must finish its own call in a ``finally``, even if this raises.
        """
        with self._lock:
            found = self._open.get(key)
            if found is not None and found.is_open:
                return found
            own.settle = None if found is None or found.process != own.process else found.settle
            TABLE.acquire(own.hold)  # from now on, other calls wait for it
            self._open[key] = own
            return own

    def finish(self, key: Hashable, own: SharedCall) -> None:
        """Remove a call and wake the waiting ones; do nothing if it never started or has ended."""
        with self._lock:
            if self._open.get(key) is own:
                del self._open[key]
        own.hold.leave()


# The default repr of an object: a later object can have the same one.
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+>")


class UnclearKeyError(UnclearError):
    """The key of a call cannot be computed."""


class CallKey:
    """A function from the calls of one tool to their keys."""

    def __init__(self, owner: str, function: Callable[..., Any] | None) -> None:
        self.function = function
        self._takes_context = function is not None and _takes_context(owner, function)
        self._own = os.urandom(8).hex()
        self._ids = ObjectIds()

    def parts(self, definition: ToolDefinition, value: Any, context: ToolContext, *, shared: bool) -> list[Any]:
        """Return the parts of a key as JSON values; raise :class:`UnclearKeyError` if they cannot be computed.

        :param shared: whether other processes must get the same key, so that a tool is identified by its name
        """
        place = _qualified_name(definition.holder) if shared else self._own + self._ids.get(definition.holder)
        memory_id = context.memory_id if "memory_id" in definition.sees else None
        try:
            source, key = self._compute(definition, value, context)
            parts = [definition.name, place, memory_id, key]
            has_address = _ADDRESS.search(canonical_json(parts)) is not None and _has_address(source)
        except Exception as error:
            raise UnclearKeyError(f"Its key cannot be computed: {describe_error(error)}") from error
        if has_address:
            raise UnclearKeyError("Its key cannot be computed: the text of an argument is its memory address")
        return parts

    def check(self, owner: str, definition: ToolDefinition) -> None:
        """Raise ToolDefinitionError for a method of an object that cannot be identified."""
        try:
            self._ids.get(definition.holder)
        except TypeError:
            kind = type(definition.holder).__name__
            raise ToolDefinitionError(
                f"{owner} is a method, and {kind} objects cannot be distinguished; add '__weakref__' to its __slots__"
            ) from None

    def _compute(self, definition: ToolDefinition, value: Any, context: ToolContext) -> tuple[Any, Any]:
        """Return the key of a call, and its form as JSON values."""
        if self.function is None:
            return value, definition.present(value, reveal=True)
        given = SimpleNamespace(**value) if isinstance(value, dict) else value
        made = self.function(given, context) if self._takes_context else self.function(given)
        return made, to_display(made, reveal=True)


class ObjectIds:
    """Ids of live objects; unlike :func:`id`, never reused for another object."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock(self)
        self._ids: dict[int, tuple[weakref.ref[Any], str]] = {}

    def get(self, holder: object) -> str:
        """Return the id of an object, "" for None; raise TypeError if it cannot be weakly referenced."""
        if holder is None:
            return ""
        with self._lock:
            known = self._ids.get(id(holder))
            if known is None or known[0]() is not holder:
                known = weakref.ref(holder, partial(self._forget, id(holder))), os.urandom(8).hex()
                self._ids[id(holder)] = known
            return known[1]

    def _forget(self, address: int, gone: object) -> None:
        with self._lock:
            if address in self._ids and self._ids[address][0] is gone:
                del self._ids[address]


def _has_address(value: Any) -> bool:
    """Return whether something in a value is shown as its memory address; a str that only looks so does not count."""
    if isinstance(value, str):
        return False
    if isinstance(value, Mapping):
        return any(map(_has_address, value.values()))
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(map(_has_address, value))
    if names := names_of(type(value)):
        return any(_has_address(getattr(value, name, None)) for name in names)
    return _ADDRESS.search(str(value)) is not None


def _qualified_name(holder: object) -> str:
    return f"{holder.__module__}.{holder.__qualname__}" if isinstance(holder, type) else ""


def _takes_context(owner: str, function: Any) -> bool:
    """Return whether a key function takes the context, too; raise ToolDefinitionError if it takes no arguments."""
    if not callable(function):
        raise ToolDefinitionError(f"{owner}: key must be a function of the arguments, not {function!r:.80}")
    if is_async(function):
        raise ToolDefinitionError(f"{owner}: key must be a sync function; it is called before each call")
    try:
        signature = inspect.signature(function)
    except ValueError:  # a C function without a signature
        return False
    for count, takes_context in ((2, True), (1, False)):
        try:
            signature.bind(*(None,) * count)
        except TypeError:
            continue
        return takes_context
    raise ToolDefinitionError(f"{owner}: key must take the arguments, or the arguments and the context")
