"""The endpoints of the run history."""

import threading

import pytest

from helpers import ui_shop
from helpers.journal_runs import Killed, answer, clerk, script
from helpers.wait import until
from toolsemble import Agent, RunJournal, RunParkedError, Toolbox, ToolCall, tool
from toolsemble._vocabulary.errors import RunChangedError
from toolsemble.agent._journal.driver import RunDriver
from toolsemble.events import CallStarted
from toolsemble.review import ExitEarly, QueueReview, ReviewStore
from toolsemble.testing import AutoApprove, ScriptedModel


def run_clerk(desk, run_id, order=7, **settings):
    history = desk.folder.history(create=True)
    calls = [ToolCall("find_order", {"order": order}), f"Order {order} is here."]
    agent = Agent(ScriptedModel(calls), [ui_shop.find_order], sinks=[history], role="a clerk", **settings)
    return agent.run_sync(f"Find order {order}", run_id=run_id)


def read(table):
    return [dict(zip(table["names"], row, strict=True)) for row in table["rows"]]


def test_a_folder_without_a_history_has_no_runs(desk):
    assert desk.get("/api/runs") == {"runs": [], "more": False, "before": 0, "exists": False}
    assert desk.refused("/api/run", {"id": "a"}) == (404, "The data folder has no history.db yet")


def test_runs_are_listed_in_pages_newest_first(desk):
    for number in range(5):
        run_clerk(desk, f"run-{number}", number)
    first = desk.get("/api/runs", limit=3)
    second = desk.get("/api/runs", limit=3, before=first["before"])
    assert [run["run_id"] for run in first["runs"]] == ["run-4", "run-3", "run-2"]
    assert [run["run_id"] for run in second["runs"]] == ["run-1", "run-0"]
    assert (first["more"], second["more"], second["before"]) == (True, False, 0)
    assert first["runs"][0]["prompt"] == "Find order 4"


def test_runs_that_wait_come_first_and_filters_find_others(desk):
    history = desk.folder.history(create=True)
    run_clerk(desk, "older")
    box = Toolbox([ui_shop.refund], sinks=[history], review=desk.interface.reviewer())
    call = ToolCall("refund", ui_shop.REFUND, "c1")
    asking = threading.Thread(target=lambda: box.execute(call, run_id="waiting"))
    asking.start()
    store = desk.folder.reviews()
    until(lambda: any(run["state"] == "waiting" for run in desk.get("/api/runs")["runs"]))
    run_clerk(desk, "newer")
    assert [run["run_id"] for run in desk.get("/api/runs")["runs"]] == ["waiting", "newer", "older"]
    assert [run["run_id"] for run in desk.get("/api/runs", state="done")["runs"]] == ["newer", "older"]
    assert [run["run_id"] for run in desk.get("/api/runs", tool="refund")["runs"]] == ["waiting"]
    assert [run["run_id"] for run in desk.get("/api/runs", text="older")["runs"]] == ["older"]
    store.answer(store.pending()[0], ExitEarly("no"))
    asking.join(60)


def test_one_run_has_its_turns_calls_and_agents(desk):
    run_clerk(desk, "a")
    shown = desk.get("/api/run", id="a")
    (call,) = read(shown["calls"])
    assert (shown["run"]["state"], shown["run"]["answer"], shown["durable"]) == ("done", "Order 7 is here.", None)
    assert [turn["kind"] for turn in shown["turns"]] == [
        "run_started",
        "model_replied",
        "model_replied",
        "run_finished",
    ]
    assert (call["tool_name"], call["outcome"], call["arguments"]) == ("find_order", "success", '{"order":7}')
    assert [agent["agent_role"] for agent in shown["agents"]] == ["a clerk"]
    assert read(desk.get("/api/run/calls", id="a", after=call["number"])) == []
    assert desk.refused("/api/run", {"id": "b"}) == (404, "The history has no run 'b'")
    assert desk.refused("/api/run") == (400, "The address needs 'id'")


def test_a_run_of_a_journal_says_so(desk, tmp_path):
    with RunJournal(desk.folder.path / "runs.db") as journal:
        run_clerk(desk, "a", journal=journal, name="clerk")
    assert desk.get("/api/run", id="a")["durable"] == {"has_agent": False}
    run_clerk(desk, "b")
    assert desk.get("/api/run", id="b")["durable"] is None


def test_changes_are_what_is_new_and_what_was_open(desk):
    run_clerk(desk, "a")
    (call,) = read(desk.get("/api/run", id="a")["calls"])
    everything = desk.get("/api/run/changes", id="a")
    assert read(everything["calls"]) == [call]
    known = desk.get("/api/run/changes", id="a", after=call["number"], turn=10**6, open=f"{call['number']},x,")
    assert (read(known["calls"]), known["turns"], known["run"]["state"]) == ([call], [], "done")


