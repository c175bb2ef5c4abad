"""The journal itself: the driver of a run, calls of unknown outcome, and operations on runs from outside."""

import asyncio
import json
import os
import pickle
import re
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import dataclass

import pytest

from helpers.journal_runs import Killed, clerk, script
from helpers.wait import until
from toolsemble import (
    Agent,
    AgentExecutionError,
    EffectLedger,
    RunBusyError,
    RunCancelledError,
    RunJournal,
    RunParkedError,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolDefinitionError,
    ToolResult,
    tool,
)
from toolsemble.agent._journal.storage import new_owner
from toolsemble.models import ScriptedModel, SystemMessage, UserMessage
from toolsemble.review import PauseReview

pytestmark = pytest.mark.slow

PAY = ToolCall("pay", {"order": 7})

IN_A_FILE = pytest.mark.parametrize("place", ["file"], indirect=True)


class Till:
    """A tool with an effect that can end its process, or wait."""

    def __init__(self):
        self.paid = []
        self.kills = False
        self.entered, self.free = threading.Event(), threading.Event()
        self.free.set()

    @tool(effects="irreversible")
    def pay(self, order: int) -> str:
        """Pay an order."""
        self.paid.append(order)
        self.entered.set()
        if self.kills:
            self.kills = False
            raise Killed
        assert self.free.wait(60)
        return f"paid {order}"


@pytest.fixture
def till():
    return Till()


@pytest.fixture
def lost(runs, till):
    """A run whose call was in flight when its process ended."""
    till.kills = True
    with pytest.raises(Killed):
        clerk(runs, [till], PAY, "Done.").run_sync("Pay order 7", run_id="r1")
    return runs


def go_on(runs, till, *replies):
    return clerk(runs, [till], *(replies or (PAY, "Done."))).run_sync("Pay order 7", run_id="r1")


def test_a_call_in_flight_is_listed_before_anybody_continues(lost):
    (call,) = lost.unknown()
    assert (call.run_id, call.place, call.tool, call.arguments) == ("r1", "/1.1", "pay", '{"order": 7}')


def test_a_call_of_a_run_that_is_driven_is_not_unknown(runs, till):
    till.free.clear()
    thread = threading.Thread(target=lambda: go_on(runs, till))
    thread.start()
    assert till.entered.wait(60)
    assert runs.unknown() == []
    with pytest.raises(ValueError, match=r"Run 'r1' has no call of unknown outcome at '/1\.1'; see unknown\(\)"):
        runs.resolve("r1", "/1.1", happened=True)
    till.free.set()
    thread.join(60)
    assert runs.find("r1").state == "done"


def test_a_call_that_happened_is_answered_with_the_given_result(lost, till):
    lost.resolve("r1", "/1.1", happened=True, result="paid by hand")
    assert lost.unknown() == []
    result = go_on(lost, till)
    assert till.paid == [7]
    assert result.tool_calls[0].reply.text == "paid by hand"


def test_a_result_of_a_resolved_call_may_be_a_tool_result(lost, till):
    lost.resolve("r1", "/1.1", happened=True, result=ToolResult.failure("the card was refused"))
    assert go_on(lost, till).tool_calls[0].reply.text == "Error: the card was refused"


def test_a_call_that_did_not_happen_is_made(lost, till):
    lost.resolve("r1", "/1.1", happened=False)
    assert lost.unknown() == []
    result = go_on(lost, till)
    assert till.paid == [7, 7]
    assert result.tool_calls[0].reply.text == "paid 7"


def test_a_call_that_the_model_was_told_about_is_only_settled(lost, till):
    result = go_on(lost, till)
    assert "Unknown outcome" in result.tool_calls[0].reply.text
    assert [call.place for call in lost.unknown()] == ["/1.1"]
    lost.resolve("r1", "/1.1", happened=False)
    assert lost.unknown() == []
    assert go_on(lost, till).tool_calls[0].reply.text == result.tool_calls[0].reply.text
    assert till.paid == [7]
    with pytest.raises(ValueError, match="has no call of unknown outcome"):
        lost.resolve("r1", "/1.1", happened=True)


