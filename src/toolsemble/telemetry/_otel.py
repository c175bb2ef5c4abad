"""Messages and tools as attributes of spans, in the JSON form of OpenTelemetry's conventions for generative AI."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from toolsemble._engine.context import ToolContext, is_resumed
from toolsemble._engine.execution.outcome import FinishedCall, get_class_name
from toolsemble._engine.record import determine_outcome
from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.metrics import Tags
from toolsemble._runtime.sinks import ScopedSink, Sinks
from toolsemble._runtime.text import describe_error, escape_surrogates, preview
from toolsemble._runtime.threads import fork_safe_lock
from toolsemble._runtime.watchers import watch
from toolsemble._schema.masking import mask_text
from toolsemble._vocabulary.media_url import hide_query
from toolsemble._vocabulary.result import Content, TextContent
from toolsemble.models._adapter.wire import media_type
from toolsemble.telemetry._names import DURATION_BUCKETS, TOKEN_BUCKETS, MetricNames

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from toolsemble.events import ModelReplied


_MAX_ROLE = 100  # maximum characters of a role
_NO_ROLE = "unknown"
_MOST_KNOWN = 2_000


class OpenTelemetryMetrics:
    """Metrics as OpenTelemetry instruments, for ``Toolbox(metrics=...)`` without spans.

    Calls are ``toolsemble.tool.executions`` and ``gen_ai.execute_tool.duration``; a counter is
    ``toolsemble.tool.<name>``, a value ``toolsemble.tool.<name>.value``. Model requests are
    ``gen_ai.client.token.usage``, ``gen_ai.client.operation.duration`` and ``toolsemble.model.cost``.

    >>> from opentelemetry.sdk.metrics import MeterProvider
    >>> from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    >>> reader = InMemoryMetricReader()
    >>> provider = MeterProvider([reader])
    >>> OpenTelemetryMetrics(provider).increment_counter("pages", "scrape", "unknown", 3)
    >>> metric = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics[0]
    >>> metric.name, metric.data.data_points[0].value
    ('toolsemble.tool.pages', 3)
    >>> provider.shutdown()
    """

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        """Create the instruments; raise an error if the package is not installed.

        :param meter_provider: creates the instruments; default: the process's provider
        """
        meters = import_extra("opentelemetry.metrics", extra="otel", user="OpenTelemetryMetrics")
        self._meter = meters.get_meter("toolsemble", meter_provider=meter_provider)
        self._names = MetricNames()
        self._lock = fork_safe_lock(self)
        self._instruments: dict[str, Any] = {}
        self._known: dict[tuple[str, str, str], dict[str, str]] = {}
        self._executions = self._meter.create_counter(
            "toolsemble.tool.executions", "{call}", "Calls of tools by outcome"
        )
        self._durations = self._meter.create_histogram(
            "gen_ai.execute_tool.duration",
            "s",
            "Duration of calls of tools, without review time",
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS,
        )
        self._tokens = self._meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of model requests and replies",
            explicit_bucket_boundaries_advisory=TOKEN_BUCKETS,
        )
        self._requests = self._meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "Duration of model requests, including retries",
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS,
        )
        self._cost = self._meter.create_counter("toolsemble.model.cost", "1", "Price of the tokens, where it is known")

    def record_reply(self, event: ModelReplied) -> None:
        """Record the tokens, duration and price of a model reply."""
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": preview(event.model, _MAX_ROLE)}
        self._requests.record(event.duration, attributes)
        if event.usage is not None:
            self._tokens.record(event.usage.input, {**attributes, "gen_ai.token.type": "input"})
            self._tokens.record(event.usage.output, {**attributes, "gen_ai.token.type": "output"})
        if event.cost:
            self._cost.add(event.cost, attributes)

    def increment_success(self, tool_name: str, agent_role: str) -> None:
        """Count a call that succeeded."""
        self._executions.add(1, self._attributes(tool_name, agent_role, "success"))

    def increment_failure(self, tool_name: str, agent_role: str) -> None:
        """Count a call with a failed result."""
        self._executions.add(1, self._attributes(tool_name, agent_role, "failure"))

    def increment_error(self, tool_name: str, agent_role: str) -> None:
        """Count a call whose tool raised an exception."""
        self._executions.add(1, self._attributes(tool_name, agent_role, "error"))

    def record_duration(self, tool_name: str, agent_role: str, seconds: float) -> None:
        """Record the duration of a call."""
        self._durations.record(seconds, self._attributes(tool_name, agent_role))

    def increment_counter(
        self, name: str, tool_name: str, agent_role: str, amount: int = 1, tags: Tags | None = None
    ) -> None:
        """Add to a custom counter of a tool."""
        known = f"toolsemble.tool.{self._names.clean(name)}"
        if known == "toolsemble.tool.executions":
            known = "toolsemble.tool.executions.own"  # the built-in counter has other attributes
        self._instrument(known, self._meter.create_counter).add(amount, self._tagged(tool_name, agent_role, tags))

    def record_value(self, name: str, tool_name: str, agent_role: str, value: float, tags: Tags | None = None) -> None:
        """Record a custom value of a tool."""
        known = f"toolsemble.tool.{self._names.clean(name)}.value"
        self._instrument(known, self._meter.create_histogram).record(value, self._tagged(tool_name, agent_role, tags))

    def _instrument(self, name: str, create: Callable[[str], Any]) -> Any:
        instrument = self._instruments.get(name)
        if instrument is None:
            with self._lock:
                instrument = self._instruments.setdefault(name, create(name))
        return instrument

    def _tagged(self, tool_name: str, agent_role: str, tags: Tags | None) -> dict[str, str]:
        """Return the attributes of a custom measurement; tags cannot replace the library's attributes."""
        known = self._attributes(tool_name, agent_role)
        if not tags:
            return known
        return {preview(str(name), _MAX_ROLE): preview(str(value), _MAX_ROLE) for name, value in tags.items()} | known

    def _attributes(self, tool_name: str, agent_role: str, outcome: str = "") -> dict[str, str]:
        """Return the attributes of a measurement, cached for all calls of a tool."""
        key = tool_name, agent_role, outcome
        known = self._known.get(key)
        if known is None:
            known = _build_attributes(*key)
            if len(self._known) < _MOST_KNOWN:  # roles may contain model text, so their number is unbounded
                self._known[key] = known
        return known


