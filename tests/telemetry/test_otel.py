import asyncio
import json
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as names
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import SpanKind, StatusCode
from pydantic import SecretStr

from toolsemble import (
    Agent,
    AgentExecutionError,
    AudioContent,
    ExitEarlyError,
    FileContent,
    ImageContent,
    InMemoryMetrics,
    Retries,
    TextContent,
    Tool,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolDefinitionError,
    ToolExecutionError,
    ToolPipeline,
    ToolResult,
    fan_out,
    tool,
)
from toolsemble._runtime.watchers import ScopedWatcher, tell, unwatch, watch
from toolsemble.agent import Prices, Retry
from toolsemble.events import CacheHit, CallAbandoned, CallProgress, CallRetried, CallTimedOut, ModelReplied
from toolsemble.models import AssistantMessage, ChatReply, FunctionModel, OpenAIModel, TokenUsage
from toolsemble.review import AutoApprove, AutoReject
from toolsemble.telemetry import OpenTelemetry, OpenTelemetryMetrics
from toolsemble.testing import ScriptedModel

pytestmark = pytest.mark.slow

IN_BODY = "in the body"


class Traces:
    """A tracer provider of the real SDK whose spans can be read back."""

    def __init__(self):
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    def spans(self):
        return self.exporter.get_finished_spans()

    def named(self, name):
        (span,) = [span for span in self.spans() if span.name == name]
        return span

    def parents(self):
        """The name of each span with its parent's name."""
        known = {span.context.span_id: span.name for span in self.spans()}
        return {
            span.name: None if span.parent is None else known.get(span.parent.span_id, "elsewhere")
            for span in self.spans()
        }


@pytest.fixture
def traces():
    made = Traces()
    yield made
    made.provider.shutdown()


class Counts:
    """A meter provider of the real SDK whose metrics can be read back."""

    def __init__(self):
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader])

    def points(self):
        """Each number with the name and the attributes it has; of histograms, how many there were."""
        data = self.reader.get_metrics_data()
        metrics = [] if data is None else [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]
        return {
            (metric.name, *sorted(point.attributes.items())): getattr(point, "value", None) or point.count
            for metric in metrics
            for point in metric.data.data_points
        }


@pytest.fixture
def counts():
    made = Counts()
    yield made
    made.provider.shutdown()


@tool
def shout(text: str) -> str:
    """Says it louder."""
    return text.upper()


@tool
def fail(text: str) -> ToolResult:
    """Fails."""
    return ToolResult.failure(f"no {text}")


@tool
def crash(text: str) -> str:
    """Raises."""
    raise ToolExecutionError(f"broken: {text}")


def attributes_of(span):
    return dict(span.attributes)


def test_call_is_a_span_with_conventional_attributes(traces):
    box = Toolbox([shout], sinks=[OpenTelemetry(traces.provider)])
    box.execute(ToolCall("shout", {"text": "hello"}, "call_1"), run_id="run_1")
    (span,) = traces.spans()
    assert (span.name, span.kind, span.parent) == ("execute_tool shout", SpanKind.INTERNAL, None)
    assert attributes_of(span) == {
        names.GEN_AI_OPERATION_NAME: names.GenAiOperationNameValues.EXECUTE_TOOL.value,
        names.GEN_AI_TOOL_NAME: "shout",
        names.GEN_AI_TOOL_TYPE: "function",
        names.GEN_AI_TOOL_CALL_ID: "call_1",
        "toolsemble.run.id": "run_1",
    }
    assert span.status.status_code is StatusCode.UNSET
    assert span.start_time < span.end_time
    assert span.instrumentation_scope.name == "toolsemble"


@pytest.mark.parametrize(
    ("source", "arguments", "reason", "message"),
    [
        (fail, {"text": "city"}, "failure", "no city"),
        (crash, {"text": "wire"}, "toolsemble.ToolExecutionError", "broken: wire"),
        (shout, {}, "invalid_arguments", "Missing required parameter(s) for 'shout': text"),
        (shout, {"text": "x", "gone": {}}, "", None),
    ],
)
def test_error_type_is_the_cause_of_the_failure(traces, source, arguments, reason, message):
    box = Toolbox([source], sinks=[OpenTelemetry(traces.provider)])
    box.execute(ToolCall(source.name, arguments))
    (span,) = traces.spans()
    assert span.attributes.get(error_attributes.ERROR_TYPE, "") == reason
    assert span.status.status_code is (StatusCode.ERROR if reason else StatusCode.UNSET)
    assert span.status.description == message


def test_error_type_of_a_builtin_exception_has_no_module(traces):
    @tool
    def look(key: str) -> str:
        """Looks it up."""
        return {}[key]

    Toolbox([look], sinks=[OpenTelemetry(traces.provider)]).execute(ToolCall("look", {"key": "a"}))
    assert traces.spans()[0].attributes["error.type"] == "KeyError"


def test_span_of_an_unknown_tool_does_not_have_its_name(traces):
    Toolbox([shout], sinks=[OpenTelemetry(traces.provider)]).execute(ToolCall("rm -rf", {}))
    (span,) = traces.spans()
    assert (span.name, span.attributes["error.type"]) == ("execute_tool (unknown)", "invalid_arguments")


