"""The programs in examples/, run without a key and a network."""

import asyncio
import getpass
import importlib.util
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.openai_wire import KEY, completion, in_turn, sent, whole
from helpers.terminal import WAIT, Person
from helpers.web_server import serving
from toolsemble import Toolbox, ToolCall
from toolsemble.review import ReviewStore
from toolsemble.testing import AutoApprove, FunctionModel, ScriptedModel

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))
NO_TERMINAL = "standard input is not a terminal, so no reviewer can be asked"
PAGE = ROOT / "docs" / "examples.md"

SAID = {
    "research_assistant.py": [
        '{"words":"312 BC"} -> find -> each_read -> cite',
        "The Aqua Appia [1] and the Via Appia [2].",
    ],
    "openai_loop.py": ["12 boxes cost 57.60 euros."],
    "user_notes.py": [
        "add_note: ['note']",
        "read_notes: []",
        "I have noted it, Ada.",
        'Your notes, Bob: ["call mum"]',
    ],
    "http_api.py": [
        'list_tasks: ["water the roses"]',
        "add_task: Error: Invalid arguments for 'add_task': body.text: missing",
        'add_task: ["water the roses", "bake bread"]',
        "Now it is on the list.",
    ],
    "async_service.py": [
        "ada: 3 seats to Rome. 3 seats to Rome.",
        "bob: 0 seats to Oslo. 0 seats to Oslo.",
        "eve: 12 seats to Lima. 12 seats to Lima.",
    ],
    "retries_and_limits.py": [
        *["  the bank is asked for USD"] * 2,
        *["  the bank is asked for GBP"] * 6,
        '{"currency":"USD"}: 1.08',
        '{"currency":"GBP"}: Error: no route to host',
        '{"currency":"GBP"}: Error: no route to host',
        '{"currency":"USD"}: Error: exchange_rate is out of order; do without it',
        "A euro is 1.08 dollars. Pounds I could not find out.",
    ],
}


def command(program, *words):
    return [sys.executable, "-W", "error", f"examples/{program}", *words]


def run(program, *words, env=None, **settings):
    """Run a program; give what it wrote to standard output, line by line, and to standard error."""
    done = subprocess.run(
        command(program, *words),
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=settings.pop("stderr", subprocess.PIPE),
        text=True,
        encoding="utf-8",
        timeout=WAIT,
        check=True,
        **{"stdin": subprocess.DEVNULL, **settings},
    )
    return done.stdout.splitlines(), done.stderr


@contextmanager
def start(words, **settings):
    """Have a program run beside the test, and no longer than it."""
    with subprocess.Popen(words, cwd=ROOT, **settings) as process:
        try:
            yield process
        finally:
            process.kill()


