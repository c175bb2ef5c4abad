"""A client of a server over HTTP, in both versions of the protocol."""

import asyncio
import json
import threading

import httpx
import httpx2
import pytest
from mcp.client import session as sdk_session
from mcp.server.sse import SseServerTransport
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from helpers import mcp_sample as sample
from helpers.mcp_plain_http import PlainHandler
from helpers.mcp_servers import run_app, run_handler
from helpers.wait import until
from toolsemble import AudioContent, FileContent, ImageContent, Toolbox, ToolCall, ToolConfigurationError
from toolsemble._engine.limits.effect_ledger import EffectLedger
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.events import CallProgress
from toolsemble.mcp import MCPClient
from toolsemble.mcp._client import session
from toolsemble.mcp._client.tool_screening import Screen, ScreenedReader
from toolsemble.review import Continue, Edit, ExitEarly


@pytest.fixture(scope="module")
def modern():
    """Return the URL of a server of the newest version."""
    with run_app(sample.build().streamable_http_app(host="127.0.0.1")) as address:
        yield f"{address}/mcp"


@pytest.fixture
def handshake():
    """Return the URL of a server of the handshake version."""
    PlainHandler.log.clear()
    with run_handler(PlainHandler) as address:
        yield address


def call(client, name, box=None, **arguments):
    return (box or Toolbox(list(client))).execute(ToolCall(name, arguments)).result


class Person:
    def __init__(self, *decisions):
        self.decisions = list(decisions)
        self.requests = []

    def review(self, request):
        self.requests.append(request)
        return self.decisions.pop(0)


def test_tools_of_a_url_are_tools_of_a_toolbox(modern):
    with MCPClient.http(modern, name="sample") as client:
        assert client.protocol_version == "2026-07-28"
        assert client.instructions == "Handle with care."
        assert call(client, "echo", text="hello").output == "hello"


async def test_async_callers_use_a_url(modern):
    async with MCPClient.http(modern) as client:
        box = Toolbox([*client])
        replies = await box.aexecute_all([ToolCall("echo", {"text": str(number)}) for number in range(10)])
    assert [reply.text for reply in replies] == [str(number) for number in range(10)]


def test_all_kinds_of_contents_are_read(modern):
    with MCPClient.http(modern) as client:
        result = call(client, "contents")
    assert result.output == "first\ninside\nResource: c <https://example.com/c> (The c)"
    assert result.contents == (
        ImageContent(b"\x89PNG\r\n\x1a\n", "image/png"),
        AudioContent(b"\0\0\0", "audio/wav"),
        FileContent(b"\0\1\2", "application/x-bin", "b.bin"),
    )


def test_structured_content_is_checked(modern):
    with MCPClient.http(modern, name="sample") as client:
        structured, wrong, missing, listed = (
            call(client, name) for name in ("structured", "wrong_structured", "no_structured", "list_structured")
        )
    assert (structured.output, structured.structured_output) == ('{"hour":12}', {"hour": 12})
    assert (listed.output, listed.structured_output) == ("[1,2]", [1, 2])
    assert wrong.error_message == (
        "The answer of the MCP server 'sample' cannot be used: its structured content does not fit its output schema: "
        "hour: expected an integer; it is unknown whether the call took effect"
    )
    assert "the answer has no structured content" in missing.error_message


def test_metadata_of_an_answer_is_an_attribute(modern):
    with MCPClient.http(modern) as client:
        assert call(client, "meta").attributes["meta"] == {"com.example/y": 2}


def test_an_error_without_a_text_has_a_message(modern):
    with MCPClient.http(modern) as client:
        assert call(client, "fail").error_message == "The server reported an error without a message"


def test_progress_becomes_events(modern):
    events = []
    with MCPClient.http(modern) as client:
        Toolbox([*client], sinks=[events.append]).execute(ToolCall("progress", {}))
    seen = [(each.fraction, each.message) for each in events if isinstance(each, CallProgress)]
    assert seen == [(0.25, "step 1"), (0.5, "step 2"), (1.0, "step 4")]


