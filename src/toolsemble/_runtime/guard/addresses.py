"""Decide whether an IP address is public."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address

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
