"""The names under which an HTTP server of this library is reached: what ``Host`` and ``Origin`` may say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit


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
