"""llama.cpp with one loaded model, shared by all users of that model in this process."""

from __future__ import annotations

import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakValueDictionary

from toolsemble._runtime.locks.claims import Claim
from toolsemble._runtime.locks.table import Table
from toolsemble._vocabulary.errors import ModelError
from toolsemble.models._local.client import ServerClient
from toolsemble.models._local.embedded_server import start_server
from toolsemble.models._local.prefix_cache import PrefixCache

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
    """A loaded model; it generates one text at a time, and other requests wait."""

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
        """Return the size of the context in tokens; it is less than requested if the model was made for less."""
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

    It is unloaded when the last reference is gone. A forked process loads its own: threads do not survive a fork.
    """
    with _loading:
        engine = _engines.get((setup, os.getpid()))
        if engine is None:
            engine = _engines[setup, os.getpid()] = Engine(setup, library)
        return engine


def _file_version(path: Path) -> str:
    known = path.stat()
    return f"{known.st_size} {known.st_mtime_ns}"
