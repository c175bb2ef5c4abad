"""Run histories: what is kept of runs, how it is queried, and who may write and read at the same time."""

import asyncio
import json
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from helpers import history_process
from helpers.wait import LONG, auntil, until
from toolsemble import (
    Agent,
    Edit,
    ExitEarly,
    RunJournal,
    Secret,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolDefinitionError,
    tool,
)
from toolsemble._vocabulary.errors import AgentExecutionError, RunParkedError
from toolsemble._vocabulary.result import ToolResult
from toolsemble.agent import Prices
from toolsemble.events import (
    CacheHit,
    CallAbandoned,
    CallFinished,
    CallProgress,
    CallRetried,
    CallStarted,
    CallTimedOut,
    ModelRetried,
    ReviewDecided,
    ReviewRequested,
    RunFinished,
    RunStarted,
)
from toolsemble.models import TokenUsage
from toolsemble.review import (
    AutoApprove,
    CallbackReview,
    Continue,
    PauseReview,
    QueueReview,
    ReviewRequest,
    ReviewStore,
)
from toolsemble.telemetry import HistoryEvent, RunHistory
from toolsemble.testing import ScriptedModel

NASTY = "<img src=x onerror=alert(1)>\u202e\x00\x1b[31m\ud800\"'%_!</script>"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def fail() -> str:
    """Fail."""
    raise ValueError("no luck")


@pytest.fixture
def history(tmp_path):
    with RunHistory(tmp_path / "data" / "history.db") as made:
        yield made


def run(history, *replies, tools=(add,), run_id="r1", prompt="Add 1 and 2.", **settings):
    model = ScriptedModel([*replies], usage=TokenUsage(input=10, output=2, cached=4))
    return Agent(model, [*tools], sinks=[history], **settings).run_sync(prompt, run_id=run_id)


def start(path, *words):
    program = [sys.executable, history_process.__file__, str(path), *words]
    return subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": "src"})


def test_a_run_is_counted(history):
    run(history, ToolCall("add", {"a": "1", "b": 2}), ToolCall("add", {"a": 1}), "It is 3.", prices=Prices(1, 2))
    (found,) = history.runs()
    assert found == history.run("r1")
    assert found.seconds >= 0
    assert (found.state, found.prompt, found.answer, found.stop_reason) == (
        "done",
        "Add 1 and 2.",
        "It is 3.",
        "answer",
    )
    assert (found.turns, found.calls, found.failures, found.repairs) == (3, 2, 1, 1)
    assert (found.input_tokens, found.output_tokens, found.cached_tokens) == (30, 6, 12)
    assert found.cost == pytest.approx(42e-6)
    assert (found.model, found.is_agent, found.nested, found.waiting) == ("ScriptedModel", True, 0, 0)
    assert found.last == history.last()


def test_calls_and_turns_of_a_run_are_listed_in_order(history):
    run(history, ToolCall("add", {"a": 1, "b": 2}), ToolCall("fail"), "Done.", tools=(add, fail))
    first, second = history.calls("r1")
    assert (first.tool_name, first.turn, first.outcome, first.text) == ("add", 1, "success", "3")
    assert json.loads(first.arguments) == {"a": 1, "b": 2}
    assert (second.tool_name, second.turn, second.outcome, second.text) == ("fail", 2, "error", "Error: no luck")
    assert history.calls("r1", after=first.number) == [second]
    assert history.calls("r1", limit=1) == [first]
    assert history.event(first.finished).values["result"]["output"] == "3"
    turns = history.turns("r1")
    assert [(each.turn, each.calls, each.text) for each in turns] == [
        (1, ("add",), ""),
        (2, ("fail",), ""),
        (3, (), "Done."),
    ]
    assert turns[0].started <= turns[0].at
    assert history.turns("r1", after=turns[1].number) == turns[2:]


