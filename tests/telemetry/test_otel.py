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
    ExitEarlyError,
    InMemoryMetrics,
    Retries,
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
from toolsemble.agent import Retry
from toolsemble.events import CacheHit, CallAbandoned, CallProgress, CallRetried, CallTimedOut
from toolsemble.models import ChatReply, FunctionModel, OpenAIModel, TokenUsage
from toolsemble.observers.watchers import ScopedWatcher, tell, unwatch, watch
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
        """The name of each span with that of its parent."""
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


def test_a_call_is_a_span_by_the_conventions(traces):
    box = Toolbox([shout], sinks=[OpenTelemetry(traces.provider)])
    box.execute(ToolCall("shout", {"text": "hello"}, "call_1"))
    (span,) = traces.spans()
    assert (span.name, span.kind, span.parent) == ("execute_tool shout", SpanKind.INTERNAL, None)
    assert attributes_of(span) == {
        names.GEN_AI_OPERATION_NAME: names.GenAiOperationNameValues.EXECUTE_TOOL.value,
        names.GEN_AI_TOOL_NAME: "shout",
        names.GEN_AI_TOOL_TYPE: "function",
        names.GEN_AI_TOOL_CALL_ID: "call_1",
    }
    assert span.status.status_code is StatusCode.UNSET
    assert span.start_time < span.end_time
    assert span.instrumentation_scope.name == "toolsemble"


@pytest.mark.parametrize(
    ("source", "arguments", "reason", "message"),
    [
        (fail, {"text": "city"}, "failure", "no city"),
        (crash, {"text": "wire"}, "toolsemble.errors.ToolExecutionError", "broken: wire"),
        (shout, {}, "invalid_arguments", "Missing required parameter(s) for 'shout': text"),
        (shout, {"text": "x", "gone": {}}, "", None),
    ],
)
def test_why_a_call_failed_is_the_error_type(traces, source, arguments, reason, message):
    box = Toolbox([source], sinks=[OpenTelemetry(traces.provider)])
    box.execute(ToolCall(source.name, arguments))
    (span,) = traces.spans()
    assert span.attributes.get(error_attributes.ERROR_TYPE, "") == reason
    assert span.status.status_code is (StatusCode.ERROR if reason else StatusCode.UNSET)
    assert span.status.description == message


def test_an_exception_of_python_itself_goes_by_its_bare_name(traces):
    @tool
    def look(key: str) -> str:
        """Looks it up."""
        return {}[key]

    Toolbox([look], sinks=[OpenTelemetry(traces.provider)]).execute(ToolCall("look", {"key": "a"}))
    assert traces.spans()[0].attributes["error.type"] == "KeyError"


def test_an_unknown_tool_is_a_span_that_a_model_cannot_name(traces):
    Toolbox([shout], sinks=[OpenTelemetry(traces.provider)]).execute(ToolCall("rm -rf", {}))
    (span,) = traces.spans()
    assert (span.name, span.attributes["error.type"]) == ("execute_tool (unknown)", "invalid_arguments")


def test_the_span_of_a_call_is_a_child_of_the_callers_and_parent_of_the_bodys(traces):
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


async def test_a_call_in_a_task_and_one_in_a_thread_have_their_own_span_current(traces):
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


def test_an_executor_of_the_programs_own_carries_the_span(traces):
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
def test_calls_inside_of_calls_stand_under_them(traces, inner):
    box = Toolbox([Outer(inner)], sinks=[OpenTelemetry(traces.provider)])
    assert box.execute(ToolCall("outer", {"input": "x"})).text == "x"
    assert traces.parents() == {"execute_tool echo": "execute_tool outer", "execute_tool outer": None}


def test_the_steps_of_a_pipeline_stand_under_it(traces):
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


def test_arguments_and_results_are_shown_only_when_asked_for(traces):
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
def test_one_of_them_is_shown_without_the_other(traces, settings, shown):
    box = Toolbox([shout], sinks=[OpenTelemetry(traces.provider, **settings)])
    box.execute(ToolCall("shout", {"text": "x"}))
    found = attributes_of(traces.spans()[0])
    assert {
        key: each for key, each in found.items() if key.startswith("gen_ai.tool.call.") and "id" not in key
    } == shown


