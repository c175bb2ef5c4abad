"""Tests of HttpTool, called as a model calls it."""

import base64
import json
import logging
import socket
import sys
import threading
from dataclasses import dataclass
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from helpers.sample_tools import Reviewer
from helpers.web_server import serving
from toolsemble import Continue, Edit, Toolbox, ToolCall, ToolDefinitionError
from toolsemble.builtin import HttpTool

pytestmark = pytest.mark.slow


@pytest.fixture
def web():
    with serving() as web:
        yield web


def make_tool(url, *, allow_hosts=("127.0.0.1",), **settings):
    return HttpTool("service", "Does something", url, allow_hosts=allow_hosts, **settings)


def call(tool, arguments, **settings):
    if isinstance(arguments, str):
        arguments = {"input": arguments}
    box = Toolbox([tool], max_output=0, **settings)
    return box.execute(ToolCall(tool.name, json.dumps(arguments))).result


def read_request(web, index=-1):
    method, path, headers, body = web.requests[index]
    return method, path, headers.get("Content-Type"), body


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"title": "Emma"}', "application/json"),
        ("[1, 2]", "application/json"),
        ('"word"', "application/json"),
        ("word", "text/plain; charset=utf-8"),
        ("{not json", "text/plain; charset=utf-8"),
        ("NaN", "text/plain; charset=utf-8"),
        ("[" * 100_000, "text/plain; charset=utf-8"),
        ("Größe\r\nX: y", "text/plain; charset=utf-8"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "post"])
def test_string_is_sent_as_body_with_content_type(web, method, text, kind):
    web.answers["/orders"] = b"done"
    assert call(make_tool(web.url("/orders"), method=method), text).output == "done"
    assert read_request(web) == (method.upper(), "/orders", kind, text.encode())


