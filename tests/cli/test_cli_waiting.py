"""The commands for what waits: a call for an answer, and an effect of unknown outcome for somebody who looks."""

import getpass
import json
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from helpers.terminal import Person
from toolsemble import Effect, EffectLedger, Toolbox, ToolCall, tool
from toolsemble._cli import main
from toolsemble.review import Continue, Edit, ExitEarly, ReviewRequest, ReviewStore

pytestmark = pytest.mark.slow


@pytest.fixture
def run_command(capsys):
    def run_command(command, file, *words):
        return main([command, "--store", str(file), *map(str, words)]), *capsys.readouterr()

    return run_command


@pytest.fixture
def file(tmp_path):
    return tmp_path / "reviews.db"


def make_request(**given):
    values = {"run_id": "order-17", "memory_id": "ada", "agent_role": "clerk", "timeout": 7300, "id": "4f1c09", **given}
    return ReviewRequest("Pays an order", "pay", values.pop("arguments", {"order": 17}), **values)


@pytest.fixture
def store(file):
    with ReviewStore(file) as store:
        yield store


def test_lists_waiting_calls(run_command, store, file, stopped_clock):
    store.ask(
        [
            make_request(),
            make_request(id="5a", arguments="all\tof\x1bit", chosen_run=False, timeout=None, agent_role="a"),
        ]
    )
    code, out, err = run_command("approvals", file)
    assert (code, err) == (0, "")
    assert [line.split("\t") for line in out.splitlines()] == [
        ["4f1c09", "pay", '{"order": 17}', "ada", "clerk", "order-17", "0 s ago", "2 h"],
        ["5a", "pay", "all\\tof\\x1bit", "ada", "a", "", "0 s ago", ""],
    ]


def test_list_does_not_show_the_default_memory_id(run_command, store, file):
    store.ask([make_request(memory_id="default")])
    assert run_command("approvals", file)[1].split("\t")[3] == ""


def test_lists_waiting_calls_as_json(run_command, store, file):
    store.ask([request := make_request()])
    code, out, _ = run_command("approvals", file, "--json")
    (line,) = map(json.loads, out.splitlines())
    assert (code, line["id"], line["arguments"], line["memory_id"]) == (0, "4f1c09", {"order": 17}, "ada")
    assert (line["deadline"], line["arguments_digest"]) == (request.deadline, request.arguments_digest)


def test_reports_an_empty_store(run_command, store, file):
    assert run_command("approvals", file) == (0, "", "No call is pending approval.\n")
    assert run_command("approvals", file, "list", "--json") == (0, "", "")


@pytest.mark.parametrize(
    ("words", "decision", "told"),
    [
        (["approve", "4f1c09"], Continue(), 'approved: pay {"order": 17}\n'),
        (["approve", "4f"], Continue(), 'approved: pay {"order": 17}\n'),
        (["reject", "4f1c09"], ExitEarly(), 'rejected: pay {"order": 17}\n'),
        (["reject", "4f1c09", "--reason", "not today"], ExitEarly("not today"), 'rejected: pay {"order": 17}\n'),
    ],
)
def test_answers_a_call(run_command, store, file, words, decision, told):
    store.ask([request := make_request()])
    assert run_command("approvals", file, *words) == (0, told, "")
    assert store.take({request.id: request}) == {request.id: decision}
    assert store.audit()[-1].person == getpass.getuser()


def test_edit_reports_the_new_arguments_as_sent_not_as_approved(run_command, store, file):
    store.ask([request := make_request()])
    code, out, err = run_command("approvals", file, "edit", "4f1c09", '{"order":"x"}')
    assert (code, out) == (0, 'approved with other arguments: pay {"order":"x"}\n')
    assert err == "The waiting run validates the new arguments, and asks again if they do not fit.\n"
    assert store.take({request.id: request}) == {request.id: Edit('{"order":"x"}')}


def test_edit_of_a_call_with_secrets_is_not_shown(run_command, store, file):
    store.ask([make_request(hidden_digest="5e")])
    _, out, _ = run_command("approvals", file, "edit", "4f1c09", '{"order": "hunter2"}')
    assert out == "approved with other arguments: pay (not shown: the call has secrets)\n"


