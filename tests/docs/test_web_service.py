"""The page and the example about web services, with a real server, a real client and other processes."""

import json
import os
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from helpers.openai_wire import CHAT, KEY, called, delta, in_turn, sent, streamed, tokens
from helpers.terminal import WAIT
from helpers.uvicorn_server import serving_app
from helpers.wait import until
from helpers.web_server import serving
from toolsemble import Agent, ToolCall, tool
from toolsemble.agent.streams import SSE_HEADERS, sse
from toolsemble.models import TextDelta
from toolsemble.testing import ScriptedModel

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "web.md").read_text(encoding="utf-8")


def payloads(response):
    """Return the payloads of server-sent events, one after the other."""
    assert response.status_code == 200, response.read()
    assert response.headers["content-type"].startswith("text/event-stream")
    for line in response.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


# The example


@contextmanager
def example_serving(folder, env, *words):
    """Run the example as a separate process, in a folder; yield its address."""
    program = [sys.executable, "-W", "error", str(ROOT / "examples" / "web_service.py"), "--port", "0", *words]
    with subprocess.Popen(
        program, cwd=folder, env={**os.environ, **env}, stderr=subprocess.PIPE, text=True
    ) as process:  # fmt: skip
        try:
            for line in process.stderr:
                if found := re.search(r"running on (http://\S+)", line):
                    break
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield found[1]
        finally:
            process.kill()


def approve(folder, said):
    """Answer what waits, with another program of the examples."""
    program = [sys.executable, str(ROOT / "examples" / "human_elsewhere.py"), "answer"]
    done = subprocess.run(
        program, cwd=folder, input=f"{said}\n", capture_output=True, text=True, timeout=WAIT, check=True
    )
    return done.stdout


def refund_turns(text):
    """Return the two answers of a provider: a call, and the answer."""
    call = called(0, "c1", "refund", '{"order": 7}')
    answer = json.dumps({"text": text, "refunded": [7]})
    return (
        streamed(delta(tool_calls=[call]), delta("tool_calls"), tokens()),
        streamed(delta(content=answer[:9]), delta(content=answer[9:]), delta("stop"), tokens()),
    )


def ask(client, text, user, on_review):
    """Ask a question; return the payloads, after a person has decided about the call."""
    heard = []
    with client.stream("POST", "/chat", params={"text": text}, headers={"X-User": user}) as response:
        for payload in payloads(response):
            heard.append(payload)
            if payload["kind"] == "review_requested":
                on_review()
    return heard


def wait_until_asked(folder):
    """Wait until the request for approval is in the file."""
    from toolsemble.review import ReviewStore  # the file exists by now

    with ReviewStore(folder / "reviews.db") as store:
        until(store.pending)


@pytest.mark.parametrize(("said", "told"), [("yes", "Order 7 of ada is refunded"), ("too dear", "The call failed")])
def test_the_example_streams_an_answer_that_somebody_approves_elsewhere(tmp_path, said, told):
    def decide():
        wait_until_asked(tmp_path)
        assert "refund {'order': 7}" in approve(tmp_path, said)

    with serving() as provider:
        provider.answers[CHAT] = in_turn(*refund_turns("Done."))
        env = {"OPENAI_BASE_URL": provider.url("/v1"), "OPENAI_API_KEY": KEY}
        with (
            example_serving(tmp_path, env, "--model", "openai-chat:gpt-test") as url,
            httpx.Client(base_url=url, timeout=WAIT) as client,
        ):
            heard = ask(client, "Refund order 7", "ada", decide)
    replied = next(each for each in heard if each["kind"] == "call_replied")
    assert (replied["call"]["id"], replied["text"]) == ("c1", told)
    assert heard[-1]["output"] == {"text": "Done.", "refunded": [7]}
    assert "".join(each["text"] for each in heard if each["kind"] == "text_delta") == heard[-1]["text"]


def test_the_example_has_a_conversation_for_each_user(tmp_path):
    hello = '{"text": "Hello.", "refunded": []}'
    with serving() as provider:
        provider.answers[CHAT] = in_turn(streamed(delta(content=hello), delta("stop"), tokens()))
        env = {"OPENAI_BASE_URL": provider.url("/v1"), "OPENAI_API_KEY": KEY}
        for text, user in (("I am Ada.", "ada"), ("I am Bob.", "bob"), ("Who am I?", "ada")):
            # A new process each time: the conversations are in a file.
            with (
                example_serving(tmp_path, env, "--model", "openai-chat:gpt-test") as url,
                httpx.Client(base_url=url, timeout=WAIT) as client,
            ):
                ask(client, text, user, lambda: None)
        asked = [[each["content"] for each in sent(provider, place)["messages"]] for place in range(3)]
    assert asked == [["I am Ada."], ["I am Bob."], ["I am Ada.", hello, "Who am I?"]]


def test_the_example_runs_without_a_provider(tmp_path):
    def decide():
        wait_until_asked(tmp_path)
        approve(tmp_path, "yes")

    with (
        example_serving(tmp_path, {}, "--model", "scripted") as url,
        httpx.Client(base_url=url, timeout=WAIT) as client,
    ):
        assert client.post("/chat", params={"text": "hello"}).status_code == 422
        heard = ask(client, "Refund order 7", "ada", decide)
    assert heard[-1]["output"] == {"text": "Order 7 is refunded.", "refunded": [7]}


# The page


@pytest.fixture(scope="module")
def page():
    """Return the names that the code of the page defines."""
    names = {"__name__": "page"}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        exec(compile(block, "web.md", "exec"), names)  # noqa: S102 - our own page
    return names


@pytest.fixture
def client(page):
    with serving_app(page["app"]) as url, httpx.Client(base_url=url, timeout=WAIT) as client:
        yield client


