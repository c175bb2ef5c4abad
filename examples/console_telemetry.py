"""Print telemetry to the console: the events of each call as they happen, then spans and metrics.

Requires opentelemetry-sdk. ``python examples/console_telemetry.py --model scripted``
"""

import argparse
import sys

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from toolsemble import Agent, ChatModel, InMemoryMetrics, Secret, Toolbox, ToolCall, ToolContext, tool
from toolsemble.telemetry import ConsoleSink, OpenTelemetry
from toolsemble.testing import ScriptedModel

SCRIPTED = ScriptedModel(
    [
        [ToolCall("log_in", {"password": "hunter2"}, "call_1"), ToolCall("count_pages", {"Book": "Emma"}, "call_2")],
        "It has 474 pages.",
    ]
)


@tool
def log_in(password: Secret[str]) -> str:
    """Log in to the library."""
    raise PermissionError(f"{password.get_secret_value()} is wrong")


@tool(effects="read")
def count_pages(book: str, context: ToolContext) -> int:
    """Count the pages of a book."""
    context.progress(0.5, f"half of {book}")
    return 474


def line_of(span: ReadableSpan) -> str:
    """Format a span as one line."""
    return f"span {span.name}: {span.status.status_code.name}\n"


def main(model: ChatModel | str | None = None) -> None:
    """Answer a question, and print its events, spans and metrics."""
    metrics, tracers = InMemoryMetrics(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=line_of)))
    box = Toolbox([log_in, count_pages], metrics=metrics)
    agent = Agent(model, box, sinks=[ConsoleSink(sys.stdout), OpenTelemetry(tracers)])
    result = agent.run_sync("Log in with the password hunter2, and count the pages of Emma.")
    for name in box.names:
        print(f"{name}: {metrics.count(name, 'success')} succeeded, {metrics.count(name, 'error')} raised")
    print(f"{result.usage.model_calls} times the model was asked: {result.text}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="openai:gpt-5-mini, local, scripted, ...; default: the first one available")
    name = parser.parse_args().model
    main(SCRIPTED if name == "scripted" else name)
