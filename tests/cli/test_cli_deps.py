"""Commands whose tools need deps, and the command ``ask`` with an agent."""

import json
import sys

import pytest

from helpers.terminal import forget_modules
from toolsemble import RunJournal
from toolsemble._cli import main
from toolsemble._cli.ui_targets import load_targets

pytestmark = pytest.mark.slow

MESSAGE = "Tool 'find_order' needs deps (ToolContext[Shop]); pass deps=…"
SHOP = '''
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Annotated
from toolsemble import Agent, MemoryId, RunJournal, ToolCall, ToolContext, tool
from toolsemble.models import AssistantMessage, FunctionModel

class Shop:
    def __init__(self, name="an object"):
        self.name = name if isinstance(name, str) else "a class"

shop = Shop()
number = 3

def make(run):
    return Shop("a function")

async def make_async(run):
    return Shop(f"an async function for {run.memory_id}")

@contextmanager
def manage(run):
    yield Shop("a context manager")
    print("left")

@asynccontextmanager
async def manage_async(run):
    yield Shop("an async context manager")

partly = partial(manage)

def fail(run):
    raise ConnectionError("no database")

@tool
def find_order(order: int, context: ToolContext[Shop]) -> str:
    """Find an order."""
    return f"{order}: {context.deps.name}"

@tool
def greet(user: Annotated[str, MemoryId]) -> str:
    """Greet a user."""
    return f"hello {user}"

def reply(request):
    turns = sum(isinstance(message, AssistantMessage) for message in request.messages)
    return [ToolCall("find_order", {"order": 7}), request.messages[-1].text][turns]

clerk = Agent(FunctionModel(reply), [find_order], name="clerk")
owner = Agent(FunctionModel(reply), [find_order], name="owner", make_deps=manage)
'''

