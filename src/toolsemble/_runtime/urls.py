"""Decide whether a URL may be fetched, and resolve it to the addresses to connect to.

A host name is resolved once. The checked addresses are part of the result, and the client connects to these only, so
a name that resolves to another address later (DNS rebinding) has no effect.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias
from urllib.parse import quote

from toolsemble._runtime.text import quote_text
from toolsemble._vocabulary.errors import ToolDefinitionError, ToolExecutionError

# Not globally reachable by IANA's registry of special addresses, or reserved by cloud providers.
_IPV4_CLOSED = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network; the kernel routes it to this machine
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's platform address
        "169.254.0.0/16",  # link-local, with the metadata services of most clouds
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_IPV6_OPEN = IPv6Network("2000::/3")  # the only allocated space
_IPV6_CLOSED = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # special protocols, such as Teredo, which embeds an IPv4 address
        "2001:db8::/32",
        "2002::/16",  # 6to4, which embeds an IPv4 address
        "3fff::/20",
    )
)
_ISATAP = {0x00005EFE, 0x02005EFE}  # the third quarter of an address that embeds an IPv4 address


def is_public(address: str) -> bool:
    """Return whether an address is public; an IPv4-mapped or IPv4-embedding IPv6 address is not.

    >>> is_public("93.184.215.14"), is_public("2606:4700::1111")
    (True, True)
    >>> is_public("169.254.169.254"), is_public("::ffff:93.184.215.14"), is_public("not an address")
    (False, False, False)
    """
    try:
        found = ip_address(address)
    except ValueError:
        return False
    if isinstance(found, IPv4Address):
        return not any(found in network for network in _IPV4_CLOSED)
    if found not in _IPV6_OPEN or any(found in network for network in _IPV6_CLOSED):
        return False
    return (int(found) >> 32) & 0xFFFFFFFF not in _ISATAP


Resolver: TypeAlias = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a host name, for a port; raises OSError if there are none."""

_PORTS = {"http": 80, "https": 443}
_LAST_PORT = 65535
_LONGEST = 8192
_MOST_ADDRESSES = 4

# Ports of other protocols, whose servers could interpret a request as commands: the Fetch standard's bad ports.
_CLOSED_PORTS = frozenset(
    [0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109,
     110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531,
     532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060,
     5061, 6000, 6379, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080, 11211]
)  # fmt: skip

_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_URL = re.compile(r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*):(?://(?P<authority>[^/?#\\]*)(?P<rest>[^#]*))?")
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>[0-9]{0,5}))?")
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_][a-z0-9_-]{0,62})*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_KEPT = "/?%:@!$&'()*+,;=~-._"


class UrlRefusedError(ToolExecutionError):
    """The URL may not be fetched; the message is for the model.

    >>> UrlGuard().check("file:///etc/passwd")
    Traceback (most recent call last):
    ...
    toolsemble._runtime.urls.UrlRefusedError: Access denied: only http and https URLs can be fetched, not 'file'
    """


@dataclass(frozen=True, slots=True)
class Target:
    """The parts of a URL that may be fetched, and the addresses to connect to.

    >>> target = UrlGuard(resolver=lambda host, port: ["93.184.215.14"]).check("HTTPS://Example.com:443/a b#c")
    >>> target.url, target.addresses
    ('https://example.com/a%20b', ('93.184.215.14',))
    """

    scheme: str
    """``http`` or ``https``."""
    host: str
    """The host name, or an address without brackets, for the Host header and the certificate."""
    port: int
    """The port; the scheme's default if the URL has none."""
    path: str
    """The path and query, percent-encoded."""
    addresses: tuple[str, ...]
    """The checked addresses, to be tried in this order."""

    @property
    def origin(self) -> str:
        """Scheme, host and port; without the port if it is the scheme's default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}"

    @property
    def url(self) -> str:
        """The normalized URL, without a fragment."""
        return f"{self.origin}{self.path}"


def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host name from the system's resolver.

    >>> resolve("127.0.0.1", 80)
    ['127.0.0.1']
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class UrlGuard:
    """A filter for URLs: http and https, with public addresses or allowed hosts.

    :param allow_hosts: host names or addresses that are allowed although they are not public; compared with the host
        as written in the URL, not with the addresses it resolves to
    :param resolver: returns the addresses of a host name; the system's resolver by default

    >>> UrlGuard().check("http://0x7f000001/")
    Traceback (most recent call last):
    ...
    toolsemble._runtime.urls.UrlRefusedError: Access denied: '0x7f000001' is not a host; \
