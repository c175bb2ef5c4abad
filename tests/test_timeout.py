"""Calls that end when their time is up."""

import asyncio
import contextlib
import contextvars
import copy
import gc
import logging
import threading
import time
import weakref

import pytest

from tools import AsyncFunction, Function, Plain
from toolsemble import (
    Agent,
    ErrorStrategy,
    ExitEarlyError,
    InMemoryMetrics,
    Step,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolDefinitionError,
    ToolPipeline,
    ToolResult,
    fan_out,
    tool,
)
from toolsemble.limits import TABLE
from toolsemble.review import Continue
from toolsemble.testing import CallbackReview, ScriptedModel
from toolsemble.workers import GRACE, sweep
from waiting import auntil, until

SHORT = 0.05
LONG = 60.0


class Gate:
    """Something that blocks a body until the test has seen enough, and lets time pass meanwhile."""

    def __init__(self, clock):
        self.clock = clock
        self.opened = threading.Event()
        self.ended = threading.Semaphore(0)

    def __call__(self, _input=None):
        while not self.opened.wait(0.001):
            self.clock.advance(SHORT)
        self.ended.release()
        return "late"


@pytest.fixture
def gate(clock):
    made = Gate(clock)
    yield made
    made.opened.set()


async def hang(_=None):
    await asyncio.Event().wait()


async def soon(text):
    await asyncio.sleep(0)
    return text


@pytest.fixture
def late(clock):
    """Return an async body that goes on until its time is up."""

    async def run(_=None):
        clock.advance(1)
        await hang()

    return run


def calls(*names):
    return [ToolCall(name, {"input": "x"}) for name in names]


def both_ways(tool, context):
    """The result of a sync and of an async call."""
    return [tool.execute("x", context), asyncio.run(tool.aexecute("x", context))]


@pytest.mark.parametrize(("seconds", "told"), [(SHORT, "0.05"), (0.1, "0.1")])
def test_an_async_body_is_cancelled_when_its_time_is_up(seconds, told, late):
    ended, metrics = [], InMemoryMetrics()

    async def run(_):
        try:
            await late()
        finally:
            ended.append(True)

    slow = AsyncFunction(run, "slow", timeout=seconds)
    failure = ToolResult.failure(f"Tool 'slow' timed out after {told} s")
    assert both_ways(slow, ToolContext(metrics=metrics)) == [failure, failure]
    assert ended == [True, True]
    assert metrics.counter("timeouts", "slow") == 2
    assert metrics.count("slow", "failure") == 2
    assert metrics.counter("abandoned_tasks", "slow") == 0


def test_a_blocking_body_is_left_behind_counted_and_logged(gate, caplog):
    metrics = InMemoryMetrics()
    slow = Function(gate, "slow", timeout=SHORT)
    failure = ToolResult.failure("Tool 'slow' timed out after 0.05 s")
    with caplog.at_level(logging.WARNING, "toolsemble"):
        assert both_ways(slow, ToolContext(metrics=metrics)) == [failure, failure]
    assert metrics.counter("abandoned_threads", "slow") == 2
    assert caplog.text.count("The body of 'slow' goes on in a thread, which nobody can stop") == 2


def test_what_ends_in_time_gives_what_it_gives():
    def fail(_):
        raise ValueError("boom")

    async def afail(_):
        raise TimeoutError("its own")

    for made in (Function(str, timeout=LONG), Function(str, timeout=LONG, inline=False)):
        assert [each.output for each in both_ways(made, None)] == ["x", "x"]
    assert [each.error_message for each in both_ways(Function(fail, timeout=LONG), None)] == ["boom", "boom"]
    assert [each.error_message for each in both_ways(AsyncFunction(afail, timeout=LONG), None)] == ["its own"] * 2


def test_an_async_body_that_ignores_its_cancellation_is_left_behind(caplog, clock, late):
    async def stubborn(_):
        clock.advance(SHORT)
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                clock.advance(GRACE)

    metrics = InMemoryMetrics()
    bad = AsyncFunction(stubborn, "bad", timeout=SHORT)
    box = Toolbox([bad, AsyncFunction(late, "slow", timeout=SHORT)], metrics=metrics, max_concurrency=1)
    with caplog.at_level(logging.WARNING, "toolsemble"):
        texts = [box.execute(each).text for each in calls("bad", "slow")]
        texts += [reply.text for reply in box.execute_all(calls("bad"))]
        texts += [asyncio.run(box.aexecute(each)).text for each in calls("bad")]
    assert texts == [f"Error: Tool '{name}' timed out after 0.05 s" for name in ("bad", "slow", "bad", "bad")]
    assert metrics.counter("abandoned_tasks", "bad") == 3
    assert "The body of 'bad' was cancelled, and goes on" in caplog.text
    sweep()
    assert not TABLE._held  # their event loops are closed: they can never go on
    gc.collect()


