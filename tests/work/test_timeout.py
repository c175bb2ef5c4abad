"""Timeouts of calls."""

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

from helpers.sample_tools import AsyncFunction, Function, Plain
from helpers.wait import auntil, until
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
from toolsemble._engine.work import body as work_body
from toolsemble._runtime.event_loops import forget_dead_tasks
from toolsemble._runtime.locks import TABLE
from toolsemble._runtime.threads import GRACE, SpareThreads
from toolsemble.review import Continue
from toolsemble.testing import CallbackReview, ScriptedModel

SHORT = 0.05
LONG = 60.0


class Gate:
    """A gate that blocks a body until the test opens it, and advances the clock meanwhile."""

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


async def return_text(text):
    await asyncio.sleep(0)
    return text


@pytest.fixture
def body_until_deadline(clock):
    """Return an async body that runs until its deadline."""

    async def run(_=None):
        clock.advance(1)
        await hang()

    return run


def calls(*names):
    return [ToolCall(name, {"input": "x"}) for name in names]


def run_sync_and_async(tool, context):
    """The result of a sync and of an async call."""
    return [tool.execute("x", context), asyncio.run(tool.aexecute("x", context))]


@pytest.mark.parametrize(("seconds", "shown"), [(SHORT, "0.05"), (0.1, "0.1")])
def test_async_body_is_cancelled_at_its_timeout(seconds, shown, body_until_deadline):
    ended, metrics = [], InMemoryMetrics()

    async def run(_):
        try:
            await body_until_deadline()
        finally:
            ended.append(True)

    slow = AsyncFunction(run, "slow", timeout=seconds)
    failure = ToolResult.failure(f"Tool 'slow' timed out after {shown} s")
    assert run_sync_and_async(slow, ToolContext(metrics=metrics)) == [failure, failure]
    assert ended == [True, True]
    assert metrics.counter("timeouts", "slow") == 2
    assert metrics.count("slow", "failure") == 2
    assert metrics.counter("abandoned_tasks", "slow") == 0


def test_blocking_body_is_abandoned_counted_and_logged(gate, caplog):
    metrics = InMemoryMetrics()
    slow = Function(gate, "slow", timeout=SHORT)
    failure = ToolResult.failure("Tool 'slow' timed out after 0.05 s")
    with caplog.at_level(logging.WARNING, "toolsemble"):
        assert run_sync_and_async(slow, ToolContext(metrics=metrics)) == [failure, failure]
    assert metrics.counter("abandoned_threads", "slow") == 2
    assert caplog.text.count("The body of 'slow' is still running in a thread, which cannot be stopped") == 2


def test_body_that_ends_in_time_returns_its_result():
    def fail(_):
        raise ValueError("boom")

    async def afail(_):
        raise TimeoutError("its own")

    for made in (Function(str, timeout=LONG), Function(str, timeout=LONG, inline=False)):
        assert [each.output for each in run_sync_and_async(made, None)] == ["x", "x"]
    assert [each.error_message for each in run_sync_and_async(Function(fail, timeout=LONG), None)] == ["boom", "boom"]
    assert [each.error_message for each in run_sync_and_async(AsyncFunction(afail, timeout=LONG), None)] == [
        "its own"
    ] * 2


def test_async_body_that_ignores_cancellation_is_abandoned(caplog, clock, body_until_deadline):
    async def stubborn(_):
        clock.advance(SHORT)
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                clock.advance(GRACE)

    metrics = InMemoryMetrics()
    bad = AsyncFunction(stubborn, "bad", timeout=SHORT)
    box = Toolbox([bad, AsyncFunction(body_until_deadline, "slow", timeout=SHORT)], metrics=metrics, max_concurrency=1)
    with caplog.at_level(logging.WARNING, "toolsemble"):
        texts = [box.execute(each).text for each in calls("bad", "slow")]
        texts += [reply.text for reply in box.execute_all(calls("bad"))]
        texts += [asyncio.run(box.aexecute(each)).text for each in calls("bad")]
    assert texts == [f"Error: Tool '{name}' timed out after 0.05 s" for name in ("bad", "slow", "bad", "bad")]
    assert metrics.counter("abandoned_tasks", "bad") == 3
    assert "The body of 'bad' was cancelled but is still running" in caplog.text
    forget_dead_tasks()
    assert not TABLE._held  # their event loops are closed: they can never go on
    gc.collect()


async def test_abandoned_body_holds_its_slot_until_it_ends(clock):
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