write addresses as 1.2.3.4
    >>> UrlGuard(["127.0.0.1"]).check("http://127.0.0.1:8080/status").addresses
    ('127.0.0.1',)
    """

    def __init__(self, allow_hosts: Iterable[str] = (), *, resolver: Resolver = resolve) -> None:
        self._allowed = check_hosts(allow_hosts)
        self._resolver = resolver

    def check(self, url: str) -> Target:
        """Return the target of a URL; raise UrlRefusedError if it may not be fetched. May wait for DNS."""
        scheme, authority, path = _split(url)
        written, port = _host_and_port(authority, scheme)
        host, is_allowed = _to_ascii(written), written in self._allowed
        if not is_allowed and _is_odd_address(host):
            raise UrlRefusedError(f"Access denied: {quote_text(written)} is not a host; write addresses as 1.2.3.4")
        if not is_allowed and port in _CLOSED_PORTS:
            raise UrlRefusedError(f"Access denied: port {port} is not a web port; use 80 or 443")
        addresses = self._addresses(host, port)
        if not (is_allowed or all(map(is_public, addresses))):
            raise UrlRefusedError(refusal(written))
        return Target(scheme, host, port, path, tuple(addresses[:_MOST_ADDRESSES]))

    def refuses(self, host: str) -> bool:
        """Return whether a host is known to be refused; names are not resolved, except ``localhost``."""
        if host in self._allowed:
            return False
        if _parse_address(host) is None:
            return host == "localhost" and self._resolver is resolve
        return not is_public(host)

    def _addresses(self, host: str, port: int) -> Sequence[str]:
        if _parse_address(host) is not None:
            return [host]
        try:
            found = self._resolver(host, port)
        except (OSError, UnicodeError):
            found = ()
        if not found:
            raise UrlRefusedError(f"Cannot resolve host {quote_text(host)}; check the spelling")
        return found


def refusal(host: str) -> str:
    """Return the message for a host that is not public.

    >>> refusal("10.0.0.7")
    "Access denied: '10.0.0.7' is not a public address"
    """
    return f"Access denied: {quote_text(host)} is not a public address"


def host_of(url: str) -> str:
    """Return the host of a URL as written, in lower case and without brackets; raise UrlRefusedError if it has none.

    >>> host_of("http://[::1]:8080/status")
    '::1'
    """
    scheme, authority, _ = _split(url)
    return _host_and_port(authority, scheme)[0]


def check_hosts(hosts: Iterable[str]) -> frozenset[str]:
    """Return the hosts in lower case, without brackets; raise ToolDefinitionError for anything else.

    >>> check_hosts("localhost")
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: allow_hosts must be a list of host names or addresses, not 'localhost'
    """
    if isinstance(hosts, (str, bytes)) or not isinstance(hosts, Iterable):
        raise ToolDefinitionError(f"allow_hosts must be a list of host names or addresses, not {hosts!r:.80}")
    return frozenset(_check_entry(host) for host in hosts)


def _check_entry(host: object) -> str:
    if isinstance(host, str):
        plain = host.lower().removeprefix("[").removesuffix("]")
        if plain and (_parse_address(plain) is not None or not re.search(r"[\s/@:*?#%\\\[\]]", plain)):
            return plain
    raise ToolDefinitionError(
        f"allow_hosts: {host!r:.80} is not a host; write a name or an address, without scheme, port or wildcard"
    )


def _split(url: str) -> tuple[str, str, str]:
    """Return the scheme, the authority, and the percent-encoded path with query."""
    text = url.strip(" \t\r\n")
    if len(text) > _LONGEST:
        raise UrlRefusedError(f"Invalid URL: it has {len(text)} characters; {_LONGEST} is the limit")
    if _FORBIDDEN.search(text):
        raise UrlRefusedError("Invalid URL: it has control characters")
    found = _URL.match(text)
    if found is None:
        raise UrlRefusedError(f"Invalid URL: {quote_text(text)}; it must begin with http:// or https://")
    scheme = found["scheme"].lower()
    if scheme not in _PORTS:
        raise UrlRefusedError(f"Access denied: only http and https URLs can be fetched, not {quote_text(scheme)}")
    if not found["authority"]:
        raise UrlRefusedError(f"Invalid URL: {quote_text(text)} has no host")
    rest = found["rest"]
    if rest[:1] == "\\":  # parsed as a slash by some clients, as part of the host by others
        raise UrlRefusedError("Invalid URL: it has a backslash after the host")
    return scheme, found["authority"], quote(rest if rest[:1] == "/" else f"/{rest}", safe=_KEPT)


def _host_and_port(authority: str, scheme: str) -> tuple[str, int]:
    """Return the host as written, in lower case and without brackets, and the port."""
    if "@" in authority:
        raise UrlRefusedError("Access denied: a URL must not contain a user name or password")
    found = _AUTHORITY.fullmatch(authority)
    if found is None or not found["host"]:
        raise UrlRefusedError(f"Invalid URL: {quote_text(authority)} is not a host and a port")
    port = int(found["port"] or _PORTS[scheme])
    if port > _LAST_PORT:
        raise UrlRefusedError(f"Invalid URL: port {port} does not exist")
    host = found["host"]
    if host[0] == "[":
        if not isinstance(_parse_address(host[1:-1]), IPv6Address):
            raise UrlRefusedError(f"Invalid URL: {quote_text(host)} is not an IPv6 address")
        host = host[1:-1]
    return host.lower(), port


def _is_odd_address(host: str) -> bool:
    """Return whether a host is an address in an unusual spelling, such as a single number."""
    return _parse_address(host) is None and _NUMBER.fullmatch(host.rpartition(".")[2]) is not None


def _to_ascii(written: str) -> str:
    """Return a host name in ASCII (IDNA), without a trailing dot."""
    if _parse_address(written) is not None:
        return written
    name = written
    if not name.isascii():
        import idna  # rarely needed; every HTTP client depends on it

        try:
            name = idna.encode(name, uts46=True).decode()
        except idna.IDNAError:
            raise UrlRefusedError(f"Invalid URL: {quote_text(written)} is not a host name") from None
    name = name.removesuffix(".")
    if not _NAME.fullmatch(name):
        raise UrlRefusedError(f"Invalid URL: {quote_text(written)} is not a host name")
    return name


def _parse_address(host: str) -> IPv4Address | IPv6Address | None:
    """Return a host as an address; None if it is not one, or has a zone."""
    try:
        return None if "%" in host else ip_address(host)
    except ValueError:
        return None
