from __future__ import annotations

import contextlib
import errno
import itertools
import os
import pickle
import socket
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from toolsemble import ToolDefinitionError, ToolExecutionError
from toolsemble._runtime.paths import DENIED, MissingFileError, Sandbox

pytestmark = pytest.mark.slow

SECRET = b"the secret"
LARGE = 10_000


@pytest.fixture(params=[True, False], ids=["handles", "resolved"])
def handles(request):
    return request.param


@pytest.fixture
def base(tmp_path):
    """A sandbox with a file, beside files that must stay hidden."""
    base = tmp_path / "base"
    (base / "inner").mkdir(parents=True)
    (base / "a.txt").write_bytes(b"inside")
    (base / "inner" / "b.txt").write_bytes(b"deeper")
    (tmp_path / "secret.txt").write_bytes(SECRET)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_bytes(SECRET)
    return base


@pytest.fixture
def sandbox(base, handles):
    return Sandbox(base, handles=handles)


def tree(folder):
    """Return everything below a folder, to see that nothing has changed."""
    return {str(each.relative_to(folder)): each.lstat().st_mode for each in sorted(folder.rglob("*"))}


def names(folder):
    return sorted(each.name for each in Path(folder).iterdir())


def error_message(function, *arguments, **keywords):
    with pytest.raises(ToolExecutionError) as refused:
        function(*arguments, **keywords)
    return str(refused.value)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("a.txt", b"inside"),
        ("./a.txt", b"inside"),
        ("inner//b.txt", b"deeper"),
        ("inner/../a.txt", b"inside"),
        ("missing/../a.txt", b"inside"),
    ],
)
def test_path_inside_is_allowed(sandbox, path, content):
    assert sandbox.read(path, LARGE) == content


OUTSIDE = [
    "..",
    "../",
    "../secret.txt",
    "../base/a.txt",
    "inner/../../secret.txt",
    "inner/../../base/a.txt",
    "..\\secret.txt",
    "inner\\..\\..\\secret.txt",
    "inner/..\\../secret.txt",
    ".../secret.txt",
    "....//secret.txt",
    ".. /secret.txt",
    "/etc/passwd",
    "//etc/passwd",
    "\\etc\\passwd",
    "\\\\server\\share\\secret.txt",
    "C:\\secret.txt",
    "C:secret.txt",
    "\\\\?\\C:\\secret.txt",
    "a.txt\0",
    "\0",
    "a.txt\0.png",
    "../secret.txt\0.txt",
    "\ud800.txt",
    "/proc/self/environ",
    "/dev/zero",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_path_outside_is_denied(sandbox, tmp_path, path):
    before = tree(tmp_path)
    assert error_message(sandbox.read, path, LARGE) == DENIED
    assert error_message(sandbox.write, path, b"new") == DENIED
    assert error_message(sandbox.write, path, b"new", replace=False) == DENIED
    assert tree(tmp_path) == before


def test_absolute_path_is_denied_even_inside(sandbox, base):
    assert error_message(sandbox.read, str(base / "a.txt"), LARGE) == DENIED
    assert error_message(sandbox.write, str(base / "new.txt"), b"") == DENIED


def traversal_payloads():
    """Return the ways in which traversal is spelled, over a thousand."""
    dots = [
        "..",
        "%2e%2e",
        "%252e%252e",
        "..;",
        "%c0%ae%c0%ae",
        "\uff0e\uff0e",
        "....",
        ".%00.",
        "..\0",
        "\u2025",
        ". .",
        "%u002e.",
    ]
    slashes = ["/", "\\", "%2f", "%5c", "%252f", "//", "/./", "\\/", "%c0%af", "\uff0f", "\u2215"]
    targets = ["secret.txt", "etc/passwd", "outside/secret.txt"]
    starts = ["", "inner/", "./"]
    for dot, slash, depth, target, start in itertools.product(dots, slashes, (1, 2, 3), targets, starts):
        yield start + (dot + slash) * depth + target


def test_traversal_payloads_are_denied(base, tmp_path):
    sandbox = Sandbox(base)
    spelled = list(traversal_payloads())
    outside = {name: mode for name, mode in tree(tmp_path).items() if not name.startswith("base")}
    for path in spelled:
        error_message(sandbox.read, path, LARGE)
    for path in spelled[::7]:
        with contextlib.suppress(ToolExecutionError):
            sandbox.write(path, b"written")
    assert len(spelled) > 1000
    assert {name: mode for name, mode in tree(tmp_path).items() if not name.startswith("base")} == outside
    assert (tmp_path / "secret.txt").read_bytes() == SECRET


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(
        st.sampled_from(["..", ".", "", "inner", "a.txt", "link", "\\", "..\\", "~", "C:", "\0", "x" * 300])
        | st.text(max_size=3),
        max_size=6,
    )
)
def test_no_path_reaches_outside(base, tmp_path, handles, names):
    if not (base / "link").is_symlink():
        (base / "link").symlink_to(tmp_path / "outside")
    with contextlib.suppress(ToolExecutionError):
        assert Sandbox(base, handles=handles).read("/".join(names), LARGE) in {b"inside", b"deeper", b"new"}
    with contextlib.suppress(ToolExecutionError):
        Sandbox(base, handles=handles).write("/".join(names), b"new")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["base", "outside", "secret.txt"]
    assert [each.read_bytes() for each in (tmp_path / "outside").iterdir()] == [SECRET]


