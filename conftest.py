"""Run the examples in the pages and docstrings as tests."""

import ast
import doctest
import gc
import io
import logging
import os
import re
import signal
from collections.abc import Generator, Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from _pytest._code import ExceptionInfo, Traceback
from sybil import Example, Sybil
from sybil.document import PythonDocStringDocument
from sybil.evaluators.python import PythonEvaluator
from sybil.integration.pytest import SybilItem
from sybil.parsers.doctest import DocTestParser
from sybil.parsers.markdown import CodeBlockParser, SkipParser
from sybil.sybil import SybilCollection

from toolsemble._runtime import sinks

ROOT = Path(__file__).parent

# As in doctests: output may be wrapped, and "..." matches any text.
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
run_code = PythonEvaluator()


def run_block(example: Example) -> None:
    """Run a ``python`` block, and keep what a visible one prints."""
    with redirect_stdout(io.StringIO()) as printed:
        run_code(example)
    if example.document.text.startswith("```", example.start):
        example.document.printed = example.end, printed.getvalue()


def compare_output(example: Example) -> str | None:
    """Compare a ``text`` block with the output of the ``python`` block right above it."""
    end, printed = getattr(example.document, "printed", (0, ""))
    between = example.document.text[end : example.start]
    if not end or not re.fullmatch(r"(\s|<!--.*?-->)*", between, re.DOTALL):
        return None
    checker, expected = doctest.OutputChecker(), doctest.Example("", example.parsed)
    if checker.check_output(expected.want, printed, FLAGS):
        return None
    return checker.output_difference(expected, printed, FLAGS)


pages = Sybil(
    [SkipParser(), CodeBlockParser("python", run_block), CodeBlockParser("text", compare_output)],
    path=str(ROOT),
    patterns=["*.md"],
)


DOCSTRING = re.compile(r'r?"""(.*?)"""', re.DOTALL)


class DocStrings(PythonDocStringDocument):
    """The docstrings of a module, which is not parsed: every process of a test run collects all examples."""

    @staticmethod
    def extract_docstrings(python_source_code: str) -> Iterator[tuple[int, int, str]]:
        """Yield where each docstring with an example begins and ends, and its text."""
        for found in DOCSTRING.finditer(python_source_code):
            if ">>>" in found[1]:
                yield found.start(1), found.end(1), ast.literal_eval(found[0])


docstrings = Sybil(
    [DocTestParser()],
    path=str(ROOT / "src"),
    patterns=["**/*.py"],
    document_types={".py": DocStrings},
)

pytest_collect_file = SybilCollection([pages, docstrings]).pytest()

cut_traceback = SybilItem._traceback_filter  # noqa: SLF001 - as below


def show_traceback(item: SybilItem, error: ExceptionInfo[BaseException]) -> Traceback:
    """Return the part of a traceback inside the example; all of it, if the error was raised elsewhere.

    That is so in a group of errors, such as the warnings of what an example did not close.
    """
    try:
        return cut_traceback(item, error)
    except IndexError:
        return error.traceback


SybilItem._traceback_filter = show_traceback  # noqa: SLF001 - else such an error ends the whole test run

# A call waits a quarter of a second for its sinks, which on a busy machine may not have received the events by then.
sinks.PATIENCE = 60.0

# Clients would read all certificates of the system for each connection, and no test connects to another machine.
os.environ["SSL_CERT_FILE"] = str(ROOT / "tests" / "helpers" / "certificate.pem")

# What is started in the background ignores Ctrl-C, and so do its children; some tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers() -> int:
    """Return one worker more than there are cores: many tests wait for programs and servers that they have started."""
    return (os.cpu_count() or 1) + 1


SLOW_FILE = re.compile(r"^pytestmark = (?:pytest\.mark\.slow$|\[\s*pytest\.mark\.slow\b)", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave slow files out without importing them, if only other tests shall run."""
    if config.option.markexpr != "not slow" or not collection_path.match("test_*.py"):
        return None
    return True if SLOW_FILE.search(collection_path.read_text(encoding="utf-8")) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without collecting garbage, which takes longer than all the rest: what is made here stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files with slow tests first: at the end, one worker would run the last of them while the others wait."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Remove the loggers of the tools of a test that made thousands: pytest visits all loggers twice in each test."""
    loggers = logging.root.manager.loggerDict
    before = len(loggers)
    result = yield
    if len(loggers) > before + 100:
        for name in [*loggers][before:]:
            if name.startswith("toolsemble.tool."):
                del loggers[name]
    return result


def pytest_collection_finish() -> None:
    """Leave what is loaded by now out of every garbage collection: thousands of tests that are known make each slow."""
    gc.freeze()
