"""Calls, runs and models in OpenTelemetry: a span for each, by the conventions for generative AI, and metrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from toolsemble.context import ToolContext
from toolsemble.execution.outcome import FinishedCall, class_name
from toolsemble.masking.secrets import masked
from toolsemble.observers.sinks import Sinks
from toolsemble.observers.watchers import watch
from toolsemble.runtime.extras import import_extra
from toolsemble.runtime.text import preview
from toolsemble.shape import describe_error, escape_surrogates
from toolsemble.telemetry.meters import OpenTelemetryMetrics

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

_MESSAGE = 1000  # how many characters of an error message are shown
_ID = 200  # how many characters of an id that a model or a provider made are shown


class OpenTelemetry:
    """A sink that makes spans and metrics of calls; of an agent, also of its runs and of what it asks its model.

    A span is current while the body runs, wherever that is: in the thread, the task or the worker process of the call.
    Without providers it uses those that the program has set up for the whole process.

    >>> from opentelemetry.sdk.trace import TracerProvider
    >>> from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    >>> from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    >>> from toolsemble import Toolbox, ToolCall, tool
    >>> @tool
    ... def shout(text: str) -> str:
    ...     '''Says it louder.'''
    ...     return text.upper()
    >>> spans, provider = InMemorySpanExporter(), TracerProvider()
    >>> provider.add_span_processor(SimpleSpanProcessor(spans))
    >>> reply = Toolbox([shout], sinks=[OpenTelemetry(provider)]).execute(ToolCall("shout", {"text": "hello"}))
    >>> [span.name for span in spans.get_finished_spans()]
    ['execute_tool shout']
    """

    inline = True

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        arguments: bool = False,
        results: bool = False,
        limit: int = 8_000,
    ) -> None:
        """Take down the providers; refuse to go on without the package.

        :param tracer_provider: who makes spans; by default the one of the process
        :param meter_provider: who makes metrics; by default the one of the process
        :param arguments: whether spans show the arguments of calls, with secrets hidden
        :param results: whether spans show what the model is told, with secrets hidden
        :param limit: how many characters of each are shown
        """
        trace = import_extra("opentelemetry.trace", extra="otel", user="OpenTelemetry")
        contexts = import_extra("opentelemetry.context", extra="otel", user="OpenTelemetry")
        self._here, self._attach, self._detach = contexts.get_current, contexts.attach, contexts.detach
        self._inside = trace.set_span_in_context
        self._kinds = trace.SpanKind
        self._failed = trace.StatusCode.ERROR
        self._tracer = trace.get_tracer("toolsemble", tracer_provider=tracer_provider)
        self._arguments = arguments
        self._results = results
        self._shows = arguments or results
        self._limit = limit
        self.metrics = OpenTelemetryMetrics(meter_provider)
        """Where the calls are counted."""

    def begin(self, context: ToolContext) -> Callable[[FinishedCall], None]:
        """Begin the span of a call; it ends when the function that this gives is told the end."""
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": context.tool_name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": _plain(context.call_id),
        }
        return partial(self._end, self._begun(f"execute_tool {context.tool_name}", attributes))

    def enter(self, operation: str, facts: Mapping[str, Any]) -> Callable[[BaseException | None, Any], None]:
        """Begin the span of a run or of a model's reply; it ends when the function that this gives is told the end."""
        named = facts.get(_NAMED_BY.get(operation, ""), "")
        kind = self._kinds.CLIENT if operation == "chat" else self._kinds.INTERNAL
        attributes = {"gen_ai.operation.name": operation, **{key: _plain(each) for key, each in facts.items()}}
        return partial(self._leave, self._begun(f"{operation} {_plain(named)}".rstrip(), attributes, kind))

    def emit(self, event: Any) -> None:
        """Add an event of the time between to the span of its call."""
        stretch, say = _current.get(), _SAID.get(event.kind)
        if stretch is not None and say is not None:
            if event.kind == "call_timed_out":
                stretch.reason = "timeout"
            stretch.span.add_event(f"toolsemble.{event.kind}", say(event))

    def pack(self) -> Callable[[], None]:
        """Give what goes on with the trace in a worker process, whose program has set up providers of its own."""
        carrier: dict[str, str] = {}
        for each in _propagators():
            each.inject(carrier)
        return partial(_arrive, carrier, self._arguments, self._results, self._limit)

    def _begun(self, name: str, attributes: dict[str, Any], kind: Any = None) -> _Stretch:
        around = self._here()  # asked once: the SDK would look for it four times
        span = self._tracer.start_span(name, around, self._kinds.INTERNAL if kind is None else kind, attributes)
        stretch = _Stretch(span, self._attach(self._inside(span, around)))
        stretch.here = _current.set(stretch)
        return stretch

    def _end(self, stretch: _Stretch, ending: FinishedCall) -> None:
        try:
            if ending.outcome != "success":
                self._fail(stretch.span, stretch.reason or ending.reason, ending.message)
            if self._shows and stretch.span.is_recording():
                self._show(stretch.span, ending)
        finally:
            self._close(stretch)

    def _leave(self, stretch: _Stretch, error: BaseException | None, facts: Mapping[str, Any]) -> None:
        try:
            stretch.span.set_attributes({key: _plain(each) for key, each in facts.items()})
            if error is not None:
                self._fail(stretch.span, class_name(error), masked(describe_error(error)))
        finally:
            self._close(stretch)

    def _fail(self, span: Span, reason: str, message: str) -> None:
        span.set_attribute("error.type", escape_surrogates(reason))
        span.set_status(self._failed, preview(message, _MESSAGE))

    def _show(self, span: Span, ending: FinishedCall) -> None:
        if self._arguments:
            span.set_attribute("gen_ai.tool.call.arguments", self._cut(_json(ending.arguments)))
        if self._results and ending.result is not None:
            span.set_attribute("gen_ai.tool.call.result", self._cut(ending.result.text))

    def _cut(self, text: str) -> str:
        # Only the part that is shown is looked at: a result can be large.
        shown = escape_surrogates(text[: self._limit])
        return shown if len(text) <= self._limit else f"{shown}... [truncated, full length: {len(text)} chars]"

    def _close(self, stretch: _Stretch) -> None:
        try:
            _current.reset(stretch.here)
        except ValueError:
            pass  # closed by the collector, it stands in another context, where there is nothing to undo
        else:
            self._detach(stretch.outer)
        stretch.span.end()


