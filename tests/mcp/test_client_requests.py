"""What a client offers on request: prompts and resources as tools, roots, questions, tokens."""
# ruff: noqa: S105, S106 - the tokens of these tests open nothing

import asyncio
import gzip
import json
import os
import stat
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from helpers import mcp_sample as sample
from helpers.mcp_servers import run_app, run_handler
from helpers.wait import until
from toolsemble import Agent, Toolbox, ToolCall, ToolConfigurationError, ToolDefinitionError, __version__
from toolsemble._runtime import urls
from toolsemble.events import CallProgress
from toolsemble.mcp import MCPClient, TokenFile
from toolsemble.mcp._client import client_thread, connection as names, http, session as listing
from toolsemble.models import ScriptedModel
from toolsemble.review import Continue, Edit, RememberReview, Rule, RulesReview

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def modern():
    with run_app(sample.build().streamable_http_app(host="127.0.0.1")) as address:
        yield f"{address}/mcp"


def call(client, name, box=None, **arguments):
    return (box or Toolbox(list(client))).execute(ToolCall(name, arguments)).result


class Person:
    def __init__(self, decision):
        self.decision = decision
        self.requests = []

    def review(self, request):
        self.requests.append(request)
        return self.decision


def test_prompts_are_tools_on_request(modern):
    with MCPClient.http(modern) as client:
        assert not [tool for tool in client if "prompt" in tool.name]
    with MCPClient.http(modern, prompt_tools=True, only="prompt_*") as client:
        assert [tool.name for tool in client] == ["prompt_poem", "prompt_bye"]
        assert call(client, "prompt_poem", topic="tea").output == "user: Write about tea."
        assert call(client, "prompt_poem").error_message == "Missing required parameter(s) for 'prompt_poem': topic"


def test_prompts_that_cannot_be_listed_are_left_out(plain, caplog):
    with plain("prompts", prompt_tools=True, only=["echo", "prompt_*"]) as client:
        assert [tool.name for tool in client] == ["echo"]
    assert "The prompts of plain cannot be listed" in caplog.text


def test_resources_are_read_by_tools_on_request(modern):
    with MCPClient.http(modern, resource_tools=True, prefix="s_", only="*_resource*") as client:
        assert [tool.name for tool in client] == ["s_list_resources", "s_read_resource"]
        first = call(client, "s_list_resources")
        assert first.output == (
            "memo://1 (first, text/plain, The first)\nThere are more; call again with cursor: page 2"
        )
        assert call(client, "s_list_resources", cursor="page 2").structured_output == ["memo://2"]
        assert call(client, "s_read_resource", uri="memo://1").output == "at memo://1"


def test_a_server_is_told_its_roots(plain, tmp_path):
    with plain(roots=[str(tmp_path), "file:///srv"]) as client:
        assert json.loads(call(client, "roots").output)["roots"] == [
            {"uri": tmp_path.resolve().as_uri()},
            {"uri": "file:///srv"},
        ]
    with plain() as client:
        assert "not supported" in call(client, "roots").output


# --- questions of a server with a handshake

ROME = {"action": "accept", "content": {"city": "Rome", "days": 3}}


def test_the_handshake_is_repeated_for_the_reviewer_of_a_toolbox(plain, tmp_path):
    person = Person(Edit('{"city": "Rome"}'))
    with plain("counted", tmp_path / "log") as client:
        assert call(client, "capabilities").output == "[]"
    with plain("counted", tmp_path / "log") as client:
        box = Toolbox([*client], review=person)
        assert json.loads(call(client, "ask", box).output) == ROME
        assert call(client, "capabilities", box).output == '["elicitation"]'
    assert (tmp_path / "log").read_text() == "started\n" * 3


def test_a_server_that_has_worked_is_not_started_again_for_a_reviewer(plain, tmp_path, caplog):
    with plain("counted", tmp_path / "log") as client:
        call(client, "echo", text="a")
        assert call(client, "capabilities", Toolbox([*client], review=Person(None))).output == "[]"
    assert (tmp_path / "log").read_text() == "started\n"
    assert "pass review= to its MCPClient" in caplog.text


