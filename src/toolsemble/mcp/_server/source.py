"""The source of a server's tools: a toolbox, an agent, or a function of the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, Protocol, TypeAlias, TypeGuard, TypeVar, runtime_checkable

from toolsemble._runtime.event_loops import is_awaitable
from toolsemble._tools.base import Tool
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import ToolDefinitionError, ToolExecutionError
from toolsemble.catalog._pinning.tool_lock import ToolLock
from toolsemble.mcp._server.exchange import Caller

_T = TypeVar("_T")
_MOST = 64


class PerCaller(Generic[_T]):
    """An offer built from functions: shared, or per caller.

    :param functions: functions, functions by URI, or a function of the caller that returns either, sync or async
    :param build: builds it; called only once for the same functions
    """

    def __init__(self, functions: Any, build: Callable[[Any], _T]) -> None:
        self._functions = functions
        self._build = build
        self._built: dict[Any, tuple[Any, _T]] = {}
        self.fixed: _T | None = None if callable(functions) else build(functions)

    @property
    def is_offered(self) -> bool:
        """Whether there is an offer for at least some callers."""
        return bool(self.fixed is None or self.fixed)

    async def find(self, caller: Caller) -> _T:
        """Return a caller's offer."""
        if self.fixed is not None:
            return self.fixed
        found = self._functions(caller)
        found = await found if is_awaitable(found) else found
        functions = dict(found) if isinstance(found, Mapping) else tuple(found)
        key = identify(functions)
        if key not in self._built:
            if len(self._built) >= _MOST:
                del self._built[next(iter(self._built))]
            self._built[key] = (
                functions,
                self._build(functions),
            )  # with the functions, because ids are unique only among live objects
        return self._built[key][1]


def identify(items: Any) -> tuple[Any, ...]:
    """Return a key that is equal for the same objects in the same order, under the same keys."""
    if isinstance(items, Mapping):
        return tuple((key, id(item)) for key, item in items.items())
    return tuple(id(item) for item in items)


@runtime_checkable
class ToolMaker(Protocol):
    """An object that can become a tool, such as an ``Agent``."""

    def as_tool(self, name: str, description: str) -> Tool:
        """Return it as a tool."""
        ...


Servable: TypeAlias = Toolbox | ToolMaker | Tool | list[Any] | tuple[Any, ...]
"""A servable object: a toolbox, an agent, or tools."""

ToolSource: TypeAlias = Servable | Callable[[Caller], Servable | Awaitable[Servable]]
"""The argument of ``serve``: a servable object, or a function of the caller that returns one."""

_MOST_TOOLBOXES = 64
_AGENT = "ask"
_AGENT_DESCRIPTION = "Performs a task or answers a question, described in plain text"


class Source:
    """Finds a caller's toolbox.

    :param source: a toolbox, an agent, tools, or a function of the caller
    :param name: the name of an agent's tool; None: ``ask``
    :param description: the description of that tool
    :param lock: the lock on the tools; None: all are served
    """

    def __init__(self, source: ToolSource, name: str | None, description: str, lock: ServedLock | None = None) -> None:
        self._name = name or _AGENT
        self._description = description or _AGENT_DESCRIPTION
        self._lock = lock
        self.fixed = self._make_toolbox(source)
        if self.fixed is not None and lock is not None:
            self.fixed = lock.check(self.fixed)
        if self.fixed is None and not callable(source):
            raise ToolDefinitionError(
                f"serve takes a Toolbox, an Agent, or a function of the Caller that returns one, not {source!r:.80}"
            )
        self._source: Any = source
        self._built: dict[tuple[Any, ...], tuple[object, Toolbox]] = {}

    @property
    def shared(self) -> Toolbox | None:
        """The current toolbox, if it is shared; None if it depends on the caller."""
        if self.fixed is None and getattr(self._source, "is_shared", False) and self._lock is None:
            return self._make_toolbox(self._source(Caller()))
        return self.fixed

    async def find(self, caller: Caller) -> Toolbox:
        """Return a caller's toolbox."""
        if self.fixed is not None:
            return self.fixed
        made = self._source(caller)
        box = self._find_toolbox(await made if is_awaitable(made) else made)
        if box is None:
            raise ToolDefinitionError("The function of the Caller must return a Toolbox or an Agent")
        return box if self._lock is None else await self._lock.acheck(box)

    def is_hidden(self, box: Toolbox, name: str) -> bool:
        """Return whether the lock hides a tool of a toolbox from this source."""
        return self._lock is not None and self._lock.hides(box, name)

    def _find_toolbox(self, source: object) -> Toolbox | None:
        """Return the toolbox for a function's result; the same one for the same tools."""
        if not isinstance(source, list | tuple):
            return self._make_toolbox(source)
        key = identify(source)
        if key not in self._built:
            if len(self._built) >= _MOST_TOOLBOXES:
                del self._built[next(iter(self._built))]
            self._built[key] = source, Toolbox(source)  # with the tools, because ids are unique only among live objects
        return self._built[key][1]

    def _make_toolbox(self, source: object) -> Toolbox | None:
        if isinstance(source, Toolbox):
            return source
        if isinstance(source, list | tuple):
            return Toolbox(source)
        if isinstance(source, Tool):
            return Toolbox([source])
        if isinstance(source, ToolMaker):
            return Toolbox([source.as_tool(self._name, self._description)])
        return None


