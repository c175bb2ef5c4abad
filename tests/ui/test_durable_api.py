"""The endpoints of durable runs, and of calls whose outcome is unknown."""

import asyncio
from contextlib import suppress

import pytest

from helpers.journal_runs import Killed, clerk
from helpers.ui_client import Desk
from helpers.wait import until
from toolsemble import Agent, EffectLedger, RunJournal, Toolbox, ToolCall, tool
from toolsemble._ui.interface import Targets
from toolsemble._ui.routes.durable import stop_working
from toolsemble.models import UserMessage
from toolsemble.testing import ScriptedModel


@tool(effects="write")
def pay(order: int) -> str:
    """Pay an order."""
    raise Killed


@tool
def look(order: int) -> str:
    """Look at an order."""
    return f"order {order}"


TURNS = (ToolCall("look", {"order": 7}), ToolCall("look", {"order": 8}), "Done.")


def record(desk, run_id, *replies, tools=(look,), **settings):
    """Do a run with a journal; it may be killed."""
    with RunJournal(desk.folder.path / "runs.db") as journal:
        agent = clerk(journal, list(tools), *replies, **settings)
        with suppress(Killed, BaseExceptionGroup):
            agent.run_sync("Pay order 7", run_id=run_id)


def test_a_folder_without_a_journal_has_no_durable_runs(desk):
    assert desk.get("/api/durable") == {"runs": [], "exists": False, "total": 0}
    assert desk.refused("/api/durable/run", {"id": "a"}) == (404, "The data folder has no runs.db")
    assert desk.refused("/api/durable/cancel", body={"id": "a"})[0] == 404
    assert desk.get("/api/unknown") == {"unknown": [], "exists": False}


def test_runs_are_listed_latest_first_with_what_can_be_done(desk):
    record(desk, "a", *TURNS)
    with RunJournal(desk.folder.path / "runs.db") as journal:
        journal.begin("b", "clerk", "Later")
    found = desk.get("/api/durable")
    assert [(run["run_id"], run["state"], run["can_cancel"], run["can_resume"]) for run in found["runs"]] == [
        ("b", "queued", True, False),
        ("a", "done", False, False),
    ]
    assert [run["run_id"] for run in desk.get("/api/durable", state="done")["runs"]] == ["a"]
    assert desk.refused("/api/durable", {"state": "asleep"})[0] == 400


def test_steps_are_shown_without_what_was_said(desk):
    record(desk, "a", *TURNS)
    shown = desk.get("/api/durable/run", id="a")
    assert [(step["place"], step["kind"], step["tool"]) for step in shown["steps"]] == [
        ("/1", "reply", ""),
        ("/1.1", "call", "look"),
        ("/2", "reply", ""),
        ("/2.1", "call", "look"),
        ("/3", "reply", ""),
    ]
    assert "data" not in shown["steps"][0]
    assert shown["in_history"] is False
    assert desk.refused("/api/durable/run", {"id": "b"})[0] == 404


def test_a_run_is_cancelled_taken_over_and_forked(desk):
    record(desk, "a", *TURNS)
    with RunJournal(desk.folder.path / "runs.db") as journal:
        journal.begin("b", "clerk", "Later")
    assert desk.post("/api/durable/cancel", id="b") == {"state": "cancelled"}
    assert desk.post("/api/durable/take-over", id="a") == {"state": "done"}
    assert desk.post("/api/durable/fork", id="a", after="/1", new_id="c") == {"id": "c"}
    generated = desk.post("/api/durable/fork", id="a", after="/2")["id"]
    assert generated.startswith("a-")
    assert [step["place"] for step in desk.get("/api/durable/run", id="c")["steps"]] == ["/1", "/1.1"]
    assert desk.refused("/api/durable/fork", body={"id": "a", "after": "/9"})[0] == 400
    assert desk.refused("/api/durable/cancel", body={"id": "nothing"})[0] == 400


def test_a_run_is_resumed_here_and_recorded(tmp_path):
    agent = Agent(ScriptedModel(["Continued."]), [look], name="clerk")
    with Desk(tmp_path / "data", Targets(agents={"clerk": agent})) as desk:
        record(desk, "a", *TURNS)
        fork = desk.post("/api/durable/fork", id="a", after="/1", new_id="again")["id"]
        assert desk.get("/api/durable/run", id=fork)["run"]["can_resume"] is True
        assert desk.post("/api/durable/resume", id=fork) == {"id": fork}
        until(lambda: desk.get("/api/durable/run", id=fork)["run"]["state"] == "done")
        shown = desk.get("/api/durable/run", id=fork)
        assert (shown["run"]["text"], shown["in_history"]) == ("Continued.", True)
        assert desk.refused("/api/durable/resume", body={"id": fork})[0] == 409


