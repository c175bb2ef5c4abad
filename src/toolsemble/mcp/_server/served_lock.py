"""The lock of a server: which tools of its toolboxes clients are shown, and may call."""

from __future__ import annotations

import asyncio
from typing import Protocol, TypeGuard

from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import ToolExecutionError
from toolsemble.catalog._lock.lock import ToolLock

_MOST_TOOLBOXES = 64


class LockableTool(Protocol):
    """A tool whose definition can change while it is served: that of another server."""

    def use_lock(self, lock: ToolLock) -> None:
        """Check the tools of its server with a lock, now and at each change, unless they have one."""
        ...

    def check_lock(self) -> None:
        """Raise ToolExecutionError if its lock refuses it."""
        ...


class ServedLock:
    """A lock for the tools of served toolboxes.

    :param lock: the lock
    :param source: the identity of the toolbox's own tools
    :param command: how they are pinned, for messages; None: as the lock says
    """

    def __init__(self, lock: ToolLock, source: str, command: str | None = None) -> None:
        self._lock = lock
        self._source = source
        self._command = command
        self._checked: dict[int, tuple[Toolbox, Toolbox]] = {}

    def check(self, box: Toolbox) -> Toolbox:
        """Return a toolbox without the tools that the lock refuses; raise ToolConfigurationError if it refuses all.

        A reviewer is waited for. A toolbox is checked once; the tools of other servers are checked at each change.
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
        """Return whether a tool is missing in a toolbox because the lock refuses it."""
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
    """Return whether the definition of a tool can change while it is served.

    >>> is_lockable(None)
    False
    """
    # Not by isinstance: from Python 3.12 on, it does not see the methods that a renamed tool passes on.
    return hasattr(tool, "use_lock") and hasattr(tool, "check_lock")


def is_refused(tool: object) -> bool:
    """Return whether a tool has a lock that refuses it now.

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
