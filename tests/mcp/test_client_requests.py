"""What a client offers on request: prompts and resources as tools, roots, questions, tokens."""
# ruff: noqa: S105, S106 - the tokens of these tests open nothing

import asyncio
import json
import os
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from helpers import mcp_sample as sample
from helpers.mcp_servers import run_app, run_handler
from helpers.wait import until
from toolsemble import Agent, Toolbox, ToolCall, ToolConfigurationError, __version__
from toolsemble.events import CallProgress
from toolsemble.mcp import MCPClient, TokenFile
from toolsemble.models import ScriptedModel
from toolsemble.review import Continue, Edit


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
            until(lambda: "it is declined" in caplog.text)
            return super().review(request)

    with plain(review=Waiting(Continue())) as client:
        answers = json.loads(call(client, "ask_often").output)
    assert len(answers) == 30
    assert answers.count("decline") >= 1
    assert answers.count("accept") >= 10


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

    def do_GET(self):
        base = f"http://{self.headers['host']}"
        if "protected-resource" in self.path:
            self.answer(200, {"resource": f"{base}/mcp", "authorization_servers": [base]})
        elif "oauth-authorization-server" in self.path:
            self.answer(
                200,
                {
                    "issuer": base,
                    "authorization_endpoint": f"{base}/authorize",
                    "token_endpoint": f"{base}/token",
                    "response_types_supported": ["code"],
                    "token_endpoint_auth_methods_supported": ["client_secret_basic"],
                },
            )
        else:
            self.answer(405, {})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/token":
            self.answer(200, {"access_token": "fresh", "token_type": "Bearer", "expires_in": 3600})
            return
        message = json.loads(body)
        if self.headers["authorization"] != "Bearer fresh":
            self.answer(401, {}, www_authenticate="Bearer")
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
