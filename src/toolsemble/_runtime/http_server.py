"""HTTP servers of this library: how uvicorn serves an application, and the host names that may reach it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_HEAD = 32_768
"""The most bytes of a request's line and headers."""
SECONDS = 30.0
"""How long a client may take to send a whole request."""

_UNFINISHED = (h11.IDLE, h11.SEND_BODY)


def bound_server(connections: int, seconds: float = SECONDS) -> dict[str, Any]:
    """Return the settings of a ``uvicorn.Config`` that bound what clients can hold open without asking for anything.

    A connection whose request is not complete in time is closed. Above the number of connections, the one that has
    waited longest for its request is closed; if all are busy, the new one is answered with 503.

    :param connections: the most connections at one time
    :param seconds: the time for a whole request, its headers and its body

    >>> bound_server(100)["limit_concurrency"]
    101
    """
    waiting: dict[BoundedProtocol, None] = {}

    class Protocol(BoundedProtocol):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._bound(waiting, connections, seconds)

    return {
        "http": Protocol,
        "ws": "none",
        "h11_max_incomplete_event_size": MAX_HEAD,
        "limit_concurrency": connections + 1,  # uvicorn refuses at this number
    }


class BoundedProtocol(H11Protocol):
    """A connection that is closed if its request does not arrive."""

    def _bound(self, waiting: dict[BoundedProtocol, None], most: int, seconds: float) -> None:
        """Set the limits.

        :param waiting: the connections without a complete request, the oldest first; shared by those of a server
        """
        self._waiting = waiting
        self._most = most
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the base class
        """Start to wait for a request; make room for it if there are too many connections."""
        super().connection_made(transport)
        if len(self.connections) > self._most and self._waiting:
            oldest = next(iter(self._waiting))
            oldest._stop_waiting()  # noqa: SLF001 - of this class; many may come before the first one is lost
            oldest.transport.abort()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop to wait."""
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Handle what was received, also after a response; wait for the rest of the request."""
        super().handle_events()
        self._watch()

    def _watch(self) -> None:
        is_waiting = self.conn.their_state in _UNFINISHED and not self.transport.is_closing()
        if not is_waiting:
            self._stop_waiting()
        elif self._timer is None:
            self._waiting[self] = None
            self._timer = self.loop.call_later(self._seconds, self.transport.abort)

    def _stop_waiting(self) -> None:
        self._waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@dataclass(frozen=True, slots=True)
class Hosts:
    """The values of the header ``Host`` that are accepted: a page of another name, rebound to this address, is not.

    >>> hosts = Hosts()
    >>> [hosts.accepts(each) for each in ("127.0.0.1:7771", "localhost.", "[::1]:80", "evil.example", "a@127.0.0.1")]
    [True, True, True, False, False]
    """

    names: frozenset[str] = frozenset()
    """Further names under which the server is reached."""
    addresses: bool = False
    """Whether any IP address is accepted; the name of a page can be rebound, its address cannot."""

    @classmethod
    def build(cls, names: Iterable[str], *, addresses: bool) -> Hosts:
        """Return the hosts for names in any case; an IPv6 address may have brackets."""
        return cls(frozenset(name.lower().removesuffix(".").strip("[]") for name in names), addresses)

    def accepts(self, host: str) -> bool:
        """Return whether a value of ``Host`` is accepted, with any port."""
        name = _read_name(host)
        if name == "localhost" or name.endswith(".localhost") or name in self.names:
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return False
        return self.addresses or address.is_loopback

    def accepts_origin(self, origin: str) -> bool:
        """Return whether a value of ``Origin`` is a page of an accepted host.

        >>> [Hosts().accepts_origin(f"http://{each}") for each in ("localhost:80", "localhost:80.evil.example", "")]
        [True, False, False]
        """
        scheme, separator, host = origin.partition("://")
        return bool(separator) and scheme.lower() in ("http", "https") and self.accepts(host)


def _read_name(host: str) -> str:
    """Return the name in a Host header, without port; empty if there is more in it than a name and a port."""
    if any(sign in host for sign in "@/?#\\ "):
        return ""
    try:
        parts = urlsplit(f"//{host}")
        parts.port  # noqa: B018 - raises if it is not a number
        return (parts.hostname or "").removesuffix(".")
    except ValueError:
        return ""