def test_an_agent_inside_a_call_names_that_call(history):
    inner = Agent(ScriptedModel([ToolCall("add", {"a": 1, "b": 2}), "three"]), [add], role="clerk")
    run(history, ToolCall("ask", {"input": "sum"}), "Done.", tools=(inner.as_tool("ask", "Ask."),))
    outer, nested = history.agents("r1")
    ask, added = history.calls("r1")
    assert (outer.parent_id, outer.state, outer.tools) == ("", "done", ("ask",))
    assert (nested.parent_id, nested.agent_role, nested.answer) == (ask.call_id, "clerk", "three")
    assert (added.parent_id, added.turn) == (ask.call_id, 1)
    assert history.run("r1").nested == 1
    assert [each.parent_id for each in history.turns("r1")] == ["", ask.call_id, ask.call_id, ""]


def test_a_call_without_an_agent_is_a_run(history):
    box = Toolbox([add, fail], sinks=[history])
    box.execute(ToolCall("add", {"a": 1, "b": 2}))
    box.execute(ToolCall("fail"))
    failed, done = history.runs()
    assert (done.state, done.is_agent, done.answer) == ("done", False, "3")
    assert done.prompt.startswith("add {")
    assert (failed.state, failed.answer) == ("failed", "Error: no luck")


def test_runs_are_listed_in_pages_newest_first(history):
    for index in range(5):
        run(history, "Done.", run_id=f"r{index}")
    first = history.runs(limit=2)
    assert [each.run_id for each in first] == ["r4", "r3"]
    assert [each.run_id for each in history.runs(limit=9, before=first[-1].number)] == ["r2", "r1", "r0"]


def test_runs_are_found_by_tool_and_by_text(history):
    run(history, ToolCall("add", {"a": 4711, "b": 2}), "Sum", run_id="a")
    run(history, ToolCall("fail"), 'Say "100 %" \U0001f600 in\nRome', tools=(fail,), run_id="b_1")
    assert [each.run_id for each in history.runs(tool="add")] == ["a"]
    for text, found in {
        "4711": ["a"], "ROME": ["b_1"], '"100 %"': ["b_1"], "\U0001f600 in\nRo": ["b_1"], "b_1": ["b_1"], "bx1": [],
        "%": ["b_1"], "": ["b_1", "a"], "no such text": [],
    }.items():  # fmt: skip
        assert [each.run_id for each in history.runs(text=text)] == found, text


def test_a_state_that_does_not_exist_is_refused(history):
    with pytest.raises(ValueError, match="state must be one of queued, running, waiting, done"):
        history.runs(state="open")


def test_a_failed_run_has_its_error(history):
    with pytest.raises(AgentExecutionError):
        run(history, RuntimeError("no connection"))
    (found,) = history.runs(state="failed")
    assert found.error.endswith("AgentExecutionError: no connection")
    assert history.runs(state="done") == []


async def test_a_cancelled_run_is_cancelled(history):
    started = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    agent = Agent(ScriptedModel([ToolCall("wait")]), [wait], sinks=[history])
    task = asyncio.create_task(agent.run("Wait.", run_id="r1"))
    await asyncio.wait_for(started.wait(), LONG)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [each.run_id for each in history.runs(state="cancelled")] == ["r1"]


def test_a_paused_run_waits(history):
    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    run(history, ToolCall("pay"), tools=(pay,), review=PauseReview())
    assert history.run("r1").state == "waiting"
    assert history.runs(state="waiting")[0].stop_reason == "paused"


def is_noted(history, request):
    """Return whether the history has a question."""
    return request.id in [each.request_id for each in history.reviews(request.run_id)]


async def test_a_run_waits_until_a_person_answers(history, tmp_path):
    @tool(requires_approval=True)
    def pay(order: int) -> str:
        """Pay."""
        return f"paid {order}"

    with ReviewStore(tmp_path / "reviews.db") as store:
        model = ScriptedModel([ToolCall("pay", {"order": 7}), ToolCall("pay", {"order": 8}), "Done."])
        agent = Agent(model, [pay], sinks=[history], review=QueueReview(store))
        task = asyncio.create_task(agent.run("Pay.", run_id="r1"))
        for person, decision in (("ada", Edit('{"order": 9}')), ("bob", ExitEarly("too much"))):
            await auntil(lambda: store.pending() and is_noted(history, store.pending()[0]))
            assert history.runs(state="waiting")[0].waiting == 1
            store.answer(store.pending()[0], decision, person=person)
        await asyncio.wait_for(task, LONG)
    found = history.run("r1")
    assert (found.state, found.reviews, found.waiting, found.reviewers) == ("done", 2, 0, ("ada", "bob"))
    first, second = history.reviews("r1")
    assert (first.decision, first.person, first.reason, first.tool_name) == ("edit", "ada", "", "pay")
    assert (second.decision, second.person, second.reason) == ("reject", "bob", "too much")
    assert first.asked <= first.answered
    assert history.calls("r1")[0].text == "paid 9"


