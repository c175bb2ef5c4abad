"""The open connections of the callback server, limited in number and in time."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from contextlib import suppress

from toolsemble._runtime.fork_locks import fork_safe_lock

PATIENCE = 10.0
"""Seconds for a client to send a whole message, and again to read the reply."""


class Connections:
    """Open connections, oldest first, each with the time at which it is closed.

    A connection whose message is being processed is held and not closed.

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
        self._deadlines: dict[socket.socket, float] = {}
        self._held: set[socket.socket] = set()

    def admit(self, connection: socket.socket) -> bool:
        """Add a new connection, closing the oldest one if necessary; return whether there was room."""
        with self._lock:
            if len(self._deadlines) + len(self._held) >= self._most:
                if not self._deadlines:
                    return False
                self._close([next(iter(self._deadlines))])
            self._deadlines[connection] = self._clock() + PATIENCE
        return True

    def hold(self, connection: socket.socket) -> bool:
        """Protect a connection from being closed; return whether it is still open."""
        with self._lock:
            if self._deadlines.pop(connection, None) is None:
                return False
            self._held.add(connection)
        return True

    def release(self, connection: socket.socket) -> None:
        """Allow a connection to be closed, after its client had time to read the reply."""
        with self._lock:
            self._held.discard(connection)
            self._deadlines[connection] = self._clock() + PATIENCE

    def forget(self, connection: socket.socket) -> None:
        """Remove a connection that has ended."""
        with self._lock:
            self._held.discard(connection)
            self._deadlines.pop(connection, None)

    def close_late(self) -> None:
        """Close the connections that have timed out."""
        with self._lock:
            now = self._clock()
            self._close([connection for connection, deadline in self._deadlines.items() if deadline <= now])

    def close_all(self) -> None:
        """Close all connections that are not held."""
        with self._lock:
            self._close(list(self._deadlines))

    def _close(self, connections: Iterable[socket.socket]) -> None:
        for connection in connections:
            del self._deadlines[connection]
            with suppress(OSError):  # the client has closed it already
                connection.shutdown(socket.SHUT_RDWR)  # wakes its thread, which closes it
