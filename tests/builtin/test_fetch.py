"""Tests of HTTP exchanges with servers that are slow, huge, broken or redirecting."""

import asyncio
import gzip
import math
import shutil
import socket
import ssl
import subprocess
import threading
import zlib

import pytest

from helpers.web_server import serving
from toolsemble import ToolDefinitionError
from toolsemble._runtime.urls import UrlGuard, UrlRefusedError
from toolsemble.builtin._fetch import Fetcher, FetchError, Request, _system_tls

pytestmark = pytest.mark.slow

LIMIT = 1000


@pytest.fixture
def web():
    with serving() as web:
        yield web


def make_fetcher(*, allow_hosts=("127.0.0.1",), timeout=30, limit=LIMIT, tls=None, resolver=None):
    guard = UrlGuard(allow_hosts, resolver=resolver) if resolver else UrlGuard(allow_hosts)
    return Fetcher(guard, timeout=timeout, limit=limit, tls=tls)


def fetch(url, method="GET", headers=(), body=b"", **settings):
    return asyncio.run(make_fetcher(**settings).fetch(Request(method, url, dict(headers), body)))


def test_response_has_body_status_and_headers(web):
    web.answers["/"] = (
        201,
        {"Content-Type": "text/plain; charset='latin-1'", "X-Name": "é".encode().decode("latin-1")},
        b"hi",
    )
    response = fetch(web.url())
    assert (response.url, response.status, response.body, response.truncated) == (web.url(), 201, b"hi", False)
    assert (response.media_type, response.charset, response.headers["x-name"]) == ("text/plain", "latin-1", "é")


@pytest.mark.parametrize("content_type", ["", "text/html", "text/html; boundary=x"])
def test_charset_is_optional(web, content_type):
    web.answers["/"] = (200, {"Content-Type": content_type}, b"hi")
    assert fetch(web.url()).charset == ""


