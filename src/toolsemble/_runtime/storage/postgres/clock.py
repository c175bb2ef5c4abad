"""The clock of the server, which counts for all machines."""

from __future__ import annotations

import time


class ServerClock:
    """The time of the server, from its latest answer; the clock of this machine may be wrong.

    >>> clock = ServerClock()
    >>> clock.set(1_000_000.0)
    >>> 1_000_000.0 <= clock.now() < 1_000_060.0
    True
    """

    def __init__(self) -> None:
        self._ahead = time.time() - time.monotonic()

    def set(self, now: float) -> None:
        """Take the time that the server just gave."""
        self._ahead = now - time.monotonic()

    def now(self) -> float:
        """Return the seconds since the epoch."""
        return time.monotonic() + self._ahead
