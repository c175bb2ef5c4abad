"""``file_read``: text files inside one directory."""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated

from pydantic import Field

from toolsemble.builtin.plain_text import plain_text
from toolsemble.errors import ToolExecutionError
from toolsemble.guard.paths import Sandbox
from toolsemble.result import ToolResult
from toolsemble.tools.typed import TypedTool

MAX_BYTES = 10 * 1024 * 1024
"""How large a file may be, unless the tool is told otherwise."""
MAX_LINES = 2000
"""How many lines are given, unless the call says otherwise."""
MAX_CHARACTERS = 100_000
"""How many characters are given at most, whatever the call says."""


@dataclass(frozen=True, slots=True)
class FileReadInput:
    """What to read.

    >>> FileReadInput("notes.txt", offset=100, limit=50).limit
    50
    """

    path: Annotated[str, Field(description="The file, relative to the base directory, such as 'notes/today.txt'")]
    """The file, relative to the base directory."""
    offset: Annotated[int, Field(ge=0, description="How many lines to skip")] = 0
    """How many lines to skip."""
    limit: Annotated[int | None, Field(ge=1, description=f"How many lines to give at most; {MAX_LINES} by default")] = (
        None
    )
    """How many lines to give at most; None for as many as are given by default."""


class FileReadTool(TypedTool[FileReadInput]):
    r"""Reads text files inside one directory; nothing outside can be read or detected.

    What is less than was asked for says at its end which lines it is. The structured output always says so, and how
    the file is encoded.

    >>> import pathlib, tempfile
    >>> base = pathlib.Path(tempfile.mkdtemp())
    >>> base.joinpath("list.txt").write_text("milk\nbread\neggs\n")
    16
    >>> read = FileReadTool(base)
    >>> read.execute('{"path": "list.txt", "offset": 1, "limit": 1}').output
    'bread\n'
    >>> read.execute('{"path": "../list.txt"}').text
    'Error: Access denied: path is outside the sandbox directory'
    """

    name = "file_read"
    description = (
        "Reads a text file and gives its content. Paths are relative to a base directory, and nothing outside it can "
        "be read. For a part of a long file, say how many lines to skip (offset) and how many to give (limit). An "
        "answer that had to be cut ends with a line that says which lines it holds, and of how many."
    )

    def __init__(self, base_dir: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> None:
        """Take down the directory.

        :param base_dir: the directory, which must exist
        :param max_bytes: how large a file may be
        """
        self._sandbox = Sandbox(base_dir)
        self._max_bytes = max_bytes

    def run(self, input: FileReadInput) -> ToolResult:
        """Give the lines that were asked for."""
        found = plain_text(data := self._sandbox.read(input.path, self._max_bytes))
        if found is None:
            raise ToolExecutionError(f"{input.path!r} is a binary file of {len(data)} bytes, not text")
        lines = _lines(found.text)
        if input.offset and input.offset >= len(lines):
            raise ToolExecutionError(f"Offset {input.offset} is past the end: {input.path!r} has {len(lines)} lines")
        asked = lines[input.offset :][: input.limit]
        given = _fitting(asked if input.limit else asked[:MAX_LINES])
        facts = {
            "path": input.path,
            "offset": input.offset,
            "lines": len(given),
            "total_lines": len(lines),
            "bytes": len(data),
            "encoding": found.encoding,
        }
        return ToolResult.success("".join(given) + ("" if given == asked else _note(lines, given, input.offset)), facts)


def _lines(text: str) -> list[str]:
    """Give the lines with their ends; unlike ``splitlines``, only at line feeds, as editors and compilers count."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


def _fitting(lines: list[str]) -> list[str]:
    """Give as many lines as a model is given at once; of a first one that is longer, its beginning."""
    count = bisect_right(list(accumulate(map(len, lines))), MAX_CHARACTERS)
    return lines[:count] or [line[:MAX_CHARACTERS] for line in lines[:1]]


def _note(lines: list[str], given: list[str], offset: int) -> str:
    """Say which part of a file was given, in a line of its own."""
    start = "" if given[-1].endswith("\n") else "\n"
    if given[-1] != (last := lines[offset + len(given) - 1]):
        return f"{start}[line {offset + 1} of {len(lines)}, the first {MAX_CHARACTERS} of its {len(last)} characters]"
    return f"{start}[lines {offset + 1}-{offset + len(given)} of {len(lines)}]"
