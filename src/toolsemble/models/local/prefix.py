"""Beginnings of prompts, computed once for this machine.

Whoever offers the same tools begins with the same thousand tokens, and computing them takes most of the time of a
first answer. What comes of it is kept in files, which a later process reads in a few milliseconds.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolsemble.errors import ModelError
from toolsemble.models.local.wire import Wire

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
        """Give the files in a folder, which is made; without one that can be written, nothing is kept."""
        try:
            if folder is not None:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            folder = None
        return cls(folder if folder is not None and os.access(folder, os.W_OK) else None, model)

    @property
    def folder(self) -> str:
        """The folder as llama.cpp wants it; empty for none."""
        return "" if self._folder is None else f"{self._folder}{os.sep}"

    async def prepare(self, wire: Wire, prefix: Sequence[int]) -> None:
        """Have a prefix computed or read; a second time there is nothing to do, as llama.cpp keeps it itself."""
        name = self._name(prefix)
        if self._folder is None or name in self._seen or len(prefix) < _SHORTEST:
            return
        if not await self._read(wire, self._folder / name):
            await wire.asked("/completion", {"prompt": list(prefix), "n_predict": 0, "cache_prompt": True})
            await self._write(wire, self._folder / name)
        self._seen.add(name)

    def _name(self, prefix: Sequence[int]) -> str:
        return hashlib.sha256(f"{self._model} {list(prefix)}".encode()).hexdigest() + _ENDING

    async def _read(self, wire: Wire, path: Path) -> bool:
        if not _touched(path):
            return False
        try:
            await _slot(wire, "restore", path.name)
        except ModelError:  # cut short, or of another version of llama.cpp
            return False
        return True

    async def _write(self, wire: Wire, path: Path) -> None:
        # Another process may read it at any time: it is there as a whole, or not at all.
        begun = path.with_name(f"{secrets.token_hex(8)}.part")
        try:
            await _slot(wire, "save", begun.name)
            begun.replace(path)
        except (ModelError, OSError):  # a full disk costs time, not the answer
            return
        finally:
            begun.unlink(missing_ok=True)
        self._prune(path)

    def _prune(self, newest: Path) -> None:
        """Delete what was not used for longest, down to a bounded size."""
        size = 0
        for path in sorted(newest.parent.glob(f"*{_ENDING}"), key=_used, reverse=True):
            with suppress(OSError):
                size += path.stat().st_size
                if size > _MOST_BYTES and path != newest:
                    path.unlink()


def _touched(path: Path) -> bool:
    """Whether there is such a file; if so, it counts as used now, as what was not used for longest goes first."""
    try:
        os.utime(path)
    except OSError:
        return False
    return True


def _used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # another process was faster
        return 0.0


async def _slot(wire: Wire, action: str, name: str) -> Any:
    return await wire.asked(f"/slots/0?action={action}", {"filename": name})