def test_edits_a_text(run_command, store, file):
    store.ask([request := make_request(arguments="rm old")])
    assert run_command("approvals", file, "edit", "4f1c09", "rm older")[0] == 0
    assert store.take({request.id: request}) == {request.id: Edit("rm older")}


def test_answers_as_a_person_in_a_role(run_command, store, file):
    store.ask([request := make_request(required_role="boss")])
    assert run_command("approvals", file, "approve", "4f1c09") == (
        1,
        "",
        "toolsemble: it takes the role 'boss', not ''\n",
    )
    code, out, _ = run_command("approvals", file, "approve", "4f1c09", "--role", "boss", "--person", "bob", "--json")
    assert (code, json.loads(out)["person"], json.loads(out)["decision"]) == (0, "bob", "continue")
    assert store.take({request.id: request}) == {request.id: Continue()}


def test_user_without_a_name_answers_without_a_person(run_command, store, file, monkeypatch):
    def unknown():
        raise KeyError("uid not found")

    monkeypatch.setattr(getpass, "getuser", unknown)
    store.ask([make_request()])
    assert run_command("approvals", file, "approve", "4f1c09")[0] == 0
    assert store.audit()[-1].person == ""


def test_shows_a_call_in_full(run_command, store, file):
    store.ask([make_request(arguments={"note": "x" * 300})])
    code, out, _ = run_command("approvals", file, "show", "4f1c09")
    assert (code, out.replace("\n|", "").count("x")) == (0, 300)
    assert "| Memory     ada\n" in out
    assert json.loads(run_command("approvals", file, "show", "4f", "--json")[1])["id"] == "4f1c09"


def test_refused_answer_exits_with_1_and_the_reason(run_command, store, file):
    store.ask([make_request()])
    store.answer(store.pending()[0], Continue(), person="bob")
    assert run_command("approvals", file, "approve", "4f1c09") == (
        1,
        "",
        "toolsemble: it was answered already by 'bob'\n",
    )


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("none", "the store has no request with the id 'none'; see the list"),
        ("4f", "2 requests begin with '4f': 4f1c09 (pay), 4f2 (pay)"),
        ("", "'approve' needs the ID of a request; the list shows them. See 'toolsemble approvals --help'."),
    ],
)
def test_rejects_an_unknown_or_ambiguous_id(run_command, store, file, given, problem):
    store.ask([make_request(), make_request(id="4f2")])
    code, out, err = run_command("approvals", file, "approve", given)
    assert (code, out, err) == (1 if given else 2, "", f"toolsemble: {problem}\n")
    assert len(store.pending()) == 2


def test_the_first_few_requests_of_an_ambiguous_id_are_named(run_command, store, file):
    store.ask([make_request(id=f"4f0000000{number}", arguments={"order": number}) for number in range(9)])
    _, _, err = run_command("approvals", file, "show", "4f")
    named = ", ".join(f"4f0000000{number} (pay)" for number in range(5))
    assert err == f"toolsemble: 9 requests begin with '4f': {named}, ...\n"


def test_start_of_an_id_finds_a_call_that_was_answered_if_none_waits(run_command, store, file):
    store.ask([make_request()])
    store.answer(store.pending()[0], Continue(), person="bob")
    assert json.loads(run_command("approvals", file, "show", "4f", "--json")[1])["id"] == "4f1c09"
    store.ask([make_request(id="4f2", arguments={"order": 18})])
    assert json.loads(run_command("approvals", file, "show", "4f", "--json")[1])["id"] == "4f2"


@pytest.mark.parametrize("text", ["{", "5", "[" * 100_000])
def test_rejects_an_edit_that_is_not_an_object(run_command, store, file, text):
    store.ask([make_request()])
    code, _, err = run_command("approvals", file, "edit", "4f1c09", text)
    assert (code, err[:64]) == (2, "toolsemble: An edit is all arguments of the call as a JSON object"[:64])
    assert len(store.pending()) == 1


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["approve"], "'approve' needs the ID of a request"),
        (["show"], "'show' needs the ID of a request"),
        (["list", "4f"], "'list' takes no ID; use 'show'."),
        (["edit", "4f"], "'edit' needs the new arguments, as JSON."),
        (["approve", "4f", "{}"], "'approve' does not take call arguments."),
        (["approve", "4f", "--reason", "x"], "--reason goes with 'reject'."),
        (["delete", "4f"], "'delete' is not one of 'list', 'show', 'approve', 'reject', 'edit'"),
    ],
)
def test_rejects_invalid_review_commands(run_command, store, file, words, problem):
    code, _, err = run_command("approvals", file, *words)
    assert code == 2
    assert problem in err