def test_the_reviewer_of_a_client_is_known_at_the_handshake(plain, tmp_path):
    with plain("counted", tmp_path / "log", review=Person(Edit('{"city": "Rome"}'))) as client:
        assert json.loads(call(client, "ask").output) == ROME
    assert (tmp_path / "log").read_text() == "started\n"


@pytest.mark.parametrize("fields", ['{"a": {"type": "strng"}}', '{"a": true}'])
def test_a_broken_form_is_declined(plain, fields):
    with plain(review=Person(Edit("{}"))) as client:
        assert json.loads(call(client, "odd_form", text=fields).output)["action"] == "decline"


def test_a_question_that_belongs_to_no_call_is_declined(plain, caplog):
    # Two calls wait, with a reviewer each: the connection does not say which of them asks.
    with plain(review=Person(Edit('{"city": "Rome"}'))) as client, ThreadPoolExecutor(2) as pool:
        box = Toolbox([*client])
        results = list(pool.map(lambda _: call(client, "ask_together", box).output, range(2)))
    assert '{"action": "decline"}' in results
    assert "belongs to no call" in caplog.text


def test_many_questions_at_once_are_declined(plain, caplog):
    class Waiting(Person):
        """A person who answers when too many questions have come."""

        def review(self, request):
            until(lambda: "belongs to no call; declined" in caplog.text)
            return super().review(request)

    with plain(review=Waiting(Continue())) as client:
        answers = json.loads(call(client, "ask_often").output)
    assert len(answers) == 30
    assert answers.count("decline") >= 1
    assert answers.count("accept") >= 10


def test_a_server_may_ask_ten_questions_during_one_call(plain, caplog):
    person = Person(Continue())
    with plain(review=person) as client:
        answers = [json.loads(call(client, "ask_in_turn", text="30").output) for _ in range(2)]
    assert answers == [["accept"] * 10 + ["decline"] * 20] * 2
    assert len(person.requests) == 20
    assert caplog.text.count("plain asked more than 10 questions during one call; the rest are declined") == 2


def test_a_server_that_asks_without_a_reviewer_is_declined(plain, modern):
    with plain() as client:
        assert json.loads(call(client, "ask_in_turn", text="2").output) == ["decline"] * 2


TRANSFER = {
    "type": "object",
    "properties": {"confirm": {"type": "boolean", "default": True}, "amount": {"type": "integer", "default": 500}},
}


@pytest.mark.parametrize(
    ("required", "decision", "answer"),
    [
        (["confirm", "amount"], Continue(), {"action": "decline"}),
        (["amount"], Continue(), {"action": "decline"}),
        (["amount"], Edit('{"amount": 5}'), {"action": "accept", "content": {"confirm": True, "amount": 5}}),
        (["amount"], Edit("{}"), {"action": "decline"}),
        ([], Continue(), {"action": "accept", "content": {"confirm": True, "amount": 500}}),
    ],
)
def test_a_required_field_is_never_filled_by_the_server(plain, required, decision, answer):
    with plain(review=Person(decision)) as client:
        result = call(client, "form", text=json.dumps({**TRANSFER, "required": required}))
    assert json.loads(result.output) == answer


@pytest.mark.parametrize("wrap", [lambda person: RulesReview([Rule("allow")], person), RememberReview])
def test_rules_and_remembered_approvals_do_not_answer_a_server(modern, wrap):
    person = Person(Continue(always="tool"))
    with MCPClient.http(modern) as client:
        box = Toolbox([*client], review=wrap(person), approve=["ask", "open_url"])
        asked = [box.execute(ToolCall(name, {}), run_id="r1").text for name in ("ask", "ask", "open_url", "open_url")]
    questions = [request for request in person.requests if request.timing.name == "DURING_EXECUTION"]
    assert [json.loads(each)["action"] for each in asked[:2]] == ["decline"] * 2
    assert (asked[2:], len(questions)) == (["accept"] * 2, 4)