def test_what_cannot_be_resolved_is_refused(lost):
    with pytest.raises(ValueError, match=r"no call of unknown outcome at '/9\.9'"):
        lost.resolve("r1", "/9.9", happened=True)
    with pytest.raises(ToolConfigurationError, match=r"There is no run 'r9' in the journal; see list\(\)"):
        lost.resolve("r9", "/1.1", happened=True)


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        ({"happened": "no"}, "happened must be True or False, not 'no'"),
        ({"happened": False, "result": "x"}, "result must be None for a call that did not happen, not 'x'"),
        ({"happened": True, "result": {"paid": 7}}, "result must be a str or a ToolResult, not {'paid': 7}"),
    ],
)
def test_an_outcome_that_is_not_clear_settles_nothing(lost, outcome, message):
    with pytest.raises(TypeError, match=message):
        lost.resolve("r1", "/1.1", **outcome)
    assert [call.place for call in lost.unknown()] == ["/1.1"]


def test_a_run_can_wait_until_a_person_has_settled_a_call(tmp_path, till):
    with RunJournal(tmp_path / "runs.db", on_unknown="ask") as runs:
        till.kills = True
        with pytest.raises(Killed):
            go_on(runs, till)
        with pytest.raises(RunParkedError, match="waits: the outcome of 'pay' is unknown") as parked:
            go_on(runs, till)
        assert parked.value.run_id == "r1"
        assert runs.find("r1").state == "waiting"
        runs.resolve("r1", "/1.1", happened=True, result="paid by hand")
        assert runs.find("r1").state == "queued"
        assert go_on(runs, till).tool_calls[0].reply.text == "paid by hand"
        assert till.paid == [7]


@IN_A_FILE
def test_a_ledger_in_a_file_knows_what_became_of_a_call(runs, tmp_path):
    paid = []

    @tool(effects="irreversible", idempotency=True)
    def pay(order: int) -> str:
        """Pay an order."""
        paid.append(order)
        return f"paid {order}"

    with EffectLedger(tmp_path / "effects.db") as ledger:
        box = Toolbox([pay], ledger=ledger)
        clerk(runs, box, PAY, "Done.").run_sync("Pay order 7", run_id="r1")
        # As if the process had ended before the result was there.
        with closing(sqlite3.connect(tmp_path / "runs.db")) as rows, rows:
            rows.execute("UPDATE steps SET state = 'started', data = NULL WHERE place = '/1.1'")
            rows.execute("DELETE FROM steps WHERE place = '/2'")
            rows.execute("UPDATE runs SET state = 'running', owner = ''")
        rows.close()
        result = clerk(runs, box, PAY, "Done.").run_sync("Pay order 7", run_id="r1")
    assert paid == [7]
    assert result.tool_calls[0].reply.text == "paid 7"


def test_a_second_driver_is_refused(runs, place, till):
    till.free.clear()
    thread = threading.Thread(target=lambda: go_on(runs, till))
    thread.start()
    assert till.entered.wait(60)
    with RunJournal(place) as other, pytest.raises(RunBusyError) as busy:
        go_on(other, till)
    till.free.set()
    thread.join(60)
    assert f"Run 'r1' is driven by process {os.getpid()} since" in str(busy.value)
    assert busy.value.run_id == "r1"
    assert till.paid == [7]


async def test_of_many_drivers_at_once_one_drives(runs, till):
    agent = clerk(runs, [till], PAY, "Done.")
    outcomes = await asyncio.gather(*[agent.run("Pay order 7", run_id="r1") for _ in range(8)], return_exceptions=True)
    done = [each.text for each in outcomes if not isinstance(each, BaseException)]
    assert till.paid == [7]
    assert done
    assert set(done) == {"Done."}
    assert all(isinstance(each, RunBusyError) for each in outcomes if isinstance(each, BaseException))


def test_a_driver_whose_run_was_taken_over_writes_nothing_more(runs, till):
    till.free.clear()
    errors = []

    def drive():
        try:
            go_on(runs, till)
        except RunBusyError as error:
            errors.append(error)

    thread = threading.Thread(target=drive)
    thread.start()
    assert till.entered.wait(60)
    runs.take_over("r1")
    assert runs.find("r1").state == "queued"
    result = go_on(runs, till)
    till.free.set()
    thread.join(60)
    assert till.paid == [7]
    assert "Unknown outcome" in result.tool_calls[0].reply.text
    assert "Run 'r1' was taken over by process" in str(errors[0])
    assert go_on(runs, till).tool_calls[0].reply.text == result.tool_calls[0].reply.text


