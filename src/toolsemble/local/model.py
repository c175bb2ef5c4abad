"""The model that needs no key and no network: llama.cpp, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from os import PathLike
from pathlib import Path
from typing import Any

from toolsemble.errors import ToolDefinitionError
from toolsemble.local.engine import Engine, Setup, shared_engine
from toolsemble.local.history import NOTE, PLAN
from toolsemble.local.layout import Prompt, laid_out
from toolsemble.local.location import weights
from toolsemble.local.prompt import Offer
from toolsemble.local.reading import PlainReading, StepReading
from toolsemble.local.server import library
from toolsemble.local.weights.cache import cache_directory
from toolsemble.models.chat import (
    Assembly,
    ChatModel,
    ChatReply,
    ChatRequest,
    Chunk,
    StopReason,
    StreamEnd,
    TokenUsage,
)
from toolsemble.runtime.concurrency import THREADS
from toolsemble.runtime.extras import import_extra

_SHORTEST_CONTEXT = 256


class LocalModel(ChatModel):
    """A model in this process, by the name of its weights or the path of a GGUF file.

    Models of the same weights share one engine, which is loaded with the first request and goes with the last of the
    models. It works for one request at a time; others wait for their turn.

    :param name: ``""`` for the default, ``"small"``, or a path
    :param context: how many tokens of prompt and answer there is room for
    :param threads: how many threads compute; as many as there are cores by default
    :param max_tokens: how long an answer can get

    >>> LocalModel("/nowhere/model.gguf")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolConfigurationError: There is no file '/nowhere/model.gguf'; give the path of a .gguf file
    """

    native_output = True

    def __init__(
        self,
        name: str | PathLike[str] = "",
        *,
        context: int = 8192,
        threads: int | None = None,
        max_tokens: int = 1024,
    ) -> None:
        for number, least in (("context", _SHORTEST_CONTEXT), ("max_tokens", 1), ("threads", 1)):
            _check(number, {"context": context, "max_tokens": max_tokens, "threads": threads or 1}[number], least)
        self._library = library(type(self).__name__)
        import_extra("httpcore2", extra="local", user=type(self).__name__)
        self._setup = Setup(weights(str(name)), context, threads or 0, cache_directory() / "prefixes")
        self._max_tokens = max_tokens
        self._engine: Engine | None = None

    def __repr__(self) -> str:
        return f"LocalModel({self.path.name!r})"

    @property
    def path(self) -> Path:
        """The weights."""
        return self._setup.path

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Give the whole reply."""
        assembly = Assembly()
        async with aclosing(self.stream(request)) as chunks:
            async for chunk in chunks:
                assembly.add(chunk)
        return assembly.reply()

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        """Give the reply piece by piece; closing it in the middle stops the computation."""
        offer = Offer(request)
        turns = offer.opening(), offer.history.turns
        engine = await self._loaded()
        async with engine.turn():
            room = min(self._setup.context, await engine.room())
            prompt = await laid_out(engine, *turns, room - min(self._max_tokens, room // 4))
            await engine.prepare(prompt.tokens[: prompt.prefix])
            settings = {"temperature": 0, "max_tokens": self._max_tokens, **request.settings}
            settings["n_predict"] = min(settings.pop("max_tokens"), room - len(prompt.tokens))
            ways, repeated, spent = iter(offer.ways()), True, 0
            while repeated:
                way = next(ways)
                reading, told = offer.reading(way), {**settings, **offer.settings(way)}
                async with aclosing(_read(engine, prompt, told, reading, spent)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                repeated = reading.repeated
                spent += reading.tokens

    async def _loaded(self) -> Engine:
        if self._engine is None:
            # In a thread of its own, as it may take a while to read the file.
            self._engine = await asyncio.wrap_future(THREADS.submit(shared_engine, self._setup, self._library))
        return self._engine


def named(_provider: str, rest: str) -> ChatModel:
    """Give the model of a name such as ``local``, ``local:small`` or ``local:/path/to/x.gguf``."""
    return LocalModel(rest)


async def _read(
    engine: Engine, prompt: Prompt, settings: dict[str, Any], reading: PlainReading | StepReading, spent: int
) -> AsyncGenerator[Chunk, None]:
    async with aclosing(engine.generated(prompt.tokens, settings)) as pieces:
        async for piece in pieces:
            for chunk in reading.add(piece.text):
                yield chunk
            if piece.end is not None:
                for chunk in _ended(reading, piece.end, spent):
                    yield chunk


def _ended(reading: PlainReading | StepReading, end: Mapping[str, Any], spent: int) -> Iterator[Chunk]:
    reading.tokens = end["tokens_predicted"]
    if reading.repeated:
        return
    yield from reading.end()
    cut = end["stop_type"] == "limit"
    reason: StopReason = "length" if cut else "calls" if reading.called else "stop"
    usage = TokenUsage(end["tokens_evaluated"], spent + reading.tokens, end["timings"]["cache_n"])
    yield StreamEnd(usage, reason, _details(reading) if reading.called else None)


def _details(reading: PlainReading | StepReading) -> dict[str, Any] | None:
    """Give what the model thought before a call; the last of a plan is the answer, which need not be kept."""
    thoughts = {PLAN: list(reading.plan[:-1]), NOTE: reading.note}
    return {name: thought for name, thought in thoughts.items() if thought} or None


def _check(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ToolDefinitionError(f"LocalModel {name} must be a whole number from {least} on, not {value!r:.80}")
