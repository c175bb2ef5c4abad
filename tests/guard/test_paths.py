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
from toolsemble.guard.paths import DENIED, MissingFileError, Sandbox

pytestmark = pytest.mark.slow

SECRET = b"the secret"
LARGE = 10_000


@pytest.fixture(params=[True, False], ids=["handles", "resolved"])
def handles(request):
    return request.param


@pytest.fixture
def base(tmp_path):
    """A sandbox with a file, beside files that nobody may see."""
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


def refusal(function, *arguments, **keywords):
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
def test_a_path_inside_leads_to_its_file(sandbox, path, content):
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
def test_a_path_that_leads_outside_is_denied(sandbox, tmp_path, path):
    before = tree(tmp_path)
    assert refusal(sandbox.read, path, LARGE) == DENIED
    assert refusal(sandbox.write, path, b"new") == DENIED
    assert refusal(sandbox.write, path, b"new", replace=False) == DENIED
    assert tree(tmp_path) == before


def test_an_absolute_path_is_denied_even_inside(sandbox, base):
    assert refusal(sandbox.read, str(base / "a.txt"), LARGE) == DENIED
    assert refusal(sandbox.write, str(base / "new.txt"), b"") == DENIED


def payloads():
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


def test_a_thousand_ways_to_spell_it_reach_nothing(base, tmp_path):
    sandbox = Sandbox(base)
    spelled = list(payloads())
    outside = {name: mode for name, mode in tree(tmp_path).items() if not name.startswith("base")}
    for path in spelled:
        refusal(sandbox.read, path, LARGE)
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
def test_no_path_at_all_reaches_outside(base, tmp_path, handles, names):
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
    def test_a_linked_file_is_denied_wherever_it_leads(self, sandbox, base, tmp_path, target):
        (base / "link").symlink_to(tmp_path / target)
        before = tree(tmp_path)
        assert refusal(sandbox.read, "link", LARGE) == DENIED
        assert refusal(sandbox.write, "link", b"new") == DENIED
        assert refusal(sandbox.write, "link", b"new", replace=False) == DENIED
        assert tree(tmp_path) == before

    @pytest.mark.parametrize("target", ["outside", "missing", "base/inner", "secret.txt", "/proc/self/root", "/"])
    def test_a_linked_directory_is_denied_wherever_it_leads(self, sandbox, base, tmp_path, target):
        (base / "link").symlink_to(tmp_path / target)
        before = tree(tmp_path)
        assert refusal(sandbox.read, "link/secret.txt", LARGE) == DENIED
        assert refusal(sandbox.write, "link/new.txt", b"new") == DENIED
        assert refusal(sandbox.write, "link/deep/new.txt", b"new") == DENIED
        assert tree(tmp_path) == before

    def test_a_circle_of_links_is_denied(self, sandbox, base):
        (base / "link").symlink_to("link")
        assert refusal(sandbox.read, "link", LARGE) == refusal(sandbox.read, "link/a", LARGE) == DENIED

    def test_a_hard_link_is_denied(self, sandbox, base, tmp_path):
        (base / "link.txt").hardlink_to(tmp_path / "secret.txt")
        assert refusal(sandbox.read, "link.txt", LARGE) == DENIED
        assert refusal(sandbox.write, "link.txt", b"new") == DENIED
        assert (tmp_path / "secret.txt").read_bytes() == SECRET

    def test_the_base_directory_itself_may_be_reached_through_links(self, base, tmp_path, handles):
        (tmp_path / "way").symlink_to(base)
        assert Sandbox(tmp_path / "way", handles=handles).read("a.txt", LARGE) == b"inside"


def swapping(monkeypatch, function, name, swap):
    """Do something in the very moment before a function of the system is called for that name."""
    real = getattr(os, function)

    def racing(path, *arguments, **keywords):
        if Path(path).name == name and swap:
            swap.pop()()
        return real(path, *arguments, **keywords)

    monkeypatch.setattr(os, function, racing)