@pytest.mark.parametrize(
    ("url", "text", "path"),
    [
        ("/find", "rain in Rome", "/find?input=rain%20in%20Rome"),
        ("/find?lang=en", "a&b=c#d", "/find?lang=en&input=a%26b%3Dc%23d"),
        ("/find#part", "ü/?", "/find?input=%C3%BC%2F%3F"),
        ("/find", "\r\nHost: evil", "/find?input=%0D%0AHost%3A%20evil"),
        ("/find/{input}", "a/../b", "/find/a%2F..%2Fb"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_get_sends_string_in_query(web, method, url, text, path):
    web.answers[path] = b"" if method == "HEAD" else b"found"
    assert call(make_tool(web.url(url), method=method), text).is_success
    assert read_request(web) == (method, path, None, b"")


@pytest.mark.parametrize("text", ["", ".", ".."])
def test_value_that_would_change_the_path_is_rejected(web, text):
    assert call(make_tool(web.url("/users/{input}")), text).error_message == f"input: {text!r} is not allowed in a URL"
    assert web.requests == []


async def test_async_call(web):
    web.answers["/"] = b"done"
    reply = await Toolbox([make_tool(web.url())]).aexecute(ToolCall("service", {"input": "x"}))
    assert reply.text == "done"


@dataclass
class Order:
    title: Annotated[str, "The book's title"]
    copies: Annotated[int, Field(ge=1)] = 1
    tags: list[str] | None = None


class Aliased(BaseModel):
    order_id: int = Field(alias="orderId")


def test_typed_tool_sends_its_fields_as_a_json_object(web):
    web.answers["/orders"] = b"done"
    tool = make_tool(web.url("/orders"), input_type=Order)
    assert call(tool, {"title": "Größe", "tags": ["a"]}).output == "done"
    assert read_request(web) == (
        "POST",
        "/orders",
        "application/json",
        '{"title":"Größe","copies":1,"tags":["a"]}'.encode(),
    )
    assert call(tool, {"copies": 0}).error_message.startswith("Invalid arguments for 'Order': title: missing; copies:")
    assert len(web.requests) == 1


def test_typed_get_sends_its_fields_in_the_query(web):
    web.answers["/orders"] = b"done"
    call(make_tool(web.url("/orders"), method="GET", input_type=Order), {"title": "a b", "tags": ["x", "y&z"]})
    assert read_request(web)[1] == "/orders?title=a%20b&copies=1&tags=x&tags=y%26z"


def test_input_type_may_be_local_class(web):
    @dataclass
    class Author:
        name: str

    @dataclass
    class Book:
        author: "Author"

    web.answers["/"] = b"done"
    tool = HttpTool("service", "Does something", web.url(), input_type=Book, allow_hosts=("127.0.0.1",))
    assert call(tool, {"author": {"name": "Jane"}}).output == "done"
    assert read_request(web)[3] == b'{"author":{"name":"Jane"}}'


def test_fields_fill_url_placeholders(web):
    web.answers["/books/a%2Fb"] = b"done"
    call(make_tool(web.url("/books/{title}"), method="PUT", input_type=Order), {"title": "a/b"})
    assert read_request(web) == ("PUT", "/books/a%2Fb", "application/json", b'{"copies":1}')


def test_fields_are_sent_by_alias(web):
    web.answers["/7"] = b"done"
    assert call(make_tool(web.url("/{orderId}"), input_type=Aliased), {"orderId": 7}).output == "done"
    assert read_request(web) == ("POST", "/7", None, b"")


def test_specification_does_not_contain_url():
    specification = Toolbox([make_tool("https://internal.example/v1", input_type=Order)]).specifications[0]
    assert specification.description == "Does something"
    assert list(specification.parameters["properties"]) == ["title", "copies", "tags"]
    assert "internal" not in specification.to_json()
    text = Toolbox([make_tool("https://internal.example/v1")]).specifications[0]
    assert (text.description, list(text.parameters["properties"])) == ("Does something", ["input"])


def test_json_response_is_structured_output(web):
    web.answers["/"] = (200, {"Content-Type": "application/json"}, '{"a": [1, "ü"]}')
    result = call(make_tool(web.url()), "x")
    assert (result.output, result.structured_output) == ('{"a": [1, "ü"]}', {"a": [1, "ü"]})
    assert dict(result.attributes) == {"status": 200}


@pytest.mark.parametrize(
    ("kind", "body"), [("application/json", "{"), ("text/plain", "{}"), ("a/b+json", "[" * 200_000)]
)
def test_other_response_has_no_structured_output(web, kind, body):
    web.answers["/"] = (200, {"Content-Type": kind}, body)
    assert call(make_tool(web.url()), "x").structured_output is None


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (500, "it broke", "HTTP 500: it broke"),
        (404, "x" * 300, "HTTP 404: " + "x" * 200),
        (400, "", "HTTP 400: Bad Request"),
        (799, "", "HTTP 799: unknown status"),
    ],
)
def test_status_of_400_or_more_is_a_failure(web, status, body, message):
    web.answers["/"] = (status, {}, body)
    result = call(make_tool(web.url()), "x")
    assert (result.error_message, dict(result.attributes)) == (message, {"status": status})


@pytest.mark.parametrize("status", [200, 201, 204, 304, 399])
def test_status_below_400_is_a_success(web, status):
    web.answers["/"] = (status, {}, b"" if status in {204, 304} else b"fine")
    assert call(make_tool(web.url()), "x").is_success


def test_response_over_one_mebibyte_is_truncated(web):
    web.answers["/most"] = b"a" * (1 << 20)
    web.answers["/more"] = b"a" * ((1 << 20) + 1)
    assert call(make_tool(web.url("/most")), "x").output == "a" * (1 << 20)
    assert call(make_tool(web.url("/more")), "x").output == "a" * (1 << 20) + "\n[response truncated at 1048576 bytes]"


def test_truncation_inside_a_character_drops_it(web):
    web.answers["/"] = "üüü€€€".encode()
    assert call(make_tool(web.url(), max_bytes=10), "x").output == "üüü€\n[response truncated at 10 bytes]"


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("image/png", b"\x89PNG", "[image/png, 4 bytes, not shown]"),
        ("", b"a\0b", "[binary, 3 bytes, not shown]"),
        ("application/pdf", b"%PDF", "[application/pdf, 4 bytes, not shown]"),
        ("image/svg+xml", b"<svg/>", "<svg/>"),
    ],
)
def test_binary_response_is_described(web, kind, body, text):
    web.answers["/"] = (200, {"Content-Type": kind}, body)
    assert call(make_tool(web.url()), "x").output == text