def _build_attributes(tool_name: str, agent_role: str, outcome: str) -> dict[str, str]:
    attributes = {"gen_ai.tool.name": tool_name}
    if outcome:
        attributes["outcome"] = outcome
    if agent_role != _NO_ROLE:
        attributes["gen_ai.agent.name"] = preview(agent_role, _MAX_ROLE)
    return attributes


_MODALITIES = {"image", "audio", "video"}

Attributes = Iterator[tuple[str, Any]]


def _write_input(messages: Iterable[Any]) -> Attributes:
    """Yield the instructions, if there are any, and the other messages."""
    every = list(messages)
    instructions = [each for each in every if each.role == "system"]
    if instructions:
        yield "gen_ai.system_instructions", [_text(each.text) for each in instructions]
    yield "gen_ai.input.messages", [write_message(each) for each in every if each.role != "system"]


def _write_output(messages: Iterable[Any]) -> Attributes:
    yield "gen_ai.output.messages", [write_message(each) for each in messages]


def _write_tools(specifications: Iterable[Any]) -> Attributes:
    definitions = [{"type": "function", "name": each.name, "description": each.description} for each in specifications]
    if definitions:
        yield "gen_ai.tool.definitions", definitions


CONTENT_ATTRIBUTES: Mapping[str, Callable[[Any], Attributes]] = {
    "gen_ai.input.messages": _write_input,
    "gen_ai.output.messages": _write_output,
    "gen_ai.tool.definitions": _write_tools,
}
"""The writers of messages and tools, by attribute name."""


def write_message(message: Any) -> dict[str, Any]:
    """Return a message as JSON values.

    >>> from toolsemble.models import UserMessage
    >>> write_message(UserMessage("hello"))
    {'role': 'user', 'parts': [{'type': 'text', 'content': 'hello'}]}
    """
    return {"role": message.role, "parts": list(_parts(message))}


def _parts(message: Any) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        yield {"type": "tool_call_response", "id": message.call.id, "response": message.text}
        yield from map(_write_content, message.reply.contents)
        return
    if message.text:
        yield _text(message.text)
    yield from map(_write_content, getattr(message, "contents", ()))
    for call in getattr(message, "calls", ()):
        yield {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}


def _write_content(content: Content) -> dict[str, Any]:
    """Return a text, or the kind of media without its bytes, which would be larger than everything else."""
    if isinstance(content, TextContent):
        return _text(content.text)
    kind = media_type(content)
    family = kind.partition("/")[0]
    modality = family if family in _MODALITIES else "document"
    known = {} if "*" in kind else {"mime_type": kind}
    if content.url:
        return {"type": "uri", "modality": modality, **known, "uri": hide_query(content.url)}
    return {"type": "blob", "modality": modality, **known}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