def test_secrets_are_in_no_attribute_status_or_event(traces):
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


def test_a_result_that_never_was_is_not_shown(traces):
    @tool
    def leave() -> str:
        """Leaves."""
        raise ExitEarlyError("enough")

    box = Toolbox([leave], sinks=[OpenTelemetry(traces.provider, arguments=True, results=True)])
    with pytest.raises(ExitEarlyError):
        box.execute(ToolCall("leave"))
    (span,) = traces.spans()
    assert (span.attributes["error.type"], span.status.description) == ("toolsemble.errors.ExitEarlyError", "enough")
    assert names.GEN_AI_TOOL_CALL_RESULT not in span.attributes


def test_what_a_model_writes_into_an_id_cannot_break_the_export(traces):
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
def test_what_happens_in_between_is_an_event_of_the_span(traces, event, shown):
    @tool
    def work() -> str:
        """Works."""
        tell(event)
        tell(CallProgress("x", "1", 0.5))
        return "done"

    Toolbox([work], sinks=[OpenTelemetry(traces.provider)]).execute(ToolCall("work"))
    (told,) = traces.spans()[0].events
    assert (told.name, dict(told.attributes)) == (f"toolsemble.{event.kind}", shown)


def test_a_call_whose_time_is_up_says_so(traces, counts, clock):
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


def test_a_call_that_is_made_again_is_one_span(traces, counts):
    tries = iter([ConnectionError("refused"), ConnectionError("reset")])

    @tool(effects="read", retries=Retries(3, wait=0, jitter=0))
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


def test_repairs_and_reviews_are_events_and_a_rejection_is_an_error_type(traces):
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


def test_an_event_outside_of_calls_is_ignored(traces):
    OpenTelemetry(traces.provider).emit(CallAbandoned("x", "1"))
    assert traces.spans() == ()


async def test_a_cancelled_call_ends_its_span(traces):
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
    assert traces.spans()[0].attributes["error.type"] == "asyncio.exceptions.CancelledError"


def test_a_call_that_is_dropped_in_another_context_ends_its_span_there(traces, caplog):
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


def test_without_providers_nothing_is_recorded_and_calls_go_on():
    assert Toolbox([shout], sinks=[OpenTelemetry()]).execute(ToolCall("shout", {"text": "x"})).text == "X"


def test_a_span_that_is_not_sampled_shows_nothing():
    exporter, provider = InMemorySpanExporter(), TracerProvider(sampler=ALWAYS_OFF)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    box = Toolbox([shout], sinks=[OpenTelemetry(provider, arguments=True)])
    assert box.execute(ToolCall("shout", {"text": "x"})).text == "X"
    assert exporter.get_finished_spans() == ()
    provider.shutdown()


@pytest.mark.parametrize("make", [OpenTelemetry, OpenTelemetryMetrics])
def test_without_the_package_its_extra_is_named(monkeypatch, make):
    for name in ("opentelemetry.trace", "opentelemetry.metrics"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ToolDefinitionError, match=r"pip install 'toolsemble\[otel\]'"):
        make()


def test_calls_are_counted_and_timed_by_the_sink_alone(counts):
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


def test_a_call_is_counted_once_by_each_metrics_object(counts):
    sink, own = OpenTelemetry(meter_provider=counts.provider), InMemoryMetrics()
    inner = Toolbox([Echo()], metrics=sink.metrics)
    outer = Outer(lambda text: inner.execute(ToolCall("echo", {"input": text})).result)
    second = OpenTelemetry(meter_provider=counts.provider)
    second.metrics = own
    Toolbox([outer | Echo()], metrics=own, sinks=[sink, second]).execute(ToolCall("outer_then_echo", {"input": "x"}))
    found = {key[1][1]: value for key, value in counts.points().items() if key[0] == "toolsemble.tool.executions"}
    assert found == {"outer_then_echo": 1, "outer": 1, "echo": 2}
    assert [own.count(name, "success") for name in ("outer_then_echo", "outer", "echo")] == [1, 1, 2]