def test_does_not_create_a_missing_file(run_command, tmp_path):
    for command in ("approvals", "ledger"):
        code, _, err = run_command(command, tmp_path / "none.db")
        assert (code, "does not exist" in err) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_does_not_create_a_missing_key_of_a_store(run_command, file, monkeypatch):
    ReviewStore(file, "a secret").close()
    code, _, err = run_command("approvals", file)
    assert (code, err.endswith("set TOOLSEMBLE_REVIEW_SECRET to its secret\n")) == (2, True)
    assert [path.name for path in file.parent.iterdir()] == ["reviews.db"]
    monkeypatch.setenv("TOOLSEMBLE_REVIEW_SECRET", "a secret")
    assert run_command("approvals", file)[0] == 0
    monkeypatch.setenv("TOOLSEMBLE_REVIEW_SECRET", "another")
    assert run_command("approvals", file)[0] == 2


def test_rejects_other_files(run_command, tmp_path):
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE a (b)")
    (tmp_path / "other.db.key").write_text("00" * 32)
    (tmp_path / "other.db.key").chmod(0o600)
    for command, what in (("approvals", "review store"), ("ledger", "effect ledger")):
        code, _, err = run_command(command, other)
        assert (code, f"it is not a {what} of this version" in err) == (2, True)


def test_call_asks_for_a_run_that_cannot_be_resumed(capsys, tmp_path):
    module = tmp_path / "watched.py"
    module.write_text(
        "from toolsemble import Continue, Toolbox, tool\n"
        "from toolsemble.review import CallbackReview\n"
        "@tool(requires_approval=True)\n"
        "def pay(order: int) -> str:\n"
        "    return f'chosen: {chosen}'\n"
        "chosen = []\n"
        "def note(request):\n"
        "    chosen.append(request.chosen_run)\n"
        "    return Continue()\n"
        "box = Toolbox([pay], review=CallbackReview(note))\n"
    )
    assert main(["call", f"{module}:box", "order=7"]) == 0
    assert capsys.readouterr() == ("chosen: [False]\n", "")


# The ledger.

KILLED = """
import os, sys
from toolsemble import Effect, EffectLedger, Toolbox, ToolCall, tool

@tool(effects="write", idempotency=True)
def pay(order: int) -> str:
    os._exit(0)

with EffectLedger(sys.argv[1]) as ledger:
    Toolbox([pay], ledger=ledger).execute(ToolCall("pay", {"order": 17}, "c1"), run_id="run 1")
"""


@tool(effects="write", idempotency=True)
def pay(order: int) -> str:
    return f"paid {order}"


@pytest.fixture
def effects(tmp_path):
    path = tmp_path / "effects.db"
    with EffectLedger(path) as ledger:
        Toolbox([pay], ledger=ledger).execute(ToolCall("pay", {"order": 16}), run_id="run 1")
    subprocess.run([sys.executable, "-c", KILLED, path], check=True)
    return path


def test_lists_unknown_outcomes(run_command, effects):
    code, out, _ = run_command("ledger", effects)
    ((key, *cells),) = [line.split("\t") for line in out.splitlines()]
    assert (code, len(key), cells[:4]) == (0, 32, ["pay", '{"order":17}', "run 1", "unknown"])
    assert len(run_command("ledger", effects, "--all")[1].splitlines()) == 2


def test_lists_unknown_outcomes_as_json(run_command, effects):
    first, second = map(json.loads, run_command("ledger", effects, "--all", "--json")[1].splitlines())
    assert (first["state"], first["result"], second["state"], second["result"]) == ("done", "paid 16", "unknown", None)
    assert (second["tool_name"], second["run_id"], second["call_id"]) == ("pay", "run 1", "c1")


