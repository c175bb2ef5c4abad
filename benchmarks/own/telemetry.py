"""Calls with OpenTelemetry's spans, which go nowhere: only their making is measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from timing import Repeated

from own.job import TEXT, Echo
from own.measure import Comparison, Subject
from toolsemble import Toolbox, ToolCall
from toolsemble.telemetry import OpenTelemetry

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


def comparisons() -> Iterator[Comparison]:
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
