from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import sleep  # by name: it stays what it is when a test stops the clock
from typing import Annotated

import pytest
from pydantic import Field

from helpers.sample_tools import Reviewer
from helpers.wait import alive, ignored_signals, read_mask
from toolsemble import Continue, Edit, ExitEarly, Toolbox, ToolCall, ToolDefinitionError, ToolResult
from toolsemble.builtin import ProcessTool, _child_process as child_process, _process as process

pytestmark = pytest.mark.slow

LONG = 1000
"""Seconds that no test waits for: programs that take this long are killed."""


def make_python_tool(program, *arguments, **settings):
    """Return a tool that runs a Python program."""
    return ProcessTool("worker", "Works", [sys.executable, "-c", program, *arguments], **settings)


def make_answering_tool(text, code=0):
    """Return a tool whose program reads its input and writes a text."""
    return make_python_tool(f"import sys; sys.stdin.read(); sys.stdout.write({text!r}); sys.exit({code})")


def has_ended(pid):
    """Whether a process has ended, within a bounded wait; a zombie has ended, too."""
    for _ in range(500):
        if not alive(pid):
            return True
        sleep(0.02)
    return False


def wait_for(path):
    """Return what a program writes into a file, once it is there."""
    for _ in range(1500):
        if path.exists() and path.read_text().endswith("\n"):
            return path.read_text().split()
        sleep(0.02)
    raise AssertionError(f"{path} was not written")


def run_past_timeout(tool, file, clock):
    """Return the result of a call whose timeout expires after its program has written a file, and the file's text."""
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(tool.execute, "")
        written = wait_for(file)
        with clock.running():
            return call.result(60).error_message, written


def test_model_sends_one_text():
    (specification,) = Toolbox([make_python_tool("")]).specifications
    assert (specification.name, specification.description) == ("worker", "Works")
    assert specification.parameters == {
        "type": "object",
        "properties": {"input": {"type": "string", "description": "The input to pass to the tool"}},
        "required": ["input"],
    }


@pytest.mark.parametrize(
    "text", ["", "hello", "two\nlines", 'a "quote" and a \\', "日本 🎉", "; rm -rf /", "$(id)", "\0"]
)
async def test_program_gets_one_json_object_on_standard_input(text):
    tool = make_python_tool("import sys; print(repr(sys.stdin.buffer.read()))")
    reply = await Toolbox([tool]).aexecute(ToolCall("worker", {"input": text}))
    sent = eval(reply.text)  # noqa: S307 - the repr of bytes, out of our own program
    assert json.loads(sent) == {"input": text}
    assert sent.endswith(b"\n")


@pytest.mark.parametrize(
    ("written", "result"),
    [
        ('{"output": "done", "success": true}', ToolResult.success("done")),
        ('{"output": "done"}\n', ToolResult.success("done")),
        ('{"output": "done", "success": true, "structured": {"n": 1}}', ToolResult.success("done", {"n": 1})),
        ('{"output": {"n": "é"}, "success": true}', ToolResult.success('{"n":"é"}', {"n": "é"})),
        ('{"output": [1], "structured": 2}', ToolResult.success("[1]", 2)),
        ('{"output": null, "success": true}', ToolResult.success("")),
        ('{"success": true}', ToolResult.success("")),
        ('{"output": "done", "error": null}', ToolResult.success("done")),
        ('{"output": "done", "error": ""}', ToolResult.success("done")),
        ('{"output": "done", "error": []}', ToolResult.failure("[]")),
        ('{"error": "", "success": false}', ToolResult.failure()),
        ('{"error": "no such city", "success": false}', ToolResult.failure("no such city")),
        ('{"error": "no such city"}', ToolResult.failure("no such city")),
        ('{"error": {"code": 7}, "success": false}', ToolResult.failure('{"code":7}')),
        ('{"success": false}', ToolResult.failure()),
        ('{"output": "done", "success": "yes"}', ToolResult.failure()),
        ('{"error": "x", "success": false, "structured": 3}', ToolResult.failure("x", structured_output=3)),
        ("plain text\n", ToolResult.success("plain text")),
        ("  indented\nlines\n\n", ToolResult.success("  indented\nlines")),
        ("", ToolResult.success("")),
        ('{"temperature": 21}', ToolResult.success('{"temperature": 21}')),
        ("[1, 2]", ToolResult.success("[1, 2]")),
        ('{"output": "cut', ToolResult.success('{"output": "cut')),
        ("[" * 100_000, ToolResult.success("[" * 100_000)),
        ("1" * 5000, ToolResult.success("1" * 5000)),
    ],
)
def test_answer_is_one_json_object_or_plain_text(written, result):
    assert make_answering_tool(written).execute("x") == result