def test_a_call_is_shown_with_its_events(desk):
    history = desk.folder.history(create=True)
    box = Toolbox([ui_shop.refund], sinks=[history], review=AutoApprove())
    for _ in range(2):  # the same id twice: each has its own events
        box.execute(ToolCall("refund", ui_shop.REFUND, "c1"), run_id="a")
    first, second = read(desk.get("/api/run", id="a")["calls"])
    shown = [desk.get("/api/call", id="a", number=call["number"]) for call in (first, second)]
    kinds = ["call_started", "review_requested", "review_decided", "call_finished"]
    assert [[event["kind"] for event in each["events"]] for each in shown] == [kinds, kinds]
    assert shown[0]["reviews"][0]["decision"] == "continue"
    assert desk.refused("/api/call", {"id": "a", "number": 10**6})[0] == 404
    assert desk.refused("/api/call", {"id": "a", "number": 0})[0] == 404
    assert desk.refused("/api/call", {"id": "a", "number": "x"}) == (400, "'number' must be an integer >= 0, not 'x'")


def test_a_call_that_runs_has_the_events_so_far(desk):
    history = desk.folder.history(create=True)
    history.emit(CallStarted("find_order", "c1", {"order": 7}, run_id="a"))
    (call,) = read(desk.get("/api/run", id="a")["calls"])
    assert [event["kind"] for event in desk.get("/api/call", id="a", number=call["number"])["events"]] == [
        "call_started"
    ]


def test_raw_events_come_in_pages_with_long_texts_cut(desk):
    history = desk.folder.history(create=True)
    Toolbox([ui_shop.echo], sinks=[history]).execute(ToolCall("echo", {"text": "x" * 5000}, "c1"), run_id="a")
    page = desk.get("/api/run/events", id="a", limit=1)
    (started,) = page["events"]
    assert (page["more"], started["cut"]) == (True, {"/arguments/text": 5000})
    whole = desk.get("/api/event", number=started["number"])["event"]
    assert len(whole["values"]["arguments"]["text"]) == 5000
    rest = desk.get("/api/run/events", id="a", after=started["number"])
    assert ([event["kind"] for event in rest["events"]], rest["more"]) == (["call_finished"], False)
    assert desk.refused("/api/event", {"number": 10**6}) == (404, "There is no such event")


def test_the_timeline_has_rows(desk):
    run_clerk(desk, "a")
    found = desk.get("/api/run/timeline", id="a")
    assert [row["kind"] for row in read(found["rows"])] == ["turn", "call", "turn"]
    assert found["is_cut"] is False


def test_two_runs_are_compared(desk):
    run_clerk(desk, "a", 7)
    run_clerk(desk, "b", 8)
    found = desk.get("/api/compare", first="a", second="b")["comparison"]
    assert (found["divergence"], [pair["change"] for pair in found["pairs"]]) == (0, ["changed"])
    numbers = {f"{name}_number": found["pairs"][0][name]["number"] for name in ("first", "second")}
    difference = desk.get("/api/compare/calls", first="a", second="b", **numbers)["difference"]
    assert [(line["mark"], line["text"].strip()) for line in difference["arguments"] if line["mark"] != "="] == [
        ("-", '"order": 7'),
        ("+", '"order": 8'),
    ]
    alone = desk.get("/api/compare/calls", first="a", second="b", first_number=numbers["first_number"])["difference"]
    assert {line["mark"] for line in alone["text"]} == {"-"}
    assert desk.refused("/api/compare", {"first": "a", "second": "c"})[0] == 404


@pytest.mark.parametrize("path", ["/api/runs", "/api/run/events"])
def test_a_state_or_number_that_is_not_one_is_refused(desk, path):
    run_clerk(desk, "a")
    assert desk.refused(path, {"id": "a", "state": "sleeping", "after": "-1"})[0] == 400


def test_texts_of_any_kind_can_be_shown(desk):
    history = desk.folder.history(create=True)
    text = "\ud800 \u202e </script> \x00"
    Toolbox([ui_shop.echo], sinks=[history]).execute(ToolCall("echo", {"text": text}, "c1"), run_id="a")
    assert "</script>" in desk.client.get("/api/run", params={"id": "a"}).text


@tool(requires_approval=True, approval_timeout=60)
def wire(order: int) -> str:
    """Send money."""
    return f"sent {order}"


def make_wirer(desk, journal, **settings):
    """Return an agent whose inner agent sends money, with approval; its runs are in all files of the folder."""
    inner = Agent(script(ToolCall("wire", {"order": "7"}), "Sent."), [wire], role="helper").as_tool("helper", "Helps")
    review, history = QueueReview(desk.folder.reviews(create=True)), desk.folder.history(create=True)
    settings = {"review": review, "sinks": [history], **settings}
    return clerk(journal, [inner], ToolCall("helper", {"input": "go"}), "Done.", **settings)


def park_run(desk, run_id="r1"):
    """Do a run until it is parked."""
    with RunJournal(desk.folder.path / "runs.db", park_after=0) as journal, pytest.raises(RunParkedError):
        make_wirer(desk, journal).run_sync("Send money", run_id=run_id)


