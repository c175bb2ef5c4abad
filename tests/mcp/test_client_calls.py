"""How calls of remote tools travel: their numbers, and the trace context that they carry."""

import json

import pytest
from mcp.shared import jsonrpc_dispatcher as sdk
from opentelemetry import context, trace
from opentelemetry.sdk.trace import TracerProvider

from toolsemble import Toolbox, ToolCall
from toolsemble.mcp.client import dispatcher

PARENT = trace.SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=trace.TraceFlags(1))


def call(box, name):
    return box.execute(ToolCall(name, {})).text


def test_a_server_may_write_the_number_of_a_call_as_a_text(plain):
    with plain() as client:
        assert call(Toolbox([*client]), "text_number") == "answered"


@pytest.mark.parametrize("is_traced", [False, True])
def test_a_server_gets_the_trace_context_of_the_caller(plain, monkeypatch, is_traced):
    if is_traced:
        monkeypatch.setattr(dispatcher, "get_tracer_provider", TracerProvider)
    with plain() as client:
        box = Toolbox([*client])
        assert json.loads(call(box, "meta")) == {}
        token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(PARENT)))
        try:
            sent = json.loads(call(box, "meta"))
        finally:
            context.detach(token)
    assert sent["traceparent"].startswith(f"00-{PARENT.trace_id:032x}-")


def test_a_traced_call_has_a_span_of_the_sdk(plain, monkeypatch):
    monkeypatch.setattr(dispatcher, "get_tracer_provider", TracerProvider)
    opened = []
    monkeypatch.setattr(sdk, "otel_span", record_spans(opened))
    with plain() as client:
        opened.clear()
        assert call(Toolbox([*client]), "pid").isdigit()
    assert opened == ["MCP send tools/call pid"]


def record_spans(opened):
    otel_span = sdk.otel_span

    def open_span(name, **settings):
        opened.append(name)
        return otel_span(name, **settings)

    return open_span