def test_undecodable_bytes_are_replaced():
    assert make_python_tool(r"import os; os.write(1, b'\xef\xbb\xbfa\xffb')").execute("").output == "a\ufffdb"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import sys; sys.exit('it broke')", "it broke"),
        ("import sys; print('out'); sys.exit(3)", "Process exited with code 3"),
        ("import sys; print('out'); print('why', file=sys.stderr); sys.exit(3)", "why"),
        ("""import sys; print('{"error": "told", "success": false}'); sys.exit(1)""", "told"),
        ("""import sys; print('{"output": "fine", "success": true}'); sys.exit(1)""", "Process exited with code 1"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", f"Process exited with code {-signal.SIGTERM}"),
    ],
)
def test_nonzero_exit_code_is_a_failure(program, message):
    result = make_python_tool(program).execute("x")
    assert result.error_message == message
    assert result.attributes["exit_code"] != 0


def test_stderr_of_success_is_an_attribute():
    result = make_python_tool("import sys; print('fine'); print('careful', file=sys.stderr)").execute("")
    assert result == ToolResult.success("fine", attributes={"stderr": "careful"})


async def test_large_input_and_output_do_not_deadlock():
    program = (
        "import sys\n"
        "for _ in range(40):\n"
        "    sys.stdout.write('o' * 50_000); sys.stderr.write('e' * 50_000)\n"
        "sys.stdin.read()\n"
    )
    result = await make_python_tool(program, max_output=10_000_000).aexecute("x" * 3_000_000)
    assert (len(result.output), len(result.attributes["stderr"])) == (2_000_000, 2_000_000)


def test_program_may_ignore_its_input():
    assert make_python_tool("print('done')").execute("x" * 3_000_000).output == "done"
    assert make_python_tool("import os; os.close(0); print('done')").execute("x" * 3_000_000).output == "done"


class TestLimits:
    def test_each_stream_is_limited_to_one_mebibyte(self):
        program = "import sys; sys.stdout.write('o' * 3_000_000); sys.stderr.write('e' * 3_000_000)"
        result = make_python_tool(program).execute("")
        note = "\n[output truncated at 1048576 bytes]"
        assert result.output == "o" * 1_048_576 + note
        assert result.attributes["stderr"] == "e" * 1_048_576 + note

    @pytest.mark.parametrize(
        ("written", "output"),
        [
            ("12345", "12345"),
            ("123456", "12345\n[output truncated at 5 bytes]"),
            ("abcdé", "abcd\n[output truncated at 5 bytes]"),
        ],
    )
    def test_output_limit_is_exact_and_splits_no_character(self, written, output):
        program = f"import os; os.write(1, {written.encode()!r})"
        assert make_python_tool(program, max_output=5).execute("").output == output

    @pytest.mark.parametrize("start", ["", " \n", "\ufeff"])
    @pytest.mark.parametrize(
        "answer", [{"error": "x" * 100, "success": False}, {"output": "x" * 100}, {"n": "x" * 100}]
    )
    def test_truncated_object_is_a_failure(self, start, answer):
        program = f"import os; os.write(1, {(start + json.dumps(answer)).encode()!r}); os.write(2, b'careful')"
        expected = ToolResult.failure("The answer is larger than 50 bytes", attributes={"stderr": "careful"})
        assert make_python_tool(program, max_output=50).execute("") == expected

    def test_trailing_newline_does_not_count_toward_limit(self):
        program = """print('{"output": "x"}')"""
        assert make_python_tool(program, max_output=15).execute("") == ToolResult.success("x")

    def test_endless_output_stops_at_timeout(self):
        result = make_python_tool("while True: print('x' * 1000)", timeout=1).execute("")
        assert result.error_message == "Process timed out after 1 s"

    def test_memory_can_be_limited(self):
        program = "b = bytearray(2_000_000_000); print(len(b))"
        result = make_python_tool(program, max_memory=500_000_000).execute("")
        assert result.error_message.endswith("MemoryError")

    def test_processor_time_can_be_limited(self):
        result = make_python_tool("while True: pass", max_cpu=1).execute("")
        assert result.error_message == f"Process exited with code {-signal.SIGXCPU}"

    def test_fractional_cpu_limit_is_rounded_up(self):
        program = "import resource; print(resource.getrlimit(resource.RLIMIT_CPU))"
        assert make_python_tool(program, max_cpu=0.5).execute("").output == "(1, 2)"

    def test_limits_do_not_change_input_and_arguments(self):
        tool = make_python_tool("import sys; print(sys.stdin.read(), sys.argv[1:])", "a b", "$HOME", max_cpu=60)
        assert tool.execute("hi").output == "{\"input\": \"hi\"}\n ['a b', '$HOME']"

    def test_missing_program_is_reported_with_limits(self):
        tool = ProcessTool("worker", "Works", ["no-such-program"], max_cpu=60)
        assert tool.execute("").error_message == "Cannot start 'no-such-program': No such file or directory"

    def test_limits_are_rejected_on_unsupported_platforms(self, monkeypatch):
        monkeypatch.setattr(process, "LIMITS", False)
        with pytest.raises(ToolDefinitionError, match="max_memory is not supported on this system"):
            make_python_tool("", max_memory=1_000_000)
        make_python_tool("")


