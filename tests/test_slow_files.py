"""The list of files whose mark `slow` is not right, and what `make check` leaves out."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from slow_files import SlowFiles


def run_test(file, name, *, slow=False):
    """Return a test that has run."""
    marker = "slow" if slow else None
    return SimpleNamespace(
        location=(file, 0, name), nodeid=f"{file}::{name}", get_closest_marker=lambda wanted: wanted == marker
    )


def list_files(times, *, wanted):
    """Return the lines that are printed for the times of some tests, which two workers have measured."""
    lines, whole = [], SlowFiles()
    for item, seconds in times:
        worker, output = SlowFiles(), {}
        worker.add(item, seconds)
        worker.pytest_sessionfinish(SimpleNamespace(config=SimpleNamespace(workeroutput=output)))
        whole.pytest_testnodedown(SimpleNamespace(workeroutput=output))
    config = SimpleNamespace(getoption=lambda _: wanted)
    whole.pytest_terminal_summary(SimpleNamespace(write_line=lines.append), config)
    return lines


TIMES = [
    (run_test("tests/test_a.py", "test_long"), 1.2),
    (run_test("tests/test_a.py", "test_short"), 0.3),
    (run_test("tests/test_b.py", "test_longest"), 2.5),
    (run_test("tests/test_c.py", "test_marked", slow=True), 9.0),
    (run_test("tests/test_d.py", "test_marked_and_short", slow=True), 0.1),
    (run_test("docs/page.md", "line:1"), 4.0),
]


def test_all_wrong_marks_are_listed_the_slowest_file_first():
    first, second, advice, short = list_files(TIMES, wanted=True)
    assert first == "tests/test_b.py: 2.5 s without the mark slow, of which 2.5 s are test_longest"
    assert second == "tests/test_a.py: 1.5 s without the mark slow, of which 1.2 s are test_long"
    assert advice.startswith("make check is for quick tests: mark the slow ones")
    assert short == "tests/test_d.py: 0.1 s; it need not be marked slow"


def test_busy_machine_may_take_twice_as_long():
    listed = list_files(TIMES, wanted=False)
    assert [line.partition(":")[0] for line in listed] == ["tests/test_b.py", "make check is for quick tests"]
    assert list_files(TIMES[:2], wanted=False) == []


@pytest.mark.parametrize(
    ("line", "marks", "left_out"),
    [
        ("pytestmark = pytest.mark.slow", "not slow", True),
        ('pytestmark = [pytest.mark.slow, pytest.mark.parametrize("a", [1])]', "not slow", True),
        ("pytestmark = [\n    pytest.mark.slow,\n]", "not slow", True),
        ("pytestmark = pytest.mark.slow", "", None),
        ("pytestmark = pytest.mark.timeout(9)  # slow", "not slow", None),
        ("@pytest.mark.slow\ndef test_one(): ...", "not slow", None),
    ],
)
def test_slow_files_are_not_imported_if_only_quick_tests_run(pytestconfig, tmp_path, line, marks, left_out):
    file = tmp_path / "test_it.py"
    file.write_text(f"import pytest\n\n{line}\n", encoding="utf-8")
    root = Path(__file__).parents[1] / "conftest.py"
    plugins = pytestconfig.pluginmanager.get_plugins()
    conftest = next(each for each in plugins if getattr(each, "__file__", "") == str(root))
    config = SimpleNamespace(option=SimpleNamespace(markexpr=marks))
    assert conftest.pytest_ignore_collect(file, config) is left_out
