"""Print how toolsemble compares with the bare work, as ratios within one interleaved run.

Machines are noisy: each figure is the median over pairs that were measured right after each other.
"""

from __future__ import annotations

import asyncio
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Tracer

from toolsemble import (
    Agent,
    ConversationMemory,
    RateLimit,
    Tool,
    Toolbox,
    ToolCall,
    ToolPipeline,
    __version__,
    map_over,
    tool,
)
from toolsemble.models import ChatRequest, ScriptedModel, UserMessage
from toolsemble.telemetry import OpenTelemetry

ARGUMENTS = '{"input": "what is the weather in Rome?"}'


class Echo(Tool):
    """The least that a string tool can do."""

    name = "echo"
    description = "Repeats its input"

    def run(self, input: str) -> str:
        """Give the input back."""
        return input


class Nap(Tool):
    """Waits as a tool that asks a service does."""

    name = "nap"
    description = "Sleeps for ten milliseconds"

    async def run(self, input: str) -> str:
        """Sleep, then give the input back."""
        await asyncio.sleep(0.01)
        return input


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two ways to do the same, measured side by side."""

    name: str
    """What is compared, ours first."""
    ours: Callable[[], float]
    """Seconds of one go with toolsemble."""
    bare: Callable[[], float]
    """Seconds of one go without."""
    rounds: int
    """How many pairs are measured."""
    aim: str
    """What to stay below: a ratio, or a cost on top of the other."""

    def row(self) -> str:
        """Measure, and give a line of the table."""
        pairs = [(self.ours(), self.bare()) for _ in range(self.rounds)]
        ratios = sorted(ours / bare for ours, bare in pairs)
        ratio = statistics.median(ratios)
        spread = f"{ratios[len(ratios) // 10]:.2f} to {ratios[-1 - len(ratios) // 10]:.2f}"
        ours, bare = (statistics.median(times) for times in zip(*pairs, strict=True))
        cells = (f"{ratio:.2f}", spread, _seconds(ours), _seconds(bare), self.aim)
        return f"| {self.name:<63} |" + "".join(f" {cell:>13} |" for cell in cells)


def _seconds(seconds: float) -> str:
    milliseconds = seconds * 1e3
    return f"{milliseconds:.1f} ms" if milliseconds > 1 else f"{milliseconds * 1e3:.1f} µs"


def _timed(work: Callable[[], object], number: int) -> float:
    started = time.perf_counter()
    for _ in range(number):
        work()
    return (time.perf_counter() - started) / number


def one_call() -> Comparison:
    """Compare a call of a string tool with reading its JSON and calling the function."""
    tool = Echo()
    box = Toolbox([tool])
    call = ToolCall("echo", ARGUMENTS, id="call_1")
    return Comparison(
        "a toolbox call of a string tool / json.loads + the call",
        ours=lambda: _timed(lambda: box.execute(call), 500),
        bare=lambda: _timed(lambda: tool.run(json.loads(ARGUMENTS)["input"]), 500),
        rounds=200,
        aim="< 8 µs more",
    )


def one_turn() -> Comparison:
    """Compare a thousand waiting calls with a bare gather."""
    tool = Nap()
    box = Toolbox([tool])
    calls = [ToolCall("nap", ARGUMENTS, id=f"call_{number}") for number in range(1000)]

    async def bare() -> None:
        await asyncio.gather(*(tool.run("x") for _ in range(1000)))

    async def ours() -> None:
        await box.aexecute_all(calls)

    runner = asyncio.Runner()
    return Comparison(
        "aexecute_all of 1,000 calls that sleep 10 ms / asyncio.gather",
        ours=lambda: _timed(lambda: runner.run(ours()), 1),
        bare=lambda: _timed(lambda: runner.run(bare()), 1),
        rounds=30,
        aim="< 1.5",
    )


def one_pipeline() -> Comparison:
    """Compare a pipeline of three string tools with one call of one of them."""
    steps = [Echo(), Echo(), Echo()]
    box = Toolbox([Echo(), ToolPipeline("three", "Repeats its input three times over", steps)])
    three, one = ToolCall("three", ARGUMENTS, id="call_1"), ToolCall("echo", ARGUMENTS, id="call_1")
    return Comparison(
        "a pipeline of three string tools / a toolbox call of one",
        ours=lambda: _timed(lambda: box.execute(three), 200),
        bare=lambda: _timed(lambda: box.execute(one), 200),
        rounds=100,
        aim="< 4",
    )


def three_by_hand() -> Comparison:
    """Compare a pipeline of three string tools with three calls, each made of the reply before it."""
    box = Toolbox([Echo(), ToolPipeline("three", "Repeats its input three times over", [Echo(), Echo(), Echo()])])
    three = ToolCall("three", ARGUMENTS, id="call_1")

    def by_hand() -> None:
        reply = box.execute(ToolCall("echo", ARGUMENTS, id="call_1"))
        for number in (2, 3):
            reply = box.execute(ToolCall("echo", {"input": reply.text}, id=f"call_{number}"))

    return Comparison(
        "a pipeline of three string tools / three toolbox calls",
        ours=lambda: _timed(lambda: box.execute(three), 200),
        bare=lambda: _timed(by_hand, 200),
        rounds=100,
        aim="",
    )


def one_map() -> Comparison:
    """Compare a tool that is mapped over a thousand items, a hundred at once, with bare asyncio."""
    tool = Nap()
    items = [str(number) for number in range(1000)]
    box = Toolbox([map_over(tool, 100)])
    call = ToolCall("each_nap", {"items": items}, id="call_1")

    async def bare() -> None:
        places = asyncio.Semaphore(100)

        async def one(item: str) -> str:
            async with places:
                return await tool.run(item)

        await asyncio.gather(*(one(item) for item in items))

    async def ours() -> None:
        await box.aexecute(call)

    runner = asyncio.Runner()
    return Comparison(
        "map_over of 1,000 items that sleep 10 ms, 100 at once / asyncio",
        ours=lambda: _timed(lambda: runner.run(ours()), 1),
        bare=lambda: _timed(lambda: runner.run(bare()), 1),
        rounds=20,
        aim="< 1.3",
    )


def one_agent_turn() -> Comparison:
    """Compare a turn of an agent, in which the model calls a typed tool, with the model's own time for its reply."""
    turns, box = 100, Toolbox([add])
    call = ToolCall("add", {"a": 1, "b": 2}, id="call_1")
    request = ChatRequest([UserMessage("go")])

    async def bare() -> None:
        model = ScriptedModel([call] * turns)
        for _ in range(turns):
            await model.reply(request)

    async def ours() -> None:
        await Agent(ScriptedModel([*[call] * turns, "done"]), box, max_iterations=turns).run("go")

    runner = asyncio.Runner()
    return Comparison(
        "a turn of an agent with one typed tool / the model's reply",
        ours=lambda: _timed(lambda: runner.run(ours()), 1) / turns,
        bare=lambda: _timed(lambda: runner.run(bare()), 1) / turns,
        rounds=50,
        aim="< 100 µs more",
    )


