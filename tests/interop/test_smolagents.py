"""smolagents with a small fake of its classes; `make interop` runs the cases with the real ones."""

import copy
import sys
from types import ModuleType, SimpleNamespace

import pytest

from interop.natives import order
from toolsemble import (
    SchemaTool,
    ToolArgumentsError,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolDefinitionError,
    ToolExecutionError,
    tool,
)
from toolsemble.interop import smolagents


class FakeTool:
    def __init__(self):
        self.is_initialized = False

    def __call__(self, *values, sanitize_inputs_outputs=False, **named):
        return self.forward(*values, **named)


class FakeCollection:
    def __init__(self, tools):
        self.tools = tools


LIBRARY = ModuleType("smolagents")
LIBRARY.Tool, LIBRARY.ToolCollection = FakeTool, FakeCollection


@pytest.fixture(autouse=True)
def _library(monkeypatch):
    monkeypatch.setitem(sys.modules, "smolagents", LIBRARY)


def export_one(*tools, **settings):
    [exported] = smolagents.export(Toolbox(tools), **settings)
    return exported


def call_as_agent(exported, *values, **named):
    return exported(*values, sanitize_inputs_outputs=True, **named)


def double(**attributes):
    class Double(FakeTool):
        name, description, output_type = "double", "Double a number.", "integer"
        inputs = {"number": {"type": "integer", "description": "the number"}}  # noqa: RUF012 - as smolagents wants it

        def forward(self, number):
            return 2 * number

    made = Double()
    vars(made).update(attributes)
    return made


def test_an_agent_is_answered_with_a_text():
    exported = export_one(order)
    assert call_as_agent(exported, item="tea", count="3") == "3 tea"
    assert call_as_agent(exported, item="rum") == "Error: not for sale"
    assert call_as_agent(exported, count="many").startswith("Error: Invalid arguments for 'order'")


def test_an_agent_passes_json_that_it_cannot_read_as_one_text():
    exported = export_one(order)
    assert call_as_agent(exported, '{"item": "tea", "count": 2,}') == "2 tea"
    assert call_as_agent(exported, '{"item"').startswith("Error: Invalid JSON input for 'order'")
    assert call_as_agent(exported, "tea") == "1 tea"


def test_code_passes_values_by_place_by_name_or_as_one_dict():
    exported = export_one(order)
    assert [exported("tea", 2), exported("tea", count=2), exported({"item": "tea", "count": 2})] == ["2 tea"] * 3


def test_code_gets_a_failure_as_an_exception():
    exported = export_one(order)
    with pytest.raises(ToolExecutionError, match="not for sale"):
        exported("rum")
    with pytest.raises(ToolArgumentsError, match="'order' takes 2 positional values, not 3"):
        exported("tea", 2, 3)
    with pytest.raises(ToolArgumentsError, match="'order' got two values for item"):
        exported("tea", item="tea")


def test_a_dict_of_other_keys_is_the_value_of_the_first_parameter():
    @tool
    def count(values: dict[str, int]) -> int:
        """Count values."""
        return len(values)

    assert export_one(count)({"a": 1, "b": 2}) == "2"


def test_a_parameter_may_be_called_self():
    own = SchemaTool("own", "Own.", lambda arguments: arguments["self"], {"properties": {"self": {"type": "string"}}})
    assert call_as_agent(export_one(own), self="me") == "me"
    assert export_one(own)(self="me") == "me"


def test_names_become_identifiers_and_come_back():
    def answer(arguments):
        return "yes"

    names = ["get-tea", "get_tea", "2nd", "class"]
    exported = smolagents.export(Toolbox([SchemaTool(name, "Answer.", answer) for name in names]))
    assert [each.name for each in exported] == ["get_tea_2", "get_tea", "tool_2nd", "tool_class"]
    assert Toolbox(smolagents.adopt(exported)).names == names


