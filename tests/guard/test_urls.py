"""Which URLs may be fetched, and at which address; most of these were written to bypass such a check."""

from ipaddress import IPv4Address

import pytest

from helpers.columns import column
from toolsemble import ToolDefinitionError
from toolsemble._runtime.urls import Target, UrlGuard, UrlRefusedError, is_public, resolve

PUBLIC = "93.184.215.14"
CLOSED = [
    "0.0.0.0",  # noqa: S104 - an address that must be refused
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.168.0.1",
    "192.168.255.255",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
]


def octets(address):
    return [int(part) for part in address.split(".")]


def low_half(address):
    return ":".join(f"{int(IPv4Address(address)) >> shift & 0xFFFF:x}" for shift in (16, 0))


def inverted_half(address):
    return ":".join(f"{~int(IPv4Address(address)) >> shift & 0xFFFF:x}" for shift in (16, 0))


def spell_digits(address, zero, dot="."):
    return dot.join("".join(chr(zero + int(digit)) for digit in part) for part in address.split("."))


SPELLINGS = {
    "plain": lambda a: a,
    "root": lambda a: f"{a}.",
    "decimal": lambda a: str(int(IPv4Address(a))),
    "hex": lambda a: hex(int(IPv4Address(a))),
    "HEX": lambda a: f"0X{int(IPv4Address(a)):08X}",
    "octal": lambda a: f"0{int(IPv4Address(a)):o}",
    "overflow": lambda a: str(int(IPv4Address(a)) + 2**32),
    "dotted hex": lambda a: ".".join(hex(part) for part in octets(a)),
    "dotted octal": lambda a: ".".join(f"0{part:o}" for part in octets(a)),
    "long octal": lambda a: ".".join(f"{part:011o}" for part in octets(a)),
    "zeros": lambda a: ".".join(f"{part:03d}" for part in octets(a)),
    "mixed": lambda a: "{:#x}.{}.0{:o}.{}".format(*octets(a)),
    "two parts": lambda a: f"{octets(a)[0]}.{int(IPv4Address(a)) & 0xFFFFFF}",
    "three parts": lambda a: f"{octets(a)[0]}.{octets(a)[1]}.{int(IPv4Address(a)) & 0xFFFF}",
    "part overflow": lambda a: "{}.{}.{}.".format(*octets(a)) + str(octets(a)[3] + 256),
    "fullwidth": lambda a: spell_digits(a, 0xFF10),
    "bold": lambda a: spell_digits(a, 0x1D7CE),
    "ideographic dots": lambda a: spell_digits(a, 0x30, "\u3002"),
    "halfwidth dots": lambda a: spell_digits(a, 0x30, "\uff61"),
    "percent": lambda a: "".join(f"%{ord(letter):02x}" for letter in a),
    "mapped": lambda a: f"[::ffff:{a}]",
    "mapped hex": lambda a: f"[::ffff:{low_half(a)}]",
    "mapped long": lambda a: f"[0:0:0:0:0:ffff:{low_half(a)}]",
    "compatible": lambda a: f"[::{a}]",
    "translated": lambda a: f"[::ffff:0:{a}]",
    "NAT64": lambda a: f"[64:ff9b::{a}]",
    "local NAT64": lambda a: f"[64:ff9b:1::{a}]",
    "6to4": lambda a: f"[2002:{low_half(a)}::1]",
    "Teredo": lambda a: f"[2001:0:4136:e378:8000:63bf:{inverted_half(a)}]",
    "ISATAP": lambda a: f"[2606:4700::5efe:{a}]",
    "global ISATAP": lambda a: f"[2606:4700::200:5efe:{a}]",
    "zone": lambda a: f"[::ffff:{a}%25lo]",
    "plain in brackets": lambda a: f"[{a}]",
}


def public_resolver(host, port):
    """A resolver that says of everything that it is public, so that only the guard's own reading protects."""
    return [PUBLIC]


@pytest.mark.parametrize("address", CLOSED)
def test_private_ipv4_address_is_rejected_in_every_spelling(address):
    for spelling, spell in SPELLINGS.items():
        host = spell(address)
        for url in (f"http://{host}/", f"https://{host}:8443/latest?x=1", f"HTTP://{host}"):
            with column(spelling), pytest.raises(UrlRefusedError):
                UrlGuard(resolver=public_resolver).check(url)