@pytest.mark.parametrize(
    ("words", "told", "text"),
    [
        (["--happened", "--result", "paid"], 'done: pay {"order":17}\n', "paid"),
        (["--not-happened"], 'not done; the call may be repeated: pay {"order":17}\n', "paid 17"),
    ],
)
def test_resolves_an_unknown_outcome(run_command, effects, words, told, text):
    key = json.loads(run_command("ledger", effects, "--json")[1])["key"]
    assert run_command("ledger", effects, "resolve", key[:8], *words) == (0, told, "")
    assert run_command("ledger", effects) == (0, "", "No call has an unknown outcome.\n")
    with EffectLedger(effects) as ledger:
        box = Toolbox([pay], ledger=ledger)
        assert box.execute(ToolCall("pay", {"order": 17}), run_id="run 1").text == text


def test_reports_an_empty_ledger(run_command, tmp_path):
    EffectLedger(tmp_path / "effects.db").close()
    assert run_command("ledger", tmp_path / "effects.db", "--all") == (0, "", "The ledger is empty.\n")


@pytest.mark.parametrize(("key", "what"), [("none", "no call"), ("4f", "2 calls")])
def test_rejects_an_unknown_or_ambiguous_key(run_command, tmp_path, key, what):
    with EffectLedger(tmp_path / "effects.db") as ledger:
        for each in ("4f1", "4f2"):
            ledger.reserve(Effect(each, "pay", "r", "c", "{}", "running", 0.0), each, again=False, patience=None)
            ledger.lose(each, each)
    code, _, err = run_command("ledger", tmp_path / "effects.db", "resolve", key, "--happened")
    assert (code, err) == (1, f"toolsemble: {what} of unknown outcome with the key '{key}'; see the list\n")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["list", "4f"], "'list' takes no KEY, result or outcome"),
        (["list", "--happened"], "'list' takes no KEY, result or outcome"),
        (["resolve"], "'resolve' needs a KEY, and --happened or --not-happened."),
        (["resolve", "4f"], "'resolve' needs a KEY, and --happened or --not-happened."),
        (["resolve", "4f", "--not-happened", "--result", "x"], "--result goes with --happened."),
    ],
)
def test_rejects_invalid_ledger_commands(run_command, effects, words, problem):
    code, _, err = run_command("ledger", effects, *words)
    assert (code, problem in err) == (2, True)


def test_does_not_create_a_missing_key_of_a_ledger(run_command, effects):
    (effects.parent / "effects.db.key").unlink()
    code, _, err = run_command("ledger", effects)
    assert (code, err.endswith("has no file '" + str(effects) + ".key'; restore it\n")) == (2, True)
    assert not (effects.parent / "effects.db.key").exists()


def test_lists_calls_in_any_state_with_who_answered(run_command, store, file, stopped_clock):
    store.ask([make_request(), make_request(id="5a", arguments={"order": 18}), make_request(id="6b", chosen_run=False)])
    store.answer(store.find("4f1c09"), Edit('{"order": 1}'), person="ada", role="boss")
    store.answer(store.find("5a"), ExitEarly("no"))
    code, out, _ = run_command("approvals", file, "list", "--all")
    assert code == 0
    assert [line.split("\t") for line in out.splitlines()] == [
        ["6b", "pay", '{"order": 17}', "clerk", "", "0 s ago", "open", ""],
        ["5a", "pay", '{"order": 18}', "clerk", "order-17", "0 s ago", "answered: rejected", ""],
        ["4f1c09", "pay", '{"order": 17}', "clerk", "order-17", "0 s ago", "answered: edited", "ada"],
    ]
    lines = [json.loads(line) for line in run_command("approvals", file, "--all", "--json")[1].splitlines()]
    assert [(line["state"], line.get("decision"), line.get("person")) for line in lines] == [
        ("open", None, None),
        ("answered", "exit_early", ""),
        ("answered", "edit", "ada"),
    ]