def test_abandoned_thread_holds_its_slot_until_it_ends(gate):
    metrics = InMemoryMetrics()
    box = Toolbox([Function(gate, timeout=SHORT, resources=lambda _: "file")], metrics=metrics, max_concurrency=1)
    assert box.execute(*calls("function")).is_error
    assert box.execute(*calls("function")).is_error  # it timed out in the queue, and never ran
    assert metrics.counter("abandoned_threads", "function") == 1
    gate.opened.set()
    gate.ended.acquire(timeout=LONG)
    until(lambda: not TABLE._held)


def test_job_that_never_started_is_not_counted_as_abandoned(gate):
    from concurrent.futures import ThreadPoolExecutor

    metrics = InMemoryMetrics()
    with ThreadPoolExecutor(1) as pool:
        box = Toolbox([Function(gate, timeout=SHORT)], executor=pool, metrics=metrics)
        replies = box.execute_all(calls("function", "function"))
        gate.opened.set()
    assert [reply.is_error for reply in replies] == [True, True]
    assert metrics.counter("abandoned_threads", "function") == 1


def test_body_sees_the_callers_context_and_variables():
    variable = contextvars.ContextVar("variable", default="unset")
    token = variable.set("mine")
    try:
        made = Function(lambda _: (variable.get(), made.context.agent_role), timeout=LONG)
        amade = AsyncFunction(lambda _: asyncio.sleep(0, (variable.get(), amade.context.agent_role)), timeout=LONG)
        outputs = [
            each.structured_output
            for tool in (made, amade)
            for each in run_sync_and_async(tool, ToolContext(agent_role="writer"))
        ]
    finally:
        variable.reset(token)
    assert outputs == [("mine", "writer")] * 4


def test_awaitable_returned_by_a_sync_function_is_cancelled(body_until_deadline):
    made = Function(body_until_deadline, "slow", timeout=SHORT)
    failure = ToolResult.failure("Tool 'slow' timed out after 0.05 s")
    assert run_sync_and_async(made, None) == [failure, failure]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ExitEarlyError])
def test_exceptions_for_the_caller_are_raised(error):
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


async def test_cancelling_a_call_abandons_its_thread(gate):
    metrics = InMemoryMetrics()
    begun = threading.Event()
    made = Function(lambda _: begun.set() or gate(), timeout=LONG)
    task = asyncio.create_task(made.aexecute("x", ToolContext(metrics=metrics)))
    assert await asyncio.to_thread(begun.wait, LONG)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert metrics.counter("abandoned_threads", "function") == 1