class TestLinks:
    @pytest.mark.parametrize("target", ["secret.txt", "missing.txt", "base/a.txt", "outside"])
    def test_file_symlink_is_denied(self, sandbox, base, tmp_path, target):
        (base / "link").symlink_to(tmp_path / target)
        before = tree(tmp_path)
        assert error_message(sandbox.read, "link", LARGE) == DENIED
        assert error_message(sandbox.write, "link", b"new") == DENIED
        assert error_message(sandbox.write, "link", b"new", replace=False) == DENIED
        assert tree(tmp_path) == before

    @pytest.mark.parametrize("target", ["outside", "missing", "base/inner", "secret.txt", "/proc/self/root", "/"])
    def test_directory_symlink_is_denied(self, sandbox, base, tmp_path, target):
        (base / "link").symlink_to(tmp_path / target)
        before = tree(tmp_path)
        assert error_message(sandbox.read, "link/secret.txt", LARGE) == DENIED
        assert error_message(sandbox.write, "link/new.txt", b"new") == DENIED
        assert error_message(sandbox.write, "link/deep/new.txt", b"new") == DENIED
        assert tree(tmp_path) == before

    def test_symlink_loop_is_denied(self, sandbox, base):
        (base / "link").symlink_to("link")
        assert error_message(sandbox.read, "link", LARGE) == error_message(sandbox.read, "link/a", LARGE) == DENIED

    def test_hard_link_is_denied(self, sandbox, base, tmp_path):
        (base / "link.txt").hardlink_to(tmp_path / "secret.txt")
        assert error_message(sandbox.read, "link.txt", LARGE) == DENIED
        assert error_message(sandbox.write, "link.txt", b"new") == DENIED
        assert (tmp_path / "secret.txt").read_bytes() == SECRET

    def test_base_directory_can_be_a_symlink(self, base, tmp_path, handles):
        (tmp_path / "way").symlink_to(base)
        assert Sandbox(tmp_path / "way", handles=handles).read("a.txt", LARGE) == b"inside"


def swap_before_call(monkeypatch, function, name, swap):
    """Do something in the very moment before a function of the system is called for that name."""
    real = getattr(os, function)

    def racing(path, *arguments, **keywords):
        if Path(path).name == name and swap:
            swap.pop()()
        return real(path, *arguments, **keywords)

    monkeypatch.setattr(os, function, racing)