def test_call_span_is_between_the_callers_and_the_bodys(traces):
    @tool
    def work() -> str:
        """Works."""
        with traces.tracer.start_as_current_span(IN_BODY):
            return "done"

    box = Toolbox([work], sinks=[OpenTelemetry(traces.provider)])
    with traces.tracer.start_as_current_span("caller"):
        box.execute(ToolCall("work"))
    assert traces.parents() == {IN_BODY: "execute_tool work", "execute_tool work": "caller", "caller": None}
    assert trace.get_current_span() is trace.INVALID_SPAN


async def test_tasks_and_threads_have_their_own_current_span(traces):
    meet = threading.Barrier(2, timeout=20)

    @tool
    def blocking(mark: str) -> str:
        """Blocks."""
        meet.wait()
        with traces.tracer.start_as_current_span(mark):
            return threading.current_thread().name

    @tool
    async def waiting(mark: str) -> str:
        """Waits."""
        await asyncio.sleep(0)
        with traces.tracer.start_as_current_span(mark):
            return "done"

    box = Toolbox([blocking, waiting], sinks=[OpenTelemetry(traces.provider)])
    calls = [
        ToolCall("blocking", {"mark": "a"}),
        ToolCall("waiting", {"mark": "b"}),
        ToolCall("blocking", {"mark": "c"}),
    ]
    with traces.tracer.start_as_current_span("caller"):
        await box.aexecute_all(calls)
    parents = traces.parents()
    assert parents == {
        "a": "execute_tool blocking",
        "b": "execute_tool waiting",
        "c": "execute_tool blocking",
        "execute_tool blocking": "caller",
        "execute_tool waiting": "caller",
        "caller": None,
    }
    assert traces.named("a").parent.span_id != traces.named("c").parent.span_id


def test_custom_executor_propagates_the_span(traces):
    @tool
    def blocking(mark: str) -> str:
        """Blocks."""
        with traces.tracer.start_as_current_span(mark):
            return mark

    with ThreadPoolExecutor(2) as pool:
        box = Toolbox([blocking], executor=pool, sinks=[OpenTelemetry(traces.provider)])
        box.execute_all([ToolCall("blocking", {"mark": "a"}), ToolCall("blocking", {"mark": "b"})])
    assert traces.parents() == {
        "a": "execute_tool blocking",
        "b": "execute_tool blocking",
        "execute_tool blocking": None,
    }


class Echo(Tool):
    name = "echo"
    description = "Repeats its input"

    def run(self, input):
        return input


class Outer(Tool):
    name = "outer"
    description = "Calls another"

    def __init__(self, inner):
        self._inner = inner

    def run(self, input):
        return self._inner(input)


@pytest.mark.parametrize(
    "inner", [Echo().execute, lambda text: Toolbox([Echo()]).execute(ToolCall("echo", {"input": text})).result]
)
def test_nested_calls_are_child_spans(traces, inner):
    box = Toolbox([Outer(inner)], sinks=[OpenTelemetry(traces.provider)])
    assert box.execute(ToolCall("outer", {"input": "x"})).text == "x"
    assert traces.parents() == {"execute_tool echo": "execute_tool outer", "execute_tool outer": None}


def test_pipeline_steps_are_child_spans(traces):
    class Second(Echo):
        name = "second"

    class Third(Echo):
        name = "third"

    line = ToolPipeline("line", "Does it all", [Echo(), fan_out(Second(), Third())])
    Toolbox([line], sinks=[OpenTelemetry(traces.provider)]).execute(ToolCall("line", {"input": "x"}))
    assert traces.parents() == {
        "execute_tool echo": "execute_tool line",
        "execute_tool second": "execute_tool second_and_third",
        "execute_tool third": "execute_tool second_and_third",
        "execute_tool second_and_third": "execute_tool line",
        "execute_tool line": None,
    }


def test_arguments_and_results_are_opt_in(traces):
    box = Toolbox([shout, crash], sinks=[OpenTelemetry(traces.provider, arguments=True, results=True, limit=20)])
    box.execute(ToolCall("shout", {"text": "héllo"}))
    box.execute(ToolCall("shout", '{"text": "\\ud800"}'))
    box.execute(ToolCall("shout", {"text": "x" * 50}))
    box.execute(ToolCall("crash", "[1]"))
    assert [
        (span.attributes[names.GEN_AI_TOOL_CALL_ARGUMENTS], span.attributes[names.GEN_AI_TOOL_CALL_RESULT])
        for span in traces.spans()
    ] == [
        ('{"text": "héllo"}', "HÉLLO"),
        ('{"text": "\\ud800"}', "Error: Invalid JSON ... [truncated, full length: 109 chars]"),
        (
            '{"text": "xxxxxxxxxx... [truncated, full length: 62 chars]',
            "XXXXXXXXXXXXXXXXXXXX... [truncated, full length: 50 chars]",
        ),
        ("[1]", "Error: Expected a JS... [truncated, full length: 61 chars]"),
    ]


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"arguments": True}, {names.GEN_AI_TOOL_CALL_ARGUMENTS: '{"text": "x"}'}),
        ({"results": True}, {names.GEN_AI_TOOL_CALL_RESULT: "X"}),
    ],
)
def test_arguments_and_results_are_separate_options(traces, settings, shown):
    box = Toolbox([shout], sinks=[OpenTelemetry(traces.provider, **settings)])
    box.execute(ToolCall("shout", {"text": "x"}))
    found = attributes_of(traces.spans()[0])
    assert {
        key: each for key, each in found.items() if key.startswith("gen_ai.tool.call.") and "id" not in key
    } == shown


