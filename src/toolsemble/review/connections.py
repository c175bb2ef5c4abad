"""The open connections of a small server: few enough at a time, and none for long."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from contextlib import suppress

from toolsemble.runtime.fork_locks import fork_safe_lock

PATIENCE = 10.0
"""How many seconds a client has to send a whole message, and again to take the reply."""


class Connections:
    """Connections, oldest first, each with the time at which it is closed.

    A connection whose message is being answered is held: nobody closes it.

    >>> import time
    >>> ours, theirs = socket.socketpair()
    >>> connections = Connections(1, time.monotonic)
    >>> connections.admit(ours), connections.hold(ours)
    (True, True)
    >>> with socket.socket() as other:
    ...     connections.admit(other)
    False
    >>> ours.close(), theirs.close()
    (None, None)
    """

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._lock = fork_safe_lock(self)
        self._until: dict[socket.socket, float] = {}
        self._held: set[socket.socket] = set()

    def admit(self, connection: socket.socket) -> bool:
        """Return whether there is room for a new connection, if need be in the place of the oldest."""
        with self._lock:
            if len(self._until) + len(self._held) >= self._most:
                if not self._until:
                    return False
                self._close([next(iter(self._until))])
            self._until[connection] = self._clock() + PATIENCE
        return True

    def hold(self, connection: socket.socket) -> bool:
        """Keep a connection from being closed; return whether it is still open."""
        with self._lock:
            if self._until.pop(connection, None) is None:
                return False
            self._held.add(connection)
        return True

    def release(self, connection: socket.socket) -> None:
        """Let a connection be closed again, when its client has had the time to take the reply."""
        with self._lock:
            self._held.discard(connection)
            self._until[connection] = self._clock() + PATIENCE

    def forget(self, connection: socket.socket) -> None:
        """Make room for another connection: this one has ended."""
        with self._lock:
            self._held.discard(connection)
            self._until.pop(connection, None)

    def close_late(self) -> None:
        """Close the connections whose time is up."""
        with self._lock:
            now = self._clock()
            self._close([connection for connection, until in self._until.items() if until <= now])

    def close_all(self) -> None:
        """Close all connections that are not held."""
        with self._lock:
            self._close(list(self._until))

    def _close(self, connections: Iterable[socket.socket]) -> None:
        for connection in connections:
            del self._until[connection]
            with suppress(OSError):  # the client was faster
                connection.shutdown(socket.SHUT_RDWR)  # its thread wakes up, and closes it