_MAX_MESSAGE = 1000  # maximum characters of an error message
_MAX_ID = 200  # maximum characters of an id of a model or a provider
_NORMAL = {"parked", "interrupted", "taken_over", "cancelled"}  # the stop reasons of runs that raise without an error


class OpenTelemetry(ScopedSink):
    """A sink that creates spans and metrics for calls, and for an agent's runs and model requests.

    The span is current while the body runs, in the call's thread, task or worker process. Without providers it uses the
    process's global providers.

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

    metrics: OpenTelemetryMetrics
    """The metrics of the calls."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        arguments: bool = False,
        results: bool = False,
        messages: bool = False,
        limit: int = 8_000,
    ) -> None:
        """Set the providers; raise an error if the package is not installed.

        :param tracer_provider: creates the spans; default: the process's provider
        :param meter_provider: creates the metrics; default: the process's provider
        :param arguments: whether spans contain the arguments of calls, with secrets masked
        :param results: whether spans contain the results for the model, with secrets masked
        :param messages: whether spans of runs and model requests contain messages and tools, with secrets masked
        :param limit: the maximum characters of each
        """
        trace = import_extra("opentelemetry.trace", extra="otel", user="OpenTelemetry")
        contexts = import_extra("opentelemetry.context", extra="otel", user="OpenTelemetry")
        self._get_current_context, self._attach, self._detach = contexts.get_current, contexts.attach, contexts.detach
        self._set_span = trace.set_span_in_context
        self._kinds = trace.SpanKind
        self._failed = trace.StatusCode.ERROR
        self._tracer = trace.get_tracer("toolsemble", tracer_provider=tracer_provider)
        self._arguments = arguments
        self._results = results
        self._messages = messages
        self._shows = arguments or results
        self._limit = limit
        self.metrics = OpenTelemetryMetrics(meter_provider)

    def begin(self, context: ToolContext) -> Callable[[FinishedCall], None]:
        """Start the span of a call; return a function that ends it."""
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": context.tool_name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": _shorten(context.call_id),
            "toolsemble.run.id": _shorten(context.run_id),
        }
        if is_resumed(context):
            attributes["toolsemble.resumed"] = True
        return partial(self._end, self._start(f"execute_tool {context.tool_name}", attributes))

    def enter(self, operation: str, facts: Mapping[str, Any]) -> Callable[[BaseException | None, Any], None]:
        """Start the span of a run or model request; return a function that ends it."""
        name = facts.get(_NAME_ATTRIBUTE.get(operation, ""), "")
        kind = self._kinds.CLIENT if operation == "chat" else self._kinds.INTERNAL
        attributes = {"gen_ai.operation.name": operation, **self._write(facts)}
        return partial(self._end_operation, self._start(f"{operation} {_shorten(name)}".rstrip(), attributes, kind))

    def emit(self, event: Any) -> None:
        """Add an event to its call's span, or count a model reply."""
        if event.kind == "model_replied":
            self.metrics.record_reply(event)
            return
        opened, attributes = _current.get(), _EVENT_ATTRIBUTES.get(event.kind)
        if opened is not None and attributes is not None:
            if event.kind == "call_timed_out":
                opened.reason = "timeout"
            opened.span.add_event(f"toolsemble.{event.kind}", attributes(event))

    def pack(self) -> Callable[[], None]:
        """Return a function that continues the trace in a worker process, with that process's providers."""
        carrier: dict[str, str] = {}
        for each in _propagators():
            each.inject(carrier)
        make_sink = partial(
            OpenTelemetry,
            arguments=self._arguments,
            results=self._results,
            messages=self._messages,
            limit=self._limit,
        )
        return partial(_continue_trace, carrier, make_sink)

    def _start(self, name: str, attributes: dict[str, Any], kind: Any = None) -> _OpenSpan:
        parent = self._get_current_context()  # looked up once: the SDK would do it four times
        span = self._tracer.start_span(name, parent, self._kinds.INTERNAL if kind is None else kind, attributes)
        opened = _OpenSpan(span, self._attach(self._set_span(span, parent)))
        opened.token = _current.set(opened)
        return opened

    def _end(self, opened: _OpenSpan, ending: FinishedCall) -> None:
        try:
            if (mark := _find_mark(ending)) is not None:
                opened.span.set_attribute(mark, True)  # noqa: FBT003 - the span takes it by position
            elif ending.outcome != "success":
                self._fail(opened.span, opened.reason or ending.reason, ending.message)
            if self._shows and opened.span.is_recording():
                self._show(opened.span, ending)
        finally:
            self._close(opened)

    def _end_operation(self, opened: _OpenSpan, error: BaseException | None, facts: Mapping[str, Any]) -> None:
        try:
            opened.span.set_attributes(self._write(facts))
            if error is not None and not _is_normal(error, facts):
                self._fail(opened.span, get_class_name(error), mask_text(describe_error(error)))
        finally:
            self._close(opened)

    def _write(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes of an operation; messages and tools are JSON, and only written on request."""
        attributes = {key: _shorten(each) for key, each in facts.items() if key not in CONTENT_ATTRIBUTES}
        if self._messages:
            for key in CONTENT_ATTRIBUTES.keys() & facts:
                for name, value in CONTENT_ATTRIBUTES[key](facts[key]()):
                    attributes[name] = self._cut(mask_text(_to_json(value)))
        return attributes

    def _fail(self, span: Span, reason: str, message: str) -> None:
        span.set_attribute("error.type", escape_surrogates(reason))
        span.set_status(self._failed, preview(message, _MAX_MESSAGE))

    def _show(self, span: Span, ending: FinishedCall) -> None:
        if self._arguments:
            span.set_attribute("gen_ai.tool.call.arguments", self._cut(_to_json(ending.arguments)))
        if self._results and ending.result is not None:
            span.set_attribute("gen_ai.tool.call.result", self._cut(ending.result.text))

    def _cut(self, text: str) -> str:
        # Only the part within the limit is processed, because a result can be large.
        shown = escape_surrogates(text[: self._limit])
        return shown if len(text) <= self._limit else f"{shown}... [truncated, full length: {len(text)} chars]"

    def _close(self, opened: _OpenSpan) -> None:
        try:
            _current.reset(opened.token)
        except ValueError:
            pass  # closed by the garbage collector in another context, where there is nothing to reset
        else:
            self._detach(opened.outer_token)
        opened.span.end()


class _OpenSpan:
    """A span that has not ended, with its context tokens."""

    __slots__ = ("outer_token", "reason", "span", "token")

    def __init__(self, span: Span, outer_token: Any) -> None:
        self.span = span
        self.outer_token = outer_token
        self.token: Any = None
        self.reason = ""  # the failure reason, if an event reports it


_current: ContextVar[_OpenSpan | None] = ContextVar("toolsemble.span", default=None)

_NAME_ATTRIBUTE = {"invoke_agent": "gen_ai.agent.name", "chat": "gen_ai.request.model"}

# No model or service texts except error messages: no setting turns events off.
_EVENT_ATTRIBUTES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "call_repaired": lambda event: {"repairs": len(event.repairs)},
    "call_retried": lambda event: {
        "attempt": event.attempt,
        "wait": event.wait,
        "error": preview(event.error, _MAX_MESSAGE),
    },
    "call_timed_out": lambda event: {"seconds": event.seconds},
    "call_abandoned": lambda _: {},
    "cache_hit": lambda _: {},
    "review_requested": lambda _: {},
    "review_decided": lambda event: {"decision": type(event.decision).__name__},
}


def _find_mark(ending: FinishedCall) -> str | None:
    """Return the attribute of an unfinished or cancelled call: neither is a tool error."""
    if ending.is_paused:
        return "toolsemble.paused"
    if ending.is_interrupted:
        return "toolsemble.interrupted"
    return "toolsemble.cancelled" if ending.outcome == "cancelled" else None


def _is_normal(error: BaseException, facts: Mapping[str, Any]) -> bool:
    """Return whether an operation stopped without an error: it waits, continues elsewhere, or was cancelled."""
    return facts.get("toolsemble.stop_reason") in _NORMAL or determine_outcome(None, error) == "cancelled"


def _shorten(value: Any) -> Any:
    # A fast path for short printable texts.
    if not isinstance(value, str) or (len(value) <= _MAX_ID and value.isprintable()):
        return value
    return preview(value, _MAX_ID)


def _to_json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)


def _propagators() -> tuple[Any, ...]:
    """Return the propagators between our own processes, independent of the program's."""
    trace = import_extra("opentelemetry.trace.propagation.tracecontext", extra="otel", user="OpenTelemetry")
    baggage = import_extra("opentelemetry.baggage.propagation", extra="otel", user="OpenTelemetry")
    return trace.TraceContextTextMapPropagator(), baggage.W3CBaggagePropagator()


def _continue_trace(carrier: dict[str, str], make_sink: Callable[[], OpenTelemetry]) -> None:
    """Continue a trace in a worker process: spans of the body become children of the caller's span."""
    contexts = import_extra("opentelemetry.context", extra="otel", user="OpenTelemetry")
    context = None
    for each in _propagators():
        context = each.extract(carrier, context)
    contexts.attach(context)
    watch(*Sinks("OpenTelemetry", [make_sink()]).outlets)