def test_only_a_running_run_is_taken_over(runs, till):
    go_on(runs, till)
    runs.take_over("r1")
    assert runs.find("r1").state == "done"


def test_a_cancelled_run_stops_before_its_next_call_and_is_not_continued(runs, till):
    @tool
    def stop() -> str:
        """Cancel this run."""
        runs.cancel("r1")
        return "cancelled"

    agent = clerk(runs, [till, stop], ToolCall("stop"), PAY, "Done.")
    with pytest.raises(RunCancelledError, match="Run 'r1' was cancelled"):
        agent.run_sync("Pay order 7", run_id="r1")
    with pytest.raises(RunCancelledError, match="Run 'r1' was cancelled and cannot resume"):
        agent.run_sync("Pay order 7", run_id="r1")
    assert till.paid == []
    assert runs.find("r1").state == "cancelled"


def test_cancelling_a_finished_run_does_nothing(runs, till):
    go_on(runs, till)
    runs.cancel("r1")
    assert runs.find("r1").state == "done"
    with pytest.raises(ToolConfigurationError, match="There is no run 'r2'"):
        runs.cancel("r2")


def test_begin_records_a_run_once(runs):
    runs.begin("r1", "clerk", "Pay order 7")
    runs.begin("r1", "clerk", [UserMessage("Pay order 7")])
    assert [(run.run_id, run.agent, run.state, run.prompt, run.error) for run in runs.list()] == [
        ("r1", "clerk", "queued", "Pay order 7", "")
    ]
    with pytest.raises(ToolConfigurationError, match="begun with another prompt"):
        runs.begin("r1", "clerk", "Pay order 8")
    with pytest.raises(ToolConfigurationError, match="belongs to agent 'clerk', not 'poet'"):
        runs.begin("r1", "poet", "Pay order 7")


@pytest.mark.parametrize(("run_id", "agent"), [("", "clerk"), (None, "clerk"), ("r1", " "), ("r1", 3)])
def test_a_run_needs_an_id_and_an_agent(runs, run_id, agent):
    with pytest.raises(ToolConfigurationError, match=r"A run needs (run_id|agent), a str, not"):
        runs.begin(run_id, agent, "Pay order 7")


def test_runs_are_listed_by_state(runs, till):
    runs.begin("r2", "clerk", "Pay order 8")
    go_on(runs, till)
    assert [run.run_id for run in runs.list("done")] == ["r1"]
    assert [run.run_id for run in runs.list()] == ["r2", "r1"]
    assert runs.find("r3") is None
    assert runs.steps("r3") == []
    with pytest.raises(ValueError, match="Unknown run state 'finished'; expected one of queued, running"):
        runs.list("finished")


def test_a_fork_runs_again_from_a_turn(runs, till):
    go_on(runs, till, PAY, ToolCall("pay", {"order": 8}), "Done.")
    runs.fork("r1", "/1", "r2")
    assert (runs.find("r2").state, runs.find("r2").prompt) == ("queued", "Pay order 7")
    asked = []
    agent = clerk(runs, [till], PAY, ToolCall("pay", {"order": 9}), "Other.", asked=asked)
    result = agent.run_sync("Pay order 7", run_id="r2")
    assert (result.text, asked, till.paid) == ("Other.", [1, 2], [7, 8, 9])
    assert runs.find("r1").text == "Done."


def test_a_fork_of_a_run_in_flight_does_not_repeat_its_call(lost, till):
    lost.fork("r1", "/1", "r2")
    result = clerk(lost, [till], PAY, "Done.").run_sync("Pay order 7", run_id="r2")
    assert till.paid == [7]
    assert "Unknown outcome" in result.tool_calls[0].reply.text


