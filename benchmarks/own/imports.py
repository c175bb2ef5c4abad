"""Cold imports, and the way to a first reply, each in a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from own.measure import Comparison, Go, Subject

NEEDED = "from toolsemble import Agent, Toolbox, ToolCall, tool"
# Where bytecode is not kept, every import would compile what users have compiled once.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
FIRST_REPLY = """
from toolsemble import Toolbox, ToolCall, tool
def add(a: int, b: int) -> int:
    return a + b
Toolbox([tool(add)]).execute(ToolCall("add", '{"a": 1, "b": 2}')).text
"""
FIRST_VALUE = """
from pydantic import TypeAdapter
def add(a: int, b: int) -> int:
    return a + b
str(TypeAdapter(add).validate_json('{"a": 1, "b": 2}'))
"""


def comparisons() -> Iterator[Comparison]:
    """Give the comparisons of fresh processes."""
    bare = "`import pydantic`"
    yield Comparison(
        Subject("import", "`import toolsemble`", bare, "< 0.2", "import"),
        fresh("import toolsemble"),
        fresh("import pydantic"),
    )
    yield Comparison(Subject("import", f"`{NEEDED}`", bare), fresh(NEEDED), fresh("import pydantic"))
    first = Subject("import", "import, define a tool, and call it once", "the same with pydantic's `TypeAdapter`")
    yield Comparison(first, fresh(FIRST_REPLY), fresh(FIRST_VALUE))


def fresh(statements: str) -> Go:
    """Give one go of statements in a process that has done nothing before."""
    code = f"import time; t = time.perf_counter()\n{statements}\nprint(time.perf_counter() - t)"
    command = [sys.executable, "-c", code]

    def go() -> float:
        run = subprocess.run(  # noqa: S603 - our own code
            command, capture_output=True, text=True, check=True, timeout=60, env=ENVIRONMENT
        )
        return float(run.stdout)

    go()  # which writes the bytecode
    return go
