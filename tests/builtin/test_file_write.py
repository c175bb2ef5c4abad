from __future__ import annotations

import errno
import fcntl
import os
import queue
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from helpers.sample_tools import Reviewer
from toolsemble import Continue, Edit, ExitEarly, Toolbox, ToolCall, ToolConfigurationError, ToolResult
from toolsemble._runtime import paths
from toolsemble._runtime.paths import DENIED, Sandbox
from toolsemble.builtin import FileReadTool, FileWriteTool

pytestmark = pytest.mark.slow


@pytest.fixture
def base(tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    (tmp_path / "secret.txt").write_text("the secret")
    (base / "old.txt").write_text("old")
    return base


def write(base, /, **arguments):
    return Toolbox([FileWriteTool(base)]).execute(ToolCall("file_write", arguments)).text


def test_specification(base):
    (specification,) = Toolbox([FileWriteTool(base)]).specifications
    assert specification.name == "file_write"
    parameters = specification.parameters
    assert list(parameters["properties"]) == ["path", "content", "mode"]
    assert parameters["required"] == ["path", "content"]
    assert parameters["properties"]["mode"]["enum"] == ["overwrite", "append", "create"]
    assert all(each["description"] for each in parameters["properties"].values())


@pytest.mark.parametrize(
    ("mode", "path", "text", "content"),
    [
        ("overwrite", "old.txt", "Wrote 3 bytes to 'old.txt'", "new"),
        ("append", "old.txt", "Appended 3 bytes to 'old.txt'", "oldnew"),
        ("create", "old.txt", "Error: 'old.txt' already exists", "old"),
        ("overwrite", "a/b/new.txt", "Wrote 3 bytes to 'a/b/new.txt'", "new"),
        ("append", "a/b/new.txt", "Appended 3 bytes to 'a/b/new.txt'", "new"),
        ("create", "a/b/new.txt", "Created 'a/b/new.txt' with 3 bytes", "new"),
    ],
)
async def test_write_modes(base, mode, path, text, content):
    call = ToolCall("file_write", {"path": path, "content": "new", "mode": mode})
    assert (await Toolbox([FileWriteTool(base)]).aexecute(call)).text == text
    assert (base / path).read_text() == content


def test_default_mode_overwrites(base):
    result = FileWriteTool(base).execute('{"path": "old.txt", "content": "né\\r\\n"}')
    facts = {"path": "old.txt", "bytes": 5, "mode": "overwrite"}
    assert result == ToolResult.success("Wrote 5 bytes to 'old.txt'", facts)
    assert (base / "old.txt").read_bytes() == b"n\xc3\xa9\r\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "Missing required parameter(s) for 'FileWriteInput': path, content"),
        ({"path": "a", "content": "", "mode": "delete"}, "Invalid arguments for 'FileWriteInput': mode: "),
    ],
)
def test_invalid_arguments_are_reported(base, arguments, problem):
    assert write(base, **arguments).startswith(f"Error: {problem}")


@pytest.mark.parametrize("mode", ["overwrite", "append", "create"])
@pytest.mark.parametrize(
    "path",
    [
        "../new.txt",
        "../secret.txt",
        "/new.txt",
        "link.txt",
        "folder/new.txt",
        "folder/x/new.txt",
        "hard.txt",
        "x\0",
    ],
)
def test_files_outside_cannot_be_written(base, tmp_path, path, mode):
    (base / "link.txt").symlink_to(tmp_path / "secret.txt")
    (base / "folder").symlink_to(tmp_path)
    (base / "hard.txt").hardlink_to(tmp_path / "secret.txt")
    assert write(base, path=path, content="new", mode=mode) == f"Error: {DENIED}"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["base", "secret.txt"]
    assert (tmp_path / "secret.txt").read_text() == "the secret"


def test_absolute_path_is_denied_even_inside(base):
    assert write(base, path=str(base / "new.txt"), content="") == f"Error: {DENIED}"


@pytest.mark.parametrize("mode", ["overwrite", "append", "create"])
def test_pipe_is_rejected_without_blocking(base, mode):
    os.mkfifo(base / "pipe")
    reply = write(base, path="pipe", content="x", mode=mode)
    assert reply == "Error: 'pipe' is a device or a pipe, not a file"


@pytest.mark.parametrize("mode", ["overwrite", "append", "create"])
def test_content_over_size_limit_keeps_old_file(base, mode):
    tool = FileWriteTool(base, max_bytes=8)
    big = ToolCall("file_write", {"path": "old.txt", "content": "x" * 9, "mode": mode})
    length = 12 if mode == "append" else 9
    reply = f"Error: The file would have {length} bytes, the limit is 8"
    assert Toolbox([tool]).execute(big).text == reply
    assert (base / "old.txt").read_text() == "old"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_append_keeps_file_encoding(base, encoding):
    (base / "x.txt").write_text("a naïve ", encoding=encoding)
    write(base, path="x.txt", content="café", mode="append")
    assert (base / "x.txt").read_text(encoding=encoding) == "a naïve café"