def test_a_fork_that_cannot_be_made_is_refused(runs, till):
    go_on(runs, till)
    with pytest.raises(ValueError, match="Run 'r1' has no turn '/7'; it has /1, /2"):
        runs.fork("r1", "/7", "r2")
    with pytest.raises(ValueError, match=r"Run 'r1' has no turn '/1\.1'; it has /1, /2"):
        runs.fork("r1", "/1.1", "r2")
    with pytest.raises(ToolConfigurationError, match="Run 'r1' already exists"):
        runs.fork("r1", "/1", "r1")
    runs.begin("r3", "clerk", "Pay order 7")
    with pytest.raises(ValueError, match="Run 'r3' has no turn '/1'; it has none yet"):
        runs.fork("r3", "/1", "r4")


def test_ended_runs_are_forgotten_but_not_those_with_unknown_calls(tmp_path, till):
    now = [1000.0]
    with RunJournal(tmp_path / "runs.db", clock=lambda: now[0]) as runs:
        go_on(runs, till)
        runs.begin("r2", "clerk", "Pay order 8")
        till.kills = True
        with pytest.raises(Killed):
            clerk(runs, [till], PAY, "Done.").run_sync("Pay order 7", run_id="r3")
        clerk(runs, [till], PAY, "Done.").run_sync("Pay order 7", run_id="r3")
        now[0] += 60
        assert runs.forget(61) == 0
        assert runs.forget(60) == 1
        assert [run.run_id for run in runs.list()] == ["r2", "r3"]
        assert runs.steps("r1") == []


@pytest.mark.parametrize("url", ["", ":memory:", 3, None])
def test_a_journal_needs_a_file(url):
    with pytest.raises(ToolDefinitionError, match="A RunJournal needs the path of a file, not"):
        RunJournal(url)


def test_settings_of_a_journal_are_checked(tmp_path):
    with pytest.raises(ToolDefinitionError, match="RunJournal on_unknown must be 'tell' or 'ask', not 'guess'"):
        RunJournal(tmp_path / "runs.db", on_unknown="guess")
    with pytest.raises(ToolDefinitionError, match="RunJournal park_after"):
        RunJournal(tmp_path / "runs.db", park_after=-1)


@IN_A_FILE
def test_the_file_is_for_its_owner_only(runs):
    assert runs._path.stat().st_mode & 0o077 == 0


def test_a_foreign_file_is_refused_with_its_path(tmp_path):
    path = tmp_path / "effects.db"
    EffectLedger(path).close()
    with pytest.raises(ToolConfigurationError, match=r"The run journal '.*effects\.db' cannot be used: it is not a"):
        RunJournal(path)


def test_a_newer_file_is_refused(tmp_path):
    path = tmp_path / "runs.db"
    RunJournal(path).close()
    rows = sqlite3.connect(path)
    rows.execute("PRAGMA user_version = 99")
    rows.close()
    with pytest.raises(
        ToolConfigurationError, match=r"runs\.db' cannot be used: it is not a run journal of this version"
    ):
        RunJournal(path)


def test_a_damaged_file_is_refused_and_nothing_runs(tmp_path, till):
    path = tmp_path / "runs.db"
    with RunJournal(path) as runs:
        for number in range(200):
            runs.begin(f"r{number}", "clerk", "Pay order 7" * 20)
    data = bytearray(path.read_bytes())
    assert len(data) > 20_000
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)
    with (
        pytest.raises(ToolConfigurationError, match=r"The run journal '.*runs\.db' cannot be used"),
        RunJournal(path) as runs,
    ):
        go_on(runs, till)
    assert till.paid == []


@IN_A_FILE
def test_a_full_disk_fails_the_run_before_the_next_body_and_it_continues_with_room(runs, till):
    text = "x" * 100_000

    @tool(effects="read")
    def read() -> str:
        """Read much."""
        return text

    replies = ToolCall("read"), PAY, "Done."
    connection = runs._storage._database._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 5}")
    agent = clerk(runs, [till, read], *replies)
    with pytest.raises(Exception, match="full"):
        agent.run_sync("Pay order 7", run_id="r1")
    assert till.paid == []
    connection.execute("PRAGMA max_page_count = 1000000")
    assert agent.run_sync("Pay order 7", run_id="r1").text == "Done."
    assert till.paid == [7]


