"""The embedded model: llama.cpp in this process, without an API key or a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from os import PathLike
from pathlib import Path
from typing import Any

from toolsemble._runtime.checks import check_count
from toolsemble._runtime.concurrency import THREADS
from toolsemble._runtime.extras import import_extra
from toolsemble.models._adapter.reasoning import reasoning_refusal
from toolsemble.models._chat import (
    Assembly,
    ChatModel,
    ChatReply,
    ChatRequest,
    Chunk,
    PromptProgress,
    StopReason,
    StreamEnd,
    TokenUsage,
)
from toolsemble.models._local.embedded_server import load_library
from toolsemble.models._local.engine import Engine, Setup, shared_engine
from toolsemble.models._local.history import NOTE, PLAN
from toolsemble.models._local.location import find_weights
from toolsemble.models._local.prompt import LocalRequest
from toolsemble.models._local.prompt_layout import Prompt, build_prompt
from toolsemble.models._local.reply_reader import PlainReader, StepReader
from toolsemble.models._local.weights.cache import cache_directory

_MIN_CONTEXT = 256


class LocalModel(ChatModel):
    """A model in this process, by the name of its weights or the path of a GGUF file.

    Models with the same weights and settings share one engine, which is loaded by the first request and unloaded with
    the last of the models. It handles one request at a time; others wait.

    :param name: ``""`` for the default, ``"small"``, or a path
    :param context: the context size in tokens, for the prompt and the answer
    :param threads: the number of threads; the number of cores by default
    :param max_tokens: the most tokens of an answer

    >>> LocalModel("/nowhere/model.gguf")
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: There is no file '/nowhere/model.gguf'; pass the path of a .gguf file
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
        for setting, value, least in (("context", context, _MIN_CONTEXT), ("max_tokens", max_tokens, 1)):
            check_count(f"LocalModel {setting}", value, least=least)
        check_count("LocalModel threads", threads or 1, least=1)
        self._library = load_library(type(self).__name__)
        import_extra("httpcore2", extra="local", user=type(self).__name__)
        self._setup = Setup(find_weights(str(name)), context, threads or 0, cache_directory() / "prefixes")
        self._max_tokens = max_tokens
        self._engine: Engine | None = None

    def __repr__(self) -> str:
        return f"LocalModel({self.path.name!r})"

    @property
    def path(self) -> Path:
        """The file of the weights."""
        return self._setup.path

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Return the complete reply."""
        assembly = Assembly()
        async with aclosing(self.stream(request)) as chunks:
            async for chunk in chunks:
                assembly.add(chunk)
        return assembly.reply()

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        """Yield the reply in pieces; closing the generator stops the computation."""
        if request.reasoning is not None:
            raise reasoning_refusal("The local model")
        local = LocalRequest(request)
        engine = await self._load_engine()
        async with engine.turn():
            room = min(self._setup.context, await engine.context_size())
            prompt = await build_prompt(
                engine, local.opening_turns, local.history.turns, room - min(self._max_tokens, room // 4)
            )
            async with aclosing(engine.prepare(prompt.tokens[: prompt.prefix])) as events:
                async for event in events:
                    for chunk in _read_progress(event, prompt):
                        yield chunk
            settings = {"temperature": 0, "max_tokens": self._max_tokens, **request.settings}
            settings["n_predict"] = min(settings.pop("max_tokens"), room - len(prompt.tokens))
            attempts, repeated, spent = iter(local.attempts()), True, 0
            while repeated:
                attempt = next(attempts)
                reader, options = local.make_reader(attempt), {**settings, **local.settings(attempt)}
                async with aclosing(_generate(engine, prompt, options, reader, spent)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                repeated = reader.repeated
                spent += reader.tokens

    async def _load_engine(self) -> Engine:
        if self._engine is None:
            # In a thread, because reading the file may take long.
            self._engine = await asyncio.wrap_future(THREADS.submit(shared_engine, self._setup, self._library))
        return self._engine


def model_from_name(_provider: str, rest: str) -> ChatModel:
    """Return the model with a name such as ``local``, ``local:small`` or ``local:/path/to/x.gguf``."""
    return LocalModel(rest)


async def _generate(
    engine: Engine, prompt: Prompt, settings: dict[str, Any], reader: PlainReader | StepReader, spent: int
) -> AsyncGenerator[Chunk, None]:
    async with aclosing(engine.generate(prompt.tokens, settings)) as events:
        async for event in events:
            for chunk in (*_read_progress(event, prompt), *reader.add(event["content"])):
                yield chunk
            if event["stop"]:
                for chunk in _end_chunks(reader, event, spent):
                    yield chunk


def _read_progress(event: Mapping[str, Any], prompt: Prompt) -> Iterator[Chunk]:
    """Yield how much of the prompt is read, until all of it is."""
    processed = (event.get("prompt_progress") or {}).get("processed", 0)
    if 0 < processed < len(prompt.tokens):
        yield PromptProgress(processed / len(prompt.tokens))


def _end_chunks(reader: PlainReader | StepReader, end: Mapping[str, Any], spent: int) -> Iterator[Chunk]:
    reader.tokens = end["tokens_predicted"]
    if reader.repeated:
        return
    yield from reader.end()
    cut = end["stop_type"] == "limit"
    reason: StopReason = "length" if cut else "calls" if reader.called else "stop"
    usage = TokenUsage(end["tokens_evaluated"], spent + reader.tokens, end["timings"]["cache_n"])
    yield StreamEnd(usage, reason, _details(reader) if reader.called else None)


def _details(reader: PlainReader | StepReader) -> dict[str, Any] | None:
    """Return the model's plan and note before a call; the last entry of a plan is the answer, which is omitted."""
    thoughts = {PLAN: list(reader.plan[:-1]), NOTE: reader.note}
    return {name: thought for name, thought in thoughts.items() if thought} or None