async def test_what_is_left_behind_holds_its_place_until_it_ends(clock):
    opened = asyncio.Event()

    async def run(_):
        clock.advance(SHORT)
        while not opened.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await opened.wait()
        return "late"

    box = Toolbox([AsyncFunction(run, timeout=SHORT)], max_concurrency=1)
    with clock.running():  # until its cancellation was ignored for long enough
        assert (await box.aexecute(*calls("function"))).is_error
        assert (await box.aexecute(*calls("function"))).is_error  # it timed out in the queue, and never ran
    assert TABLE._held
    opened.set()
    await auntil(lambda: not TABLE._held)


def test_a_thread_that_is_left_behind_holds_its_place_until_it_ends(gate):
    metrics = InMemoryMetrics()
    box = Toolbox([Function(gate, timeout=SHORT, resources=lambda _: "file")], metrics=metrics, max_concurrency=1)
    assert box.execute(*calls("function")).is_error
    assert box.execute(*calls("function")).is_error  # it timed out in the queue, and never ran
    assert metrics.counter("abandoned_threads", "function") == 1
    gate.opened.set()
    gate.ended.acquire(timeout=LONG)
    until(lambda: not TABLE._held)


def test_a_job_that_never_began_is_not_one_that_was_left_behind(gate):
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - only here

    metrics = InMemoryMetrics()
    with ThreadPoolExecutor(1) as pool:
        box = Toolbox([Function(gate, timeout=SHORT)], executor=pool, metrics=metrics)
        replies = box.execute_all(calls("function", "function"))
        gate.opened.set()
    assert [reply.is_error for reply in replies] == [True, True]
    assert metrics.counter("abandoned_threads", "function") == 1


def test_a_body_sees_the_variables_and_the_context_of_its_caller():
    variable = contextvars.ContextVar("variable", default="nobody's")
    token = variable.set("mine")
    try:
        made = Function(lambda _: (variable.get(), made.context.agent_role), timeout=LONG)
        amade = AsyncFunction(lambda _: asyncio.sleep(0, (variable.get(), amade.context.agent_role)), timeout=LONG)
        outputs = [
            each.structured_output
            for tool in (made, amade)
            for each in both_ways(tool, ToolContext(agent_role="writer"))
        ]
    finally:
        variable.reset(token)
    assert outputs == [("mine", "writer")] * 4


def test_a_sync_function_that_gives_something_to_await_is_cancelled_too(late):
    made = Function(late, "slow", timeout=SHORT)
    failure = ToolResult.failure("Tool 'slow' timed out after 0.05 s")
    assert both_ways(made, None) == [failure, failure]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ExitEarlyError])
def test_what_must_reach_the_caller_does(error):
    def run(_):
        raise error

    async def arun(_):
        raise error

    for made in (Function(run, timeout=LONG), AsyncFunction(arun, timeout=LONG)):
        with pytest.raises(error):
            made.execute("x")
        with pytest.raises(error):
            asyncio.run(made.aexecute("x"))