class TestRaces:
    def test_file_replaced_by_a_symlink_after_the_check_is_denied(self, sandbox, base, tmp_path, monkeypatch):
        def swap():
            (base / "a.txt").unlink()
            (base / "a.txt").symlink_to(tmp_path / "secret.txt")

        swap_before_call(monkeypatch, "open", "a.txt", [swap])
        assert error_message(sandbox.read, "a.txt", LARGE) == DENIED

    def test_file_deleted_after_the_check_is_missing(self, sandbox, base, monkeypatch):
        swap_before_call(monkeypatch, "open", "a.txt", [(base / "a.txt").unlink])
        assert error_message(sandbox.read, "a.txt", LARGE) == "File not found: 'a.txt'"

    def test_file_replaced_after_the_check_is_denied(self, sandbox, base, tmp_path, monkeypatch):
        swap_before_call(monkeypatch, "open", "a.txt", [lambda: (tmp_path / "secret.txt").rename(base / "a.txt")])
        assert error_message(sandbox.read, "a.txt", LARGE) == DENIED

    def test_directory_replaced_by_a_symlink_after_the_check_is_denied(self, base, tmp_path, monkeypatch):
        def swap():
            (base / "inner").rename(tmp_path / "moved")
            (base / "inner").symlink_to(tmp_path / "outside")

        swap_before_call(monkeypatch, "open", "inner", [swap])
        assert error_message(Sandbox(base).write, "inner/new.txt", b"new") == DENIED
        assert names(tmp_path / "outside") == ["secret.txt"]

    def test_directory_replaced_after_the_check_is_denied(self, base, tmp_path, monkeypatch):
        def swap():
            (base / "inner").rename(tmp_path / "moved")
            (tmp_path / "outside").rename(base / "inner")

        swap_before_call(monkeypatch, "open", "inner", [swap])
        assert error_message(Sandbox(base).read, "inner/secret.txt", LARGE) == DENIED

    def test_directory_replaced_by_a_symlink_is_denied_without_handles(self, base, tmp_path, monkeypatch):
        real, todo = os.stat, ["swap"]

        def racing(path, *arguments, **keywords):
            found = real(path, *arguments, **keywords)
            if Path(path).name == "inner" and todo:
                todo.clear()
                (base / "inner").rename(tmp_path / "moved")
                (base / "inner").symlink_to(tmp_path / "outside")
            return found

        monkeypatch.setattr(os, "stat", racing)
        assert error_message(Sandbox(base, handles=False).read, "inner/secret.txt", LARGE) == DENIED

    def test_moved_directory_keeps_its_file(self, base, tmp_path, monkeypatch):
        """The handle is the directory, whatever stands in its place."""

        def swap():
            (base / "inner").rename(base / "moved")
            (base / "inner").symlink_to(tmp_path / "outside")

        swap_before_call(monkeypatch, "open", "b.txt", [swap])
        assert Sandbox(base).read("inner/b.txt", LARGE) == b"deeper"

    def test_symlink_created_meanwhile_is_replaced_not_followed(self, sandbox, base, tmp_path, monkeypatch):
        real = os.replace

        def racing(*arguments, **keywords):
            (base / "a.txt").unlink()
            (base / "a.txt").symlink_to(tmp_path / "secret.txt")
            real(*arguments, **keywords)

        monkeypatch.setattr(os, "replace", racing)
        sandbox.write("a.txt", b"new")
        assert (tmp_path / "secret.txt").read_bytes() == SECRET
        assert not (base / "a.txt").is_symlink()
        assert (base / "a.txt").read_bytes() == b"new"

    def test_file_created_meanwhile_is_not_replaced(self, sandbox, base, monkeypatch):
        real = os.link

        def racing(*arguments, **keywords):
            (base / "new.txt").write_bytes(b"theirs")
            real(*arguments, **keywords)

        monkeypatch.setattr(os, "link", racing)
        assert error_message(sandbox.write, "new.txt", b"ours", replace=False) == "'new.txt' already exists"
        assert (base / "new.txt").read_bytes() == b"theirs"
        assert names(base) == ["a.txt", "inner", "new.txt"]

    def test_file_growing_during_the_read_is_rejected(self, sandbox, base, monkeypatch):
        real = os.fstat

        def racing(fd):
            found = real(fd)
            if stat.S_ISREG(found.st_mode):
                (base / "a.txt").write_bytes(b"x" * 1000)
            return found

        monkeypatch.setattr(os, "fstat", racing)
        assert error_message(sandbox.read, "a.txt", 10) == "'a.txt' is too large: 11 bytes, the limit is 10"