STAY = f"sleep {LONG} & echo $$ $! > pids; "
ESCAPE = (
    f"setsid sh -c 'echo $$ > escaped; exec sleep {LONG}' & "
    "until [ -s escaped ]; do :; done; echo $$ $(cat escaped) > pids; "
)


# A daemon as in the books: two forks, its own session, no pipes; then another program without any environment.
DAEMON = f"""
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir("/")
        os.closerange(0, 256)
        os.setsid()
        file = os.open(sys.argv[1] + ".new", os.O_CREAT | os.O_WRONLY)
        os.write(file, b"%d\\n" % os.getpid())
        os.close(file)
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        os.execve("/bin/sh", ["innocent", "-c", "sleep {LONG}; :"], {{}})
    os._exit(0)
os.wait()
"""
# Forks, leads a session, and ends, again and again: the one that is looked at is never the one that runs.
FLEEING = """
import os, sys
if os.fork() == 0:
    os.setsid()
    os.closerange(0, 256)
    os.write(os.open(sys.argv[1], os.O_WRONLY), b"here")  # open until the last of them has ended
    for _ in range(100_000):
        if os.fork():
            os._exit(0)
        os.setsid()
"""


def make_parent_tool(program, folder, **settings):
    """Return a tool whose program starts another, and writes down the numbers of both."""
    return ProcessTool("parent", "Has a child", ["sh", "-c", program], cwd=folder, **settings)