def test_secrets_are_masked_in_spans(traces):
    @tool
    def login(user: str, password: SecretStr, here: ToolContext) -> str:
        """Logs in."""
        tell(CallRetried.of(here, attempt=1, wait=0.5, error=f"refused {password.get_secret_value()}"))
        raise ToolExecutionError(f"{user} cannot log in with {password.get_secret_value()}")

    box = Toolbox([login], sinks=[OpenTelemetry(traces.provider, arguments=True, results=True)])
    box.execute(ToolCall("login", {"user": "ada", "password": "hunter2-and-more"}))
    (span,) = traces.spans()
    assert "hunter2" not in span.to_json()
    assert span.status.description == "ada cannot log in with **********"
    assert [(event.name, event.attributes["error"]) for event in span.events] == [
        ("toolsemble.call_retried", "refused **********")
    ]


def test_missing_result_has_no_attribute(traces):
    @tool
    def leave() -> str:
        """Leaves."""
        raise ExitEarlyError("enough")

    box = Toolbox([leave], sinks=[OpenTelemetry(traces.provider, arguments=True, results=True)])
    with pytest.raises(ExitEarlyError):
        box.execute(ToolCall("leave"))
    (span,) = traces.spans()
    assert (span.attributes["error.type"], span.status.description) == (
        "toolsemble.ExitEarlyError",
        "enough",
    )
    assert names.GEN_AI_TOOL_CALL_RESULT not in span.attributes


def test_hostile_call_id_is_escaped(traces):
    box = Toolbox([shout], sinks=[OpenTelemetry(traces.provider)])
    box.execute(ToolCall("shout", {"text": "x"}, "a\ud800\n" + "b" * 1000))
    shown = traces.spans()[0].attributes[names.GEN_AI_TOOL_CALL_ID]
    assert shown == "a\\ud800\\n" + "b" * 197 + "..."


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        (CallRetried("x", "1", 2, 0.5, "refused"), {"attempt": 2, "wait": 0.5, "error": "refused"}),
        (CacheHit("x", "1"), {}),
        (CallAbandoned("x", "1"), {}),
        (CallTimedOut("x", "1", 5.0), {"seconds": 5.0}),
    ],
)
def test_call_events_are_span_events(traces, event, shown):
    @tool
    def work() -> str:
        """Works."""
        tell(event)
        tell(CallProgress("x", "1", 0.5))
        return "done"

    Toolbox([work], sinks=[OpenTelemetry(traces.provider)]).execute(ToolCall("work"))
    (recorded,) = traces.spans()[0].events
    assert (recorded.name, dict(recorded.attributes)) == (f"toolsemble.{event.kind}", shown)


def test_timed_out_call_has_error_type_timeout(traces, counts, clock):
    go = threading.Event()

    @tool(timeout=0.05)
    def work() -> str:
        """Works."""
        clock.advance(0.05)
        go.wait(20)
        return "done"

    sink = OpenTelemetry(traces.provider, counts.provider)
    reply = Toolbox([work], sinks=[sink]).execute(ToolCall("work"))
    go.set()
    assert reply.text == "Error: Tool 'work' timed out after 0.05 s"
    (span,) = traces.spans()
    assert (span.attributes["error.type"], span.status.description) == ("timeout", reply.result.error_message)
    assert [event.name for event in span.events] == ["toolsemble.call_abandoned", "toolsemble.call_timed_out"]
    assert {key[0] for key in counts.points()} == {
        "toolsemble.tool.executions",
        "gen_ai.execute_tool.duration",
        "toolsemble.tool.timeouts",
        "toolsemble.tool.abandoned_threads",
    }


def test_retried_call_is_one_span(traces, counts):
    tries = iter([ConnectionError("refused"), ConnectionError("reset")])

    @tool(effects="read", retries=Retries(4, wait=0, jitter=0))
    def work() -> str:
        """Works."""
        for error in tries:
            raise error
        return "done"

    sink = OpenTelemetry(traces.provider, counts.provider)
    assert Toolbox([work], sinks=[sink]).execute(ToolCall("work")).text == "done"
    (span,) = traces.spans()
    assert span.status.status_code is StatusCode.UNSET
    assert [(event.attributes["attempt"], event.attributes["error"]) for event in span.events] == [
        (1, "refused"),
        (2, "reset"),
    ]
    assert {key[0]: value for key, value in counts.points().items()}["toolsemble.tool.retries"] == 2


