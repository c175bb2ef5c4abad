"""``serve`` in this process: standard streams that are pipes, and the server that listens."""

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import threading

import pytest
import uvicorn

from helpers.mcp_server import SECONDS
from toolsemble import Toolbox, ToolDefinitionError, __version__, tool
from toolsemble._cli import main
from toolsemble._runtime import extras
from toolsemble.mcp import serve
from toolsemble.mcp._server import stdio as standard_streams

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}
CALL = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "shout", "arguments": {"text": "hi"}}}


@tool
def shout(text: str) -> str:
    """Say it louder."""
    print("not for the protocol")  # noqa: T201 - what is tested
    return text.upper()


class Streams:
    """Standard streams of a program, and the other ends of its pipes."""

    def __init__(self):
        incoming, write = os.pipe()
        read, outgoing = os.pipe()
        self.requests, self.answers = os.fdopen(write, "wb", 0), os.fdopen(read, "rb")
        self.stdin, self.stdout = (
            io.TextIOWrapper(os.fdopen(incoming, "rb")),
            io.TextIOWrapper(os.fdopen(outgoing, "wb")),
        )
        self.stderr = io.StringIO()

    def ask(self, *messages):
        """Send messages, and return the answer to the last one."""
        for message in messages:
            self.requests.write(json.dumps(message).encode() + b"\n")
        return json.loads(self.answers.readline())["result"]


@pytest.mark.parametrize("way", ["function", "command"])
def test_serves_on_standard_streams_until_the_client_leaves(monkeypatch, way, tmp_path):
    file, codes, streams = tmp_path / "loud_tools.py", [], Streams()
    file.write_text("from toolsemble import tool\n@tool\ndef shout(text: str) -> str:\n    return text.upper()\n")

    def run():
        if way == "function":
            serve(Toolbox([shout]))
        else:
            codes.append(main(["serve", str(file)]))

    with monkeypatch.context() as patch:
        for name in ("stdin", "stdout", "stderr"):
            patch.setattr(sys, name, getattr(streams, name))
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        introduced, answered = streams.ask(INITIALIZE), streams.ask(READY, CALL)
        streams.requests.close()
        thread.join(SECONDS)
    assert not thread.is_alive()
    assert (introduced["serverInfo"]["name"], introduced["serverInfo"]["version"]) == ("toolsemble", __version__)
    assert answered["content"] == [{"type": "text", "text": "HI"}]
    assert codes == ([] if way == "function" else [0])
    assert ("not for the protocol" in streams.stderr.getvalue()) == (way == "function")
    for stream in (streams.stdin, streams.stdout, streams.answers):
        stream.close()


def test_a_line_that_is_too_long_is_not_kept_and_the_server_goes_on(monkeypatch):
    monkeypatch.setattr(standard_streams, "_LONGEST", 1000)
    streams = Streams()
    with monkeypatch.context() as patch:
        for name in ("stdin", "stdout", "stderr"):
            patch.setattr(sys, name, getattr(streams, name))
        thread = threading.Thread(target=serve, args=(Toolbox([shout]),), daemon=True)
        thread.start()
        streams.ask(INITIALIZE)
        long = {**CALL, "id": 7, "params": {"name": "shout", "arguments": {"text": "x" * 5000}}}
        streams.requests.write(json.dumps(READY).encode() + b"\n" + json.dumps(long).encode() + b"\n")
        streams.requests.write(json.dumps(CALL).encode() + b"\n")
        answers = []
        while not answers or answers[-1].get("id") != CALL["id"]:
            answers.append(json.loads(streams.answers.readline()))
        streams.requests.close()
        thread.join(SECONDS)
    assert not thread.is_alive()
    assert answers[-1]["result"]["content"] == [{"type": "text", "text": "HI"}]
    assert all("result" not in each for each in answers[:-1])
    for stream in (streams.stdin, streams.stdout, streams.answers):
        stream.close()