def test_a_rule_that_denies_a_tool_declines_its_questions(plain):
    with plain(review=RulesReview([Rule("deny", "form")], Person(Edit("{}")))) as client:
        assert json.loads(call(client, "form", text=json.dumps(TRANSFER)).output) == {"action": "decline"}


# --- changes of tools


def count_kept(client):
    """Return how many definitions and names a client keeps."""
    connection = client._connection
    session = connection._worker._session
    sdk = session.client.session
    return {
        "definitions": len(session.screen.listed),
        "shown": len(connection.shown),
        "tools": len(connection.tools),
        "names": len(connection._names._local),
        "taken": len(connection._names._taken),
        "of the SDK": len(sdk._tool_output_schemas),
    }


def test_a_server_that_changes_its_list_all_the_time_does_not_fill_memory(plain, monkeypatch):
    monkeypatch.setattr(client_thread, "_LIST_INTERVAL", 0.0)
    monkeypatch.setattr(names, "_MOST_KEPT", 100)
    with plain() as client:
        box = Toolbox([*client])
        listed = len(client) + 50
        for number in range(20):
            assert box.execute(ToolCall("new_list", {"text": f"t{number}"})).text == "changed"
        until(lambda: "t19_0" in [tool.name for tool in client])
        found = count_kept(client)
    assert found == {
        "definitions": 0,
        "shown": listed,
        "tools": listed,
        "names": listed + 100,
        "taken": listed + 100,
        "of the SDK": listed,
    }


def test_changes_are_listed_once_a_second_and_the_last_one_is_not_lost(plain, monkeypatch):
    monkeypatch.setattr(client_thread, "_PATIENCE", 0.01)
    lists = []
    monkeypatch.setattr(client_thread, "list_tools", count_lists(lists))
    began = time.monotonic()
    with plain() as client:
        box = Toolbox([*client])
        for number in range(50):
            box.execute(ToolCall("new_list", {"text": f"t{number}"}))
        until(lambda: "t49_0" in [tool.name for tool in client])
        assert len(lists) <= 2 + (time.monotonic() - began)


def count_lists(lists):
    async def list_tools(*given):
        lists.append(given)
        return await listing.list_tools(*given)

    return list_tools


def test_a_flood_of_progress_does_not_disturb_a_call(plain):
    events = []
    with plain() as client:
        result = Toolbox([*client], sinks=[events.append]).execute(ToolCall("slow_progress", {})).result
    assert result.output == "done"
    seen = [each.message for each in events if isinstance(each, CallProgress)]
    assert seen[0] == "step 0"
    assert seen == sorted(seen, key=lambda message: int(message.split()[1]))


def test_an_agent_uses_the_tools_as_they_are_now(plain):
    with plain(only=["change", "brand_new"]) as client:
        model = ScriptedModel([ToolCall("change", {"text": "brand_new"}), ToolCall("brand_new", {}), "done"])
        result = Agent(model, client.current).run_sync("Go")
    assert [record.call.name for record in result.tool_calls] == ["change", "brand_new"]
    assert "Unknown tool" not in result.tool_calls[1].reply.text


async def test_a_question_ends_with_its_call(modern):
    class Silent:
        asked = asyncio.Event()

        async def review(self, request):
            self.asked.set()
            await asyncio.Event().wait()

    person = Silent()
    async with MCPClient.http(modern) as client:
        task = asyncio.create_task(Toolbox([*client], review=person).aexecute(ToolCall("ask", {})))
        await person.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_progress_reaches_an_event_loop(modern):
    events = []
    async with MCPClient.http(modern) as client:
        await Toolbox([*client], sinks=[events.append]).aexecute(ToolCall("progress", {}))
    assert [each.fraction for each in events if isinstance(each, CallProgress)] == [0.25, 0.5, 1.0]


def test_a_server_that_asks_for_ever_is_a_failure(modern):
    with MCPClient.http(modern, review=Person(Edit('{"city": "Rome"}'))) as client:
        assert "more than 10 rounds" in call(client, "ask_again").error_message