def many_calls_of_an_agent() -> Comparison:
    """Compare a turn of an agent with 200 waiting calls with a bare gather."""
    tool = Nap()
    box = Toolbox([tool])
    calls = [ToolCall("nap", ARGUMENTS, id=f"call_{number}") for number in range(200)]

    async def bare() -> None:
        await asyncio.gather(*(tool.run("x") for _ in range(200)))

    async def ours() -> None:
        await Agent(ScriptedModel([calls, "done"]), box, max_iterations=200).run("go")

    runner = asyncio.Runner()
    return Comparison(
        "an agent's turn of 200 calls that sleep 10 ms / asyncio.gather",
        ours=lambda: _timed(lambda: runner.run(ours()), 1),
        bare=lambda: _timed(lambda: runner.run(bare()), 1),
        rounds=50,
        aim="< 1.5",
    )


def long_conversation() -> Comparison:
    """Compare a turn of a conversation of 1,000 turns with one of a conversation of 100."""
    call = ToolCall("add", {"a": 1, "b": 2}, id="call_1")

    async def talk(turns: int) -> None:
        agent = Agent(ScriptedModel([call, "done"] * turns), [add], role="a clerk", memory=ConversationMemory())
        for _ in range(turns):
            await agent.run("go")

    runner = asyncio.Runner()
    return Comparison(
        "a turn of a conversation of 1,000 turns / of 100",
        ours=lambda: _timed(lambda: runner.run(talk(1000)), 1) / 1000,
        bare=lambda: _timed(lambda: runner.run(talk(100)), 1) / 100,
        rounds=10,
        aim="< 1.2",
    )


