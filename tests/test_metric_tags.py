"""Tags of custom metrics, and the user's message inside a tool."""

import pytest

from helpers.isolated_tools import show_user_message
from toolsemble import Agent, InMemoryMetrics, Toolbox, ToolCall, ToolContext, tool
from toolsemble._runtime.metrics import CombinedMetrics
from toolsemble.models import ScriptedModel
from toolsemble.telemetry import PrometheusMetrics


@tool
def scrape(site: str, context: ToolContext) -> str:
    """Scrape a site."""
    context.metrics.increment_counter("pages", "scrape", context.agent_role, 3, tags={"site": site})
    context.metrics.record_value("bytes", "scrape", context.agent_role, 10.0, tags={"site": site})
    return "done"


class OldMetrics:
    """A backend that was written before there were tags."""

    def __init__(self):
        self.calls = []

    def increment_success(self, tool_name, agent_role): ...
    def increment_failure(self, tool_name, agent_role): ...
    def increment_error(self, tool_name, agent_role): ...
    def record_duration(self, tool_name, agent_role, seconds): ...

    def increment_counter(self, name, tool_name, agent_role, amount=1):
        self.calls.append((name, amount))

    def record_value(self, name, tool_name, agent_role, value):
        self.calls.append((name, value))


def test_metrics_in_memory_keep_tags():
    metrics = InMemoryMetrics()
    box = Toolbox([scrape], metrics=metrics)
    for site in ("a", "b", "b"):
        box.execute(ToolCall("scrape", {"site": site}))
    assert metrics.counter("pages", "scrape") == 9
    assert metrics.counter("pages", "scrape", tags={"site": "b"}) == 6
    assert metrics.counter("pages", "scrape", tags={"site": "c"}) == 0
    assert metrics.values("bytes", "scrape", tags={"site": "a"}) == [10.0]
    assert metrics.values("bytes", "scrape") == [10.0] * 3


@pytest.mark.parametrize("combined", [False, True])
def test_metrics_without_tags_still_work(combined):
    old, new = OldMetrics(), InMemoryMetrics()
    reply = Toolbox([scrape], metrics=CombinedMetrics(old, new) if combined else old).execute(
        ToolCall("scrape", {"site": "a"})
    )
    assert reply.text == "done"
    assert old.calls == [("pages", 3), ("bytes", 10.0)]
    assert new.counter("pages", "scrape", tags={"site": "a"}) == (3 if combined else 0)


def test_prometheus_uses_tags_as_labels():
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry)
    metrics.increment_counter("pages", "scrape", "unknown", 2, {"site": "a", "tool": "x", "a b": "1", "a_b": "2"})
    metrics.increment_counter("pages", "scrape", "unknown", 1, {"site": "b", "other": "left out"})
    metrics.increment_counter("pages", "scrape", "unknown", 1)
    lines = [line for line in generate_latest(registry).decode().splitlines() if "pages_total{" in line]
    assert len(lines) == 3
    assert 'site="a"' in lines[0]
    assert "left out" not in "".join(lines)


def test_prometheus_bounds_the_values_of_tags():
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry)
    for number in range(2_100):
        metrics.increment_counter("pages", "scrape", "unknown", 1, {"site": str(number)})
    lines = [line for line in generate_latest(registry).decode().splitlines() if "pages_total{" in line]
    assert len(lines) <= 2_002
    assert any('site="(other)"' in line for line in lines)


@tool
def show(context: ToolContext) -> str:
    """Show what the user wrote."""
    return "nothing" if context.user_message is None else context.user_message.text


def test_tool_sees_the_message_of_the_user():
    agent = Agent(ScriptedModel([ToolCall("show"), ToolCall("show"), "done"]), [show])
    assert [record.reply.text for record in agent.run_sync("Hello!").tool_calls] == ["Hello!", "Hello!"]


def test_there_is_no_message_outside_of_an_agent():
    assert Toolbox([show]).execute(ToolCall("show")).text == "nothing"
    assert ToolContext().user_message is None


def test_nested_agent_has_its_own_message():
    inner = Agent(ScriptedModel([ToolCall("show"), lambda messages: messages[-1].text]), [show], role="inner")
    script = [ToolCall("ask", {"input": "Look!"}), ToolCall("show"), "done"]
    outer = Agent(ScriptedModel(script), [inner.as_tool("ask", "Ask."), show])
    assert [record.reply.text for record in outer.run_sync("Hello!").tool_calls] == ["Look!", "Hello!"]


def test_worker_process_gets_the_text():
    agent = Agent(ScriptedModel([ToolCall("show_user_message"), "done"]), [show_user_message])
    assert [record.reply.text for record in agent.run_sync("Hello!").tool_calls] == ["Hello!"]