def test_repairs_reviews_and_rejections_are_in_the_span(traces):
    @tool(requires_approval=True)
    def days(number: int) -> str:
        """Counts."""
        return str(number)

    sink = OpenTelemetry(traces.provider)
    Toolbox([days], sinks=[sink, lambda _: None], review=AutoApprove()).execute(ToolCall("days", {"number": "3"}))
    Toolbox([days], sinks=[sink], review=AutoReject("never")).execute(ToolCall("days", {"number": 3}))
    agreed, refused = traces.spans()
    assert [event.name for event in agreed.events] == [
        "toolsemble.call_repaired",
        "toolsemble.review_requested",
        "toolsemble.review_decided",
    ]
    assert [dict(event.attributes) for event in agreed.events] == [{"repairs": 1}, {}, {"decision": "Continue"}]
    assert dict(refused.events[-1].attributes) == {"decision": "ExitEarly"}
    assert refused.attributes["error.type"] == "rejected"


def test_event_outside_of_calls_is_ignored(traces):
    OpenTelemetry(traces.provider).emit(CallAbandoned("x", "1"))
    assert traces.spans() == ()


async def test_cancelled_call_ends_its_span(traces):
    begun = asyncio.Event()

    @tool
    async def hang() -> str:
        """Hangs."""
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(Toolbox([hang], sinks=[OpenTelemetry(traces.provider)]).aexecute(ToolCall("hang")))
    await asyncio.wait_for(begun.wait(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (span,) = traces.spans()
    assert (span.attributes["toolsemble.cancelled"], span.status.status_code) == (True, StatusCode.UNSET)
    assert "error.type" not in span.attributes


def test_dropped_call_ends_its_span(traces, caplog):
    @tool
    async def hang() -> str:
        """Hangs."""
        await _Never()

    call = Toolbox([hang], sinks=[OpenTelemetry(traces.provider)]).aexecute(ToolCall("hang"))
    with traces.tracer.start_as_current_span("elsewhere"):
        copy_context().run(call.send, None)
        call.close()
        assert trace.get_current_span().name == "elsewhere"
    assert [span.name for span in traces.spans()] == ["execute_tool hang", "elsewhere"]
    assert "detach" not in caplog.text


class _Never:
    def __await__(self):
        yield


def test_calls_work_without_providers():
    assert Toolbox([shout], sinks=[OpenTelemetry()]).execute(ToolCall("shout", {"text": "x"})).text == "X"


def test_unsampled_span_has_no_attributes():
    exporter, provider = InMemorySpanExporter(), TracerProvider(sampler=ALWAYS_OFF)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    box = Toolbox([shout], sinks=[OpenTelemetry(provider, arguments=True)])
    assert box.execute(ToolCall("shout", {"text": "x"})).text == "X"
    assert exporter.get_finished_spans() == ()
    provider.shutdown()


@pytest.mark.parametrize("make", [OpenTelemetry, OpenTelemetryMetrics])
def test_missing_package_error_names_the_extra(monkeypatch, make):
    for name in ("opentelemetry.trace", "opentelemetry.metrics"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ToolDefinitionError, match=r"pip install .*\[otel\]"):
        make()


def test_sink_counts_and_times_calls(counts):
    box = Toolbox([shout, fail, crash], agent_role="writer", sinks=[OpenTelemetry(None, counts.provider)])
    for name in ("shout", "shout", "fail", "crash"):
        box.execute(ToolCall(name, {"text": "x"}))
    role = ("gen_ai.agent.name", "writer")

    def key(metric, name, *more):
        return (metric, role, ("gen_ai.tool.name", name), *more)

    assert counts.points() == {
        key("toolsemble.tool.executions", "shout", ("outcome", "success")): 2,
        key("toolsemble.tool.executions", "fail", ("outcome", "failure")): 1,
        key("toolsemble.tool.executions", "crash", ("outcome", "error")): 1,
        key("gen_ai.execute_tool.duration", "shout"): 2,
        key("gen_ai.execute_tool.duration", "fail"): 1,
        key("gen_ai.execute_tool.duration", "crash"): 1,
    }


def test_counters_values_repairs_and_denials_are_counted(counts):
    @tool
    def scrape(pages: int, here: ToolContext) -> str:
        """Scrapes."""
        metrics = here.metrics
        metrics.increment_counter("pages read", "scrape", "unknown", pages)
        metrics.increment_counter("executions", "scrape", "unknown")
        metrics.record_value("size", "scrape", "unknown", 2.5)
        metrics.record_value("size", "scrape", "unknown", 2.5)
        return "done"

    @tool(requires_approval=True)
    def delete() -> str:
        """Deletes."""
        return "gone"

    sink = OpenTelemetry(meter_provider=counts.provider)
    box = Toolbox([scrape, delete], sinks=[sink], review=AutoReject())
    box.execute(ToolCall("scrape", {"pages": "3"}))
    box.execute(ToolCall("delete"))
    found = {key[0]: value for key, value in counts.points().items() if ("outcome", "success") not in key}
    assert found == {
        "toolsemble.tool.executions": 1,
        "gen_ai.execute_tool.duration": 1,
        "toolsemble.tool.pages_read": 3,
        "toolsemble.tool.executions.own": 1,
        "toolsemble.tool.size.value": 2,
        "toolsemble.tool.repairs": 1,
        "toolsemble.tool.denials": 1,
    }


def test_each_metrics_object_counts_a_call_once(counts):
    sink, own = OpenTelemetry(meter_provider=counts.provider), InMemoryMetrics()
    inner = Toolbox([Echo()], metrics=sink.metrics)
    outer = Outer(lambda text: inner.execute(ToolCall("echo", {"input": text})).result)
    second = OpenTelemetry(meter_provider=counts.provider)
    second.metrics = own
    Toolbox([outer | Echo()], metrics=own, sinks=[sink, second]).execute(ToolCall("outer_then_echo", {"input": "x"}))
    found = {key[1][1]: value for key, value in counts.points().items() if key[0] == "toolsemble.tool.executions"}
    assert found == {"outer_then_echo": 1, "outer": 1, "echo": 2}
    assert [own.count(name, "success") for name in ("outer_then_echo", "outer", "echo")] == [1, 1, 2]


def test_roles_beyond_the_attribute_cache_are_counted(monkeypatch, counts):
    monkeypatch.setattr("toolsemble.telemetry._otel._MOST_KNOWN", 2)
    metrics = OpenTelemetryMetrics(counts.provider)
    for role in ("first", "second", "third", "first", "third"):
        metrics.increment_success("add", role)
    counted = {dict(key[1:])["gen_ai.agent.name"]: number for key, number in counts.points().items()}
    assert counted == {"first": 2, "second": 1, "third": 2}


def test_tags_of_custom_metrics_are_attributes_and_replace_none_of_the_library(counts):
    @tool
    def scrape(site: str, context: ToolContext) -> str:
        """Scrape a site."""
        tags = {"site": site, "gen_ai.tool.name": "other", "long": "x" * 1000}
        context.metrics.increment_counter("pages", "scrape", context.agent_role, 3, tags=tags)
        context.metrics.record_value("bytes", "scrape", context.agent_role, 10.0, tags={"site": site})
        return "done"

    box = Toolbox([scrape], metrics=OpenTelemetryMetrics(counts.provider))
    for site in ("a", "b", "b"):
        box.execute(ToolCall("scrape", {"site": site}))
    found = {(name, dict(tags).get("site")): (dict(tags), value) for (name, *tags), value in counts.points().items()}
    counted = {site: value for (name, site), (_, value) in found.items() if name == "toolsemble.tool.pages"}
    recorded = {site: value for (name, site), (_, value) in found.items() if name == "toolsemble.tool.bytes.value"}
    assert (counted, recorded) == ({"a": 3, "b": 6}, {"a": 1, "b": 2})
    attributes, _ = found["toolsemble.tool.pages", "a"]
    assert attributes["gen_ai.tool.name"] == "scrape"
    assert len(attributes["long"]) < 300


def test_metrics_work_without_spans(counts):
    Toolbox([shout], metrics=OpenTelemetryMetrics(counts.provider)).execute(ToolCall("shout", {"text": "x"}))
    assert set(counts.points().values()) == {1}


async def test_agent_runs_and_model_requests_are_spans(traces):
    model = ScriptedModel([ToolCall("shout", {"text": "x"}, "call_1"), "Done"])
    agent = Agent(model, [shout], role="crier", sinks=[OpenTelemetry(traces.provider)])
    await agent.run("Shout!", memory_id="ada", run_id="run_1")
    run = traces.named("invoke_agent crier")
    first, last = [span for span in traces.spans() if span.name == "chat ScriptedModel"]
    assert (run.kind, run.parent, run.status.status_code) == (SpanKind.INTERNAL, None, StatusCode.UNSET)
    assert attributes_of(run) == {
        names.GEN_AI_OPERATION_NAME: "invoke_agent",
        names.GEN_AI_AGENT_NAME: "crier",
        names.GEN_AI_CONVERSATION_ID: "ada",
        "toolsemble.run.id": "run_1",
        names.GEN_AI_REQUEST_MODEL: "ScriptedModel",
        names.GEN_AI_USAGE_INPUT_TOKENS: 0,
        names.GEN_AI_USAGE_OUTPUT_TOKENS: 0,
        names.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: 0,
        names.GEN_AI_USAGE_CACHE_CREATION_INPUT_TOKENS: 0,
        names.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS: 0,
        "toolsemble.stop_reason": "answer",
    }
    assert (first.kind, first.attributes[names.GEN_AI_RESPONSE_FINISH_REASONS]) == (SpanKind.CLIENT, ("tool_calls",))
    assert last.attributes[names.GEN_AI_RESPONSE_FINISH_REASONS] == ("stop",)
    assert set(traces.parents().items()) == {
        ("invoke_agent crier", None),
        ("chat ScriptedModel", "invoke_agent crier"),
        ("execute_tool shout", "invoke_agent crier"),
    }


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("stop", "stop"), ("length", "length"), ("refusal", "content_filter"), ("other", "other")],
)
async def test_finish_reasons_have_the_names_of_the_conventions(traces, reason, expected):
    model = FunctionModel(lambda request: ChatReply("Done", stop_reason=reason, usage=TokenUsage(9, 8, 3, 5, 2)))
    await Agent(model, sinks=[OpenTelemetry(traces.provider)]).run("Shout!")
    attributes = next(span for span in traces.spans() if span.name.startswith("chat")).attributes
    assert attributes[names.GEN_AI_RESPONSE_FINISH_REASONS] == (expected,)
    assert attributes[names.GEN_AI_USAGE_CACHE_CREATION_INPUT_TOKENS] == 2
    assert attributes[names.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS] == 5


