"""CrewAI with a small fake of its classes; `make interop` runs the cases with the real ones."""

import sys
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel, create_model

from interop.natives import order
from toolsemble import (
    ImageContent,
    SchemaTool,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolDefinitionError,
    ToolResult,
    tool,
)
from toolsemble.interop import crewai


class FakeFailure(BaseModel):
    message: str

    def as_agent_message(self):
        return self.message


class FakeBaseTool(BaseModel):
    name: str
    description: str
    args_schema: Any
    cache_function: Any = None
    max_usage_count: int = 100
    used: int = 0

    def _claim_usage(self):
        self.used += 1
        return FakeFailure(message="used too often") if self.used > self.max_usage_count else None


class FakeFunctionTool(FakeBaseTool):
    func: Any

    def run(self, **named):
        return self.func(**named)

    async def arun(self, **named):
        """Fail for a function that is not async, after it has run, as CrewAI does."""
        return await self.func(**named)


TOOLS, FAILURES, EXECUTION, STRINGS = (ModuleType(name) for name in ("tools", "failures", "execution", "strings"))
TOOLS.BaseTool, FAILURES.ToolFailure = FakeBaseTool, FakeFailure
EXECUTION.get_execution_uuid = lambda: "run_7"
STRINGS.sanitize_tool_name = lambda name: name.lower().replace("-", "_").strip("_")


@pytest.fixture(autouse=True)
def _library(monkeypatch):
    monkeypatch.setitem(sys.modules, "crewai.tools", TOOLS)
    monkeypatch.setitem(sys.modules, "crewai.tools.tool_failure", FAILURES)
    monkeypatch.setitem(sys.modules, "crewai.execution", EXECUTION)
    monkeypatch.setitem(sys.modules, "crewai.utilities.string_utils", STRINGS)


def export_one(*tools, **settings):
    [exported] = crewai.export(Toolbox(tools), **settings)
    return exported


def adopt_one(function):
    schema = create_model("Double", number=(int, ...))
    [adopted] = crewai.adopt(
        [FakeFunctionTool(name="double", description="Double.", args_schema=schema, func=function)]
    )
    return adopted


async def test_a_call_returns_a_text_with_its_payload():
    @tool
    def size(width: int) -> dict[str, int]:
        """Return a size."""
        return {"width": width}

    exported = export_one(size)
    for shown in (exported.run(width="3"), exported.run("3"), await exported.arun(width="3")):
        assert (shown, shown.payload) == ('{"width":3}', {"width": 3})


async def test_a_failed_call_is_a_failure_and_no_exception():
    exported = export_one(order)
    expected = FakeFailure(message="Error: not for sale")
    assert exported.run(item="rum") == await exported.arun(item="rum") == expected


def test_media_are_lines_of_the_text():
    image = ImageContent(b"...", "image/png")
    draw = SchemaTool("draw", "Draw.", lambda _: ToolResult.success("a map", contents=[image]))
    assert export_one(draw).run() == "a map\n[image/png, 3 bytes, not shown]"


async def test_the_limit_of_the_framework_holds():
    exported = export_one(order)
    exported.max_usage_count = 2
    shown = [exported.run("tea"), await exported.arun("tea"), exported.run("tea"), await exported.arun("tea")]
    assert shown == ["1 tea", "1 tea", *[FakeFailure(message="used too often")] * 2]


def test_the_cache_of_the_framework_is_off():
    assert export_one(order).cache_function({"item": "tea"}, "1 tea") is False


def test_a_call_belongs_to_the_execution_of_the_framework():
    seen = []

    @tool
    def look(context: ToolContext) -> str:
        """Look."""
        seen.append((context.memory_id, context.run_id))
        return "seen"

    export_one(look, memory_id="ada").run()
    assert seen == [("ada", "run_7")]


def test_a_parameter_may_be_called_self():
    own = SchemaTool("own", "Own.", lambda arguments: arguments["self"], {"properties": {"self": {"type": "string"}}})
    assert export_one(own).run(self="me") == "me"


def test_null_stands_for_an_optional_parameter_that_is_left_out():
    properties = {
        "city": {"type": "string"},
        "day": {"type": "string", "description": "the day", "default": "today"},
        "hour": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "list": {"type": ["array", "null"]},
        "extra": {},
    }
    weather = SchemaTool("weather", "Weather.", dict, {"properties": properties, "required": ["city"]})
    [exported] = crewai.export(Toolbox([weather], repair=False))
    shown = exported.args_schema.model_json_schema()["properties"]
    plain = Toolbox([weather]).specifications[0].parameters["properties"]
    null = {"type": "null"}
    assert shown["day"] == {"anyOf": [{"type": "string"}, null], "description": "the day", "default": "today"}
    assert shown["either"] == {"anyOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, null]}
    assert {name: shown[name] for name in ("city", "hour", "list", "extra")} == {
        name: plain[name] for name in ("city", "hour", "list", "extra")
    }
    left_out = dict.fromkeys(properties)
    assert exported.run(**{**left_out, "city": "Rome"}) == '{"city":"Rome","hour":null,"list":null,"extra":null}'
    assert exported.run(**left_out).message == "Error: Missing required parameter(s) for 'weather': city"


def test_names_are_mapped_and_come_back():
    names = ["get-tea", "get_tea", "getTea", "_"]
    exported = crewai.export(Toolbox([SchemaTool(name, "Answer.", str) for name in names]))
    assert [each.name for each in exported] == ["get_tea_2", "get_tea", "gettea", "tool"]
    assert Toolbox(crewai.adopt(exported)).names == names


def test_the_framework_cannot_ask_for_approval():
    with pytest.raises(ToolConfigurationError, match="CrewAI cannot pause a run"):
        export_one(order, approval="theirs")


def test_adopted_tools_are_validated_and_called_once():
    calls = []
    adopted = adopt_one(lambda number: calls.append(number) or 2 * number)
    assert adopted.execute({"number": "21"}).output == "42"
    assert adopted.execute({"number": "many"}).error_message.startswith("Invalid arguments for 'double'")
    assert calls == [21]


async def test_async_functions_are_awaited():
    async def double(number):
        return 2 * number

    assert (await adopt_one(double).aexecute({"number": 21})).output == "42"


def test_the_failures_of_an_adopted_tool_are_failures():
    def fail(number):
        raise ValueError("too large")

    assert adopt_one(fail).execute({"number": 1}).error_message == "too large"
    reported = adopt_one(lambda number: FakeFailure(message="no such city"))
    assert reported.execute({"number": 1}).error_message == "no such city"


def test_a_round_trip_gives_the_same_replies():
    box, back = Toolbox([order]), Toolbox(crewai.adopt(crewai.export(Toolbox([order]))))
    for arguments in ({"item": "tea"}, {"item": "rum"}, {"count": "many"}):
        assert back.execute(ToolCall("order", arguments)).text == box.execute(ToolCall("order", arguments)).text


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "crewai.tools", None)
    with pytest.raises(ToolDefinitionError, match="pip install crewai"):
        crewai.adopt(7)