def test_headers_and_auth_are_sent(web):
    web.answers["/"] = b"done"
    call(make_tool(web.url(), headers={"X-Own": "1", "content-type": "text/xml"}, auth="the-token"), "<x/>")
    headers = web.requests[0][2]
    assert (headers["X-Own"], headers["Authorization"], headers["content-type"]) == (
        "1",
        "Bearer the-token",
        "text/xml",
    )
    assert "Content-Type" not in headers
    call(make_tool(web.url(), auth=("ada", "pass:word")), "x")
    assert base64.b64decode(web.requests[1][2]["Authorization"].removeprefix("Basic ")) == b"ada:pass:word"


def echo_request(handler):
    named = ("Authorization", "X-Api-Key", "X-Signed", "Cookie")
    shown = json.dumps([handler.path, *(handler.headers[name] for name in named if name in handler.headers)])
    status = 500 if "fail" in handler.path else 200
    handler.send(status, {"Content-Type": "application/json"}, shown)


@pytest.mark.parametrize(
    "settings",
    [
        {"auth": "t0p-s3cret"},
        {"auth": ("ada", "t0p-s3cret")},
        {"headers": {"X-Api-Key": "t0p-s3cret"}},
        {"headers": {"Authorization": "Token t0p-s3cret"}},
        {"headers": {"Authorization": f"basic {base64.b64encode(b'ada:t0p-s3cret').decode()}"}},
        {"headers": {"X-Signed": "by {KEY}"}, "secrets": {"KEY": "t0p-s3cret"}},
        {"secrets": {"KEY": "t0p-s3cret"}, "path": "?key={KEY}"},
        {"secrets": {"KEY": 't0p-s3cret" &'}, "path": "?key={KEY}"},
        {"headers": {"Cookie": "session=t0p-s3cret"}},
    ],
)
@pytest.mark.parametrize("path", ["/ok", "/fail"])
def test_secrets_are_sent_but_never_shown(web, caplog, settings, path):
    caplog.set_level(logging.DEBUG)
    settings = dict(settings)
    web.answers[path] = echo_request
    tool = make_tool(web.url(path) + settings.pop("path", ""), **settings)
    result = call(tool, "x")
    arrived = str(web.requests)
    assert "t0p-s3cret" in arrived or base64.b64encode(b"ada:t0p-s3cret").decode() in arrived
    assert "***" in result.text
    assert "t0p-s3cret" not in f"{result!r}{caplog.text}{tool!r}{Toolbox([tool]).specifications}"
    assert base64.b64encode(b"ada:t0p-s3cret").decode() not in result.text


@pytest.mark.parametrize(
    ("settings", "text", "shown"),
    [
        ({"secrets": {"PIN": "123"}}, "pin 123, not 1234 or x123", "pin ***, not 1234 or x123"),
        ({"auth": "abc"}, "abc abcd Bearer abc", "*** abcd ***"),
        ({"auth": ("ada", "pw")}, "pw, pwd", "***, pwd"),
        ({"headers": {"X-Tenant": "acme-corporation"}}, "for acme-corporation", "for ***"),
        ({"headers": {"X-Sent-By": "id=long-number-7; v=1"}}, "long-number-7 v=1", "*** v=1"),
        ({"headers": {"X-Tenant": "acme"}}, "acme", "acme"),
        ({"headers": {"X-Session-Mode": "on"}}, "on", "on"),
        ({"headers": {"X-Token": "Key f00d"}}, "f00d", "***"),
        ({"headers": {"accept": "application/json"}}, "application/json", "application/json"),
        ({"secrets": {"KEY": "a&b c<d"}}, "a&amp;b c&lt;d a%26b+c%3Cd a%26b%20c%3Cd", "*** *** ***"),
        ({"secrets": {"KEY": ""}}, "nothing to hide", "nothing to hide"),
    ],
)
def test_secrets_are_masked_in_every_encoding(web, settings, text, shown):
    web.answers["/"] = text
    assert call(make_tool(web.url(), **settings), "x").output == shown


