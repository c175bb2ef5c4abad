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
from toolsemble.events import CallRetried
from toolsemble.observers.watchers import unwatch, watch

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


def retried(*errors, retries=None, **settings):
    body = Flaky(*errors)
    return body, Function(body, retries=retries or Retries(3, **QUICK), **{"effects": "read", **settings})


@pytest.mark.parametrize("error", [ConnectionError("refused"), ConnectionResetError("reset"), TimeoutError("slow")])
def test_a_call_is_made_again_after_an_error_that_may_pass(error):
    body, made = retried(error, error)
    assert made.execute("x") == ToolResult.success("x", attributes={"retries": 2})
    assert body.runs == 3


async def test_so_is_an_async_one():
    body = Flaky(ConnectionError("refused"))
    made = AsyncFunction(body.later, retries=Retries(1, **QUICK), idempotent=True)
    assert await made.aexecute("x") == ToolResult.success("x", attributes={"retries": 1})
    body.errors = [ConnectionError("refused")]
    assert made.execute("x").attributes == {"retries": 1}


def test_a_call_that_succeeds_at_once_says_nothing_of_retries():
    _, made = retried()
    assert made.execute("x") == ToolResult.success("x")


def test_the_last_error_is_the_one_that_counts():
    body, made = retried(*(ConnectionError(f"refused {number}") for number in range(9)))
    assert made.execute("x").error_message == "refused 3"
    assert body.runs == 4


@pytest.mark.parametrize("error", [ValueError("wrong"), OSError("disk"), KeyError("x")])
def test_other_errors_are_not_tried_again(error):
    body, made = retried(error)
    assert not made.execute("x").is_success
    assert body.runs == 1


def test_a_tool_says_which_errors_may_pass():
    for kinds in (OSError, (OSError,), [OSError]):
        body, made = retried(OSError("disk"), retries=Retries(1, on=kinds, **QUICK))
        assert made.execute("x").is_success
        assert body.runs == 2


def test_what_must_reach_the_caller_is_never_tried_again():
    body, made = retried(ExitEarlyError("stop"), retries=Retries(5, on=(Exception,), **QUICK))
    with pytest.raises(ExitEarlyError):
        made.execute("x")
    assert body.runs == 1


def test_a_call_whose_time_is_up_is_never_made_again(clock):
    runs = []

    async def hang(_):
        runs.append(1)
        clock.advance(0.05)
        await asyncio.Event().wait()

    made = AsyncFunction(hang, retries=Retries(5, on=(Exception,), **QUICK), effects="read", timeout=0.05)
    assert made.execute("x").error_message == "Tool 'function' timed out after 0.05 s"
    assert runs == [1]


def test_a_failed_result_is_not_an_error():
    runs = []
    made = Function(lambda _: runs.append(1) or ToolResult.failure("no"), retries=3, effects="read")
    assert (made.execute("x").error_message, runs) == ("no", [1])


def test_a_pause_that_would_end_after_the_deadline_is_not_begun():
    body, made = retried(ConnectionError("refused"), retries=Retries(3, wait=600, longest=600), timeout=30)
    assert made.execute("x").error_message == "refused"
    assert body.runs == 1


async def test_a_pause_can_be_cancelled():
    body, made = retried(ConnectionError("refused"), retries=Retries(3, wait=600, longest=600))
    task = asyncio.create_task(made.aexecute("x"))
    await auntil(lambda: body.runs)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert body.runs == 1


def test_what_is_tried_again_is_counted_logged_and_told(caplog):
    metrics, told = InMemoryMetrics(), []
    _, made = retried(ConnectionError("refused\nforged"))
    token = watch(told.append)
    try:
        with caplog.at_level(logging.INFO, "toolsemble"):
            made.execute("x", ToolContext(metrics=metrics, call_id="c1"))
    finally:
        unwatch(token)
    (event,) = [each for each in told if isinstance(each, CallRetried)]
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
    ],
)
def test_the_delay_doubles_up_to_the_longest_with_some_jitter(settings, least, most):
    _, made = retried(*[ConnectionError("refused")] * 4, retries=Retries(4, **settings))
    told = []
    token = watch(told.append)
    try:
        made.execute("x")
    finally:
        unwatch(token)
    waits = [each.wait for each in told if isinstance(each, CallRetried)]
    assert all(low <= wait <= high for low, wait, high in zip(least, waits, most, strict=True))


def test_any_number_of_retries_has_a_delay():
    body, made = retried(*[ConnectionError("refused")] * 1100, retries=Retries(1100, wait=1e-300, longest=0, jitter=0))
    assert made.execute("x").attributes == {"retries": 1100}
    assert body.runs == 1101


def test_each_try_counts_for_the_rate():
    rate = RateLimit(10)
    _, made = retried(ConnectionError("refused"), rate_limit=rate)
    assert made.execute("x").is_success
    assert len(rate._starts) == 2


@pytest.mark.parametrize("settings", [{}, {"effects": "write"}, {"effects": "irreversible"}])
def test_a_tool_that_may_not_be_called_twice_is_refused(settings):
    with pytest.raises(ToolDefinitionError, match="Tool 'function': retries need a tool that may be called twice"):
        Toolbox([Function(str, retries=1, **settings)])
    assert Toolbox([Function(str, retries=0, **settings)])


@pytest.mark.parametrize(
    ("retries", "told"),
    [
        (lambda: -1, "retries must be an int >= 0, or Retries"),
        (lambda: True, "retries must be an int >= 0, or Retries"),
        (lambda: "3", "retries must be an int >= 0, or Retries"),
        (lambda: Retries(-1), "Retries attempts must be an int >= 0, not -1"),
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
def test_wrong_settings_are_refused(retries, told):
    with pytest.raises(ToolDefinitionError, match=told):
        Toolbox([Function(str, retries=retries(), effects="read")])


def test_a_pipeline_leaves_retries_to_its_steps():
    with pytest.raises(ToolDefinitionError, match="retries need a body; it consists of tools"):
        ToolPipeline("line", "", [Function(str)], retries=1, effects="read")


def test_a_box_makes_calls_again_of_tools_that_may_be_called_twice():
    reads, own, writes = Flaky(), Flaky(), Flaky()
    tools = [
        Function(reads, "reads", effects="read", rate_limit=RateLimit(100)),
        Function(own, "own", effects="read", retries=Retries(1, **QUICK)),
        Function(writes, "writes", effects="write"),
        ToolPipeline("line", "", [Function(str)], effects="read"),
    ]
    box = Toolbox(tools, retries=Retries(2, **QUICK))
    for body in (reads, own, writes):
        body.errors = [ConnectionError("refused")] * 5
    for name in ("reads", "own", "writes"):
        assert box.execute(ToolCall(name, {"input": "x"})).text == "Error: refused"
    assert box.execute(ToolCall("line", {"input": "x"})).text == "x"
    assert [body.runs for body in (reads, own, writes)] == [3, 2, 1]


def test_a_box_makes_steps_again_that_may_be_called_twice():
    reads, writes = Flaky(), Flaky()
    line = ToolPipeline("line", "", [Function(reads, "reads", effects="read"), Function(writes, "writes")])
    box = Toolbox([line], retries=Retries(2, **QUICK))
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
def test_the_effects_are_hints_in_mcp(settings, hints):
    @tool(**settings)
    def work() -> str:
        return ""

    assert Toolbox([work]).to_mcp()[0]["annotations"] == hints


@pytest.mark.parametrize(
    ("settings", "told"),
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
def test_other_settings_are_checked_as_well(settings, told):
    with pytest.raises(ToolDefinitionError, match=told):
        Toolbox([Function(str, **settings)])
