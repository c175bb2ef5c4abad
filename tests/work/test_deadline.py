"""A call that ends after its deadline has timed out, whatever its outcome."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from helpers import isolated_tools as isolated
from helpers.sample_tools import AsyncFunction, Function
from toolsemble import (
    Agent,
    Cache,
    EffectLedger,
    ExitEarlyError,
    InMemoryMetrics,
    Retries,
    Step,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolExecutionError,
    ToolPipeline,
    ToolResult,
    choose,
    fan_out,
    map_over,
    tool,
)
from toolsemble._engine.definition import Layer
from toolsemble.testing import ScriptedModel

LONG = 60.0
LATE = "Tool '{}' timed out after 60 s"


class Clock:
    """The clock of deadlines, put forward by the test; real timers are too far away to fire."""

    def __init__(self):
        self.offset = 0.0

    def monotonic(self):
        return time.monotonic() + self.offset

    perf_counter = staticmethod(time.perf_counter)

    def strike(self, *_):
        """Let all time that any call has pass at once."""
        self.offset += 10 * LONG


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    for module in ("work.body", "execution.limited_call"):
        monkeypatch.setattr(f"toolsemble._engine.{module}.time", made)
    return made


class DeadlineLayer(Layer):
    """A layer next to the body: the deadline passes when the body has ended."""

    def __init__(self, clock):
        self.clock = clock

    def around(self, definition, value, context, inner):
        try:
            return (yield from inner(context))
        finally:
            self.clock.strike()


def run_sync_and_async(made, given="x"):
    return [made.execute(given), asyncio.run(made.aexecute(given))]


def make_call(name, given="x"):
    return ToolCall(name, {"input": given})


async def echo(text):
    return text


def make_late_tool(clock, outcome="value", kind=AsyncFunction, **settings):
    """A tool whose outcome comes at the deadline."""

    def end(_):
        clock.strike()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def aend(given):
        return end(given)

    return kind(aend if kind is AsyncFunction else end, "slow", timeout=LONG, **settings)


@pytest.mark.parametrize("outcome", ["value", ToolResult.success("value", 5), ToolResult.failure("no")], ids=str)
@pytest.mark.parametrize("kind", [Function, AsyncFunction])
def test_late_value_is_a_timeout(clock, kind, outcome):
    failure = ToolResult.failure(LATE.format("slow"))
    assert run_sync_and_async(make_late_tool(clock, outcome, kind)) == [failure, failure]


@pytest.mark.parametrize("error", [ValueError("boom"), ToolExecutionError("no"), ExceptionGroup("", [OSError("gone")])])
@pytest.mark.parametrize("kind", [Function, AsyncFunction])
def test_late_exception_is_a_timeout(clock, kind, error, caplog):
    failure = ToolResult.failure(LATE.format("slow"))
    assert run_sync_and_async(make_late_tool(clock, error, kind)) == [failure, failure]
    assert f"{LATE.format('slow')}; then it raised {type(error).__name__}: {error}" in caplog.text


@pytest.mark.parametrize("inner", [ExitEarlyError("enough"), ToolConfigurationError("no bank")])
def test_exceptions_for_the_caller_are_raised_after_the_deadline(clock, inner):
    with pytest.raises(type(inner)):
        make_late_tool(clock, inner).execute("x")
    with pytest.raises(type(inner)):
        make_late_tool(clock, ExceptionGroup("", [inner])).execute("x")


def test_result_before_the_deadline_is_unchanged(clock):
    assert [each.output for each in run_sync_and_async(AsyncFunction(echo, timeout=LONG))] == ["x", "x"]
    failing = Function(lambda _: ToolResult.failure("no"), timeout=LONG)
    assert [each.error_message for each in run_sync_and_async(failing)] == ["no", "no"]


def test_late_body_in_another_process_is_a_timeout(clock):
    box = Toolbox([isolated.where], timeout=LONG).around(layer=lambda _: DeadlineLayer(clock))
    assert box.execute(ToolCall("where")).text == f"Error: {LATE.format('where')}"
    assert asyncio.run(box.aexecute(ToolCall("where"))).text == f"Error: {LATE.format('where')}"


def test_body_blocking_its_event_loop_times_out():
    async def block(_):
        while time.monotonic() < slow.context.deadline:
            time.sleep(0.001)  # noqa: ASYNC251 - the mistake that is meant
        return "late"

    slow = AsyncFunction(block, "slow", timeout=0.05)
    failure = ToolResult.failure("Tool 'slow' timed out after 0.05 s")
    assert run_sync_and_async(slow) == [failure, failure]


def test_late_value_emits_timeout_events_and_metrics(clock):
    seen, metrics = [], InMemoryMetrics()
    box = Toolbox([make_late_tool(clock)], sinks=[seen.append], metrics=metrics)
    assert box.execute(make_call("slow")).is_error
    box.flush(LONG)
    assert [event.kind for event in seen] == ["call_started", "call_timed_out", "call_finished"]
    assert seen[-1].outcome == "failure"
    assert (metrics.counter("timeouts", "slow"), metrics.count("slow", "failure")) == (1, 1)
    assert metrics.count("slow", "success") == 0


class TestInsideAnother:
    """The inner call has the deadline of the outer one, and notices first."""

    def test_timeout_of_the_inner_call_fails_the_outer_call(self, clock):
        async def outer(_):
            result = await inner.aexecute("x")
            texts.append(result.text)
            return result.text

        texts, metrics = [], InMemoryMetrics()
        inner = AsyncFunction(make_late_tool(clock).function, "inner")
        around = AsyncFunction(outer, "outer", timeout=LONG)
        for result in (
            around.execute("x", ToolContext(metrics=metrics)),
            asyncio.run(around.aexecute("x", ToolContext(metrics=metrics))),
        ):
            assert result == ToolResult.failure(LATE.format("outer"))
        assert [text.startswith("Error: Tool 'inner' timed out after ") for text in texts] == [True, True]
        assert metrics.counter("timeouts", "outer") == 2

    @pytest.mark.parametrize("outcome", ["text", "result", "raised"])
    def test_body_cannot_hide_the_timeout_of_an_inner_call(self, clock, outcome):
        def outer(_):
            result = inner.execute("x")
            if outcome == "raised":
                raise ToolExecutionError(result.text)
            return result.text if outcome == "text" else result

        inner = Function(make_late_tool(clock, kind=Function).function, "inner")
        assert (
            run_sync_and_async(Function(outer, "outer", timeout=LONG)) == [ToolResult.failure(LATE.format("outer"))] * 2
        )

    def test_timeout_inside_a_nested_toolbox_fails_the_outer_call(self, clock):
        def outer(_):
            return [reply.text for reply in box.execute_all([make_call("inner"), make_call("inner")])]

        box = Toolbox([AsyncFunction(make_late_tool(clock).function, "inner")])
        assert (
            run_sync_and_async(Function(outer, "outer", timeout=LONG)) == [ToolResult.failure(LATE.format("outer"))] * 2
        )

    def test_timeout_inside_a_nested_agent_fails_the_outer_call(self, clock):
        inner = AsyncFunction(make_late_tool(clock).function, "inner")
        helper = Agent(ScriptedModel([[make_call("inner")], "done"]), [inner]).as_tool("helper", "Helps", timeout=LONG)
        assert helper.execute("go") == ToolResult.failure(LATE.format("helper"))

    def test_context_deadline_is_reported_by_the_inner_call(self, clock):
        inner = make_late_tool(clock).function
        context = ToolContext(deadline=clock.monotonic() + LONG)
        result = AsyncFunction(inner, "inner").execute("x", context)
        assert result.error_message.startswith("Tool 'inner' timed out after ")

    def test_deadline_applies_to_inline_bodies(self, clock):
        context = ToolContext(deadline=clock.monotonic() + LONG)
        inline = Function(clock.strike, "inline", inline=True)
        assert inline.execute("x", context).error_message.startswith("Tool 'inline' timed out after ")

    def test_early_timer_waits_until_the_deadline(self, monkeypatch):
        deadline = time.monotonic() + 0.05
        early = SimpleNamespace(now=deadline - 0.02, monotonic=lambda: early.now, perf_counter=time.perf_counter)

        class Nap:
            def __init__(self, seconds):
                self.seconds = seconds

            def do(self):
                early.now += self.seconds

        monkeypatch.setattr("toolsemble._engine.execution.limited_call.time", early)
        monkeypatch.setattr("toolsemble._engine.execution.limited_call.Sleep", Nap)
        result = AsyncFunction(lambda _: asyncio.sleep(LONG), "inner").execute("x", ToolContext(deadline=deadline))
        assert (result.error_message, early.now >= deadline) == ("Tool 'inner' timed out after 0.02 s", True)


class TestPipelines:
    def test_late_step_is_compensated_with_the_others(self, clock):
        undone = []
        steps = [Step(Function(str, "first"), compensate=lambda *_: undone.append("first")), make_late_tool(clock)]
        result = ToolPipeline("line", "", steps, timeout=LONG).execute("x")
        assert (result.error_message, undone) == (LATE.format("line"), ["first"])
        assert [step.name for step in result.attributes["steps"]] == ["first", "slow"]

    def test_late_merge_compensates_its_branches(self, clock):
        undone = []
        part = ToolPipeline("part", "", [Step(Function(str, "first"), compensate=lambda *_: undone.append("first"))])
        both = fan_out(part, Function(str, "second"), merge=lambda _: clock.strike(), name="both", timeout=LONG)
        assert [each.error_message for each in run_sync_and_async(both)] == [LATE.format("both")] * 2
        assert undone == ["first", "first"]

    def test_late_branch_fails_the_pipeline(self, clock):
        both = fan_out(Function(str, "quick"), make_late_tool(clock), name="both", timeout=LONG)
        assert both.execute("x").error_message == LATE.format("both")

    def test_late_item_fails_map_over(self, clock):
        each = map_over(make_late_tool(clock), 1, name="each", timeout=LONG)
        result = each.execute({"items": ["a", "b"]})
        assert result.error_message == LATE.format("each")

    def test_hook_cannot_replace_a_timeout_with_a_success(self, clock):
        undone = []
        part = ToolPipeline("part", "", [Step(Function(str, "first"), compensate=lambda *_: undone.append("first"))])

        def after(call, result, context):
            if call.name == "part":
                clock.strike()
                return ToolResult.success("all is well")
            return None

        chosen = choose(lambda _: True, part, Function(str, "other"), name="chosen", timeout=LONG)
        line = ToolPipeline("line", "", [part], timeout=LONG)
        box = Toolbox([chosen, line], after_call=after)
        texts = [box.execute(make_call(name)).text for name in ("chosen", "line")]
        assert texts == [f"Error: {LATE.format(name)}" for name in ("chosen", "line")]
        assert undone == ["first", "first"]


class TestWhatIsKept:
    """A late result is not cached, and a late effect stays in the ledger."""

    def test_late_result_is_not_cached(self, clock):
        results = []

        @tool(effects="read", timeout=LONG, cache=Cache())
        async def look(city: str) -> str:
            results.append(city)
            if len(results) == 1:
                clock.strike()
            return f"result {len(results)}"

        asked = {"city": "Rome"}
        texts = [look.execute(asked).text for _ in range(3)]
        assert texts == [f"Error: {LATE.format('look')}", "result 2", "result 2"]

    def test_late_effect_is_recorded_as_done(self, clock):
        ledger, orders = EffectLedger(), []

        @tool(effects="irreversible", timeout=LONG, idempotency=True)
        async def pay(order: int) -> str:
            orders.append(order)
            clock.strike()
            return f"paid {order}"

        box = Toolbox([pay], ledger=ledger)
        first, second = (box.execute(ToolCall("pay", {"order": 17}), run_id="r") for _ in range(2))
        assert (first.text, second.text) == (f"Error: {LATE.format('pay')}", "paid 17")
        assert second.result.attributes == {"repeated": True}
        assert (orders, [entry.state for entry in ledger.entries()]) == ([17], ["done"])

    @pytest.mark.parametrize("outcome", ["result", "raised"])
    @pytest.mark.parametrize(("idempotent", "states", "made"), [(False, ["unknown"], 1), (True, [], 1)])
    def test_late_failure_leaves_an_unknown_outcome(self, clock, outcome, idempotent, states, made):
        charged, ledger = [], EffectLedger()

        @tool
        async def charge(order: int) -> str:
            charged.append(order)
            clock.strike()
            return "charged"

        @tool(effects="write", timeout=LONG, idempotency=True, idempotent=idempotent)
        async def pay(order: int) -> object:
            result = await charge.aexecute({"order": order})
            if outcome == "raised":
                raise ToolExecutionError(result.text)
            return result

        reply = Toolbox([pay], ledger=ledger).execute(ToolCall("pay", {"order": 17}), run_id="r")
        assert reply.text == f"Error: {LATE.format('pay')}"
        assert ([entry.state for entry in ledger.entries()], len(charged)) == (states, made)

    def test_timed_out_call_is_not_retried(self, clock):
        slow = make_late_tool(clock, ConnectionError("gone"), effects="read", retries=Retries(3, wait=0, jitter=0))
        metrics = InMemoryMetrics()
        assert slow.execute("x", ToolContext(metrics=metrics)).error_message == LATE.format("slow")
        assert metrics.counter("retries", "slow") == 0