class TestTermination:
    def test_timeout_kills_the_program_and_its_children(self, tmp_path, clock):
        message, pids = run_past_timeout(make_parent_tool(STAY + "wait", tmp_path, timeout=2), tmp_path / "pids", clock)
        assert message == "Process timed out after 2 s"
        assert all(has_ended(pid) for pid in pids)

    def test_program_that_ignores_signals_is_killed(self):
        program = f"import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep({LONG})"
        assert make_python_tool(program, timeout=1).execute("").error_message == "Process timed out after 1 s"

    async def test_cancellation_kills_the_program_and_its_children(self, tmp_path):
        task = asyncio.create_task(make_parent_tool(STAY + "wait", tmp_path).aexecute(""))
        pids = await asyncio.to_thread(wait_for, tmp_path / "pids")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert all(has_ended(pid) for pid in pids)

    def test_interrupt_kills_the_program_and_its_children(self, tmp_path):
        code = (
            "from toolsemble.builtin import ProcessTool; "
            f"ProcessTool('parent', '', ['sh', '-c', {STAY + 'wait'!r}], cwd={str(tmp_path)!r}).execute('')"
        )
        environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]}
        with subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE) as program:
            pids = wait_for(tmp_path / "pids")
            program.send_signal(signal.SIGINT)
            assert b"KeyboardInterrupt" in program.communicate(timeout=60)[1]
        assert all(has_ended(pid) for pid in pids)

    async def test_cancellation_during_start_leaves_nothing_running(self, tmp_path):
        pids = tmp_path / "pids"
        for steps in range(6):
            pids.write_text("")
            task = asyncio.create_task(make_parent_tool(STAY + "wait", tmp_path).aexecute(""))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert all(has_ended(pid) for pid in pids.read_text().split())  # none, if it ended before it could write

    def test_remaining_children_are_killed(self, tmp_path):
        assert make_parent_tool(STAY + "echo done", tmp_path).execute("").output == "done"
        assert all(has_ended(pid) for pid in wait_for(tmp_path / "pids"))

    def test_daemon_with_open_pipes_does_not_block_call(self, tmp_path):
        assert make_parent_tool(ESCAPE + "echo done", tmp_path).execute("").text == "done"
        os.kill(int(wait_for(tmp_path / "pids")[1]), signal.SIGKILL)

    def test_timeout_kills_children_in_their_own_session(self, tmp_path, clock):
        message, pids = run_past_timeout(
            make_parent_tool(ESCAPE + "wait", tmp_path, timeout=2), tmp_path / "pids", clock
        )
        assert message == "Process timed out after 2 s"
        assert all(has_ended(pid) for pid in pids)

    async def test_cancellation_kills_children_in_their_own_session(self, tmp_path):
        task = asyncio.create_task(make_parent_tool(ESCAPE + "wait", tmp_path).aexecute(""))
        pids = await asyncio.to_thread(wait_for, tmp_path / "pids")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert all(has_ended(pid) for pid in pids)

    def test_timeout_kills_daemons(self, tmp_path, clock):
        tool = make_python_tool(DAEMON + f"time.sleep({LONG})", str(tmp_path / "pid"), timeout=2)
        message, pids = run_past_timeout(tool, tmp_path / "pid", clock)
        assert message == "Process timed out after 2 s"
        assert all(has_ended(pid) for pid in pids)

    async def test_cancellation_kills_daemons(self, tmp_path):
        tool = make_python_tool(DAEMON + f"time.sleep({LONG})", str(tmp_path / "pid"))
        task = asyncio.create_task(tool.aexecute(""))
        pids = await asyncio.to_thread(wait_for, tmp_path / "pid")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert all(has_ended(pid) for pid in pids)

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
    def test_daemons_are_killed_with_calling_program(self, number, tmp_path):
        command = [sys.executable, "-c", DAEMON + f"time.sleep({LONG})", str(tmp_path / "pid")]
        code = f"from toolsemble.builtin import ProcessTool; ProcessTool('daemon', '', {command!r}).execute('')"
        environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]}
        with subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE) as program:
            pids = wait_for(tmp_path / "pid")
            program.send_signal(number)
            program.communicate(timeout=60)
        assert all(has_ended(pid) for pid in pids)

    async def test_program_that_forks_while_killed_is_killed(self, tmp_path):
        os.mkfifo(tmp_path / "line")
        tool = make_python_tool(FLEEING + f"import time; time.sleep({LONG})", str(tmp_path / "line"))
        task = asyncio.create_task(tool.aexecute(""))
        with await asyncio.to_thread(open, tmp_path / "line", "rb", 0) as line:
            assert await asyncio.to_thread(line.read, 4) == b"here"
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(line.read) == b""  # which comes when no process has it open

    def test_daemon_survives_normal_exit_of_program(self, tmp_path):
        assert make_python_tool(DAEMON + "print('done')", str(tmp_path / "pid")).execute("").output == "done"
        (pid,) = wait_for(tmp_path / "pid")
        os.killpg(int(pid), signal.SIGKILL)

    def test_no_timeout_means_no_time_limit(self):
        assert make_python_tool("print('done')", timeout=None).execute("").output == "done"

    def test_no_file_descriptors_leak(self):
        tool, slow = (
            make_python_tool("print('done')"),
            make_python_tool(f"import time; time.sleep({LONG})", timeout=0.2),
        )
        tool.execute("")
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(3):
            tool.execute("x")
            slow.execute("x")
        assert len(list(Path("/proc/self/fd").iterdir())) == before

    def test_calls_run_concurrently(self):
        tool = make_python_tool("import sys, json; print(json.load(sys.stdin)['input'])")
        calls = [ToolCall("worker", {"input": str(n)}) for n in range(6)]
        assert [reply.text for reply in Toolbox([tool]).execute_all(calls)] == list("012345")

    async def test_sync_call_works_inside_event_loop(self):
        assert make_python_tool("print('done')").execute("").output == "done"


