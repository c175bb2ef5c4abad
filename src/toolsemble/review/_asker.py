"""The asker of a stored request: the process and the store object that wait for the answer."""

from __future__ import annotations

import json
from typing import Any
from weakref import WeakSet

from toolsemble._runtime.processes.identity import ProcessIdentity
from toolsemble._runtime.storage.database import Presence
from toolsemble._vocabulary.call import new_id

_MAX_PID = 2**31


class Asker:
    """A store object of this process that asks and waits for answers.

    :param presence: tells which askers live, on any machine; None: their processes can be looked up

    Rows name their asker without a signature: whoever can write the file can end the wait for an answer in simpler
    ways, and an answer is used once in any case.

    >>> asker = Asker()
    >>> asker.has_left(asker.text()), asker.has_ended(asker.text())
    (True, False)
    """

    def __init__(self, presence: Presence | None = None) -> None:
        self.id = new_id()
        self._presence = presence
        _OPEN.add(self)

    def close(self) -> None:
        """End this asker: it waits for nothing any more."""
        _OPEN.discard(self)

    def text(self) -> str:
        """Return this asker as it is stored with a request; in a forked process it is another one."""
        text = json.dumps([*ProcessIdentity.current(), self.id])
        if self._presence is not None:
            self._presence.announce(text)
        return text

    def has_left(self, text: str) -> bool:
        """Return whether nobody may be waiting: the asker has ended, is unknown here, or is this one.

        A container that is started again looks like another machine, so those count as ended. This asker itself knows
        what it waits for.
        """
        read = _read(text)
        if read is None:
            return True
        process, id_ = read
        if process == ProcessIdentity.current():
            return id_ == self.id or not _is_open(id_)
        if self._presence is None:
            return not process.is_running()
        return process.has_ended() or not self._presence.is_present(text)

    def has_ended(self, text: str) -> bool:
        """Return whether certainly nobody waits: the process has ended, or its store object was closed."""
        read = _read(text)
        if read is None:
            return False
        process, id_ = read
        if process == ProcessIdentity.current():
            return not _is_open(id_)
        return process.has_ended() or (self._presence is not None and not self._presence.is_present(text))


_OPEN: WeakSet[Asker] = WeakSet()


def _is_open(id: str) -> bool:
    return any(asker.id == id for asker in list(_OPEN))


def _read(text: str) -> tuple[ProcessIdentity, str] | None:
    """Return the process and the id of an asker; None for a row of an older version, or a damaged one."""
    try:
        values: Any = json.loads(text)
        place, pid, started, id_ = values
    except (ValueError, TypeError, RecursionError):
        return None
    if not (
        isinstance(pid, int) and 0 < pid < _MAX_PID and all(isinstance(each, str) for each in (place, started, id_))
    ):
        return None
    return ProcessIdentity(place, pid, started), id_
