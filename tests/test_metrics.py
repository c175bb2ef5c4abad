import threading

import pytest

from toolsemble import InMemoryMetrics, SilentMetrics, ToolMetrics
from toolsemble._runtime.metrics import CombinedMetrics, combine_metrics


@pytest.mark.parametrize("metrics", [InMemoryMetrics(), SilentMetrics()])
def test_metrics_implement_the_protocol(metrics):
    assert isinstance(metrics, ToolMetrics)


def test_outcomes_are_counted_by_tool_and_role():
    metrics = InMemoryMetrics()
    metrics.increment_success("a", "writer")
    metrics.increment_success("a", "reader")
    metrics.increment_failure("a", "writer")
    metrics.increment_error("b", "writer")
    assert metrics.count("a", "success") == 2
    assert metrics.count("a", "success", "writer") == 1
    assert metrics.count("a", "failure", "writer") == 1
    assert metrics.count("a", "failure", "reader") == 0
    assert metrics.count("a", "error") == 0
    assert metrics.count("b", "error") == 1
    assert metrics.count("unknown", "success") == 0


def test_durations_counters_and_values_can_be_read_back():
    metrics = InMemoryMetrics()
    metrics.record_duration("a", "writer", 0.5)
    metrics.record_duration("a", "writer", 0.25)
    metrics.increment_counter("pages", "a", "writer")
    metrics.increment_counter("pages", "a", "reader", 4)
    metrics.record_value("size", "a", "writer", 1.5)
    assert metrics.durations("a") == [0.5, 0.25]
    assert metrics.durations("b") == []
    assert metrics.counter("pages", "a") == 5
    assert metrics.counter("pages", "a", "reader") == 4
    assert metrics.values("size", "a") == [1.5]
    assert metrics.values("size", "b") == []


def test_returned_lists_are_copies():
    metrics = InMemoryMetrics()
    metrics.durations("a").append(1.0)
    assert metrics.durations("a") == []


def test_silent_metrics_ignore_everything():
    metrics = SilentMetrics()
    metrics.increment_success("a", "r")
    metrics.increment_failure("a", "r")
    metrics.increment_error("a", "r")
    metrics.record_duration("a", "r", 1.0)
    metrics.increment_counter("n", "a", "r", 2)
    metrics.record_value("n", "a", "r", 1.0)


def test_counting_is_thread_safe():
    metrics = InMemoryMetrics()
    start = threading.Barrier(8, timeout=30)

    def count():
        start.wait()
        for _ in range(1000):
            metrics.increment_success("a", "r")

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert metrics.count("a", "success") == 8000


def test_combined_metrics_are_all_called_if_one_raises():
    class Broken(SilentMetrics):
        def increment_success(self, tool_name, agent_role):
            raise ValueError("down")

    first, last = InMemoryMetrics(), InMemoryMetrics()
    several = CombinedMetrics(first, Broken(), last)
    with pytest.raises(ValueError, match="down"):
        several.increment_success("a", "writer")
    several.increment_failure("a", "writer")
    several.increment_error("a", "writer")
    several.record_duration("a", "writer", 0.5)
    several.increment_counter("pages", "a", "writer", 4)
    several.record_value("size", "a", "writer", 1.5)
    for metrics in (first, last):
        assert [metrics.count("a", outcome) for outcome in ("success", "failure", "error")] == [1, 1, 1]
        assert (metrics.durations("a"), metrics.counter("pages", "a"), metrics.values("size", "a")) == ([0.5], 4, [1.5])


def test_metrics_are_combined_once():
    first, second, third = InMemoryMetrics(), InMemoryMetrics(), InMemoryMetrics()
    assert combine_metrics(SilentMetrics(), first) is first
    assert combine_metrics(first, first) is first
    both = combine_metrics(first, second)
    assert combine_metrics(both, second) is both
    assert combine_metrics(both, third).parts == (first, second, third)