class TestMessages:
    def content(self, span, name):
        return json.loads(span.attributes[name])

    async def test_spans_have_messages_on_request(self, traces):
        model = ScriptedModel([ToolCall("shout", {"text": "x"}, "call_1"), "Done"])
        agent = Agent(model, [shout], role="crier", sinks=[OpenTelemetry(traces.provider, messages=True)])
        await agent.run(["Shout!", ImageContent(b"...", "image/png")])
        first, last = [span for span in traces.spans() if span.name == "chat ScriptedModel"]
        asked = {
            "role": "user",
            "parts": [
                {"type": "text", "content": "Shout!"},
                {"type": "blob", "modality": "image", "mime_type": "image/png"},
            ],
        }
        call = {"type": "tool_call", "id": "call_1", "name": "shout", "arguments": {"text": "x"}}
        replied = {"type": "tool_call_response", "id": "call_1", "response": "X"}
        answer = {"role": "assistant", "parts": [{"type": "text", "content": "Done"}]}
        assert self.content(first, "gen_ai.input.messages") == [asked]
        assert self.content(first, "gen_ai.output.messages") == [{"role": "assistant", "parts": [call]}]
        assert self.content(last, "gen_ai.input.messages") == [
            asked,
            {"role": "assistant", "parts": [call]},
            {"role": "tool", "parts": [replied]},
        ]
        assert self.content(last, "gen_ai.output.messages") == [answer]
        assert self.content(last, "gen_ai.system_instructions") == [{"type": "text", "content": "You are crier."}]
        assert [each["name"] for each in self.content(last, "gen_ai.tool.definitions")] == ["shout"]
        run = traces.named("invoke_agent crier")
        assert self.content(run, "gen_ai.input.messages") == [asked]
        assert self.content(run, "gen_ai.output.messages") == [answer]

    async def test_messages_have_the_kinds_of_their_contents_and_no_bytes(self, traces):
        @tool
        def look() -> ToolResult:
            """Return a picture."""
            return ToolResult.success("seen", contents=[TextContent("a map"), ImageContent(b"SECRET", "image/png")])

        prompt = [
            "Look!",
            ImageContent(b"SECRET", "image/JPG"),
            AudioContent(b"SECRET", "audio/wav"),
            FileContent(b"SECRET", "video/mp4", "a.mp4"),
            FileContent(b"SECRET", "application/pdf", "a.pdf"),
            ImageContent.from_url("https://example.com/map?signature=SECRET"),
            FileContent.from_url("https://example.com/a.pdf"),
        ]
        model = ScriptedModel([ToolCall("look", {}, "call_1"), "Done"])
        await Agent(model, [look], sinks=[OpenTelemetry(traces.provider, messages=True)]).run(prompt)
        last = [span for span in traces.spans() if span.name == "chat ScriptedModel"][-1]
        asked, _, replied = self.content(last, "gen_ai.input.messages")
        assert asked["parts"][1:] == [
            {"type": "blob", "modality": "image", "mime_type": "image/jpeg"},
            {"type": "blob", "modality": "audio", "mime_type": "audio/wav"},
            {"type": "blob", "modality": "video", "mime_type": "video/mp4"},
            {"type": "blob", "modality": "document", "mime_type": "application/pdf"},
            {"type": "uri", "modality": "image", "uri": "https://example.com/map"},
            {
                "type": "uri",
                "modality": "document",
                "mime_type": "application/pdf",
                "uri": "https://example.com/a.pdf",
            },
        ]
        assert replied["parts"][1:] == [
            {"type": "text", "content": "a map"},
            {"type": "blob", "modality": "image", "mime_type": "image/png"},
        ]
        assert not any("SECRET" in str(dict(span.attributes)) for span in traces.spans())

    async def test_spans_have_no_messages_by_default(self, traces):
        await Agent(ScriptedModel(["Done"]), [shout], sinks=[OpenTelemetry(traces.provider)]).run("Private")
        assert not any("Private" in str(dict(span.attributes)) for span in traces.spans())

    async def test_secrets_in_the_arguments_of_calls_are_masked(self, traces):
        @tool
        def login(user: str, password: SecretStr) -> str:
            """Log in."""
            return "in"

        events = []
        sent = '{"user": "ada", "password": "hunter2"}'
        calls = [ToolCall("login", sent, "call_1"), ToolCall("login", sent[:-1], "call_2")]
        model = ScriptedModel([calls, "Done"])
        sinks = [OpenTelemetry(traces.provider, messages=True), events.append]
        agent = Agent(model, [login], sinks=sinks)
        await agent.run("Log in")
        assert "hunter2" not in str([dict(span.attributes) for span in traces.spans()])
        assert "hunter2" not in str([getattr(event, "message", "") for event in events])
        replied = next(event for event in events if event.kind == "model_replied")
        masked = {"user": "ada", "password": "**********"}
        assert [call.arguments for call in replied.message.calls] == [masked, {}]
        request = [span for span in traces.spans() if span.name == "chat ScriptedModel"][-1]
        asked = json.loads(request.attributes["gen_ai.input.messages"])[1]
        assert [part["arguments"] for part in asked["parts"]] == [masked, {}]

    async def test_arguments_of_unknown_tools_are_left_out(self, traces):
        model = ScriptedModel([ToolCall("logn", {"password": "hunter2"}, "call_1"), "Done"])
        await Agent(model, [shout], sinks=[OpenTelemetry(traces.provider, messages=True)]).run("Log in")
        assert "hunter2" not in str([dict(span.attributes) for span in traces.spans()])

    async def test_long_messages_are_cut(self, traces):
        sink = OpenTelemetry(traces.provider, messages=True, limit=100)
        await Agent(ScriptedModel(["y" * 1000]), sinks=[sink]).run("x" * 1000)
        span = traces.named("chat ScriptedModel")
        assert len(span.attributes["gen_ai.input.messages"]) < 200
        assert len(span.attributes["gen_ai.output.messages"]) < 200


