"""The HTTP side of a served toolbox: hosts, origins, bodies, tokens, callers, mounting."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import Annotated

import httpx2
import pytest
from fastapi import FastAPI
from mcp import MCPError
from mcp.server.auth.provider import AccessToken
from mcp_types import ElicitResult, InputRequiredResult
from starlette.applications import Starlette
from starlette.routing import Mount

from helpers.mcp_server import ERAS, SECONDS, connect, run_app, serve_http, text_of
from toolsemble import (
    EffectLedger,
    MemoryId,
    SchemaTool,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolDefinitionError,
    tool,
)
from toolsemble.mcp import Caller, asgi, serve

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
ACCEPT = {"accept": "application/json, text/event-stream"}


@tool
def whoami(memory_id: Annotated[str, MemoryId], context: ToolContext) -> str:
    """Return the caller."""
    return f"{memory_id} by {context.agent_role}"


def post(url, headers=None, body=INITIALIZE):
    """Send the first request of a client."""
    content = body if isinstance(body, bytes) else json.dumps(body)
    given = {**ACCEPT, "content-type": "application/json", **(headers or {})}
    return httpx2.post(f"{url}/mcp", headers=given, content=content, timeout=SECONDS)


@pytest.fixture(scope="module")
def local():
    with run_app(asgi(Toolbox([whoami]))) as url:
        yield url


@pytest.fixture(scope="module")
def public():
    with run_app(asgi(Toolbox([whoami]), allowed_hosts=["Tools.example.com", "[2001:db8::1]"])) as url:
        yield url


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:8000", 200),
        ("localhost:8000", 200),
        ("[::1]:8000", 200),
        ("evil.example.com", 421),
        ("localhost.evil.com", 421),
        ("127.0.0.1.evil.com", 421),
        ("127.0.0.1:80.evil.com", 421),
        ("localhost:evil.com", 421),
        ("localhost:80@evil.com", 421),
        ("[::1]:80.evil.com", 421),
        ("tools.example.com", 421),
    ],
)
def test_only_loopback_is_a_host_by_default(local, host, status):
    assert post(local, {"host": host}).status_code == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("tools.example.com", 200),
        ("tools.example.com:443", 200),
        ("localhost", 200),
        ("[2001:db8::1]:8000", 200),
        ("sub.tools.example.com", 421),
        ("tools.example.com.evil.com", 421),
        ("", 421),
    ],
)
def test_allowed_hosts_are_reached_with_any_port(public, host, status):
    assert post(public, {"host": host}).status_code == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3000", 200),
        ("https://tools.example.com", 200),
        ("https://evil.example.com", 403),
        ("https://tools.example.com.evil.com", 403),
        ("https://tools.example.com:443.evil.com", 403),
        ("http://localhost:80@evil.com", 403),
        ("http://localhost:3000/page", 403),
        ("null", 403),
        ("file://", 403),
    ],
)
def test_an_origin_must_be_allowed(public, origin, status):
    assert post(public, {"origin": origin}).status_code == status


@pytest.mark.parametrize(("region", "status"), [("eu", 200), ("us", 400), (None, 400)])
def test_a_header_that_a_schema_names_must_agree_with_the_arguments(region, status):
    properties = {"region": {"type": "string", "x-mcp-header": "Region"}}
    plan = SchemaTool("plan", "Plan a trip", lambda arguments: "planned", {"type": "object", "properties": properties})
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "plan", "arguments": {"region": "eu"}, "_meta": meta}
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "plan"}
    sent = {**headers, "mcp-param-region": region} if region else headers
    with run_app(asgi(Toolbox([plan, whoami]))) as url:
        answer = post(url, sent, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    assert answer.status_code == status


@pytest.mark.parametrize("header", [{"host": "evil.com"}, {"origin": "https://evil.com"}])
def test_the_era_without_sessions_is_checked_as_well(local, header):
    version = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}
    assert post(local, {**version, **header}).status_code in {403, 421}


def test_a_large_body_is_refused(local):
    assert post(local, body=b'"' + b"x" * (4 * 2**20) + b'"').status_code == 413


def test_a_large_body_of_unknown_length_is_refused(local):
    answer = httpx2.post(
        f"{local}/mcp",
        headers={**ACCEPT, "content-type": "application/json"},
        content=(b" " * 65_536 for _ in range(80)),
        timeout=SECONDS,
    )
    assert answer.status_code == 413


def test_a_body_with_two_lengths_is_refused(local):
    lengths = "Content-Length: 2\r\nTransfer-Encoding: chunked"
    assert send_raw(local, f"POST /mcp HTTP/1.1\r\nHost: localhost\r\n{lengths}\r\n\r\n").startswith("HTTP/1.1 400 ")


def send_raw(url, text):
    """Return the first line of the answer to a request that no client would send."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), SECONDS) as connection:
        connection.sendall(text.encode())
        return connection.makefile().readline()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"jsonrpc": "2.0"}', b"\xff", b"[" * 100_000])
