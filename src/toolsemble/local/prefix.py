"""Beginnings of prompts, computed once for this machine.

Whoever offers the same tools begins with the same thousand tokens, and computing them takes most of the time of a
first answer. What comes of it is kept in files, which a later process reads in a fraction of a second.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolsemble.errors import ModelError
from toolsemble.local.wire import Wire
from toolsemble.runtime.concurrency import THREADS

_SHORTEST = 128  # tokens that are computed faster than a file is worth
_MOST_BYTES = 512 * 2**20
_ENDING = ".kv"


class Prefixes:
    """The files of one model."""

    def __init__(self, folder: Path | None, model: str) -> None:
        self._folder = folder
        self._model = model
        self._seen: set[str] = set()

    @classmethod
    def at(cls, folder: Path | None, model: str) -> Prefixes:
        """Give the files in a folder, which is made; where that is not possible, nothing is kept."""
        try:
            if folder is not None:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            folder = None
        return cls(folder, model)

    @property
    def folder(self) -> str:
        """The folder as llama.cpp wants it; empty for none."""
        return "" if self._folder is None else f"{self._folder}{os.sep}"

    async def prepare(self, wire: Wire, prefix: Sequence[int]) -> None:
        """Have a prefix computed or read; a second time there is nothing to do, as llama.cpp keeps it itself."""
        name = hashlib.sha256(f"{self._model} {list(prefix)}".encode()).hexdigest()
        if self._folder is None or name in self._seen or len(prefix) < _SHORTEST:
            return
        found = await asyncio.wrap_future(THREADS.submit(_found, self._folder, name))
        if found is None or not await _moved(wire, "restore", found):
            await wire.asked("/completion", {"prompt": list(prefix), "n_predict": 0, "cache_prompt": True})
            await self._write(wire, self._folder, name)
        self._seen.add(name)

    async def _write(self, wire: Wire, folder: Path, name: str) -> None:
        # Another process may read it at any time: it is there as a whole, or not at all.
        begun = folder / f"{secrets.token_hex(8)}.part"
        if await _moved(wire, "save", begun):
            await asyncio.wrap_future(THREADS.submit(_finish, begun, name))


def _found(folder: Path, name: str) -> Path | None:
    """Give the file of a prefix, if there is one and it is as it was written: llama.cpp would end the process.

    It counts as used now, as what was not used for longest goes first.
    """
    for path in folder.glob(f"{name}-*{_ENDING}"):
        with suppress(OSError):
            if path.name == _whole_name(path, name):
                os.utime(path)
                return path
    return None


def _finish(begun: Path, name: str) -> None:
    """Give a file its name, and delete others down to a bounded size; a full disk costs time, not the answer."""
    with suppress(OSError):
        path = begun.replace(begun.with_name(_whole_name(begun, name)))
        size = 0
        for other in sorted(path.parent.glob(f"*{_ENDING}"), key=lambda each: each.stat().st_mtime, reverse=True):
            size += other.stat().st_size
            if size > _MOST_BYTES and other != path:
                other.unlink()


def _whole_name(path: Path, name: str) -> str:
    with path.open("rb") as file:
        return f"{name}-{hashlib.file_digest(file, 'sha256').hexdigest()}{_ENDING}"


async def _moved(wire: Wire, action: str, path: Path) -> bool:
    """Whether llama.cpp could save what it has computed, or read what it had saved."""
    try:
        said: Any = await wire.asked(f"/slots/0?action={action}", {"filename": path.name})
    except ModelError:
        return False
    return bool(said)
