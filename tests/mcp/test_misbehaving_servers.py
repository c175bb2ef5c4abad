"""Servers that misbehave in every way: nothing hangs, is left behind, or is repeated that may not be.

``make chaos-mcp`` kills the servers a hundred times each.
"""

import os
import random
import resource
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from helpers.wait import alive, count_children, until
from toolsemble import Toolbox, ToolCall, ToolConfigurationError
from toolsemble.mcp import MCPClient
from toolsemble.mcp._client import client_thread

pytestmark = pytest.mark.slow

KILLS = os.environ.get("TOOLSEMBLE_KILLS")
AT_ONCE = 5 if KILLS else 2

MODERN = """
import os
import sys
from pathlib import Path
from toolsemble import Toolbox, tool
from toolsemble.mcp import serve

@tool
def pid() -> str:
    "Return the id of this process."
    return str(os.getpid())

@tool
def note(text: str) -> str:
    "Write a line to a file."
    with Path(sys.argv[1]).open("a") as file:
        file.write(text + chr(10))
    return "written"

serve(Toolbox([pid, note]))
"""


def open_things():
    """Return what must not grow: threads, open files, and processes that this one has started."""
    return threading.active_count(), len(list(Path("/proc/self/fd").iterdir())), count_children()


@pytest.fixture(autouse=True)
def nothing_is_left(plain):
    """Check that a test leaves no thread, file or process behind."""
    warm = plain()  # what is opened once in a process is open now
    warm.start()
    warm.close()
    # The thread that waited for its process may end a moment later.
    until(lambda: not any(each.name.startswith("asyncio-waitpid") for each in threading.enumerate()))
    before = open_things()
    yield
    until(lambda: all(now <= then for now, then in zip(open_things(), before, strict=True)))


@pytest.fixture
def often(monkeypatch):
    """Let servers be started again at once, and any number of times."""
    monkeypatch.setattr(client_thread, "_MAX_RESTARTS", 10_000)
    monkeypatch.setattr(client_thread, "_BACKOFF", (0.0,) * 10_000)


def call(box, name, **arguments):
    return box.execute(ToolCall(name, arguments)).text


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        (["hangs"], "no answer within 0.3 s"),
        (["counted-hangs", "file"], "no answer within 0.3 s"),
        (["exits"], "no license key"),
        (["dies-in-list"], "cannot be started: it ended before it answered"),
        (["endless"], "more than 100 pages"),
    ],
)
def test_a_start_that_fails_leaves_nothing_behind(plain, tmp_path, mode, words):
    line = [str(tmp_path / each) if each == "file" else each for each in mode]
    client = plain(*line, connect_timeout=0.3 if "hangs" in mode[0] else 30)
    for _ in range(2):
        with pytest.raises(ToolConfigurationError, match=words):
            client.start()


def test_a_hundred_thousand_tools_are_refused(plain):
    with pytest.raises(ToolConfigurationError, match="more than 1000 tools"):
        plain("many", 100_000).start()


@pytest.mark.parametrize("mode", ["floods", "chatters"])
def test_a_server_that_is_noisy_at_its_start_works(plain, mode):
    with plain(mode) as client:
        assert call(Toolbox([*client]), "echo", text="hello") == "hello"


def test_a_line_of_a_gigabyte_is_not_stored(plain, often):
    with plain() as client:
        box = Toolbox([*client])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert "it sent a message larger than 33554432 bytes (max_message)" in call(box, "gigabyte")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes
        assert call(box, "echo", text="still there") == "still there"


def test_every_way_to_misbehave_in_one_session(plain, often):
    with plain() as client:
        box = Toolbox([*client])
        for name in ("garbage", "bad_utf8", "flood", "no_content", "number", "unknown_answers", "half_line", "child"):
            call(box, name)
            assert call(box, "echo", text=name) == name


@pytest.mark.parametrize(("options", "times"), [({}, 1), ({"effects": "read"}, 2)])
def test_a_server_that_dies_twice_gets_a_call_twice_at_most(plain, tmp_path, often, options, times):
    with plain("", tmp_path / "log", **options) as client:
        reply = call(Toolbox([*client]), "die", text="once")
        assert reply.startswith("Error: The MCP server 'plain' ended before it answered")
        assert ("it is unknown whether the call took effect" in reply) == (times == 1)
        assert (tmp_path / "log").read_text().splitlines() == ["once"] * times


def test_a_server_that_dies_between_calls_answers_every_call(plain, often):
    with plain() as client:
        box = Toolbox([*client])
        for _ in range(5):
            pid = int(call(box, "pid"))
            os.kill(pid, 9)
            until(lambda gone=pid: not alive(gone))
            assert call(box, "echo", text="again") == "again"


def test_calls_of_many_threads_end_when_the_server_dies(plain, tmp_path, often):
    with plain("", tmp_path / "log") as client:
        box = Toolbox([*client])
        replies = []

        def work(number):
            replies.append(call(box, "die" if number == 3 else "note", text=str(number)))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
        lines = (tmp_path / "log").read_text().splitlines()
    assert len(replies) == 8
    assert len(lines) == len(set(lines))


def find_pid(box):
    """Return the process of the server; the client may learn that the last one is dead only by a call."""
    answers = []
    until(lambda: answers.append(call(box, "pid")) or answers[-1].isdigit())
    return int(answers[-1])


def kill_often(client, kills, log):
    """Kill the server of a client again and again during calls; return what it said that it has written."""
    written, sent = [], 0
    with client:
        box = Toolbox([*client])
        for number in range(kills):
            pid = find_pid(box)
            killer = threading.Timer(random.random() / 100, os.kill, (pid, 9))  # noqa: S311 - any moment will do
            killer.start()
            while alive(pid):
                text = f"{log.name} {number} {sent}"
                sent += 1
                if call(box, "note", text=text) == "written":
                    written.append(text)
            killer.join()
    return written


@pytest.mark.parametrize(("version", "kills"), [("2025-11-25", 10), ("2026-07-28", 2)])
def test_a_server_that_is_killed_at_random_moments_repeats_nothing(plain, tmp_path, often, version, kills):
    program = tmp_path / "server.py"
    program.write_text(MODERN)
    logs = [tmp_path / f"log{number}" for number in range(AT_ONCE)]
    clients = [
        plain("", log)
        if version == "2025-11-25"
        else MCPClient.stdio(sys.executable, str(program), str(log), name="modern")
        for log in logs
    ]
    for log in logs:
        log.touch()  # a server may be killed before it has written anything
    each = -(-int(KILLS or kills) // AT_ONCE)
    with ThreadPoolExecutor(AT_ONCE) as pool:  # servers that start take most of the time
        found = list(pool.map(kill_often, clients, [each] * AT_ONCE, logs))
    assert {client.protocol_version for client in clients} == {version}
    for log, written in zip(logs, found, strict=True):
        lines = log.read_text().splitlines()
        assert len(lines) == len(set(lines))
        assert set(written) <= set(lines)