class TestWhatIsNoFile:
    def test_pipe_is_rejected_without_blocking(self, sandbox, base):
        os.mkfifo(base / "pipe")
        expected = "'pipe' is a device or a pipe, not a file"
        assert error_message(sandbox.read, "pipe", LARGE) == error_message(sandbox.write, "pipe", b"") == expected

    def test_pipe_created_after_the_check_does_not_block(self, sandbox, base, monkeypatch):
        def swap():
            (base / "a.txt").unlink()
            os.mkfifo(base / "a.txt")

        swap_before_call(monkeypatch, "open", "a.txt", [swap])
        assert error_message(sandbox.read, "a.txt", LARGE) in {DENIED, "'a.txt' is a device or a pipe, not a file"}

    def test_socket_is_rejected(self, sandbox, base, monkeypatch):
        monkeypatch.chdir(base)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("socket")
            assert error_message(sandbox.read, "socket", LARGE) == "'socket' is a device or a pipe, not a file"

    @pytest.mark.parametrize("path", ["dev/zero", "dev/tty", "dev/stdin", "proc/self/environ", "proc/self/fd/0"])
    def test_dev_and_proc_are_outside_of_the_root(self, handles, path):
        expected = error_message(Sandbox("/", handles=handles).read, path, LARGE)
        assert expected in {DENIED, f"'{path}' is a device or a pipe, not a file"}

    def test_device_is_rejected(self, handles):
        assert (
            error_message(Sandbox("/dev", handles=handles).read, "zero", 10)
            == "'zero' is a device or a pipe, not a file"
        )

    def test_mounted_file_system_is_outside(self, handles):
        assert error_message(Sandbox("/", handles=handles).read, "proc/version", LARGE) == DENIED

    @pytest.mark.parametrize("path", ["", ".", "./", "inner/", "inner/.", "inner/..", "new/", "a.txt/x/..", "new/x/.."])
    def test_path_naming_a_directory_is_rejected(self, sandbox, base, path):
        expected = f"{path!r} names a directory; name a file"
        assert error_message(sandbox.read, path, LARGE) == error_message(sandbox.write, path, b"") == expected
        assert not (base / "new").exists()

    def test_directory_is_not_a_file(self, sandbox):
        expected = "'inner' is a directory, not a file"
        assert error_message(sandbox.read, "inner", LARGE) == error_message(sandbox.write, "inner", b"") == expected

    def test_file_is_not_a_directory(self, sandbox):
        expected = "'a.txt/b.txt' leads through a file, not a directory"
        assert (
            error_message(sandbox.read, "a.txt/b.txt", LARGE)
            == error_message(sandbox.write, "a.txt/b.txt", b"")
            == expected
        )


class TestReading:
    def test_missing_file_error_names_it(self, sandbox):
        with pytest.raises(MissingFileError, match=r"^File not found: 'inner/c\.txt'$"):
            sandbox.read("inner/c.txt", LARGE)
        with pytest.raises(MissingFileError):
            sandbox.read("nowhere/c.txt", LARGE)

    def test_file_larger_than_the_limit_is_rejected(self, sandbox):
        assert sandbox.read("a.txt", 6) == b"inside"
        assert error_message(sandbox.read, "a.txt", 5) == "'a.txt' is too large: 6 bytes, the limit is 5"

    def test_huge_file_is_rejected_without_reading_it(self, sandbox, base):
        os.truncate(base / "a.txt", 2**40)
        assert (
            error_message(sandbox.read, "a.txt", LARGE) == f"'a.txt' is too large: {2**40} bytes, the limit is {LARGE}"
        )

    @pytest.mark.parametrize("path", ["a/" * 101 + "b", "a" * 5000])
    def test_very_long_path_is_rejected(self, sandbox, base, path):
        expected = "The path is too long: at most 4096 characters and 100 names"
        assert error_message(sandbox.read, path, LARGE) == error_message(sandbox.write, path, b"") == expected
        assert names(base) == ["a.txt", "inner"]

    @pytest.mark.parametrize("name", ["x" * 256, "é" * 128])
    def test_too_long_name_is_rejected(self, sandbox, base, name):
        expected = error_message(sandbox.write, f"new/{name}", b"")
        assert (
            expected
            == f"Cannot open {f'new/{name}'[:200] + '...' * (len(name) > 196)!r}: {os.strerror(errno.ENAMETOOLONG)}"
        )
        assert names(base) == ["a.txt", "inner"]
        sandbox.write(f"new/{'x' * 255}", b"")

    def test_system_errors_are_reported_without_the_base_directory(self, sandbox):
        expected = error_message(sandbox.read, "x" * 300, LARGE)
        assert expected == f"Cannot open '{'x' * 200}...': {os.strerror(errno.ENAMETOOLONG)}"

    def test_deleted_base_directory_is_reported(self, sandbox, base, tmp_path):
        base.rename(tmp_path / "moved")
        assert error_message(sandbox.read, "a.txt", LARGE) == "File not found: 'a.txt'"

    def test_handles_are_closed(self, sandbox, base):
        before = len(names("/proc/self/fd"))
        for path in ["a.txt", "inner/b.txt", "inner/missing", "inner", "missing/x", "a.txt/x", "../x"]:
            with contextlib.suppress(ToolExecutionError):
                sandbox.read(path, LARGE)
            with contextlib.suppress(ToolExecutionError):
                sandbox.write(path, b"")
        assert len(names("/proc/self/fd")) == before