def limited_call() -> Comparison:
    """Compare a call of a tool that declares limits which cost no thread with one that declares none."""
    box = Toolbox([Echo()])
    limited = Echo()
    limited.name, limited.effects, limited.max_concurrency, limited.retries = "limited", "read", 8, 2
    limited.rate_limit = RateLimit(1_000_000)
    limited.resources = lambda text: {text}  # type: ignore[method-assign]  # an attribute like the others
    limits = Toolbox([limited])
    calls = [ToolCall(name, ARGUMENTS, id="call_1") for name in ("limited", "echo")]
    return Comparison(
        "a call with places, a resource, a rate and retries / without",
        ours=lambda: _timed(lambda: limits.execute(calls[0]), 200),
        bare=lambda: _timed(lambda: box.execute(calls[1]), 200),
        rounds=100,
        aim="",
    )


def timed_call() -> Comparison:
    """Compare a blocking call with a timeout, which needs a thread, with one without."""
    box = Toolbox([Echo()])
    limited = Echo()
    limited.timeout = 60
    limits = Toolbox([limited])
    call = ToolCall("echo", ARGUMENTS, id="call_1")
    return Comparison(
        "a blocking call with a timeout / without",
        ours=lambda: _timed(lambda: limits.execute(call), 50),
        bare=lambda: _timed(lambda: box.execute(call), 50),
        rounds=50,
        aim="",
    )


def timed_turn() -> Comparison:
    """Compare a thousand waiting calls with timeouts with as many without."""
    limited = Nap()
    limited.timeout = 60
    boxes = Toolbox([limited]), Toolbox([Nap()])
    calls = [ToolCall("nap", ARGUMENTS, id=f"call_{number}") for number in range(1000)]
    runner = asyncio.Runner()
    return Comparison(
        "aexecute_all of 1,000 calls that sleep 10 ms, timeout / without",
        ours=lambda: _timed(lambda: runner.run(boxes[0].aexecute_all(calls)), 1),
        bare=lambda: _timed(lambda: runner.run(boxes[1].aexecute_all(calls)), 1),
        rounds=20,
        aim="",
    )


class Unsent(SpanExporter):
    """Sends nothing, so that only the making of spans is measured."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Forget them."""
        _ = spans
        return SpanExportResult.SUCCESS


def _traced() -> tuple[Toolbox, Tracer]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Unsent()))
    return Toolbox([Echo()], sinks=[OpenTelemetry(provider)]), provider.get_tracer("bench")


def traced_call() -> Comparison:
    """Compare a call with a span of OpenTelemetry's SDK and an exporter that does nothing with one without."""
    (traced, _), box = _traced(), Toolbox([Echo()])
    call = ToolCall("echo", ARGUMENTS, id="call_1")
    return Comparison(
        "a call with OpenTelemetry and a no-op exporter / without",
        ours=lambda: _timed(lambda: traced.execute(call), 200),
        bare=lambda: _timed(lambda: box.execute(call), 200),
        rounds=100,
        aim="< 30 µs more",
    )


def traced_by_hand() -> Comparison:
    """Compare a call with OpenTelemetry with a plain call inside a span of the program's own, as large as ours."""
    (traced, tracer), box = _traced(), Toolbox([Echo()])
    call = ToolCall("echo", ARGUMENTS, id="call_1")
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "call_1",
    }

    def by_hand() -> None:
        with tracer.start_as_current_span("execute_tool echo", attributes=attributes):
            box.execute(call)

    return Comparison(
        "a call with OpenTelemetry / a plain call inside a bare span",
        ours=lambda: _timed(lambda: traced.execute(call), 200),
        bare=lambda: _timed(by_hand, 200),
        rounds=100,
        aim="",
    )


def cold_import() -> Comparison:
    """Compare importing the package with importing pydantic, each in a fresh process."""

    def imported(module: str) -> float:
        code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - our own code
        return float(run.stdout)

    return Comparison(
        "import toolsemble / import pydantic, in fresh processes",
        ours=lambda: imported("toolsemble"),
        bare=lambda: imported("pydantic"),
        rounds=15,
        aim="< 0.2",
    )


COMPARISONS = (
    one_call,
    one_turn,
    one_pipeline,
    three_by_hand,
    one_map,
    one_agent_turn,
    many_calls_of_an_agent,
    long_conversation,
    limited_call,
    timed_call,
    timed_turn,
    traced_call,
    traced_by_hand,
    cold_import,
)


def main() -> None:
    """Print the table."""
    print(f"toolsemble {__version__}, Python {platform.python_version()}, {platform.machine()}\n")
    headings = ("ratio", "10 to 90 %", "ours", "other", "aim")
    print(f"| {'what':<63} |" + "".join(f" {heading:>13} |" for heading in headings))
    print(f"| {'-' * 63} |" + f" {'-' * 12}: |" * len(headings))
    for compared in COMPARISONS:
        print(compared().row(), flush=True)


if __name__ == "__main__":
    main()
