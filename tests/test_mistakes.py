"""Mistakes that programmers make, and what the messages say: each names the mistake, and what to write instead."""

import enum
import functools
import json
import re
import sqlite3
import subprocess
import sys
import textwrap
import types
import typing
import warnings
from collections import OrderedDict
from dataclasses import dataclass

import pytest

import toolsemble
import toolsemble.builtin
import toolsemble.review
import toolsemble.testing
from toolsemble import Catalog, SchemaTool, Tool, Toolbox, ToolsembleError, tool
from toolsemble.testing import ScriptedModel

TOOLS = types.ModuleType("shop.tools")
for number in range(7):
    setattr(TOOLS, f"t{number}", tool(f"t{number}", "Does it")(lambda: None))


class LangChainTool:
    """What such a tool looks like from outside."""

    __module__ = "langchain_core.tools.structured"

    name = "weather"
    description = "The weather"


class ForeignTool:
    """A tool of yet another library."""

    name = "weather"
    description = "The weather"


class Bag:
    """Tools that can be iterated over."""

    def __iter__(self):
        return iter([])


class Shop:
    def sell(self, item: str) -> str:
        return item

    @classmethod
    def open(cls) -> str:
        return "open"


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool
def count(text: str) -> int:
    """Count characters."""
    return len(text)


def plain(a: int) -> int:
    """Say it again."""
    return a


async def later(a: int) -> int:
    return a


NAMES = {
    **{name: getattr(toolsemble, name) for name in toolsemble.__all__},
    **{name: getattr(toolsemble.builtin, name) for name in toolsemble.builtin.__all__},
    **{name: getattr(toolsemble.review, name) for name in toolsemble.review.__all__},
    **{
        each.__name__: each
        for each in (
            LangChainTool,
            ForeignTool,
            Bag,
            Shop,
            OrderedDict,
            Catalog,
            SchemaTool,
            ScriptedModel,
            add,
            count,
            plain,
            later,
        )
    },
    "enum": enum,
    "functools": functools,
    "json": json,
    "sqlite3": sqlite3,
    "typing": typing,
    "dataclass": dataclass,
    "TypedTool": toolsemble.TypedTool,
    "TextContent": toolsemble.TextContent,
    "ImageContent": toolsemble.ImageContent,
    "tools": TOOLS,
    "box": Toolbox([add]),
    "model": ScriptedModel(["Hello"]),
}