def load_program(program):
    """Return a program as a separate module."""
    specification = importlib.util.spec_from_file_location(f"example_{Path(program).stem}", EXAMPLES / program)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def make_call_message(name, arguments):
    """Return the message of a model that calls a tool."""
    return {"tool_calls": [{"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}]}


@contextmanager
def serve_messages(*messages):
    """Have a server in OpenAI's place say these messages; give it and the environment that leads there."""
    with serving() as web:
        web.answers["/v1/chat/completions"] = in_turn(*(whole(completion(message)) for message in messages))
        yield web, {"OPENAI_BASE_URL": web.url("/v1"), "OPENAI_API_KEY": KEY}


def list_files(folder):
    """Return the paths of all files in a folder."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def person():
    sitting = Person()
    yield sitting
    sitting.leaves()


@pytest.mark.parametrize("program", SAID)
def test_program_runs_with_scripted_model(program):
    assert run(program, "--model", "scripted") == (SAID[program], "")


@pytest.mark.parametrize("program", sorted(SAID.keys() - {"openai_loop.py", "async_service.py"}))
def test_program_accepts_any_model(program, capsys):
    model = ScriptedModel(["Nothing to do.", "Nothing at all."])
    load_program(program).main(model)
    assert capsys.readouterr().out.splitlines()[-1].startswith("Nothing")
    assert model.asked


def test_program_accepts_model_name():
    with serve_messages(make_call_message("research", '{"words": "concrete"}'), {"content": "Of lime."}) as (web, env):
        output, _ = run("research_assistant.py", "--model", "openai-chat:gpt-test", env=env)
    assert output == ['{"words": "concrete"} -> find -> each_read -> cite', "Of lime."]
    assert sent(web)["messages"][-1]["content"].startswith("[1] Concrete: Roman concrete was mixed of lime")


def test_research_assistant_lists_texts_when_nothing_is_found(capsys):
    model = ScriptedModel([ToolCall("research", {"words": "zeppelin"}), "Nothing."])
    load_program("research_assistant.py").main(model)
    message = "No text has any word of 'zeppelin'; there are aqueducts.txt, concrete.txt, roads.txt"
    assert model.requests[1][-1].text == f"Error: Step 'find' raised: {message}"
    assert capsys.readouterr().out.splitlines() == ['{"words":"zeppelin"} -> find', "Nothing."]


class TestFileOrganizer:
    NAMES = ("bill.pdf", "cat.jpg", "notes.txt")

    @pytest.fixture
    def folder(self, tmp_path):
        for name in self.NAMES:
            (tmp_path / name).touch()
        return tmp_path

    def read_file_in_question(self, person):
        """Return the name of the file that the person is asked about."""
        person.until("[x] reject")
        shown = person.seen[: person._place]
        return max(self.NAMES, key=shown.rfind)

    def test_moves_approved_files(self, person, folder):
        words = command("file_organizer.py", "--model", "scripted", str(folder))
        with start(words, stdin=person.slave, stdout=subprocess.PIPE, stderr=person.slave) as made:
            for _ in self.NAMES:
                if self.read_file_in_question(person) == "cat.jpg":
                    person.types("x\n")
                    person.until("Reason")
                    person.types("cats stay\n")
                else:
                    person.types("c\n")
            output, _ = made.communicate(timeout=WAIT)
        assert made.returncode == 0
        assert output.decode().splitlines() == [
            '["bill.pdf","cat.jpg","notes.txt"]',
            "Moved bill.pdf to papers",
            "Error: Rejected by reviewer: cats stay",
            "Moved notes.txt to papers",
            "That is all.",
        ]
        assert list_files(folder) == ["cat.jpg", "papers/bill.pdf", "papers/notes.txt"]

    def test_moves_nothing_without_a_terminal(self, folder):
        output, errors = run("file_organizer.py", "--model", "scripted", str(folder))
        assert output[1:4] == [f"Error: Rejected by reviewer: {NO_TERMINAL}"] * 3
        assert errors.count("'move_file' is refused") == 3
        assert list_files(folder) == list(self.NAMES)

    def test_uses_sample_folder_by_default(self):
        assert run("file_organizer.py", "--model", "scripted")[0][0] == '["bill.pdf","cat.jpg","notes.txt"]'

    @pytest.mark.parametrize(
        ("name", "place", "reply"),
        [
            ("cat.jpg", "..", "Error: 'cat.jpg' cannot go into '..'; name a listed file, and one folder"),
            ("cat.jpg", "a/b", "Error: 'cat.jpg' cannot go into 'a/b'; name a listed file, and one folder"),
            ("../cat.jpg", "a", "Error: '../cat.jpg' cannot go into 'a'; name a listed file, and one folder"),
            ("cat.jpg", "full", "Error: There is a 'cat.jpg' in 'full' already; leave this one where it is"),
            ("cat.jpg", "my cats", "Moved cat.jpg to my cats"),
        ],
    )
    def test_stays_inside_its_folder(self, folder, name, place, reply):
        (folder / "full").mkdir()
        (folder / "full" / "cat.jpg").touch()
        box = Toolbox([load_program("file_organizer.py").Folder(folder)], review=AutoApprove())
        assert box.execute(ToolCall("move_file", {"name": name, "folder": place})).text == reply


def test_openai_loop_sends_valid_messages():
    turns = (
        make_call_message("price", '{"item": "milk"}'),
        make_call_message("price", '{"item": "beer"}'),
        {"content": "1.10 euros."},
    )
    with serve_messages(*turns) as (web, env):
        assert run("openai_loop.py", "--model", "gpt-test", env=env) == (["1.10 euros."], "")
    body = sent(web)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["price", "calculator"]
    assert [message for message in body["messages"] if message["role"] == "tool"] == [
        {"role": "tool", "tool_call_id": "c1", "content": "1.1"},
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": "Error: Invalid arguments for 'price': item: expected one of 'tea', 'milk'",
        },
    ]


async def test_async_service_serves_users_concurrently(capsys):
    everybody = asyncio.Barrier(3)

    @FunctionModel
    async def model(request):
        async with asyncio.timeout(WAIT):
            await everybody.wait()
        return f"{len(request.messages)} messages"

    await load_program("async_service.py").main(model)
    users = ("ada", "bob", "eve")
    assert capsys.readouterr().out.splitlines() == [f"{user}: 1 messages 3 messages" for user in users]


class TestHumanElsewhere:
    @pytest.mark.parametrize(
        ("typed", "result"),
        [
            ("yes", "The bill: paid 57.60 euros to Tea House"),
            ("too dear", "The bill: Error: Rejected by reviewer: too dear"),
        ],
    )
    def test_review_is_decided_in_another_process(self, tmp_path, typed, result):
        where = ["--store", str(tmp_path / "reviews.db")]
        words = command("human_elsewhere.py", "ask", "--model", "scripted", *where)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with start(words, **pipes) as asking:
            self.wait_for_a_question(tmp_path / "reviews.db")
            answered, _ = run("human_elsewhere.py", "answer", *where, stdin=None, input=f"{typed}\n")
            output, watched = asking.communicate(timeout=WAIT)
        assert (output.splitlines(), asking.returncode) == ([result], 0)
        assert "review requested: {'to': 'Tea House', 'euros': 57.6}" in watched
        assert answered[0] == "pay {'to': 'Tea House', 'euros': 57.6}"
        later, _ = run("human_elsewhere.py", "answer", *where)
        assert later == ["asked pay ", f"answered pay {getpass.getuser()}", f"used pay {getpass.getuser()}"]

    def wait_for_a_question(self, path):
        deadline = time.monotonic() + WAIT
        with ReviewStore(path) as store:
            while not store.pending():
                assert time.monotonic() < deadline, "no request came"


def test_fuzzer_finds_bug_only_in_buggy_version():
    output, errors = run("fuzz_a_tool.py")
    assert errors == ""
    assert re.fullmatch(r"first version: crashes \{.*'crash': \d+\}", output[0])
    assert output[1] == "  ValueError: placeholder too large for max width"
    assert re.fullmatch(r"  ToolCall\('shorten', \{'text': '', 'width': [1-4]\}, id=None\)", output[2])
    assert re.fullmatch(r"second version: stands everything \{[^}]*\}", output[3])
    assert "crash" not in output[3]


def test_telemetry_masks_secret():
    output, errors = run("console_telemetry.py", "--model", "scripted")
    shown = [re.sub(r"^\d\d:\d\d:\d\d |(?<= in )\d+ ms", "", line) for line in output[:-3]]
    lines = sorted(re.sub(r"^run \w+", "run RUN", line) for line in shown)
    assert lines == [
        "count_pages call_2: 50 % half of Emma",
        "count_pages call_2: called with {'book': 'Emma'}",
        "count_pages call_2: repaired book",
        "count_pages call_2: success in : 474",
        "log_in call_1: called with {'password': '**********'}",
        "log_in call_1: error in : Error: ********** is wrong",
        "run RUN: ScriptedModel replied in , 0 tokens",
        "run RUN: ScriptedModel replied in , 0 tokens, calls log_in, calls count_pages",
        "run RUN: answer in ",
        "run RUN: started with ScriptedModel",
        "span chat ScriptedModel: UNSET",
        "span chat ScriptedModel: UNSET",
        "span execute_tool count_pages: UNSET",
        "span execute_tool log_in: ERROR",
        "span invoke_agent: UNSET",
    ]
    assert output[-3:] == [
        "log_in: 0 succeeded, 1 raised",
        "count_pages: 1 succeeded, 0 raised",
        "2 times the model was asked: It has 474 pages.",
    ]
    assert errors == ""


def test_approval_example_rejects_calls_without_a_terminal():
    output, errors = run("approval.py")
    assert output == [
        "(would delete cache/old.bin and everything in it)",
        "Error: Rejected by reviewer: denied by rule 2 for '*'",
        f"Error: Rejected by reviewer: {NO_TERMINAL}",
    ]
    assert errors.count("'delete_file' is refused") == 1


def test_demo_reads_calls_json_by_default():
    assert run("demo.py") == run("demo.py", "examples/calls.json")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program_is_short_and_documents_its_command(program):
    text = program.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    assert f"``python examples/{program.name}" in text.split('"""')[1]


def test_page_lists_every_program_with_length():
    row = r"^\| \[(\w+\.py)\]\(\.\./examples/\1\) \|.*?\| (\d+) \|"
    listed = re.findall(row, PAGE.read_text("utf-8"), re.MULTILINE)
    there = {program.name: len(program.read_text("utf-8").splitlines()) for program in PROGRAMS}
    assert {name: int(lines) for name, lines in listed} == there


def test_page_shows_program_output():
    block = re.search(r"```console\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[1].splitlines()
    assert block == ["$ python examples/research_assistant.py --model scripted", *SAID["research_assistant.py"]]


def test_readme_links_exist():
    readme = (EXAMPLES / "README.md").read_text("utf-8")
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", readme)
    assert targets
    assert [target for target in targets if not (EXAMPLES / target).exists()] == []
    beside = {path.name for path in EXAMPLES.glob("[!_.]*") if path.suffix != ".py"} - {"README.md"}
    assert [name for name in sorted(beside) if name not in readme] == []