def test_append_rejects_unencodable_text(base):
    (base / "x.txt").write_bytes(b"a na\xefve text")
    reply = write(base, path="x.txt", content="日本", mode="append")
    assert reply == "Error: 'x.txt' is cp1252 text, which cannot hold '日'"


def test_append_rejects_binary_file(base):
    (base / "x.bin").write_bytes(b"\0\1")
    reply = write(base, path="x.bin", content="x", mode="append")
    assert reply == "Error: 'x.bin' is a binary file; text cannot be appended to it"


def test_append_rejects_invalid_utf8_file(base):
    (base / "x.txt").write_bytes(data := "naïve café".encode() + b"\xff")
    reply = write(base, path="x.txt", content="é", mode="append")
    assert reply == "Error: 'x.txt' is not valid utf-8 text; nothing was appended"
    assert (base / "x.txt").read_bytes() == data


@pytest.mark.parametrize("mode", ["overwrite", "append"])
def test_read_only_file_is_not_changed(base, mode):
    (base / "old.txt").chmod(0o444)
    assert write(base, path="old.txt", content="new", mode=mode) == "Error: 'old.txt' is read-only"
    assert (base / "old.txt").read_text() == "old"


def test_slow_write_does_not_block_other_files(base, monkeypatch):
    real, busy, go_on = os.fsync, threading.Event(), threading.Event()

    def slow(fd):
        real(fd)
        if threading.current_thread().name == "slow":
            busy.set()
            go_on.wait(60)

    monkeypatch.setattr(os, "fsync", slow)
    first = threading.Thread(
        target=write, args=(base,), kwargs={"path": "a.txt", "content": "a", "mode": "append"}, name="slow"
    )
    first.start()
    assert busy.wait(60)
    names = [f"b{n}.txt" for n in range(200)]  # some may meet the first at its lock, never all
    done = queue.SimpleQueue()
    others = [threading.Thread(target=lambda name=name: done.put(append(base, name)), name=name) for name in names]
    for each in others:
        each.start()
    assert done.get(timeout=60) == "done"
    go_on.set()
    for each in [first, *others]:
        each.join(60)
    assert {each.read_text() for each in base.glob("?*.txt")} == {"a", "b", "old"}


def append(base, name):
    write(base, path=name, content="b", mode="append")
    return "done"


def test_concurrent_appends_by_different_paths_lose_nothing(base):
    one, another = FileWriteTool(base), FileWriteTool(base / "..")
    ways = [(one, "x/log.txt"), (one, "./x/y/../log.txt"), (another, "base/x/log.txt")]

    def append(n):
        tool, path = ways[n % len(ways)]
        return tool.execute({"path": path, "content": f"{n}\n", "mode": "append"})

    with ThreadPoolExecutor(8) as pool:
        assert all(result.success for result in pool.map(append, range(42)))
    assert sorted(map(int, (base / "x" / "log.txt").read_text().split())) == list(range(42))


def test_concurrent_appends_lose_nothing(base):
    calls = [ToolCall("file_write", {"path": "log.txt", "content": f"{n}\n", "mode": "append"}) for n in range(40)]
    replies = Toolbox([FileWriteTool(base)]).execute_all(calls)
    assert not any(reply.is_error for reply in replies)
    assert sorted(map(int, (base / "log.txt").read_text().split())) == list(range(40))


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_crash_keeps_old_file(base, step):
    """The process dies, without any chance to clean up, when all is written but not yet in place."""
    program = (
        "import os, signal; from toolsemble.builtin import FileWriteTool; "
        f"os.{step} = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL); "
        f'FileWriteTool({str(base)!r}).execute(\'{{"path": "old.txt", "content": "new and longer"}}\')'
    )
    died = subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": os.pathsep.join(sys.path)}, check=False)
    assert died.returncode == -signal.SIGKILL
    assert (base / "old.txt").read_text() == "old"