TABLE = [
    # What is not a tool
    ("Toolbox([plain])", "index 0: the function 'plain' is not a tool", "put @tool above it, or pass tool(plain)"),
    ("Toolbox([add, later])", "index 1: the function 'later' is not a tool", "put @tool above it"),
    ("Toolbox([Shop().sell])", "the method 'Shop.sell' is not a tool", "put @tool above it"),
    ("Toolbox([Shop.open])", "the method 'Shop.open' is not a tool", "put @tool above it"),
    ("Toolbox([lambda a: a])", "a lambda is not a tool", "write a function with @tool above it"),
    ("Toolbox([tool(lambda a: a)])", "A lambda has no name", "tool('name', 'what it does')(lambda ...)"),
    ("Toolbox([len])", "the built-in function 'len' is not a tool", "in a function of your own with @tool above it"),
    (
        "Toolbox([functools.partial(plain, 1)])",
        "the partial of 'plain' is not a tool",
        "tool('a_name', 'what it does')",
    ),
    ("Toolbox([later(1)])", "the coroutine of 'later' is not a tool", "pass the function, with @tool above it"),
    ("Toolbox([Shop])", "index 0 (Shop) is a class", "pass an instance: Shop(...)"),
    ("Toolbox([Shop()])", "index 0 (Shop) is neither an AgentTool", "nor has @tool methods"),
    ("Toolbox([CalculatorTool])", "(CalculatorTool) is a class", "pass an instance: CalculatorTool(...)"),
    ("Toolbox([None])", "index 0 is None", "pass a tool object"),
    ("Toolbox([json])", "the module 'json' is not a tool, and has none", "put @tool above its functions"),
    ("Toolbox([tools])", "the module 'shop.tools' is not a tool", "pass its tools: tools.t0, tools.t1, tools.t2"),
    ("Toolbox([Agent(model)])", "An Agent is not a tool", "pass agent.as_tool(name, description)"),
    ("Agent(model, [Agent(model)])", "An Agent is not a tool", "pass agent.as_tool(name, description)"),
    ("Toolbox([Catalog([])])", "A Catalog is not a tool", "catalog.box(messages) in a loop of your own"),
    ("Toolbox(Catalog([]))", "A Catalog is not a tool", "catalog.box(messages) in a loop of your own"),
    ("Agent(model, [Catalog([])])", "A Catalog is not a tool", "write Agent(model, catalog)"),
    ("Agent(model, [plain])", "the function 'plain' is not a tool", "put @tool above it"),
    ("Toolbox([LangChainTool()])", "'weather' is a tool of LangChain", "pass *langchain.adopt([...])"),
    ("Toolbox([ForeignTool()])", "no method execute(input)", "SchemaTool(name, description, function, parameters)"),
    ("Toolbox([{'type': 'function'}])", "a dict is not a tool: {'type'", "SchemaTool(name, description, function"),
    ("Toolbox(['add'])", "the str 'add' is not a tool", "pass the tool itself, not its name"),
    ("Toolbox(box.specifications)", "the ToolSpecification 'add' says what", "pass the tool itself"),
    ("Toolbox([Bag()])", "a Bag object is not a tool", "if they are tools: [*tools]"),
    ("Toolbox([OrderedDict()])", "a dict is not a tool", "SchemaTool(name"),
    ("add | plain", "Step 2 (function): the function 'plain' is not a tool", "put @tool above it"),
    ("add | (lambda x: x)", "Step 2 (function): a lambda is not a tool", "write a function with @tool"),
    ("add | Shop", "Step 2 is the class Shop", "pass an instance: Shop(...)"),
    ("add | None", "Step 2 is None", "pass a tool"),
    ("fan_out(add, plain)", "Branch 2 of fan_out (function): the function 'plain'", "put @tool above it"),
    ("map_over(plain)", "the function 'plain' is not a tool", "put @tool above it"),
    ("ToolPipeline('p', 'Does it', [])", "Pipeline 'p' has no steps", "pass at least one tool"),
    # Lists of tools
    ("Toolbox(add)", "takes a list of tools, not FunctionTool", "write Toolbox([...])"),
    ("Toolbox(add, add)", "takes one list, not 2 tools", "write Toolbox([a, b])"),
    ("Toolbox([add], reviews=None)", "A toolbox has no setting 'reviews'", "did you mean review?"),
    ("Toolbox(plain)", "takes a list of tools, not function", "put @tool above it"),
    ("Toolbox('add')", "takes a list of tools, not str", "write Toolbox([...])"),
    ("Toolbox(None)", "takes a list of tools, not NoneType", "write Toolbox([...])"),
    ("Toolbox({'add': add})", "takes a list of tools, not dict", "write Toolbox([...])"),
    ("Toolbox([add, add])", "Duplicate tool name: 'add'", "tool.renamed('other_name')"),
    ("Toolbox([box, add])", "Duplicate tool name: 'add'", "box.prefixed('other_')"),
    ("box + box", "A Toolbox is not added to another", "write Toolbox([first, second])"),
    ("box.prefixed(5)", "not 5", "a str, such as 'crm_'"),
    ("box.renamed({'ad': 'plus'})", "there is no tool 'ad'", "the tools are add"),
    ("box.filtered(['ad'])", "no tool is 'ad'", "the tools are add"),
    ("Toolbox([Toolbox([add], before_call=print)])", "a Toolbox with before_call", "pass the hooks to the new toolbox"),
    ("Agent([add], 'openai:gpt-5')", "Agent takes the model first", "Agent('openai:gpt-5', [...])"),
    ("Agent([add])", "Agent takes the model first", "Agent(model, [...])"),
    ("Agent(box, model)", "Agent takes the model first", "Agent(model, [...])"),
    ("Agent(model, Shop)", "not the class Shop", "pass an instance"),
    # How a tool is written
    (
        "@tool\nclass Search: pass",
        "@tool is for functions and methods, and Search is a class",
        "put @tool above its methods",
    ),
    (
        "@tool(return_direct=True)\ndef f(): 'It'",
        "A tool has no setting 'return_direct'",
        "it takes approval_description, approval_on_timeout",
    ),
    (
        "@tool(args_schema=Shop)\ndef f(): 'It'",
        "A tool has no setting 'args_schema'",
        "it takes approval_description, ",
    ),
    ("@tool(require_approval=True)\ndef f(): 'It'", "A tool has no setting", "did you mean requires_approval?"),
    ("Agent(model, max_iteration=3)", "An Agent has no setting", "did you mean max_tool_calls?"),
    ("Agent(model).run_sync('Hi', max_turn=3)", "A run has no setting", "did you mean max_turns?"),
    (
        "import pickle\npickle.dumps(box)",
        "A Toolbox cannot be pickled or deep-copied: it has locks, threads",
        "pickle the tools, and make the toolbox where it is used",
    ),
    ("import copy\ncopy.deepcopy(box)", "A Toolbox cannot be pickled or deep-copied", "make the toolbox where"),
    ("import pickle\npickle.dumps(Agent(model))", "An Agent cannot be pickled", "make the agent where it is used"),
    ("import pickle\npickle.dumps(Catalog([add]))", "A Catalog cannot be pickled", "make the catalog where it is used"),
    (
        "import pydantic.v1\nclass Old(pydantic.v1.BaseModel): pass\n@tool\ndef f(at: list[Old]): 'It'\nToolbox([f])",
        "parameter 'at': Old cannot be sent by a model",
        "it is a model of pydantic v1; use v2: from pydantic import BaseModel",
    ),
    ("@tool('a b')\ndef f(): 'It'\nToolbox([f])", "Invalid tool name 'a b'", "use 1 to 64 letters, digits"),
    ("@tool\ndef f(*args: int): 'It'\nToolbox([f])", "parameter '*args'", "take a list instead: args: list[...]"),
    ("@tool\ndef f(**kw): 'It'\nToolbox([f])", "parameter '**kw'", "declare each parameter, or annotate it"),
    (
        "@tool\ndef f(a: 'Nowhere'): 'It'\nToolbox([f])",
        "annotation 'Nowhere' cannot be resolved",
        "define or import it",
    ),
    (
        "@tool\ndef f(a: enum.Flag('F', 'A B')): 'It'\nToolbox([f])",
        "F cannot be sent by a model",
        "a list of the members",
    ),
    ("@tool\ndef f(a: typing.Callable): 'It'\nToolbox([f])", "Callable cannot be sent by a model", "take data"),
    (
        "@tool\ndef f(a: Shop): 'It'\nToolbox([f])",
        "Shop cannot be sent by a model",
        "use a dataclass, a pydantic model",
    ),
    (
        "@tool\ndef f(db: sqlite3.Connection): 'It'\nToolbox([f])",
        "parameter 'db': Connection cannot be sent by a model",
        "InvocationParameters or ToolContext, or from the object of a @tool method",
    ),
    (
        "@tool\ndef f(all: list[ToolContext]): 'It'\nToolbox([f])",
        "a ToolContext cannot be part of another type",
        "add a parameter of type ToolContext",
    ),
    (
        "class A(Tool):\n    def execute(self, input): ...",
        "A overrides execute, which is final",
        "override run instead",
    ),
    (
        "class A(TypedTool):\n    name = 'a'\n    description = 'It'\n    def run(self, input): ...\nToolbox([A()])",
        "A has no input type",
        "write class A(TypedTool[SomeDataclass])",
    ),
    (
        "class A(Tool):\n    description = 'It'\n    def run(self, input): ...\nToolbox([A()])",
        "The tool has no name",
        "add an attribute or property 'name'",
    ),
    (
        "class A(Tool):\n    name = 'a'\n    description = None\n    def run(self, input): ...\nToolbox([A()])",
        "description must be a str",
        "not NoneType",
    ),
    ("SchemaTool('a', 'It', plain, {'type': 'objct'})", "not 'objct'", "must be of type object"),
    (
        "SchemaTool('a', 'It', plain, {'properties': {'b': {'foo': 1}}})",
        "keyword 'foo' cannot be enforced",
        "leave it out",
    ),
    # Settings
    ("@tool(timeout='5')\ndef f(): 'It'\nToolbox([f])", "not '5'", "timeout must be a number of seconds > 0"),
    ("@tool(effects='none')\ndef f(): 'It'\nToolbox([f])", "not 'none'", "one of 'read', 'write', 'irreversible'"),
    (
        "@tool(cache=60)\ndef f(): 'It'\nToolbox([f])",
        "cache needs a tool that changes nothing",
        'declare effects="read"',
    ),
    (
        "@tool(retries=3)\ndef f(): 'It'\nToolbox([f])",
        "retries need a tool that may be called twice",
        "idempotent=True",
    ),
    ("@tool(isolation='vm')\ndef f(): 'It'\nToolbox([f])", "not 'vm'", "one of 'thread', 'process'"),
    (
        "def g():\n    @tool(isolation='process')\n    def f(): 'It'\n    return f\nToolbox([g()])",
        " local object",
        "needs a tool that can be pickled, such as a function of a module",
    ),
    ("@tool(requires_approval='yes')\ndef f(): 'It'\nToolbox([f])", "not 'yes'", "True, False or a predicate"),
    ("@tool(max_output=-1)\ndef f(): 'It'\nToolbox([f])", "not -1", "max_output must be an int >= 0"),
    ("@tool(max_concurrency=0)\ndef f(): 'It'\nToolbox([f])", "not 0", "max_concurrency must be an int >= 1"),
    ("@tool(strict='yes')\ndef f(): 'It'\nToolbox([f])", "not 'yes'", "strict must be True, False or None"),
    (
        "@tool(idempotency=5)\ndef f(): 'It'\nToolbox([f])",
        "not 5",
        "True, a function of the arguments, or an Idempotency",
    ),
    ("@tool(rate_limit=5)\ndef f(): 'It'\nToolbox([f])", "not 5", "rate_limit must be a RateLimit"),
    ("@tool(editable='x')\ndef f(): 'It'\nToolbox([f])", "not 'x'", "editable must name a str parameter"),
    ("Toolbox([add], approve=['ad'])", "approve names 'ad'", "the tools are add"),
    ("Toolbox([add], repair={'txt'})", "unknown step 'txt'", "known are coerce, extra, keys"),
    ("Toolbox([add], expose_errors='none')", "not 'none'", "must be 'all' or 'declared'"),
    ("Toolbox([add], pages=True)", "pages needs max_output", "only truncated results have further pages"),
    ("Toolbox([add], sinks=[5])", "sinks[0]", "a function of an event, or have emit(event)"),
    ("Toolbox([add], before_call=5)", "not 5", "before_call must be a function (call, context)"),
    ("Toolbox([add], review=AutoApprove)", "AutoApprove", "an object with a method review(request)"),
    ("Agent(model, max_cost=1)", "max_cost needs prices", "prices=Prices(2, 8)"),
    ("Agent(model, retry=3)", "not 3", "Retry(attempts=3)"),
    ("Agent(model, memory='talks.db')", "not 'talks.db'", "ConversationMemory('talks.db')"),
    ("Agent(model, max_turns=0)", "not 0", "max_turns must be an int >= 1"),
    ("Agent(model, output_type=Shop)", "Shop cannot be sent by a model", "use a dataclass, a pydantic model"),
    # Calls and runs
    ("box.execute({'name': 'add'})", "not dict", "pass ToolCall(name, arguments), or ToolCall.from_openai(call)"),
    ("box.execute('add')", "not str", "pass ToolCall(name, arguments)"),
    ("add.execute('{}', context=5)", "not int", "must be a ToolContext"),
    (
        "Agent(model).run_sync('Hi', dependencies=1)",
        "A run has no setting 'dependencies'",
        "it takes decisions, deps, history",
    ),
    ("Agent(model).run_sync('')", "There is nothing to answer", "pass a prompt"),
    # Models
    ("Agent('gpt-4o')", "Unknown model 'gpt-4o'", "Did you mean 'openai:gpt-4o'? Known providers: anthropic"),
    ("Agent('opnai:gpt-4o')", "Unknown model 'opnai:gpt-4o'", "Did you mean 'openai:gpt-4o'?"),
    ("Agent('openai/gpt-4o')", "Unknown model 'openai/gpt-4o'", "Did you mean 'openai:gpt-4o'?"),
    ("Agent('OpenAI:gpt-4o')", "Unknown model 'OpenAI:gpt-4o'", "Did you mean 'openai:gpt-4o'?"),
    ("Agent('claude-sonnet-4')", "Unknown model 'claude-sonnet-4'", "Did you mean 'anthropic:claude-sonnet-4'?"),
    ("Agent('gemini-2.5-pro')", "Unknown model 'gemini-2.5-pro'", "Did you mean 'google:gemini-2.5-pro'?"),
    ("Agent('mistral-large')", "Unknown model 'mistral-large'", "Did you mean 'mistral:mistral-large'?"),
    ("Agent('qwen3:8b')", "Unknown model 'qwen3:8b'", "Did you mean 'ollama:qwen3:8b'?"),
    ("Agent('xyz')", "Unknown model 'xyz'", "; known providers: anthropic, "),
    ("Agent('groq:')", "'groq' needs a model name", "such as 'groq:<model>'"),
    ("Agent(ScriptedModel)", "ScriptedModel'> is not a ChatModel", "pass an object with the methods reply and stream"),
    # Results and contents
    ("ToolResult.success(5)", "must be a str, not int", "put other values into structured_output"),
    ("ToolResult.success('x', contents=['a'])", "not 'a'", "a list of TextContent, ImageContent"),
    ("ToolResult.success('x', contents='a')", "not 'a'", "a list of TextContent, ImageContent"),
    (
        "ToolResult.success('x', contents=TextContent('a'))",
        "contents must be a list",
        "contents=[TextContent(text='a')]",
    ),
    ("TextContent(5)", "not int", "text must be a str"),
    ("ImageContent('https://x/a.png', 'image/png')", "not 'https://x/a.png'", "read the file or fetch the URL first"),
    ("ImageContent(b'', None)", "not None", "mime_type must be a str, such as 'image/png'"),
    # Services
    ("HttpTool('a', 'It', 'http://10.0.0.7/')", "'10.0.0.7' is not a public address", "allow_hosts=['10.0.0.7']"),
    ("HttpTool('a', 'It', 'ftp://example.com/')", "url must begin with http://", "or https:// and a host"),
    ("HttpTool.from_openapi('no.json')", "'no.json' is not JSON, YAML or a URL", "cannot be read as a file"),
    ("HttpTool.from_openapi({'swagger': '2.0'})", "must have version 3", "('openapi': '3.…')"),
]