class LockableTool(Protocol):
    """A tool whose definition can change while it is served, such as another server's tool."""

    def use_lock(self, lock: ToolLock) -> None:
        """Check its server's tools with a lock, now and on each change, unless they have one."""
        ...

    def check_lock(self) -> None:
        """Raise ToolExecutionError if its lock refuses it."""
        ...


class ServedLock:
    """A lock for served toolboxes.

    :param lock: the lock
    :param source: the identity of the toolbox's own tools
    :param command: the command that pins them, for messages; None: the lock's
    """

    def __init__(self, lock: ToolLock, source: str, command: str | None = None) -> None:
        self._lock = lock
        self._source = source
        self._command = command
        self._checked: dict[int, tuple[Toolbox, Toolbox]] = {}

    def check(self, box: Toolbox) -> Toolbox:
        """Return a toolbox without refused tools; raise ToolConfigurationError if the lock refuses all.

        It waits for a reviewer. A toolbox is checked once; other servers' tools are checked on each change.
        """
        known, checked = self._checked.get(id(box), (None, None))
        if known is box and checked is not None:
            return checked
        checked = self._check(box)
        if len(self._checked) >= _MOST_TOOLBOXES:
            del self._checked[next(iter(self._checked))]
        self._checked[id(box)] = box, checked
        return checked

    def hides(self, checked: Toolbox, name: str) -> bool:
        """Return whether the lock removed a tool from a toolbox."""
        return any(name in box and name not in shown for box, shown in self._checked.values() if shown is checked)

    async def acheck(self, box: Toolbox) -> Toolbox:
        """Do the same as :meth:`check` without blocking the event loop."""
        if id(box) in self._checked:
            return self.check(box)
        return await asyncio.to_thread(self.check, box)

    def _check(self, box: Toolbox) -> Toolbox:
        remote = {name: tool for name in box.names if is_lockable(tool := box[name])}
        for tool in remote.values():
            tool.use_lock(self._lock)
        entries = [box.registered(name) for name in box.names if name not in remote]
        own = [entry.definition for entry in entries if not entry.fixed]
        if not own:
            return box
        verdict = self._lock.separate(self._command).check(self._source, own)
        return box.filtered(lambda each: each.name in remote or verdict.admits(each.name))


def is_lockable(tool: object) -> TypeGuard[LockableTool]:
    """Return whether a tool's definition can change while it is served.

    >>> is_lockable(None)
    False
    """
    # Not by isinstance: from Python 3.12 on, it does not see methods that a renamed tool delegates.
    return hasattr(tool, "use_lock") and hasattr(tool, "check_lock")


def is_refused(tool: object) -> bool:
    """Return whether a tool's lock currently refuses it.

    >>> is_refused(None)
    False
    """
    if not is_lockable(tool):
        return False
    try:
        tool.check_lock()
    except ToolExecutionError:
        return True
    return False
