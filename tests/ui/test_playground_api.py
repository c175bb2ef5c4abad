"""The endpoints of the playground."""

import asyncio
import json
from contextlib import ExitStack, asynccontextmanager
from threading import Thread
from typing import Annotated

import pytest

from helpers import ui_shop
from helpers.ui_client import Desk
from helpers.wait import LONG, until
from toolsemble import MemoryId, Secret, Toolbox, ToolContext, ToolResult, tool
from toolsemble._ui.interface import Targets
from toolsemble._ui.people import LocalUser, add_person
from toolsemble._vocabulary.result import AudioContent, ImageContent
from toolsemble.agent._deps import DepsMaker
from toolsemble.review import AutoApprove

PIXEL = b"\x89PNG"
MEMORY_ID = f"ui/{LocalUser().person.name}/playground"


@tool
def draw(kind: str) -> ToolResult:
    """Draw a picture."""
    return ToolResult.success("drawn", contents=[ImageContent(PIXEL, f"image/{kind}"), AudioContent(b"", "audio/wav")])


@tool
def sign_in(user: str, token: Secret[str], codes: list[Secret[int]] | None = None) -> str:
    """Sign in."""
    return user


TOOLS = [ui_shop.find_order, ui_shop.refund, ui_shop.count_folders, ui_shop.echo, ui_shop.order_report, draw, sign_in]


@pytest.fixture
def shop(tmp_path):
    targets = Targets((Toolbox(TOOLS), Toolbox([ui_shop.echo])), {"clerk": ui_shop.clerk}, {"echo": "shop.py"})
    with Desk(tmp_path / "data", targets) as made:
        yield made


def test_tools_are_listed_once_with_what_matters(shop):
    tools = {each["name"]: each for each in shop.get("/api/tools")["tools"]}
    assert list(tools) == ["find_order", "refund", "count_folders", "echo", "find_order_then_echo", "draw", "sign_in"]
    assert (tools["refund"]["gated"], tools["refund"]["effects"]) == (True, "write")
    assert [name for name, each in tools.items() if each["is_pipeline"]] == ["find_order_then_echo"]
    assert shop.get("/api/me")["agents"] == ["clerk"]


def test_a_tool_has_a_form_and_the_view_of_each_provider(shop):
    found = shop.get("/api/tool", name="refund")
    assert [field["name"] for field in found["form"]["fields"]] == ["order", "amount", "to", "reason"]
    assert [each["name"] for each in found["providers"]] == [
        "openai",
        "anthropic",
        "google",
        "mistral",
        "bedrock",
        "ollama",
        "mcp",
    ]
    assert any("moved into the description" in note for note in found["providers"][0]["notes"])
    assert found["graph"] is None
    assert shop.refused("/api/tool", {"name": "nothing"}) == (
        404,
        "There is no tool 'nothing'; start the server with its module or file",
    )


def test_pipelines_are_graphs(shop):
    (pipeline,) = shop.get("/api/pipelines")["pipelines"]
    assert [part["name"] for part in pipeline["graph"]["parts"]] == ["find_order", "echo"]


def test_a_field_that_repeats_is_expanded(shop):
    form = shop.get("/api/tool", name="count_folders")["form"]
    (folder,) = form["fields"]
    inside = next(field for field in folder["fields"] if field["name"] == "inside")
    found = shop.get("/api/tool/expand", name="count_folders", place=inside["item"]["place"])["field"]
    assert [field["name"] for field in found["fields"]] == ["name", "inside"]
    assert shop.refused("/api/tool/expand", {"name": "count_folders", "place": "#/nowhere"})[0] == 404


def test_a_call_returns_what_the_model_is_told(shop):
    reply = shop.post("/api/tool/call", name="find_order", arguments={"order": 7})
    assert (reply["text"], reply["is_error"]) == ("Order 7: 3 boxes of green tea, 14.40 euros", False)
    assert reply["wire"]["openai"]["content"] == reply["text"]
    assert shop.get("/api/run", id=reply["run_id"])["run"]["state"] == "done"  # it is in the history


def test_text_is_read_like_a_models_arguments(shop):
    repaired = shop.post("/api/tool/call", name="find_order", text='{"order": "7"}')
    broken = shop.post("/api/tool/call", name="find_order", text="order seven")
    assert (repaired["text"][:8], len(repaired["repairs"])) == ("Order 7:", 1)
    assert (broken["is_error"], broken["text"].startswith("Error: Invalid JSON input for 'find_order'")) == (True, True)


