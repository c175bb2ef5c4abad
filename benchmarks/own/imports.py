"""Cold imports, and the way to a first reply, each in a fresh process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial

from comparison.process import imported

from own.measure import Comparison, Go, Subject

NEEDED = "from toolsemble import Agent, Toolbox, ToolCall, tool"
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
    """Yield the comparisons of fresh processes."""
    bare = "`import pydantic`"
    yield Comparison(
        Subject("import", "`import toolsemble`", bare, "< 0.2", "import"),
        fresh("import toolsemble"),
        fresh("import pydantic"),
    )
    yield Comparison(Subject("import", f"`{NEEDED}`", bare, "< 1.5"), fresh(NEEDED), fresh("import pydantic"))
    first = Subject("import", "import, define a tool, and call it once", "the same with pydantic's `TypeAdapter`")
    yield Comparison(first, fresh(FIRST_REPLY), fresh(FIRST_VALUE))


def fresh(statements: str) -> Go:
    """Return a function that runs statements in a process that has done nothing before."""
    go = partial(imported, sys.executable, statements)
    go()  # which writes the bytecode
    return go