ADA = {"Authorization": "Bearer ada-token"}
BOB = {"Authorization": "Bearer bob-token"}


def stream(client, path, body, headers=ADA, on_payload=lambda payload: None):
    heard = []
    with client.stream("POST", path, json=body, headers=headers) as response:
        for payload in payloads(response):
            heard.append(payload)
            on_payload(payload)
    return heard, response.headers


def test_the_page_shows_what_its_server_sends(client):
    shown = re.findall(r"^data: .*$", PAGE, re.MULTILINE)
    with client.stream("POST", "/chat", json={"text": "How is it in Rome?"}, headers=ADA) as response:
        heard = [line for line in response.iter_lines() if line]
    assert len(shown) == len(heard)
    for line, sent_line in zip(shown, heard, strict=True):
        start = line.removesuffix(" ...")
        assert sent_line == line or (start != line and sent_line.startswith(start))
    assert response.headers["cache-control"] == "no-cache"


def test_the_page_refuses_who_is_not_logged_in(client):
    assert client.post("/chat", json={"text": "hello"}).status_code in {401, 403}
    assert client.post("/chat", json={"text": "hello"}, headers={"Authorization": "Bearer x"}).status_code == 401


def test_the_page_keeps_a_conversation_for_each_user(page, client):
    memory = page["memory"]
    for user, headers in (("ada", ADA), ("bob", BOB)):
        before = len(memory.load(f"{user}/main"))
        stream(client, "/chat", {"text": f"I am {user}."}, headers)
        said = [message.text for message in memory.load(f"{user}/main")][before:]
        assert said[0] == f"I am {user}."


def test_the_page_serves_ag_ui(client):
    body = {
        "threadId": "t1", "runId": "r1", "state": {}, "tools": [], "context": [], "forwardedProps": {},
        "messages": [{"id": "m1", "role": "user", "content": "How is it in Rome?"}],
    }  # fmt: skip
    heard, _ = stream(client, "/ag-ui", body)
    assert [each["type"] for each in heard][:: len(heard) - 1] == ["RUN_STARTED", "RUN_FINISHED"]
    assert client.post("/ag-ui", json={"threadId": "t1"}, headers=ADA).status_code == 422


def test_the_page_serves_the_vercel_ai_sdk(client):
    message = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "How is it in Rome?"}]}
    heard, headers = stream(client, "/vercel", {"id": "chat_1", "messages": [message], "trigger": "submit-message"})
    assert [each["type"] for each in heard][:: len(heard) - 1] == ["start", "finish"]
    assert headers["x-vercel-ai-ui-message-stream"] == "v1"
    refused = client.post("/vercel", json={"id": "chat_1", "messages": [{"role": "user"}]}, headers=ADA)
    assert (refused.status_code, refused.json()["detail"]) == (422, "messages[0].parts: expected a list, got None")


def test_the_page_has_a_call_approved_by_another_request(page, client):
    assert client.get("/reviews", headers=ADA).status_code == 403

    def decide(payload):
        if payload["kind"] == "review_requested":
            until(lambda: client.get("/reviews", headers=BOB).json())
            [asked] = client.get("/reviews", headers=BOB).json()
            path = f"/reviews/{asked['id']}"
            stale = {"approve": True, "digest": "0"}
            assert client.post(path, json=stale, headers=BOB).status_code == 409
            assert client.post(path, json={**stale, "digest": asked["digest"]}, headers=ADA).status_code == 403
            assert client.post(path, json={**stale, "digest": asked["digest"]}, headers=BOB).status_code == 200
            assert client.post("/reviews/unknown", json=stale, headers=BOB).status_code == 404

    heard, _ = stream(client, "/chat", {"text": "Refund order 7."}, on_payload=decide)
    assert next(each for each in heard if each["kind"] == "call_replied")["text"] == "refunded order 7 of ada"


# A client that leaves


@pytest.fixture
def waiting():
    """Return an application whose run waits, and the events of its tool."""
    from fastapi import FastAPI
    from fastapi.responses import StreamingResponse

    ended = threading.Event()

    @tool
    async def wait() -> str:
        """Wait for ever."""
        import asyncio

        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    app = FastAPI()

    @app.get("/{ping}")
    async def run(ping: float) -> StreamingResponse:
        agent = Agent(ScriptedModel([ToolCall("wait")]), [wait])
        return StreamingResponse(sse(agent.stream("go"), ping=ping or None), headers=dict(SSE_HEADERS))

    app.ended = ended
    return app


@pytest.mark.parametrize("ping", [0, 0.01])
def test_a_client_that_disconnects_ends_the_run(waiting, ping):
    with serving_app(waiting) as url, httpx.Client(base_url=url, timeout=WAIT) as client:
        with client.stream("GET", f"/{ping}") as response:
            heard = payloads(response)  # kept, for the connection ends with it
            assert [next(heard)["kind"] for _ in range(4)][-1] == "call_requested"
            assert not waiting.ended.is_set()
        assert waiting.ended.wait(WAIT)


def test_a_failure_reaches_the_client_without_its_details():
    from fastapi import FastAPI
    from fastapi.responses import StreamingResponse

    class Broken(ScriptedModel):
        async def stream(self, request):
            yield TextDelta("Rome")
            raise RuntimeError("postgres://admin:hunter2@10.0.0.5 is down")

    app = FastAPI()

    @app.get("/")
    async def run() -> StreamingResponse:
        return StreamingResponse(sse(Agent(Broken([])).stream("go")), headers=dict(SSE_HEADERS))

    with serving_app(app) as url, httpx.Client(base_url=url, timeout=WAIT) as client:
        text = client.get("/").text
    assert text.endswith('data: {"kind":"error","message":"The run failed"}\n\n')
    assert "hunter2" not in text