@pytest.mark.parametrize(("program", "mistake", "advice"), TABLE, ids=[row[0] for row in TABLE])
def test_a_mistake_is_explained(program, mistake, advice):
    with pytest.raises((ToolsembleError, TypeError)) as refused:
        exec(program, dict(NAMES))  # noqa: S102 - the programs are in the table
    assert mistake in str(refused.value)
    assert advice in str(refused.value)


def test_no_message_shows_an_address_in_memory():
    for program, *_ in TABLE:
        with pytest.raises((ToolsembleError, TypeError)) as refused:
            exec(program, dict(NAMES))  # noqa: S102 - as above
        assert not re.search(r" at 0x[0-9a-f]+", str(refused.value)), program


class TestAToolWithoutADescription:
    def make(self, description=""):
        @tool("search", description)
        def function(query: str) -> str:
            return query

        return function

    def warned(self, build):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("default")
            for _ in range(2):
                build()
        return [(str(each.message), each.filename, each.category) for each in found]

    @pytest.mark.parametrize("description", ["", "  "])
    def test_is_warned_of_once_at_the_line_that_uses_it(self, description):
        undescribed = self.make(description)
        message = (
            "Tool 'search' has no description, by which a model chooses tools; write a docstring, or pass "
            "description=..."
        )
        for build in (lambda: Toolbox([undescribed]), lambda: toolsemble.Agent(ScriptedModel([]), [undescribed])):
            assert self.warned(build) == [(message, __file__, UserWarning)]

    def test_is_not_warned_of_with_a_description(self):
        assert self.warned(lambda: Toolbox([self.make("Searches")])) == []

    def test_is_not_warned_of_by_the_command_line(self, tmp_path):
        (tmp_path / "shop.py").write_text("from toolsemble import tool\n@tool\ndef f() -> str:\n    return 'x'\n")
        command = [sys.executable, "-W", "default", "-m", "toolsemble", "tools", str(tmp_path / "shop.py")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={})
        assert (done.returncode, "no description" in done.stderr) == (0, False)

    def test_is_shown_at_the_line_of_a_program(self, tmp_path):
        program = """
            from toolsemble import Toolbox, tool
            @tool
            def search(query: str) -> str:
                return query
            Toolbox([search])
        """
        file = tmp_path / "program.py"
        file.write_text(textwrap.dedent(program))
        done = subprocess.run(
            [sys.executable, str(file)], capture_output=True, text=True, timeout=60, check=False, env={}
        )
        assert f"{file}:6: UserWarning: Tool 'search' has no description" in done.stderr


