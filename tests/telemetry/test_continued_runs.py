"""Runs that stop and go on: sinks receive each call once, and states and counts agree wherever they are read."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from helpers import continued_process
from helpers.journal_runs import answer, clerk, park, script
from helpers.wait import LONG, auntil, until
from toolsemble import (
    Agent,
    RunBusyError,
    RunCancelledError,
    RunInterruptedError,
    RunJournal,
    RunParkedError,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolPipeline,
    tool,
)
from toolsemble._runtime.metrics import InMemoryMetrics
from toolsemble._vocabulary.errors import AgentExecutionError, CallPausedError
from toolsemble._vocabulary.result import ToolResult
from toolsemble.agent import ConversationMemory
from toolsemble.events import CallFinished, CallStarted, RunFinished, RunStarted
from toolsemble.review import Continue, PauseReview, QueueReview, ReviewStore
from toolsemble.telemetry import OpenTelemetry, RunHistory, TraceFile, read_trace
from toolsemble.testing import RecordingSink

pytestmark = pytest.mark.slow

PAY = ToolCall("pay", {"order": "7"})  # a number in a text: one repair


@pytest.fixture
def store(tmp_path):
    with ReviewStore(tmp_path / "reviews.db") as made:
        yield made


@pytest.fixture
def history(tmp_path):
    with RunHistory(tmp_path / "history.db") as made:
        yield made


@pytest.fixture
def sink():
    return RecordingSink()


@tool(effects="irreversible", requires_approval=True, approval_timeout=None)
def pay(order: int) -> str:
    """Pay an order."""
    return f"paid {order}"


@tool(effects="read")
def look(order: int) -> dict:
    """Look up an order."""
    return {"order": order}


@tool(effects="write", idempotent=True, requires_approval=True, approval_timeout=None, retries=1)
def pay_twice(order: int) -> str:
    """Fail once, and then pay."""
    if order not in TRIED:
        TRIED.add(order)
        raise ConnectionError("refused")
    return f"paid {order}"


TRIED = set()


def plain():
    """A call that needs approval."""
    return [pay], [PAY], ["pay"]


def retried():
    """A call that is retried after its approval."""
    TRIED.clear()
    return [pay_twice], [ToolCall("pay_twice", {"order": "7"}, "c1")], ["pay_twice"]


def beside():
    """A call that needs approval, and one that does not, in the same turn."""
    return [pay, look], [ToolCall("look", {"order": "7"}, "c1"), PAY], ["look", "pay"]


def pipeline():
    """A pipeline whose second step needs approval."""
    steps = ToolPipeline("settle", "Settles an order", [look, pay])
    return [steps], [ToolCall("settle", {"order": "7"})], ["settle", "look", "pay"]


def nested():
    """An agent whose tool needs approval."""
    helper = Agent(script(PAY, "Paid."), [pay], role="helper").as_tool("helper", "Helps")
    return [helper], [ToolCall("helper", {"inputs": "Pay"})], ["helper", "pay"]


KINDS = pytest.mark.parametrize("kind", [plain, retried, beside, pipeline, nested], ids=lambda each: each.__name__)


def make_agent(kind, journal, **settings):
    tools, calls, _ = kind()
    return clerk(journal, tools, [*calls], "Done.", **settings)


async def run(agent, journal):
    """Do or continue a run with ``run``."""
    return await agent.run("Pay order 7", run_id="r1")


async def stream(agent, journal):
    """Do or continue a run with ``stream``."""
    async for _ in agent.stream("Pay order 7", run_id="r1"):
        pass


async def work(agent, journal):
    """Do or continue a run with a worker."""
    journal.begin("r1", "clerk", "Pay order 7")
    await asyncio.wait_for(journal.work({"clerk": agent}, until_idle=True, poll=0.01), LONG)


DRIVERS = pytest.mark.parametrize("drive", [run, stream, work], ids=lambda each: each.__name__)


async def stop(driving):
    """Await a run that does not go on here."""
    with suppress(RunParkedError):
        await driving


def count_kinds(sink):
    """Return how often sinks received the start and the end of each call."""
    return Counter(
        (event.kind, event.tool_name) for event in sink.events if event.kind in ("call_started", "call_finished")
    )


def check_sent_once(history, sink, names):
    """Check that a run that has ended is sent and counted as if it had never stopped."""
    assert count_kinds(sink) == {(kind, name): 1 for name in names for kind in ("call_started", "call_finished")}
    found, calls, agents = history.run("r1"), history.calls("r1"), history.agents("r1")
    inner = int("helper" in names)
    assert (found.state, found.calls, found.failures, found.waiting) == ("done", len(names), 0, 0)
    assert (found.turns, found.nested, found.reviews) == (2 + 2 * inner, inner, 1)
    assert [(each.tool_name, each.outcome) for each in calls] == [(name, "success") for name in names]
    assert all(each.ended is not None for each in calls)
    assert (
        found.repairs
        == sum(each.repairs for each in calls)
        == sum(event.kind == "call_repaired" for event in sink.events)
    )
    assert [(each.state, each.stop_reason) for each in agents] == [("done", "answer")] * (1 + inner)
    assert found.ended is not None


@KINDS
@DRIVERS
async def test_a_parked_run_is_sent_and_counted_once(tmp_path, history, sink, store, kind, drive, caplog):
    names = kind()[2]
    with park(tmp_path) as runs:
        agent = make_agent(kind, runs, review=QueueReview(store), sinks=[history, sink])
        await stop(drive(agent, runs))
        found = history.run("r1", journal=runs)
        assert (found.state, found.stop_reason, found.ended, found.waiting) == ("waiting", "parked", None, 1)
        assert runs.find("r1").state == "waiting"
        assert found.failures == 0
        answer(store)
        agent = make_agent(kind, runs, review=QueueReview(store), sinks=[history, sink])
        await drive(agent, runs)
    check_sent_once(history, sink, names)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert [event.resumed for event in sink.events if event.kind == "run_started" and not event.parent_id] == [
        False,
        True,
    ]


@pytest.mark.parametrize("kind", [plain, retried, beside, nested], ids=lambda each: each.__name__)
def test_a_paused_run_is_sent_and_counted_once(history, sink, kind):
    agent = make_agent(kind, None, review=PauseReview(), sinks=[history, sink])
    first = agent.run_sync("Pay order 7", run_id="r1")
    found = history.run("r1")
    assert (found.state, found.stop_reason, found.ended, found.waiting) == ("waiting", "paused", None, 1)
    agent.run_sync(first.paused, decisions={each.id: Continue() for each in first.pending})
    check_sent_once(history, sink, kind()[2])


def test_a_run_that_is_paused_again_and_again_is_sent_once(history, sink):
    agent = clerk(
        None, [pay], [PAY, ToolCall("pay", {"order": 8})], "Done.", review=PauseReview(), sinks=[history, sink]
    )
    result = agent.run_sync("Pay", run_id="r1")
    while result.pending:
        result = agent.run_sync(result.paused, decisions={result.pending[0].id: Continue()})
    assert count_kinds(sink) == {("call_started", "pay"): 2, ("call_finished", "pay"): 2}
    assert (history.run("r1").calls, history.run("r1").reviews, len(history.agents("r1"))) == (2, 2, 1)
    assert history.run("r1").calls == len(result.tool_calls)


@pytest.mark.parametrize("kind", [plain, beside, pipeline, nested], ids=lambda each: each.__name__)
async def test_a_run_that_is_interrupted_while_it_waits_is_sent_once(tmp_path, history, sink, store, kind):
    with park(tmp_path, park_after=None) as runs:
        agent = make_agent(kind, runs, review=QueueReview(store, poll=0.01), sinks=[history, sink])
        driving = asyncio.create_task(agent.run("Pay order 7", run_id="r1"))
        await auntil(store.pending)
        driving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await driving
        assert (history.run("r1").state, runs.find("r1").state) == ("queued", "queued")
        assert history.run("r1").stop_reason == "interrupted"
        answer(store)
        agent = make_agent(kind, runs, review=QueueReview(store), sinks=[history, sink])
        await agent.run("Pay order 7", run_id="r1")
    names = kind()[2]
    started = [event.tool_name for event in sink.events if event.kind == "call_started"]
    assert started == names
    assert [(each.tool_name, each.outcome) for each in history.calls("r1")] == [(name, "success") for name in names]
    repaired = [event for event in sink.events if event.kind == "call_repaired"]
    assert (history.run("r1").failures, history.run("r1").repairs) == (0, len(repaired))


def drained(journal):
    """Return a tool that lets the worker stop."""

    @tool(effects="read")
    def hand_over() -> str:
        """Stop the worker."""
        journal.drain()
        return "stopping"

    return hand_over


@pytest.mark.parametrize("way", ["plain", "pipeline", "agent"])
async def test_a_run_whose_worker_stops_is_queued_and_no_call_of_it_is_an_error(tmp_path, history, sink, caplog, way):
    caplog.set_level(logging.INFO, "toolsemble")
    metrics = InMemoryMetrics()

    def make(journal):
        stopping = drained(journal)
        turns = [ToolCall("hand_over"), "Done."]
        if way == "agent":
            inner = Agent(script(ToolCall("hand_over"), "Done."), [stopping], role="helper").as_tool("helper", "Helps")
            tools, turns = [inner], [ToolCall("helper", {"inputs": "go"}), "Done."]
        elif way == "pipeline":
            inner = Agent(script(ToolCall("hand_over"), "Done."), [stopping], role="helper").as_tool("helper", "Helps")
            tools, turns = [ToolPipeline("line", "Does", [inner])], [ToolCall("line", {"inputs": "go"}), "Done."]
        else:
            tools = [stopping]
        return clerk(journal, Toolbox(tools, metrics=metrics), *turns, sinks=[history, sink])

    with RunJournal(tmp_path / "runs.db") as runs:
        with pytest.raises(RunInterruptedError):
            await make(runs).run("Go", run_id="r1")
        assert (history.run("r1").state, runs.find("r1").state) == ("queued", "queued")
        assert (history.run("r1").failures, history.run("r1").error) == (0, "")
    with RunJournal(tmp_path / "runs.db") as runs:
        await make(runs).run("Go", run_id="r1")
    names = {"plain": ["hand_over"], "agent": ["helper", "hand_over"], "pipeline": ["line", "helper", "hand_over"]}[way]
    assert count_kinds(sink) == {(kind, name): 1 for name in names for kind in ("call_started", "call_finished")}
    assert len(history.agents("r1")) == (1 if way == "plain" else 2)
    assert [metrics.count(name, "error") for name in names] == [0] * len(names)
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


@pytest.mark.parametrize("kind", [plain, pipeline, nested], ids=lambda each: each.__name__)
async def test_a_run_that_is_cancelled_while_it_waits_is_cancelled_everywhere(
    tmp_path, history, sink, store, kind, caplog
):
    caplog.set_level(logging.INFO, "toolsemble")
    metrics = InMemoryMetrics()
    tools, calls, names = kind()
    with park(tmp_path, park_after=None) as runs:
        settings = {"review": QueueReview(store, poll=0.01), "sinks": [history, sink]}
        agent = clerk(runs, Toolbox(tools, metrics=metrics), [*calls], "Done.", **settings)
        driving = asyncio.create_task(agent.run("Pay order 7", run_id="r1"))
        await auntil(store.pending)
        runs.cancel("r1")
        with pytest.raises(RunCancelledError):
            await driving
        assert (history.run("r1").state, runs.find("r1").state) == ("cancelled", "cancelled")
    found = history.run("r1")
    assert (found.waiting, found.failures, found.error, found.ended is not None) == (0, 0, "", True)
    assert [each.decision for each in history.reviews("r1")] == ["withdrawn"]
    assert {each.state for each in history.agents("r1")} == {"cancelled"}
    ended = [event for event in sink.events if event.kind == "call_finished" and event.outcome != "success"]
    assert {(event.outcome, event.error_type) for event in ended} == {("cancelled", "RunCancelledError")}
    assert [metrics.count(name, "error") for name in names] == [0] * len(names)
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


def test_a_run_that_is_cancelled_after_it_was_parked_is_cancelled_in_a_history_with_the_journal(
    tmp_path, history, store
):
    with park(tmp_path) as runs:
        agent = make_agent(nested, runs, review=QueueReview(store), sinks=[history])
        for run_id in ("r1", "r2"):
            with pytest.raises(RunParkedError):
                agent.run_sync("Pay order 7", run_id=run_id)
        runs.cancel("r1")
        found = history.run("r1", journal=runs)
        assert (found.state, found.stop_reason, found.waiting) == ("cancelled", "cancelled", 0)
        agents = history.agents("r1", journal=runs)
        assert [(each.state, each.stop_reason) for each in agents] == [("cancelled", "cancelled")] * 2
        listed = {
            state: [each.run_id for each in history.runs(state=state, journal=runs)]
            for state in ("waiting", "cancelled")
        }
        assert listed == {"waiting": ["r2"], "cancelled": ["r1"]}
        assert history.forget(0, journal=runs) == 1
        assert [each.run_id for each in history.runs()] == ["r2"]
        assert history.run("unknown", journal=runs) is None


async def test_a_run_that_is_taken_over_belongs_to_its_next_driver(tmp_path, history, sink, store):
    with park(tmp_path, park_after=None) as runs:
        agent = make_agent(plain, runs, review=QueueReview(store, poll=0.01), sinks=[history, sink])
        first = asyncio.create_task(agent.run("Pay order 7", run_id="r1"))
        await auntil(store.pending)
        runs.take_over("r1")
        with pytest.raises(RunBusyError):
            await first
        assert (history.run("r1").state, runs.find("r1").state) == ("queued", "queued")
        assert history.run("r1").stop_reason == "taken_over"
        answer(store)
        await agent.run("Pay order 7", run_id="r1")
    check_sent_once(history, sink, ["pay"])


async def test_a_run_whose_process_waits_for_a_person_waits_in_a_history_that_takes_the_states_of_a_journal(
    tmp_path, history, store
):
    with RunJournal(tmp_path / "runs.db") as runs:
        agent = make_agent(plain, runs, review=QueueReview(store, poll=0.01), sinks=[history])
        task = asyncio.create_task(agent.run("Pay order 7", run_id="r1"))
        await auntil(lambda: store.pending() and history.run("r1") is not None and history.run("r1").waiting)
        assert history.run("r1", journal=runs).state == "waiting"
        assert [each.run_id for each in history.runs(state="waiting", journal=runs)] == ["r1"]
        answer(store)
        await asyncio.wait_for(task, LONG)
        assert history.run("r1", journal=runs).state == "done"


def test_the_end_of_a_driver_that_was_replaced_does_not_change_the_run(history):
    history.emit(RunStarted("m", run_id="r1"))
    with history._database.writing() as connection:
        connection.execute("UPDATE runs SET owner = 'another process'")
    history.emit(RunFinished("taken_over", run_id="r1"))
    assert (history.run("r1").state, history.run("r1").last) == ("running", 2)


@pytest.mark.parametrize(("reply", "state"), [("Done.", "done"), (ValueError, "failed")], ids=["done", "failed"])
def test_a_question_that_expired_is_not_open_when_its_run_has_ended(tmp_path, history, clock, reply, state):
    @tool(requires_approval=True, approval_timeout=60)
    def wire(order: int) -> str:
        """Send money."""
        return "sent"

    with ReviewStore(tmp_path / "timed.db") as timed, park(tmp_path) as runs:
        agent = clerk(runs, [wire], ToolCall("wire", {"order": 7}), reply, review=QueueReview(timed), sinks=[history])
        with pytest.raises(RunParkedError):
            agent.run_sync("Pay order 7", run_id="r1")
        assert (history.run("r1").state, history.run("r1").waiting) == ("waiting", 1)
        clock.advance(61)
        with suppress(AgentExecutionError):
            agent.run_sync("Pay order 7", run_id="r1")
        assert (history.run("r1").state, runs.find("r1").state, history.run("r1").waiting) == (state, state, 0)
    assert [(each.outcome, each.text) for each in history.calls("r1")] == [
        ("failure", "Error: Rejected by reviewer: no answer within 60 s")
    ]


def test_a_run_that_fails_while_a_question_is_open_does_not_wait(tmp_path, history, store):
    @tool(effects="read")
    def misconfigured(order: int) -> str:
        """Look up an order in a shop that is not there."""
        raise ToolConfigurationError("no shop")

    calls = [PAY, ToolCall("misconfigured", {"order": 7})]
    with park(tmp_path) as runs:
        agent = clerk(runs, [pay, misconfigured], calls, "Done.", review=QueueReview(store), sinks=[history])
        with pytest.raises(ToolConfigurationError, match="no shop"):
            agent.run_sync("Pay order 7", run_id="r1")
        assert runs.find("r1").state == "failed"
    assert (history.run("r1").state, history.run("r1").waiting) == ("failed", 0)


def test_a_parked_run_that_could_not_be_set_up_again_still_waits(tmp_path, history, store):
    with park(tmp_path) as runs:
        agent = make_agent(plain, runs, review=QueueReview(store), sinks=[history])
        with pytest.raises(RunParkedError):
            agent.run_sync("Pay order 7", run_id="r1")
        with pytest.raises(ToolConfigurationError):
            clerk(runs, [], "x", memory=ConversationMemory(), sinks=[history]).run_sync("Pay order 7", run_id="r1")
        assert runs.find("r1").state == "waiting"
        assert (history.run("r1").state, history.run("r1").waiting) == ("waiting", 1)
        answer(store)
        agent.run_sync("Pay order 7", run_id="r1")
    found = history.run("r1")
    assert (found.state, found.calls, found.reviews, found.reviewers, len(history.agents("r1"))) == (
        "done",
        1,
        1,
        ("ada",),
        1,
    )


@pytest.mark.parametrize("mode", continued_process.MODES)
def test_a_run_whose_process_was_killed_is_sent_and_counted_once(tmp_path, mode):
    program = [sys.executable, continued_process.__file__, str(tmp_path), mode]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", "tests"])}
    store, history, journal = continued_process.open_all(tmp_path)
    with (
        store,
        history,
        journal,
        subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=environment) as process,
    ):
        assert process.stdout.readline() == "ready\n"
        names, is_waiting = continued_process.MODES[mode], mode.startswith("waits")
        until(lambda: len(history.calls("r1")) == len(names))
        process.send_signal(signal.SIGKILL)
        process.wait(LONG)
        assert (history.run("r1").state, history.run("r1", journal=journal).state) == ("lost", "lost")
        answer(store)
        sink = RecordingSink()
        agent = continued_process.make_agent(tmp_path, mode, store, history, journal, sinks=[sink])
        agent.run_sync("Pay order 7", run_id="r1")
        found, calls = history.run("r1"), history.calls("r1")
        outcome = "failure" if mode.startswith("sends") else "success"
        finished = [event.tool_name for event in sink.events if event.kind == "call_finished"]
        kinds = [event.kind for event in history.events(run="r1")]
        agents = [(each.state, each.stop_reason) for each in history.agents("r1")]
    assert [event for event in sink.events if event.kind in ("call_started", "call_repaired")] == []
    assert sorted(finished) == sorted(set(names) - {"look"})
    assert (kinds.count("call_started"), kinds.count("call_finished"), kinds.count("call_repaired")) == (
        len(names),
        len(names),
        1,
    )
    assert (found.state, found.calls, found.failures, found.reviews) == (
        "done",
        len(names),
        int(outcome == "failure"),
        int(is_waiting),
    )
    assert [each.tool_name for each in calls] == names
    assert calls[-1].outcome == outcome
    assert agents == [("done", "answer")] * (1 + mode.endswith("agent"))


def test_a_call_that_begins_again_before_the_journal_knew_it_is_counted_once(history):
    """A process killed between the start of a call and its first record is indistinguishable from another one."""
    ids = {"run_id": "r1"}
    history.emit_all(
        [RunStarted("m", **ids), CallStarted("pay", "c1", {}, **ids), RunStarted("n", parent_id="c1", **ids)]
    )
    with history._database.writing() as connection:
        connection.execute("UPDATE runs SET owner = 'a process that has ended'")
    history.emit_all(
        [RunStarted("m", **ids), CallStarted("pay", "c1", {}, **ids), RunStarted("n", parent_id="c1", **ids)]
    )
    history.emit(CallFinished("pay", "c1", "success", ToolResult.success("paid"), **ids))
    assert [(each.call_id, each.outcome) for each in history.calls("r1")] == [("c1", "success")]
    assert (history.run("r1").calls, [each.model for each in history.agents("r1")]) == (1, ["m", "n"])


def test_a_call_that_began_in_a_process_without_the_history_is_known_from_its_end(history):
    history.emit(
        CallFinished("pay", "c1", "failure", ToolResult.failure("no"), {"order": 7}, 2.0, run_id="r1", at=10.0)
    )
    (call,) = history.calls("r1")
    assert (call.started, call.ended, call.arguments, call.outcome) == (8.0, 10.0, '{"order":7}', "failure")
    assert (history.run("r1").calls, history.run("r1").failures) == (1, 1)


def test_a_call_that_was_cancelled_and_made_again_has_the_later_outcome(history):
    ids = {"run_id": "r1"}
    history.emit_all(
        [
            RunStarted("m", **ids),
            CallStarted("read", "c1", {"order": 7}, **ids),
            CallFinished("read", "c1", "cancelled", **ids),
            RunFinished("interrupted", **ids),
        ]
    )
    assert (history.run("r1").state, history.run("r1").failures) == ("queued", 0)
    history.emit_all([RunStarted("m", resumed=True, **ids), CallFinished("read", "c1", "failure", **ids)])
    history.emit(CallFinished("read", "c1", "failure", **ids))
    assert (history.run("r1").calls, history.run("r1").failures) == (1, 1)
    assert [(each.outcome, each.arguments) for each in history.calls("r1")] == [("failure", '{"order":7}')]


def test_a_trace_file_has_a_parked_call_once(tmp_path, store):
    path = tmp_path / "trace.jsonl"
    with park(tmp_path) as runs:
        agent = make_agent(plain, runs, review=QueueReview(store), sinks=[TraceFile(path)])
        with pytest.raises(RunParkedError):
            agent.run_sync("Pay order 7", run_id="r1")
        answer(store)
        agent.run_sync("Pay order 7", run_id="r1")
    (call,) = read_trace(path).calls
    assert (call.tool_name, call.outcome, call.text) == ("pay", "success", "paid 7")


async def test_a_cancelled_call_is_one_short_line_and_neither_an_error_nor_a_failure(caplog, history, sink):
    caplog.set_level(logging.INFO, "toolsemble")
    metrics, begun = InMemoryMetrics(), asyncio.Event()

    @tool
    async def hang(text: str) -> str:
        """Hangs."""
        begun.set()
        await asyncio.Event().wait()
        return text

    box = Toolbox([hang], metrics=metrics, sinks=[history, sink])
    calling = asyncio.create_task(box.aexecute(ToolCall("hang", {"text": "x"}, "c1"), run_id="r1"))
    await asyncio.wait_for(begun.wait(), LONG)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    (line,) = caplog.records
    assert (line.levelno, line.getMessage().rpartition(" [")[0], line.exc_info) == (
        logging.INFO,
        "hang({'text': 'x'}) -> cancelled",
        None,
    )
    outcomes = {outcome: metrics.count("hang", outcome) for outcome in ("success", "failure", "error", "cancelled")}
    assert outcomes == {"success": 0, "failure": 0, "error": 0, "cancelled": 1}
    assert (metrics.counter("cancellations", "hang"), metrics.durations("hang")) == (1, [])
    assert sink.events[-1] == CallFinished(
        "hang", "c1", "cancelled", error_type="CancelledError", error="CancelledError"
    )
    assert (history.run("r1").state, history.run("r1").failures, history.calls("r1")[0].outcome) == (
        "cancelled",
        0,
        "cancelled",
    )


def test_a_call_that_waits_outside_of_a_run_is_not_recorded_as_an_error(caplog):
    metrics = InMemoryMetrics()
    with pytest.raises(CallPausedError):
        Toolbox([pay], metrics=metrics, review=PauseReview()).execute(PAY)
    assert (metrics.count("pay", "error"), [each for each in caplog.records if each.levelno > logging.INFO]) == (0, [])


def test_an_exception_group_with_a_normal_outcome_is_not_an_error(caplog):
    @tool
    def gather() -> str:
        """Gathers."""
        raise ExceptionGroup("both", [RunParkedError("it waits", run_id="r2")])

    metrics = InMemoryMetrics()
    with pytest.raises(RunParkedError):
        Toolbox([gather], metrics=metrics).execute(ToolCall("gather"))
    assert (metrics.count("gather", "error"), [each for each in caplog.records if each.levelno > logging.INFO]) == (
        0,
        [],
    )


@pytest.fixture
def spans():
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    exporter.sink = OpenTelemetry(provider)
    yield exporter
    provider.shutdown()


def list_spans(spans):
    """Return the spans of runs and calls since the last time, each with its mark, and whether it is an error."""
    marks = ("paused", "interrupted", "cancelled", "resumed", "stop_reason")
    found = []
    for span in spans.get_finished_spans():
        if not span.name.startswith("chat"):
            shown = {
                mark: span.attributes[f"toolsemble.{mark}"] for mark in marks if f"toolsemble.{mark}" in span.attributes
            }
            found.append((span.name, shown, span.status.status_code is StatusCode.ERROR))
    spans.clear()
    return found


def test_the_spans_of_a_parked_run_say_that_it_waits_and_are_no_errors(tmp_path, store, spans):
    with park(tmp_path) as runs:
        agent = make_agent(nested, runs, review=QueueReview(store), sinks=[spans.sink])
        with pytest.raises(RunParkedError):
            agent.run_sync("Pay order 7", run_id="r1")
        assert list_spans(spans) == [
            ("execute_tool pay", {"paused": True}, False),
            ("execute_tool helper", {"paused": True}, False),
            ("invoke_agent clerk", {"stop_reason": "parked"}, False),
        ]
        answer(store)
        make_agent(nested, runs, review=QueueReview(store), sinks=[spans.sink]).run_sync("Pay order 7", run_id="r1")
    assert list_spans(spans) == [
        ("execute_tool pay", {"resumed": True}, False),
        ("execute_tool helper", {"resumed": True}, False),
        ("invoke_agent clerk", {"stop_reason": "answer"}, False),
    ]


def test_the_spans_of_a_paused_run_say_that_it_waits_and_are_no_errors(spans):
    agent = make_agent(plain, None, review=PauseReview(), sinks=[spans.sink])
    first = agent.run_sync("Pay order 7", run_id="r1")
    assert list_spans(spans) == [
        ("execute_tool pay", {"paused": True}, False),
        ("invoke_agent clerk", {"stop_reason": "paused"}, False),
    ]
    agent.run_sync(first.paused, decisions={first.pending[0].id: Continue()})
    assert list_spans(spans) == [
        ("execute_tool pay", {"resumed": True}, False),
        ("invoke_agent clerk", {"stop_reason": "answer"}, False),
    ]


@pytest.mark.parametrize(
    ("way", "mark", "reason"),
    [("drain", "interrupted", "interrupted"), ("cancel", "cancelled", "cancelled")],
)
async def test_the_spans_of_an_interrupted_or_cancelled_run_are_no_errors(tmp_path, spans, way, mark, reason):
    @tool(effects="read")
    def stop_run() -> str:
        """Stops the run."""
        runs.drain() if way == "drain" else runs.cancel("r1")
        return "stopping"

    helper = Agent(script(ToolCall("stop_run"), "Done."), [stop_run], role="helper").as_tool("helper", "Helps")
    with RunJournal(tmp_path / "runs.db") as runs:
        agent = clerk(runs, [helper], ToolCall("helper", {"input": "go"}), "Done.", sinks=[spans.sink])
        with pytest.raises((RunInterruptedError, RunCancelledError)):
            await agent.run("Go", run_id="r1")
    named = {name: (shown, is_error) for name, shown, is_error in list_spans(spans)}
    assert {is_error for _, is_error in named.values()} == {False}
    assert named["execute_tool helper"][0] == {mark: True}
    assert named["invoke_agent clerk"][0] == {"stop_reason": reason}


async def test_the_spans_of_a_run_whose_task_was_cancelled_are_no_errors(spans):
    begun = asyncio.Event()

    @tool
    async def hang() -> str:
        """Hangs."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    driving = asyncio.create_task(Agent(script(ToolCall("hang")), [hang], sinks=[spans.sink]).run("go"))
    await asyncio.wait_for(begun.wait(), LONG)
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    assert list_spans(spans) == [
        ("execute_tool hang", {"cancelled": True}, False),
        ("invoke_agent", {"stop_reason": "cancelled"}, False),
    ]