@pytest.mark.parametrize("shift", [-86400.0, 86400.0])
def test_a_clock_that_is_a_day_off_changes_nothing(tmp_path, till, shift):
    path = tmp_path / "runs.db"
    with RunJournal(path) as runs:
        till.kills = True
        with pytest.raises(Killed):
            go_on(runs, till)
    with RunJournal(path, clock=lambda: time.time() + shift) as runs:
        assert go_on(runs, till).text == "Done."
    assert till.paid == [7]


def set_owner(path, owner, updated):
    rows = sqlite3.connect(path)
    rows.execute("UPDATE runs SET state = 'running', owner = ?, updated = ?", (json.dumps(owner), updated))
    rows.commit()
    rows.close()


@IN_A_FILE
def test_a_driver_of_another_machine_counts_for_a_minute(runs, till):
    runs.begin("r1", "clerk", "Pay order 7")
    owner = ["another boot", 4711, "1", "token", 0.0]
    set_owner(runs._path, owner, time.time())
    with pytest.raises(RunBusyError, match="Run 'r1' is driven by process 4711 since 1970"):
        go_on(runs, till)
    set_owner(runs._path, owner, time.time() - 61)
    assert go_on(runs, till).text == "Done."


@IN_A_FILE
def test_a_driver_that_cannot_be_looked_up_counts_while_it_says_that_it_lives(runs, till):
    runs.begin("r1", "clerk", "Pay order 7")
    place = json.loads(new_owner())[0]
    owner = [place, 4711, "", "token", 0.0]  # as on a system that does not tell when a process began
    set_owner(runs._path, owner, time.time() - 10)
    with pytest.raises(RunBusyError):
        go_on(runs, till)
    set_owner(runs._path, owner, time.time() - 31)
    assert go_on(runs, till).text == "Done."


def test_a_driver_that_cannot_be_looked_up_says_that_it_lives(tmp_path, monkeypatch):
    monkeypatch.setattr("toolsemble.agent._journal.storage.needs_beats", lambda: True)
    begun, end = threading.Event(), threading.Event()

    @tool
    def hold() -> str:
        """Hold."""
        begun.set()
        assert end.wait(60)
        return "held"

    with RunJournal(tmp_path / "beats.db", lease=0.03) as runs:
        agent = clerk(runs, [hold], ToolCall("hold"), "Done.")
        thread = threading.Thread(target=agent.run_sync, args=("Hold",), kwargs={"run_id": "r1"})
        thread.start()
        assert begun.wait(60)
        first = runs.find("r1").updated
        until(lambda: runs.find("r1").updated > first)
        end.set()
        thread.join(60)
        assert runs.find("r1").state == "done"


@IN_A_FILE
def test_a_process_that_has_ended_drives_nothing(runs, till):
    code = "from toolsemble.agent._journal.storage import new_owner; print(new_owner())"
    owner = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    runs.begin("r1", "clerk", "Pay order 7")
    set_owner(runs._path, json.loads(owner), time.time())
    assert go_on(runs, till).text == "Done."


def test_a_pause_review_is_refused_before_the_model_is_asked(runs):
    @tool(requires_approval=True)
    def pay(order: int) -> str:
        """Pay an order."""
        return f"paid {order}"

    agent = Agent(ScriptedModel([]), [pay], journal=runs, name="clerk", review=PauseReview())
    with pytest.raises(
        ToolConfigurationError, match="PauseReview ends a run whose journal would wait; pass a reviewer"
    ):
        agent.run_sync("Pay order 7", run_id="r1")


@pytest.mark.parametrize("prompt", ["", " ", [], ["  "], [SystemMessage("Be kind.")]])
def test_a_run_needs_a_prompt(runs, prompt):
    with pytest.raises(ToolConfigurationError, match="There is nothing to answer; pass a prompt"):
        runs.begin("r1", "clerk", prompt)
    assert runs.list() == []
    runs.begin("r1", "clerk", [], history=[UserMessage("Hello")])


@pytest.mark.parametrize("run_id", ["", " \t"])
def test_an_empty_id_is_refused(runs, till, run_id):
    with pytest.raises(ToolConfigurationError, match="The run_id of a run is empty; choose one, or leave it out"):
        clerk(runs, [till], "Done.").run_sync("Hello", run_id=run_id)
    with pytest.raises(ToolConfigurationError, match="The run_id of a run is empty"):
        clerk(None, [], "Done.").run_sync("Hello", run_id=run_id)
    assert runs.list() == []


