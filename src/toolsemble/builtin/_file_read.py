"""``file_read``: a tool that reads text files inside one directory."""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated

from pydantic import Field

from toolsemble._runtime.paths import Sandbox
from toolsemble._tools.typed import TypedTool
from toolsemble._vocabulary.errors import ToolExecutionError
from toolsemble._vocabulary.result import ToolResult
from toolsemble.builtin._plain_text import decode_text

MAX_BYTES = 10 * 1024 * 1024
"""The default size limit of a file, in bytes."""
MAX_LINES = 2000
"""The default number of lines to return."""
MAX_CHARACTERS = 100_000
"""The maximum number of characters to return."""


@dataclass(frozen=True, slots=True)
class FileReadInput:
    """The arguments of ``file_read``.

    >>> FileReadInput("notes.txt", offset=100, limit=50).limit
    50
    """

    path: Annotated[str, Field(description="The file, relative to the base directory, such as 'notes/today.txt'")]
    """The file, relative to the base directory."""
    offset: Annotated[int, Field(ge=0, description="How many lines to skip")] = 0
    """The number of lines to skip."""
    limit: Annotated[int | None, Field(ge=1, description=f"How many lines to give at most; {MAX_LINES} by default")] = (
        None
    )
    """The maximum number of lines to return; None: the default."""


class FileReadTool(TypedTool[FileReadInput]):
    r"""A tool that reads text files inside one directory; nothing outside can be read or detected.

    A truncated output ends with a note that says which lines it contains. The structured output always has the
    range of lines, and the encoding of the file.

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

    def __init__(
        self,
        base_dir: str | os.PathLike[str],
        *,
        max_bytes: int = MAX_BYTES,
        name: str | None = None,
        description: str | None = None,
    ) -> None:
        """Open the directory.

        :param base_dir: the directory, which must exist
        :param max_bytes: the size limit of a file
        :param name: another name for the model
        :param description: another description for the model
        """
        self._set_names(name, description)
        self._sandbox = Sandbox(base_dir)
        self._max_bytes = max_bytes

    def run(self, input: FileReadInput) -> ToolResult:
        """Return the requested lines."""
        found = decode_text(data := self._sandbox.read(input.path, self._max_bytes))
        if found is None:
            raise ToolExecutionError(f"{input.path!r} is a binary file of {len(data)} bytes, not text")
        lines = _split_lines(found.text)
        if input.offset and input.offset >= len(lines):
            raise ToolExecutionError(f"Offset {input.offset} is past the end: {input.path!r} has {len(lines)} lines")
        requested = lines[input.offset :][: input.limit]
        returned = _fit(requested if input.limit else requested[:MAX_LINES])
        facts = {
            "path": input.path,
            "offset": input.offset,
            "lines": len(returned),
            "total_lines": len(lines),
            "bytes": len(data),
            "encoding": found.encoding,
        }
        return ToolResult.success(
            "".join(returned) + ("" if returned == requested else _make_note(lines, returned, input.offset)), facts
        )


def _split_lines(text: str) -> list[str]:
    """Return the lines with their ends; unlike ``splitlines``, split only at line feeds, as editors do."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


def _fit(lines: list[str]) -> list[str]:
    """Return the first lines that fit the maximum, or the beginning of a longer first line."""
    count = bisect_right(list(accumulate(map(len, lines))), MAX_CHARACTERS)
    return lines[:count] or [line[:MAX_CHARACTERS] for line in lines[:1]]


def _make_note(lines: list[str], returned: list[str], offset: int) -> str:
    """Return a note with the returned line range."""
    start = "" if returned[-1].endswith("\n") else "\n"
    if returned[-1] != (last := lines[offset + len(returned) - 1]):
        return f"{start}[line {offset + 1} of {len(lines)}, the first {MAX_CHARACTERS} of its {len(last)} characters]"
    return f"{start}[lines {offset + 1}-{offset + len(returned)} of {len(lines)}]"
