"""What calls hold while they run, and pass on to the calls inside them."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from functools import partial
from typing import Any

from toolsemble.locks.claims import Body, Claim, Slots
from toolsemble.locks.table import Table

TABLE = Table()
"""The one table of the process: what a name means, it means in every toolbox."""

getattr(os, "register_at_fork", lambda **_: None)(after_in_child=TABLE.reset)

_current: ContextVar[Hold | None] = ContextVar("toolsemble.hold", default=None)


class Hold(Claim):
    """What one call holds until it, and every body that it left behind, has ended; a brief one waits for no body.

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
        """Let the calls inside the call know what it holds; where that is nothing, they look further out."""
        self._before = _current.get()
        _current.set(self)

    def leave(self) -> None:
        """Give everything back: now, or when a body that outlives the call has ended; a second time does no harm."""
        TABLE.release(self)
        # Looked at, and not remembered: an interrupt may have come before this could be taken down. Closed by the
        # collector, it may stand in another context, where there is nothing to undo.
        if _current.get() is self:
            _current.set(self._before)

    def keep_for(self, body: Future[Any]) -> None:
        """Hold everything for as long as a body runs, whatever happens to the call."""
        if not self._brief:
            running = Body()
            # First of all it is known how it ends: an interrupt may come before the next line.
            body.add_done_callback(partial(self._body_ended, running))
            TABLE.keep(self, running)

    def _body_ended(self, running: Body, _: Future[Any]) -> None:
        running.over = True
        TABLE.release_if_unused(self)

    def in_box(self) -> bool:
        """Whether the call, or one around it, has a place of a toolbox."""
        return any(isinstance(name, Slots) and name.box for each in self.chain() for name in each.slots)


def current_hold() -> Hold | None:
    """Give what the call around this one holds; None outside of a call that holds something.

    >>> current_hold() is None
    True
    """
    hold: Any = _current.get()
    while hold is not None and not hold.slots:  # a task that outlived the call it was started in
        hold = hold.parent
    return hold  # type: ignore[no-any-return]  # the parent of a hold is one


def keep_until_done(body: Future[Any]) -> None:
    """Keep what the call here and those around it hold until a body has ended, whatever happens to them."""
    hold: Any = current_hold()
    for each in () if hold is None else hold.chain():
        each.keep_for(body)