class TestEnvironment:
    def test_environment_is_minimal_by_default(self, monkeypatch):
        monkeypatch.setenv("API_KEY", "secret")
        monkeypatch.setenv("HOME", "/home/ada")
        monkeypatch.setenv("PYTHONPATH", "/nowhere")
        program = "import json, os; print(json.dumps({'output': dict(os.environ)}))"
        found = make_python_tool(program).execute("").structured_output
        clean = {"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "TEMP", "TMP"}
        assert found.keys() <= clean
        assert found["PATH"] == os.environ["PATH"]

    def test_variables_are_set_or_inherited_by_name(self, monkeypatch):
        monkeypatch.setenv("API_KEY", "secret")
        program = "import os; print(os.environ['API_KEY'], os.environ['MODE'], os.environ.get('NONE'))"
        tool = make_python_tool(program, env={"MODE": "test"}, inherit_env=["API_KEY", "NONE"])
        assert tool.execute("").output == "secret test None"

    def test_cwd_sets_working_directory(self, tmp_path, monkeypatch):
        program = "import os; print(os.getcwd())"
        assert make_python_tool(program, cwd=tmp_path).execute("").output == str(tmp_path)
        monkeypatch.chdir(tmp_path)
        assert make_python_tool(program).execute("").output == str(tmp_path)

    def test_command_is_not_passed_to_a_shell(self, tmp_path):
        tool = make_python_tool("import sys; print(sys.argv[1:])", "; touch x", "$(touch x)", "*", cwd=tmp_path)
        assert tool.execute("`touch x`").output == "['; touch x', '$(touch x)', '*']"
        assert not (tmp_path / "x").exists()

    def test_command_may_be_one_str_without_a_shell(self):
        assert ProcessTool("say", "Says it", "echo 'a  b' | cat $HOME").execute("").output == "a  b | cat $HOME"

    def test_missing_program_is_reported_without_its_arguments(self):
        tool = ProcessTool("worker", "Works", ["no-such-program", "--key=secret"])
        assert tool.execute("").error_message == "Cannot start 'no-such-program': No such file or directory"

    def test_deleted_directory_is_reported(self, tmp_path):
        (tmp_path / "folder").mkdir()
        tool = make_python_tool("", cwd=tmp_path / "folder")
        (tmp_path / "folder").rmdir()
        assert tool.execute("").error_message.endswith(": No such file or directory")

    def test_program_inherits_nothing_from_supervisor(self, monkeypatch):
        for name in ("LANG", "LC_ALL", "LC_CTYPE"):
            monkeypatch.delenv(name, raising=False)
        script = "ls /proc/$$/fd; grep SigIgn /proc/$$/status; env | grep LC_ || echo none"
        tool = ProcessTool("worker", "Works", ["sh", "-c", script])
        *numbers, _, mask, language = tool.execute("").output.split()
        assert (numbers, read_mask(mask), language) == (["0", "1", "2"], ignored_signals(), "none")

    def test_program_may_kill_its_own_group(self):
        tool = ProcessTool("worker", "Works", ["sh", "-c", "echo done; kill -KILL 0"])
        assert tool.execute("").error_message == f"Process exited with code {-signal.SIGKILL}"

    def test_program_runs_without_supervisor_if_unsupported(self, monkeypatch, tmp_path, clock):
        monkeypatch.setattr(child_process, "SUPERVISED", False)
        assert make_python_tool("print('done')").execute("").output == "done"
        assert make_python_tool("print('done')", max_cpu=60).execute("").output == "done"
        message, pids = run_past_timeout(
            make_parent_tool(ESCAPE + "wait", tmp_path, timeout=1), tmp_path / "pids", clock
        )
        assert message == "Process timed out after 1 s"
        assert all(has_ended(pid) for pid in pids)
        missing = ProcessTool("worker", "Works", ["no-such-program"])
        assert missing.execute("").error_message == "Cannot start 'no-such-program': No such file or directory"

    def test_command_may_contain_path_objects(self, tmp_path):
        script = tmp_path / "script.py"
        script.write_text("print('from a file')")
        assert ProcessTool("worker", "Works", [sys.executable, script]).execute("").output == "from a file"


@dataclass
class Order:
    """What to order."""

    item: Annotated[str, Field(description="What to order")]
    count: int = 1


class TestTyped:
    TOOL = staticmethod(
        lambda **settings: make_python_tool("import sys; print(sys.stdin.read())", input_type=Order, **settings)
    )

    def test_model_sends_fields(self):
        (specification,) = Toolbox([self.TOOL()]).specifications
        assert list(specification.parameters["properties"]) == ["item", "count"]
        assert specification.parameters["required"] == ["item"]

    async def test_program_gets_the_validated_object(self):
        reply = await Toolbox([self.TOOL()]).aexecute(ToolCall("worker", {"item": "tea", "count": "2"}))
        assert json.loads(reply.text) == {"input": {"item": "tea", "count": 2}}

    def test_invalid_arguments_never_reach_the_program(self):
        reply = Toolbox([self.TOOL()]).execute(ToolCall("worker", {"count": 2}))
        assert reply.text == "Error: Missing required parameter(s) for 'Order': item"

    def test_reviewer_sees_the_fields(self):
        reviewer = Reviewer(Continue())
        Toolbox([self.TOOL(requires_approval=True)], review=reviewer).execute(ToolCall("worker", {"item": "tea"}))
        assert [request.arguments for request in reviewer.requests] == [{"item": "tea", "count": 1}]

    def test_type_without_fields_is_rejected(self):
        with pytest.raises(ToolDefinitionError, match="'int' is not an object with fields"):
            make_python_tool("", input_type=int)


class TestApproval:
    ECHO = "import sys, json; print(json.load(sys.stdin)['input'])"

    def test_reviewer_sees_input_and_command(self):
        reviewer = Reviewer(Continue())
        tool = ProcessTool("say", "Says it", ["echo", "a b"], requires_approval=True)
        assert Toolbox([tool], review=reviewer).execute(ToolCall("say", {"input": "hi"})).text == "a b"
        assert [request.arguments for request in reviewer.requests] == ["hi"]
        assert [request.description for request in reviewer.requests] == ["Says it\nCommand: echo 'a b'"]
        assert tool.description == "Says it"

    def test_edit_replaces_the_input(self):
        box = Toolbox([make_python_tool(self.ECHO, requires_approval=True)], review=Reviewer(Edit("edited")))
        assert box.execute(ToolCall("worker", {"input": "hi"})).text == "edited"

    def test_rejected_call_starts_nothing(self, tmp_path):
        program = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch()"
        tool = make_python_tool(program, str(tmp_path / "ran"), requires_approval=True)
        reply = Toolbox([tool], review=Reviewer(ExitEarly("no"))).execute(ToolCall("worker", {"input": "hi"}))
        assert reply.text == "Error: Rejected by reviewer: no"
        assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("command", "settings", "problem"),
    [
        ([], {}, "command must be a list of str, the first a program"),
        ("", {}, "command must be a list of str, the first a program"),
        ([""], {}, "command must be a list of str, the first a program"),
        (["a\0b"], {}, "command must be a list of str, the first a program"),
        ([b"cat"], {}, "command must be a list of str, the first a program"),
        (["cat", 1], {}, "command must be a list of str: "),
        (None, {}, "command must be a list of str: "),
        ("echo 'open", {}, "command must be a list of str: No closing quotation"),
        ("cat", {"cwd": "/no/such/place"}, "cwd must be a directory that exists, not '/no/such/place'"),
        ("cat", {"timeout": 0}, "timeout must be a number > 0, not 0"),
        ("cat", {"timeout": True}, "timeout must be a number > 0, not True"),
        ("cat", {"timeout": float("nan")}, "timeout must be a number > 0, not nan"),
        ("cat", {"max_output": -1}, "max_output must be a number > 0, not -1"),
        ("cat", {"max_memory": "1G"}, "max_memory must be a number > 0, not '1G'"),
        ("cat", {"max_cpu": 0}, "max_cpu must be a number > 0, not 0"),
        ("cat", {"inherit_env": "HOME"}, "inherit_env must be a list of variable names, not 'HOME'"),
        ("cat", {"inherit_env": ["A", 1]}, "inherit_env must be a list of variable names, not ['A', 1]"),
        ("cat", {"inherit_env": None}, "inherit_env must be a list of variable names, not None"),
        ("cat", {"env": {"A": 1}}, "env must map names to str values, but 'A' does not"),
        ("cat", {"env": {"A=B": "x"}}, "env must map names to str values, but 'A=B' does not"),
    ],
)
def test_invalid_settings_are_rejected_at_definition(command, settings, problem):
    with pytest.raises(ToolDefinitionError) as refused:
        ProcessTool("worker", "Works", command, **settings)
    assert str(refused.value).startswith(f"Tool 'worker': {problem}")
