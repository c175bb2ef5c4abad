"""The toolbox of a request: the same for everyone, or returned by a function of the caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

from toolsemble._runtime.concurrency import is_awaitable
from toolsemble._tools.base import Tool
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.mcp._server.caller import Caller
from toolsemble.mcp._server.per_caller import identify
from toolsemble.mcp._server.served_lock import ServedLock


@runtime_checkable
class ToolMaker(Protocol):
    """An object that can become a tool, such as an ``Agent``."""

    def as_tool(self, name: str, description: str) -> Tool:
        """Return it as a tool."""
        ...


Servable: TypeAlias = Toolbox | ToolMaker | Tool | list[Any] | tuple[Any, ...]
"""What can be served: a toolbox, an agent, or tools."""

ToolSource: TypeAlias = Servable | Callable[[Caller], Servable | Awaitable[Servable]]
"""What ``serve`` takes: what can be served, or a function of the caller that returns it."""

_MOST_TOOLBOXES = 64
_AGENT = "ask"
_AGENT_DESCRIPTION = "Does a task, or answers a question, that is described in plain text"


class Source:
    """Finds the toolbox of a caller.

    :param source: a toolbox, an agent, tools, or a function of the caller
    :param name: the name of the tool that an agent becomes; None: ``ask``
    :param description: the description of that tool
    :param lock: decides which tools may be served; None: all
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
        """The toolbox as it is now, if it is the same for everyone; None if it depends on the caller."""
        if self.fixed is None and getattr(self._source, "is_shared", False) and self._lock is None:
            return self._make_toolbox(self._source(Caller()))
        return self.fixed

    async def find(self, caller: Caller) -> Toolbox:
        """Return the toolbox of a caller."""
        if self.fixed is not None:
            return self.fixed
        made = self._source(caller)
        box = self._find_toolbox(await made if is_awaitable(made) else made)
        if box is None:
            raise ToolDefinitionError("The function of the Caller must return a Toolbox or an Agent")
        return box if self._lock is None else await self._lock.acheck(box)

    def is_hidden(self, box: Toolbox, name: str) -> bool:
        """Return whether the lock hides a tool of a toolbox that was found here."""
        return self._lock is not None and self._lock.hides(box, name)

    def _find_toolbox(self, source: object) -> Toolbox | None:
        """Return the toolbox of what a function returned; the same one for the same tools."""
        if not isinstance(source, list | tuple):
            return self._make_toolbox(source)
        key = identify(source)
        if key not in self._built:
            if len(self._built) >= _MOST_TOOLBOXES:
                del self._built[next(iter(self._built))]
            self._built[key] = source, Toolbox(source)  # with the tools: an id is that of a living object
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