class TestWriting:
    def test_write_creates_parent_directories(self, sandbox, base):
        sandbox.write("new/deep/c.txt", b"new")
        sandbox.write("new/deep/d.txt", b"newer", replace=False)
        assert (base / "new/deep/c.txt").read_bytes() == b"new"
        assert (base / "new/deep/d.txt").read_bytes() == b"newer"
        assert names(base / "new/deep") == ["c.txt", "d.txt"]

    def test_existing_file_is_replaced_only_on_request(self, sandbox, base):
        assert error_message(sandbox.write, "a.txt", b"new", replace=False) == "'a.txt' already exists"
        assert (base / "a.txt").read_bytes() == b"inside"
        sandbox.write("a.txt", b"new")
        assert (base / "a.txt").read_bytes() == b"new"

    def test_write_keeps_permissions_without_setuid(self, sandbox, base):
        (base / "a.txt").chmod(0o4750)
        sandbox.write("a.txt", b"new")
        assert stat.S_IMODE((base / "a.txt").stat().st_mode) == 0o750

    def test_read_only_file_is_not_replaced(self, sandbox, base):
        (base / "a.txt").chmod(0o444)
        assert error_message(sandbox.write, "a.txt", b"new") == "'a.txt' is read-only"
        assert error_message(sandbox.write, "a.txt", b"new", replace=False) == "'a.txt' already exists"
        assert (base / "a.txt").read_bytes() == b"inside"
        assert names(base) == ["a.txt", "inner"]

    @pytest.mark.parametrize("step", ["fsync", "replace"])
    def test_failed_write_leaves_the_old_file(self, sandbox, base, monkeypatch, step):
        def full(*_, **__):
            raise OSError(errno.ENOSPC, "")

        monkeypatch.setattr(os, step, full)
        expected = error_message(sandbox.write, "a.txt", b"new")
        assert expected == f"Cannot open 'a.txt': {os.strerror(errno.ENOSPC)}"
        assert (base / "a.txt").read_bytes() == b"inside"
        assert names(base) == ["a.txt", "inner"]

    def test_crash_during_write_leaves_the_old_file(self, sandbox, base, monkeypatch):
        def crash(*_, **__):
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            sandbox.write("a.txt", b"new")
        assert (base / "a.txt").read_bytes() == b"inside"


@pytest.mark.parametrize("path", ["NUL", "con.txt", "inner/aux", "COM1.log", "a.txt:stream", "lpt¹"])
def test_windows_device_names_are_denied_without_handles(base, path):
    assert error_message(Sandbox(base, handles=False).write, path, b"") == DENIED
    Sandbox(base, handles=True).write(path, b"")


def test_backslash_is_a_separator_only_without_handles(base):
    Sandbox(base, handles=True).write("x\\y.txt", b"one name")
    Sandbox(base, handles=False).write("x\\z.txt", b"two names")
    assert (base / "x\\y.txt").read_bytes() == b"one name"
    assert (base / "x" / "z.txt").read_bytes() == b"two names"


@pytest.mark.parametrize("name", ["missing", "a.txt"])
def test_base_directory_must_exist(base, name):
    with pytest.raises(ToolDefinitionError, match="base_dir must be a directory that exists, not"):
        Sandbox(base / name)


def test_sandbox_can_be_pickled(base):
    assert pickle.loads(pickle.dumps(Sandbox(base))).read("a.txt", LARGE) == b"inside"