@pytest.mark.parametrize("kept", range(1, len("t0p-s3cret")))
@pytest.mark.parametrize("status", [200, 500])
def test_truncation_inside_a_secret_shows_no_part_of_it(web, status, kept):
    web.answers["/"] = (status, {}, "seen t0p-s3cret and more")
    text = call(make_tool(web.url(), auth="t0p-s3cret", max_bytes=5 + kept), "x").text
    assert text == (
        "Error: HTTP 500: seen ***" if status == 500 else f"seen ***\n[response truncated at {5 + kept} bytes]"
    )


def test_truncation_inside_a_character_of_a_secret_shows_no_part_of_it(web):
    web.answers["/"] = (200, {"Content-Type": "text/plain; charset=utf-16"}, "\ufeff: t0p-s3cret".encode("utf-16-le"))
    assert call(make_tool(web.url(), auth="t0p-s3cret", max_bytes=15), "x").output.startswith(": ***\n")


def test_truncation_outside_secret_keeps_text(web):
    web.answers["/"] = "a long text"
    assert call(make_tool(web.url(), auth="0123", max_bytes=6), "x").output == "a long\n[response truncated at 6 bytes]"


def test_secrets_are_not_logged():
    settings = {"headers": {"X-Key": "t0p-s3cret"}, "secrets": {"KEY": "t0p-s3cret"}}
    tool = make_tool("https://example.com/?key=t0p-s3cret", **settings)
    assert "t0p-s3cret" not in repr(tool._endpoint)


def test_invalid_basic_header_is_masked(web):
    web.answers["/"] = echo_request
    assert "not-base64!" not in call(make_tool(web.url(), headers={"Authorization": "Basic not-base64!"}), "x").output


def test_unknown_placeholders_are_kept(web):
    web.answers["/"] = b"done"
    call(make_tool(web.url(), headers={"X-Filter": "{a}"}), "x")
    assert web.requests[0][2]["X-Filter"] == "{a}"


def test_url_in_error_shows_no_secret():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    result = call(make_tool(f"http://127.0.0.1:{port}/t0p-s3cret", secrets={"KEY": "127.0.0.1"}), "x")
    assert result.error_message.startswith("Cannot connect to '***'")


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.7", "[::1]", "localhost", "169.254.169.254", "LOCALHOST"])
def test_a_private_address_is_denied_when_the_tool_is_made(host):
    plain = host.strip("[]").lower()
    with pytest.raises(ToolDefinitionError) as refused:
        make_tool(f"http://{host}:8080/orders", allow_hosts=())
    assert str(refused.value) == (
        f"Tool 'service': Access denied: '{plain}' is not a public address; if it may be reached, pass "
        f"allow_hosts=['{plain}']"
    )
    assert make_tool(f"http://{host}:8080/orders", allow_hosts=[plain]).name == "service"


def test_a_name_of_a_private_address_is_denied_with_advice_when_it_is_called():
    private = make_tool("http://intranet/orders", allow_hosts=(), resolver=lambda *_: ["10.0.0.7"])
    assert call(private, "x").error_message == (
        "Access denied: 'intranet' is not a public address; the program that made this tool can pass "
        "allow_hosts=['intranet']"
    )


def test_a_name_is_resolved_when_the_tool_is_called():
    assert make_tool("http://localhost/x", allow_hosts=(), resolver=lambda *_: ["93.184.215.14"]).name == "service"


def test_a_url_that_is_not_one_is_refused_when_the_tool_is_made():
    with pytest.raises(ToolDefinitionError, match="Tool 'service': Invalid URL: port 99999 does not exist"):
        make_tool("http://example.com:99999/x")


@pytest.mark.parametrize(
    ("status", "text"), [(204, "Done (204 No Content)"), (200, "Done (200 OK)"), (299, "Done (299 unknown status)")]
)
def test_an_empty_answer_is_reported_as_done(web, status, text):
    web.answers["/"] = (status, {}, b"")
    result = call(make_tool(web.url()), "x")
    assert (result.output, result.structured_output, result.attributes["status"]) == (text, None, status)


