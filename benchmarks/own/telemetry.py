"""Calls with OpenTelemetry's spans, which go nowhere: only their making is measured; and runs with a history."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from timing import Repeated

from own.agents import limit_calls, sums
from own.job import TEXT, Echo, add
from own.measure import Comparison, Subject, computed
from toolsemble import Agent, Toolbox, ToolCall
from toolsemble.models import ScriptedModel
from toolsemble.telemetry import OpenTelemetry, RunHistory

ATTRIBUTES = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "echo",
    "gen_ai.tool.type": "function",
    "gen_ai.tool.call.id": "call_1",
}


class Unsent(SpanExporter):
    """Sends nothing."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Forget them."""
        _ = spans
        return SpanExportResult.SUCCESS


def comparisons(turns: int = 50) -> Iterator[Comparison]:
    """Return the comparisons of traced calls, and of runs with a history."""
    yield from _spans()
    with (
        asyncio.Runner() as runner,
        tempfile.TemporaryDirectory() as folder,
        RunHistory(Path(folder) / "history.db") as history,
    ):
        yield _history(runner, history, turns)


def _history(runner: asyncio.Runner, history: RunHistory, turns: int) -> Comparison:
    """Compare a turn of an agent, with its call, with and without a history, in all threads."""
    calls = sums(turns)

    async def work(*sinks: RunHistory) -> None:
        await Agent(ScriptedModel([*calls, "done"]), [add], **limit_calls(turns + 1), sinks=sinks).run("go")

    what = f"a turn of an agent with a call, out of {turns} in a run, with a `RunHistory`"
    subject = Subject("telemetry", what, "a turn without", itself=True)
    return Comparison(subject, computed(runner, lambda: work(history), turns), computed(runner, work, turns))


def _spans() -> Iterator[Comparison]:
    """Return the comparisons of traced calls."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(Unsent()))
    tracer = provider.get_tracer("bench")
    traced, box = Toolbox([Echo()], sinks=[OpenTelemetry(provider)]), Toolbox([Echo()])
    call = ToolCall("echo", TEXT, id="call_1")

    def by_hand() -> None:
        with tracer.start_as_current_span("execute_tool echo", attributes=ATTRIBUTES):
            box.execute(call)

    what, ours = "a call with OpenTelemetry and an exporter that does nothing", Repeated(lambda: traced.execute(call))
    plain, spanned = "a call without", "a call inside a span of the program's own"
    bare, inside = Repeated(lambda: box.execute(call)), Repeated(by_hand)
    yield Comparison(Subject("telemetry", what, plain, "< 30 µs more", itself=True), ours, bare)
    yield Comparison(Subject("telemetry", what, spanned), ours, inside)
    yield Comparison(Subject("telemetry", spanned, plain, itself=True), inside, bare)
    provider.shutdown()
