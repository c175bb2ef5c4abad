"""The conversations in a run history: each message is stored once, and every run can be read whole."""

import sqlite3
from contextlib import closing

import pytest

from toolsemble import Agent
from toolsemble.events import RunStarted
from toolsemble.models import AssistantMessage, SystemMessage, UserMessage
from toolsemble.telemetry import RunHistory
from toolsemble.testing import FunctionModel

NASTY = "\ud800 <b> \x00"


@pytest.fixture
def history(tmp_path):
    with RunHistory(tmp_path / "history.db", clock=lambda: 1e12) as made:
        yield made


def chat(history, turns, text=""):
    """Do a run for each turn, each with the messages of those before it; return what each was started with."""
    agent = Agent(FunctionModel(lambda _: f"answer{text}"), role="a clerk", sinks=[history])
    messages, started = [], []
    for turn in range(turns):
        result = agent.run_sync(f"question {turn}{text}", run_id=f"r{turn}", history=messages or None)
        agent.flush(60)
        messages = result.messages
        started.append([each.text for each in messages[:-1]])
    return started


def starts(history):
    return history.events(kinds=["run_started"])


def texts(event):
    return [each["text"] for each in event.values["messages"]]


def test_a_chat_grows_by_its_new_messages_only(history):
    whole = chat(history, 4)
    assert [texts(each)[1:] for each in starts(history)] == [
        ["question 0"],
        ["answer", "question 1"],
        ["answer", "question 2"],
        ["answer", "question 3"],
    ]
    first, second = starts(history)[:2]
    assert second.values["earlier"] == {"event": first.number, "run_id": "r0", "messages": 1}
    assert [texts(history.event(each.number)) for each in starts(history)] == whole
    assert [each.text for each in history.event(starts(history)[-1].number).event.messages] == whole[-1]


def test_an_event_that_refers_to_itself_stays_as_it_is(history, tmp_path):
    chat(history, 2)
    number = starts(history)[-1].number
    with closing(sqlite3.connect(tmp_path / "history.db")) as file, file:
        file.execute("UPDATE events SET body = json_set(body, '$.earlier.event', number) WHERE number = ?", (number,))
    file.close()
    assert texts(history.event(number))[1:] == ["answer", "question 1"]


def test_an_event_without_its_earlier_messages_is_not_taken_for_a_whole_one(history):
    chat(history, 2)
    with pytest.raises(ValueError, match="take it whole from event"):
        starts(history)[-1].event  # noqa: B018 - the access is the test


def test_a_long_chat_takes_space_in_proportion_to_its_length(tmp_path):
    sizes = []
    for turns in (20, 40):
        with RunHistory(tmp_path / f"{turns}.db") as history:
            chat(history, turns, " word" * 100)
            sizes.append(sum(len(str(each.values)) for each in starts(history)))
    assert sizes[1] < 2.2 * sizes[0]


def test_instructions_that_change_are_kept_with_each_run(history):
    for turn, system in enumerate(["Monday", "Tuesday"]):
        messages = (SystemMessage(system), *(UserMessage(f"{each}") for each in range(turn + 1)))
        history.emit(RunStarted("m", messages, run_id=f"r{turn}"))
    assert [texts(each) for each in starts(history)] == [["Monday", "0"], ["Tuesday", "1"]]
    assert texts(history.event(2)) == ["Tuesday", "0", "1"]


def test_the_prompt_is_found_also_if_it_was_known(history):
    history.emit(RunStarted("m", (UserMessage("Why?"),), run_id="r1"))
    history.emit(RunStarted("m", (UserMessage("Why?"), AssistantMessage("Because")), run_id="r2"))
    assert history.run("r2").prompt == "Why?"


def test_the_same_question_twice_is_two_conversations(history):
    for run in ("r1", "r2"):
        history.emit(RunStarted("m", (UserMessage("Why?"),), run_id=run))
    assert [texts(each) for each in starts(history)] == [["Why?"], ["Why?"]]


@pytest.mark.parametrize("messages", [(), (SystemMessage("Be brief."),)])
def test_a_conversation_without_a_question_refers_to_nothing(history, messages):
    for run in ("r1", "r2"):
        history.emit(RunStarted("m", messages, run_id=run))
    assert texts(starts(history)[1]) == [each.text for each in messages]
    assert "earlier" not in history.event(2).values


def test_hostile_texts_are_restored(history):
    for count in (1, 2):
        history.emit(RunStarted("m", (UserMessage(NASTY),) * count, run_id=f"r{count}"))
    assert texts(history.events(kinds=["run_started"])[1]) == [NASTY]
    assert texts(history.event(2)) == [NASTY, NASTY]


def test_runs_that_are_forgotten_leave_the_others_whole(history, tmp_path):
    for turn in range(3):
        messages = tuple(UserMessage(f"{each}{NASTY}") for each in range(turn + 1))
        history.emit(RunStarted("m", messages, run_id=f"r{turn}", at=float(turn)))
    with closing(sqlite3.connect(tmp_path / "history.db")) as connection, connection:
        connection.execute("UPDATE runs SET state = 'done'")
    assert history.forget(1e12 - 1.5) == 2
    (left,) = starts(history)
    assert "earlier" not in left.values
    assert texts(left) == [f"{each}{NASTY}" for each in range(3)]
    assert history.forget(0) == 1
    with closing(sqlite3.connect(tmp_path / "history.db")) as connection, connection:
        assert connection.execute("SELECT count(*) FROM conversations").fetchone() == (0,)


def test_texts_that_were_cut_are_named_at_their_place(tmp_path):
    with RunHistory(tmp_path / "history.db", max_text=200, clock=lambda: 1e12) as history:
        for turn in range(3):
            messages = (SystemMessage("s" * 300), *(UserMessage(f"{each}" * 250) for each in range(turn + 1)))
            history.emit(RunStarted("m", messages, run_id=f"r{turn}", tools=("t" * 201,), at=float(turn)))
        cut = {"/tools/0": 201, **{f"/messages/{each}/text": 300 if each == 0 else 250 for each in range(4)}}
        assert history.event(3).cut == cut
        with closing(sqlite3.connect(tmp_path / "history.db")) as connection, connection:
            connection.execute("UPDATE runs SET state = 'done'")
        history.forget(1e12 - 1.5)
        assert history.event(3).cut == cut


def test_an_event_whose_earlier_one_is_gone_stays_readable(history, tmp_path):
    chat(history, 2)
    first, second = starts(history)
    with closing(sqlite3.connect(tmp_path / "history.db")) as connection, connection:
        connection.execute("DELETE FROM events WHERE number = ?", (first.number,))
    assert texts(history.event(second.number))[1:] == ["answer", "question 1"]


def test_a_file_of_the_first_version_is_read_and_continued(tmp_path):
    with RunHistory(tmp_path / "history.db") as history:
        history.emit(RunStarted("m", (UserMessage("0"),), run_id="old"))
    with closing(sqlite3.connect(tmp_path / "history.db")) as connection, connection:
        connection.executescript("DROP TABLE conversations; PRAGMA user_version = 1;")
    with RunHistory(tmp_path / "history.db") as history:
        for count in (2, 3):
            messages = tuple(UserMessage(f"{each}") for each in range(count))
            history.emit(RunStarted("m", messages, run_id=f"new{count}"))
        assert [texts(each) for each in starts(history)] == [["0"], ["0", "1"], ["2"]]
        assert texts(history.event(3)) == ["0", "1", "2"]
