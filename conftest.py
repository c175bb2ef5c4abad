"""Run the examples in the pages and docstrings as tests."""

import doctest
import gc
import io
import os
import re
import signal
from collections.abc import Generator, Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from sybil import Example, Sybil
from sybil.document import PythonDocStringDocument
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.doctest import DocTestParser
from sybil.parsers.markdown import CodeBlockParser, SkipParser
from sybil.sybil import SybilCollection

from toolsemble.observers import sinks

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


class DocStrings(PythonDocStringDocument):
    """The docstrings of a module; one without any example is not parsed."""

    @staticmethod
    def extract_docstrings(python_source_code: str) -> Iterator[tuple[int, int, str]]:
        """Yield where each docstring begins and ends, and its text."""
        if ">>>" in python_source_code:
            yield from PythonDocStringDocument.extract_docstrings(python_source_code)


docstrings = Sybil(
    [DocTestParser()],
    path=str(ROOT / "src"),
    patterns=["**/*.py"],
    document_types={".py": DocStrings},
)

pytest_collect_file = SybilCollection([pages, docstrings]).pytest()

# A call waits a quarter of a second for its sinks, which on a busy machine may not have received the events by then.
sinks.PATIENCE = 60.0

# What is started in the background ignores Ctrl-C, and so do its children; some tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers() -> int:
    """Return one worker more than there are cores: many tests wait for programs and servers that they have started."""
    return (os.cpu_count() or 1) + 1


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


def pytest_collection_finish() -> None:
    """Leave what is loaded by now out of every garbage collection: thousands of tests that are known make each slow."""
    gc.freeze()
