"""Tests of targets: the tools named on the command line."""

import sys

import pytest

from helpers.terminal import forget_modules
from toolsemble import Toolbox, ToolDefinitionError
from toolsemble._cli.targets import (
    BUILT_INS,
    find_tools,
    load_file,
    load_module,
    load_object,
    load_toolbox,
    load_tools,
    make_built_in,
    split_targets,
)

pytestmark = pytest.mark.slow

TOOLS = """
from toolsemble import Tool, Toolbox, tool

@tool
def add(a: int, b: int) -> int:
    "Add."
    return a + b

@tool(name="times")
def multiply(a: int, b: int) -> int:
    "Multiply."
    return a * b

class Shout(Tool):
    name = "shout"
    description = "Louder."
    def run(self, input: str) -> str:
        return input.upper()

class Clock:
    @tool
    def now(self) -> str:
        "The time."
        return "noon"

shout = Shout()
clock = Clock()
both = add | shout
_hidden = Shout()
listed = [add, shout]
number = 7
nothing = None

def plain(): ...
"""


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.chdir(tmp_path)
    yield
    forget_modules(tmp_path)


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def load_names(*targets):
    return load_toolbox(targets).names


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("calculator", ["calculator"]),
        ("datetime", ["datetime"]),
        ("json_parser", ["json_parser"]),
        ("file_read:.", ["file_read"]),
        ("file_write:.", ["file_write"]),
        ("web_search", ["web_search"]),
        ("web_search:duckduckgo", ["web_search"]),
        ("web_scraper", ["web_scraper"]),
        ("web_scraper:localhost", ["web_scraper"]),
        ("human_input", ["human_input"]),
        ("my_tools", ["add", "times", "shout", "now", "add_then_shout"]),
        ("my_tools:add", ["add"]),
        ("my_tools:listed", ["add", "shout"]),
        ("my_tools:multiply", ["times"]),
        ("my_tools:times", ["times"]),
        ("my_tools:_hidden", ["shout"]),
        ("my_tools:clock", ["now"]),
        ("my_tools:clock.now", ["now"]),
        ("my_tools.py", ["add", "times", "shout", "now", "add_then_shout"]),
        ("./my_tools.py:add", ["add"]),
    ],
)
def test_target_selects_tools(write, target, expected):
    write("my_tools.py", TOOLS)
    assert load_names(target) == expected


def test_several_targets_make_one_toolbox():
    assert split_targets(["calculator, datetime,", "", "human_input"]) == ["calculator", "datetime", "human_input"]
    assert load_names("calculator", "human_input") == ["calculator", "human_input"]
    with pytest.raises(ToolDefinitionError, match="Duplicate tool name: 'calculator'"):
        load_toolbox(["calculator", "calculator"])


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("calclator", "There is no tool or module 'calclator'. Did you mean 'calculator'?"),
        ("xyz:abc", "There is no tool or module 'xyz:abc'. There are: calculator, datetime, file_read, "),
        ("no-module", "There is no tool or module 'no-module'"),
        ("my_tools.nothing", "There is no tool or module 'my_tools.nothing'"),
        ("nothing.py", "There is no file 'nothing.py'"),
        ("my_tools:ad", "'my_tools:ad': it has no 'ad'. Did you mean 'add'?"),
        ("my_tools:xyz", "'my_tools:xyz': it has no 'xyz'. There are: add, add_then_shout, both, clock, "),
        ("empty:xyz", "'empty:xyz': it has no 'xyz'"),
        ("empty", "'empty' defines no tools: put @tool on a function, or name an attribute"),
        ("my_tools:plain", "'my_tools:plain' is a plain function: put @tool on it"),
        ("my_tools:number", "'my_tools:number': (int) is neither an AgentTool nor has @tool methods"),
        ("my_tools:Shout", "'my_tools:Shout': (Shout) is a class; pass an instance: Shout(...)"),
        ("calculator:x", "calculator takes no setting, but was given 'x'"),
        ("file_read", "file_read needs a setting: write file_read:DIR, such as file_read:."),
        ("file_read:nowhere", "base_dir must be a directory that exists, not 'nowhere'"),
        ("web_search:unknown", "provider must have a method search"),
        ("broken", "'broken' cannot be loaded: ZeroDivisionError: division by zero"),
        ("broken.py", "'broken.py' cannot be loaded: ZeroDivisionError: division by zero"),
        ("ending", "'ending' cannot be loaded: it raised SystemExit while it was loaded"),
        ("ending.py", "'ending.py' cannot be loaded: it raised SystemExit while it was loaded"),
        ("leaving", "'leaving' cannot be loaded: GeneratorExit"),
        ("leaving.py", "'leaving.py' cannot be loaded: GeneratorExit"),
        ("counted", "'counted': __all__ must be a list of names, not 5"),
        ("counted:xyz", "'counted': __all__ must be a list of names, not 5"),
        ("lettered", "'lettered': __all__ must be a list of names, not 'add'"),
        ("numbered", "'numbered': __all__ must be a list of names, not [5]"),
        ("my_tools:nothing", "'my_tools:nothing': its 'nothing' is None"),
        ("my_tools.py:nothing", "'my_tools.py:nothing': its 'nothing' is None"),
        ("my_tools:", "'my_tools:' has nothing after the colon: write my_tools for all of it, or my_tools:NAME"),
        ("my_tools.py:", "'my_tools.py:' has nothing after the colon: write my_tools.py for all of it, or my_tools."),
        ("lacking", "'lacking' cannot be loaded: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("misspelled.py", "'misspelled.py' cannot be loaded: SyntaxError: "),
    ],
)
def test_unknown_target_is_rejected_with_the_nearest_name(write, target, message):
    write("my_tools.py", TOOLS)
    write("empty.py", "")
    write("broken.py", "1 / 0")
    write("ending.py", "raise SystemExit(1)")
    write("leaving.py", "raise GeneratorExit")
    write("counted.py", f"{TOOLS}\n__all__ = 5")
    write("lettered.py", f"{TOOLS}\n__all__ = 'add'")
    write("numbered.py", f"{TOOLS}\n__all__ = [5]")
    write("lacking.py", "import no_such_thing")
    write("misspelled.py", "def f(:")
    with pytest.raises(ToolDefinitionError) as refused:
        load_toolbox([target])
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("target", ["stopping", "stopping.py"])
def test_ctrl_c_while_loading_module_is_not_a_module_error(write, target):
    write("stopping.py", "raise KeyboardInterrupt")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            load_toolbox([target])


