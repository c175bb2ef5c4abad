"""The commands for durable runs: what is in a journal, and a worker that does it."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from helpers.journal_runs import Killed, clerk, do_until_parked
from helpers.terminal import Person
from helpers.wait import until
from toolsemble import AgentExecutionError, RunJournal, RunParkedError, ToolCall, tool
from toolsemble._cli import main
from toolsemble.review import AutoApprove, QueueReview, ReviewStore

pytestmark = pytest.mark.slow

BOTS = '''
from toolsemble import Agent, ToolCall, tool
from toolsemble.models import AssistantMessage, FunctionModel

@tool(effects="irreversible")
def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded {order}"

def reply(request):
    turns = sum(isinstance(message, AssistantMessage) for message in request.messages)
    return [ToolCall("refund", {"order": 7}), "Refunded."][turns]

clerk = Agent(FunctionModel(reply), [refund], name="clerk")
agents = {"clerk": clerk}
number = 3
'''
REFUND = ToolCall("refund", {"order": 7})


@pytest.fixture
def file(tmp_path):
    return tmp_path / "runs.db"


@pytest.fixture
def runs(file):
    with RunJournal(file) as journal:
        yield journal


@pytest.fixture
def bots(tmp_path):
    path = tmp_path / "bots.py"
    path.write_text(BOTS, encoding="utf-8")
    return path


@pytest.fixture
def run(capsys, file):
    def run(*words):
        return main(["runs", *map(str, words), "--journal", str(file)]), *capsys.readouterr()

    return run


@pytest.fixture
def lost(runs):
    """A run that was killed while it refunded."""

    @tool(effects="irreversible")
    def refund(order: int) -> str:
        """Refund an order."""
        raise Killed

    with pytest.raises(Killed):
        clerk(runs, [refund], REFUND, "Refunded.").run_sync("Refund order 7", run_id="order-7")
    return runs


def test_an_empty_journal_is_reported(run, runs):
    assert run() == (0, "", "The journal has no runs.\n")
    assert run("list", "--state", "failed") == (0, "", "No run is failed.\n")
    assert run("unknown") == (0, "", "No call has an unknown outcome.\n")
    assert run("unknown", "--json") == run("--json") == (0, "", "")


def test_runs_are_listed_with_their_state(run, lost):
    lost.begin("order-8", "clerk", "Refund\norder 8")
    clerk(lost, [], "Hello.").run_sync("Hi", run_id="hi")
    with pytest.raises(Exception, match="no credit"):
        clerk(lost, [], RuntimeError("no credit")).run_sync("Hi", run_id="poor")
    code, out, err = run()
    assert (code, err) == (0, "")
    rows = [line.split("\t") for line in out.splitlines()]
    assert [[*row[:3], *row[4:]] for row in rows] == [
        ["order-7", "clerk", "running", "Refund order 7", f"abandoned by process {os.getpid()}"],
        ["order-8", "clerk", "queued", "Refund\\norder 8", ""],
        ["hi", "clerk", "done", "Hi", "Hello."],
        ["poor", "clerk", "failed", "Hi", "no credit"],
    ]
    assert [line.split("\t")[0] for line in run("list", "--state", "done")[1].splitlines()] == ["hi"]
    assert [json.loads(line)["run_id"] for line in run("--state", "queued", "--json")[1].splitlines()] == ["order-8"]


def test_a_run_that_is_driven_says_by_whom(run, runs):
    begun, end = threading.Event(), threading.Event()

    @tool
    def hold() -> str:
        """Hold."""
        begun.set()
        assert end.wait(60)
        return "held"

    thread = threading.Thread(target=clerk(runs, [hold], ToolCall("hold"), "Done.").run_sync, args=("Hold",))
    thread.start()
    assert begun.wait(60)
    try:
        assert f"driven by process {os.getpid()}" in run()[1]
    finally:
        end.set()
        thread.join(60)


def test_a_run_is_shown_with_its_steps(run, lost):
    code, out, _ = run("show", "order-7")
    lines = out.splitlines()
    assert code == 0
    assert lines[:3] == [
        "run:      order-7",
        "agent:    clerk",
        f"state:    running, abandoned by process {os.getpid()}",
    ]
    assert lines[-2:] == ["/1\tmodel\tdone\tcalls refund", '/1.1\trefund\tstarted\t{"order": 7}']
    shown = json.loads(run("show", "order-7", "--json")[1])
    assert [step["place"] for step in shown["steps"]] == ["/1", "/1.1"]


def test_questions_to_reviewers_are_not_among_the_steps(run, runs):
    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    clerk(runs, [pay], ToolCall("pay"), "Done.", review=AutoApprove()).run_sync("Pay", run_id="r1")
    assert [line.split("\t")[0] for line in run("show", "r1")[1].splitlines()[-3:]] == ["/1", "/1.1", "/2"]


def test_a_run_without_steps_is_shown(run, runs):
    runs.begin("order-8", "clerk", "Refund order 8")
    assert run("show", "order-8")[1].splitlines()[-1] == "prompt:   Refund order 8"


def test_long_texts_are_shortened_unless_they_are_wanted_and_the_answer_is_whole(run, runs):
    clerk(runs, [], "very " * 100).run_sync("so " * 100, run_id="hi")
    shown, full = run("show", "hi")[1], run("show", "hi", "--full")[1]
    assert [shown.count(text) for text in ("very " * 100, "so " * 100)] == [1, 0]
    assert [full.count(text) for text in ("very " * 100, "so " * 100)] == [2, 1]


def test_lines_of_an_answer_cannot_be_mistaken_for_lines_of_the_run(run, runs):
    clerk(runs, [], "Done.\nstate:    cancelled").run_sync("Hi", run_id="hi")
    assert "\nanswer:   Done.\n          state:    cancelled\n" in run("show", "hi")[1]


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        (
            80,
            [
                "run                       state  prompt                  about",
                '0f1e2d3c4b5a69788796a5b4  done   Refund the order 17 o…  {"refunded": true, "or…',
            ],
        ),
        (
            100,
            [
                "run                       agent  state  changed  prompt                    about",
                '0f1e2d3c4b5a69788796a5b4  clerk  done   0 s ago  Refund the order 17 of …  {"refunded": true, "orde…',
            ],
        ),
    ],
)
def test_a_run_is_one_line_of_a_terminal(file, runs, stopped_clock, columns, lines):
    answer = '{"refunded": true, "order": 17, "amount": 48.5, "lines": [{"tea": "mint", "boxes": 5}]}'
    clerk(runs, [], answer).run_sync("Refund the order 17 of Ada, please, all of it", run_id="0f1e2d3c4b5a69788796a5b4")
    person = Person(columns)
    try:
        assert person.runs(["runs", "--journal", str(file)]) == 0
        shown = person.plain().splitlines()
    finally:
        person.leaves()
    assert [line.rstrip() for line in shown] == lines


def test_a_changed_agent_is_noted(run, runs):
    with pytest.raises(Killed):
        clerk(runs, [], ToolCall("nothing"), Killed).run_sync("Hi", run_id="hi")
    clerk(runs, [], ToolCall("nothing"), "Done.", instructions="Be kind.").run_sync("Hi", run_id="hi")
    assert "note:     the agent has changed at turn 2\n" in run("show", "hi")[1]


def test_the_table_at_a_terminal_has_titles(file, runs):
    runs.begin("order-8", "clerk", "Refund order 8")
    person = Person()
    try:
        assert person.runs(["runs", "--journal", str(file)]) == 0
        lines = person.plain().splitlines()
    finally:
        person.leaves()
    assert lines[0].split() == ["run", "agent", "state", "changed", "prompt", "about"]
    assert lines[1].startswith("order-8  clerk  queued")


def test_a_run_is_begun_resumed_and_forgotten(run, bots):
    assert run("begin", "order-7", "clerk", "Refund order 7") == (0, "queued: order-7\n", "")
    assert run("resume", "order-7", f"{bots}:clerk") == (0, "Refunded.\n", "")
    assert run("resume", "order-7", bots) == (0, "Refunded.\n", "")
    assert run("fork", "order-7", "/1", "again") == (0, "queued: again\n", "")
    assert run("cancel", "again") == (0, "cancelled: again\n", "")
    assert run("take-over", "again") == (0, "cancelled: again\n", "")
    assert run("resume", "again", bots)[::2] == (1, "toolsemble: Run 'again' was cancelled, and is not continued\n")
    assert run("forget", "--days", "0") == (0, "deleted: 2\n", "")


def test_an_unknown_call_is_listed_and_settled(run, lost, bots):
    assert run("unknown")[1] == 'order-7\t/1.1\trefund\t{"order": 7}\n'
    assert json.loads(run("unknown", "--json")[1])["place"] == "/1.1"
    assert run("resolve", "order-7", "/1.1", "--happened", "--result", "by bank") == (
        0,
        "it happened: order-7 /1.1\n",
        "",
    )
    run("resume", "order-7", bots)
    assert "by bank" in run("show", "order-7")[1]


def test_an_unknown_call_that_did_not_happen_is_made(run, lost, bots):
    assert run("resolve", "order-7", "/1.1", "--not-happened")[1] == "it did not happen: order-7 /1.1\n"
    run("resume", "order-7", bots)
    assert "refunded 7" in run("show", "order-7")[1]


def test_a_run_that_waits_ends_with_its_own_code(run, lost, bots, file, monkeypatch):
    def park(*_, **__):
        raise RunParkedError("Run 'order-7' waits for approval")

    monkeypatch.setattr(RunJournal, "resume", park)
    assert run("resume", "order-7", bots)[::2] == (3, "toolsemble: Run 'order-7' waits for approval\n")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["show", "nothing"], 2, "There is no run 'nothing' in the journal; see the list"),
        (["resolve", "order-7", "/9.1", "--happened"], 1, "Run 'order-7' has no call of unknown outcome at '/9.1'"),
        (["resolve", "order-7", "/1.1"], 2, "'resolve' needs --happened or --not-happened."),
        (["resolve", "order-7", "/1.1", "--not-happened", "--result", "x"], 2, "--result goes with --happened."),
        (["fork", "order-7", "/4", "new"], 1, "Run 'order-7' has no turn '/4'; it has /1"),
        (["resume", "order-7", "math:pi"], 2, "'math:pi' is not an agent but a float; name one"),
        (["resume", "order-7", "sys:maxsize"], 2, "'sys:maxsize' is not an agent but an int; name one"),
        (["resume", "order-7", "math"], 2, "'math' defines no agents; name one, such as bots.py:clerk"),
        (["resume", "order-7", "no_such_module"], 2, "There is no module 'no_such_module'; name an agent"),
        (["forget"], 2, "Missing option '--days'"),
    ],
)
def test_what_cannot_be_done_is_reported(run, lost, words, code, message):
    found, out, err = run(*words)
    assert (found, out) == (code, "")
    assert message in err


def test_a_run_is_resumed_only_by_its_own_agent(run, lost, bots):
    with bots.open("a", encoding="utf-8") as file:
        file.write('poet = Agent(FunctionModel(reply), name="poet")\n')
    code, _, err = run("resume", "order-7", f"{bots}:poet")
    assert (code, lost.find("order-7").state) == (2, "running")
    assert "Run 'order-7' belongs to agent 'clerk', which " in err
    assert "does not have; it has poet" in err
    assert run("resume", "order-7", bots) == (0, "Refunded.\n", "")


def test_a_misspelled_agent_is_answered_with_the_agents_that_there_are(run, lost, bots):
    assert run("resume", "order-7", f"{bots}:cleark")[2].endswith("it has no 'cleark'. Did you mean 'clerk'?\n")
    assert run("resume", "order-7", f"{bots}:poet")[2].endswith("it has no 'poet'. There are: clerk\n")


def test_two_agents_of_one_name_are_refused(capsys, file, bots, tmp_path):
    other = tmp_path / "more.py"
    other.write_text(BOTS, encoding="utf-8")
    assert main(["work", str(bots), str(other), "--journal", str(file)]) == 2
    assert "Two agents are named 'clerk'; pass Agent(name=...) to tell them apart" in capsys.readouterr().err


def test_a_journal_is_needed_and_not_created_by_a_typo(capsys, tmp_path):
    assert main(["runs"]) == 2
    assert "Which journal? Pass --journal runs.db, or set TOOLSEMBLE_JOURNAL" in capsys.readouterr().err
    assert main(["runs", "--journal", str(tmp_path / "typo.db")]) == 2
    assert "typo.db'; pass the file of a RunJournal" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


def test_the_journal_may_be_named_before_the_command_or_in_the_environment(capsys, file, runs, monkeypatch):
    runs.begin("order-8", "clerk", "Refund order 8")
    assert main(["runs", "--journal", str(file), "show", "order-8"]) == 0
    monkeypatch.setenv("TOOLSEMBLE_JOURNAL", str(file))
    assert main(["runs"]) == 0
    assert capsys.readouterr().out.count("order-8") == 2


def test_a_worker_does_the_runs_and_says_so(capsys, file, runs, bots):
    runs.begin("order-7", "clerk", "Refund order 7")
    assert main(["work", f"{bots}:agents", "--journal", str(file), "--until-idle", "--poll", "0.01"]) == 0
    assert capsys.readouterr() == ("", "working for clerk; Ctrl-C stops\nRun 'order-7' is done\n")
    assert runs.find("order-7").text == "Refunded."


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_worker_without_an_error(file, runs, bots, number):
    words = ["work", str(bots), "--journal", str(file), "--poll", "0.01"]
    process = subprocess.Popen([sys.executable, "-m", "toolsemble", *words], stderr=subprocess.PIPE, text=True)
    try:
        runs.begin("order-7", "clerk", "Refund order 7")
        until(lambda: runs.find("order-7").state == "done")
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, err) == (0, "working for clerk; Ctrl-C stops\nRun 'order-7' is done\n")


@pytest.fixture
def waiting(file, tmp_path):
    """The review store of a run that waits for approval."""

    @tool(effects="irreversible", requires_approval=True, approval_timeout=None)
    def refund(order: int) -> str:
        """Refund an order."""
        return "refunded"

    with RunJournal(file, park_after=0) as runs, ReviewStore(tmp_path / "reviews.db") as store:
        do_until_parked(clerk(runs, [refund], REFUND, "Refunded.", review=QueueReview(store)), "order-7")
        yield store


def test_a_waiting_run_says_what_it_waits_for(run, waiting):
    assert run()[1].rstrip().split("\t")[-1] == 'for approval of refund({"order": 7})'
    assert 'state:    waiting, for approval of refund({"order": 7})' in run("show", "order-7")[1].splitlines()


def test_a_run_that_waits_until_a_call_is_settled_says_so(run, lost, file):
    with RunJournal(file, on_unknown="ask") as asking, pytest.raises(RunParkedError):
        clerk(asking, [], REFUND, "Refunded.").run_sync("Refund order 7", run_id="order-7")
    assert run()[1].rstrip().split("\t")[-1] == "for refund at /1.1 to be settled"


def test_cancelling_a_run_closes_its_questions_in_the_given_store(run, waiting, tmp_path):
    assert run("cancel", "order-7") == (0, "cancelled: order-7\n", "")
    assert len(waiting.pending()) == 1
    assert run("cancel", "order-7", "--store", tmp_path / "reviews.db")[0] == 0
    assert waiting.pending() == []


def test_a_failed_run_is_retried_and_cannot_be_taken_over(run, file):
    with RunJournal(file) as runs, pytest.raises(AgentExecutionError):
        clerk(runs, [], RuntimeError("no credit")).run_sync("Refund order 7", run_id="order-7")
    hint = "No process drives it; 'toolsemble runs retry order-7' queues it again.\n"
    assert run("take-over", "order-7") == (1, "failed: order-7\n", hint)
    assert run("retry", "order-7") == (0, "queued: order-7\n", "")
    assert run("take-over", "order-7") == (0, "queued: order-7\n", "")


def test_a_run_that_fails_when_it_is_resumed_is_an_error(run, file, tmp_path):
    failing = tmp_path / "failing.py"
    failing.write_text(FAILING, encoding="utf-8")
    with RunJournal(file) as runs:
        runs.begin("order-7", "clerk", "Refund order 7")
    code, out, err = run("resume", "order-7", str(failing))
    assert (code, out, "no credit" in err) == (1, "", True)


FAILING = """
from toolsemble import Agent
from toolsemble.models import FunctionModel

def fail(messages):
    raise RuntimeError("no credit")

agent = Agent(FunctionModel(fail), name="clerk")
"""