@pytest.mark.parametrize(
    "host",
    ["[::]", "[::1]", "[0:0:0:0:0:0:0:1]", "[fe80::1]", "[fec0::1]", "[fc00::1]", "[fd00:ec2::254]", "[fd20:ce::254]",
     "[ff02::1]", "[100::1]", "[2001:db8::1]", "[2001:2::1]", "[2001:10::1]", "[3fff::1]", "[5f00::1]", "[4000::1]"],
)  # fmt: skip
def test_private_ipv6_address_is_rejected(host):
    with pytest.raises(UrlRefusedError, match="not a public address"):
        UrlGuard(resolver=public_resolver).check(f"http://{host}/")


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "192.0.1.1", "223.255.255.255"])
def test_public_ipv4_address_is_allowed(address):
    assert UrlGuard(resolver=public_resolver).check(f"http://{address}/x") == Target(
        "http", address, 80, "/x", (address,)
    )


def test_public_ipv6_address_is_allowed():
    target = UrlGuard(resolver=public_resolver).check("https://[2606:4700::1111]:8443/x?y=1#z")
    assert target == Target("https", "2606:4700::1111", 8443, "/x?y=1", ("2606:4700::1111",))
    assert target.url == "https://[2606:4700::1111]:8443/x?y=1"


@pytest.mark.parametrize("answer", [[address] for address in CLOSED] + [["::1"], ["fe80::1%lo"], ["no address"]])
@pytest.mark.parametrize("others", [[], [PUBLIC]])
def test_name_that_resolves_to_a_private_address_is_rejected(answer, others):
    with pytest.raises(UrlRefusedError) as refusal:
        UrlGuard(resolver=lambda host, port: [*others, *answer]).check("http://rebound.example/")
    assert str(refusal.value) == "Access denied: 'rebound.example' is not a public address"


def test_name_is_resolved_once():
    asked = []

    def rebinding(host, port):
        asked.append((host, port))
        return [PUBLIC] if len(asked) == 1 else ["127.0.0.1"]

    guard = UrlGuard(resolver=rebinding)
    assert guard.check("https://Example.com/").addresses == (PUBLIC,)
    assert asked == [("example.com", 443)]
    with pytest.raises(UrlRefusedError):
        guard.check("https://example.com/")


def test_all_addresses_are_checked_and_few_are_tried():
    many = [f"8.8.8.{last}" for last in range(100)]
    assert UrlGuard(resolver=lambda host, port: many).check("http://a.example").addresses == tuple(many[:4])
    with pytest.raises(UrlRefusedError):
        UrlGuard(resolver=lambda host, port: [*many, "10.0.0.1"]).check("http://a.example")


@pytest.mark.parametrize(
    "url",
    ["http://localhost/", "http://LOCALHOST:8080", "http://localhost./", "http://127.0.0.1:81/", "http://[::1]/"],
)
def test_localhost_is_rejected_with_the_system_resolver(url):
    with pytest.raises(UrlRefusedError, match="is not a public address"):
        UrlGuard().check(url)


@pytest.mark.parametrize(
    "scheme", ["file", "ftp", "gopher", "data", "javascript", "dict", "ldap", "jar", "ws", "view-source"]
)
def test_only_http_and_https_are_allowed(scheme):
    with pytest.raises(UrlRefusedError, match=f"only http and https URLs can be fetched, not '{scheme}'"):
        UrlGuard(resolver=public_resolver).check(f"{scheme}://example.com/")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "must begin with http:// or https://"),
        ("example.com", "must begin with http:// or https://"),
        ("//example.com/", "must begin with http:// or https://"),
        ("http:", "has no host"),
        ("http:/example.com", "has no host"),
        ("http:///path", "has no host"),
        ("http://?x", "has no host"),
        ("http:\\\\example.com", "has no host"),
        ("http://example.com\\@127.0.0.1/", "backslash"),
        ("http://user@example.com/", "user name or password"),
        ("http://user:pass@example.com/", "user name or password"),
        ("http://example.com@127.0.0.1/", "user name or password"),
        ("http://example.com:80@127.0.0.1/", "user name or password"),
        ("http://:80/", "is not a host and a port"),
        ("http://example.com:80:81/", "is not a host and a port"),
        ("http://example.com:x/", "is not a host and a port"),
        ("http://example.com:-1/", "is not a host and a port"),
        ("http://example.com:\u0663/", "is not a host and a port"),
        ("http://[::1/", "is not a host and a port"),
        ("http://[]/", "is not an IPv6 address"),
        ("http://[::1%25lo]/", "is not an IPv6 address"),
        ("http://example.com:65536/", "port 65536 does not exist"),
        ("http://exa\tmple.com/", "control characters"),
        ("http://example.com/a\r\nHost: evil", "control characters"),
        ("http://example.com/\x00", "control characters"),
        ("http://example.com/\ud800", "control characters"),
        ("http://exa mple.com/", "is not a host name"),
        ("http://example%2ecom/", "is not a host name"),
        ("http://a..b/", "is not a host name"),
        ("http://./", "is not a host name"),
        ("http://-a.example/", "is not a host name"),
        ("http://\u2028.example/", "is not a host name"),
        (f"http://{'a' * 64}.example/", "is not a host name"),
        (f"http://{'a.' * 127}example/", "is not a host name"),
        (f"http://example.com/{'a' * 9000}", "characters; 8192 is the limit"),
        ("http://example.com:22/", "port 22 is not a web port"),
        ("http://example.com:25/", "port 25 is not a web port"),
        ("http://example.com:0/", "port 0 is not a web port"),
    ],
)
def test_ambiguous_url_is_rejected(url, problem):
    with pytest.raises(UrlRefusedError) as refusal:
        UrlGuard(resolver=public_resolver).check(url)
    assert problem in str(refusal.value)


