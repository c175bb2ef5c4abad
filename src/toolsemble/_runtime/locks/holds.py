"""The resources and slots that running calls hold, inherited by nested calls through a context variable."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from functools import partial
from typing import Any

from toolsemble._runtime.locks.claims import Body, Claim, Slots
from toolsemble._runtime.locks.table import Table

TABLE = Table()
"""The lock table of the process: a resource name means the same in every toolbox."""

getattr(os, "register_at_fork", lambda **_: None)(after_in_child=TABLE.reset)

_current: ContextVar[Hold | None] = ContextVar("toolsemble.hold", default=None)


class Hold(Claim):
    """A claim held until its call, and every body that outlives the call, has ended; a brief one waits for no body.

    >>> hold = Hold(["file:a"])
    >>> TABLE.acquire(hold)
    True
    >>> hold.leave()
    """

    __slots__ = ("_before", "_brief")

    def __init__(self, names: Sequence[Hashable], parent: Hold | None = None, *, brief: bool = False) -> None:
        super().__init__(names, parent)
        self._brief = brief
        self._before: Hold | None = None

    def enter(self) -> None:
        """Make this the hold that nested calls inherit."""
        self._before = _current.get()
        _current.set(self)

    def leave(self) -> None:
        """Release everything, now or when a body that outlives the call has ended; calling it twice is harmless."""
        TABLE.release(self)
        # Compared, not remembered: an interrupt may come before a flag is set. A generator closed by the garbage
        # collector may run in another context, where there is nothing to undo.
        if _current.get() is self:
            _current.set(self._before)

    def keep_for(self, body: Future[Any]) -> None:
        """Hold everything until a body has ended, even when the call ends first."""
        if not self._brief:
            running = Body()
            # The callback comes first: an interrupt may come before the next line.
            body.add_done_callback(partial(self._body_ended, running))
            TABLE.keep(self, running)

    def _body_ended(self, running: Body, _: Future[Any]) -> None:
        running.ended = True
        TABLE.release_if_unused(self)

    def has_box_slot(self) -> bool:
        """Return whether the call, or an enclosing one, holds a slot of a toolbox."""
        return any(isinstance(name, Slots) and name.box for each in self.chain() for name in each.slots)


def current_hold() -> Hold | None:
    """Return the hold of the enclosing call; None outside of a call that holds something.

    >>> current_hold() is None
    True
    """
    hold: Any = _current.get()
    while hold is not None and not hold.slots:  # a task that outlived the call in which it was started
        hold = hold.parent
    return hold  # type: ignore[no-any-return]  # the parent of a Hold is a Hold


def keep_until_done(body: Future[Any]) -> None:
    """Keep what this call and the enclosing ones hold until a body has ended, even when the calls end first."""
    hold: Any = current_hold()
    for each in () if hold is None else hold.chain():
        each.keep_for(body)
