"""The list of providers: declared once, and all that a new provider needs."""

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import toolsemble
from toolsemble import Toolbox, ToolCall, ToolReply, ToolResult
from toolsemble._vocabulary.provider_list import PROVIDERS, load_wire_format

ROOT = Path(__file__).parents[2]
DECLARED_IN = Path("src/toolsemble/_vocabulary/provider_list.py")

WIRE_FORMAT = '''
"""The wire format of Toy."""


def write_tools(offers):
    return [{"toy": offer.name, "strict": bool(offer.strict), "takes": adapt(offer.parameters)[0]} for offer in offers]


def adapt(parameters, *, strict=False):
    from toolsemble._vocabulary.specification import Note

    return {**(parameters or {}), "strict": strict}, [Note("$", "strict", "rewritten", str(strict))]


def read_call(source):
    return source["tool"], source["with"], source.get("number")


def write_reply(answer):
    return {"number": answer.call_id, "said": answer.text}
'''
MODEL = '''
"""The model of Toy."""

from toolsemble.models import ChatReply, chunks_of
from toolsemble.models._adapter.offer import offer_with_key


def offer():
    return offer_with_key("toy:small", "json", "TOY_API_KEY")


def model_from_name(provider, rest):
    return ToyModel(rest)


class ToyModel:
    def __init__(self, name):
        self.name = name

    async def reply(self, request):
        return ChatReply(f"{self.name} heard {request.messages[-1].text}")

    async def stream(self, request):
        for chunk in chunks_of(await self.reply(request)):
            yield chunk
'''
LINE = 'Provider("toy", has_strict=True, models=("toy",), otel_name="toy.inc"),'
TOOLS = '''
from toolsemble import tool

@tool(strict=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''
USE = """
from toolsemble import Agent, Toolbox, ToolCall
from toolsemble.agent._run.events import model_attributes
from toolsemble.models import model_of, offers
from my_tools import add

box = Toolbox([add])
call = ToolCall.from_provider("toy", {"tool": "add", "with": {"a": 1, "b": 2}, "number": "7"})
print(box.to_provider("toy")[0]["toy"], box.to_provider("toy")[0]["strict"])
print(box.execute(call).to_provider("toy"))
print(*add.explain("toy"))
agent = Agent()
print(agent.run_sync("hello").text)
print(next(offer.why for offer in offers() if offer.name == "toy:small"))
print(model_attributes(agent._config))
"""


@pytest.fixture(scope="module")
def fork(tmp_path_factory):
    """Return a copy of the library with an added provider: two modules and one line."""
    root = tmp_path_factory.mktemp("fork")
    package = root / "toolsemble"
    shutil.copytree(Path(toolsemble.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    home = package / "models" / "toy"
    home.mkdir()
    (home / "__init__.py").write_text("", encoding="utf-8")
    (home / "_wire.py").write_text(WIRE_FORMAT, encoding="utf-8")
    (home / "_model.py").write_text(MODEL, encoding="utf-8")
    listed = package / "_vocabulary" / "provider_list.py"
    text = listed.read_text(encoding="utf-8")
    listed.write_text(text.replace('        Provider("mcp"', f'        {LINE}\n        Provider("mcp"'), "utf-8")
    (root / "my_tools.py").write_text(TOOLS, encoding="utf-8")
    return root


def run(fork, *arguments):
    """Run Python with the copy of the library; return what it writes."""
    keys = re.compile("API_KEY|AWS_|TOOLSEMBLE_")
    environ = {name: value for name, value in os.environ.items() if not keys.search(name)}
    environ |= {"PYTHONPATH": str(fork), "TOY_API_KEY": "toy-key"}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # it is started several times, and compiled once
    done = subprocess.run(
        [sys.executable, *arguments], cwd=fork, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_provider_needs_two_modules_and_one_line(fork):
    assert run(fork, "-c", USE) == textwrap.dedent("""\
        add True
        {'number': '7', 'said': '3'}
        $: strict rewritten: True
        small heard hello
        TOY_API_KEY is set
        {'gen_ai.request.model': 'small', 'gen_ai.provider.name': 'toy.inc'}
    """)


@pytest.mark.slow
def test_command_line_lists_new_provider(fork):
    written = run(fork, "-m", "toolsemble", "tools", "my_tools:add", "--provider", "toy", "--json")
    assert '"toy":"add"' in written.replace(" ", "")
    assert "rewritten: True" in run(fork, "-m", "toolsemble", "explain", "my_tools:add", "--provider", "toy")
    assert "toy" in run(fork, "-m", "toolsemble", "tools", "--help")
    assert "small heard hello" in run(fork, "-m", "toolsemble", "ask", "hello", "--model", "toy:small")


def test_unknown_provider_error_lists_known_providers():
    problem = f"^Unknown provider 'unknown'; known are {', '.join(PROVIDERS)}$"
    with pytest.raises(ValueError, match=problem):
        Toolbox([]).to_provider("unknown")
    with pytest.raises(ValueError, match=problem):
        ToolCall.from_provider("unknown", {})
    with pytest.raises(ValueError, match=problem):
        ToolReply(ToolCall("now"), ToolResult.success("noon")).to_provider("unknown")


@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=PROVIDERS)
def test_declaration_matches_modules(provider):
    wire = load_wire_format(provider.name)
    assert all(callable(getattr(wire, name)) for name in ("write_tools", "adapt", "read_call", "write_reply"))
    assert ("strict" in inspect.signature(wire.adapt).parameters) is provider.has_strict
    home = ROOT / f"src/toolsemble/models/{provider.name}/_model.py"
    assert home.exists() is bool(provider.models), f"has_strict or models of {provider.name!r} in {DECLARED_IN}"


def test_provider_methods_are_complete():
    def named(kind, prefix):
        return {name.removeprefix(prefix) for name in dir(kind) if name.startswith(prefix)} - {"provider"}

    assert named(Toolbox, "to_") == named(ToolReply, "to_") == named(ToolCall, "from_")
    assert named(Toolbox, "to_") <= PROVIDERS.keys()


def test_reference_lists_every_provider():
    page = (ROOT / "docs/reference/providers.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"with four functions, for (.*):", page)
    assert sorted(re.findall(r"`(\w+)`", listed)) == sorted(PROVIDERS), "list it in docs/reference/providers.md"


def find_provider_names(node):
    """Return the providers' names among the strings of a literal."""
    parts = node.keys if isinstance(node, ast.Dict) else node.elts
    return {each.value for each in parts if isinstance(each, ast.Constant) and each.value in PROVIDERS}


def test_no_other_module_lists_providers():
    others = [path for folder in ("src", "benchmarks", "docs") for path in (ROOT / folder).rglob("*.py")]
    names = re.compile("|".join(f"""["']{name}["']""" for name in PROVIDERS))
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} lists providers; read them from {DECLARED_IN}"
        for path in others
        if path.relative_to(ROOT) != DECLARED_IN and ".envs" not in path.parts
        for text in [path.read_text(encoding="utf-8")]
        if len(set(names.findall(text))) > 2  # few modules name as many, and only they are parsed
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict) and len(find_provider_names(node)) > 2
    ]
    assert found == []