def test_shows_what_happened_to_a_call(run_command, store, file, stopped_clock):
    store.ask([make_request()])
    store.answer(store.find("4f1c09"), ExitEarly("not\x1btoday"), person="ada", role="boss")
    _, out, _ = run_command("approvals", file, "show", "4f1c09")
    assert out.splitlines()[-1] == "| answered 0 s ago by ada (boss): exit_early not\\x1btoday"
    values = json.loads(run_command("approvals", file, "show", "4f1c09", "--json")[1])
    assert [event["kind"] for event in values["events"]] == ["asked", "answered"]
    store.ask([make_request(id="5a", arguments={"order": 18})])
    store.withdraw(["5a"])
    assert run_command("approvals", file, "show", "5a")[1].splitlines()[-1] == "| withdrawn 0 s ago"


def test_approves_for_the_rest_of_the_run_where_it_is_remembered(run_command, store, file):
    store.ask([make_request(scopes=("tool",)), make_request(id="5a", arguments={"order": 18})])
    code, _, err = run_command("approvals", file, "approve", "5a", "--always", "tool")
    assert code == 2
    assert "--always needs a run that remembers answers" in err
    assert run_command("approvals", file, "approve", "4f1c09", "--always", "tool")[0] == 0
    assert store.take({"4f1c09": make_request(scopes=("tool",))}) == {"4f1c09": Continue("tool")}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("reject", "4f1c09", "--always", "tool"), "--always goes with 'approve'."),
        (("show", "4f1c09", "--all"), "--all goes with 'list'."),
    ],
)
def test_options_of_another_action_are_refused(run_command, store, file, words, problem):
    code, _, err = run_command("approvals", file, *words)
    assert code == 2
    assert problem in err


def test_stores_on_postgres_are_named_by_their_url(run_command, postgres_url):
    with ReviewStore(postgres_url) as store, EffectLedger(postgres_url) as ledger:
        store.ask([make_request()])
        assert run_command("approvals", postgres_url)[1].startswith("4f1c09\tpay\t")
        assert run_command("approvals", postgres_url, "approve", "4f1c09")[0] == 0
        assert store.pending() == []
        ledger.reserve(Effect("4f1", "pay", "r", "c", "{}", "running", 0.0), "4f1", again=False, patience=None)
        ledger.lose("4f1", "4f1")
        assert run_command("ledger", postgres_url, "resolve", "4f1", "--not-happened")[0] == 0
        assert ledger.entries() == []


def ask_long(store):
    for number, name in ((4, "refund_the_order_of_a_customer"), (5, "pay")):
        store.ask(
            [
                ReviewRequest(
                    "Refunds an order",
                    name,
                    {"order": 1700 + number, "reason": "The tea arrived cold."},
                    id=f"{number}b0d1c2e3f4a5968778695a4b3c2d1e0",
                    run_id="order-17",
                    agent_role="support clerk",
                    timeout=7300,
                )
            ]
        )


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        (
            80,
            [
                "id        tool                        arguments                    asked    left",
                '4b0d1c2e  refund_the_order_of_a_cus…  {"order": 1704, "reason": …  0 s ago  2 h',
                '5b0d1c2e  pay                         {"order": 1705, "reason": …  0 s ago  2 h',
            ],
        ),
        (
            100,
            [
                "id        tool                      arguments                 agent          run       asked    left",
                '4b0d1c2e  refund_the_order_of_a_c…  {"order": 1704, "reason…  support clerk  order-17  0 s ago  2 h',
                '5b0d1c2e  pay                       {"order": 1705, "reason…  support clerk  order-17  0 s ago  2 h',
            ],
        ),
        (
            40,
            [
                "id        tool    argume…  asked    left",
                '4b0d1c2e  refun…  {"orde…  0 s ago  2 h',
                '5b0d1c2e  pay     {"orde…  0 s ago  2 h',
            ],
        ),
    ],
)
def test_a_waiting_call_is_one_line_of_a_terminal(store, file, stopped_clock, columns, lines):
    ask_long(store)
    person = Person(columns)
    try:
        assert person.runs(["approvals", "--store", str(file)]) == 0
        shown = person.plain().splitlines()
    finally:
        person.leaves()
    assert [line.rstrip() for line in shown] == lines