class TestApproval:
    def test_approval_is_not_required_by_default(self, base):
        assert FileWriteTool(base).requires_approval is False
        assert FileWriteTool.editable == "content"

    def test_reviewer_sees_path_and_content(self, base):
        reviewer = Reviewer(Continue())
        box = Toolbox([FileWriteTool(base, requires_approval=True)], review=reviewer)
        box.execute(ToolCall("file_write", {"path": "new.txt", "content": "new"}))
        (request,) = reviewer.requests
        assert request.arguments == {"path": "new.txt", "content": "new", "mode": "overwrite"}
        assert (base / "new.txt").read_text() == "new"

    def test_rejected_call_writes_nothing(self, base):
        box = Toolbox([FileWriteTool(base, requires_approval=True)], review=Reviewer(ExitEarly("no")))
        reply = box.execute(ToolCall("file_write", {"path": "a/new.txt", "content": "new"}))
        assert reply.text == "Error: Rejected by reviewer: no"
        assert [each.name for each in base.iterdir()] == ["old.txt"]

    def test_missing_reviewer_writes_nothing(self, base):
        box = Toolbox([FileWriteTool(base, requires_approval=True)])
        with pytest.raises(ToolConfigurationError):
            box.execute(ToolCall("file_write", {"path": "new.txt", "content": "new"}))
        assert not (base / "new.txt").exists()

    def test_edit_replaces_content_and_stays_in_directory(self, base, tmp_path):
        edit = Edit('{"path": "../new.txt", "content": "edited"}')
        box = Toolbox([FileWriteTool(base, requires_approval=True)], review=Reviewer(edit))
        box.execute(ToolCall("file_write", {"path": "new.txt", "content": "new"}))
        assert (base / "new.txt").read_text() == edit.revised
        assert sorted(each.name for each in tmp_path.iterdir()) == ["base", "secret.txt"]


KILLED = """
import os, signal, sys
from toolsemble.builtin import FileWriteTool
name = sys.argv[2]
setattr(os, name, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
FileWriteTool(sys.argv[1]).execute({"path": "a.txt", "content": "new", "mode": sys.argv[3]})
"""


class TestLeftovers:
    @pytest.fixture(autouse=True)
    def _reset_sweep(self, monkeypatch):
        monkeypatch.setattr(paths, "_NEXT_SWEEP", {})

    def run_killed_writer(self, folder, step="replace", mode="overwrite"):
        """Return what a writer leaves that is killed before it is done."""
        environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]}
        command = [sys.executable, "-c", KILLED, str(folder), step, mode]
        assert subprocess.run(command, env=environment, timeout=60, check=False).returncode == -signal.SIGKILL
        (left,) = folder.glob(".toolsemble-*.tmp")
        return left

    def make_old(self, file):
        os.utime(file, (0, 0))

    @pytest.mark.parametrize("handles", [True, False])
    def test_files_left_by_a_killed_writer_are_removed_later(self, handles, tmp_path):
        left = self.run_killed_writer(tmp_path)
        self.make_old(left)
        Sandbox(tmp_path, handles=handles).write("b.txt", b"later")
        assert [each.name for each in tmp_path.iterdir()] == ["b.txt"]

    def test_file_created_by_killed_writer_can_be_read(self, tmp_path):
        self.make_old(self.run_killed_writer(tmp_path, "unlink", "create"))
        assert FileWriteTool(tmp_path).execute({"path": "b.txt", "content": "later"}).is_success
        assert FileReadTool(tmp_path).execute({"path": "a.txt"}).output == "new"

    def test_temporary_file_cannot_be_named(self, tmp_path):
        left = self.run_killed_writer(tmp_path)
        message = f"File not found: '{left.name}'"
        assert FileReadTool(tmp_path).execute({"path": left.name}).error_message == message
        assert FileWriteTool(tmp_path).execute({"path": left.name.upper(), "content": ""}).error_message == (
            message.replace(left.name, left.name.upper())
        )

    def test_new_locked_and_foreign_files_are_kept(self, tmp_path):
        names = [f".toolsemble-{number:016x}.tmp" for number in range(4)]
        young, locked, folder, link = (tmp_path / name for name in names)
        young.write_text("at work")
        locked.write_text("at work")
        self.make_old(locked)
        folder.mkdir()
        link.symlink_to(locked)
        other = tmp_path / ".0123456789abcdef.tmp"
        other.write_text("somebody else's")
        self.make_old(other)
        with locked.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            assert FileWriteTool(tmp_path).execute({"path": "b.txt", "content": "x"}).is_success
        assert {each.name for each in tmp_path.iterdir()} == {*names, other.name, "b.txt"}

    def test_directory_sweeps_are_limited(self, tmp_path, monkeypatch):
        monkeypatch.setattr(paths, "_MAX_SWEEP_ENTRIES", 2)
        looked = []
        monkeypatch.setattr(paths, "is_leftover", lambda name: looked.append(name) or False)
        write = FileWriteTool(tmp_path)
        for path in ("a/x", "a/y", "b/x", "c/x", "b/y"):
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).parent.joinpath("z").touch()
            assert write.execute({"path": path, "content": ""}).is_success
        assert looked.count("z") == 4  # a, b, c, and b once more when there were too many to remember
        assert len(paths._NEXT_SWEEP) == 2

    def test_old_files_are_removed_without_lock_support(self, tmp_path, monkeypatch):
        def refuse(*_):
            raise OSError(errno.ENOLCK, "no locks")

        self.make_old(self.run_killed_writer(tmp_path))
        monkeypatch.setattr(fcntl, "flock", refuse)
        assert FileWriteTool(tmp_path).execute({"path": "b.txt", "content": "x"}).is_success
        assert [each.name for each in tmp_path.iterdir()] == ["b.txt"]