class _Stretch:
    """A span from its beginning to its end."""

    __slots__ = ("here", "outer", "reason", "span")

    def __init__(self, span: Span, outer: Any) -> None:
        self.span = span
        self.outer = outer
        self.here: Any = None
        self.reason = ""  # why it failed, where an event has told


_current: ContextVar[_Stretch | None] = ContextVar("toolsemble.span", default=None)

_NAMED_BY = {"invoke_agent": "gen_ai.agent.name", "chat": "gen_ai.request.model"}

# Nothing here that a model or a service wrote, except for what went wrong: events have no switch of their own.
_SAID: dict[str, Callable[[Any], dict[str, Any]]] = {
    "call_repaired": lambda event: {"repairs": len(event.repairs)},
    "call_retried": lambda event: {
        "attempt": event.attempt,
        "wait": event.wait,
        "error": preview(event.error, _MESSAGE),
    },
    "call_timed_out": lambda event: {"seconds": event.seconds},
    "call_abandoned": lambda _: {},
    "cache_hit": lambda _: {},
    "review_requested": lambda _: {},
    "review_decided": lambda event: {"decision": type(event.decision).__name__},
}


def _plain(value: Any) -> Any:
    # Most texts are short and harmless, and the quickest to tell.
    if not isinstance(value, str) or (len(value) <= _ID and value.isprintable()):
        return value
    return preview(value, _ID)


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)


def _propagators() -> tuple[Any, ...]:
    """Give how a trace is written down between our own processes, whatever the program uses between services."""
    trace = import_extra("opentelemetry.trace.propagation.tracecontext", extra="otel", user="OpenTelemetry")
    baggage = import_extra("opentelemetry.baggage.propagation", extra="otel", user="OpenTelemetry")
    return trace.TraceContextTextMapPropagator(), baggage.W3CBaggagePropagator()


def _arrive(carrier: dict[str, str], arguments: bool, results: bool, limit: int) -> None:  # noqa: FBT001 - as sent
    """Go on with a trace in a worker process: the spans of the body and of calls in it stand under the caller's."""
    contexts = import_extra("opentelemetry.context", extra="otel", user="OpenTelemetry")
    inside = None
    for each in _propagators():
        inside = each.extract(carrier, inside)
    contexts.attach(inside)
    watch(*Sinks("OpenTelemetry", [OpenTelemetry(arguments=arguments, results=results, limit=limit)]).outlets)