def test_error_truncates_a_long_url():
    with pytest.raises(UrlRefusedError) as refusal:
        UrlGuard().check("x" * 5000)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize(
    ("url", "clean"),
    [
        (" http://example.com\n", "http://example.com/"),
        ("http://example.com?q=a b", "http://example.com/?q=a%20b"),
        ("HTTP://EXAMPLE.com:80/A#part", "http://example.com/A"),
        ("http://example.com:", "http://example.com/"),
        ("https://example.com:443/%41%zz", "https://example.com/%41%zz"),
        ("http://example.com./\u00fc\\x", "http://example.com/%C3%BC%5Cx"),
        ("http://b\u00fccher.example/", "http://xn--bcher-kva.example/"),
        ("http://fa\u00df.example/", "http://xn--fa-hia.example/"),
        ("http://my_host.example:8080/", "http://my_host.example:8080/"),
    ],
)
def test_url_is_normalized(url, clean):
    assert UrlGuard(resolver=public_resolver).check(url).url == clean


def failing_resolver(problem):
    def resolver(host, port):
        raise problem

    return resolver


@pytest.mark.parametrize(
    "resolver",
    [
        failing_resolver(OSError("no such name")),
        failing_resolver(UnicodeError("label too long")),
        lambda host, port: [],
    ],
)
def test_unresolvable_name_is_reported(resolver):
    with pytest.raises(UrlRefusedError, match=r"Cannot resolve host 'nowhere\.example'; check"):
        UrlGuard(resolver=resolver).check("http://nowhere.example/")


@pytest.mark.parametrize(
    ("allowed", "url", "addresses"),
    [
        ("127.0.0.1", "http://127.0.0.1:25/", ("127.0.0.1",)),
        ("::1", "http://[::1]/", ("::1",)),
        ("[::1]", "http://[::1]/", ("::1",)),
        ("Intranet", "http://intranet/", ("10.0.0.7",)),
        ("intranet", "http://INTRANET:8080/", ("10.0.0.7",)),
        ("b\u00fccher", "http://B\u00fccher/", ("10.0.0.7",)),
        ("2130706433", "http://2130706433/", ("10.0.0.7",)),
    ],
)
def test_allowed_host_can_have_a_private_address(allowed, url, addresses):
    guard = UrlGuard([allowed], resolver=lambda host, port: ["10.0.0.7"])
    assert guard.check(url).addresses == addresses


@pytest.mark.parametrize(
    ("allowed", "url"),
    [
        ("127.0.0.1", "http://localhost/"),
        ("localhost", "http://127.0.0.1/"),
        ("localhost", "http://localhost./"),
        ("127.0.0.1", "http://2130706433/"),
        ("127.0.0.1", "http://[::ffff:127.0.0.1]/"),
        ("::1", "http://[0:0:0:0:0:0:0:1]/"),
        ("intranet", "http://sub.intranet/"),
        ("intranet", "http://intranet@10.0.0.7/"),
    ],
)
def test_allowed_host_matches_only_its_exact_name(allowed, url):
    with pytest.raises(UrlRefusedError):
        UrlGuard([allowed], resolver=lambda host, port: ["10.0.0.7"]).check(url)


@pytest.mark.parametrize(
    "hosts",
    ["localhost", b"localhost", 7, None, [None], [""], ["[]"], ["http://localhost"], ["localhost:80"], ["*.local"],
     ["a b"], ["a/b"]],
)  # fmt: skip
def test_rejects_invalid_list_of_hosts(hosts):
    with pytest.raises(ToolDefinitionError, match="allow_hosts"):
        UrlGuard(hosts)


def test_system_resolver_returns_each_address_once():
    assert resolve("127.0.0.1", 80) == ["127.0.0.1"]
    assert set(resolve("localhost", 80)) <= {"127.0.0.1", "::1"}


@pytest.mark.parametrize("text", ["", "localhost", "1.2.3", "01.2.3.4", "1.2.3.4 "])
def test_text_that_is_not_an_address_is_not_public(text):
    assert not is_public(text)
