"""Pipelines against the same calls made by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from timing import Repeated

from own.job import TEXT, Echo, Nap
from own.measure import Comparison, Subject, awaited
from own.steady_loop import SteadyLoop
from toolsemble import Toolbox, ToolCall, ToolPipeline, map_over


def comparisons(items: int = 1000, places: int = 100) -> Iterator[Comparison]:
    """Return the comparisons of pipelines."""
    what = "a pipeline of three string tools"
    box = Toolbox([Echo(), ToolPipeline("three", "Repeats its input three times over", [Echo(), Echo(), Echo()])])
    one, three = (ToolCall(name, TEXT, id="call_1") for name in ("echo", "three"))

    def by_hand() -> None:
        reply = box.execute(one)
        for number in (2, 3):
            reply = box.execute(ToolCall("echo", {"input": reply.text}, id=f"call_{number}"))

    ours = Repeated(lambda: box.execute(three))
    yield Comparison(
        Subject("pipeline", what, "a toolbox call of one", "< 4", itself=True), ours, Repeated(lambda: box.execute(one))
    )
    yield Comparison(Subject("pipeline", what, "three toolbox calls"), ours, Repeated(by_hand))
    with asyncio.Runner(loop_factory=SteadyLoop) as runner:
        yield _mapped(runner, [str(number) for number in range(items)], places)


def _mapped(runner: asyncio.Runner, items: list[str], places: int) -> Comparison:
    """Compare a tool that is mapped over many items with bare asyncio."""
    nap = Nap()
    box, call = Toolbox([map_over(nap, places)]), ToolCall("each_nap", {"items": items}, id="call_1")

    async def bare() -> None:
        free = asyncio.Semaphore(places)

        async def one(item: str) -> str:
            async with free:
                return await nap.run(item)

        await asyncio.gather(*(one(item) for item in items))

    what = f"`map_over` of {len(items):,} items that sleep 10 ms, {places} at once"
    subject = Subject("pipeline", what, "`asyncio.gather` with a semaphore", "< 1.3")
    return Comparison(subject, awaited(runner, lambda: box.aexecute(call)), awaited(runner, bare))