def test_a_form_is_sent_back_as_arguments(shop):
    form = shop.get("/api/tool", name="echo")["form"]
    empty = shop.post("/api/tool/call", name="echo", form=form)
    form["fields"][0] |= {"state": "value", "text": "hello"}
    said = shop.post("/api/tool/call", name="echo", form=form)
    assert (said["text"], "Missing required parameter" in empty["text"]) == ("hello", True)
    assert shop.refused("/api/tool/call", body={"name": "echo", "form": {"kind": "strange"}})[0] == 400


def test_a_dry_run_does_not_ask_or_run_and_is_not_recorded(shop):
    reply = shop.post("/api/tool/call", name="refund", arguments=ui_shop.REFUND, dry_run=True)
    wrong = shop.post("/api/tool/call", name="refund", arguments={**ui_shop.REFUND, "amount": -1}, dry_run=True)
    assert (reply["is_error"], reply["dry_run"], "Refunded" in reply["text"]) == (False, True, False)
    assert "amount" in wrong["text"]
    assert shop.get("/api/runs")["exists"] is False
    assert shop.get("/api/approvals")["exists"] is False


def test_a_gated_call_waits_for_an_approval_of_this_page(shop):
    replies = []
    body = {"name": "refund", "arguments": ui_shop.REFUND, "call_id": "mine"}
    calling = Thread(target=lambda: replies.append(shop.client.post("/api/tool/call", json=body).json()))
    calling.start()
    until(lambda: shop.get("/api/approvals")["requests"])
    (request,) = shop.get("/api/approvals")["requests"]
    assert request["call_id"] == "mine"
    shop.post("/api/approval", id=request["id"], decision="approve", arguments_digest=request["arguments_digest"])
    calling.join(60)
    assert replies[0]["text"] == "Refunded 14.40 euros of order 7 to a card"


def test_the_reviewer_of_a_toolbox_takes_precedence(tmp_path):
    box = Toolbox([ui_shop.refund], review=AutoApprove())
    with Desk(tmp_path, Targets((box,))) as desk:
        assert desk.post("/api/tool/call", name="refund", arguments=ui_shop.REFUND)["is_error"] is False


def test_images_are_shown_unless_they_can_hold_programs(shop):
    png = shop.post("/api/tool/call", name="draw", arguments={"kind": "png"})
    svg = shop.post("/api/tool/call", name="draw", arguments={"kind": "svg+xml"})
    assert (png["images"], svg["images"]) == (["data:image/png;base64,iVBORw=="], [])
    assert png["contents"] == ["ImageContent", "AudioContent"]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('{"user": "ada", "token": "sk-1", "codes": [4711]}', "ada"),
        ('{"token": "sk-1"}', "token"),
        ('{"user": "ada", "token": ["sk-1"], "more": 5}', "more"),
        ('{"user": "ada", "token": "sk-1', "sign_in"),
    ],
)
def test_secrets_are_masked_in_the_call_as_code(shop, text, kept):
    snippets = shop.post("/api/tool/convert", name="sign_in", text=text)["snippets"]
    for each in snippets.values():
        assert kept in each
        assert "**********" in each
        assert "sk-1" not in each
        assert "4711" not in each


def test_a_secret_that_is_not_set_is_not_in_the_call_as_code(shop):
    snippets = shop.post("/api/tool/convert", name="sign_in", text='{"user": "ada", "codes": null}')["snippets"]
    assert "{'user': 'ada', 'codes': None}" in snippets["python"]


def test_arguments_are_converted_between_form_text_and_code(shop):
    found = shop.post("/api/tool/convert", name="echo", text='{"text": "it\'s"}')
    assert found["form"]["fields"][0]["text"] == "it's"
    assert found["snippets"]["command"].startswith("toolsemble call shop.py:echo ")
    assert 'ToolCall("echo", {\'text\': "it\'s"})' in found["snippets"]["python"]
    assert "http://127.0.0.1:7771/api/tool/call" in found["snippets"]["curl"]
    back = shop.post("/api/tool/convert", name="echo", form=found["form"])
    assert json.loads(back["text"]) == {"text": "it's"}
    odd = shop.post("/api/tool/convert", name="echo", text="not json")
    assert (odd["form"], odd["text"]) == (None, "not json")
    assert shop.refused("/api/tool/convert", body={"name": "nothing"})[0] == 404


def test_only_operators_call_tools(tmp_path):
    people = tmp_path / "people.toml"
    token = add_person(people, "ada", ["admin"])
    with Desk(tmp_path / "data", Targets((Toolbox([ui_shop.echo]),)), people=people) as desk:
        answer = desk.sign_in(token).post("/api/tool/call", json={"name": "echo", "arguments": {"text": "x"}})
    assert (answer.status_code, answer.json()["error"]) == (
        403,
        "'ada' does not have the role 'operator', which this requires",
    )


