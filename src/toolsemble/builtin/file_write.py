"""``file_write``: text files inside one directory, written whole or not at all."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Annotated, Literal, Unpack

from pydantic import Field

from toolsemble.builtin.plain_text import plain_text
from toolsemble.errors import ToolExecutionError
from toolsemble.guard.paths import MissingFileError, Sandbox
from toolsemble.result import ToolResult
from toolsemble.tools.settings import ToolSettings
from toolsemble.tools.typed import TypedTool

MAX_BYTES = 10 * 1024 * 1024
"""How large a file may become, unless the tool is told otherwise."""

_DONE = {
    "overwrite": "Wrote {bytes} bytes to {path!r}",
    "append": "Appended {bytes} bytes to {path!r}",
    "create": "Created {path!r} with {bytes} bytes",
}
# Of two that write one file at once, the second must see what the first wrote. Files share these, so that names which a
# model makes up do not pile up; two files that meet at one lock only wait a little.
_LOCKS = tuple(threading.Lock() for _ in range(64))


@dataclass(frozen=True, slots=True)
class FileWriteInput:
    """What to write, and where.

    >>> FileWriteInput("notes.txt", "Buy milk").mode
    'overwrite'
    """

    path: Annotated[str, Field(description="The file, relative to the base directory, such as 'notes/today.txt'")]
    """The file, relative to the base directory."""
    content: Annotated[str, Field(description="The text to write")]
    """The text to write."""
    mode: Annotated[
        Literal["overwrite", "append", "create"],
        Field(description="overwrite replaces a file, append adds to its end, create refuses if there is one"),
    ] = "overwrite"
    """What becomes of a file that is there already."""


class FileWriteTool(TypedTool[FileWriteInput]):
    """Writes text files inside one directory; nothing outside can be written, created or detected.

    A crash leaves the old file or the new one, never half. Directories on the way are made. Text is UTF-8; what is
    appended is in the file's own encoding. Calls in one process that write the same file wait for each other.
    A read-only file stays as it is.

    >>> import pathlib, tempfile
    >>> base = pathlib.Path(tempfile.mkdtemp())
    >>> write = FileWriteTool(base)
    >>> write.execute('{"path": "notes/list.txt", "content": "milk"}').output
    "Wrote 4 bytes to 'notes/list.txt'"
    >>> write.execute('{"path": "notes/list.txt", "content": "bread", "mode": "create"}').text
    "Error: 'notes/list.txt' already exists"
    >>> base.joinpath("notes", "list.txt").read_text()
    'milk'
    """

    name = "file_write"
    description = (
        "Writes text to a file, and makes the directories it needs. Paths are relative to a base directory, and "
        "nothing outside it can be written."
    )
    editable = "content"

    def __init__(
        self, base_dir: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES, **settings: Unpack[ToolSettings]
    ) -> None:
        """Take down the directory.

        :param base_dir: the directory, which must exist
        :param max_bytes: how large a file may become
        :param settings: what any tool can say of itself, such as ``requires_approval``; a reviewer edits the content
        """
        self._sandbox = Sandbox(base_dir)
        self._apply(settings)
        self._max_bytes = max_bytes

    def run(self, input: FileWriteInput) -> ToolResult:
        """Write the file, whole."""
        with _LOCKS[hash(self._sandbox.normalize(input.path)) % len(_LOCKS)]:
            written = self._append(input) if input.mode == "append" else self._put(input)
        facts = {"path": input.path, "bytes": len(written), "mode": input.mode}
        return ToolResult.success(_DONE[input.mode].format_map(facts), facts)

    def _put(self, input: FileWriteInput) -> bytes:
        new = self._checked(_encoded(input, "utf-8"))
        self._sandbox.write(input.path, new, replace=input.mode == "overwrite")
        return new

    def _append(self, input: FileWriteInput) -> bytes:
        try:
            old = self._sandbox.read(input.path, self._max_bytes)
        except MissingFileError:
            old = b""
        found = plain_text(old)
        if found is None:
            raise ToolExecutionError(f"{input.path!r} is a binary file; text cannot be appended to it")
        if not found.whole:
            raise ToolExecutionError(
                f"{input.path!r} has bytes that are no {found.encoding} text; nothing was appended"
            )
        new = _encoded(input, found.encoding)
        self._sandbox.write(input.path, self._checked(old + new))
        return new

    def _checked(self, data: bytes) -> bytes:
        if len(data) > self._max_bytes:
            raise ToolExecutionError(f"The file would have {len(data)} bytes, the limit is {self._max_bytes}")
        return data


def _encoded(input: FileWriteInput, encoding: str) -> bytes:
    try:
        return input.content.encode(encoding)
    except UnicodeEncodeError as problem:
        character = problem.object[problem.start]
        raise ToolExecutionError(f"{input.path!r} is {encoding} text, which cannot hold {character!r}") from None
