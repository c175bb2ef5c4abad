"""Do several tasks at once with one engine: llama.cpp writes several texts in little more than the time of one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from toolsemble.local.embedded_server import load_library
from toolsemble.local.engine import Engine, Setup
from toolsemble.local.prefix_cache import PrefixCache
from toolsemble.local.weights.cache import cache_directory
from toolsemble.models import LocalModel

T = TypeVar("T")
R = TypeVar("R")

_SLOT: ContextVar[int] = ContextVar("slot", default=0)


class ParallelEngine(Engine):
    """An engine that writes several texts at once, each in a slot of its own."""

    def __init__(self, setup: Setup, slots: int) -> None:
        library = load_library("The evaluation")

        def serve(parameters: Any) -> Any:
            parameters.n_parallel = slots
            parameters.n_ctx = setup.context * slots
            return library.Server(parameters)

        several: Any = SimpleNamespace(CommonParams=library.CommonParams, Server=serve, __version__=library.__version__)
        super().__init__(setup, several)
        model = self._prefixes._model  # noqa: SLF001 - the same files as those of other engines
        self._slots = [PrefixCache(setup.cache, model, slot) for slot in range(slots)]

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Do not wait: each task has a slot of its own."""
        yield

    def prepare(self, tokens: Sequence[int], ends: Sequence[int]) -> AsyncGenerator[dict[str, Any], None]:
        """Compute or load the prefixes of a prompt, in the slot of this task."""
        return self._slots[_SLOT.get()].prepare(self._client, tokens, ends)

    def generate(self, prompt: Sequence[int], settings: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Return llama.cpp's events with the text that follows a prompt, in the slot of this task."""
        return super().generate(prompt, {**settings, "id_slot": _SLOT.get()})


def make_model(name: str, *, context: int = 8192, threads: int | None = None, slots: int = 1) -> LocalModel:
    """Return a model that does several tasks at once."""
    model = LocalModel(name, context=context, threads=threads)
    if slots > 1:
        setup = Setup(Path(model.path), context, threads or 0, cache_directory() / "prefixes")
        model._engine = ParallelEngine(setup, slots)  # noqa: SLF001 - only evaluations do this
    return model


async def map_slots(do: Callable[[T], Awaitable[R]], items: Iterable[T], slots: int) -> list[R]:
    """Return the results for all items in order; as many are done at once as there are slots.

    The first one is done alone, so that the others find what they have in common in the cache.
    """
    listed = list(items)
    results: dict[int, R] = {}
    waiting = iter(enumerate(listed))
    for number, item in waiting:
        results[number] = await do(item)
        break

    async def work(slot: int) -> None:
        _SLOT.set(slot)
        for number, item in waiting:
            results[number] = await do(item)

    async with asyncio.TaskGroup() as group:
        for slot in range(slots):
            group.create_task(work(slot))
    return [results[number] for number in range(len(listed))]
