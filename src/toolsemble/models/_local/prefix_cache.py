"""The cache of prompt prefixes on disk.

Prompts with the same tools begin with the same thousand tokens, whose computation takes most of the time of a first
answer. The result is stored in files, which a later process loads in a fraction of a second.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from toolsemble._runtime.concurrency import THREADS
from toolsemble._vocabulary.errors import ModelError
from toolsemble.models._local.client import ServerClient

_MIN_TOKENS = 128  # fewer are computed faster than a file is loaded
_MAX_BYTES = 512 * 2**20
_SUFFIX = ".kv"


class PrefixCache:
    """The cached prefixes of one model, in a folder that is created; nothing is cached if that fails."""

    def __init__(self, folder: Path | None, model: str) -> None:
        self._folder = folder
        self._model = model
        self._seen: set[str] = set()
        try:
            if folder is not None:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            self._folder = None

    @property
    def folder(self) -> str:
        """The folder in llama.cpp's notation; "" if there is no cache."""
        return "" if self._folder is None else f"{self._folder}{os.sep}"

    async def prepare(self, client: ServerClient, prefix: Sequence[int]) -> AsyncGenerator[dict[str, Any], None]:
        """Compute or load a prefix, once for each process: then llama.cpp has it in memory; yield its progress."""
        name = hashlib.sha256(f"{self._model} {list(prefix)}".encode()).hexdigest()
        if self._folder is None or name in self._seen or len(prefix) < _MIN_TOKENS:
            return
        found = await asyncio.wrap_future(THREADS.submit(_find, self._folder, name))
        if found is None or not await _transfer(client, "restore", found):
            body = {
                "prompt": list(prefix),
                "n_predict": 0,
                "cache_prompt": True,
                "stream": True,
                "return_progress": True,
            }
            async with aclosing(client.stream("/completion", body)) as events:
                async for event in events:
                    yield event
            await self._write(client, self._folder, name)
        self._seen.add(name)

    async def _write(self, client: ServerClient, folder: Path, name: str) -> None:
        # Another process may read the file at any time, so it must appear as a whole.
        partial = folder / f"{secrets.token_hex(8)}.part"
        if await _transfer(client, "save", partial):
            await asyncio.wrap_future(THREADS.submit(_finish, partial, name))


def _find(folder: Path, name: str) -> Path | None:
    """Return the file of a prefix if it exists and is intact: llama.cpp would end the process on a damaged file.

    Its modification time is updated, because the least recently used files are deleted first.
    """
    for path in folder.glob(f"{name}-*{_SUFFIX}"):
        with suppress(OSError):
            if path.name == _digest_name(path, name):
                os.utime(path)
                return path
    return None


def _finish(partial: Path, name: str) -> None:
    """Rename a file to its final name, and delete old files down to a maximum size; errors of the disk are ignored."""
    with suppress(OSError):
        path = partial.replace(partial.with_name(_digest_name(partial, name)))
        size = 0
        for other in sorted(path.parent.glob(f"*{_SUFFIX}"), key=lambda each: each.stat().st_mtime, reverse=True):
            size += other.stat().st_size
            if size > _MAX_BYTES and other != path:
                other.unlink()


def _digest_name(path: Path, name: str) -> str:
    with path.open("rb") as file:
        return f"{name}-{hashlib.file_digest(file, 'sha256').hexdigest()}{_SUFFIX}"


async def _transfer(client: ServerClient, action: str, path: Path) -> bool:
    """Save or restore the state of llama.cpp; return whether it succeeded."""
    try:
        response: Any = await client.request(f"/slots/0?action={action}", {"filename": path.name})
    except ModelError:
        return False
    return bool(response)