def test_the_official_server_on_stdio_can_be_killed(tmp_path):
    with MCPClient.stdio(sys.executable, sample.__file__, name="sample") as client:
        assert client.protocol_version == "2026-07-28"
        box = Toolbox([*client])
        assert call(client, "structured", box).structured_output == {"hour": 12}
        pid = int(call(client, "pid", box).output)
        os.kill(pid, 9)
        until(lambda: not Path(f"/proc/{pid}").exists())  # also its threads
        assert call(client, "echo", box, text="again").output == "again"


# --- tokens


async def test_a_token_file_keeps_tokens_for_its_owner_only(tmp_path):
    file = TokenFile(tmp_path / "deep" / "tokens.json")
    assert (await file.get_tokens(), await file.get_client_info()) == (None, None)
    await file.set_client_info(OAuthClientInformationFull(client_id="c", redirect_uris=["http://localhost/"]))
    await file.set_tokens(OAuthToken(access_token="a", refresh_token="r", expires_in=3600))
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    tokens = await file.get_tokens()
    assert (tokens.access_token, tokens.refresh_token) == ("a", "r")
    assert 3590 <= tokens.expires_in <= 3600
    assert (await file.get_client_info()).client_id == "c"


async def test_an_expired_token_is_to_be_refreshed(tmp_path):
    file = TokenFile(tmp_path / "tokens.json")
    await file.set_tokens(OAuthToken(access_token="a", refresh_token="r", expires_in=1))
    tokens = await file.get_tokens()
    assert (tokens.access_token, tokens.refresh_token) == ("", "r")
    await file.set_tokens(OAuthToken(access_token="a"))
    assert (await file.get_tokens()).access_token == "a"


BROKEN = [
    "{",
    "[]",
    '{"tokens": {"access_token": 5}}',
    '{"tokens": 5}',
    '{"tokens": {"access_token": "a"}, "expires_at": "soon"}',
    '{"tokens": {"access_token": "a"}, "expires_at": true}',
    '{"tokens": {"access_token": "a"}, "expires_at": Infinity}',
    '{"tokens": {"access_token": "a"}, "expires_at": NaN}',
]


@pytest.mark.parametrize("text", BROKEN)
async def test_a_broken_token_file_is_named_without_its_content(tmp_path, text):
    (tmp_path / "tokens.json").write_text(text)
    (tmp_path / "tokens.json").chmod(0o600)
    with pytest.raises(ToolConfigurationError, match=r"tokens\.json' cannot be read; delete it to sign in again"):
        await TokenFile(tmp_path / "tokens.json").get_tokens()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
async def test_a_token_file_that_others_can_read_is_refused(tmp_path, mode):
    file = TokenFile(tmp_path / "tokens.json")
    await file.set_tokens(OAuthToken(access_token="a"))
    file.path.chmod(mode)
    with pytest.raises(ToolConfigurationError, match=f"has the mode {mode:04o}, .*; run: chmod 600 .*tokens.json"):
        await file.get_tokens()
    file.path.chmod(0o600)
    assert (await file.get_tokens()).access_token == "a"


async def test_a_failed_write_leaves_the_old_tokens(tmp_path, monkeypatch):
    file = TokenFile(tmp_path / "tokens.json")
    await file.set_tokens(OAuthToken(access_token="a"))
    monkeypatch.setattr(json, "dump", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await file.set_tokens(OAuthToken(access_token="b"))
    assert [each.name for each in tmp_path.iterdir()] == ["tokens.json"]
    assert (await file.get_tokens()).access_token == "a"


def write_tokens(path, rounds, what):
    """Change one part of a token file again and again, in a separate process."""
    file = TokenFile(path)
    for number in range(rounds):
        if what == "tokens":
            asyncio.run(file.set_tokens(OAuthToken(access_token=f"a{number}")))
        else:
            info = OAuthClientInformationFull(client_id=f"c{number}", redirect_uris=["http://localhost/"])
            asyncio.run(file.set_client_info(info))
        # The other one may be ahead, but what was written here stays.
        kept = json.loads(file.path.read_text())
        assert kept["tokens"]["access_token"] == f"a{number}" if what == "tokens" else True
        assert kept["client"]["client_id"] == f"c{number}" if what == "client" else True


def test_two_writers_of_a_token_file_lose_nothing(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda what: write_tokens(tmp_path / "tokens.json", 60, what), ["tokens", "client"]))