def test_more_roles_than_are_remembered_are_counted_as_they_are(monkeypatch, counts):
    monkeypatch.setattr("toolsemble.telemetry.meters._MOST_KNOWN", 2)
    metrics = OpenTelemetryMetrics(counts.provider)
    for role in ("first", "second", "third", "first", "third"):
        metrics.increment_success("add", role)
    counted = {dict(key[1:])["gen_ai.agent.name"]: number for key, number in counts.points().items()}
    assert counted == {"first": 2, "second": 1, "third": 2}


def test_metrics_can_be_had_without_spans(counts):
    Toolbox([shout], metrics=OpenTelemetryMetrics(counts.provider)).execute(ToolCall("shout", {"text": "x"}))
    assert set(counts.points().values()) == {1}


async def test_a_run_of_an_agent_and_what_it_asks_its_model_are_spans(traces):
    model = ScriptedModel([ToolCall("shout", {"text": "x"}, "call_1"), "Done"])
    agent = Agent(model, [shout], role="crier", sinks=[OpenTelemetry(traces.provider)])
    await agent.run("Shout!", memory_id="ada")
    run = traces.named("invoke_agent crier")
    first, last = [span for span in traces.spans() if span.name == "chat ScriptedModel"]
    assert (run.kind, run.parent, run.status.status_code) == (SpanKind.INTERNAL, None, StatusCode.UNSET)
    assert attributes_of(run) == {
        names.GEN_AI_OPERATION_NAME: "invoke_agent",
        names.GEN_AI_AGENT_NAME: "crier",
        names.GEN_AI_CONVERSATION_ID: "ada",
        names.GEN_AI_REQUEST_MODEL: "ScriptedModel",
        names.GEN_AI_USAGE_INPUT_TOKENS: 0,
        names.GEN_AI_USAGE_OUTPUT_TOKENS: 0,
        names.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: 0,
        names.GEN_AI_USAGE_CACHE_CREATION_INPUT_TOKENS: 0,
        names.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS: 0,
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


async def test_the_span_of_a_model_has_its_name_and_its_failure(traces):
    class Named(ScriptedModel):
        name = "great-1"

    agent = Agent(Named([ValueError("no such model")]), sinks=[OpenTelemetry(traces.provider), lambda _: None])
    with pytest.raises(AgentExecutionError, match="no such model"):
        await agent.run("Hello")
    assert {span.name: (span.attributes["error.type"], span.status.description) for span in traces.spans()} == {
        "chat great-1": ("ValueError", "no such model"),
        "invoke_agent": ("toolsemble.errors.AgentExecutionError", "no such model"),
    }


async def test_a_model_of_ours_names_its_provider(traces):
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    model = OpenAIModel("great-1", api_key="x", base_url=f"http://127.0.0.1:{port}/v1")
    async with server:
        with pytest.raises(AgentExecutionError):
            await Agent(model, retry=Retry(0), sinks=[OpenTelemetry(traces.provider)]).run("Hello")
    assert traces.named("chat great-1").attributes[names.GEN_AI_PROVIDER_NAME] == "openai"


def set_up(path):
    """Set up the providers of a worker process: its spans go to a file."""
    file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 - open as long as the process
    provider = TracerProvider()
    written = ConsoleSpanExporter(out=file, formatter=lambda span: span.to_json(indent=None) + "\n")
    provider.add_span_processor(SimpleSpanProcessor(written))
    trace.set_tracer_provider(provider)


class Far(Tool):
    """A tool whose body makes a span and a call in whatever process it runs."""

    name = "far"
    description = "Works far away"

    def run(self, input):
        with trace.get_tracer("far").start_as_current_span(IN_BODY):
            Echo().execute(input)
        return f"{baggage.get_baggage('user')}"


def test_a_worker_process_goes_on_with_the_trace(traces, tmp_path):
    path = tmp_path / "spans.jsonl"
    with ProcessPoolExecutor(1, get_context("spawn"), partial(set_up, str(path))) as pool:
        box = Toolbox([Far()], executor=pool, sinks=[OpenTelemetry(traces.provider)])
        token = context.attach(baggage.set_baggage("user", "ada"))
        reply = asyncio.run(box.aexecute(ToolCall("far", {"input": "x"})))
        context.detach(token)
    assert reply.text == "ada"
    (here,) = traces.spans()
    echo, body = [json.loads(line) for line in path.read_text().splitlines()]
    assert (echo["name"], echo["parent_id"]) == ("execute_tool echo", body["context"]["span_id"])
    assert (body["name"], body["parent_id"]) == (IN_BODY, f"0x{here.context.span_id:016x}")
    assert body["context"]["trace_id"] == f"0x{here.context.trace_id:032x}"


class Apart(Far):
    """The same in a process that is there for the tool alone."""

    name = "apart"
    isolation = "process"

    def __init__(self, path):
        self._path = path

    def run(self, input):
        set_up(self._path)
        return super().run(input)


def test_a_tool_that_runs_apart_goes_on_with_the_trace(traces, tmp_path):
    path = tmp_path / "spans.jsonl"
    box = Toolbox([Apart(str(path))], sinks=[OpenTelemetry(traces.provider)])
    box.execute(ToolCall("apart", {"input": "x"}))
    (here,) = traces.spans()
    body = json.loads(path.read_text().splitlines()[-1])
    assert (body["name"], body["parent_id"]) == (IN_BODY, f"0x{here.context.span_id:016x}")


class Leaky(Tool):
    """Logs what it gets in a call of its own, where nothing says that it is secret."""

    name = "leaky"
    description = "Repeats its input"

    def run(self, input):
        raise ValueError(f"cannot use {input}")


@tool
def far_login(password: SecretStr) -> str:
    """Logs in, far away."""
    return Leaky().execute(password.get_secret_value()).text


def test_a_worker_process_knows_what_is_secret(traces, tmp_path):
    path = tmp_path / "spans.jsonl"
    with ProcessPoolExecutor(1, get_context("spawn"), partial(set_up, str(path))) as pool:
        sink = OpenTelemetry(traces.provider, arguments=True, results=True)
        box = Toolbox([far_login], executor=pool, sinks=[sink])
        asyncio.run(box.aexecute(ToolCall("far_login", {"password": "hunter2-and-more"})))
    assert "execute_tool leaky" in path.read_text()
    assert "hunter2" not in path.read_text()


class Sent:
    """A sink that goes along, and sends something that fails on arrival."""

    inline = True

    def emit(self, event):
        pass

    def begin(self, context):
        pass

    def pack(self):
        return partial(int, "no number")


class Alone(Tool):
    name = "alone"
    description = "Repeats its input"

    def run(self, input):
        return input


def test_what_does_not_arrive_in_a_worker_process_does_not_fail_the_call():
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        box = Toolbox([Alone()], executor=pool, sinks=[Sent()])
        assert asyncio.run(box.aexecute(ToolCall("alone", {"input": "x"}))).text == "x"


class Broken:
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
def test_a_sink_that_goes_along_disturbs_nothing(caplog, at, seen):
    sink = Broken(at)
    assert Toolbox([shout], sinks=[sink]).execute(ToolCall("shout", {"text": "x"})).text == "X"
    assert sink.seen == seen
    assert [record.name for record in caplog.records if record.name == "toolsemble.sink"] == ["toolsemble.sink"] * bool(
        at
    )


def test_a_watcher_without_pack_only_receives_events():
    class Told(ScopedWatcher):
        def __init__(self):
            self.seen = []

        def __call__(self, event):
            self.seen.append(event)

    told = Told()
    token = watch(told)
    try:
        assert Toolbox([shout]).execute(ToolCall("shout", {"text": "x"})).text == "X"
        tell("between")
    finally:
        unwatch(token)
    assert told.seen == ["between"]
    assert (told.enter("chat", {}), told.pack(), ScopedWatcher()("nothing")) == (None, None, None)


def test_a_gate_without_a_reviewer_ends_the_span(traces):
    @tool(requires_approval=True)
    def delete() -> str:
        """Deletes."""
        return "gone"

    with pytest.raises(ToolConfigurationError):
        Toolbox([delete], sinks=[OpenTelemetry(traces.provider)]).execute(ToolCall("delete"))
    assert traces.spans()[0].attributes["error.type"] == "toolsemble.errors.ToolConfigurationError"


def test_a_tool_on_its_own_is_not_watched(traces):
    OpenTelemetry(traces.provider)
    assert Echo().execute("x", ToolContext()).text == "x"
    assert traces.spans() == ()
