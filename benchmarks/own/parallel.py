"""Many concurrent calls of one turn, on an event loop and in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from peers.task import gathered

from own.job import TEXT, Doze, Nap
from own.measure import Comparison, Subject, awaited, once
from own.steady_loop import SteadyLoop
from toolsemble import Toolbox, ToolCall

PAIRS = 41
"""How many pairs of turns are measured at least: with thousands of calls, each is as quick or as slow as the garbage
collector lets it be."""


def comparisons(waiting: Sequence[int] = (200, 1000, 2000), blocking: int = 200) -> Iterator[Comparison]:
    """Return the comparisons of calls that wait, and of calls that block."""
    with asyncio.Runner(loop_factory=SteadyLoop) as runner:
        for count in waiting:
            yield _waiting(runner, count)
        yield _with_timeouts(runner, waiting[1])
    with asyncio.Runner() as runner, ThreadPoolExecutor(blocking) as pool:
        yield _blocking(pool, blocking)
        yield _blocking_async(runner, pool, blocking)


def calls_of(name: str, count: int) -> list[ToolCall]:
    """Return the calls of one turn."""
    return [ToolCall(name, TEXT, id=f"call_{number}") for number in range(count)]


def _waiting(runner: asyncio.Runner, count: int) -> Comparison:
    """Compare waiting calls with a bare gather."""
    nap = Nap()
    box, calls = Toolbox([nap]), calls_of("nap", count)
    bare = gathered(lambda: nap.run("x"), count)
    what = f"`aexecute_all` of {count:,} calls that sleep 10 ms"
    subject = Subject("parallel", what, "`asyncio.gather`", "< 1.5")
    ours = awaited(runner, lambda: box.aexecute_all(calls))
    return Comparison(subject, ours, awaited(runner, bare), least=PAIRS)


def _with_timeouts(runner: asyncio.Runner, count: int) -> Comparison:
    """Compare waiting calls that have a timeout with as many that have none."""
    limited = Nap()
    limited.timeout = 60
    first, second = Toolbox([limited]), Toolbox([Nap()])
    calls = calls_of("nap", count)
    what = f"`aexecute_all` of {count:,} calls that sleep 10 ms, with a timeout"
    return Comparison(
        Subject("parallel", what, "the same without", itself=True),
        awaited(runner, lambda: first.aexecute_all(calls)),
        awaited(runner, lambda: second.aexecute_all(calls)),
    )


def _blocking(pool: ThreadPoolExecutor, count: int) -> Comparison:
    """Compare blocking calls with the same pool's own map."""
    doze = Doze()
    box, calls = Toolbox([doze], executor=pool), calls_of("doze", count)
    what = f"`execute_all` of {count:,} calls that block 10 ms, as many threads"
    subject = Subject("parallel", what, "`ThreadPoolExecutor.map`", "< 1.5")
    return Comparison(
        subject, once(lambda: box.execute_all(calls)), once(lambda: list(pool.map(doze.run, ["x"] * count)))
    )


def _blocking_async(runner: asyncio.Runner, pool: ThreadPoolExecutor, count: int) -> Comparison:
    """Compare blocking calls in an event loop with handing them to the same pool."""
    doze = Doze()
    box, calls = Toolbox([doze], executor=pool), calls_of("doze", count)

    async def bare() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(pool, doze.run, "x") for _ in range(count)))

    what = f"`aexecute_all` of {count:,} calls that block 10 ms, as many threads"
    subject = Subject("parallel", what, "`run_in_executor` and `asyncio.gather`", "< 1.5")
    return Comparison(subject, awaited(runner, lambda: box.aexecute_all(calls)), awaited(runner, bare))
