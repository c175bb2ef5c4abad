"""A thread that waits for notifications of the server, and wakes those who wait in this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from toolsemble._runtime.fork_locks import fork_safe_lock

if TYPE_CHECKING:
    from toolsemble._runtime.storage.postgres.driver import Link

_ROUND = 1.0  # seconds after which the thread looks whether somebody still waits
_PAUSE = 1.0  # seconds before it connects again


class Listener:
    """The functions to call when a channel has news; a thread listens while there are any.

    They are also called when listening begins, or begins again: there may have been news meanwhile.

    :param connect: returns a new connection
    """

    def __init__(self, connect: Callable[[], Link], channel: str) -> None:
        self._connect = connect
        self._channel = channel
        self._lock = fork_safe_lock(self)
        self._process = os.getpid()
        self._watchers: dict[object, Callable[[], object]] = {}
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def add(self, changed: Callable[[], object]) -> Callable[[], None]:
        """Call a function for each notification; return a function that ends this."""
        key = object()
        with self._lock:
            if self._process != os.getpid():  # a forked process has no thread, and nobody who waits
                self._process, self._watchers, self._thread = os.getpid(), {}, None
            self._watchers[key] = changed
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="toolsemble-listener", daemon=True)
                self._thread.start()

        def end() -> None:
            with self._lock:
                self._watchers.pop(key, None)

        return end

    def close(self) -> None:
        """Stop listening, within a second."""
        self._closed.set()

    def _run(self) -> None:
        while self._is_needed():
            try:
                with self._connect() as link:
                    link.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
                    self._wake()
                    while self._is_needed():
                        if list(link.notifies(timeout=_ROUND, stop_after=1)):
                            self._wake()
            except psycopg.Error:
                self._closed.wait(_PAUSE)  # those who wait look from time to time by themselves

    def _is_needed(self) -> bool:
        with self._lock:
            if self._watchers and not self._closed.is_set():
                return True
            self._thread = None
            return False

    def _wake(self) -> None:
        with self._lock:
            watchers = list(self._watchers.values())
        for changed in watchers:
            changed()