def test_replies_without_tokens_are_timed():
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    OpenTelemetryMetrics(provider).record_reply(ModelReplied(AssistantMessage("Rome"), model="great-1", duration=2.0))
    (metric,) = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
    assert (metric.name, metric.data.data_points[0].sum) == ("gen_ai.client.operation.duration", 2.0)
    provider.shutdown()


async def test_tokens_cost_and_time_of_models_are_metrics(traces):
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    model = ScriptedModel([ChatReply("Rome", usage=TokenUsage(1000, 500)), "Oslo"])
    agent = Agent(model, prices=Prices(1000, 2000), sinks=[OpenTelemetry(traces.provider, provider)])
    await agent.run("Where?")
    metrics = {
        each.name: {str(point.attributes.get("gen_ai.token.type")): point for point in each.data.data_points}
        for each in reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
    }
    tokens = metrics["gen_ai.client.token.usage"]
    assert {kind: point.sum for kind, point in tokens.items()} == {"input": 1000, "output": 500}
    assert tokens["input"].attributes["gen_ai.request.model"] == "ScriptedModel"
    assert metrics["gen_ai.client.operation.duration"]["None"].count == 1
    assert metrics["toolsemble.model.cost"]["None"].value == 2.0
    await Agent(ScriptedModel(["Oslo"]), sinks=[OpenTelemetry(traces.provider, provider)]).run("Where?")
    provider.shutdown()


