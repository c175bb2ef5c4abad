"""The endpoint of the chat."""

import json
from threading import Thread
from typing import Annotated

import pytest

from helpers import ui_shop
from helpers.ui_client import Desk
from helpers.wait import until
from toolsemble import Agent, MemoryId, ToolCall, tool
from toolsemble._ui.interface import Targets
from toolsemble._ui.people import add_person, digest_token
from toolsemble.review import AutoApprove
from toolsemble.telemetry import RunHistory
from toolsemble.testing import ScriptedModel


def say(desk, prompt, agent="clerk", chat="c1"):
    """Return the events of an answer."""
    answer = desk.client.post("/api/chat", json={"agent": agent, "prompt": prompt, "chat": chat})
    assert answer.status_code == 200, answer.text
    lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def desk_with(folder, **agents):
    return Desk(folder, Targets(agents=agents))


def test_an_answer_streams_and_is_in_the_history(tmp_path):
    agent = Agent(ScriptedModel(["Good morning"]))
    with desk_with(tmp_path, clerk=agent) as desk:
        started, *events = say(desk, "Hello")
        assert "".join(event["text"] for event in events if event["kind"] == "text_delta") == "Good morning"
        assert events[-1]["kind"] == "final"
        until(lambda: desk.get("/api/runs")["runs"])
        until(lambda: desk.get("/api/run", id=started["run_id"])["run"]["answer"] == "Good morning")


def test_a_conversation_goes_on(tmp_path):
    model = ScriptedModel(["One", "Two", "Three"])
    with desk_with(tmp_path, clerk=Agent(model)) as desk:
        say(desk, "first")
        say(desk, "second")
        say(desk, "other", chat="c2")
    counts = [len(messages) for messages in model.requests]
    assert counts == [1, 3, 1]


def test_old_conversations_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr("toolsemble._ui.routes.chat._MOST_CHATS", 1)
    with desk_with(tmp_path, clerk=Agent(ScriptedModel(["One", "Two"]))) as desk:
        say(desk, "first")
        say(desk, "other", chat="c2")
        assert list(desk.interface.chats) == [f"ui/{desk.people.person.name}/c2"]


def test_calls_wait_for_approvals_of_this_page(tmp_path):
    with desk_with(tmp_path, clerk=ui_shop.clerk) as desk:
        found = []
        chatting = Thread(target=lambda: found.extend(say(desk, "Refund order 7")))
        chatting.start()
        until(lambda: desk.get("/api/approvals")["requests"])
        (request,) = desk.get("/api/approvals")["requests"]
        desk.post("/api/approval", id=request["id"], decision="approve", arguments_digest=request["arguments_digest"])
        chatting.join(60)
        kinds = [event.get("kind") for event in found]
        assert {"call_requested", "call_replied", "review_requested", "review_decided", "final"} <= set(kinds)
        assert found[-1]["text"] == "I have **refunded** 14.40 euros."


def test_an_agent_with_a_reviewer_keeps_it(tmp_path):
    agent = Agent(ScriptedModel(list(ui_shop.SCRIPT)), [ui_shop.find_order, ui_shop.refund], review=AutoApprove())
    with desk_with(tmp_path, clerk=agent) as desk:
        assert say(desk, "Refund order 7")[-1]["kind"] == "final"
        assert desk.get("/api/approvals")["exists"] is False


def test_a_history_of_the_agent_and_of_the_server_is_written_once(tmp_path):
    history = RunHistory(tmp_path / "history.db")
    agent = Agent(ScriptedModel(["Hello"]), sinks=[history])
    with desk_with(tmp_path, clerk=agent) as desk:
        run_id = say(desk, "Hi")[0]["run_id"]
        until(lambda: history.run(run_id) is not None and history.run(run_id).state == "done")
        kinds = [event.kind for event in history.events(run=run_id)]
    assert kinds == ["run_started", "model_replied", "run_finished"]
    history.close()


def test_a_run_that_fails_says_why(tmp_path):
    with desk_with(tmp_path, clerk=Agent(ScriptedModel([]))) as desk:
        events = say(desk, "Hello")
    assert events[-1]["kind"] == "error"
    assert events[-1]["message"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"agent": "unknown", "prompt": "x", "chat": "c"}, 404),
        ({"agent": "clerk", "prompt": " ", "chat": "c"}, 400),
        ({"agent": "clerk", "prompt": "x"}, 400),
        ({"agent": "clerk", "prompt": 1, "chat": "c"}, 400),
    ],
)
def test_a_wrong_message_is_refused(tmp_path, body, status):
    with desk_with(tmp_path, clerk=Agent(ScriptedModel([]))) as desk:
        assert desk.refused("/api/chat", body=body)[0] == status


def test_a_chat_belongs_to_its_person_whatever_its_name(tmp_path):
    seen = []

    @tool
    def whose(memory_id: Annotated[str, MemoryId]) -> str:
        """Say whose memory this is."""
        seen.append(memory_id)
        return memory_id

    people, model = tmp_path / "people.toml", ScriptedModel([ToolCall("whose", {}), "Done"] * 3)
    tokens = {name: add_person(people, name, ["operator"]) for name in ("ada", "bob")}
    with Desk(tmp_path / "data", Targets(agents={"clerk": Agent(model, [whose])}), people=people) as desk:
        for name in ("ada", "bob", "ada"):
            desk.client = desk.sign_in(tokens[name])
            say(desk, "Whose?", chat="ada")
    assert seen == ["ui/ada/ada", "ui/bob/ada", "ui/ada/ada"]
    assert [len(messages) for messages in model.requests] == [1, 3, 1, 3, 5, 7]


@pytest.mark.parametrize("left", ["", '["ada"]\ntoken_sha256 = "DIGEST"\nroles = ["viewer"]\n'])
def test_the_chat_of_a_person_who_may_no_longer_operate_ends(tmp_path, left):
    people = tmp_path / "people.toml"
    token = add_person(people, "ada", ["operator"])

    @tool
    def remove() -> str:
        """Remove the person who asks."""
        people.write_text(left.replace("DIGEST", digest_token(token)))
        return "removed"

    model = ScriptedModel([ToolCall("remove", {}), "Not for you"])
    with Desk(tmp_path / "data", Targets(agents={"clerk": Agent(model, [remove])}), people=people) as desk:
        desk.client = desk.sign_in(token)
        said = say(desk, "Remove me")
    assert [event.get("kind") for event in said][-1] == "call_requested"