def test_a_run_with_a_history_is_resumed_with_it(tmp_path):
    model = ScriptedModel(["Continued."])
    with Desk(tmp_path / "data", Targets(agents={"clerk": Agent(model)})) as desk:
        with RunJournal(desk.folder.path / "runs.db") as journal:
            journal.begin("b", "clerk", "Later", history=[UserMessage("before")])
        desk.post("/api/durable/resume", id="b")
        until(lambda: desk.get("/api/durable/run", id="b")["run"]["state"] == "done")
    assert [message.text for message in model.requests[0]] == ["before", "Later"]


def test_a_run_of_an_unknown_agent_is_not_resumed_here(desk):
    with RunJournal(desk.folder.path / "runs.db") as journal:
        journal.begin("b", "clerk", "Later")
    status, problem = desk.refused("/api/durable/resume", body={"id": "b"})
    assert (status, "Start the server with the agent 'clerk'" in problem) == (409, True)


def test_a_run_that_fails_while_it_is_resumed_says_so(tmp_path):
    broken = Agent(ScriptedModel([]), name="clerk")
    with Desk(tmp_path / "data", Targets(agents={"clerk": broken})) as desk:
        with RunJournal(desk.folder.path / "runs.db") as journal:
            journal.begin("b", "clerk", "Later")
        desk.post("/api/durable/resume", id="b")
        until(lambda: desk.get("/api/durable/run", id="b")["run"]["state"] == "failed")
        until(lambda: not desk.interface.working)
        assert desk.get("/api/durable/run", id="b")["run"]["can_resume"] is True  # a failed run can be continued


def test_a_run_that_is_cancelled_while_it_is_resumed_stops(tmp_path):
    @tool
    async def cancel_it() -> str:
        """Cancel the run that this is a call of."""
        await asyncio.to_thread(desk.folder.journal().cancel, "b")
        return "cancelled"

    agent = Agent(ScriptedModel([ToolCall("cancel_it"), "Never."]), [cancel_it], name="clerk")
    with Desk(tmp_path / "data", Targets(agents={"clerk": agent})) as desk:
        with RunJournal(desk.folder.path / "runs.db") as journal:
            journal.begin("b", "clerk", "Later")
        desk.post("/api/durable/resume", id="b")
        until(lambda: not desk.interface.working)
        assert desk.get("/api/durable/run", id="b")["run"]["state"] == "cancelled"


def test_runs_that_were_resumed_stop_with_the_server(tmp_path):
    @tool
    async def hang() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return "never"

    agent = Agent(ScriptedModel([ToolCall("hang")]), [hang], name="clerk")
    with Desk(tmp_path / "data", Targets(agents={"clerk": agent})) as desk:
        with RunJournal(desk.folder.path / "runs.db") as journal:
            journal.begin("b", "clerk", "Later")
        desk.post("/api/durable/resume", id="b")
        until(lambda: len(desk.get("/api/durable/run", id="b")["steps"]) > 0)
        assert desk.get("/api/durable/run", id="b")["run"]["is_driven"] is True
    assert not desk.interface.working


async def test_nothing_to_stop_is_fine(tmp_path):
    with Desk(tmp_path) as desk:
        await stop_working(desk.interface)


def test_unknown_outcomes_of_the_journal_are_settled(desk):
    record(desk, "a", ToolCall("pay", {"order": 7}), "Done.", tools=(pay,))
    (call,) = desk.get("/api/unknown")["unknown"]
    assert (call["kind"], call["tool"], call["run_id"], call["key"]) == ("step", "pay", "a", "/1.1")
    assert desk.get("/api/me")["outcomes"] == 1
    settled = desk.post("/api/unknown", kind="step", key="/1.1", run_id="a", happened=True, result="paid")
    assert settled["unknown"] == []


def test_unknown_outcomes_of_the_ledger_are_settled(desk):
    @tool(effects="write", idempotency=True)
    def charge(order: int) -> str:
        """Charge."""
        raise Killed

    with EffectLedger(desk.folder.path / "effects.db") as ledger:
        box = Toolbox([charge], ledger=ledger)
        for order in (1, 2):
            with pytest.raises(Killed):
                box.execute(ToolCall("charge", {"order": order}), run_id="a")
    first, second = desk.get("/api/unknown")["unknown"]
    assert (first["kind"], first["tool"], first["arguments"]) == ("effect", "charge", '{"order":1}')
    desk.post("/api/unknown", kind="effect", key=first["key"], happened=True, result="charged")
    assert desk.post("/api/unknown", kind="effect", key=second["key"], happened=False)["unknown"] == []
    assert desk.refused("/api/unknown", body={"kind": "effect", "key": first["key"], "happened": True})[0] == 400
    assert desk.refused("/api/unknown", body={"kind": "effect", "key": "x"}) == (
        400,
        "'happened' must be true or false",
    )
    assert desk.refused("/api/unknown", body={"kind": "step", "key": "x", "happened": True})[0] == 404


def test_a_damaged_file_is_reported_by_its_page_and_not_by_others(desk):
    (desk.folder.path / "runs.db").write_bytes(b"not a database" * 100)
    assert desk.get("/api/me")["approvals"] == 0
    status, problem = desk.refused("/api/durable")
    assert (status, "runs.db" in problem) == (400, True)
