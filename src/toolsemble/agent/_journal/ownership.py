"""Who drives a run, and whether that driver still lives."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from toolsemble._runtime.processes.identity import ProcessIdentity
from toolsemble._vocabulary.call import new_id
from toolsemble.agent._journal.tables import RunRow

LEASE = 30.0
"""Default of the seconds after which a driver that has to say that it lives, and did not, counts as gone."""
_ELSEWHERE = 60.0  # the same for a driver on another machine, or before a restart: its file is not made for that

_live: set[str] = set()  # the drivers of this process
getattr(os, "register_at_fork", lambda **_: None)(after_in_child=_live.clear)


def new_owner() -> str:
    """Return a new driver of this process, as it is stored with a run; it lives until :func:`end_owner`.

    >>> owner = new_owner()
    >>> is_here(owner)
    True
    >>> end_owner(owner)
    >>> is_here(owner)
    False
    """
    token = new_id()
    _live.add(token)
    return json.dumps([*ProcessIdentity.current(), token, time.time()])


def end_owner(owner: str) -> None:
    """End a driver of this process."""
    _live.discard(json.loads(owner)[3])


def is_here(owner: str) -> bool:
    """Return whether a driver lives in this process."""
    *process, token, _ = json.loads(owner)
    return ProcessIdentity(*process) == ProcessIdentity.current() and token in _live


def describe_owner(owner: str) -> str:
    """Return a driver in words.

    >>> describe_owner('["a boot", 4711, "", "token", 0.0]')
    'process 4711 since 1970-01-01 00:00:00 UTC'
    """
    _, pid, _, _, since = json.loads(owner)
    return f"process {pid} since {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(since))} UTC"


def needs_beats() -> bool:
    """Return whether other processes cannot look up whether this one lives, so that it has to say so."""
    return not ProcessIdentity.current().started


def is_driven(row: RunRow, now: float, lease: float = LEASE, *, shared: bool) -> bool:
    """Return whether somebody drives a run.

    :param now: the time on the clock that the row's times are of
    :param lease: seconds after which a driver that has to say that it lives, and did not, counts as gone
    :param shared: whether drivers may be on any machine, and say that they live
    """
    if row.state != "running" or not row.owner:
        return False
    *process, token, _ = _read(row.owner)
    identity = ProcessIdentity(*process)
    if identity == ProcessIdentity.current():
        return token in _live
    age = now - row.updated
    if shared:
        # The row may be from the future by a few milliseconds: between two answers of the server its time is estimated.
        return abs(age) < lease and not identity.has_ended()
    if identity.place == ProcessIdentity.current().place and not identity.started:
        return 0 <= age < lease
    if identity.place != ProcessIdentity.current().place:
        return 0 <= age < _ELSEWHERE  # a clock that was set back says nothing
    return identity.is_running()


def _read(owner: str) -> list[Any]:
    values: list[Any] = json.loads(owner)
    return values