def test_imported_objects_are_included_only_if_in_all(write):
    write("my_tools.py", TOOLS)
    write(
        "mine.py",
        "import my_tools\nfrom my_tools import add, shout as loud\nfrom my_tools import *\n"
        "from toolsemble.builtin import CalculatorTool\n"
        "try:\n    from my_tools import clock\nexcept ImportError:\n    pass\n"
        "calculator = CalculatorTool()\nmultiply = my_tools.multiply\n"
        "def local():\n    from my_tools import add as calculator\n",
    )
    assert list(find_tools(load_module("mine"))) == ["multiply", "calculator"]
    write("chosen.py", "from my_tools import add, multiply\n__all__ = ['add', 'missing']\n")
    assert list(find_tools(load_module("chosen"))) == ["add"]


def test_package_without_all_has_no_tools(write):
    write("package/__init__.py", "from .inner import *\nfrom . import inner\n")
    write("package/inner.py", TOOLS)
    assert find_tools(load_module("package")) == {}
    assert load_names("package.inner:add") == ["add"]


def test_module_without_source_includes_all_objects(write):
    import types

    module = types.ModuleType("made_by_hand")
    module.calculator = make_built_in("calculator", "")
    assert list(find_tools(module)) == ["calculator"]


def test_toolbox_is_returned_unchanged_and_must_be_the_only_target(write):
    write("boxed.py", f"{TOOLS}\nbox = Toolbox([add, shout], approve=['add'])\n")
    box = load_object("boxed:box")
    assert load_toolbox(["boxed:box"]) is box
    assert load_toolbox(["boxed:box", "boxed:add"]) is box
    for targets in (["boxed:box", "calculator"], ["boxed"]):
        with pytest.raises(ToolDefinitionError, match="a toolbox has its own rules"):
            load_toolbox(targets)
    shown = Toolbox(load_tools("boxed", shown=True)).names
    assert shown == ["add", "times", "shout", "now", "add_then_shout"]


def test_module_with_toolbox_of_all_tools_is_that_toolbox(write):
    write("boxed.py", "from toolsemble import Toolbox, tool\n@tool\ndef a() -> str: ...\nbox = Toolbox([a])\n")
    assert load_toolbox(["boxed"]) is load_object("boxed:box")


def test_file_is_loaded_once_and_replaces_no_module(write):
    write("helper.py", "word = 'helped'")
    path = write(
        "json.py",
        "import json, helper\nfrom toolsemble import tool\ncount = 0\n@tool\ndef a() -> str:\n    return ''\n",
    )
    module = load_file(str(path))
    assert load_file("json.py") is module
    assert sys.modules["json"] is not module
    assert module.json is sys.modules["json"]
    assert module.helper.word == "helped"


def test_directory_is_not_a_file(tmp_path):
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(ToolDefinitionError, match=r"There is no file 'folder\.py'"):
        load_file("folder.py")


def test_local_files_do_not_shadow_installed_packages(write, tmp_path):
    write("tomllib.py", "evil = True")
    assert not hasattr(load_module("tomllib"), "evil")
    assert sys.path[-1] == str(tmp_path)


def test_writing_files_needs_approval():
    assert make_built_in("file_write", ".").requires_approval is True


def test_every_built_in_tool_loads_without_settings():
    for name in BUILT_INS:
        assert Toolbox([make_built_in(name, "", shown=True)]).names == [name]