SOURCES = [
    ("shop", "an object"),
    ("Shop", "a class"),
    ("make", "a function"),
    ("make_async", "an async function for default"),
    ("manage", "a context manager"),
    ("manage_async", "an async context manager"),
    ("partly", "a context manager"),
]


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch, tmp_path):
    """Leave nothing of what a command loads."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield
    forget_modules(tmp_path)


@pytest.fixture
def shop(tmp_path):
    path = tmp_path / "shop.py"
    path.write_text(SHOP, encoding="utf-8")
    return path


@pytest.fixture
def run(capsys):
    def run(*words):
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out.strip(), err.strip()

    return run


@pytest.mark.parametrize(("name", "text"), SOURCES)
def test_a_call_has_the_deps_of_its_command(run, shop, name, text):
    assert run("call", f"{shop}:find_order", "order=7", "--deps", f"{shop}:{name}")[:2] == (0, f"7: {text}")


def test_a_call_without_deps_is_refused_in_words(run, shop):
    assert run("call", f"{shop}:find_order", "order=7") == (2, "", f"toolsemble: {MESSAGE}")


@pytest.mark.parametrize(
    ("deps", "message"),
    [
        ("{shop}", "it is a module; name an object in one, such as shop.py:shop"),
        ("no_such_module:shop", "there is no such module; name an object in one, such as shop.py:shop"),
        ("{shop}:shp", "it has no 'shp'. Did you mean 'shop'?"),
        ("{shop}:fail", "make_deps failed: ConnectionError: no database"),
        ("{shop}:reply", ""),
    ],
)
def test_deps_that_cannot_be_had_are_reported_in_a_line(run, shop, deps, message):
    code, out, err = run("call", f"{shop}:find_order", "order=7", "--deps", deps.format(shop=shop))
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert message in err


def test_a_call_has_the_memory_id_of_its_command(run, shop):
    assert run("call", f"{shop}:greet", "--memory-id", "ada")[:2] == (0, "hello ada")
    assert run("call", f"{shop}:greet")[:2] == (0, "hello default")


def test_a_worker_refuses_to_start_without_the_deps_of_its_agents(run, shop, tmp_path):
    url = tmp_path / "runs.db"
    with RunJournal(url) as runs:
        runs.begin("r1", "clerk", "Find order 7")
        before = runs.find("r1")
        code, out, err = run("work", f"{shop}:clerk", "--journal", url, "--until-idle")
        assert (code, out, err) == (2, "", f"toolsemble: Agent 'clerk': {MESSAGE}")
        assert runs.find("r1") == before


@pytest.mark.parametrize(("name", "text"), [*SOURCES[:3], ("make_async", "an async function for ada"), *SOURCES[4:]])
def test_a_worker_has_the_deps_of_its_command(run, shop, tmp_path, name, text):
    url = tmp_path / "runs.db"
    with RunJournal(url) as runs:
        runs.begin("r1", "clerk", "Find order 7", memory_id="ada")
        code, _, _ = run("work", f"{shop}:clerk", "--journal", url, "--until-idle", "--deps", f"{shop}:{name}")
        assert (code, runs.find("r1").text) == (0, f"7: {text}")


def test_a_worker_uses_the_deps_of_its_agents(run, shop, tmp_path):
    url = tmp_path / "runs.db"
    with RunJournal(url) as runs:
        runs.begin("r1", "owner", "Find order 7")
        assert run("work", f"{shop}:owner", "--journal", url, "--until-idle")[0] == 0
        assert runs.find("r1").text == "7: a context manager"


def test_a_run_is_resumed_with_the_deps_of_the_command(run, shop, tmp_path):
    url = tmp_path / "runs.db"
    with RunJournal(url) as runs:
        runs.begin("r1", "clerk", "Find order 7")
        before = runs.find("r1")
        code, out, err = run("runs", "resume", "r1", shop, "--journal", url)
        assert (code, out, runs.find("r1")) == (2, "", before)
        assert err == "toolsemble: Agent 'clerk': Tool 'find_order' needs deps (ToolContext[Shop]); pass deps=…"
        words = ("runs", "resume", "r1", shop, "--journal", url, "--deps", f"{shop}:make")
        assert run(*words)[:2] == (0, "7: a function")
        assert run("runs", "resume", "r1", shop, "--journal", url)[:2] == (0, "7: a function")  # it has ended


class TestAskWithAnAgent:
    def test_uses_its_model_its_tools_and_its_deps(self, run, shop):
        assert run("ask", "-q", "-m", f"{shop}:owner", "Find order 7")[:2] == (0, "7: a context manager")
        words = ("ask", "-q", "-m", f"{shop}:owner", "--deps", f"{shop}:shop", "Find order 7")
        assert run(*words)[:2] == (0, "7: an object")

    def test_reports_missing_deps(self, run, shop):
        code, out, err = run("ask", "-q", "-m", f"{shop}:clerk", "Find order 7")
        assert (code, out) == (2, "")
        assert err.endswith("Agent 'clerk': Tool 'find_order' needs deps (ToolContext[Shop]); pass deps=…")

    def test_obeys_the_options_of_the_command(self, run, shop):
        code, out, _ = run("ask", "-m", f"{shop}:owner", "--max-calls", "0", "--json", "Find order 7")
        assert (code, json.loads(out.splitlines()[-1])["stop_reason"]) == (3, "max_iterations")

    @pytest.mark.parametrize("words", [("--tools", "calculator"), ("--memory", "talks.db")])
    def test_refuses_what_the_agent_has_already(self, run, shop, words):
        code, _, err = run("ask", "-m", f"{shop}:owner", *words, "Find order 7")
        assert (code, err.endswith("is an agent with its own")) == (2, True)


def test_the_tools_of_a_question_have_deps(run, shop):
    words = ("-m", f"{shop}:clerk._config.model", "-t", f"{shop}:find_order", "--deps", f"{shop}:manage_async")
    assert run("ask", "-q", *words, "Find order 7")[:2] == (0, "7: an async context manager")


@pytest.mark.parametrize("words", [("ask", "-q", "Find order 7"), ("chat",)])
def test_tools_without_deps_are_reported_before_a_question_is_asked(run, shop, words):
    code, out, err = run(*words, "-m", f"{shop}:clerk._config.model", "-t", f"{shop}:find_order")
    assert (code, out) == (2, "")
    assert err.endswith("Tool 'find_order' needs deps (ToolContext[Shop]); pass deps=…")


def test_the_web_interface_takes_deps(shop):
    targets = load_targets([str(shop)], f"{shop}:shop")
    assert (targets.deps.name, targets.deps_source) == ("an object", f"{shop}:shop")