def test_tools_cannot_read_the_requests(monkeypatch):
    streams, before = Streams(), os.dup(0)

    @tool
    def peek() -> str:
        return os.read(0, 100).decode()

    def run():
        serve(Toolbox([peek]))

    os.dup2(streams.stdin.fileno(), 0)
    with monkeypatch.context() as patch, open(0, "rb", closefd=False) as stdin:
        patch.setattr(sys, "stdin", io.TextIOWrapper(stdin))
        patch.setattr(sys, "stdout", streams.stdout)
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        streams.ask(INITIALIZE)
        answer = streams.ask(READY, {**CALL, "params": {"name": "peek", "arguments": {}}})
        streams.requests.close()
        thread.join(SECONDS)
    os.dup2(before, 0)
    os.close(before)
    assert not thread.is_alive()
    assert answer["content"] == [{"type": "text", "text": ""}]
    for stream in (streams.stdin, streams.stdout, streams.answers):
        stream.close()


@pytest.mark.parametrize("has_errors", [True, False])
def test_what_is_written_to_the_descriptor_of_standard_output_is_not_sent(monkeypatch, capfd, has_errors):
    streams, before = Streams(), os.dup(1)

    @tool
    def noise() -> str:
        os.write(1, b"noise")
        return "done"

    os.dup2(streams.stdout.fileno(), 1)
    with monkeypatch.context() as patch, open(1, "wb", closefd=False) as stdout:
        patch.setattr(sys, "stdin", streams.stdin)
        patch.setattr(sys, "stdout", io.TextIOWrapper(stdout))
        if not has_errors:
            patch.setattr(sys, "__stderr__", None)
        thread = threading.Thread(target=lambda: serve(Toolbox([noise])), daemon=True)
        thread.start()
        streams.ask(INITIALIZE)
        answer = streams.ask(READY, {**CALL, "params": {"name": "noise", "arguments": {}}})
        streams.requests.close()
        thread.join(SECONDS)
        sys.stdout.detach()
    os.dup2(before, 1)
    os.close(before)
    assert not thread.is_alive()
    assert answer["content"] == [{"type": "text", "text": "done"}]
    assert ("noise" in capfd.readouterr().err) == has_errors
    for stream in (streams.stdin, streams.stdout, streams.answers):
        stream.close()


def test_an_interrupt_does_not_wait_for_the_client(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "from toolsemble import Toolbox\nfrom toolsemble.mcp import serve\n"
        "try:\n    serve(Toolbox([]))\nexcept KeyboardInterrupt:\n    raise SystemExit(7)\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, str(program)], stdin=pipe, stdout=pipe) as process:
        process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        process.stdin.flush()
        assert b"serverInfo" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 7


def test_an_empty_input_ends_the_server(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
        patch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
        serve(Toolbox([shout]))


async def test_the_reader_ends_with_the_server():
    read, write = os.pipe()
    with os.fdopen(read, "rb") as requests, os.fdopen(write, "wb", 0) as client:
        lines = standard_streams.ThreadLines(requests)
        client.write(b"one\n")
        assert await lines.get() == b"one\n"
        lines._loop = asyncio.new_event_loop()
        lines._loop.close()
        reader = next(each for each in threading.enumerate() if each.name == "toolsemble-mcp-input")
        client.write(b"two\n")
        await asyncio.to_thread(reader.join, SECONDS)
        assert not reader.is_alive()


@pytest.mark.parametrize("hosts", [(), ["tools.example.com"]])
def test_listens_at_the_address(monkeypatch, hosts):
    calls = []
    monkeypatch.setattr(uvicorn, "run", lambda app, **settings: calls.append((app, settings)))
    serve(Toolbox([shout]), http="0.0.0.0:8000" if hosts else "[::1]:8000", allowed_hosts=iter(hosts))
    ((app, settings),) = calls
    assert callable(app)
    assert (settings["host"], settings["port"]) == ("0.0.0.0" if hosts else "::1", 8000)  # noqa: S104 - as above


def test_a_missing_sdk_is_named_with_its_extra(monkeypatch):
    def fail(name):
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(extras, "import_module", fail)
    with pytest.raises(ToolDefinitionError, match=r"needs the package 'mcp': pip install .*\[mcp\]"):
        serve(Toolbox([shout]))