class SlowSignIn:
    """A server of the newest version whose first answer comes too late for the SDK, as if a person had to sign in."""

    def __init__(self, app, restore_limit):
        self.app = app
        self.restore_limit = restore_limit
        self.methods = []
        self.asked_for_an_older_version = asyncio.Event()

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        message = await receive()
        method = json.loads(message["body"])["method"]
        self.methods.append(method)
        if method == "initialize":
            self.restore_limit()
            self.asked_for_an_older_version.set()
            refusal = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Not this version"}}
            await JSONResponse(refusal, 400)(scope, receive, send)
            return
        if len(self.methods) == 1:
            await self.asked_for_an_older_version.wait()
        first = iter([message])

        async def repeat():
            return next(first, None) or await receive()

        await self.app(scope, repeat, send)


def test_a_slow_sign_in_does_not_make_a_server_an_old_one(monkeypatch):
    monkeypatch.setattr(sdk_session, "DISCOVER_TIMEOUT_SECONDS", 0.2)
    app = SlowSignIn(sample.build().streamable_http_app(host="127.0.0.1"), monkeypatch.undo)
    with run_app(app) as address, MCPClient.http(f"{address}/mcp") as client:
        assert client.protocol_version == "2026-07-28"
        assert call(client, "echo", text="hello").output == "hello"
    assert sorted(app.methods[:3]) == ["initialize", "server/discover", "server/discover"]


def test_changed_tools_are_seen(modern):
    with MCPClient.http(modern) as client:
        call(client, "change", text="added_later")
        until(lambda: "added_later" in [tool.name for tool in client.current()])


def test_headers_and_a_token_are_sent(modern):
    with MCPClient.http(modern, auth="secret", headers={"X-Team": "web"}) as client:
        assert call(client, "headers").output == "Bearer secret web"


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_an_auth_object_is_used(modern, library):
    with MCPClient.http(modern, auth=library.BasicAuth("ada", "pw")) as client:
        assert call(client, "headers").output == "Basic YWRhOnB3 None"


def test_a_timeout_cancels_the_request(modern):
    with MCPClient.http(modern, name="sample", timeout=0.3) as client:
        result = call(client, "hang")
        assert call(client, "echo", text="still there").output == "still there"
    assert result.error_message.startswith(
        "The MCP server 'sample' did not answer within 0.3 s; the call was cancelled"
    )


# --- questions


@pytest.mark.parametrize(
    ("decisions", "answer"),
    [
        ([Edit('{"city": "Rome"}')], {"action": "accept", "content": {"city": "Rome", "days": 3}}),
        ([Edit('{"city": "Rome", "days": 5}')], {"action": "accept", "content": {"city": "Rome", "days": 5}}),
        (
            [Edit("Rome"), Edit("[]"), Edit('{"city": "Rome"}')],
            {"action": "accept", "content": {"city": "Rome", "days": 3}},
        ),
        ([Edit('{"city": 5}')] * 3, {"action": "decline", "content": None}),
        ([Continue()], {"action": "decline", "content": None}),
        ([ExitEarly("no")], {"action": "decline", "content": None}),
        ([ExitEarly("late", timed_out=True)], {"action": "cancel", "content": None}),
    ],
)
def test_questions_of_a_server_go_to_the_reviewer_of_the_toolbox(modern, decisions, answer):
    person = Person(*decisions)
    with MCPClient.http(modern, name="sample") as client:
        result = call(client, "ask", Toolbox([*client], review=person))
    assert json.loads(result.output) == answer
    request = person.requests[0]
    assert request.description == "The MCP server 'sample' asks: Which city?"
    assert request.tool_name == "ask"
    assert request.timing.name == "DURING_EXECUTION"
    assert list(request.arguments["fields"]) == ["city", "days"]
    assert len(person.requests) == len(decisions)


async def test_an_async_call_asks_the_reviewer_of_the_client_first(modern):
    mine, other = Person(Edit('{"city": "Rome"}')), Person()
    async with MCPClient.http(modern, review=mine) as client:
        result = (await Toolbox([*client], review=other).aexecute(ToolCall("ask", {}))).result
    assert json.loads(result.output)["action"] == "accept"
    assert other.requests == []


def test_a_url_is_shown_and_not_opened(modern):
    person = Person(Continue(), Edit("x"))
    with MCPClient.http(modern) as client:
        box = Toolbox([*client], review=person)
        assert [call(client, "open_url", box).output for _ in range(2)] == ["accept", "decline"]
    assert person.requests[0].arguments == {"url": "https://example.com/sign-in"}


