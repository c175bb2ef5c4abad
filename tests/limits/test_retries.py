"""Calls that are made again."""

import asyncio
import logging

import pytest

from helpers.sample_tools import AsyncFunction, Function
from helpers.wait import auntil
from toolsemble import (
    ExitEarlyError,
    InMemoryMetrics,
    RateLimit,
    Retries,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolDefinitionError,
    ToolPipeline,
    ToolResult,
    tool,
)
from toolsemble._runtime.watchers import unwatch, watch
from toolsemble.events import CallRetried

QUICK = {"wait": 0.001, "jitter": 0.001}


class Flaky:
    """A body that raises some errors, and then succeeds."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.runs = 0

    def __call__(self, text):
        self.runs += 1
        if self.errors:
            raise self.errors.pop(0)
        return text

    async def later(self, text):
        return self(text)


def make_flaky_tool(*errors, retries=None, **settings):
    body = Flaky(*errors)
    return body, Function(body, retries=retries or Retries(4, **QUICK), **{"effects": "read", **settings})


@pytest.mark.parametrize("error", [ConnectionError("refused"), ConnectionResetError("reset"), TimeoutError("slow")])
def test_retries_after_transient_errors(error):
    body, made = make_flaky_tool(error, error)
    assert made.execute("x") == ToolResult.success("x", attributes={"retries": 2})
    assert body.runs == 3


async def test_retries_async_calls():
    body = Flaky(ConnectionError("refused"))
    made = AsyncFunction(body.later, retries=Retries(2, **QUICK), idempotent=True)
    assert await made.aexecute("x") == ToolResult.success("x", attributes={"retries": 1})
    body.errors = [ConnectionError("refused")]
    assert made.execute("x").attributes == {"retries": 1}


def test_no_retries_attribute_without_retries():
    _, made = make_flaky_tool()
    assert made.execute("x") == ToolResult.success("x")


def test_last_error_is_reported():
    body, made = make_flaky_tool(*(ConnectionError(f"refused {number}") for number in range(9)))
    assert made.execute("x").error_message == "refused 3"
    assert body.runs == 4


@pytest.mark.parametrize("error", [ValueError("wrong"), OSError("disk"), KeyError("x")])
def test_other_errors_are_not_retried(error):
    body, made = make_flaky_tool(error)
    assert not made.execute("x").is_success
    assert body.runs == 1


def test_on_selects_the_errors_to_retry():
    for kinds in (OSError, (OSError,), [OSError]):
        body, made = make_flaky_tool(OSError("disk"), retries=Retries(2, on=kinds, **QUICK))
        assert made.execute("x").is_success
        assert body.runs == 2


def test_exceptions_for_the_caller_are_not_retried():
    body, made = make_flaky_tool(ExitEarlyError("stop"), retries=Retries(6, on=(Exception,), **QUICK))
    with pytest.raises(ExitEarlyError):
        made.execute("x")
    assert body.runs == 1


def test_timed_out_call_is_not_retried(clock):
    runs = []

    async def hang(_):
        runs.append(1)
        clock.advance(0.05)
        await asyncio.Event().wait()

    made = AsyncFunction(hang, retries=Retries(6, on=(Exception,), **QUICK), effects="read", timeout=0.05)
    assert made.execute("x").error_message == "Tool 'function' timed out after 0.05 s"
    assert runs == [1]


def test_failed_result_is_not_retried():
    runs = []
    made = Function(lambda _: runs.append(1) or ToolResult.failure("no"), retries=3, effects="read")
    assert (made.execute("x").error_message, runs) == ("no", [1])


def test_no_retry_after_the_deadline():
    body, made = make_flaky_tool(ConnectionError("refused"), retries=Retries(4, wait=600, longest=600), timeout=30)
    assert made.execute("x").error_message == "refused"
    assert body.runs == 1


async def test_delay_can_be_cancelled():
    body, made = make_flaky_tool(ConnectionError("refused"), retries=Retries(4, wait=600, longest=600))
    task = asyncio.create_task(made.aexecute("x"))
    await auntil(lambda: body.runs)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert body.runs == 1


def test_retries_are_counted_logged_and_emitted(caplog):
    metrics, events = InMemoryMetrics(), []
    _, made = make_flaky_tool(ConnectionError("refused\nforged"))
    token = watch(events.append)
    try:
        with caplog.at_level(logging.INFO, "toolsemble"):
            made.execute("x", ToolContext(metrics=metrics, call_id="c1"))
    finally:
        unwatch(token)
    (event,) = [each for each in events if isinstance(each, CallRetried)]
    assert event == CallRetried("function", "c1", 1, event.wait, "refused\nforged")
    assert (metrics.counter("retries", "function"), metrics.count("function", "success")) == (1, 1)
    assert "failed (refused\\nforged); retry 1 in " in caplog.text


@pytest.mark.parametrize(
    ("settings", "least", "most"),
    [
        ({"wait": 0.001, "jitter": 0}, [0.001, 0.002, 0.004, 0.008], [0.001, 0.002, 0.004, 0.008]),
        ({"wait": 0.001, "longest": 0.003, "jitter": 0}, [0.001, 0.002, 0.003, 0.003], [0.001, 0.002, 0.003, 0.003]),
        ({"wait": 0.001, "jitter": 0.002}, [0.001, 0.002, 0.004, 0.008], [0.003, 0.004, 0.006, 0.010]),
        ({"wait": 0.001, "longest": 0.001, "jitter": 600}, [0.001] * 4, [0.001] * 4),
        ({"wait": 0.001}, [0.001, 0.002, 0.004, 0.008], [0.002, 0.003, 0.005, 0.009]),
        ({"wait": 0}, [0] * 4, [0] * 4),
    ],
)
def test_delay_doubles_up_to_the_longest_with_jitter(settings, least, most):
    _, made = make_flaky_tool(*[ConnectionError("refused")] * 4, retries=Retries(5, **settings))
    events = []
    token = watch(events.append)
    try:
        made.execute("x")
    finally:
        unwatch(token)
    waits = [each.wait for each in events if isinstance(each, CallRetried)]
    assert all(low <= wait <= high for low, wait, high in zip(least, waits, most, strict=True))


def test_delay_does_not_overflow_with_many_retries():
    body, made = make_flaky_tool(
        *[ConnectionError("refused")] * 1100, retries=Retries(1101, wait=1e-300, longest=0, jitter=0)
    )
    assert made.execute("x").attributes == {"retries": 1100}
    assert body.runs == 1101


def test_each_attempt_counts_for_the_rate():
    rate = RateLimit(10)
    _, made = make_flaky_tool(ConnectionError("refused"), rate_limit=rate)
    assert made.execute("x").is_success
    assert len(rate._starts) == 2


@pytest.mark.parametrize("settings", [{}, {"effects": "write"}, {"effects": "irreversible"}])
def test_rejects_retries_of_tools_that_are_not_idempotent(settings):
    with pytest.raises(ToolDefinitionError, match="Tool 'function': retries need a tool that may be called twice"):
        Toolbox([Function(str, retries=1, **settings)])
    assert Toolbox([Function(str, retries=0, **settings)])


@pytest.mark.parametrize(
    ("retries", "message"),
    [
        (lambda: -1, "retries must be an int >= 0, or Retries"),
        (lambda: True, "retries must be an int >= 0, or Retries"),
        (lambda: "3", "retries must be an int >= 0, or Retries"),
        (lambda: Retries(-1), r"Retries attempts \(including the first\) must be an int >= 0, not -1"),
        (lambda: Retries(wait=-1), "Retries wait must be a number of seconds >= 0, not -1"),
        (lambda: Retries(longest=float("inf")), "Retries longest must be a number of seconds >= 0, not inf"),
        (lambda: Retries(on=(int,)), "Retries on must be exception classes, not <class 'int'>"),
        (
            lambda: Retries(on=(KeyboardInterrupt,)),
            "Retries on must be exception classes, not <class 'Key",
        ),
        (lambda: Retries(on="OSError"), "Retries on must be exception classes, not 'OSError'"),
    ],
)
def test_rejects_invalid_settings(retries, message):
    with pytest.raises(ToolDefinitionError, match=message):
        Toolbox([Function(str, retries=retries(), effects="read")])


def test_rejects_retries_of_a_pipeline():
    with pytest.raises(ToolDefinitionError, match="retries need a body; it consists of tools"):
        ToolPipeline("line", "", [Function(str)], retries=1, effects="read")


def test_toolbox_retries_only_idempotent_tools():
    reads, own, writes = Flaky(), Flaky(), Flaky()
    tools = [
        Function(reads, "reads", effects="read", rate_limit=RateLimit(100)),
        Function(own, "own", effects="read", retries=Retries(2, **QUICK)),
        Function(writes, "writes", effects="write"),
        ToolPipeline("line", "", [Function(str)], effects="read"),
    ]
    box = Toolbox(tools, retries=Retries(3, **QUICK))
    for body in (reads, own, writes):
        body.errors = [ConnectionError("refused")] * 5
    for name in ("reads", "own", "writes"):
        assert box.execute(ToolCall(name, {"input": "x"})).text == "Error: refused"
    assert box.execute(ToolCall("line", {"input": "x"})).text == "x"
    assert [body.runs for body in (reads, own, writes)] == [3, 2, 1]


def test_toolbox_retries_only_idempotent_steps():
    reads, writes = Flaky(), Flaky()
    line = ToolPipeline("line", "", [Function(reads, "reads", effects="read"), Function(writes, "writes")])
    box = Toolbox([line], retries=Retries(3, **QUICK))
    for body in (reads, writes):
        body.errors = [ConnectionError("refused")] * 2
    assert box.execute(ToolCall("line", {"input": "x"})).text == "Error: Step 'writes' raised: refused"
    assert [body.runs for body in (reads, writes)] == [3, 1]


@pytest.mark.parametrize(
    ("settings", "hints"),
    [
        ({"effects": "read"}, {"readOnlyHint": True}),
        ({"effects": "write"}, {"readOnlyHint": False, "destructiveHint": False}),
        ({"effects": "irreversible"}, {"readOnlyHint": False, "destructiveHint": True}),
        (
            {"effects": "write", "idempotent": True},
            {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True},
        ),
        ({"idempotent": True}, {"idempotentHint": True}),
        ({"effects": "read", "metadata": {"readOnlyHint": False}}, {"readOnlyHint": False}),
    ],
)
def test_effects_become_mcp_hints(settings, hints):
    @tool(**settings)
    def work() -> str:
        return ""

    assert Toolbox([work]).to_mcp()[0]["annotations"] == hints


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"effects": "maybe"}, "effects must be one of 'read', 'write', 'irreversible', None, not 'maybe'"),
        ({"effects": True}, "effects must be one of"),
        ({"idempotent": 1}, "idempotent must be one of True, False, not 1"),
        ({"polling": "yes"}, "polling must be one of True, False, not 'yes'"),
        ({"isolation": "vm"}, "isolation must be one of 'thread', 'process', not 'vm'"),
        ({"inline": 1}, "Tool 'function': inline must be True or False, not 1"),
        ({"strict": "yes"}, "Tool 'function': strict must be True, False or None, not 'yes'"),
        (
            {"return_behavior": "IMMEDIATE"},
            "return_behavior must be a ReturnBehavior, such as ReturnBehavior.IMMEDIATE, not 'IMMEDIATE'",
        ),
        ({"metadata": 5}, "Tool 'function': metadata must be a mapping or None, not 5"),
        ({"max_output": -1}, "max_output must be an int >= 0, not -1"),
    ],
)
def test_rejects_invalid_tool_settings(settings, message):
    with pytest.raises(ToolDefinitionError, match=message):
        Toolbox([Function(str, **settings)])


@pytest.mark.parametrize(("retries", "runs"), [(Retries(3, **QUICK), 3), (Retries(1), 1), (Retries(0), 1), (0, 1)])
def test_attempts_include_the_first(retries, runs):
    count = []

    @tool(effects="read", retries=retries)
    def fetch() -> str:
        count.append(1)
        raise ConnectionError("refused")

    assert fetch.execute({}).error_message == "refused"
    assert len(count) == runs