async def test_every_call_of_a_cancelled_run_has_a_reply():
    begun = []
    slow = AsyncFunction(lambda _: begun.append(True) or hang(), "slow", timeout=LONG)
    task = asyncio.create_task(Agent(ScriptedModel([calls("slow", "slow"), "done"]), [slow]).run("go"))
    await auntil(lambda: len(begun) == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert len(caught.value.partial.tool_calls) == 2


def test_interrupt_abandons_the_body(gate, monkeypatch):
    def interrupt(future, _):
        until(future.running)
        raise KeyboardInterrupt

    metrics = InMemoryMetrics()
    monkeypatch.setattr("toolsemble._runtime.threads.wait_until", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Function(gate, timeout=LONG).execute("x", ToolContext(metrics=metrics))
    assert metrics.counter("abandoned_threads", "function") == 1


def test_passed_deadline_runs_nothing(clock):
    ran = []
    made = Function(ran.append, "late")
    result = made.execute("x", ToolContext(deadline=time.monotonic() - 1))
    assert (result.error_message, ran) == ("Tool 'late' timed out after 0 s", [])


def test_nested_tools_inherit_the_deadline(body_until_deadline):
    async def inner(_):
        deadlines.append(nested.context.deadline)
        await body_until_deadline()

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
def test_pipeline_ends_at_its_timeout(strategy, body_until_deadline):
    ran = []
    steps = [Function(str, "first"), AsyncFunction(body_until_deadline, "second"), Function(ran.append, "third")]
    line = ToolPipeline("line", "", steps, strategy, timeout=SHORT)
    for result in run_sync_and_async(line, None):
        assert result.error_message == "Tool 'line' timed out after 0.05 s"
        assert [step.name for step in result.attributes["steps"]][:2] == ["first", "second"]
    assert ran == []


def test_pipeline_is_compensated_at_its_timeout(body_until_deadline):
    undone = []
    steps = [
        Step(Function(str, "first"), compensate=lambda *_: undone.append("by a function")),
        Step(Function(str, "second"), compensate=Function(undone.append, "undo")),
        AsyncFunction(body_until_deadline, "third"),
    ]
    result = ToolPipeline("line", "", steps, timeout=SHORT).execute("x")
    assert result.error_message == "Tool 'line' timed out after 0.05 s"
    assert len(undone) == len(result.attributes["undone"]) == 2


def test_copies_of_a_tool_share_equal_limits():
    first = Function(str, max_concurrency=1)
    shared = first._define().policy
    second = copy.copy(first)
    assert second._define().policy is shared
    second.timeout = 5
    assert second._define().policy.timeout == 5
    assert first._define().policy is shared


def test_branches_end_at_the_timeout_of_their_pipeline():
    both = fan_out(AsyncFunction(hang, "one"), AsyncFunction(hang, "two"), name="both", timeout=SHORT)
    failure = "Tool 'both' timed out after 0.05 s"
    assert [each.error_message for each in run_sync_and_async(both, None)] == [failure, failure]


def test_agent_tool_ends_at_its_timeout(body_until_deadline):
    inner = Agent(ScriptedModel([calls("slow"), "done"]), [AsyncFunction(body_until_deadline, "slow")])
    helper = inner.as_tool("helper", "Helps", timeout=0.2)
    assert helper.execute("go").error_message == "Tool 'helper' timed out after 0.2 s"


def test_toolbox_timeout_applies_to_tools_without_one(body_until_deadline, gate):
    class Own(Plain):
        timeout = 0.1

        def execute(self, _):
            return gate()

    inline = Function(str, "inline", inline=True)
    box = Toolbox(
        [
            AsyncFunction(body_until_deadline, "slow"),
            inline,
            AsyncFunction(body_until_deadline, "own", timeout=0.15),
            Own(),
        ],
        timeout=SHORT,
    )
    texts = [box.execute(each).text for each in calls("slow", "inline", "own", "plain")]
    assert texts == [
        "Error: Tool 'slow' timed out after 0.05 s",
        "x",
        "Error: Tool 'own' timed out after 0.15 s",
        "Error: Tool 'plain' timed out after 0.1 s",
    ]


def test_attributes_of_plain_objects_are_not_settings():
    class Own(Plain):
        timeout = "30s"
        effects = ["echo", "reverb"]  # noqa: RUF012 - the object is foreign
        rate_limit = 5
        idempotent = "yes"

    assert Toolbox([Own()]).execute(*calls("plain")).text == "x"


def test_inline_step_runs_inline_under_a_deadline():
    threads = []
    inline = Function(lambda _: threads.append(threading.current_thread()), inline=True)
    for _ in run_sync_and_async(inline, ToolContext(deadline=time.monotonic() + LONG)):
        assert threads.pop() is threading.main_thread() is threading.current_thread()


@pytest.mark.parametrize("seconds", [0, -1, "5", True, float("inf"), float("nan")])
def test_invalid_timeout_is_a_definition_error(seconds):
    with pytest.raises(ToolDefinitionError, match="Tool 'function': timeout must be a number of seconds > 0, not"):
        Toolbox([Function(str, timeout=seconds)])
    with pytest.raises(ToolDefinitionError, match="Toolbox: timeout must be a number of seconds > 0, not"):
        Toolbox([], timeout=seconds)


def test_rejects_timeout_of_a_sync_inline_body():
    with pytest.raises(ToolDefinitionError, match="timeout cannot be enforced for a sync inline body"):
        Toolbox([Function(str, timeout=5, inline=True)])
    assert Toolbox([AsyncFunction(hang, timeout=5, inline=True)])


def test_accepts_very_long_timeout():
    for made in (Function(str, timeout=1e12), AsyncFunction(return_text, timeout=1e12)):
        assert [each.output for each in run_sync_and_async(made, None)] == ["x", "x"]


def test_accepts_very_long_approval_timeout():
    def take_time(request):
        threading.Event().wait(SHORT)
        return Continue()

    made = Function(str, requires_approval=True, approval_timeout=1e12)
    context = ToolContext(review=CallbackReview(take_time))
    assert [each.output for each in run_sync_and_async(made, context)] == ["x", "x"]


@pytest.mark.usefixtures("impatient")
def test_accepts_very_long_flush():
    opened = threading.Event()
    box = Toolbox([Function(str)], sinks=[lambda _: opened.wait(LONG)])
    box.execute(*calls("function"))
    letting_go = threading.Timer(SHORT, opened.set)
    letting_go.start()
    assert box.flush(1e12)
    letting_go.join()


def test_dry_run_has_no_limits():
    made = Function(str, timeout=5, max_concurrency=1)
    assert Toolbox([made]).execute(*calls("function"), dry_run=True).text == "Dry run: 'function' was not run"


def test_changed_limit_applies():
    made = Function(str, timeout=5)
    first = made._define().policy
    assert made._define().policy is first
    made.timeout = 6
    assert made._define().policy.timeout == 6
    made.timeout = None
    assert made._define().policy is None


def test_calls_in_time_leave_no_threads_and_tasks(monkeypatch):
    monkeypatch.setattr("toolsemble._engine.work.timeout.DAEMON_THREADS", SpareThreads(seconds=0.01))

    @tool(timeout=LONG)
    def quick(number: int) -> int:
        return number

    @tool(timeout=LONG)
    async def aquick(number: int) -> int:
        return number

    box = Toolbox([quick, aquick])
    before = set(threading.enumerate())
    for _ in range(5):
        box.execute_all([ToolCall(name, {"number": n}) for name in ("quick", "aquick") for n in range(50)])
    assert box.execute(ToolCall("quick", {"number": 1})).text == "1"
    for thread in set(threading.enumerate()) - before:
        thread.join(LONG)
        assert not thread.is_alive()


def test_watchers_see_timeouts_and_abandoned_bodies(gate):
    seen = []
    box = Toolbox([Function(gate, timeout=SHORT)], sinks=[seen.append])
    box.execute(ToolCall("function", {"input": "x"}))
    box.flush(LONG)
    assert [event.kind for event in seen] == ["call_started", "call_abandoned", "call_timed_out", "call_finished"]


class GoneError(Exception):
    """An object with weak references, so that a test can see when it is collected."""


def raise_once(watched):
    error = GoneError("gone")
    watched.append(weakref.ref(error))
    try:
        raise error
    finally:
        del error  # or this frame, which the traceback has, would keep it


async def raise_once_async(watched):
    raise_once(watched)


@pytest.mark.parametrize("settings", [{}, {"timeout": 60}, {"max_concurrency": 2}], ids=str)
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("way", ["execute", "aexecute", "execute_all"])
def test_exception_of_a_body_is_freed_without_the_garbage_collector(settings, kind, way, caplog):
    caplog.set_level(logging.CRITICAL, logger="toolsemble.tool")  # a record in a log would keep it
    watched = []
    made = (
        Function(lambda _: raise_once(watched))
        if kind == "sync"
        else AsyncFunction(lambda _: raise_once_async(watched))
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


async def test_deadline_that_passes_while_a_call_begins_to_wait_ends_the_call(clock, monkeypatch):
    left = work_body.remaining

    def read_then_advance(context):
        seconds = left(context)
        thread = threading.Thread(target=clock.advance, args=(SHORT,))
        thread.start()
        thread.join()
        return seconds

    monkeypatch.setattr(work_body, "remaining", read_then_advance)
    box = Toolbox([tool(name="hang", description="Hangs.", timeout=SHORT)(hang)])
    reply = await box.aexecute(ToolCall("hang", {}))
    assert reply.text == f"Error: Tool 'hang' timed out after {SHORT} s"


@pytest.mark.parametrize("settings", [{}, {"timeout": LONG}])
@pytest.mark.parametrize(("duration", "warned"), [(0.0, True), (LONG, False)])
def test_an_async_body_that_blocks_the_loop_is_named_in_debug_mode(caplog, settings, duration, warned):
    @tool(**settings)
    async def nap(seconds: float) -> str:
        """Nap."""
        await asyncio.sleep(0)
        if seconds < 0:
            raise ValueError("no time")
        return "rested"

    async def run():
        asyncio.get_running_loop().slow_callback_duration = duration
        box = Toolbox([nap])
        replies = [await box.aexecute(ToolCall("nap", {"seconds": number})) for number in (1, -1)]
        task = asyncio.create_task(box.aexecute(ToolCall("nap", {"seconds": 1})))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return [reply.text for reply in replies]

    assert asyncio.run(run(), debug=True) == ["rested", "Error: no time"]
    lines = [record.getMessage() for record in caplog.records if record.name == "toolsemble.tool.nap"]
    assert any(line.startswith("The async body of 'nap' blocked the event loop for ") for line in lines) is warned


async def test_an_async_body_is_not_watched_without_debug_mode(caplog):
    @tool
    async def nap() -> str:
        """Nap."""
        return "rested"

    asyncio.get_running_loop().slow_callback_duration = 0.0
    assert (await Toolbox([nap]).aexecute(ToolCall("nap"))).text == "rested"
    assert caplog.text == ""
