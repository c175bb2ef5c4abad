"""What calls hold while they run, and pass on to the calls inside them."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from contextvars import ContextVar, Token
from typing import Any

from toolsemble.claim import Claim, Seats
from toolsemble.table import Table

TABLE = Table()
"""The one table of the process: what a name means, it means in every toolbox."""

getattr(os, "register_at_fork", lambda **_: None)(after_in_child=TABLE.forget)

_current: ContextVar[Hold | None] = ContextVar("toolsemble.hold", default=None)


class Hold(Claim):
    """What one call holds until it, and every body that it left behind, has ended; a brief one waits for no body.

    >>> hold = Hold(["file:a"])
    >>> TABLE.ask(hold)
    True
    >>> hold.leave()
    """

    __slots__ = ("_brief", "_token")

    def __init__(self, names: Sequence[Hashable], parent: Hold | None = None, *, brief: bool = False) -> None:
        super().__init__(names, parent)
        self._brief = brief
        self._token: Token[Hold | None] | None = None

    def enter(self) -> None:
        """Let the calls inside the call know what it holds."""
        self._token = _current.set(self)

    def leave(self) -> None:
        """Give everything back: now, or when a body that outlives the call has ended."""
        if self._token is not None:
            try:  # noqa: SIM105 - closed by the collector it may stand in another context, where there is nothing to undo
                _current.reset(self._token)
            except ValueError:
                pass
        TABLE.give_back(self)

    def keep_for(self, body: Future[Any]) -> None:
        """Hold everything for as long as a body runs, whatever happens to the call."""
        if not self._brief:
            TABLE.keep(self)
            body.add_done_callback(lambda _: TABLE.give_back(self))

    def in_box(self) -> bool:
        """Whether the call, or one around it, has a place of a toolbox."""
        return any(isinstance(name, Seats) and name.box for each in self.chain() for name in each.seats)


def held() -> Hold | None:
    """Give what the call around this one holds; None outside of a call that holds something.

    >>> held() is None
    True
    """
    hold: Any = _current.get()
    while hold is not None and not hold.seats:  # a task that outlived the call it was started in
        hold = hold.parent
    return hold  # type: ignore[no-any-return]  # the parent of a hold is one


def kept_for(body: Future[Any]) -> None:
    """Keep what the call here and those around it hold until a body has ended, whatever happens to them."""
    hold: Any = held()
    for each in () if hold is None else hold.chain():
        each.keep_for(body)