async def test_a_call_ends_when_its_page_is_closed(tmp_path):
    started, ended, left = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool
    async def wait_forever() -> str:
        """Wait."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    with Desk(tmp_path, Targets((Toolbox([wait_forever]),))) as desk:
        body = json.dumps({"name": "wait_forever"}).encode()
        parts = iter([{"type": "http.request", "body": body}, {"type": "http.request", "body": b""}])

        async def receive():
            found = next(parts, None)
            if found is not None:
                return found
            await left.wait()
            return {"type": "http.disconnect"}

        sent = []

        async def send(message):
            sent.append(message)

        token = (tmp_path / "ui.token").read_text()
        headers = {"host": "localhost", "authorization": f"Bearer {token}", "content-type": "application/json"}
        headers["content-length"] = str(len(body))
        scope = {"type": "http", "method": "POST", "path": "/api/tool/call", "query_string": b""}
        scope["headers"] = [(name.encode(), value.encode()) for name, value in headers.items()]
        calling = asyncio.create_task(desk.app(scope, receive, send))
        await asyncio.wait_for(started.wait(), LONG)
        left.set()
        await asyncio.wait_for(calling, LONG)
    assert ended.is_set()
    assert sent[0]["status"] == 499


class Store:
    def __init__(self, name="mine"):
        self.name = name


STORE = Store()


@asynccontextmanager
async def open_store(run):
    yield Store(f"opened for {run.memory_id}")


def fail(run):
    raise ConnectionError("no database")


@tool
def look_up(order: int, context: ToolContext[Store]) -> str:
    """Look up an order."""
    return f"{order}: {context.deps.name}"


@tool
def greet(user: Annotated[str, MemoryId]) -> str:
    """Greet the user."""
    return f"hello {user}"


class TestDeps:
    @pytest.fixture
    def serve(self, tmp_path):
        with ExitStack() as opened:

            def serve(deps=None, source=""):
                targets = Targets((Toolbox([look_up, greet]),), {}, {"look_up": "shop.py"}, deps, source)
                return opened.enter_context(Desk(tmp_path / "data", targets))

            yield serve

    def test_a_call_without_the_deps_that_it_needs_is_refused_in_words(self, serve):
        answer = serve().client.post("/api/tool/call", json={"name": "look_up", "arguments": {"order": 7}})
        message = "Tool 'look_up' needs deps (ToolContext[Store]); pass deps=…"
        assert (answer.status_code, answer.json()["error"]) == (400, message)

    @pytest.mark.parametrize(
        ("deps", "text"), [(STORE, "7: mine"), (DepsMaker(open_store), f"7: opened for {MEMORY_ID}")]
    )
    def test_calls_have_the_deps_of_the_server(self, serve, deps, text):
        assert (
            serve(deps, "shop.py:store").post("/api/tool/call", name="look_up", arguments={"order": 7})["text"] == text
        )

    def test_deps_that_cannot_be_made_are_told(self, serve):
        desk = serve(DepsMaker(fail), "shop.py:fail")
        answer = desk.client.post("/api/tool/call", json={"name": "look_up", "arguments": {"order": 7}})
        message = "make_deps failed: ConnectionError: no database"
        assert (answer.status_code, answer.json()["error"]) == (400, message)

    def test_a_dry_run_needs_no_deps(self, serve):
        found = serve().post("/api/tool/call", name="look_up", arguments={"order": 7}, dry_run=True)
        assert found["text"] == "Dry run: 'look_up' was not run"

    @pytest.mark.parametrize(
        ("deps", "source", "python", "command"),
        [
            (STORE, "my shop/store.py:store", "from store import store\n", "--deps 'my shop/store.py:store' "),
            (STORE, "shop.stores:store", "from shop.stores import store\n", "--deps shop.stores:store "),
            (DepsMaker(open_store), "shop.py:open_store", "deps=...", "--deps shop.py:open_store "),
            (None, "", "deps=...", "--deps MODULE:NAME "),
        ],
    )
    def test_a_call_as_code_has_its_deps(self, serve, deps, source, python, command):
        found = serve(deps, source).post("/api/tool/convert", name="look_up", arguments={"order": 7})["snippets"]
        assert python in found["python"]
        assert "deps=store)" in found["python"] or "deps=...)" in found["python"]
        assert command in found["command"]
        compile(found["python"], "snippet", "exec")

    def test_a_call_has_the_memory_id_of_its_person_also_as_code(self, serve):
        desk = serve()
        found = desk.post("/api/tool/convert", name="greet", arguments={})["snippets"]
        assert f'memory_id="{MEMORY_ID}")' in found["python"]
        assert "deps" not in found["python"] + found["command"]
        assert found["command"].startswith(f"toolsemble call --memory-id {MEMORY_ID} ")
        assert MEMORY_ID in desk.post("/api/tool/call", name="greet", arguments={})["text"]
