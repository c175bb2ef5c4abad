"""How calls of remote tools travel: their numbers, headers and trace context, and answers that cannot be read."""

import json

import mcp_types as types
import pytest
from mcp.server.lowlevel import Server
from mcp.shared import jsonrpc_dispatcher as sdk
from mcp.shared.exceptions import MCPError
from opentelemetry import context, trace
from opentelemetry.sdk.trace import TracerProvider

from helpers.mcp_servers import run_app
from toolsemble import Toolbox, ToolCall
from toolsemble.mcp import MCPClient
from toolsemble.mcp._client import dispatcher

PARENT = trace.SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=trace.TraceFlags(1))


DEEP = "[" * 5000 + "]" * 5000


def call(box, name, **arguments):
    return box.execute(ToolCall(name, arguments)).text


def test_a_server_may_write_the_numbers_of_its_answers_as_texts(plain):
    with plain("text-numbers") as client:
        assert call(Toolbox([*client]), "echo", text="hello") == "hello"


@pytest.mark.parametrize(
    "answer",
    [
        f'{{"jsonrpc": "2.0", "id": NUMBER, "result": {DEEP}}}',
        f'{{"result": {DEEP}, "id": NUMBER, "jsonrpc": "2.0"}}',
        f'{{"result": {DEEP}, "jsonrpc": "2.0", "id": NUMBER}}',
        f'{{"jsonrpc": "2.0", "id": NUMBER, "result": {"[" * 500 + "]" * 500}}}',
        f'{{"jsonrpc": "2.0", "id": NUMBER, "result": {"9" * 6000}}}',
        '{"jsonrpc": "2.0", "id": NUMBER.0, "result": {}}',
        '{"jsonrpc": "2.0", "id": NUMBER, "result": {"content": "\\ud800"}}',
    ],
)
def test_an_answer_that_cannot_be_read_fails_its_call_at_once(plain, answer):
    with plain(timeout=None) as client:
        box = Toolbox([*client])
        said = call(box, "odd_text", text=answer)
        assert said.startswith(
            "Error: The answer of the MCP server 'plain' cannot be used: it is not an answer of JSON"
        )
        assert call(box, "echo", text="still there") == "still there"


def test_a_line_that_answers_nothing_is_skipped(plain):
    with plain(timeout=0.3) as client:
        box = Toolbox([*client])
        assert "did not answer within 0.3 s" in call(box, "odd_text", text=f'{{"result": {DEEP}, "other": NUMBER}}')
        assert call(box, "echo", text="still there") == "still there"


def test_a_tool_that_is_nested_too_deeply_is_left_out(plain, tmp_path, caplog):
    schema = {"type": "string"}
    for _ in range(120):
        schema = {"type": "object", "properties": {"a": schema}}
    tools = [{"name": "deep", "inputSchema": schema}, {"name": "echo", "inputSchema": {"type": "object"}}]
    (tmp_path / "tools.json").write_text(json.dumps(tools))
    with plain("json", tmp_path / "tools.json") as client:
        assert [each.name for each in client] == ["echo"]
    assert "Skipped a tool of plain: 'deep': the schema is nested deeper than 50 levels" in caplog.text


def test_parameters_that_a_server_wants_as_headers_are_sent_as_such():
    region = {"type": "string", "x-mcp-header": "Region"}
    schema = {"type": "object", "properties": {"names": {"enum": ["a"]}, "region": region}, "required": ["region"]}
    seen = []

    async def list_tools(*_):
        return types.ListToolsResult(tools=[types.Tool(name="deploy", input_schema=schema)])

    async def call_tool(_, params):
        return types.CallToolResult(content=[types.TextContent(type="text", text=params.arguments["region"])])

    app = Server("regions", on_list_tools=list_tools, on_call_tool=call_tool).streamable_http_app()

    async def record_headers(scope, receive, send):
        seen.append(dict(scope.get("headers", ())))
        await app(scope, receive, send)

    with run_app(record_headers) as address, MCPClient.http(f"{address}/mcp") as client:
        assert call(Toolbox([*client]), "deploy", region="eu") == "eu"
    assert [each[b"mcp-param-region"] for each in seen if b"mcp-param-region" in each] == [b"eu"]


def test_a_call_on_a_closed_connection_is_not_sent():
    answers = dispatcher.Answers()
    answers.close()
    with pytest.raises(MCPError, match="Connection closed"):
        answers.expect()


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