class TestRaces:
    def test_a_file_that_becomes_a_link_between_check_and_use_is_denied(self, sandbox, base, tmp_path, monkeypatch):
        def swap():
            (base / "a.txt").unlink()
            (base / "a.txt").symlink_to(tmp_path / "secret.txt")

        swapping(monkeypatch, "open", "a.txt", [swap])
        assert refusal(sandbox.read, "a.txt", LARGE) == DENIED

    def test_a_file_that_goes_between_check_and_use_is_missing(self, sandbox, base, monkeypatch):
        swapping(monkeypatch, "open", "a.txt", [(base / "a.txt").unlink])
        assert refusal(sandbox.read, "a.txt", LARGE) == "File not found: 'a.txt'"

    def test_a_file_that_becomes_another_between_check_and_use_is_denied(self, sandbox, base, tmp_path, monkeypatch):
        swapping(monkeypatch, "open", "a.txt", [lambda: (tmp_path / "secret.txt").rename(base / "a.txt")])
        assert refusal(sandbox.read, "a.txt", LARGE) == DENIED

    def test_a_directory_that_becomes_a_link_between_check_and_use_is_denied(self, base, tmp_path, monkeypatch):
        def swap():
            (base / "inner").rename(tmp_path / "moved")
            (base / "inner").symlink_to(tmp_path / "outside")

        swapping(monkeypatch, "open", "inner", [swap])
        assert refusal(Sandbox(base).write, "inner/new.txt", b"new") == DENIED
        assert names(tmp_path / "outside") == ["secret.txt"]

    def test_a_directory_that_becomes_another_between_check_and_use_is_denied(self, base, tmp_path, monkeypatch):
        def swap():
            (base / "inner").rename(tmp_path / "moved")
            (tmp_path / "outside").rename(base / "inner")

        swapping(monkeypatch, "open", "inner", [swap])
        assert refusal(Sandbox(base).read, "inner/secret.txt", LARGE) == DENIED

    def test_a_directory_that_becomes_a_link_is_denied_where_there_are_no_handles(self, base, tmp_path, monkeypatch):
        real, todo = os.stat, ["swap"]

        def racing(path, *arguments, **keywords):
            found = real(path, *arguments, **keywords)
            if Path(path).name == "inner" and todo:
                todo.clear()
                (base / "inner").rename(tmp_path / "moved")
                (base / "inner").symlink_to(tmp_path / "outside")
            return found

        monkeypatch.setattr(os, "stat", racing)
        assert refusal(Sandbox(base, handles=False).read, "inner/secret.txt", LARGE) == DENIED

    def test_a_directory_that_is_moved_away_keeps_its_file(self, base, tmp_path, monkeypatch):
        """The handle is the directory, whatever stands in its place."""

        def swap():
            (base / "inner").rename(base / "moved")
            (base / "inner").symlink_to(tmp_path / "outside")

        swapping(monkeypatch, "open", "b.txt", [swap])
        assert Sandbox(base).read("inner/b.txt", LARGE) == b"deeper"

    def test_a_link_put_in_place_of_the_file_is_replaced_not_followed(self, sandbox, base, tmp_path, monkeypatch):
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

    def test_a_file_created_meanwhile_is_not_replaced(self, sandbox, base, monkeypatch):
        real = os.link

        def racing(*arguments, **keywords):
            (base / "new.txt").write_bytes(b"theirs")
            real(*arguments, **keywords)

        monkeypatch.setattr(os, "link", racing)
        assert refusal(sandbox.write, "new.txt", b"ours", replace=False) == "'new.txt' already exists"
        assert (base / "new.txt").read_bytes() == b"theirs"
        assert names(base) == ["a.txt", "inner", "new.txt"]

    def test_a_file_that_grows_while_it_is_read_is_refused(self, sandbox, base, monkeypatch):
        real = os.fstat

        def racing(fd):
            found = real(fd)
            if stat.S_ISREG(found.st_mode):
                (base / "a.txt").write_bytes(b"x" * 1000)
            return found

        monkeypatch.setattr(os, "fstat", racing)
        assert refusal(sandbox.read, "a.txt", 10) == "'a.txt' is too large: 11 bytes, the limit is 10"