def test_a_reviewer_that_fails_declines(modern):
    with MCPClient.http(modern) as client:
        result = call(client, "ask", Toolbox([*client], review=Person()))
    assert json.loads(result.output)["action"] == "decline"


@pytest.mark.parametrize(("review", "asks"), [(None, "False"), (Person(), "True")])
def test_the_capability_to_ask_is_stated_only_with_a_reviewer(modern, review, asks):
    with MCPClient.http(modern, review=review) as client:
        assert call(client, "capabilities").output == asks
    with MCPClient.http(modern) as client:
        assert call(client, "capabilities", Toolbox([*client], review=review)).output == asks


def test_the_time_of_a_person_does_not_count(modern):
    answered = threading.Event()

    class Slow:
        def review(self, request):
            answered.wait(1.2)
            return Edit('{"city": "Rome"}')

    with MCPClient.http(modern, timeout=1.0) as client:
        assert json.loads(call(client, "ask", Toolbox([*client], review=Slow())).output)["action"] == "accept"


# --- servers that misbehave


def test_a_handshake_server_is_used(handshake):
    with MCPClient.http(handshake, name="web") as client:
        assert client.protocol_version == "2025-11-25"
        assert call(client, "echo", text="hello").output == "hello"


def test_a_session_that_the_server_has_forgotten_is_opened_again(handshake):
    with MCPClient.http(handshake, effects="read") as client:
        assert call(client, "forget").output == "forgotten"
        assert call(client, "echo", text="again").output == "again"
    assert PlainHandler.log == ["session", "forget", "session", "echo"]


def test_a_call_that_may_not_be_repeated_is_not_sent_again_when_its_session_is_forgotten(handshake):
    with MCPClient.http(handshake, name="web") as client:
        call(client, "forget")
        assert call(client, "echo", text="lost").error_message == (
            "The MCP server 'web' ended before it answered (it has ended the session); "
            "it is unknown whether the call took effect"
        )
        assert call(client, "echo", text="again").output == "again"
    assert PlainHandler.log == ["session", "forget", "session", "echo"]


@pytest.mark.parametrize("name", ["cut", "cut_body", "cut_stream"])
def test_a_connection_that_breaks_leaves_the_outcome_unknown(handshake, name):
    with MCPClient.http(handshake, name="web") as client:
        result = call(client, name)
        assert call(client, "echo", text="again").output == "again"
    assert result.error_message.startswith("The MCP server 'web' ended before it answered (")
    assert result.error_message.endswith("; it is unknown whether the call took effect")
    assert PlainHandler.log.count(name) == 1


def test_a_call_that_may_be_repeated_is_repeated_once(handshake):
    with MCPClient.http(handshake, effects="read") as client:
        call(client, "cut")
    assert PlainHandler.log.count("cut") == 2


@pytest.mark.parametrize("name", ["huge", "packed"])
def test_a_body_that_is_too_long_is_refused(handshake, name):
    with MCPClient.http(handshake, max_message=100_000) as client:
        result = call(client, name)
        assert call(client, "echo", text="again").output == "again"
    assert "bytes (max_message)" in result.error_message


def test_a_server_that_does_not_answer_a_farewell_is_left(monkeypatch):
    monkeypatch.setattr(session, "_PATIENCE", 0.2)
    end = threading.Event()

    class Stubborn(PlainHandler):
        def do_DELETE(self):  # noqa: N802 - the name that the standard library wants
            end.wait(60)
            super().do_DELETE()

    with run_handler(Stubborn) as address:
        with MCPClient.http(address) as client:
            assert call(client, "echo", text="a").output == "a"
        end.set()


def test_an_answer_may_be_a_stream_of_events(handshake):
    with MCPClient.http(handshake) as client:
        assert call(client, "streamed").output == "streamed"


def test_other_answers_are_failures(handshake):
    with MCPClient.http(handshake, name="web") as client:
        assert "Unexpected content type: text/plain" in call(client, "plain_text").error_message
        assert call(client, "unavailable").error_message == (
            "The answer of the MCP server 'web' cannot be used: HTTP 503 Service Unavailable; "
            "it is unknown whether the call took effect"
        )
        assert call(client, "own_code").error_message == "The MCP server 'web' reported an error: out of tea"