def provide(url, file):
    return ClientCredentialsOAuthProvider(url, file, "me", "secret", issuer="https://login.example.com")


A, B = "https://a.example.com/mcp", "https://b.example.com/mcp"


async def test_a_token_file_belongs_to_one_server(tmp_path):
    file = TokenFile(tmp_path / "tokens.json")
    MCPClient.http(f"{A}?key=1", auth=provide(A, file))
    await file.set_tokens(OAuthToken(access_token="a"))
    assert json.loads(file.path.read_text())["server"] == A
    with pytest.raises(ToolDefinitionError, match=f"is used for {A}; use another file for {B}"):
        MCPClient.http(B, auth=provide(B, file))
    other = TokenFile(file.path)
    MCPClient.http(B, auth=provide(B, other))
    for act in (other.get_tokens(), other.get_client_info(), other.set_tokens(OAuthToken(access_token="b"))):
        with pytest.raises(ToolConfigurationError, match=f"has the tokens of '{A}'; use another file for {B}"):
            await act
    assert (await file.get_tokens()).access_token == "a"


async def test_an_old_token_file_belongs_to_the_server_that_it_is_first_used_with(tmp_path):
    await TokenFile(tmp_path / "tokens.json").set_tokens(OAuthToken(access_token="a"))
    first, second = TokenFile(tmp_path / "tokens.json"), TokenFile(tmp_path / "tokens.json")
    first.use_for(A)
    second.use_for(B)
    assert (await first.get_tokens()).access_token == "a"
    with pytest.raises(ToolConfigurationError, match="use another file"):
        await second.get_tokens()


class Issuer(BaseHTTPRequestHandler):
    """An authorization server and, in front of a toolbox, a server that wants its token."""

    def log_message(self, *args):
        """Print nothing."""

    def answer(self, status, values, **headers):
        body = json.dumps(values).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    elsewhere: dict = {}  # noqa: RUF012 - where a part of the sign-in is, if not here
    seen: list = []  # noqa: RUF012 - the paths of all requests

    def find(self, part):
        return self.elsewhere.get(part, f"http://{self.headers['host']}")

    def do_GET(self):
        base = f"http://{self.headers['host']}"
        self.seen.append(self.path)
        if "protected-resource" in self.path:
            resource = self.elsewhere.get("resource", base)
            self.answer(200, {"resource": f"{resource}/mcp", "authorization_servers": [self.find("issuer")]})
        elif "oauth-authorization-server" in self.path:
            self.answer(
                200,
                {
                    "issuer": base,
                    "authorization_endpoint": f"{base}/authorize",
                    "token_endpoint": f"{self.find('token')}/token",
                    "response_types_supported": ["code"],
                    "token_endpoint_auth_methods_supported": ["client_secret_basic"],
                },
            )
        else:
            self.answer(405, {})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.seen.append(self.path)
        if self.path == "/token":
            self.answer(200, {"access_token": "fresh", "token_type": "Bearer", "expires_in": 3600})
            return
        message = json.loads(body)
        if self.headers["authorization"] != "Bearer fresh":
            metadata = f"{self.find('metadata')}/.well-known/oauth-protected-resource"
            self.answer(401, {}, www_authenticate=f'Bearer resource_metadata="{metadata}"')
        elif message["method"] == "initialize":
            assert message["params"]["clientInfo"]["version"] == __version__
            info = {"name": "guarded", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            self.answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})
        elif message["method"] == "tools/list":
            tools = [{"name": "secret", "inputSchema": {"type": "object"}}]
            self.answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": {"tools": tools}})
        elif "id" in message:
            self.answer(404, {})
        else:
            self.answer(202, {})


