"""DSPy with a small fake of its classes; `make interop` runs the cases with the real ones."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from toolsemble import (
    SchemaTool,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolDefinitionError,
    tool,
)
from toolsemble.interop import dspy


class FakeTool:
    def __init__(self, func, name=None, desc=None, args=None, arg_types=None):
        self.func, self.name, self.desc = func, name or func.__name__, desc or func.__doc__
        self.args, self.arg_types = args, arg_types

    def __call__(self, **arguments):
        return self.func(**arguments)

    async def acall(self, **arguments):
        return await self.func(**arguments)


OBSERVED = []


def observe(method):
    def record(self, kwargs):
        OBSERVED.append(kwargs)
        return method(self, kwargs)

    return record


LIBRARY, CALLBACKS = ModuleType("dspy"), ModuleType("dspy.utils.callback")
LIBRARY.Tool, LIBRARY.settings = FakeTool, SimpleNamespace(user="ada")
CALLBACKS.with_callbacks = observe


@pytest.fixture(autouse=True)
def _library(monkeypatch):
    for each in (LIBRARY, ModuleType("dspy.utils"), CALLBACKS):
        monkeypatch.setitem(sys.modules, each.__name__, each)


@tool
def order(item: str, context: ToolContext, count: int = 1) -> str:
    """Order something."""
    if item == "rum":
        raise ValueError("not for sale")
    return f"{count} {item} for {context.memory_id}"


def export_one(*tools, **settings):
    [exported] = dspy.export(Toolbox(tools), **settings)
    return exported


async def test_an_observation_is_a_text():
    exported = export_one(order)
    assert exported(item="tea", count="3") == "3 tea for default"
    assert await exported.acall(item="tea", count="3") == "3 tea for default"
    assert exported(item="rum") == await exported.acall(item="rum") == "Error: not for sale"
    assert exported(count="many").startswith("Error: Invalid arguments for 'order'")


async def test_callbacks_see_the_arguments_of_a_call():
    OBSERVED.clear()
    exported = export_one(order)
    exported(item="tea")
    await exported.acall(item="milk")
    assert OBSERVED == [{"item": "tea"}, {"item": "milk"}]


async def test_settings_of_dspy_choose():
    exported = export_one(order, memory_id=lambda settings: settings.user)
    assert exported(item="tea") == await exported.acall(item="tea") == "1 tea for ada"


async def test_parameters_have_any_name():
    schema = {"type": "object", "properties": {"self": {"type": "integer"}, "kwargs": {}}, "required": ["self"]}
    exported = export_one(SchemaTool("echo", "Return the arguments.", lambda arguments: arguments, schema))
    assert exported(self=1, kwargs=2) == await exported.acall(self=1, kwargs=2) == '{"self":1,"kwargs":2}'


def test_parameters_that_are_not_required_have_a_default():
    schema = {"type": "object", "properties": {"item": {"type": "string"}, "size": {}}, "required": ["item"]}
    assert export_one(order).args == {"item": {"type": "string"}, "count": {"type": "integer", "default": 1}}
    exported = export_one(SchemaTool("buy", "Buy something.", str, schema))
    assert exported.args == {"item": {"type": "string"}, "size": {"default": None}}


def test_names_of_the_framework_are_mapped_and_come_back():
    exported = dspy.export(Toolbox([order.renamed("finish"), order.renamed("submit"), order]))
    assert [each.name for each in exported] == ["finish_tool", "submit_tool", "order"]
    assert Toolbox(dspy.adopt(exported)).names == ["finish", "submit", "order"]


def test_exported_and_adopted_again_a_tool_answers_the_same():
    box = Toolbox([order])
    back = Toolbox(dspy.adopt(dspy.export(box)))
    for arguments in ({"item": "tea"}, {"item": "rum"}, {"count": "many"}):
        call = ToolCall("order", arguments)
        one, other = box.execute(call), back.execute(call)
        assert (one.text, one.is_error) == (other.text, other.is_error)


def test_adopted_tools_are_called_with_validated_arguments():
    def double(number):
        return 2 * number

    async def halve(number):
        """Halve a number."""
        if number % 2:
            raise ValueError("an odd number")
        return number // 2

    args = {"number": {"type": "integer"}}
    box = Toolbox(dspy.adopt([FakeTool(double, args=args), FakeTool(halve, args=args)]))
    assert box.execute(ToolCall("double", {"number": "21"})).text == "42"
    assert box.execute(ToolCall("halve", {"number": "84"})).text == "42"
    assert box.execute(ToolCall("halve", {"number": 1})).text == "Error: an odd number"
    assert box.execute(ToolCall("halve", {})).text == "Error: Missing required parameter(s) for 'halve': number"
    assert [each.description for each in box.specifications] == ["The tool double of dspy", "Halve a number."]


def test_rejects_what_dspy_cannot_do():
    with pytest.raises(ToolConfigurationError, match="DSPy cannot pause a run for approval"):
        export_one(order, approval="theirs")
    with pytest.raises(ToolDefinitionError, match=r"adopt takes a dspy.Tool, or a list of them, not int: 7"):
        dspy.adopt(7)


def test_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dspy", None)
    with pytest.raises(ToolDefinitionError, match="pip install dspy"):
        dspy.adopt([])
