"""llama.cpp with one loaded model, shared within this process, and its prefix cache.

Prompts with the same tools begin with the same thousand tokens, whose computation takes most of the time of a first
answer. The result is stored in files, which later processes load in a fraction of a second.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakValueDictionary

import httpcore2

from toolsemble._runtime.locks import Claim, Table
from toolsemble._runtime.threads import THREADS
from toolsemble._vocabulary.errors import ModelError
from toolsemble.models._local.embedded_server import start_server

_BAD_STATUS = 400


class ServerClient:
    """A client of one server.

    Each request has its own connection, because requests come from any event loop; on one machine that takes well under
    a millisecond. Closing the connection stops the server's computation.
    """

    def __init__(self, address: str, key: str) -> None:
        self._address = address
        self._headers = [("Authorization", f"Bearer {key}"), ("Content-Type", "application/json")]

    async def request(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the response to a request; a GET without a body."""
        async with self._exchange(path, body) as answer:
            return json.loads(await answer.aread())

    async def stream(self, path: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the events of a response as they come; the last one is marked as such."""
        async with self._exchange(path, body) as answer, aclosing(answer.aiter_stream()) as chunks:
            partial = b""
            async for chunk in chunks:
                *lines, partial = (partial + chunk).split(b"\n")
                for line in lines:
                    kind, _, data = line.partition(b": ")
                    if kind == b"error":
                        raise ModelError(_read_error(data))
                    if kind == b"data":
                        event = json.loads(data)
                        yield event
                        if event.get("stop"):
                            return
        raise ModelError("llama.cpp closed the connection before the end of the answer", retryable=True)

    @asynccontextmanager
    async def _exchange(self, path: str, body: dict[str, Any] | None) -> AsyncIterator[httpcore2.Response]:
        content = None if body is None else json.dumps(body).encode()
        try:
            async with (
                httpcore2.AsyncConnectionPool() as pool,
                pool.stream(
                    "GET" if body is None else "POST", self._address + path, headers=self._headers, content=content
                ) as answer,
            ):
                if answer.status >= _BAD_STATUS:
                    raise ModelError(_read_error(await answer.aread()))
                yield answer
        except (httpcore2.NetworkError, httpcore2.ProtocolError) as problem:
            raise ModelError(f"llama.cpp closed the connection: {problem!r}") from problem


def _read_error(data: bytes) -> str:
    """Return the message of an error response."""
    try:
        error = json.loads(data)
        return f"llama.cpp: {error.get('error', error)['message']}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"llama.cpp: {data.decode(errors='replace'):.200}"


_MIN_TOKENS = 128  # fewer are computed faster than a file is loaded
_MAX_BYTES = 512 * 2**20
_SUFFIX = ".kv"


class PrefixCache:
    """One model's cached prefixes, in a folder created on demand; nothing is cached if that fails."""

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
        """Compute or load a prefix, once per process, into llama.cpp's memory; yield the progress."""
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
        # Another process may read the file at any time, so it must appear atomically.
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
    """Rename a file to its final name, and delete old files down to a maximum size; ignore disk errors."""
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


_SWEEP_INTERVAL = 1.0
_MAX_CACHED_TEXTS = 512
_MAX_CACHED_LENGTH = 100_000
_BATCH = 256  # tokens; between two batches llama.cpp checks whether the request was cancelled
_PROMPT_CACHE_MIB = 512


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings of an engine; equal settings share an engine."""

    path: Path
    """The weights, as a GGUF file."""
    context: int
    """The context size in tokens."""
    threads: int
    """The number of threads; 0: llama.cpp's default."""
    cache: Path | None
    """The directory of cached prompt prefixes; None: no cache."""


class Engine:
    """A loaded model, which generates one text at a time; other requests wait."""

    def __init__(self, setup: Setup, library: ModuleType) -> None:
        self.setup = setup
        self._turns = Table()
        self._tokens: OrderedDict[tuple[str, bool, bool], tuple[int, ...]] = OrderedDict()
        version = f"{_file_version(setup.path)} {library.__version__}"
        self._prefixes = PrefixCache(setup.cache, f"{setup.path} {version}")
        key = secrets.token_urlsafe(32)
        settings = {
            "n_ctx": setup.context,
            "n_batch": _BATCH,
            "n_ubatch": _BATCH,
            "cache_ram_mib": _PROMPT_CACHE_MIB,
            "slot_save_path": self._prefixes.folder,
        }
        try:
            self._server = start_server(library, str(setup.path), key, settings, setup.threads)
        except RuntimeError as problem:
            raise ModelError(
                f"llama.cpp cannot load {setup.path}: it is damaged or not supported, "
                f"or there is not enough memory ({problem})"
            ) from problem
        self._client = ServerClient(self._server.listening_address, key)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until no other request generates, and hold the engine exclusively."""
        claim = Claim(["the context"])
        try:
            if not self._turns.acquire(claim):
                await self._wait_turn(claim)
            yield
        finally:
            self._turns.release(claim)

    async def _wait_turn(self, claim: Claim) -> None:
        assert claim.wakeup is not None  # noqa: S101 - the claim was not granted at once
        while not await claim.wakeup.wait_async(_SWEEP_INTERVAL):
            self._turns.release_closed_loops()  # the event loop of the current holder may have been closed

    async def context_size(self) -> int:
        """Return the context size in tokens; it is less than requested if the model supports less."""
        properties = await self._client.request("/props")
        return int(properties["default_generation_settings"]["n_ctx"])

    async def apply_template(self, messages: Sequence[dict[str, str]]) -> str:
        """Return messages as one text, formatted by the model's chat template."""
        body = {"messages": list(messages), "chat_template_kwargs": {"enable_thinking": False}}
        return str((await self._client.request("/apply-template", body))["prompt"])

    async def tokenize(self, text: str, *, special: bool = False, first: bool = False) -> tuple[int, ...]:
        """Return the tokens of a text.

        :param special: whether special tokens such as ``<|im_end|>`` are recognized; else they are plain text
        :param first: whether the text begins a prompt
        """
        key = text, special, first
        known = self._tokens.get(key)
        if known is not None:
            self._tokens.move_to_end(key)
            return known
        body = {"content": text, "parse_special": special, "add_special": first}
        tokens = tuple((await self._client.request("/tokenize", body))["tokens"])
        if len(text) <= _MAX_CACHED_LENGTH:
            self._tokens[key] = tokens
        while len(self._tokens) > _MAX_CACHED_TEXTS:
            self._tokens.popitem(last=False)
        return tokens

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        return str((await self._client.request("/detokenize", {"tokens": list(tokens)}))["content"])

    def prepare(self, prefix: Sequence[int]) -> AsyncGenerator[dict[str, Any], None]:
        """Compute the prefix of a prompt, or load it from the cache; return llama.cpp's events of the progress.

        Only call this inside :meth:`turn`.
        """
        return self._prefixes.prepare(self._client, prefix)

    def generate(self, prompt: Sequence[int], settings: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Return llama.cpp's events with the text that follows a prompt; closing the generator stops the computation.

        Only call this inside :meth:`turn`.
        """
        # Progress is sent while a long prompt is processed, so that llama.cpp notices a closed connection.
        body = {"prompt": list(prompt), "cache_prompt": True, "stream": True, "return_progress": True, **settings}
        return self._client.stream("/completion", body)


_engines: WeakValueDictionary[tuple[Setup, int], Engine] = WeakValueDictionary()
_loading = threading.Lock()


def shared_engine(setup: Setup, library: ModuleType) -> Engine:
    """Return the engine of a setup; load it if it is not loaded in this process.

    It is unloaded with the last reference. A forked process loads its own: threads do not survive a fork.
    """
    with _loading:
        engine = _engines.get((setup, os.getpid()))
        if engine is None:
            engine = _engines[setup, os.getpid()] = Engine(setup, library)
        return engine


def _file_version(path: Path) -> str:
    known = path.stat()
    return f"{known.st_size} {known.st_mtime_ns}"