@pytest.mark.parametrize("use", ["find", "cancel", "take_over"])
def test_an_id_that_is_not_a_text_is_named(runs, use):
    with pytest.raises(TypeError, match="A run id must be a str, not None"):
        getattr(runs, use)(None)


def test_an_empty_file_becomes_a_journal(tmp_path):
    (tmp_path / "runs.db").touch()
    with RunJournal(tmp_path / "runs.db") as runs:
        runs.begin("r1", "clerk", "Pay order 7")
    with RunJournal(tmp_path / "runs.db") as runs:
        assert [run.run_id for run in runs.list()] == ["r1"]


def test_a_file_of_the_first_version_is_upgraded(tmp_path, till):
    path = tmp_path / "runs.db"
    with RunJournal(path) as runs, pytest.raises(Killed):
        clerk(runs, [till], PAY, Killed).run_sync("Pay order 7", run_id="r1")
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("DROP INDEX steps_by_state")
        file.execute("CREATE INDEX steps_by_state ON steps (state)")
        file.execute("PRAGMA user_version = 1")
    with RunJournal(path) as runs:
        assert go_on(runs, till).text == "Done."
        assert runs.unknown() == []
    with closing(sqlite3.connect(path)) as file:
        (index,) = file.execute("SELECT sql FROM sqlite_master WHERE name = 'steps_by_state'").fetchone()
        assert "NOT IN ('done', 'repeatable')" in index