def test_a_call_that_is_refused_for_its_token_took_no_effect(handshake):
    ledger = EffectLedger()
    with MCPClient.http(handshake, name="web", idempotency=True) as client:
        result = call(client, "sign_out", Toolbox([*client], ledger=ledger))
    assert result.error_message == "The MCP server 'web' refused the request: HTTP 401 Unauthorized"
    assert not ledger.unknown()


class Closed(PlainHandler):
    def parse_request(self):
        return super().parse_request() and self.reply(403, b"")


class ClosedList(PlainHandler):
    def answer(self, number, result, *more):
        if "tools" in result:
            self.reply(403, b"")
        else:
            super().answer(number, result, *more)


@pytest.mark.parametrize(("handler", "transport"), [(Closed, "http"), (Closed, "sse"), (ClosedList, "http")])
def test_a_server_that_wants_other_credentials_says_so(handler, transport):
    with run_handler(handler) as address, pytest.raises(ToolConfigurationError) as raised:
        MCPClient.http(f"{address}?key=secret", name="web", transport=transport).start()
    assert str(raised.value) == (
        "The MCP server 'web' cannot be reached: HTTP 403 Forbidden; pass auth= or headers= that it accepts"
    )


class Elsewhere(PlainHandler):
    def do_POST(self):  # noqa: N802 - the name that the standard library wants
        self.log.append(self.headers["Authorization"])


def test_a_token_does_not_follow_a_redirect_to_another_origin():
    Elsewhere.log.clear()
    with run_handler(Elsewhere) as other:

        class Moved(PlainHandler):
            def do_POST(self):  # noqa: N802 - as above
                self.rfile.read(int(self.headers["content-length"]))
                self.reply(307, b"", location=other)

        with run_handler(Moved) as address, pytest.raises(ToolConfigurationError, match=f"Redirect to {other}"):
            MCPClient.http(address, auth="t").start()
    assert Elsewhere.log == []


class Briefly(PlainHandler):
    protocol_version = "HTTP/1.0"  # a connection for each request


def test_a_server_that_has_gone_cannot_be_reached():
    with run_handler(Briefly) as address:
        client = MCPClient.http(address, name="web").start()
        box = Toolbox([*client])
    text = box.execute(ToolCall("echo", {"text": "a"})).text
    assert text.startswith("Error: The MCP server 'web' cannot be reached: ")
    client.close()


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_a_url_where_nothing_answers_fails_the_start(transport):
    with run_handler(PlainHandler) as address:
        pass
    before = threading.active_count()
    with pytest.raises(ToolConfigurationError) as raised:
        MCPClient.http(address, name="web", transport=transport).start()
    assert str(raised.value).startswith("The MCP server 'web' cannot be reached: ")
    until(lambda: threading.active_count() <= before)


def test_a_legacy_event_stream_is_used():
    sse, server = SseServerTransport("/messages/"), sample.build()

    async def connect(request):
        async with sse.connect_sse(request.scope, request.receive, request._send) as streams:
            await server.run(*streams, server.create_initialization_options())
        return Response()

    app = Starlette(routes=[Route("/sse", connect), Mount("/messages/", app=sse.handle_post_message)])
    with run_app(app) as address, MCPClient.http(f"{address}/sse", transport="sse", auth="t") as client:
        assert call(client, "echo", text="hello").output == "hello"


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("npx server", {}, "MCPClient.http takes a URL that begins with http:// or https://, not 'npx server'"),
        ("http://[", {}, "MCPClient.http takes a URL"),
        (5, {}, "MCPClient.http takes a URL"),
        ("https://a.b", {"transport": "ws"}, "MCPClient.http transport must be 'http' or 'sse', not 'ws'"),
        ("https://a.b", {"auth": 5}, "MCPClient.http auth must be a token, an auth object of httpx"),
        ("https://a.b", {"headers": {"a": 1}}, "MCPClient headers must map str to str"),
    ],
)
def test_a_wrong_target_is_refused(url, options, message):
    with pytest.raises(ToolDefinitionError) as raised:
        MCPClient.http(url, **options)
    assert str(raised.value).startswith(message)


async def test_a_message_that_cannot_be_read_reaches_the_sdk_as_an_exception():
    problem = ValueError("not a message")

    class Stream:
        async def __anext__(self):
            return problem

    screen = Screen("sample", max_message=100, max_tools=10, may_ask=False, on_break=list)
    assert await anext(ScreenedReader(Stream(), screen)) is problem