async def test_model_span_has_its_name_and_failure(traces):
    class Named(ScriptedModel):
        name = "great-1"

    agent = Agent(Named([ValueError("no such model")]), sinks=[OpenTelemetry(traces.provider), lambda _: None])
    with pytest.raises(AgentExecutionError, match="no such model"):
        await agent.run("Hello")
    assert {span.name: (span.attributes["error.type"], span.status.description) for span in traces.spans()} == {
        "chat great-1": ("ValueError", "no such model"),
        "invoke_agent": ("toolsemble.AgentExecutionError", "no such model"),
    }


async def test_model_span_names_its_provider(traces):
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    model = OpenAIModel("great-1", api_key="x", base_url=f"http://127.0.0.1:{port}/v1")
    async with server:
        with pytest.raises(AgentExecutionError):
            await Agent(model, retry=Retry(1), sinks=[OpenTelemetry(traces.provider)]).run("Hello")
    assert traces.named("chat great-1").attributes[names.GEN_AI_PROVIDER_NAME] == "openai"


def set_up_tracing(path):
    """Set up the providers of a worker process: its spans go to a file."""
    file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 - open as long as the process
    provider = TracerProvider()
    written = ConsoleSpanExporter(out=file, formatter=lambda span: span.to_json(indent=None) + "\n")
    provider.add_span_processor(SimpleSpanProcessor(written))
    trace.set_tracer_provider(provider)


class TracedInPool(Tool):
    """A tool whose body makes a span and a call in whatever process it runs."""

    name = "traced_in_pool"
    description = "Works in another process"

    def run(self, input):
        with trace.get_tracer("traced_in_pool").start_as_current_span(IN_BODY):
            Echo().execute(input)
        return f"{baggage.get_baggage('user')}"


