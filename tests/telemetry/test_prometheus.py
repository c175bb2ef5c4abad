import gc
import sys
import threading
import urllib.request
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Counter, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from toolsemble import Agent, Toolbox, ToolCall, ToolContext, ToolDefinitionError, ToolMetrics, ToolResult, tool
from toolsemble.agent import Prices
from toolsemble.events import ModelReplied
from toolsemble.models import AssistantMessage, ChatReply, TokenUsage
from toolsemble.review import AutoReject
from toolsemble.telemetry import PrometheusMetrics
from toolsemble.testing import ScriptedModel


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
    raise ValueError(text)


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture(scope="module")
def servers():
    """Return the list of the servers that the tests start; they end together, for each takes up to half a second."""
    started = []
    yield started
    with ThreadPoolExecutor(len(started) or 1) as pool:
        list(pool.map(lambda each: each[0].shutdown(), started))
    for server, thread in started:
        server.server_close()
        thread.join(20)


@pytest.fixture
def scrape(registry, servers):
    """Return a function that gives the samples of a real scrape over HTTP, but for the times when they were made."""
    server, thread = start_http_server(0, "127.0.0.1", registry)
    servers.append((server, thread))

    def scraped():
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=20) as answer:
            text = answer.read().decode()
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if not sample.name.endswith("_created")
        }

    return scraped


def labels(tool_name, agent_role="unknown", **more):
    return tuple(sorted({"tool_name": tool_name, "agent_role": agent_role, **more}.items()))


def test_scrape_has_outcomes_and_durations(registry, scrape):
    box = Toolbox([shout, fail, crash], metrics=PrometheusMetrics(registry), agent_role="writer")
    for name in ("shout", "shout", "fail", "crash", "nothing"):
        box.execute(ToolCall(name, {"text": "x"}))
    found = scrape()
    assert {key: value for key, value in found.items() if key[0] == "toolsemble_tool_executions_total"} == {
        ("toolsemble_tool_executions_total", *labels("shout", "writer", outcome="success")): 2,
        ("toolsemble_tool_executions_total", *labels("fail", "writer", outcome="failure")): 1,
        ("toolsemble_tool_executions_total", *labels("crash", "writer", outcome="error")): 1,
        ("toolsemble_tool_executions_total", *labels("(unknown)", "writer", outcome="failure")): 1,
    }
    assert found["toolsemble_tool_duration_seconds_count", *labels("shout", "writer")] == 2
    assert found["toolsemble_tool_duration_seconds_bucket", *labels("shout", "writer", le="300.0")] == 2
    assert 0 < found["toolsemble_tool_duration_seconds_sum", *labels("shout", "writer")] < 300


def test_scrape_has_custom_counters_and_values(registry, scrape):
    @tool
    def crawl(pages: int, here: ToolContext) -> str:
        """Crawls."""
        here.metrics.increment_counter("pages", "crawl", "unknown", pages)
        here.metrics.record_value("size", "crawl", "unknown", 1.5)
        here.metrics.record_value("size", "crawl", "unknown", 2.5)
        return "done"

    @tool(requires_approval=True)
    def delete() -> str:
        """Deletes."""
        return "gone"

    box = Toolbox([crawl, delete], metrics=PrometheusMetrics(registry), review=AutoReject())
    box.execute(ToolCall("crawl", {"pages": "3"}))
    box.execute(ToolCall("delete"))
    found = scrape()
    own = {key: value for key, value in found.items() if "executions" not in key[0] and "duration" not in key[0]}
    assert own == {
        ("toolsemble_tool_pages_total", *labels("crawl")): 3,
        ("toolsemble_tool_repairs_total", *labels("crawl")): 1,
        ("toolsemble_tool_denials_total", *labels("delete")): 1,
        ("toolsemble_tool_size_value_count", *labels("crawl")): 2,
        ("toolsemble_tool_size_value_sum", *labels("crawl")): 4,
    }


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("pages", "pages"),
        ("pages_total", "pages"),
        ("pages read/äöü", "pages_read"),
        ("4xx", "n4xx"),
        ('x"} 1\nevil_total{a="', "x_1_evil_total_a"),
        ("executions", "executions_2"),
        ("\ud800", "n82310220"),
        ("x" * 100, "x" * 64 + "_4ee17817"),
    ],
)
def test_hostile_counter_names_are_sanitized(registry, scrape, name, written):
    PrometheusMetrics(registry).increment_counter(name, "crawl", "unknown", 3)
    assert scrape() == {(f"toolsemble_tool_{written}_total", *labels("crawl")): 3}


def test_hostile_labels_are_escaped(registry, scrape):
    role = 'a"b\\c\nd\ud800' + "e" * 200
    PrometheusMetrics(registry).increment_success("shout", role)
    assert scrape() == {
        ("toolsemble_tool_executions_total", *labels("shout", f'a"b\\c\\nd\\ud800{"e" * 92}...', outcome="success")): 1
    }