def test_a_bad_body_is_a_client_error(local, body):
    assert 400 <= post(local, body=body).status_code < 500


def test_another_content_type_is_refused(local):
    assert post(local, {"content-type": "text/plain"}).status_code == 400


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "[::]", "tools.example.com"])  # noqa: S104 - refused
def test_another_address_needs_allowed_hosts(host):
    with pytest.raises(ToolConfigurationError, match="can be reached from other machines: pass allowed_hosts="):
        serve(Toolbox([whoami]), http=f"{host}:8000")


@pytest.mark.parametrize("address", ["8000", "127.0.0.1", "127.0.0.1:", ":8000", "127.0.0.1:http", "h:70000", ""])
def test_an_address_has_a_host_and_a_port(address):
    with pytest.raises(ToolConfigurationError, match="http must be an address such as"):
        serve(Toolbox([whoami]), http=address)


@pytest.mark.parametrize("name", ["https://a.com", "a.com:443", "*", "", None, "a.com/", "*.a.com"])
def test_an_allowed_host_is_a_plain_name(name):
    with pytest.raises(ToolConfigurationError, match="names without a scheme or a port"):
        asgi(Toolbox([whoami]), allowed_hosts=[name])


def test_allowed_hosts_are_a_list():
    with pytest.raises(ToolConfigurationError, match="must be a list of names"):
        asgi(Toolbox([whoami]), allowed_hosts="a.com")


@pytest.mark.parametrize("setting", [{"allowed_hosts": ["a.com"]}, {"issuer_url": "https://a.com"}])
def test_settings_of_http_are_refused_on_standard_streams(setting):
    with pytest.raises(ToolConfigurationError, match=f"{next(iter(setting))} is for HTTP"):
        serve(Toolbox([whoami]), **setting)


PROGRAM = """
import sys
from toolsemble import Toolbox, tool
from toolsemble.mcp import serve

@tool
def now() -> str:
    return "noon"

serve(Toolbox([now]), http=sys.argv[1])
"""


@pytest.mark.slow
async def test_serve_listens_at_an_address_until_it_is_interrupted(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with subprocess.Popen([sys.executable, str(program), address]) as process:  # noqa: ASYNC220 - it starts at once
        try:
            await wait_for_port(address)
            async with connect(f"http://{address}") as client:
                assert text_of(await client.call_tool("now", {})) == "noon"
        finally:
            os.kill(process.pid, signal.SIGINT)
        assert process.wait(SECONDS) in {0, -signal.SIGINT}


async def wait_for_port(address):
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection(*address.split(":"))
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


class Verifier:
    """A verifier of tokens that are a client, a subject and a resource, joined by slashes."""

    async def verify_token(self, token):
        if token.count("/") != 2:
            return None
        client, subject, resource = token.split("/")
        return AccessToken(
            token=token,
            client_id=client,
            scopes=["read"],
            subject=subject or None,
            resource=f"https://{resource}",
            claims={"iss": "https://issuer.example.com"},
        )


def bearer(token):
    return {"authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def guarded():
    with run_app(asgi(Toolbox([whoami]), auth=Verifier())) as url:
        yield url


@pytest.mark.parametrize("headers", [{}, bearer("wrong"), {"authorization": "Basic YTpi"}])
def test_a_request_without_a_valid_token_is_refused(guarded, headers):
    response = post(guarded, headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("token", "text"), [("cli/ada/x", "ada by cli"), ("cli//x", "client:cli by cli")])
async def test_a_call_belongs_to_the_subject_of_the_token(guarded, era, token, text):
    async with connect(guarded, era, headers=bearer(token)) as client:
        assert text_of(await client.call_tool("whoami", {})) == text


@pytest.mark.parametrize("era", ERAS)
async def test_without_tokens_a_call_belongs_to_the_memory_id_of_the_toolbox(era):
    async with serve_http(Toolbox([whoami], memory_id="house"), era) as client:
        assert text_of(await client.call_tool("whoami", {})) == "house by unknown"


@pytest.fixture(scope="module")
def resource():
    app = asgi(
        Toolbox([whoami]),
        auth=Verifier(),
        issuer_url="https://issuer.example.com",
        resource_url="https://tools.example.com/mcp",
    )
    with run_app(app) as url:
        yield url


def test_the_metadata_of_the_resource_name_the_issuer(resource):
    found = httpx2.get(f"{resource}/.well-known/oauth-protected-resource/mcp", timeout=SECONDS).json()
    assert found["resource"] == "https://tools.example.com/mcp"
    assert found["authorization_servers"] == ["https://issuer.example.com"]
    assert "oauth-protected-resource" in post(resource).headers["www-authenticate"]


@pytest.mark.parametrize(
    ("resource_name", "status"), [("tools.example.com/mcp", 200), ("other.example.com/mcp", 401), ("", 401)]
)
def test_a_token_for_another_resource_is_refused(monkeypatch, resource, resource_name, status):
    async def verify(self, token):
        return AccessToken(
            token=token, client_id="c", scopes=[], resource=f"https://{resource_name}" if token else None
        )

    monkeypatch.setattr(Verifier, "verify_token", verify)
    assert post(resource, bearer("any")).status_code == status


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"issuer_url": "https://a.com", "auth": Verifier()}, "belong together"),
        ({"resource_url": "https://a.com", "auth": Verifier()}, "belong together"),
        ({"issuer_url": "https://a.com", "resource_url": "https://b.com"}, "need auth: a TokenVerifier"),
        ({"issuer_url": "a.com", "resource_url": "https://b.com", "auth": Verifier()}, "issuer_url must be a URL"),
    ],
)
def test_settings_of_oauth_come_together(settings, message):
    with pytest.raises(ToolConfigurationError, match=message):
        asgi(Toolbox([whoami]), **settings)