def test_header_that_is_not_utf8_is_read_as_latin1(web):
    def odd(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Name: \xe9\r\nContent-Length: 0\r\n\r\n")

    web.answers["/"] = odd
    assert fetch(web.url()).headers["x-name"] == "é"


def test_request_headers_are_sent(web):
    web.answers["/a%20b"] = b"ok"
    fetch(web.url("/a b"), headers={"X-Own": "1", "user-agent": "mine"})
    assert web.requests == [
        (
            "GET",
            "/a%20b",
            {"Host": web.url("")[7:], "Accept-Encoding": "gzip", "Accept": "*/*", "X-Own": "1", "user-agent": "mine"},
            b"",
        )
    ]


def test_proxy_environment_variables_are_ignored(web, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    web.answers["/"] = b"direct"
    assert fetch(web.url()).body == b"direct"


@pytest.mark.parametrize("size", [LIMIT - 1, LIMIT, LIMIT + 1, LIMIT * 500])
@pytest.mark.parametrize("packed", [False, True])
def test_body_is_read_up_to_the_limit(web, size, packed):
    body = b"0" * size
    web.answers["/"] = (200, {"Content-Encoding": "gzip"}, gzip.compress(body)) if packed else (200, {}, body)
    response = fetch(web.url())
    assert (response.body, response.truncated) == (body[:LIMIT], size > LIMIT)


def test_gzip_body_without_output_is_truncated(web):
    packer = zlib.compressobj(wbits=31)
    nothing = packer.compress(b"") + b"".join(
        packer.flush(zlib.Z_FULL_FLUSH) or b"\0\0\0\xff\xff" for _ in range(LIMIT)
    )
    web.answers["/"] = (200, {"Content-Encoding": "gzip"}, nothing)
    response = fetch(web.url())
    assert (response.body, response.truncated) == (b"", True)


@pytest.mark.parametrize("packing", ["br", "deflate", "zstd", "gzip, gzip"])
def test_unsupported_content_encoding_is_rejected(web, packing):
    web.answers["/"] = (200, {"Content-Encoding": packing}, b"xx")
    with pytest.raises(FetchError, match=f"unsupported content encoding '{packing}'"):
        fetch(web.url())


def test_invalid_gzip_body_fails(web):
    web.answers["/"] = (200, {"Content-Encoding": "gzip"}, b"plain text")
    with pytest.raises(FetchError, match="not valid gzip"):
        fetch(web.url())


@pytest.mark.parametrize("between", [b"", b"\0" * 512])
@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_gzip_with_several_members_is_decompressed(web, between, step):
    packed = between.join([gzip.compress(b"one, "), gzip.compress(b""), gzip.compress(b"two"), b""])

    def in_steps(handler):
        handler.send_response(200)
        handler.send_header("Content-Encoding", "gzip")
        handler.end_headers()
        for start in range(0, len(packed), step):
            handler.wfile.write(packed[start : start + step])

    web.answers["/"] = in_steps
    assert fetch(web.url(), limit=10_000).body == b"one, two"


@pytest.mark.parametrize("size", [LIMIT, LIMIT + 1])
def test_size_limit_covers_all_gzip_members(web, size):
    packed = gzip.compress(b"0" * (LIMIT - 10)) + gzip.compress(b"1" * (size - LIMIT + 10))
    web.answers["/"] = (200, {"Content-Encoding": "gzip"}, packed)
    response = fetch(web.url())
    assert (response.body, response.truncated) == (b"0" * (LIMIT - 10) + b"1" * 10, size > LIMIT)


@pytest.mark.parametrize("end", [1, 5, 12, -9, -8, -1])
@pytest.mark.parametrize("before", [b"", gzip.compress(b"whole")], ids=["first", "second"])
def test_truncated_gzip_is_rejected(web, before, end):
    web.answers["/"] = (200, {"Content-Encoding": "gzip"}, before + gzip.compress(b"a long text")[:end])
    with pytest.raises(FetchError, match="The response ends in the middle of its gzip data"):
        fetch(web.url())


def test_trailing_data_after_gzip_is_rejected(web):
    web.answers["/"] = (200, {"Content-Encoding": "gzip"}, gzip.compress(b"one") + b"two")
    with pytest.raises(FetchError, match="not valid gzip"):
        fetch(web.url())


def test_too_many_gzip_members_are_rejected(web):
    web.answers["/"] = (200, {"Content-Encoding": "gzip"}, gzip.compress(b"") * 1001)
    with pytest.raises(FetchError, match="more than 1000 gzip members"):
        fetch(web.url(), limit=100_000)


def test_empty_response_may_have_content_encoding(web):
    web.answers["/"] = (204, {"Content-Encoding": "gzip"}, b"")
    assert fetch(web.url()).body == b""


def test_requests_and_responses_are_not_logged(web):
    web.answers["/"] = (200, {"X-Key": "t0p-s3cret"}, b"t0p-s3cret")
    request = Request("POST", web.url("/?key=t0p-s3cret"), {"X-Key": "t0p-s3cret"}, b"t0p-s3cret")
    response = asyncio.run(make_fetcher().fetch(request))
    assert (repr(request), repr(response)) == ("Request(method='POST')", "Response(status=200, truncated=False)")


@pytest.mark.parametrize(
    ("status", "body", "failure"),
    [
        (500, "it broke", "HTTP 500: it broke"),
        (404, "x" * 300, "HTTP 404: " + "x" * 200),
        (400, "", "HTTP 400: Bad Request"),
        (799, "", "HTTP 799: unknown status"),
    ],
)
def test_error_status_keeps_body(web, status, body, failure):
    web.answers["/"] = (status, {}, body)
    response = fetch(web.url())
    assert (response.failed, response.failure(response.body.decode())) == (True, failure)


def send_slowly(handler):
    handler.send_response(200)
    handler.end_headers()
    while not handler.server.web.closing.wait(0.02):
        handler.wfile.write(b"x")


def send_nothing(handler):
    handler.server.web.closing.wait(60)


@pytest.mark.parametrize("behavior", [send_slowly, send_nothing])
def test_timeout_covers_whole_exchange(web, behavior):
    web.answers["/"] = behavior
    with pytest.raises(FetchError) as problem:
        fetch(web.url(), timeout=0.3, limit=10**9)
    assert str(problem.value) == "Timed out after 0.3 s"


def test_timeout_covers_name_resolution():
    release = threading.Event()

    def slow(host, port):
        release.wait(60)
        return ["127.0.0.1"]

    try:
        with pytest.raises(FetchError, match=r"Timed out after 0\.2 s"):
            fetch("http://slow.example/", timeout=0.2, resolver=slow)
    finally:
        release.set()


def test_redirect_loop_fails(web):
    web.answers["/"] = (302, {"Location": "/"}, b"")
    with pytest.raises(FetchError, match="Too many redirects: more than 5"):
        fetch(web.url())
    assert len(web.requests) == 6


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", ["/end", "end", "//127.0.0.1:{port}/end", "http://127.0.0.1:{port}/end"])
def test_redirect_is_followed(web, status, location):
    web.answers["/end"] = b"there"
    web.answers["/"] = (status, {"Location": location.format(port=web.url("").rpartition(":")[2])}, b"moved")
    response = fetch(web.url(), headers={"X-Key": "k"})
    assert (response.url, response.body) == (web.url("/end"), b"there")
    assert web.requests[1][2]["X-Key"] == "k"


@pytest.mark.parametrize("status", [300, 304, 302])
def test_redirect_without_a_location_is_returned(web, status):
    web.answers["/"] = (status, {}, b"")
    assert fetch(web.url()).status == status


@pytest.mark.parametrize(
    "location",
    ["http://169.254.169.254/latest/meta-data/", "http://localhost:{port}/", "file:///etc/passwd", "gopher://x/",
     "http://2130706433:{port}/", "http://[::ffff:127.0.0.1]:{port}/", "http://user:pw@127.0.0.1:{port}/", "http://[",
     "http://rebound.example/"],
)  # fmt: skip
def test_every_redirect_is_checked(web, location):
    web.answers["/"] = (302, {"Location": location.format(port=web.url("").rpartition(":")[2])}, b"")
    web.answers["/next"] = (302, {"Location": "/"}, b"")
    with pytest.raises(UrlRefusedError):
        fetch(web.url("/next"), resolver=lambda host, port: ["127.0.0.1"])
    assert [path for _, path, *_ in web.requests] == ["/next", "/"]


def test_private_headers_are_not_sent_to_another_server(web):
    with serving() as other:
        other.answers["/"] = (302, {"Location": web.url("/back")}, b"")
        web.answers["/"] = (307, {"Location": other.url()}, b"")
        web.answers["/back"] = b"back"
        headers = {"Authorization": "Bearer s3cret", "X-Key": "k", "Cookie": "a=b", "Accept": "text/html"}
        assert fetch(web.url(), headers=headers).body == b"back"
        seen = [set(other.requests[0][2]), set(web.requests[1][2])]
    assert seen == [{"Host", "Accept-Encoding", "User-Agent", "Accept"}] * 2


def test_body_is_not_sent_to_another_server(web):
    with serving() as other:
        web.answers["/"] = (307, {"Location": other.url()}, b"")
        with pytest.raises(UrlRefusedError, match="a redirect would send the body to another server"):
            fetch(web.url(), "POST", body=b"private")
        assert other.requests == []


@pytest.mark.parametrize(
    ("status", "method", "body"),
    [(301, "GET", b""), (302, "GET", b""), (303, "GET", b""), (307, "POST", b"x"), (308, "POST", b"x")],
)
def test_redirected_post_becomes_get_unless_status_preserves_method(web, status, method, body):
    web.answers["/"] = (status, {"Location": "/end"}, b"")
    web.answers["/end"] = b"there"
    fetch(web.url(), "POST", {"Content-Type": "text/plain", "X-Key": "k"}, b"x")
    sent = web.requests[1]
    assert (sent[0], sent[3], "Content-Type" in sent[2], sent[2]["X-Key"]) == (method, body, bool(body), "k")


def test_post_without_body_has_content_length_zero(web):
    web.answers["/"] = b"ok"
    fetch(web.url(), "POST")
    assert web.requests[0][2]["Content-Length"] == "0"


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_connection_error_names_server():
    with pytest.raises(FetchError, match=r"Cannot connect to '127\.0\.0\.1'"):
        fetch(f"http://127.0.0.1:{free_port()}/")


@pytest.mark.parametrize(
    "answer", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", b"\0" * 99999]
)
def test_invalid_http_response_names_server(web, answer):
    web.answers["/"] = lambda handler: handler.wfile.write(answer)
    with pytest.raises(FetchError, match=r"'127\.0\.0\.1' sent no valid HTTP response"):
        fetch(web.url())


def test_connection_uses_checked_address_and_url_host(web):
    answers = [["127.0.0.1"], ["203.0.113.1"]]
    web.answers["/"] = b"ok"
    fetch(web.url(host="service.example"), allow_hosts=("service.example",), resolver=lambda host, port: answers.pop(0))
    assert web.requests[0][2]["Host"] == web.url("", host="service.example")[7:]
    assert len(answers) == 1


def test_next_address_is_tried_after_connection_error(web):
    web.answers["/"] = b"ok"
    there = ["::1", "127.0.0.2", "127.0.0.1"]
    assert (
        fetch(web.url(host="multi.example"), allow_hosts=("multi.example",), resolver=lambda host, port: there).body
        == b"ok"
    )


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    subprocess.run(
        [shutil.which("openssl"), "req", "-x509",
         "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=service.example",
         "-addext", "subjectAltName=DNS:service.example", "-keyout", path, "-out", f"{path}.crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    return f"{path}.crt", str(path)


@pytest.fixture
def encrypted(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    names = []
    context.sni_callback = lambda connection, name, context: names.append(name)
    with serving(tls=context) as web:
        web.names = names
        web.answers["/"] = b"private"
        yield web


def test_certificate_must_match_url_host(encrypted, certificate):
    tls = ssl.create_default_context(cafile=certificate[0])
    here = {
        "resolver": lambda host, port: ["127.0.0.1"],
        "tls": tls,
        "allow_hosts": ("service.example", "other.example"),
    }
    assert fetch(encrypted.url(host="service.example"), **here).body == b"private"
    with pytest.raises(FetchError, match=r"Cannot connect to 'other\.example': .*certificate"):
        fetch(encrypted.url(host="other.example"), **here)
    assert encrypted.names == ["service.example", "other.example"]


def test_untrusted_certificate_is_rejected(encrypted):
    here = {"resolver": lambda host, port: ["127.0.0.1"], "allow_hosts": ("service.example",)}
    with pytest.raises(FetchError, match=r"Cannot connect to 'service\.example': .*certificate"):
        fetch(encrypted.url(host="service.example"), **here)
    assert _system_tls() is _system_tls()


@pytest.mark.parametrize("timeout", [0, -1, math.inf, math.nan, True, "30", None])
def test_invalid_time_limit_is_rejected(timeout):
    with pytest.raises(ToolDefinitionError, match="timeout must be a number of seconds"):
        make_fetcher(timeout=timeout)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "30", None])
def test_invalid_size_limit_is_rejected(limit):
    with pytest.raises(ToolDefinitionError, match="max_bytes must be"):
        make_fetcher(limit=limit)