def test_colliding_metric_names_get_a_suffix(registry, scrape):
    metrics = PrometheusMetrics(registry)
    metrics.record_value("size", "crawl", "unknown", 2.0)
    metrics.increment_counter("size_value", "crawl", "unknown", 3)
    metrics.increment_counter("size_value", "crawl", "unknown", 4)
    assert scrape() == {
        ("toolsemble_tool_size_value_count", *labels("crawl")): 1,
        ("toolsemble_tool_size_value_sum", *labels("crawl")): 2,
        ("toolsemble_tool_size_value_2_total", *labels("crawl")): 7,
    }


def test_negative_increment_is_ignored(registry, scrape, caplog):
    PrometheusMetrics(registry).increment_counter("pages", "crawl", "unknown", -1)
    assert scrape() == {}
    assert "ignored -1 for pages" in caplog.text


def test_excess_roles_and_names_are_grouped_as_other(registry, scrape):
    metrics = PrometheusMetrics(registry)
    for number in range(2_010):
        metrics.increment_success("shout", f"role {number}")
    for number in range(210):
        metrics.increment_counter(f"counter {number}", "shout", "unknown")
    found = scrape()
    assert len(found) == 2_001 + 201
    assert found["toolsemble_tool_executions_total", *labels("(other)", "(other)", outcome="success")] == 10
    assert found["toolsemble_tool_other_total", *labels("shout")] == 10


def test_two_metrics_objects_share_one_registry(registry, scrape):
    first, second = PrometheusMetrics(registry), PrometheusMetrics(registry)
    for metrics in (first, second):
        metrics.increment_success("shout", "unknown")
        metrics.increment_counter("pages", "shout", "unknown")
    assert scrape() == {
        ("toolsemble_tool_executions_total", *labels("shout", outcome="success")): 2,
        ("toolsemble_tool_pages_total", *labels("shout")): 2,
    }


def test_registries_are_independent(registry, scrape):
    PrometheusMetrics(CollectorRegistry()).increment_success("shout", "unknown")
    PrometheusMetrics(registry)
    assert scrape() == {}


def test_counting_is_thread_safe(registry, scrape):
    start = threading.Barrier(8, timeout=20)

    def count():
        start.wait()
        metrics = PrometheusMetrics(registry)
        for number in range(100):
            metrics.increment_counter(f"counter_{number % 10}", "shout", "unknown")

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert set(scrape().values()) == {80}


def test_as_a_sink_it_counts_calls_and_model_requests(registry):
    @tool
    def shout(text: str) -> str:
        """Shout."""
        return text.upper()

    metrics = PrometheusMetrics(registry)
    replies = [ToolCall("shout", {"text": "hi"}), ChatReply("Done", usage=TokenUsage(1000, 500))]
    box = Toolbox([shout], metrics=metrics)
    Agent(ScriptedModel(replies), box, prices=Prices(1000, 2000), sinks=[metrics]).run_sync("go")

    def value(name, **labels):
        return registry.get_sample_value(name, labels)

    found = dict(labels("shout", outcome="success"))
    assert registry.get_sample_value("toolsemble_tool_executions_total", found) == 1
    assert value("toolsemble_model_tokens_total", model="ScriptedModel", type="input") == 1000
    assert value("toolsemble_model_tokens_total", model="ScriptedModel", type="output") == 500
    assert value("toolsemble_model_cost_total", model="ScriptedModel") == 2
    assert value("toolsemble_model_duration_seconds_count", model="ScriptedModel") == 2


def test_rejects_registry_with_conflicting_collectors(registry):
    Counter("toolsemble_tool_executions", "Not ours", registry=registry)
    with pytest.raises(ToolDefinitionError, match=r"has a foreign collector: .*toolsemble_tool_executions"):
        PrometheusMetrics(registry)


def test_uses_the_default_registry():
    PrometheusMetrics().increment_success("shout", "unknown")
    found = dict(labels("shout", outcome="success"))
    assert REGISTRY.get_sample_value("toolsemble_tool_executions_total", found) == 1


def test_unreferenced_registry_is_garbage_collected():
    registry = CollectorRegistry()
    PrometheusMetrics(registry).increment_success("shout", "unknown")
    gone = weakref.ref(registry)
    del registry
    gc.collect()
    assert gone() is None


def test_implements_the_metrics_protocol(registry):
    assert isinstance(PrometheusMetrics(registry), ToolMetrics)


def test_missing_package_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ToolDefinitionError, match=r"pip install .*\[prometheus\]"):
        PrometheusMetrics()


def test_counts_replies_without_tokens(registry):
    PrometheusMetrics(registry).emit(ModelReplied(AssistantMessage("Rome"), model="great-1", duration=2.0))
    assert registry.get_sample_value("toolsemble_model_duration_seconds_sum", {"model": "great-1"}) == 2
    assert registry.get_sample_value("toolsemble_model_tokens_total", {"model": "great-1", "type": "input"}) is None
