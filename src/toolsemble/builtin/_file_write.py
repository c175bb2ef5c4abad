"""``file_write``: a tool that writes text files inside one directory, atomically."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Annotated, Literal, Unpack

from pydantic import Field

from toolsemble._runtime.paths import MissingFileError, Sandbox
from toolsemble._tools.settings import ToolSettings
from toolsemble._tools.typed import TypedTool
from toolsemble._vocabulary.errors import ToolExecutionError
from toolsemble._vocabulary.result import ToolResult
from toolsemble.builtin._plain_text import decode_text

MAX_BYTES = 10 * 1024 * 1024
"""The default size limit of a file, in bytes."""

_MESSAGES = {
    "overwrite": "Wrote {bytes} bytes to {path!r}",
    "append": "Appended {bytes} bytes to {path!r}",
    "create": "Created {path!r} with {bytes} bytes",
}
# Concurrent writes to one file must not lose data. Files share a fixed number of locks, because a model may use any
# number of names; two files with the same lock only wait for each other briefly.
_LOCKS = tuple(threading.Lock() for _ in range(64))


@dataclass(frozen=True, slots=True)
class FileWriteInput:
    """The arguments of ``file_write``.

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
    """What happens to an existing file."""


class FileWriteTool(TypedTool[FileWriteInput]):
    """A tool that writes text files inside one directory; nothing outside can be written, created or detected.

    Writes are atomic: a crash leaves the old file or the new one. Missing directories are created. Text is written as
    UTF-8; appended text has the file's encoding. Calls in one process that write the same file are serialized.
    A read-only file is not changed.

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
        self,
        base_dir: str | os.PathLike[str],
        *,
        max_bytes: int = MAX_BYTES,
        name: str | None = None,
        description: str | None = None,
        **settings: Unpack[ToolSettings],
    ) -> None:
        """Open the directory.

        :param base_dir: the directory, which must exist
        :param max_bytes: the size limit of a file
        :param name: another name for the model
        :param description: another description for the model
        :param settings: the settings of any tool, such as ``requires_approval``; a reviewer edits the content
        """
        self._set_names(name, description)
        self._sandbox = Sandbox(base_dir)
        self._apply(settings)
        self._max_bytes = max_bytes

    def run(self, input: FileWriteInput) -> ToolResult:
        """Write the file atomically."""
        with _LOCKS[hash(self._sandbox.normalize(input.path)) % len(_LOCKS)]:
            written = self._append(input) if input.mode == "append" else self._write(input)
        facts = {"path": input.path, "bytes": len(written), "mode": input.mode}
        return ToolResult.success(_MESSAGES[input.mode].format_map(facts), facts)

    def _write(self, input: FileWriteInput) -> bytes:
        new = self._check_size(_encode(input, "utf-8"))
        self._sandbox.write(input.path, new, replace=input.mode == "overwrite")
        return new

    def _append(self, input: FileWriteInput) -> bytes:
        try:
            old = self._sandbox.read(input.path, self._max_bytes)
        except MissingFileError:
            old = b""
        found = decode_text(old)
        if found is None:
            raise ToolExecutionError(f"{input.path!r} is a binary file; text cannot be appended to it")
        if not found.whole:
            raise ToolExecutionError(f"{input.path!r} is not valid {found.encoding} text; nothing was appended")
        new = _encode(input, found.encoding)
        self._sandbox.write(input.path, self._check_size(old + new))
        return new

    def _check_size(self, data: bytes) -> bytes:
        if len(data) > self._max_bytes:
            raise ToolExecutionError(f"The file would have {len(data)} bytes, the limit is {self._max_bytes}")
        return data


def _encode(input: FileWriteInput, encoding: str) -> bytes:
    try:
        return input.content.encode(encoding)
    except UnicodeEncodeError as problem:
        character = problem.object[problem.start]
        raise ToolExecutionError(f"{input.path!r} is {encoding} text, which cannot hold {character!r}") from None