def test_the_model_is_shown_types_descriptions_and_what_may_be_left_out():
    properties = {
        "city": {"type": "string", "description": "where"},
        "day": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "extra": {},
        "either": {"anyOf": [{"type": "string"}, {}]},
    }
    weather = SchemaTool("weather", "Weather.", str, {"properties": properties, "required": ["city"]})
    shown = copy.deepcopy(export_one(weather).inputs)
    assert type(shown) is dict
    assert shown == {
        "city": {"type": "string", "description": "where"},
        "day": {"type": ["string", "null"], "description": "day", "nullable": True},
        "extra": {"type": "any", "description": "extra", "nullable": True},
        "either": {"type": "any", "description": "either", "nullable": True},
    }


def test_the_check_of_an_agent_lets_every_call_reach_the_toolbox():
    inputs = export_one(order).inputs
    assert "colour" in inputs
    assert inputs["count"]["type"] == "any"
    assert next(iter(inputs.values()))["type"] == "any"
    assert all(each.get("nullable") for _, each in inputs.items())
    assert [each.get("type") for _, each in inputs.items()] == ["string", "integer"]


def test_an_exported_tool_cannot_be_saved():
    with pytest.raises(ToolConfigurationError, match="'order' is a tool of a toolbox and cannot be saved"):
        export_one(order).to_dict()


def test_a_framework_that_cannot_pause_is_refused_as_the_one_that_asks():
    with pytest.raises(ToolConfigurationError, match="smolagents cannot pause a run"):
        export_one(order, approval="theirs")


def test_adopted_tools_validate_their_inputs():
    inputs = {
        "number": {"type": "integer", "description": "the number"},
        "unit": {"type": "string", "description": "the unit", "nullable": True},
        "more": {"type": ["integer", "null"], "description": "more", "nullable": True},
        "extra": {"type": "any", "description": "anything", "nullable": True},
    }
    [adopted] = smolagents.adopt(FakeCollection([double(inputs=inputs, forward=lambda **named: named)]))
    assert Toolbox([adopted]).specifications[0].parameters["required"] == ["number"]
    accepted = {"number": "1", "unit": None, "more": None, "extra": [1]}
    assert adopted.execute(accepted).output == '{"number":1,"unit":null,"more":null,"extra":[1]}'
    assert adopted.execute({}).error_message == "Missing required parameter(s) for 'double': number"


def test_failures_of_adopted_tools_are_told():
    def forward(number):
        raise ValueError("too large")

    box = Toolbox(smolagents.adopt([double(forward=forward)]))
    assert box.execute(ToolCall("double", {"number": 1})).text == "Error: too large"


def test_a_round_trip_gives_the_same_replies():
    box, back = Toolbox([order]), Toolbox(smolagents.adopt(smolagents.export(Toolbox([order]))))
    for arguments in ({"item": "tea"}, {"item": "rum"}, {"count": "many"}):
        call = ToolCall("order", arguments)
        assert back.execute(call).text == box.execute(call).text


def test_an_image_of_an_adopted_tool_is_a_content():
    image = SimpleNamespace(save=lambda target, form: target.write(f"{form}...".encode()))
    [adopted] = smolagents.adopt(double(forward=lambda number: image))
    [content] = adopted.execute({"number": 1}).contents
    assert (content.mime_type, content.data) == ("image/png", b"PNG...")


@pytest.mark.parametrize("kind", ["image", "audio"])
def test_a_tool_that_takes_media_is_refused(kind):
    taking = double(inputs={"heard": {"type": kind, "description": "what to describe"}})
    with pytest.raises(ToolDefinitionError, match=f"it needs an {kind} object for the input heard"):
        smolagents.adopt(taking)


def test_other_objects_are_refused():
    with pytest.raises(ToolDefinitionError, match="adopt takes a tool of smolagents, or a list of them, not int"):
        smolagents.adopt(7)


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "smolagents", None)
    with pytest.raises(ToolDefinitionError, match="needs the package 'smolagents': pip install smolagents"):
        smolagents.adopt(7)