def test_trace_continues_in_a_process_pool(traces, tmp_path):
    path = tmp_path / "spans.jsonl"
    with ProcessPoolExecutor(1, get_context("spawn"), partial(set_up_tracing, str(path))) as pool:
        box = Toolbox([TracedInPool()], executor=pool, sinks=[OpenTelemetry(traces.provider)])
        token = context.attach(baggage.set_baggage("user", "ada"))
        reply = asyncio.run(box.aexecute(ToolCall("traced_in_pool", {"input": "x"})))
        context.detach(token)
    assert reply.text == "ada"
    (here,) = traces.spans()
    echo, body = [json.loads(line) for line in path.read_text().splitlines()]
    assert (echo["name"], echo["parent_id"]) == ("execute_tool echo", body["context"]["span_id"])
    assert (body["name"], body["parent_id"]) == (IN_BODY, f"0x{here.context.span_id:016x}")
    assert body["context"]["trace_id"] == f"0x{here.context.trace_id:032x}"


class TracedInProcess(TracedInPool):
    """The same in a process that is there for the tool alone."""

    name = "traced_in_process"
    isolation = "process"

    def __init__(self, path):
        self._path = path

    def run(self, input):
        set_up_tracing(self._path)
        return super().run(input)


def test_trace_continues_in_an_isolated_process(traces, tmp_path):
    path = tmp_path / "spans.jsonl"
    box = Toolbox([TracedInProcess(str(path))], sinks=[OpenTelemetry(traces.provider)])
    box.execute(ToolCall("traced_in_process", {"input": "x"}))
    (here,) = traces.spans()
    body = json.loads(path.read_text().splitlines()[-1])
    assert (body["name"], body["parent_id"]) == (IN_BODY, f"0x{here.context.span_id:016x}")


class Leaky(Tool):
    """Logs its input in a separate call, in which nothing marks it as secret."""

    name = "leaky"
    description = "Repeats its input"

    def run(self, input):
        raise ValueError(f"cannot use {input}")


@tool
def login_in_pool(password: SecretStr) -> str:
    """Logs in, in a worker process."""
    return Leaky().execute(password.get_secret_value()).text


def test_secrets_are_masked_in_worker_processes(traces, tmp_path):
    path = tmp_path / "spans.jsonl"
    with ProcessPoolExecutor(1, get_context("spawn"), partial(set_up_tracing, str(path))) as pool:
        sink = OpenTelemetry(traces.provider, arguments=True, results=True)
        box = Toolbox([login_in_pool], executor=pool, sinks=[sink])
        asyncio.run(box.aexecute(ToolCall("login_in_pool", {"password": "hunter2-and-more"})))
    assert "execute_tool leaky" in path.read_text()
    assert "hunter2" not in path.read_text()


class BadStateSink:
    """A sink that goes along, and sends something that fails on arrival."""

    inline = True

    def emit(self, event):
        pass

    def begin(self, context):
        pass

    def pack(self):
        return partial(int, "no number")


class EchoInPool(Tool):
    name = "echo_in_pool"
    description = "Repeats its input"

    def run(self, input):
        return input


def test_undeliverable_state_does_not_fail_a_call_in_a_worker():
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        box = Toolbox([EchoInPool()], executor=pool, sinks=[BadStateSink()])
        assert asyncio.run(box.aexecute(ToolCall("echo_in_pool", {"input": "x"}))).text == "x"


class FailingSink:
    """A sink whose every method raises, from some point on."""

    inline = True

    def __init__(self, at):
        self.at = at
        self.seen = []

    def emit(self, event):
        self.seen.append(event)

    def begin(self, context):
        if self.at == "begin":
            raise ValueError(self.at)
        return self.end

    def end(self, ending):
        if self.at == "end":
            raise ValueError(self.at)
        self.seen.append((ending.outcome, ending.duration >= 0, ending.message))


@pytest.mark.parametrize(("at", "seen"), [("begin", []), ("end", []), ("", [("success", True, "")])])
def test_failing_scoped_sink_does_not_fail_the_call(caplog, at, seen):
    sink = FailingSink(at)
    assert Toolbox([shout], sinks=[sink]).execute(ToolCall("shout", {"text": "x"})).text == "X"
    assert sink.seen == seen
    assert [record.name for record in caplog.records if record.name == "toolsemble.sink"] == ["toolsemble.sink"] * bool(
        at
    )


def test_watcher_without_pack_only_receives_events():
    class EventWatcher(ScopedWatcher):
        def __init__(self):
            self.seen = []

        def __call__(self, event):
            self.seen.append(event)

    watcher = EventWatcher()
    token = watch(watcher)
    try:
        assert Toolbox([shout]).execute(ToolCall("shout", {"text": "x"})).text == "X"
        tell("between")
    finally:
        unwatch(token)
    assert watcher.seen == ["between"]
    assert (watcher.enter("chat", {}), watcher.pack(), ScopedWatcher()("nothing")) == (None, None, None)


def test_missing_reviewer_ends_the_span(traces):
    @tool(requires_approval=True)
    def delete() -> str:
        """Deletes."""
        return "gone"

    with pytest.raises(ToolConfigurationError):
        Toolbox([delete], sinks=[OpenTelemetry(traces.provider)]).execute(ToolCall("delete"))
    assert traces.spans()[0].attributes["error.type"] == "toolsemble.ToolConfigurationError"


def test_standalone_tool_has_no_span(traces):
    OpenTelemetry(traces.provider)
    assert Echo().execute("x", ToolContext()).text == "x"
    assert traces.spans() == ()