async def test_a_durable_run_waits_and_continues(history, tmp_path):
    @tool(requires_approval=True)
    def pay(order: int) -> str:
        """Pay."""
        return f"paid {order}"

    with ReviewStore(tmp_path / "reviews.db") as store:
        journal = RunJournal(tmp_path / "runs.db", park_after=0.01)
        settings = {"sinks": [history], "review": QueueReview(store), "journal": journal}
        first = Agent(ScriptedModel([ToolCall("pay", {"order": 7})]), [pay], **settings)
        with pytest.raises(RunParkedError):
            await first.run("Pay.", run_id="r1")
        found = history.run("r1")
        assert (found.state, found.waiting) == ("waiting", 1)
        store.answer(store.pending()[0], Continue(), person="ada")
        await Agent(ScriptedModel(["Done."]), [pay], **settings).run("Pay.", run_id="r1")
    found = history.run("r1")
    assert (found.state, found.turns, found.waiting, found.reviewers) == ("done", 2, 0, ("ada",))
    assert [(each.turn, each.text) for each in history.calls("r1")] == [(1, "paid 7")]


def test_a_reviewer_may_say_who_decided(history):
    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    run(history, ToolCall("pay"), "x", tools=(pay,), review=CallbackReview(lambda _: Continue(person="ada")))
    assert history.run("r1").reviewers == ("ada",)
    assert [each.person for each in history.reviews("r1")] == ["ada"]


def test_a_question_is_counted_although_its_process_was_killed_before_the_event(history):
    request = ReviewRequest("Pays", "pay", {}, call_id="c1", run_id="r1", id="q1")
    history.emit_all([CallStarted("pay", "c1", {}, run_id="r1"), ReviewDecided(request, Continue(person="ada"))])
    found = history.run("r1")
    assert (found.reviews, found.waiting, found.reviewers) == (1, 0, ("ada",))
    assert [(each.tool_name, each.decision) for each in history.reviews("r1")] == [("pay", "continue")]


def test_a_question_is_withdrawn_when_its_call_ends(history):
    request = ReviewRequest("Pays", "pay", {}, call_id="c1", run_id="r1", id="q1")
    history.emit_all([CallStarted("pay", "c1", {}, run_id="r1"), ReviewRequested(request)])
    assert history.run("r1").state == "waiting"
    history.emit(CallFinished("pay", "c1", "error", None, error_type="Stop", error="now", run_id="r1"))
    assert history.reviews("r1")[0].decision == "withdrawn"
    found = history.run("r1")
    assert (found.state, found.waiting, found.answer) == ("failed", 0, "Stop: now")


def test_everything_that_happens_in_a_call_is_noted(history):
    ids = {"run_id": "r1"}
    history.emit_all(
        [
            CallStarted("pay", "c1", {}, **ids),
            CallProgress("pay", "c1", 0.4, "page 4", **ids),
            CallRetried("pay", "c1", 1, 0.5, "refused", **ids),
            CallTimedOut("pay", "c1", 5.0, **ids),
            CacheHit("pay", "c1", **ids),
            CallAbandoned("pay", "c1", **ids),
            ModelRetried("busy", 1.0, **ids),
        ]
    )
    (call,) = history.calls("r1")
    assert (call.progress, call.message, call.retries) == (0.4, "page 4", 1)
    assert (call.is_cached, call.is_timed_out, call.outcome) == (True, True, None)
    assert history.run("r1").retries == 2
    assert [each.kind for each in history.events(run="r1")][-2:] == ["call_abandoned", "model_retried"]


def test_an_id_that_a_model_uses_twice_belongs_to_two_calls(history):
    run(history, ToolCall("add", {"a": 1, "b": 2}, "c1"), ToolCall("add", {"a": 3, "b": 4}, "c1"), "Done.")
    assert [each.text for each in history.calls("r1")] == ["3", "7"]