class Color(enum.Enum):
    RED = 1
    BLUE = 2
    CRIMSON = 1  # noqa: PIE796 - another name of a member


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Mixed(enum.Enum):
    NONE = None
    YES = True
    MANY = 2.5


class TestEnumerationsOfNumbers:
    def paint(self, kind):
        def paint(color):
            """Paint it."""
            return repr(color)

        paint.__annotations__["color"] = kind
        return Toolbox([tool(paint)])

    def run(self, box, value):
        reply = box.execute(toolsemble.ToolCall("paint", {"color": value}))
        return reply.text, [each["to"] for each in reply.result.attributes.get("repairs", ())]

    @pytest.mark.parametrize(
        ("kind", "description"),
        [
            (Color, "RED=1, BLUE=2"),
            (Level, "LOW=1, HIGH=5"),
            (typing.Annotated[Color, "The color"], "The color (RED=1, BLUE=2)"),
        ],
    )
    def test_show_the_names_of_their_members(self, kind, description):
        (specification,) = self.paint(kind).specifications
        shown = specification.parameters["properties"]["color"]
        assert (shown["type"], shown["description"], len(shown["enum"])) == ("integer", description, 2)

    def test_show_the_names_of_members_of_several_types(self):
        (specification,) = self.paint(Mixed).specifications
        assert specification.parameters["properties"]["color"]["description"] == "NONE=null, YES=true, MANY=2.5"

    @pytest.mark.parametrize(
        ("kind", "sent", "text", "repairs"),
        [
            (Color, 1, "<Color.RED: 1>", []),
            (Color, "RED", "<Color.RED: 1>", [1]),
            (Color, "Color.RED", "<Color.RED: 1>", [1]),
            (Color, " blue ", "<Color.BLUE: 2>", [2]),
            (Color, "2", "<Color.BLUE: 2>", [2]),
            (Color | None, "RED", "<Color.RED: 1>", [1]),
            (Level, "high", "<Level.HIGH: 5>", [5]),
            (Mixed, "MANY", "<Mixed.MANY: 2.5>", [2.5]),
        ],
    )
    def test_accept_the_names_as_a_repair(self, kind, sent, text, repairs):
        assert self.run(self.paint(kind), sent) == (text, repairs)

    def test_refuse_other_names(self):
        text, repairs = self.run(self.paint(Color), "GREEN")
        assert (text, repairs) == ("Error: Invalid arguments for 'paint': color: expected one of 1 (RED), 2 (BLUE)", [])

    def test_name_the_members_of_a_list(self):
        text, _ = self.run(self.paint(list[Color]), [7])
        assert text == "Error: Invalid arguments for 'paint': color[0]: expected one of 1 (RED), 2 (BLUE)"

    @pytest.mark.parametrize("kind", [typing.Literal[1, 2], dict[str, Color]])
    def test_leave_values_without_known_names(self, kind):
        text, _ = self.run(self.paint(kind), 7 if kind == typing.Literal[1, 2] else {"a": 7})
        assert text.endswith("expected one of 1, 2")

    def test_refuse_names_without_repairs(self):
        def paint(color: Level) -> str:
            """Paint it."""
            return repr(color)

        reply = Toolbox([tool(paint)], repair=False).execute(toolsemble.ToolCall("paint", {"color": "LOW"}))
        assert reply.is_error

    @pytest.mark.parametrize("names", [5, ["A"], ["A", 5], {"A": 1}, None])
    def test_ignore_names_of_a_schema_that_do_not_fit(self, names):
        schema = {"properties": {"a": {"enum": [1, 2], "x-enum-varnames": names}}}
        box = Toolbox([toolsemble.SchemaTool("pick", "Picks", lambda given: given["a"], schema)])
        assert "description" not in box.specifications[0].parameters["properties"]["a"]
        assert box.execute(toolsemble.ToolCall("pick", {"a": "A"})).is_error

    def test_of_a_schema_are_used(self):
        schema = {"properties": {"a": {"enum": [1, 2], "x-enum-varnames": ["ONE", "one"]}, "b": {"const": 7}}}
        box = Toolbox([toolsemble.SchemaTool("pick", "Picks", lambda given: given["a"], schema)])
        assert box.execute(toolsemble.ToolCall("pick", {"a": "one"})).text == "2"
        assert box.execute(toolsemble.ToolCall("pick", {"a": "One"})).is_error

    def test_show_a_hundred_names_at_most(self):
        kind = enum.Enum("Many", {f"M{number}": number for number in range(150)})
        (specification,) = self.paint(kind).specifications
        assert specification.parameters["properties"]["color"]["description"].endswith("M99=99, ...")


def test_reprs_show_names():
    assert repr(add) == "FunctionTool('add')"
    assert repr(toolsemble.builtin.CalculatorTool()) == "CalculatorTool('calculator')"
    assert repr(add | count) == "ToolPipeline('add_then_count': add -> count)"
    assert repr(toolsemble.fan_out(add, count)) == "CompositeTool('add_and_count')"
    assert isinstance(add, Tool)