def test_allow_hosts_applies_to_every_redirect(web):
    web.answers["/"] = (302, {"Location": web.url("/", host="localhost")}, b"")
    result = call(make_tool(web.url(), method="GET"), "x")
    assert result.error_message == "Access denied: 'localhost' is not a public address"


class Flaky:
    """Fails so often, then answers."""

    def __init__(self, *failures):
        self.failures = list(failures)

    def __call__(self, handler):
        failure = self.failures.pop(0) if self.failures else None
        if failure is None:
            handler.send(200, {}, b"" if handler.command == "HEAD" else b"at last")
        elif failure != "hang up":
            handler.send(failure, {}, b"later")


@pytest.mark.parametrize("failures", [(503,), (502, 504), ("hang up", 503)])
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_safe_methods_are_retried(web, method, failures):
    web.answers["/"] = Flaky(*failures)
    assert call(make_tool(web.url(), method=method), "x").is_success
    assert len(web.requests) == len(failures) + 1


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("failure", [503, "hang up"])
def test_unsafe_methods_are_not_retried(web, method, failure):
    web.answers["/"] = Flaky(failure)
    assert not call(make_tool(web.url(), method=method), "x").is_success
    assert len(web.requests) == 1


@pytest.mark.parametrize(
    ("failure", "retries", "requests"), [(500, 2, 1), (404, 2, 1), (503, 0, 1), (503, 1, 2), (503, 2, 3)]
)
def test_only_temporary_errors_are_retried_a_limited_number_of_times(web, failure, retries, requests):
    web.answers["/"] = Flaky(*[failure] * 9)
    assert call(make_tool(web.url(), method="GET", retries=retries), "x").error_message == f"HTTP {failure}: later"
    assert len(web.requests) == requests


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_timeout_covers_whole_call(web, method):
    web.answers["/"] = lambda handler: handler.server.web.closing.wait(60)
    assert call(make_tool(web.url(), method=method, timeout=0.3), "x").error_message == "Timed out after 0.3 s"


def test_approval_shows_method_url_and_body_but_no_secret(web):
    web.answers["/orders"] = b"done"
    reviewer = Reviewer(Continue())
    tool = make_tool(web.url("/orders?key={KEY}"), secrets={"KEY": "t0p-s3cret"}, requires_approval=True)
    assert call(tool, "Emma", review=reviewer).output == "done"
    request = reviewer.requests[0]
    assert (
        request.description
        == f"POST {web.url('/orders')}?key={{KEY}}\nDoes something\nAn edit replaces the body, as plain text."
    )
    assert request.arguments == "Emma"


@pytest.mark.parametrize(
    ("settings", "form"),
    [
        ({"method": "GET"}, "Does something\nAn edit replaces the input, as plain text."),
        ({"input_type": Order}, "Does something\nAn edit replaces all arguments, as one JSON object."),
        ({"input_type": Order, "editable": "title"}, "Does something\nAn edit replaces 'title', as plain text."),
        ({"approval_description": "It costs money"}, "It costs money\nAn edit replaces the body, as plain text."),
    ],
)
def test_reviewer_sees_editable_body(settings, form):
    tool = make_tool("https://example.com/", **settings)
    assert tool.approval_description.partition("\n")[2] == form


def test_edit_replaces_the_body(web):
    web.answers["/orders"] = b"done"
    call(
        make_tool(web.url("/orders"), requires_approval=True), "Emma", review=Reviewer(Edit('{"title": "Persuasion"}'))
    )
    assert read_request(web) == ("POST", "/orders", "application/json", b'{"title": "Persuasion"}')


def test_edit_of_a_typed_tool_replaces_its_arguments(web):
    web.answers["/orders"] = b"done"
    reviewer = Reviewer(Edit('{"title": "Persuasion"}'))
    tool = make_tool(web.url("/orders"), input_type=Order, requires_approval=True)
    call(tool, {"title": "Emma"}, review=reviewer)
    assert reviewer.requests[0].arguments == {"title": "Emma", "copies": 1, "tags": None}
    assert read_request(web)[3] == b'{"title":"Persuasion","copies":1}'