def test_a_run_that_is_started_again_continues(history):
    history.emit_all([RunStarted("m", run_id="r1"), RunFinished("error", error_type="E", error="x", run_id="r1")])
    assert history.run("r1").state == "failed"
    history.emit(RunStarted("m", run_id="r1"))
    found = history.run("r1")
    assert (found.state, found.error, found.ended) == ("running", "", None)
    assert [each.state for each in history.agents("r1")] == ["failed", "running"]


def test_events_are_read_in_pages_and_by_kind(history):
    run(history, ToolCall("add", {"a": 1, "b": 2}), "Done.")
    run(history, "Done.", run_id="r2")
    events = history.events()
    assert [each.number for each in events] == [*range(1, history.last() + 1)]
    assert history.events(after=2, limit=2) == events[2:4]
    assert history.events(run="r2") == [each for each in events if each.run_id == "r2"]
    assert [each.kind for each in history.events(kinds=["run_started"])] == ["run_started", "run_started"]
    call = history.calls("r1")[0]
    assert [each.kind for each in history.events(call=call.call_id)] == ["call_started", "call_finished"]
    assert history.event(3).event.tool_name == "add"
    assert history.event(0) is None
    assert history.event(999) is None


def test_long_texts_are_cut_and_fetched_on_demand(history):
    @tool
    def shout(text: str, times: int) -> str:
        """Shout."""
        return text * times

    Toolbox([shout], sinks=[history]).execute(ToolCall("shout", {"text": "ab", "times": 5000}))
    (number,) = [each.number for each in history.events(kinds=["call_finished"])]
    (event,) = history.events(after=number - 1, max_text=10)
    assert event.values["result"]["output"] == "ababababab"
    assert event.cut["/result/output"] == 10_000
    with pytest.raises(ValueError, match=f"event {number} was cut; take it whole from event"):
        event.event  # noqa: B018 - the access is the test
    whole = history.event(number)
    assert whole.cut == {}
    assert whole.event.result.output == "ab" * 5000


def test_events_without_values_have_all_else(history):
    Toolbox([add], sinks=[history]).execute(ToolCall("add", {"a": 1, "b": 2}, "c1"))
    whole, heads = history.events(), history.events(values=False)
    assert heads == [replace(each, values={}, cut={}) for each in whole]
    assert {each.call_id for each in heads} == {"c1"}
    with pytest.raises(ValueError, match=f"event {heads[0].number} was cut; take it whole"):
        heads[0].event  # noqa: B018 - the access is the test


def test_long_lists_are_cut(history):
    history.emit(CallStarted("pay", "c1", {"ids": [*range(3000)], "by": dict.fromkeys(map(str, range(3000)), 1)}))
    (event,) = history.events(max_text=100)
    assert event.cut == {"/arguments/ids": 3000, "/arguments/by": 3000}
    assert len(event.values["arguments"]["ids"]) == len(event.values["arguments"]["by"]) == 1000


def test_texts_beyond_the_limit_are_not_kept(tmp_path):
    with RunHistory(tmp_path / "history.db", max_text=100) as history:
        history.emit(CallFinished("pay", "c1", "success", ToolResult.success("x" * 1000), run_id="r1"))
        event = history.event(1)
        assert event.values["result"]["output"] == "x" * 100
        assert event.cut == {"/result/output": 1000}
        assert history.events(max_text=20)[0].cut == {"/result/output": 1000}
    with pytest.raises(ToolDefinitionError, match="RunHistory max_text must be an int"):
        RunHistory(tmp_path / "history.db", max_text=0)


def test_messages_can_be_left_out(tmp_path):
    with RunHistory(tmp_path / "history.db", messages=False) as history:
        run(history, "The answer.", prompt="The question.")
        found = history.run("r1")
        assert (found.prompt, found.answer, found.turns, found.input_tokens) == ("", "", 1, 10)
    assert b"The question." not in read_all(tmp_path)


def read_all(folder):
    return b"".join(path.read_bytes() for path in Path(folder).iterdir())