async def test_cancelling_a_call_cancels_its_body():
    begun, ended = asyncio.Event(), asyncio.Event()

    async def run(_):
        begun.set()
        try:
            await hang()
        finally:
            ended.set()

    task = asyncio.create_task(AsyncFunction(run, timeout=LONG).aexecute("x"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_cancelling_a_call_leaves_its_thread_behind(gate):
    metrics = InMemoryMetrics()
    begun = threading.Event()
    made = Function(lambda _: begun.set() or gate(), timeout=LONG)
    task = asyncio.create_task(made.aexecute("x", ToolContext(metrics=metrics)))
    assert await asyncio.to_thread(begun.wait, LONG)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert metrics.counter("abandoned_threads", "function") == 1


async def test_each_call_of_a_cancelled_run_still_has_its_reply():
    begun = []
    slow = AsyncFunction(lambda _: begun.append(True) or hang(), "slow", timeout=LONG)
    task = asyncio.create_task(Agent(ScriptedModel([calls("slow", "slow"), "done"]), [slow]).run("go"))
    await auntil(lambda: len(begun) == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert len(caught.value.partial.tool_calls) == 2


def test_an_interrupt_of_the_caller_leaves_the_body_behind(gate, monkeypatch):
    def interrupt(future, _):
        until(future.running)
        raise KeyboardInterrupt

    metrics = InMemoryMetrics()
    monkeypatch.setattr("toolsemble.bounded.wait_until", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Function(gate, timeout=LONG).execute("x", ToolContext(metrics=metrics))
    assert metrics.counter("abandoned_threads", "function") == 1


def test_a_deadline_that_has_passed_runs_nothing():
    ran = []
    made = Function(ran.append, "late")
    result = made.execute("x", ToolContext(deadline=time.monotonic() - 1))
    assert (result.error_message, ran) == ("Tool 'late' timed out after 0 s", [])


def test_tools_inside_tools_inherit_the_deadline(late):
    async def inner(_):
        deadlines.append(nested.context.deadline)
        await late()

    async def outer(_):
        deadlines.append(around.context.deadline)
        return (await nested.aexecute("x")).text

    deadlines = []
    nested, around = AsyncFunction(inner, "inner"), AsyncFunction(outer, "outer", timeout=SHORT)
    assert around.execute("x").error_message == "Tool 'outer' timed out after 0.05 s"
    assert len(set(deadlines)) == 1
    later = AsyncFunction(inner, "later", timeout=LONG)
    wrapped = AsyncFunction(lambda _: later.aexecute("x"), "wrapped", timeout=SHORT)
    assert wrapped.execute("x").is_success is False


@pytest.mark.parametrize("strategy", ErrorStrategy)
def test_a_pipeline_ends_with_its_time(strategy, late):
    ran = []
    steps = [Function(str, "first"), AsyncFunction(late, "second"), Function(ran.append, "third")]
    line = ToolPipeline("line", "", steps, strategy, timeout=SHORT)
    for result in both_ways(line, None):
        assert result.error_message == "Tool 'line' timed out after 0.05 s"
        assert [step.name for step in result.attributes["steps"]][:2] == ["first", "second"]
    assert ran == []


def test_what_a_pipeline_began_is_undone_also_when_its_time_is_up(late):
    undone = []
    steps = [
        Step(Function(str, "first"), compensate=lambda *_: undone.append("by a function")),
        Step(Function(str, "second"), compensate=Function(undone.append, "undo")),
        AsyncFunction(late, "third"),
    ]
    result = ToolPipeline("line", "", steps, timeout=SHORT).execute("x")
    assert result.error_message == "Tool 'line' timed out after 0.05 s"
    assert len(undone) == len(result.attributes["undone"]) == 2


def test_copies_of_a_tool_share_what_they_say_the_same_about():
    first = Function(str, max_concurrency=1)
    shared = first._define().policy
    second = copy.copy(first)
    assert second._define().policy is shared
    second.timeout = 5
    assert second._define().policy.timeout == 5
    assert first._define().policy is shared


def test_branches_end_with_the_time_of_the_whole():
    both = fan_out(AsyncFunction(hang, "one"), AsyncFunction(hang, "two"), name="both", timeout=SHORT)
    failure = "Tool 'both' timed out after 0.05 s"
    assert [each.error_message for each in both_ways(both, None)] == [failure, failure]


def test_an_agent_as_a_tool_ends_with_its_time(late):
    inner = Agent(ScriptedModel([calls("slow"), "done"]), [AsyncFunction(late, "slow")])
    helper = inner.as_tool("helper", "Helps", timeout=0.2)
    assert helper.execute("go").error_message == "Tool 'helper' timed out after 0.2 s"


def test_a_box_has_a_timeout_for_tools_that_say_nothing(late, gate):
    class Own(Plain):
        timeout = 0.1

        def execute(self, _):
            return gate()

    inline = Function(str, "inline", inline=True)
    box = Toolbox([AsyncFunction(late, "slow"), inline, AsyncFunction(late, "own", timeout=0.15), Own()], timeout=SHORT)
    texts = [box.execute(each).text for each in calls("slow", "inline", "own", "plain")]
    assert texts == [
        "Error: Tool 'slow' timed out after 0.05 s",
        "x",
        "Error: Tool 'own' timed out after 0.15 s",
        "Error: Tool 'plain' timed out after 0.1 s",
    ]


def test_a_plain_object_may_use_the_names_for_something_else():
    class Own(Plain):
        timeout = "30s"
        effects = ["echo", "reverb"]  # noqa: RUF012 - the object is somebody else's
        rate_limit = 5
        idempotent = "yes"

    assert Toolbox([Own()]).execute(*calls("plain")).text == "x"


def test_a_step_that_never_blocks_runs_inline_also_under_a_deadline():
    threads = []
    inline = Function(lambda _: threads.append(threading.current_thread()), inline=True)
    for _ in both_ways(inline, ToolContext(deadline=time.monotonic() + LONG)):
        assert threads.pop() is threading.main_thread() is threading.current_thread()


@pytest.mark.parametrize("seconds", [0, -1, "5", True, float("inf"), float("nan")])
def test_what_is_no_timeout_is_refused(seconds):
    with pytest.raises(ToolDefinitionError, match="Tool 'function': timeout must be a number of seconds above 0, not"):
        Toolbox([Function(str, timeout=seconds)])
    with pytest.raises(ToolDefinitionError, match="Toolbox: timeout must be a number of seconds above 0, not"):
        Toolbox([], timeout=seconds)


def test_a_timeout_that_cannot_be_kept_is_refused():
    with pytest.raises(ToolDefinitionError, match="timeout cannot be kept by a sync body that is inline"):
        Toolbox([Function(str, timeout=5, inline=True)])
    assert Toolbox([AsyncFunction(hang, timeout=5, inline=True)])


def test_a_timeout_of_many_years_is_no_problem():
    for made in (Function(str, timeout=1e12), AsyncFunction(soon, timeout=1e12)):
        assert [each.output for each in both_ways(made, None)] == ["x", "x"]


def test_so_is_a_reviewer_who_has_many_years():
    def take_time(request):
        threading.Event().wait(SHORT)
        return Continue()

    made = Function(str, requires_approval=True, approval_timeout=1e12)
    context = ToolContext(review=CallbackReview(take_time))
    assert [each.output for each in both_ways(made, context)] == ["x", "x"]


@pytest.mark.usefixtures("impatient")
def test_so_is_a_sink_that_is_waited_for_so_long():
    opened = threading.Event()
    box = Toolbox([Function(str)], sinks=[lambda _: opened.wait(LONG)])
    box.execute(*calls("function"))
    letting_go = threading.Timer(SHORT, opened.set)
    letting_go.start()
    assert box.flush(1e12)
    letting_go.join()


def test_a_dry_run_has_no_limits():
    made = Function(str, timeout=5, max_concurrency=1)
    assert Toolbox([made]).execute(*calls("function"), dry_run=True).text == "Dry run: 'function' was not run"


def test_a_limit_that_was_changed_is_the_one_that_holds():
    made = Function(str, timeout=5)
    first = made._define().policy
    assert made._define().policy is first
    made.timeout = 6
    assert made._define().policy.timeout == 6
    made.timeout = None
    assert made._define().policy is None


def test_calls_in_time_leave_no_thread_and_no_task_behind():
    @tool(timeout=LONG)
    def quick(number: int) -> int:
        return number

    @tool(timeout=LONG)
    async def aquick(number: int) -> int:
        return number

    box = Toolbox([quick, aquick])
    before = threading.active_count()
    for _ in range(5):
        box.execute_all([ToolCall(name, {"number": n}) for name in ("quick", "aquick") for n in range(50)])
    assert box.execute(ToolCall("quick", {"number": 1})).text == "1"
    for thread in threading.enumerate():
        if thread.name == "toolsemble-job":
            thread.join(LONG)
    assert threading.active_count() <= before


def test_who_watches_is_told_what_ran_out_of_time_and_what_goes_on(gate):
    seen = []
    box = Toolbox([Function(gate, timeout=SHORT)], sinks=[seen.append])
    box.execute(ToolCall("function", {"input": "x"}))
    box.flush(LONG)
    assert [event.kind for event in seen] == ["call_started", "call_abandoned", "call_timed_out", "call_finished"]


class GoneError(Exception):
    """What can be referred to weakly, so that a test can see it go."""


def raised_once(watched):
    error = GoneError("gone")
    watched.append(weakref.ref(error))
    try:
        raise error
    finally:
        del error  # or this frame, which the traceback has, would keep it


async def araised_once(watched):
    raised_once(watched)


@pytest.mark.parametrize("settings", [{}, {"timeout": 60}, {"max_concurrency": 2}], ids=str)
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("way", ["execute", "aexecute", "execute_all"])
def test_an_exception_of_a_body_does_not_wait_for_the_collector(settings, kind, way, caplog):
    caplog.set_level(logging.CRITICAL, logger="toolsemble.tool")  # a record in a log would keep it
    watched = []
    made = (
        Function(lambda _: raised_once(watched)) if kind == "sync" else AsyncFunction(lambda _: araised_once(watched))
    )
    for name, value in settings.items():
        setattr(made, name, value)
    box, one = Toolbox([made]), ToolCall("function", {"input": "x"})
    gc.disable()
    try:
        if way == "aexecute":
            asyncio.run(box.aexecute(one))
        elif way == "execute":
            box.execute(one)
        else:
            box.execute_all([one, one])
        ends = time.monotonic() + 20  # a thread may still be on its way out
        while any(each() is not None for each in watched) and time.monotonic() < ends:
            threading.Event().wait(0.001)
        assert [each() for each in watched] == [None] * len(watched) != []
    finally:
        gc.enable()