class TestWhatIsNoFile:
    def test_a_pipe_is_rejected_without_blocking(self, sandbox, base):
        os.mkfifo(base / "pipe")
        expected = "'pipe' is a device or a pipe, not a file"
        assert refusal(sandbox.read, "pipe", LARGE) == refusal(sandbox.write, "pipe", b"") == expected

    def test_a_pipe_created_after_the_check_does_not_block(self, sandbox, base, monkeypatch):
        def swap():
            (base / "a.txt").unlink()
            os.mkfifo(base / "a.txt")

        swapping(monkeypatch, "open", "a.txt", [swap])
        assert refusal(sandbox.read, "a.txt", LARGE) in {DENIED, "'a.txt' is a device or a pipe, not a file"}

    def test_a_socket_is_refused(self, sandbox, base, monkeypatch):
        monkeypatch.chdir(base)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("socket")
            assert refusal(sandbox.read, "socket", LARGE) == "'socket' is a device or a pipe, not a file"

    @pytest.mark.parametrize("path", ["dev/zero", "dev/tty", "dev/stdin", "proc/self/environ", "proc/self/fd/0"])
    def test_devices_and_processes_are_outside_even_of_the_root(self, handles, path):
        expected = refusal(Sandbox("/", handles=handles).read, path, LARGE)
        assert expected in {DENIED, f"'{path}' is a device or a pipe, not a file"}

    def test_a_device_is_refused(self, handles):
        assert refusal(Sandbox("/dev", handles=handles).read, "zero", 10) == "'zero' is a device or a pipe, not a file"

    def test_a_mounted_file_system_is_outside(self, handles):
        assert refusal(Sandbox("/", handles=handles).read, "proc/version", LARGE) == DENIED

    @pytest.mark.parametrize("path", ["", ".", "./", "inner/", "inner/.", "inner/..", "new/", "a.txt/x/..", "new/x/.."])
    def test_a_path_that_names_a_directory_is_refused(self, sandbox, base, path):
        expected = f"{path!r} names a directory; name a file"
        assert refusal(sandbox.read, path, LARGE) == refusal(sandbox.write, path, b"") == expected
        assert not (base / "new").exists()

    def test_a_directory_is_not_a_file(self, sandbox):
        expected = "'inner' is a directory, not a file"
        assert refusal(sandbox.read, "inner", LARGE) == refusal(sandbox.write, "inner", b"") == expected

    def test_a_file_is_not_a_directory(self, sandbox):
        expected = "'a.txt/b.txt' leads through a file, not a directory"
        assert refusal(sandbox.read, "a.txt/b.txt", LARGE) == refusal(sandbox.write, "a.txt/b.txt", b"") == expected


class TestReading:
    def test_a_missing_file_is_named(self, sandbox):
        with pytest.raises(MissingFileError, match=r"^File not found: 'inner/c\.txt'$"):
            sandbox.read("inner/c.txt", LARGE)
        with pytest.raises(MissingFileError):
            sandbox.read("nowhere/c.txt", LARGE)

    def test_a_file_of_just_the_limit_is_read_and_a_larger_one_refused(self, sandbox):
        assert sandbox.read("a.txt", 6) == b"inside"
        assert refusal(sandbox.read, "a.txt", 5) == "'a.txt' is too large: 6 bytes, the limit is 5"

    def test_a_huge_file_is_refused_without_being_read(self, sandbox, base):
        os.truncate(base / "a.txt", 2**40)
        assert refusal(sandbox.read, "a.txt", LARGE) == f"'a.txt' is too large: {2**40} bytes, the limit is {LARGE}"

    @pytest.mark.parametrize("path", ["a/" * 101 + "b", "a" * 5000])
    def test_a_very_long_path_is_rejected_and_creates_nothing(self, sandbox, base, path):
        expected = "The path is too long: at most 4096 characters and 100 names"
        assert refusal(sandbox.read, path, LARGE) == refusal(sandbox.write, path, b"") == expected
        assert names(base) == ["a.txt", "inner"]

    @pytest.mark.parametrize("name", ["x" * 256, "é" * 128])
    def test_a_name_that_is_too_long_is_rejected_and_creates_nothing(self, sandbox, base, name):
        expected = refusal(sandbox.write, f"new/{name}", b"")
        assert (
            expected
            == f"Cannot open {f'new/{name}'[:200] + '...' * (len(name) > 196)!r}: {os.strerror(errno.ENAMETOOLONG)}"
        )
        assert names(base) == ["a.txt", "inner"]
        sandbox.write(f"new/{'x' * 255}", b"")

    def test_system_errors_are_reported_without_the_base_directory(self, sandbox):
        expected = refusal(sandbox.read, "x" * 300, LARGE)
        assert expected == f"Cannot open '{'x' * 200}...': {os.strerror(errno.ENAMETOOLONG)}"

    def test_a_deleted_base_directory_is_reported(self, sandbox, base, tmp_path):
        base.rename(tmp_path / "moved")
        assert refusal(sandbox.read, "a.txt", LARGE) == "File not found: 'a.txt'"

    def test_handles_are_closed(self, sandbox, base):
        before = len(names("/proc/self/fd"))
        for path in ["a.txt", "inner/b.txt", "inner/missing", "inner", "missing/x", "a.txt/x", "../x"]:
            with contextlib.suppress(ToolExecutionError):
                sandbox.read(path, LARGE)
            with contextlib.suppress(ToolExecutionError):
                sandbox.write(path, b"")
        assert len(names("/proc/self/fd")) == before