def test_secrets_are_never_in_the_file(tmp_path):
    @tool(requires_approval=True)
    def login(user: str, key: Secret[str]) -> str:
        """Log in."""
        if user == "eve":
            raise ValueError(f"wrong key {key.get_secret_value()}")
        return f"welcome with {key.get_secret_value()}"

    with RunHistory(tmp_path / "history.db") as history:
        calls = [ToolCall("login", {"user": user, "key": "hunter2secret"}) for user in ("ada", "eve")]
        run(history, *calls, "Done.", tools=(login,), review=AutoApprove())
        assert len(history.calls("r1")) == 2
        assert "**********" in history.calls("r1")[0].arguments
        assert b"hunter2secret" not in read_all(tmp_path)
    assert b"hunter2secret" not in read_all(tmp_path)


def test_hostile_texts_are_kept_as_they_are(history):
    history.emit_all(
        [
            CallStarted(NASTY, NASTY, {NASTY: NASTY}, run_id=NASTY, parent_id=NASTY, agent_role=NASTY),
            CallProgress(NASTY, NASTY, 0.5, NASTY, run_id=NASTY),
            ReviewRequested(ReviewRequest(NASTY, NASTY, NASTY, run_id=NASTY, call_id=NASTY, id=NASTY)),
            CallFinished(NASTY, NASTY, "success", ToolResult.success(NASTY), run_id=NASTY),
        ]
    )
    found = history.run(NASTY)
    assert (found.calls, found.reviews) == (1, 1)
    (call,) = history.calls(NASTY)
    assert call.outcome == "success"
    assert history.event(1).event.arguments == {NASTY: NASTY}
    assert history.event(4).event.result.output == NASTY
    assert [each.run_id for each in history.runs(text="onerror=alert(1)")] == [found.run_id]
    assert len(history.events(run=NASTY, call=NASTY)) == 4
    assert history.runs(tool="' OR 1=1 --") == []


def test_an_event_that_cannot_be_written_does_not_lose_the_others(history, caplog):
    class Odd:
        @property
        def kind(self):
            raise RuntimeError("odd")

    history.emit_all([CallStarted("a", "c1", {}), Odd(), CallStarted("b", "c2", {})])
    assert [each.tool_name for each in history.events()] == ["a", "b"]
    assert "An event cannot be written to the run history: 'Odd'" in caplog.text


def test_an_event_of_another_version_is_kept_but_not_read():
    event = HistoryEvent(number=1, kind="from_tomorrow", run_id="r1", at=0.0, values={"kind": "from_tomorrow"})
    with pytest.raises(ValueError, match="kind: expected one of"):
        event.event  # noqa: B018 - the access is the test


def test_old_runs_are_forgotten(tmp_path):
    now = [1000.0]
    with RunHistory(tmp_path / "history.db", clock=lambda: now[0]) as history:
        for index, at in enumerate((100.0, 900.0)):
            ids = {"run_id": f"r{index}", "at": at}
            history.emit_all([CallStarted("add", "c", {}, **ids), CallFinished("add", "c", "success", **ids)])
        history.emit(CallStarted("add", "c", {}, run_id="running", at=50.0))
        last = history.last()
        assert history.forget(500) == 1
        assert [each.run_id for each in history.runs()] == ["running", "r1"]
        assert history.calls("r0") == history.events(run="r0") == []
        now[0] = 9000.0
        assert history.forget(0) == 1
        history.emit(CallStarted("add", "c", {}, run_id="next"))
        assert history.last() == last + 1  # no number is used twice
        with pytest.raises(ToolDefinitionError, match="older_than"):
            history.forget(-1)


def test_an_empty_history_has_nothing(history):
    assert history.last() == 0
    assert history.runs() == history.events() == history.calls("r1") == history.agents("r1") == []
    assert history.run("r1") is None


def test_the_folder_is_created_and_only_its_owner_can_read_the_file(history, tmp_path):
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "data" / "history.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_a_history_needs_a_file(path):
    with pytest.raises(ToolDefinitionError, match="A RunHistory needs a file path"):
        RunHistory(path)


def test_a_folder_that_cannot_be_created_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ToolConfigurationError, match=r"The folder of the run history '.*file' cannot be used"):
        RunHistory(tmp_path / "file" / "history.db")


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "history.db"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(ToolConfigurationError, match=r"The run history '.*history.db' cannot be used"):
        RunHistory(path)