def test_concurrent_calls_are_independent(web):
    together = threading.Barrier(8, timeout=30)

    def meeting(handler):
        together.wait()
        handler.send(200, {}, handler.path.encode())

    web.answers["/"] = meeting
    box = Toolbox([make_tool(web.url(), method="GET")])
    replies = box.execute_all([ToolCall("service", {"input": str(each)}) for each in range(8)])
    assert [reply.text for reply in replies] == [f"/?input={each}" for each in range(8)]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"url": "ftp://example.com"}, "url must begin with http"),
        ({"url": "https://user:pw@example.com"}, "url must begin with http"),
        ({"url": "https://{host}/"}, "url must begin with http"),
        ({"url": "https:///x"}, "url must begin with http"),
        ({"url": None}, "url must begin with http"),
        ({"method": "TRACE"}, "method must be one of"),
        ({"method": None}, "method must be one of"),
        ({"headers": {"Host": "evil"}}, "'Host' cannot be set"),
        ({"headers": {"Content-Length": "1"}}, "cannot be set"),
        ({"headers": {"A b": "1"}}, "cannot be set"),
        ({"headers": {7: "1"}}, "cannot be set"),
        ({"headers": {"X": "a\r\nY: b"}}, "the value of 'X' must be one line"),
        ({"headers": {"X": "€"}}, "the value of 'X' must be one line"),
        ({"headers": {"X": 1}}, "the value of 'X' must be one line"),
        ({"auth": "a\nb"}, "the value of 'Authorization' must be one line"),
        ({"auth": ("only",)}, "auth must be a bearer token"),
        ({"auth": 7}, "auth must be a bearer token"),
        ({"secrets": {"A B": "x"}}, "secrets: 'A B' must be a name"),
        ({"secrets": {"A": 1}}, "secrets: 'A' must be a name"),
        ({"secrets": {"A": "x\ny"}}, "secrets: 'A' must be a name"),
        ({"retries": -1}, "retries must be"),
        ({"retries": True}, "retries must be"),
        ({"timeout": 0}, "timeout must be a number"),
        ({"max_bytes": 0}, "max_bytes must be"),
        ({"allow_hosts": "localhost"}, "allow_hosts must be a list"),
        ({"input_type": str}, "str"),
    ],
)
def test_invalid_settings_are_rejected_at_definition(settings, problem):
    with pytest.raises(ToolDefinitionError, match=problem):
        make_tool(**{"url": "https://example.com/"} | settings)


def test_auth_error_does_not_show_value():
    with pytest.raises(ToolDefinitionError) as problem:
        make_tool("https://example.com", auth=["ada", "t0p-s3cret"])
    assert "t0p" not in str(problem.value)


def test_unknown_setting_is_rejected():
    with pytest.raises(TypeError, match="HttpTool has no setting 'retry'; the settings are "):
        make_tool("https://example.com", retry=1)


@pytest.mark.parametrize("settings", [{}, {"input_type": Order}])
def test_unfilled_placeholder_is_rejected(settings):
    with pytest.raises(ToolDefinitionError, match=r"Tool 'service': no argument or secret for \{id\} in the URL"):
        Toolbox([make_tool("https://example.com/{id}", **settings)])


def test_redirect_does_not_send_body_to_another_server(web):
    with serving() as other:
        web.answers["/"] = (307, {"Location": other.url()}, b"")
        assert "would send the body to another server" in call(make_tool(web.url()), "x").error_message
        assert other.requests == []


def test_missing_package_error_names_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, "toolsemble.builtin._fetch")
    monkeypatch.setitem(sys.modules, "httpcore2", None)
    with pytest.raises(ToolDefinitionError, match=r"HttpTool needs the package 'httpcore2': .*\[http\]"):
        make_tool("https://example.com")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_placeholders_in_model_text_are_not_filled(web, method):
    web.answers["/"] = b"done"
    call(
        make_tool(web.url(), method=method, headers={"X-Key": "{KEY}"}, secrets={"KEY": "t0p-s3cret"}),
        "{KEY} %7BKEY%7D",
    )
    _, path, _, body = web.requests[0]
    assert "t0p-s3cret" not in path + body.decode()