class TestWriting:
    def test_a_file_is_made_with_the_directories_above_it(self, sandbox, base):
        sandbox.write("new/deep/c.txt", b"new")
        sandbox.write("new/deep/d.txt", b"newer", replace=False)
        assert (base / "new/deep/c.txt").read_bytes() == b"new"
        assert (base / "new/deep/d.txt").read_bytes() == b"newer"
        assert names(base / "new/deep") == ["c.txt", "d.txt"]

    def test_an_existing_file_is_replaced_only_on_request(self, sandbox, base):
        assert refusal(sandbox.write, "a.txt", b"new", replace=False) == "'a.txt' already exists"
        assert (base / "a.txt").read_bytes() == b"inside"
        sandbox.write("a.txt", b"new")
        assert (base / "a.txt").read_bytes() == b"new"

    def test_the_permissions_of_a_file_stay_but_none_of_another_user(self, sandbox, base):
        (base / "a.txt").chmod(0o4750)
        sandbox.write("a.txt", b"new")
        assert stat.S_IMODE((base / "a.txt").stat().st_mode) == 0o750

    def test_a_read_only_file_is_not_replaced(self, sandbox, base):
        (base / "a.txt").chmod(0o444)
        assert refusal(sandbox.write, "a.txt", b"new") == "'a.txt' is read-only"
        assert refusal(sandbox.write, "a.txt", b"new", replace=False) == "'a.txt' already exists"
        assert (base / "a.txt").read_bytes() == b"inside"
        assert names(base) == ["a.txt", "inner"]

    @pytest.mark.parametrize("step", ["fsync", "replace"])
    def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(self, sandbox, base, monkeypatch, step):
        def full(*_, **__):
            raise OSError(errno.ENOSPC, "")

        monkeypatch.setattr(os, step, full)
        expected = refusal(sandbox.write, "a.txt", b"new")
        assert expected == f"Cannot open 'a.txt': {os.strerror(errno.ENOSPC)}"
        assert (base / "a.txt").read_bytes() == b"inside"
        assert names(base) == ["a.txt", "inner"]

    def test_a_crash_leaves_the_old_file(self, sandbox, base, monkeypatch):
        def crash(*_, **__):
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            sandbox.write("a.txt", b"new")
        assert (base / "a.txt").read_bytes() == b"inside"


@pytest.mark.parametrize("path", ["NUL", "con.txt", "inner/aux", "COM1.log", "a.txt:stream", "lpt¹"])
def test_names_that_mean_devices_elsewhere_are_denied_where_there_are_no_handles(base, path):
    assert refusal(Sandbox(base, handles=False).write, path, b"") == DENIED
    Sandbox(base, handles=True).write(path, b"")


def test_a_backslash_is_part_of_a_name_or_a_separator_as_the_system_has_it(base):
    Sandbox(base, handles=True).write("x\\y.txt", b"one name")
    Sandbox(base, handles=False).write("x\\z.txt", b"two names")
    assert (base / "x\\y.txt").read_bytes() == b"one name"
    assert (base / "x" / "z.txt").read_bytes() == b"two names"


@pytest.mark.parametrize("name", ["missing", "a.txt"])
def test_a_base_directory_must_exist(base, name):
    with pytest.raises(ToolDefinitionError, match="base_dir must be a directory that exists, not"):
        Sandbox(base / name)


def test_a_sandbox_can_be_pickled(base):
    assert pickle.loads(pickle.dumps(Sandbox(base))).read("a.txt", LARGE) == b"inside"