@tool
def admin() -> str:
    """Do what only admins may."""
    return "done"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("is_async", [True, False])
async def test_each_caller_has_tools_of_its_own(era, is_async):
    callers = []

    def box_for(caller: Caller):
        callers.append(caller)
        return Toolbox([whoami, admin] if caller.subject == "ada" else [whoami])

    async def later(caller):
        return box_for(caller)

    with run_app(asgi(later if is_async else box_for, auth=Verifier())) as url:
        async with connect(url, era, headers=bearer("cli/ada/x")) as client:
            assert [each.name for each in (await client.list_tools()).tools] == ["whoami", "admin"]
            assert text_of(await client.call_tool("admin", {})) == "done"
        async with connect(url, era, headers=bearer("cli/bob/x")) as client:
            assert [each.name for each in (await client.list_tools()).tools] == ["whoami"]
            with pytest.raises(MCPError, match="Unknown tool: admin"):
                await client.call_tool("admin", {})
    assert callers[0] == Caller("ada", "cli", ("read",), {"iss": "https://issuer.example.com"})
    assert not any("token" in field for field in Caller.__slots__)


@pytest.fixture
def till():
    """A toolbox whose ledger finds payments of a run again, and what its body did."""
    paid = []

    @tool(effects="irreversible", idempotency=lambda arguments: arguments.order)
    def pay(order: int, context: ToolContext) -> str:
        """Pay an order."""
        paid.append(context.run_id)
        return f"paid {order}, number {len(paid)}"

    return Toolbox([pay], ledger=EffectLedger()), paid


async def test_a_client_cannot_name_the_run_of_its_calls(till):
    box, paid = till
    with run_app(asgi(box, auth=Verifier())) as url:
        assert box.execute(ToolCall("pay", {"order": 7}), run_id="order-7").text == "paid 7, number 1"
        for run_id, number in (("order-7", 2), ("order-8", 3)):
            headers = {**bearer("cli/bob/x"), "mcp-session-id": run_id}
            async with connect(url, headers=headers) as client:
                assert text_of(await client.call_tool("pay", {"order": 7})) == f"paid 7, number {number}"
        assert box.execute(ToolCall("pay", {"order": 7}), run_id="order-8").text == "paid 7, number 4"
    assert (paid[0], paid[3], len(set(paid))) == ("order-7", "order-8", 4)


