"""Run the examples in the pages and docstrings as tests."""

import gc
import os
import signal
from pathlib import Path

from sybil import Sybil
from sybil.document import PythonDocStringDocument
from sybil.parsers.doctest import DocTestParser
from sybil.parsers.markdown import PythonCodeBlockParser
from sybil.sybil import SybilCollection

from toolsemble.observers import sinks

ROOT = Path(__file__).parent

pages = Sybil([PythonCodeBlockParser()], path=str(ROOT), patterns=["*.md"])
docstrings = Sybil(
    [DocTestParser()],
    path=str(ROOT / "src"),
    patterns=["**/*.py"],
    document_types={".py": PythonDocStringDocument},
)

pytest_collect_file = SybilCollection([pages, docstrings]).pytest()

# A call waits a quarter of a second for its sinks, which on a busy machine need not have been told by then.
sinks.PATIENCE = 60.0

# What is started in the background ignores Ctrl-C, and so do its children; some tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers() -> int:
    """Return one worker more than there are cores: many tests wait for programs and servers that they have started."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_finish() -> None:
    """Leave what is loaded by now out of every garbage collection: thousands of tests that are known make each slow."""
    gc.collect()
    gc.freeze()