def test_the_answer_to_one_user_is_not_for_another(runs):
    agent = clerk(runs, [], "Hello, Ada.")
    agent.run_sync("Hi", run_id="r1", memory_id="ada")
    with pytest.raises(ToolConfigurationError, match="Run 'r1' was begun with another memory_id; choose another"):
        agent.run_sync("Hi", run_id="r1", memory_id="bob")
    assert agent.run_sync("Hi", run_id="r1").text == "Hello, Ada."


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory_id": 3}, "The memory_id of a run must be a str, not 3"),
        ({"parameters": [1]}, "The parameters of a run must be a mapping, such as {'user': 'ada'}, not [1]"),
    ],
)
def test_settings_of_the_wrong_type_are_named(runs, settings, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        runs.begin("r1", "clerk", "Hi", **settings)


def test_pin_is_true_or_false(tmp_path):
    with pytest.raises(ToolDefinitionError, match="RunJournal pin must be True or False, not 'yes'"):
        RunJournal(tmp_path / "runs.db", pin="yes")


def test_another_process_gets_the_same_journal(place, runs):
    runs.begin("r1", "clerk", "Pay order 7")
    with pickle.loads(pickle.dumps(runs)) as same:
        assert [run.run_id for run in same.list()] == ["r1"]
        assert repr(same) == repr(runs)


@pytest.mark.parametrize("effects", ["irreversible", "read"])
def test_a_call_that_timed_out_is_one_of_unknown_outcome(runs, effects):
    @tool(effects=effects, timeout=0.01)
    async def pay(order: int) -> str:
        """Pay an order."""
        await asyncio.Event().wait()
        return "paid"

    result = clerk(runs, [pay], PAY, "Done.").run_sync("Pay order 7", run_id="r1")
    assert result.tool_calls[0].reply.text == "Error: Tool 'pay' timed out after 0.01 s"
    assert [call.place for call in runs.unknown()] == (["/1.1"] if effects == "irreversible" else [])


def test_a_call_that_ran_when_the_time_of_the_run_was_over_is_one_of_unknown_outcome(runs):
    @tool(effects="irreversible")
    async def pay(order: int) -> str:
        """Pay an order."""
        await asyncio.Event().wait()
        return "paid"

    result = clerk(runs, [pay], PAY, "Too late.", max_seconds=0.3).run_sync("Pay order 7", run_id="r1")
    assert (result.stop_reason, [call.place for call in runs.unknown()]) == ("max_seconds", ["/1.1"])


def test_a_journal_that_is_deleted_while_it_is_used_is_reported_before_anything_runs(tmp_path, till):
    with RunJournal(tmp_path / "runs.db") as runs:
        for file in tmp_path.glob("runs.db*"):
            file.unlink()
        with pytest.raises(ToolConfigurationError, match=r"runs\.db' was deleted or replaced while it was open; start"):
            go_on(runs, till)
        RunJournal(tmp_path / "runs.db").close()
        with pytest.raises(ToolConfigurationError, match="was deleted or replaced while it was open"):
            runs.begin("r2", "clerk", "Pay order 7")
    assert till.paid == []


def test_a_failed_run_is_retried_with_what_it_has_done(runs, till):
    fail = clerk(runs, [till], PAY, RuntimeError("no credit"))
    with pytest.raises(AgentExecutionError):
        fail.run_sync("Pay order 7", run_id="r1")
    runs.retry("r1")
    runs.retry("r1")  # changes nothing
    assert (runs.find("r1").state, runs.find("r1").error) == ("queued", "")
    asyncio.run(runs.work({"clerk": clerk(None, [till], PAY, "Done.")}, until_idle=True, poll=0.01))
    assert (runs.find("r1").text, till.paid) == ("Done.", [7])
    with pytest.raises(ToolConfigurationError, match="Run 'r1' is done; only a failed run can be retried"):
        runs.retry("r1")
    with pytest.raises(ToolConfigurationError, match="There is no run 'r2'"):
        runs.retry("r2")


@dataclass
class Refund:
    order: int
    amount: float


def test_a_record_has_the_typed_output_when_the_run_is_done(runs):
    final = ToolCall("final_answer", {"order": 7, "amount": 5.0})
    agent = Agent(script(final), journal=runs, name="clerk", output_type=Refund)
    runs.begin("r1", "clerk", "Refund order 7")
    record = runs.find("r1")
    assert (record.output, record.usage, record.stop_reason, record.text) == (None, None, None, "")
    result = agent.run_sync("Refund order 7", run_id="r1")
    record = runs.find("r1")
    assert (record.output, record.stop_reason, record.text) == ({"order": 7, "amount": 5.0}, "answer", result.text)
    assert record.usage["input_tokens"] == result.usage.input_tokens


def damage(runs, statement):
    """Change a journal as something else would."""
    with runs._storage._database.writing() as rows:
        rows.execute(statement)


DAMAGES = [
    "UPDATE runs SET prompt = 'not JSON' WHERE run = 'r1'",
    "UPDATE runs SET prompt = '[7]' WHERE run = 'r1'",
    'UPDATE runs SET prompt = \'[{"role":"martian","text":"x"}]\' WHERE run = \'r1\'',
    "UPDATE runs SET settings = '{}' WHERE run = 'r1'",
    "UPDATE runs SET waiting = '[', state = 'waiting' WHERE run = 'r1'",
    "UPDATE runs SET owner = '{', state = 'running' WHERE run = 'r1'",
    "UPDATE runs SET owner = '[1]', state = 'running' WHERE run = 'r1'",
    "UPDATE runs SET state = 'lost' WHERE run = 'r1'",
    (
        "INSERT INTO steps (run, place, kind, state, tool, arguments, data, elapsed, at) "
        "VALUES ('r1', '/1', 'reply', 'done', '', '', '{', 0, 0)"
    ),
    (
        "INSERT INTO steps (run, place, kind, state, tool, arguments, data, elapsed, at) "
        "VALUES ('r1', '/1', 'reply', 'done', '', '', '7', 0, 0)"
    ),
    (
        "INSERT INTO steps (run, place, kind, state, tool, arguments, data, elapsed, at) "
        "VALUES ('r1', '/1.1', 'question', 'closing', '', '', '[]', 0, 0)"
    ),
]


@pytest.mark.parametrize("statement", DAMAGES)
async def test_a_damaged_run_does_not_stop_the_worker(runs, statement, caplog):
    for number in range(1, 4):
        runs.begin(f"r{number}", "clerk", "Pay order 7")
    damage(runs, statement)
    await asyncio.wait_for(runs.work({"clerk": clerk(None, [], "Done.")}, until_idle=True, poll=0.01), 60)
    states = {run.run_id: run.state for run in runs.list()}
    assert (states["r2"], states["r3"]) == ("done", "done")
    told = [record.getMessage() for record in caplog.records if "'r1'" in record.getMessage()]
    assert len(told) == ("closing" not in statement)