def test_a_foreign_file_and_one_of_a_later_version_are_refused(tmp_path):
    with ReviewStore(tmp_path / "reviews.db"):
        pass
    with pytest.raises(ToolConfigurationError, match="it is not a run history of this version"):
        RunHistory(tmp_path / "reviews.db")
    path = tmp_path / "history.db"
    RunHistory(path).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ToolConfigurationError, match="it is not a run history of this version"):
        RunHistory(path)


def test_a_history_can_be_pickled_and_is_closed(tmp_path):
    history = RunHistory(tmp_path / "history.db")
    with pickle.loads(pickle.dumps(history)) as again:
        run(again, "Done.")
    assert history.run("r1").state == "done"
    history.close()
    with pytest.raises(ToolConfigurationError, match="The run history is closed"):
        history.runs()


def test_a_full_disk_does_not_affect_calls(history, monkeypatch, caplog):
    def raise_full(*_, **__):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(history._database, "writing", raise_full)
    assert run(history, "Done.").text == "Done."
    until(lambda: "A sink failed" in caplog.text)


@pytest.mark.slow
def test_processes_write_while_another_one_reads(tmp_path):
    path = tmp_path / "history.db"
    with RunHistory(path) as history:
        writers = [start(path, prefix, "20") for prefix in "ab"]
        seen = [0]

        def has_seen_all():
            have_ended = all(writer.poll() is not None for writer in writers)
            seen.extend(each.number for each in history.events(after=seen[-1], limit=1000))
            return have_ended

        until(has_seen_all)
        for writer in writers:
            assert writer.wait(LONG) == 0
            writer.stdout.close()
        # A reader that continues after the last number that it saw misses nothing, and sees nothing twice.
        assert seen[1:] == [each.number for each in history.events(limit=1000)] == [*range(1, 241)]
        assert len(history.runs(state="done", limit=100)) == 40


def test_a_run_whose_process_was_killed_is_lost(tmp_path):
    path = tmp_path / "history.db"
    with RunHistory(path) as history:
        writer = start(path, "r", "1", "hang")
        assert writer.stdout.readline() == "ready\n"
        until(lambda: history.calls("rhang"))
        assert history.run("rhang").state == "running"
        writer.send_signal(signal.SIGKILL)
        writer.wait(LONG)
        writer.stdout.close()
        assert history.run("rhang").state == "lost"
        assert [each.run_id for each in history.runs(state="lost")] == ["rhang"]
        assert history.runs(state="running") == []
        assert [each.state for each in history.agents("rhang")] == ["lost"]
        assert history.run("r0").state == "done"
        with closing(sqlite3.connect(path)) as connection, connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
        history.emit(CallStarted("add", "c", {}, run_id="after"))
        assert history.forget(0) == 2


def test_a_writer_that_cannot_be_identified_is_taken_for_running(history):
    history.emit(CallStarted("add", "c", {}, run_id="r1"))
    with history._database.writing() as connection:
        connection.execute("UPDATE runs SET owner = 'somebody'")
    assert history.run("r1").state == "running"


@pytest.mark.slow
def test_a_run_of_ten_thousand_calls_is_read_at_once(history):
    for start in range(0, 10_000, 500):
        events = []
        for index in range(start, start + 500):
            ids = {"run_id": "r1", "at": float(index)}
            events.append(CallStarted("add", f"c{index}", {"a": index}, **ids))
            events.append(CallFinished("add", f"c{index}", "success", ToolResult.success("ok"), {"a": index}, **ids))
        history.emit_all(events)
    began = time.process_time()
    assert history.run("r1").calls == 10_000
    assert len(history.runs(tool="add", state="done")) == 1
    assert len(history.calls("r1", limit=100, after=history.last() - 200)) == 100
    assert len(history.events(after=history.last() - 100)) == 100
    quick = time.process_time() - began
    began = time.process_time()
    assert len(history.calls("r1", limit=10_000)) == 10_000
    # What a page shows first does not depend on the length of the run; the factor is far beyond any noise.
    assert quick < max(time.process_time() - began, 0.05) * 5