def test_a_run_that_cannot_be_resumed_is_an_error(spans):
    """A body that runs an agent by itself cannot be left open: that is a mistake of the program."""
    inner = Agent(script(PAY, "Paid."), [pay], review=PauseReview(), sinks=[spans.sink])

    @tool
    def delegate() -> str:
        """Delegates."""
        return inner.run_sync("Pay").text

    with pytest.raises(ToolConfigurationError):
        Agent(script(ToolCall("delegate"), "Done."), [delegate]).run_sync("go")
    assert [(shown, is_error) for _, shown, is_error in list_spans(spans)] == [
        ({"stop_reason": "configuration_error"}, True)
    ]


def test_a_repair_is_counted_once(tmp_path, store):
    metrics = InMemoryMetrics()
    line = ToolPipeline("settle", "Settles an order", [look, pay])
    with park(tmp_path) as runs:
        replies = ToolCall("settle", {"order": "7"}), "Done."
        agent = clerk(runs, Toolbox([line], metrics=metrics), *replies, review=QueueReview(store))
        with pytest.raises(RunParkedError):
            agent.run_sync("Pay", run_id="r1")
        answer(store)
        agent.run_sync("Pay", run_id="r1")
    names = ("settle", "look", "pay")
    assert sum(metrics.counter("repairs", name) for name in names) == 1
    assert [metrics.count(name, "success") for name in names] == [1, 1, 1]


def test_a_repair_of_a_paused_call_is_counted_once():
    metrics = InMemoryMetrics()
    agent = clerk(None, Toolbox([pay], metrics=metrics), PAY, "Done.", review=PauseReview())
    first = agent.run_sync("Pay")
    agent.run_sync(first.paused, decisions={first.pending[0].id: Continue()})
    assert (metrics.counter("repairs", "pay"), metrics.count("pay", "success")) == (1, 1)