def test_client_credentials_are_exchanged_for_a_token_that_is_kept(tmp_path):
    with run_handler(Issuer) as address:
        provider = ClientCredentialsOAuthProvider(
            f"{address}/mcp", TokenFile(tmp_path / "tokens.json"), "me", "secret", issuer=address
        )
        with MCPClient.http(f"{address}/mcp", auth=provider) as client:
            assert [tool.name for tool in client] == ["secret"]
    assert "fresh" in (tmp_path / "tokens.json").read_text()


PARTS = ["metadata", "issuer", "token"]


@contextmanager
def sign_in(tmp_path, part, host):
    """Yield a client of a server whose sign-in is partly at another host, and the paths that were fetched there."""

    class Other(Issuer):
        seen: list = []  # noqa: RUF012 - of this test

    class Server(Issuer):
        elsewhere: dict = {}  # noqa: RUF012 - as above
        seen: list = []  # noqa: RUF012 - as above

    with run_handler(Other, host) as other, run_handler(Server) as address:
        Server.elsewhere = {part: other}
        Other.elsewhere = {"resource": address} if part == "metadata" else {}
        if part == "metadata":
            Other.elsewhere["issuer"] = address
        issuer = other if part == "issuer" else address
        provider = ClientCredentialsOAuthProvider(
            f"{address}/mcp", TokenFile(tmp_path / "tokens.json"), "me", "secret", issuer=issuer
        )
        yield MCPClient.http(f"{address}/mcp", name="web", auth=provider), Other.seen, provider


@pytest.fixture
def first_is_public(monkeypatch):
    """Let 127.0.0.1 be a public address, and 127.0.0.2 not."""
    for module in (http, urls):
        monkeypatch.setattr(module, "is_public", lambda address: address == "127.0.0.1")


@pytest.mark.parametrize("part", PARTS)
def test_a_server_in_the_private_network_may_sign_in_there(tmp_path, part):
    with sign_in(tmp_path, part, "127.0.0.2") as (client, seen, _), client:
        assert [tool.name for tool in client] == ["secret"]
    assert seen


@pytest.mark.parametrize("part", PARTS)
def test_a_public_server_may_name_other_public_addresses_to_sign_in(tmp_path, first_is_public, part):
    with sign_in(tmp_path, part, "127.0.0.1") as (client, seen, _), client:
        assert [tool.name for tool in client] == ["secret"]
    assert seen


@pytest.mark.parametrize("part", PARTS)
def test_a_public_server_does_not_let_the_client_fetch_private_addresses(tmp_path, first_is_public, part):
    with sign_in(tmp_path, part, "127.0.0.2") as (client, seen, provider):
        provider._issuer = None  # the program names none: the server chooses
        with pytest.raises(ToolConfigurationError, match=r"'127\.0\.0\.2' is not a public address"):
            client.start()
    assert seen == []


@pytest.mark.parametrize(
    ("body", "headers", "message"),
    [
        (gzip.compress(b" " * 10_000_000), {"content-encoding": "gzip"}, "the answer to the sign-in is compressed"),
        (b" " * 2_000_000, {}, "the answer to the sign-in is too long"),
    ],
)
def test_a_sign_in_elsewhere_does_not_fill_the_memory(tmp_path, first_is_public, monkeypatch, body, headers, message):
    def answer(self, *_):
        self.send_response(200)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    with sign_in(tmp_path, "issuer", "127.0.0.1") as (client, seen, _):
        own = Issuer.do_GET
        monkeypatch.setattr(Issuer, "do_GET", lambda self: answer(self) if self.seen is seen else own(self))
        with pytest.raises(ToolConfigurationError, match=message):
            client.start()


def test_an_issuer_that_the_program_names_may_be_private(tmp_path, first_is_public):
    with sign_in(tmp_path, "issuer", "127.0.0.2") as (client, seen, _), client:
        assert [tool.name for tool in client] == ["secret"]
    assert seen
