"""llama.cpp with one model loaded, for everybody in this process who wants that model."""

from __future__ import annotations

import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakValueDictionary

from toolsemble.errors import ModelError
from toolsemble.local.prefix import Prefixes
from toolsemble.local.server import started
from toolsemble.local.wire import Wire
from toolsemble.locks.claims import Claim
from toolsemble.locks.table import Table

_LOOK = 1.0
_KEPT_TEXTS = 512
_LONGEST_KEPT = 100_000
_BATCH = 256  # between two of them llama.cpp looks whether anybody still wants the answer
_MEMORY_FOR_PROMPTS = 512  # MiB


@dataclass(frozen=True, slots=True)
class Setup:
    """What an engine is made from; equal ones share an engine."""

    path: Path
    """The weights, as a GGUF file."""
    context: int
    """How many tokens of context there are room for."""
    threads: int
    """How many threads compute; 0 for as many as llama.cpp thinks best."""
    cache: Path | None
    """Where beginnings of prompts are kept; None for nowhere."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of generated text."""

    text: str
    """The text; empty at the end."""
    end: dict[str, Any] | None = None
    """At the end, what llama.cpp says of all of it."""


class Engine:
    """A loaded model; generates one text after the other, and everybody else waits for their turn."""

    def __init__(self, setup: Setup, library: ModuleType) -> None:
        self.setup = setup
        self._turns = Table()
        self._tokens: OrderedDict[tuple[str, bool, bool], tuple[int, ...]] = OrderedDict()
        self._prefixes = Prefixes.at(setup.cache, f"{setup.path} {_stamp(setup.path)} {library.__version__}")
        key = secrets.token_urlsafe(32)
        settings = {
            "n_ctx": setup.context,
            "n_batch": _BATCH,
            "n_ubatch": _BATCH,
            "cache_ram_mib": _MEMORY_FOR_PROMPTS,
            "slot_save_path": self._prefixes.folder,
        }
        try:
            self._server = started(library, str(setup.path), key, settings, setup.threads)
        except RuntimeError as problem:
            raise ModelError(
                f"llama.cpp cannot load {setup.path}: it is damaged, of a kind that llama.cpp does not know, "
                f"or there is not enough memory ({problem})"
            ) from problem
        self._wire = Wire(self._server.listening_address, key)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until nobody else generates, and keep it that way."""
        claim = Claim(["the context"])
        try:
            if not self._turns.ask(claim):
                await self._waited(claim)
            yield
        finally:
            self._turns.give_back(claim)

    async def _waited(self, claim: Claim) -> None:
        assert claim.turn is not None  # noqa: S101 - it was not served at once
        while not await claim.turn.wait_async(_LOOK):
            self._turns.sweep()  # the event loop of whoever generates may have been closed

    async def room(self) -> int:
        """Give how many tokens fit into the context; a model made for less than was asked for has less."""
        said = await self._wire.asked("/props")
        return int(said["default_generation_settings"]["n_ctx"])

    async def templated(self, messages: Sequence[dict[str, str]]) -> str:
        """Give messages as one text, by the chat template of the model."""
        body = {"messages": list(messages), "chat_template_kwargs": {"enable_thinking": False}}
        return str((await self._wire.asked("/apply-template", body))["prompt"])

    async def tokens(self, text: str, *, special: bool = False, first: bool = False) -> tuple[int, ...]:
        """Give the tokens of a text.

        :param special: whether ``<|im_end|>`` and the like mean what they say; else they are letters like any other
        :param first: whether the text begins a prompt
        """
        key = text, special, first
        known = self._tokens.get(key)
        if known is not None:
            self._tokens.move_to_end(key)
            return known
        body = {"content": text, "parse_special": special, "add_special": first}
        tokens = tuple((await self._wire.asked("/tokenize", body))["tokens"])
        if len(text) <= _LONGEST_KEPT:
            self._tokens[key] = tokens
        while len(self._tokens) > _KEPT_TEXTS:
            self._tokens.popitem(last=False)
        return tokens

    async def text(self, tokens: Sequence[int]) -> str:
        """Give the text of tokens."""
        return str((await self._wire.asked("/detokenize", {"tokens": list(tokens)}))["content"])

    async def prepare(self, prefix: Sequence[int]) -> None:
        """See to it that the beginning of a prompt is computed, or read from where an earlier process kept it.

        To be called in one's turn.
        """
        await self._prefixes.prepare(self._wire, prefix)

    async def generated(self, prompt: Sequence[int], settings: dict[str, Any]) -> AsyncGenerator[Piece, None]:
        """Give the text that follows a prompt, in pieces; closing this in the middle stops the computation.

        To be called in one's turn.
        """
        # Word of its progress is sent while a long prompt is read: where nobody takes it, llama.cpp stops.
        body = {"prompt": list(prompt), "cache_prompt": True, "stream": True, "return_progress": True, **settings}
        async with aclosing(self._wire.streamed("/completion", body)) as events:
            async for event in events:
                yield Piece(event["content"], event if event["stop"] else None)


_engines: WeakValueDictionary[tuple[Setup, int], Engine] = WeakValueDictionary()
_loading = threading.Lock()


def shared_engine(setup: Setup, library: ModuleType) -> Engine:
    """Give the engine of a setup; it is loaded when nobody in this process has it.

    It goes when nobody holds it any more. A forked process loads its own: threads do not come along.
    """
    with _loading:
        engine = _engines.get((setup, os.getpid()))
        if engine is None:
            engine = _engines[setup, os.getpid()] = Engine(setup, library)
        return engine


def _stamp(path: Path) -> str:
    known = path.stat()
    return f"{known.st_size} {known.st_mtime_ns}"