def continue_run(desk, *, pin=False, **settings):
    """Continue a run that was parked."""
    with RunJournal(desk.folder.path / "runs.db", park_after=0, pin=pin) as journal:
        make_wirer(desk, journal, **settings).run_sync("Send money", run_id="r1")


def show_states(desk, run_id="r1"):
    """Return the state of a run, the questions that can be answered, and the state of its question, on both pages."""
    page, durable = desk.get("/api/run", id=run_id), desk.get("/api/durable/run", id=run_id)
    (listed,) = [run for run in desk.get("/api/runs")["runs"] if run["run_id"] == run_id]
    changed = desk.get("/api/run/changes", id=run_id)
    assert (listed["state"], changed["run"]["state"], changed["pending"]) == (
        page["run"]["state"], page["run"]["state"], page["pending"]
    )  # fmt: skip
    assert [run["run_id"] for run in desk.get("/api/runs", state=listed["state"])["runs"]] == [run_id]
    assert [run["run_id"] for run in desk.get("/api/durable", state=durable["run"]["state"])["runs"]] == [run_id]
    (question,) = [step["state"] for step in durable["steps"] if step["kind"] == "question"]
    return page["run"]["state"], durable["run"]["state"], listed["waiting"], page["pending"], question


def list_rows(desk):
    return [(row["kind"], row["name"], row["state"]) for row in read(desk.get("/api/run/timeline", id="r1")["rows"])]


def test_a_run_that_was_parked_is_drawn_once_and_both_pages_agree(desk):
    park_run(desk)
    assert show_states(desk) == ("waiting", "waiting", 1, 1, "open")
    model = "FunctionModel"
    turn, agent = ("turn", model, "done"), ("agent", "helper", "done")
    calls = [("call", "helper", "waiting"), ("call", "wire", "waiting")]
    assert list_rows(desk) == [turn, calls[0], agent, turn, calls[1]]
    answer(desk.folder.reviews())
    continue_run(desk)
    assert show_states(desk) == ("done", "done", 0, 0, "closed")
    found = desk.get("/api/run", id="r1")
    assert (found["run"]["calls"], found["run"]["repairs"], len(found["agents"])) == (2, 1, 2)
    calls = [("call", "helper", "done"), ("call", "wire", "done")]
    assert list_rows(desk) == [turn, calls[0], agent, turn, calls[1], turn, turn]
    starts = [event["number"] for event in found["turns"] if event["kind"] == "run_started"]
    assert (len(starts), {each["number"] for each in found["agents"]} < {*starts}) == (4, True)


def test_a_run_that_was_cancelled_without_an_event_is_cancelled_on_all_pages(desk):
    park_run(desk)
    with RunJournal(desk.folder.path / "runs.db") as journal:
        journal.cancel("r1", store=desk.folder.reviews())
    assert show_states(desk) == ("cancelled", "cancelled", 0, 0, "closed")
    assert [review["decision"] for review in desk.get("/api/run", id="r1")["reviews"]] == ["withdrawn"]
    (number,) = [call["number"] for call in read(desk.get("/api/run", id="r1")["calls"]) if call["tool_name"] == "wire"]
    assert [each["decision"] for each in desk.get("/api/call", id="r1", number=number)["reviews"]] == ["withdrawn"]
    states = {row[2] for row in list_rows(desk) if row[0] == "call"}
    assert (states, desk.get("/api/run", id="r1")["run"]["stop_reason"]) == ({"interrupted"}, "cancelled")
    comparison = desk.get("/api/compare", first="r1", second="r1")["comparison"]
    assert comparison["first"]["state"] == "cancelled"


def test_a_failed_run_with_an_open_question_does_not_wait(desk):
    park_run(desk)
    with pytest.raises(RunChangedError):
        continue_run(desk, pin=True, role="another clerk")
    assert show_states(desk) == ("failed", "failed", 0, 0, "closed")


def test_a_question_that_has_expired_cannot_be_decided(desk, clock):
    path = desk.folder.path / "reviews.db"
    desk.folder._opened["reviews.db"] = ReviewStore(path, clock=clock.time)
    park_run(desk)
    clock.advance(61)
    assert show_states(desk) == ("waiting", "waiting", 1, 0, "open")
    continue_run(desk)
    assert show_states(desk) == ("done", "done", 0, 0, "closed")


def test_a_run_whose_process_ended_is_lost_on_both_pages(desk, monkeypatch):
    def die(*_, **__):
        raise Killed

    park_run(desk)
    answer(desk.folder.reviews())
    with monkeypatch.context() as patched:
        patched.setattr(RunDriver, "end", die)
        with pytest.raises(Killed):
            continue_run(desk)
    assert show_states(desk)[:2] == ("lost", "lost")
    assert desk.get("/api/durable", state="running")["runs"] == []


def test_a_damaged_journal_does_not_hide_the_history(desk):
    run_clerk(desk, "a")
    (desk.folder.path / "runs.db").write_bytes(b"not a database" * 100)
    assert desk.get("/api/run", id="a")["run"]["state"] == "done"
    assert [run["run_id"] for run in desk.get("/api/runs")["runs"]] == ["a"]
