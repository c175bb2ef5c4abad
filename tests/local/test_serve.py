"""llama.cpp's own server for other programs, and how this library talks to it."""

from __future__ import annotations

import gc
import json
import socket
import urllib.error
import urllib.request

import pytest

from helpers.tiny_model import write_model
from helpers.web_server import serving
from toolsemble import ModelError, ToolConfigurationError
from toolsemble.models._local.embedded_server import serve
from toolsemble.models._local.engine import ServerClient


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    yield write_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf", {"\n": "h", "h": "i", "i": "\0"})
    gc.collect()


def chat(url, key):
    body = json.dumps({"messages": [{"role": "user", "content": "hello"}], "temperature": 0}).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/chat/completions", body, headers)  # noqa: S310 - a server of our own
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - as above
        return json.load(answer)["choices"][0]["message"]["content"]


def test_server_answers_requests_with_key(tiny):
    with serve(tiny) as served:
        assert served.base_url.startswith("http://127.0.0.1:")
        assert served.api_key not in repr(served)
        assert chat(served.base_url, served.api_key) == "hi"
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            chat(served.base_url, "guessed")
        refused.value.close()
    with pytest.raises(urllib.error.URLError):
        chat(served.base_url, served.api_key)


def test_key_and_port_can_be_set(tiny):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with (
            pytest.raises(ToolConfigurationError, match=f"at 127.0.0.1:{port}: the port is in use"),
            serve(tiny, port=port),
        ):
            pass
    with serve(tiny, port=port, api_key="mine") as served:
        assert (served.base_url, served.api_key) == (f"http://127.0.0.1:{port}/v1", "mine")


async def test_errors_contain_llama_cpp_message():
    with serving() as web:
        web.answers["/a"] = (400, {}, '{"error": {"code": 400, "message": "no such thing"}}')
        web.answers["/b"] = (500, {}, "<html>")
        web.answers["/c"] = (200, {}, 'data: {"content": "x"}\n\nerror: {"message": "out of memory"}\n\n')
        web.answers["/d"] = (200, {}, ':\n\ndata: {"content": "x", "stop": false}\n\n')
        web.answers["/e"] = lambda handler: handler.connection.close()
        wire = ServerClient(web.url(""), "key")
        with pytest.raises(ModelError, match=r"^llama\.cpp: no such thing$"):
            await wire.request("/a")
        with pytest.raises(ModelError, match=r"^llama\.cpp: <html>$"):
            await wire.request("/b", {})
        with pytest.raises(ModelError, match=r"^llama\.cpp: out of memory$"):
            [_ async for _ in wire.stream("/c", {})]
        with pytest.raises(ModelError, match="closed the connection before the end of the answer") as cut:
            [_ async for _ in wire.stream("/d", {})]
        with pytest.raises(ModelError, match=r"^llama\.cpp closed the connection: "):
            await wire.request("/e")
    assert cut.value.retryable
    assert {headers["Authorization"] for _, _, headers, _ in web.requests} == {"Bearer key"}