async def test_a_session_is_a_run_of_its_caller_alone(till):
    box, paid = till
    with run_app(asgi(box, auth=Verifier())) as url:
        for subject, number in (("ada", 1), ("bob", 2)):
            async with connect(url, "2025-11-25", headers=bearer(f"cli/{subject}/x")) as client:
                for _ in range(2):
                    assert text_of(await client.call_tool("pay", {"order": 7})) == f"paid 7, number {number}"
                stolen = {**bearer("cli/eve/x"), "mcp-session-id": paid[-1]}
                call = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "pay", "arguments": {}}}
                assert post(url, stolen, call).status_code == 404
    assert len(paid) == 2


def test_a_client_without_a_user_does_not_share_the_memory_of_a_user_of_the_same_name():
    callers = [Caller("ada"), Caller("ada", "cli"), Caller(client_id="ada"), Caller("client:ada"), Caller()]
    found = [each.memory_id for each in callers]
    assert found == ["ada", "ada", "client:ada", "subject:client:ada", None]


async def test_a_function_that_returns_something_else_is_an_internal_error():
    async with serve_http(lambda caller: 5) as client:
        with pytest.raises(MCPError, match="Internal server error"):
            await client.list_tools()


@pytest.mark.slow
async def test_many_toolboxes_are_served_in_turn():
    boxes = iter(range(1000))

    def box_for(caller):
        @tool(f"tool_{next(boxes)}")
        def numbered() -> int:
            return 1

        return Toolbox([numbered])

    async with serve_http(box_for) as client:
        names = [(await client.list_tools(cache_mode="bypass")).tools[0].name for _ in range(70)]
    assert len(set(names)) == 70


async def test_a_parked_call_belongs_to_its_caller():
    ran = []

    @tool(requires_approval=True)
    def delete() -> str:
        ran.append("delete")
        return "deleted"

    async def answer(context, params):
        return ElicitResult(action="accept", content={"approve": True})

    with run_app(asgi(Toolbox([delete]), auth=Verifier())) as url:
        async with (
            connect(url, headers=bearer("cli/ada/x"), elicitation_callback=answer) as ada,
            connect(url, headers=bearer("cli/bob/x"), elicitation_callback=answer) as bob,
        ):
            first = await ada.session.call_tool("delete", {}, allow_input_required=True)
            assert isinstance(first, InputRequiredResult)
            answers = dict.fromkeys(first.input_requests, await answer(None, None))
            again = {"input_responses": answers, "request_state": first.request_state}
            with pytest.raises(MCPError, match="Invalid or expired requestState"):
                await bob.session.call_tool("delete", {}, **again)
            assert ran == []
            assert text_of(await ada.session.call_tool("delete", {}, **again)) == "deleted"
    assert ran == ["delete"]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("kind", ["starlette", "fastapi"])
async def test_the_application_is_mounted_with_its_lifespan(era, kind):
    tools = asgi(Toolbox([whoami]))
    if kind == "fastapi":
        app = FastAPI(lifespan=tools.lifespan)
        app.mount("/tools", tools)
    else:
        app = Starlette(routes=[Mount("/tools", tools)], lifespan=tools.lifespan)
    for _ in range(2):  # an application can be started again
        with run_app(app) as url:
            async with connect(f"{url}/tools", era) as client:
                assert text_of(await client.call_tool("whoami", {})) == "default by unknown"


async def test_an_application_without_its_lifespan_says_so():
    tools = asgi(Toolbox([whoami]))
    with pytest.raises(ToolConfigurationError, match=r"pass its \.lifespan"):
        await tools({"type": "http"}, None, None)


def test_a_bad_definition_is_reported_before_the_first_request():
    with pytest.raises(ToolDefinitionError, match="Tool at index 0 is None"):
        asgi([None])


@pytest.mark.slow
async def test_two_hundred_calls_at_once_respect_the_limit_of_the_toolbox():
    running, most, lock = 0, 0, threading.Lock()

    @tool
    async def work(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        await asyncio.sleep(0)
        with lock:
            running -= 1
        return number

    async with serve_http(Toolbox([work], max_concurrency=3)) as client:
        results = await asyncio.gather(*(client.call_tool("work", {"number": number}) for number in range(200)))
    assert [each.structured_content["result"] for each in results] == list(range(200))
    assert most <= 3


def test_half_a_character_in_an_argument_is_a_failure_in_words():
    @tool
    def echo(text: str) -> str:
        """Say it again."""
        return text

    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "echo", "arguments": {"text": "\ud800"}, "_meta": meta}
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "echo",
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    with run_app(asgi(Toolbox([echo]))) as address:
        answer = httpx2.post(f"{address}/mcp", content=body, headers=headers).json()
    assert "half of a surrogate pair" in answer["result"]["content"][0]["text"]
