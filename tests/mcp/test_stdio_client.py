"""A client of a program: its tools, its lifecycle, and what the server may do to it."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from mcp import Client, MCPError

from helpers.mcp_servers import PLAIN
from helpers.wait import alive, auntil, count_children, until
from toolsemble import Toolbox, ToolCall, ToolConfigurationError, ToolDefinitionError, ToolExecutionError
from toolsemble._engine.limits.effect_ledger import EffectLedger
from toolsemble.mcp import MCPClient
from toolsemble.mcp._client import client_thread, process_group, session, stdio
from toolsemble.mcp._client.results import InvalidAnswerError, OutputCheck

pytestmark = pytest.mark.slow


def call(client, name, box=None, **arguments):
    return (box or Toolbox(list(client))).execute(ToolCall(name, arguments)).result


def test_tools_of_a_server_are_tools_of_a_toolbox(plain):
    with plain() as client:
        box = Toolbox([*client])
        reply = box.execute(ToolCall("echo", {"text": "hello"}))
    assert reply.text == "hello"
    assert box["echo"].description == "Says it again"
    assert box["echo"].metadata == {"mcp": {"server": "plain", "name": "echo", "title": ""}}


def test_a_version_of_the_sdk_without_the_shorter_way_works(plain, monkeypatch):
    monkeypatch.setattr(session, "build_client", Client)
    with plain() as client:
        assert call(client, "echo", text="hello").output == "hello"


def test_a_client_says_what_the_server_is(plain):
    client = plain()
    assert (client.protocol_version, client.server_info, client.instructions) == (None, None, "")
    with client:
        assert client.protocol_version == "2025-11-25"
        assert (client.server_info.name, client.server_info.version) == ("plain", "7")
        assert client.instructions == "Be kind."
        assert repr(client) == f"<MCPClient 'plain', {len(client)} tools>"
    assert repr(client) == "<MCPClient 'plain', not running>"


def test_arguments_are_checked_and_repaired_before_they_are_sent(plain):
    with plain() as client:
        box = Toolbox(list(client))
        assert box.execute(ToolCall("echo", "{}")).text == "Error: Missing required parameter(s) for 'echo': text"
        repaired = box.execute(ToolCall("echo", "{'text': 5}")).result
    assert repaired.output == "5"
    assert [each["step"] for each in repaired.attributes["repairs"]] == ["text", "coerce"]


async def test_async_callers_use_the_same_client(plain):
    async with plain() as client:
        box = Toolbox([*client])
        calls = [ToolCall("echo", {"text": str(number)}) for number in range(50)]
        assert [reply.text for reply in await box.aexecute_all(calls)] == [str(number) for number in range(50)]


def test_threads_and_event_loops_share_one_client(plain):
    with plain() as client:
        box = Toolbox([*client])

        def in_thread(number):
            if number % 2:
                return box.execute(ToolCall("echo", {"text": str(number)})).text
            return asyncio.run(box.aexecute(ToolCall("echo", {"text": str(number)}))).text

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(in_thread, range(24))) == [str(number) for number in range(24)]


async def test_a_sync_call_inside_an_event_loop_works(plain):
    async with plain() as client:
        assert Toolbox([*client]).execute(ToolCall("echo", {"text": "hello"})).text == "hello"


def test_start_and_close_can_be_repeated(plain):
    client = plain()
    client.close()
    assert client.start() is client
    box = Toolbox([*client])
    client.start()
    assert box.execute(ToolCall("echo", {"text": "a"})).text == "a"
    client.close()
    client.close()
    assert box.execute(ToolCall("echo", {"text": "b"})).text == "Error: The MCP server 'plain' is not running"
    client.start()
    assert box.execute(ToolCall("echo", {"text": "c"})).text == "c"


def test_threads_that_start_at_once_start_one_server(plain, tmp_path):
    client = plain("counted", tmp_path / "log")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: client.start(), range(4)))
    client.close()
    assert (tmp_path / "log").read_text() == "started\n"


@pytest.fixture
def short_grace(monkeypatch):
    """Let servers have little time to end by themselves."""
    for module in (process_group, stdio):
        monkeypatch.setattr(module, "GRACE", 0.2)


def test_nothing_is_left_behind(plain, short_grace):
    before = set(Path("/proc/self/fd").iterdir()), threading.active_count()
    for _ in range(3):
        with plain() as client:
            pid = int(call(client, "child").output)
            assert call(client, "echo", text="a").output == "a"
    until(lambda: threading.active_count() <= before[1])
    until(lambda: set(Path("/proc/self/fd").iterdir()) <= before[0])
    until(lambda: not alive(pid))


def test_a_server_that_ignores_the_end_of_its_input_is_ended(plain, short_grace):
    client = plain("ignores-eof")
    with client:
        pid = int(call(client, "child").output)
    assert not alive(pid)


def test_a_server_that_ignores_every_request_to_end_is_killed(plain, short_grace):
    client = plain("ignores-all")
    with client:
        pid = int(call(client, "pid").output)
    assert not alive(pid)


def test_a_process_is_ended_where_there_are_no_groups(plain, short_grace, monkeypatch):
    monkeypatch.delattr(os, "killpg")
    client = plain("ignores-eof")
    with client:
        pid = int(call(client, "pid").output)
    assert not alive(pid)


async def test_a_client_that_does_not_run_can_be_closed(plain):
    await plain().aclose()


def test_a_client_that_is_closed_while_it_starts_ends_its_server(plain, tmp_path):
    client = plain("counted-hangs", tmp_path / "log")
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(client.start)
        until((tmp_path / "log").exists)
        client.close()
        with pytest.raises(ToolConfigurationError, match="The MCP server 'plain' was closed"):
            starting.result(30)


def test_a_change_before_the_first_list_is_in_it(plain):
    with plain("early-change") as client:
        assert call(client, "echo", text="a").output == "a"


def test_settings_apply_to_all_tools(plain):
    with plain(max_output=10, metadata={"team": "web"}) as client:
        box = Toolbox([*client])
        assert len(box.execute(ToolCall("echo", {"text": "x" * 100})).text) < 60
        assert box["echo"].metadata["team"] == "web"


def test_only_chooses_by_the_names_of_the_server(plain):
    with plain(only=["ec*", "note"], prefix="p_") as client:
        assert [tool.name for tool in client] == ["p_echo", "p_note"]
        assert [tool.name for tool in client.current(None)] == ["p_echo", "p_note"]


def test_a_gate_that_matches_no_tool_is_reported(plain, caplog):
    with plain(approve="destructve"):
        assert "approve: 'destructve' matches none of the tools of plain" in caplog.text
    caplog.clear()
    with plain(approve=["echo", "p_note"], prefix="p_"), plain(approve="destructive"):
        assert "matches none" not in caplog.text


def test_a_choice_of_tools_that_matches_none_is_reported(plain, caplog):
    with plain(only=["ecko", "p_echo", "note"], prefix="p_") as client:
        assert "only: 'ecko' matches none of the tools of plain" in caplog.text
        assert client.find_unused() == ["ecko", "p_echo"]  # by the server's own names
    caplog.clear()
    with plain(only="ecko") as client:
        assert list(client) == []
        assert "only: 'ecko' matches none of the tools of plain" in caplog.text
    caplog.clear()
    with plain(only="echo") as client:
        assert client.find_unused() == []
        assert "matches none" not in caplog.text


def test_two_clients_with_equal_names_need_a_prefix(plain):
    with plain() as first, plain() as second, pytest.raises(ToolDefinitionError) as raised:
        Toolbox([*first, *second])
    assert "Duplicate tool name: 'echo'; pass prefix= to one MCPClient" in str(raised.value)


def test_a_program_gets_a_short_environment(plain, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_PROGRAM", "x")
    with plain(env={"TOKEN": "t"}) as client:
        names = json.loads(call(client, "environment").output)
    assert "TOKEN" in names
    assert "PATH" in names
    assert "SECRET_OF_THE_PROGRAM" not in names


def test_changed_tools_are_seen_after_the_call_that_changed_them(plain):
    with plain() as client:
        before = {tool.name: tool for tool in client}
        call(client, "change", text="brand_new")
        after = {tool.name: tool for tool in client.current()}
    assert set(after) - set(before) == {"brand_new"}
    assert after["echo"] is before["echo"]


# --- results and errors


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("error", "no such file"),
        ("refused", "The MCP server 'plain' refused the arguments: text must be shorter"),
        ("internal", "The MCP server 'plain' reported an error: boom"),
    ],
)
def test_an_error_of_the_server_is_a_failure(plain, name, message):
    with plain() as client:
        result = call(client, name, text="no such file")
        assert call(client, "echo", text="still there").output == "still there"
    assert result.error_message == message


def test_prefix_of_an_error_is_not_doubled(plain):
    with plain() as client:
        result = call(client, "error", text="Error: no such file")
    assert result.text == "Error: no such file"


@pytest.mark.parametrize("name", ["no_content", "odd_content", "number", "bad_base64"])
def test_an_answer_that_is_not_mcp_is_a_failure_in_words(plain, name):
    with plain() as client:
        result = call(client, name)
        assert call(client, "echo", text="still there").output == "still there"
    assert result.error_message.startswith("The answer of the MCP server 'plain' cannot be used: ")
    assert result.error_message.endswith("; it is unknown whether the call took effect")
    assert len(result.error_message) < 400


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("garbage", "after garbage"),
        ("bad_utf8", "a\ufffdb"),
        ("unknown_answers", "known"),
        ("flood", "after the flood"),
    ],
)
def test_noise_does_not_disturb_a_call(plain, name, output):
    with plain() as client:
        assert call(client, name).output == output
        assert call(client, "echo", text="still there").output == "still there"


def test_a_code_of_the_server_is_an_attribute(plain):
    with plain() as client:
        assert call(client, "internal").attributes["error_code"] == -32603


# --- silence and death

ENDED = "The MCP server 'plain' ended before it answered; it is unknown whether the call took effect"


@pytest.mark.parametrize("name", ["die", "half_line"])
def test_a_call_whose_server_dies_is_not_repeated(plain, tmp_path, name):
    with plain("", tmp_path / "log") as client:
        result = call(client, name, text="once")
        assert call(client, "echo", text="again").output == "again"
    assert result.error_message == ENDED
    if name == "die":
        assert (tmp_path / "log").read_text() == "once\n"


def test_a_call_that_may_be_repeated_is_sent_once_more(plain, tmp_path):
    with plain("", tmp_path / "log", idempotent=True) as client:
        assert call(client, "die_once", text="x").output == "second time"
        twice = call(client, "die", text="y")
    assert twice.error_message == "The MCP server 'plain' ended before it answered"
    assert (tmp_path / "log").read_text() == "x\nx\ny\ny\n"


def test_the_ledger_keeps_an_unknown_outcome(plain, tmp_path):
    ledger = EffectLedger()
    with plain("", tmp_path / "log", idempotency=True) as client:
        box = Toolbox([*client], ledger=ledger)
        first = box.execute(ToolCall("die", {"text": "pay"}), run_id="r1")
        second = box.execute(ToolCall("die", {"text": "pay"}), run_id="r1")
    assert first.text == f"Error: {ENDED}"
    assert second.text.startswith("Error: Unknown outcome: ")
    assert (tmp_path / "log").read_text() == "pay\n"


def test_a_server_that_died_between_calls_is_started_again(plain, tmp_path):
    with plain("counted", tmp_path / "log") as client:
        box = Toolbox([*client])
        for _ in range(2):
            pid = int(box.execute(ToolCall("pid", {})).text)
            os.kill(pid, 9)
            until(lambda gone=pid: not alive(gone))
            assert box.execute(ToolCall("echo", {"text": "a"})).text == "a"
    assert (tmp_path / "log").read_text() == "started\n" * 3


async def test_calls_that_wait_for_a_restart_share_it(plain, tmp_path):
    async with plain("counted", tmp_path / "log") as client:
        box = Toolbox([*client])
        pid = int((await box.aexecute(ToolCall("pid", {}))).text)
        os.kill(pid, 9)
        await auntil(lambda: not alive(pid))
        replies = await box.aexecute_all([ToolCall("echo", {"text": str(number)}) for number in range(5)])
    assert [reply.text for reply in replies] == ["0", "1", "2", "3", "4"]
    assert (tmp_path / "log").read_text() == "started\n" * 2


def test_a_server_is_restarted_three_times_a_minute_at_most(plain, tmp_path, monkeypatch):
    monkeypatch.setattr(client_thread, "_BACKOFF", (0.0, 0.0, 0.0))
    with plain("counted", tmp_path / "log") as client:
        box = Toolbox([*client])
        texts = [box.execute(ToolCall("die", {"text": "x"})).text for _ in range(5)]
    assert texts[:4] == [f"Error: {ENDED}"] * 4
    assert texts[4].startswith("Error: The MCP server 'plain' ended 3 times within a minute, and is not started again")
    assert (tmp_path / "log").read_text() == "started\nx\n" * 4


def test_a_server_that_cannot_be_started_again_is_a_failure(plain, tmp_path):
    with plain("counted-twice", tmp_path / "log") as client:
        box = Toolbox([*client])
        box.execute(ToolCall("die", {"text": "x"}))
        text = box.execute(ToolCall("echo", {"text": "x"})).text
    assert text.startswith("Error: The MCP server 'plain' cannot be started: ")


def test_a_timeout_is_told_to_the_server(plain, tmp_path):
    with plain("", tmp_path / "log", timeout=0.3) as client:
        result = call(client, "hang")
        until(lambda: (tmp_path / "log").read_text().endswith("cancelled True\n"))
        assert call(client, "echo", text="still there").output == "still there"
    assert result.error_message == (
        "The MCP server 'plain' did not answer within 0.3 s; the call was cancelled, and it is unknown whether it took "
        "effect"
    )


def test_a_timeout_of_a_call_that_may_be_repeated_is_not_unknown(plain, tmp_path):
    with plain("", tmp_path / "log", timeout=0.3, effects="read") as client:
        result = call(client, "hang")
    assert result.error_message == "The MCP server 'plain' did not answer within 0.3 s; the call was cancelled"


async def test_a_timeout_of_a_request_is_told_to_the_server(plain, tmp_path):
    async with plain("", tmp_path / "log") as client:
        with pytest.raises(ToolExecutionError, match="'plain' reported an error: Request 'tools/call' timed out"):
            await client.request(lambda sdk: sdk.call_tool("hang", {}, read_timeout_seconds=0.3))
        await auntil(lambda: (tmp_path / "log").read_text().endswith("cancelled True\n"))


async def test_a_request_is_not_sent_to_a_server_that_has_ended_meanwhile(plain, tmp_path):
    async def send(sdk):
        with suppress(MCPError):
            await sdk.call_tool("die", {"text": "x"})
        return await sdk.list_tools()

    async with plain("", tmp_path / "log") as client:
        with pytest.raises(ToolExecutionError, match="'plain' ended before it answered"):
            await client.request(send)
    assert (tmp_path / "log").read_text() == "x\nx\n"  # a request may be repeated


@pytest.mark.parametrize("sync", [True, False])
def test_a_timeout_of_the_toolbox_is_told_to_the_server(plain, tmp_path, sync):
    with plain("", tmp_path / "log", timeout=None) as client:
        box = Toolbox([*client], timeout=0.3)
        hang = ToolCall("hang", {})
        text = (box.execute(hang) if sync else asyncio.run(box.aexecute(hang))).text
        until(lambda: (tmp_path / "log").read_text().endswith("cancelled True\n"))
    assert "timed out" in text.lower() or "0.3 s" in text


async def test_a_cancelled_task_is_told_to_the_server(plain, tmp_path):
    async with plain("", tmp_path / "log") as client:
        task = asyncio.create_task(Toolbox([*client]).aexecute(ToolCall("hang", {})))
        await auntil((tmp_path / "log").exists)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await auntil(lambda: (tmp_path / "log").read_text().endswith("cancelled True\n"))


def test_calls_in_flight_end_when_the_client_is_closed(plain, tmp_path):
    client = plain("", tmp_path / "log")
    client.start()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(call, client, "hang")
        until((tmp_path / "log").exists)
        client.close()
        assert "unknown whether the call took effect" in future.result(10).error_message


def test_a_message_that_is_too_long_ends_the_server(plain, caplog):
    with plain(max_message=100_000) as client:
        result = call(client, "huge")
        assert call(client, "echo", text="new").output == "new"
    assert result.error_message == (
        "The MCP server 'plain' ended before it answered (it sent a message larger than 100000 bytes (max_message)); "
        "it is unknown whether the call took effect"
    )


def test_a_line_that_is_too_long_ends_the_server(plain):
    with plain(max_message=5000) as client:
        assert "(max_message)" in call(client, "echo", text="x" * 6000).error_message
        assert call(client, "echo", text="new").output == "new"


def test_a_server_that_does_not_read_any_more_is_started_again(plain, short_grace):
    with plain() as client:
        assert call(client, "close_input").output == "closed"
        assert call(client, "echo", text="sent once").output == "sent once"


def test_a_server_that_ends_while_it_is_written_to_leaves_the_outcome_unknown(plain):
    with plain() as client:
        assert call(client, "stop_reading").output == "stopped"
        assert call(client, "echo", text="x" * 3_000_000).error_message == ENDED


def test_a_long_message_is_read(plain):
    with plain() as client:
        assert call(client, "echo", text="x" * 3_000_000).output == "x" * 3_000_000


# --- starts that fail


@pytest.mark.parametrize(
    ("mode", "options", "words"),
    [
        (["hangs"], {"connect_timeout": 0.3}, "cannot be started: no answer within 0.3 s (connect_timeout)"),
        (["exits"], {}, "it wrote to standard error: no license key"),
        (["dies-in-list"], {}, "cannot be started: "),
        (["many", 1001], {}, "cannot be started: it has more than 1000 tools (max_tools)"),
        (["many", 6], {"max_tools": 5}, "cannot be started: it has more than 5 tools (max_tools)"),
        (["endless"], {}, "cannot be started: its list of tools has more than 100 pages"),
        (["odd-list"], {}, "cannot be started: "),
        (["list-error"], {}, "cannot be started: no list today"),
        (["many", 500], {"max_message": 9000}, "it sent a message larger than 9000 bytes (max_message)"),
        (["odd-version"], {}, "cannot be started: Unsupported protocol version from the server: 2099-01-01"),
    ],
)
def test_a_failed_start_says_why(plain, mode, options, words):
    before = threading.active_count()
    client = plain(*mode, **options)
    with pytest.raises(ToolConfigurationError) as raised:
        client.start()
    assert str(raised.value).startswith("The MCP server 'plain' cannot be started: ")
    assert words in str(raised.value)
    assert raised.value.__cause__ is not None
    assert not isinstance(raised.value.__cause__, BaseExceptionGroup)
    until(lambda: threading.active_count() <= before)


async def test_a_failed_start_is_raised_in_an_event_loop(plain):
    with pytest.raises(ToolConfigurationError, match="no license key"):
        async with plain("exits"):
            pass


async def test_a_cancelled_start_ends_the_server(plain, tmp_path):
    before = threading.active_count()
    task = asyncio.create_task(plain("counted-hangs", tmp_path / "log").astart())
    await auntil((tmp_path / "log").exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await auntil(lambda: threading.active_count() <= before)


def test_a_program_that_does_not_exist_is_named():
    with pytest.raises(ToolConfigurationError) as raised:
        MCPClient.stdio("no-such-program-here").start()
    assert str(raised.value) == (
        "The MCP server 'no-such-program-here' cannot be started: there is no program 'no-such-program-here'; "
        "install it, or give its path"
    )


def test_pages_of_tools_are_joined(plain):
    with plain("pages") as client:
        assert [tool.name for tool in client] == ["t0", "t1"]


def test_a_server_without_tools_has_none(plain):
    with plain("no-tools") as client:
        assert list(client) == []


# --- definitions of a server


def listed(plain, tmp_path, *tools, **options):
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([{"inputSchema": {"type": "object"}, **tool} for tool in tools]))
    return plain("json", file, **options)


def test_a_broken_definition_is_left_out(plain, tmp_path, caplog):
    deep = {"type": "string"}
    for _ in range(60):
        deep = {"type": "array", "items": deep}
    tools = [
        {"name": "good"},
        {"name": "no_schema", "inputSchema": None},
        {"inputSchema": {"type": "object"}},
        {"name": "odd_type", "inputSchema": {"type": "object", "properties": {"a": {"type": "strng"}}}},
        {"name": "deep", "inputSchema": {"type": "object", "properties": {"a": deep}}},
        {"name": "invisible", "inputSchema": {"type": "object", "properties": {"a\u200bb": {}}}},
        {"name": "hidden", "inputSchema": {"type": "object", "properties": {"a": {"enum": ["x\U000e0041"]}}}},
    ]
    with caplog.at_level(logging.WARNING, "toolsemble.mcp"), listed(plain, tmp_path, *tools) as client:
        assert [tool.name for tool in client] == ["good"]
    assert len(caplog.records) == 6


def test_texts_are_cleaned_and_bounded(plain, tmp_path):
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "description": "x\u202ey\x07", "default": "d\u200b", "title": "t" * 999}
        },
    }
    tool = {
        "name": "a",
        "title": "T\u2066itle",
        "description": "One\u200b\nTwo\x1b" + "z" * 9999,
        "inputSchema": schema,
    }
    with listed(plain, tmp_path, tool) as client:
        (found,) = client
    assert found.description.startswith("One\nTwozzz")
    assert len(found.description) == 4000
    assert found.metadata["mcp"]["title"] == "Title"
    (parameter,) = Toolbox([found]).specifications[0].parameters["properties"].values()
    assert parameter["description"] == "xy"
    assert parameter["default"] == "d"


def test_a_title_is_the_description_of_a_tool_without_one(plain, tmp_path):
    with listed(plain, tmp_path, {"name": "a", "annotations": {"title": "Reads"}}) as client:
        assert [tool.description for tool in client] == ["Reads"]


def test_what_cannot_be_checked_here_is_left_to_the_server(plain, tmp_path):
    schema = {
        "$schema": "https://example.com/mine",
        "type": "object",
        "properties": {
            "id": {"type": "integer", "format": "int64", "description": "The id", "nullable": True, "$comment": "c"},
            "when": {"type": "string", "format": "date", "examples": [{"a": ["b\u200b"]}, 3]},
        },
        "allOf": [{"required": ["id"]}],
        "propertyOrdering": ["id"],
    }
    with listed(plain, tmp_path, {"name": "a", "inputSchema": schema}) as client:
        (found,) = client
        box = Toolbox([found])
    assert box.specifications[0].parameters["properties"]["id"]["description"] == "The id. Format: int64"
    assert "when: expected" in box.execute(ToolCall("a", {"id": 1, "when": "x"})).text


def test_names_are_mapped_to_names_that_models_can_use(plain, tmp_path):
    long = "x" * 100
    tools = [{"name": name} for name in ("dir.list", "dir_list", "Read File", long, "", "dir.list")]
    with listed(plain, tmp_path, *tools, prefix="fs_") as client:
        names = {tool.metadata["mcp"]["name"]: tool.name for tool in client}
    assert names["dir_list"] == "fs_dir_list"
    assert names["dir.list"].startswith("fs_dir_list_")
    assert names["Read File"] == "fs_Read_File"
    assert names[""] == "fs_tool"
    assert len(names[long]) == 64
    assert len(set(names.values())) == 5


# --- hints and approval


class Recorder:
    def __init__(self, decision):
        self.decision = decision
        self.requests = []

    def review(self, request):
        self.requests.append(request)
        return self.decision


HINTED = [
    {"name": "plain_one"},
    {"name": "reads", "annotations": {"readOnlyHint": True}},
    {"name": "adds", "annotations": {"destructiveHint": False, "idempotentHint": True}},
    {"name": "drops", "annotations": {"destructiveHint": True}},
]


def test_hints_are_not_believed_without_trust(plain, tmp_path):
    with listed(plain, tmp_path, *HINTED) as client:
        assert {(tool.effects, tool.idempotent) for tool in client} == {(None, False)}
        assert {tool.requires_approval for tool in client} == {False}


def test_trusted_hints_say_what_a_tool_does(plain, tmp_path):
    with listed(plain, tmp_path, *HINTED, trust_hints=True, cache=60, retries=2, idempotency=True) as client:
        found = {tool.name: (tool.effects, tool.idempotent, bool(tool.cache), tool.retries) for tool in client}
    assert found == {
        "plain_one": (None, False, False, 0),
        "reads": ("read", False, True, 2),
        "adds": ("write", True, False, 2),
        "drops": ("irreversible", False, False, 0),
    }


@pytest.mark.parametrize(
    ("approve", "gated"),
    [
        ("destructive", ["plain_one", "drops"]),
        (["dr*"], ["drops"]),
        ("reads", ["reads"]),
        (lambda arguments, context: True, ["plain_one", "reads", "adds", "drops"]),
    ],
)
def test_approve_gates_tools(plain, tmp_path, approve, gated):
    with listed(plain, tmp_path, *HINTED, approve=approve) as client:
        assert [tool.name for tool in client if tool.requires_approval is not False] == gated


# --- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": -1}, "MCPClient timeout must be a number of seconds > 0, not -1"),
        ({"connect_timeout": None}, "MCPClient connect_timeout must be a number of seconds > 0, not None"),
        ({"max_tools": 0}, "MCPClient max_tools must be an int >= 1, not 0"),
        ({"prefix": "a b"}, "MCPClient prefix must be at most 40 letters, digits, '_' or '-', not 'a b'"),
        ({"prefix": 5}, "MCPClient prefix must be a str, not 5"),
        ({"name": 5}, "MCPClient name must be a str, not 5"),
        ({"only": 5}, "MCPClient only must be a list of str, not 5"),
        ({"approve": [5]}, "MCPClient approve must be a list of str, not [5]"),
        ({"trust_hints": 1}, "MCPClient trust_hints must be True or False, not 1"),
        ({"review": 5}, "MCPClient review must be an object with a method review(request), not 5"),
        ({"isolation": "process"}, "MCPClient: isolation is not possible for tools of a server"),
        ({"cache": 60}, "MCPClient: cache is for tools that may be repeated; pass trust_hints=True to believe"),
        ({"env": {"A": 1}}, "MCPClient env must map str to str"),
        ({"env": 5}, "MCPClient env must map str to str"),
    ],
)
def test_a_wrong_option_is_refused(options, message):
    with pytest.raises(ToolDefinitionError) as raised:
        MCPClient.stdio("server", **options)
    assert str(raised.value).startswith(message)


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError, match=r"MCPClient has no option 'prefixx'; known are .*prefix"):
        MCPClient.stdio("server", prefixx="a")


@pytest.mark.parametrize("line", [("",), (5,), ("a", "b\0c")])
def test_a_wrong_command_is_refused(line):
    with pytest.raises(ToolDefinitionError, match=r"MCPClient\.stdio takes the command and its arguments as str"):
        MCPClient.stdio(*line)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (["/usr/bin/mcp-server-git"], "mcp-server-git"),
        (["npx", "-y", "@scope/server-files", "."], "server-files"),
        (["python"], "python"),
    ],
)
def test_a_client_is_named_after_its_program(line, name):
    assert MCPClient.stdio(*line).name == name


def test_a_missing_sdk_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(ToolDefinitionError, match=r"MCPClient needs the package 'mcp': pip install .*\[mcp\]"):
        MCPClient.stdio("server")


def test_unhandled_clients_are_closed_at_the_end_of_the_program(tmp_path):
    program = (
        "import sys; from toolsemble import Toolbox, ToolCall; from toolsemble.mcp import MCPClient\n"
        f"client = MCPClient.stdio(sys.executable, {PLAIN!r}).start()\n"
        "print(Toolbox([*client]).execute(ToolCall('child', {})).text)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert not alive(int(done.stdout))
    assert done.stderr == ""


def test_a_forked_process_starts_its_own_server(plain, tmp_path):
    with plain("counted", tmp_path / "log") as client:
        box = Toolbox([*client])
        pid = os.fork()
        if not pid:
            fine = box.execute(ToolCall("echo", {"text": "child"})).text == "child"
            client.close()
            os._exit(0 if fine else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert box.execute(ToolCall("echo", {"text": "parent"})).text == "parent"
    assert (tmp_path / "log").read_text() == "started\n" * 2


def test_a_client_of_another_process_starts_its_own_server(plain, tmp_path):
    with plain("counted", tmp_path / "log") as client:
        parent = client._connection._worker
        parent.process = -1  # as after a fork, but here it is measured
        assert call(client, "echo", text="child").output == "child"
        parent.stop()
    assert (tmp_path / "log").read_text() == "started\n" * 2


def test_an_interrupted_start_ends_the_server(plain, tmp_path):
    before = threading.active_count()

    def interrupt():
        until((tmp_path / "log").exists)
        signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        plain("counted-hangs", tmp_path / "log").start()
    thread.join()
    until(lambda: threading.active_count() <= before)


async def test_a_client_that_is_closed_again_while_its_start_ends_leaves_no_process(plain, tmp_path):
    before = count_children()
    client = plain("counted-hangs", tmp_path / "log")
    starting = asyncio.create_task(client.__aenter__())
    await auntil((tmp_path / "log").exists)
    worker = client._connection._worker
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    while not worker.ended.done():
        worker.stop()
        await asyncio.sleep(0)
    assert count_children() <= before


def test_an_output_schema_that_cannot_be_checked_is_ignored(plain, tmp_path, caplog):
    tools = [
        {"name": "a", "outputSchema": {"type": "object", "$ref": "#/nowhere"}},
        {"name": "b", "outputSchema": 5},
    ]
    with listed(plain, tmp_path, *tools) as client:
        assert [tool.name for tool in client] == ["a", "b"]
    assert "The results of 'a' are not checked" in caplog.text
    assert "The results of 'b' are not checked: the schema must be an object, not int" in caplog.text


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"x": float("nan")}, "its structured content is not JSON"),
        ([1], "its structured content is not an object"),
        ({"x": "a"}, "does not fit its output schema: x: expected a number"),
    ],
)
def test_structured_content_must_fit(value, problem):
    check = OutputCheck("a", {"type": "object", "properties": {"x": {"type": "number"}, "y": {"const": "z"}}})
    with pytest.raises(InvalidAnswerError, match=problem):
        check.verify(value)


def test_tools_that_cannot_be_listed_again_stay_as_they_were(plain, caplog):
    with plain(max_tools=60) as client:
        before = [tool.name for tool in client]
        call(client, "change_much")
        assert [tool.name for tool in client] == before
        assert call(client, "echo", text="still there").output == "still there"
    assert "The tools of plain cannot be listed: it has more than 60 tools" in caplog.text
