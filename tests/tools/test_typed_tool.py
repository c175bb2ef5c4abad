from __future__ import annotations

import dataclasses
from typing import Generic, NamedTuple, TypedDict, TypeVar

import attrs
import msgspec
import pytest
from pydantic import BaseModel

from helpers.columns import column
from toolsemble import Toolbox, ToolCall, ToolDefinitionError, TypedTool

T = TypeVar("T")


@dataclasses.dataclass
class AsDataclass:
    path: str
    content: str
    mode: str = "overwrite"


class AsModel(BaseModel):
    path: str
    content: str
    mode: str = "overwrite"


class AsNamedTuple(NamedTuple):
    path: str
    content: str
    mode: str = "overwrite"


@attrs.define
class AsAttrs:
    path: str
    content: str
    mode: str = "overwrite"


class AsStruct(msgspec.Struct):
    path: str
    content: str
    mode: str = "overwrite"


class AsTypedDict(TypedDict):
    path: str
    content: str


def tool_of(kind):
    class Write(TypedTool[kind]):
        name = "write"
        description = "Writes a file"

        def run(self, input):
            return f"{type(input).__name__} {input['path'] if isinstance(input, dict) else input.path}"

    return Write()


KINDS = [AsDataclass, AsModel, AsNamedTuple, AsAttrs, AsStruct, AsTypedDict]


@pytest.mark.parametrize("kind", KINDS)
class TestEveryKind:
    def test_fields_are_the_parameters(self, kind):
        (specification,) = Toolbox([tool_of(kind)]).specifications
        parameters = specification.parameters
        assert list(parameters["properties"]) == ["path", "content", "mode"][: 2 if kind is AsTypedDict else 3]
        assert parameters["required"] == ["path", "content"]
        assert parameters["additionalProperties"] is False

    async def test_body_gets_an_instance_of_the_type(self, kind):
        box = Toolbox([tool_of(kind)])
        call = ToolCall("write", {"path": "a.txt", "content": ""})
        name = "dict" if kind is AsTypedDict else kind.__name__
        assert box.execute(call).text == (await box.aexecute(call)).text == f"{name} a.txt"
        assert tool_of(kind).execute('{"path": "b", "content": ""}').output == f"{name} b"

    def test_errors_name_the_input_type(self, kind):
        box = Toolbox([tool_of(kind)], repair=False)
        for arguments, message in (
            ("{}", "Missing required parameter(s) for '{}': path, content"),
            ('{"content": ""}', "Missing required parameter(s) for '{}': path"),
            ('{"path": null, "content": ""}', "Missing required parameter(s) for '{}': path"),
            ("[]", "Expected a JSON object for '{}' but received: ARRAY"),
            ('"x"', "Expected a JSON object for '{}' but received: STRING"),
            ("5", "Expected a JSON object for '{}' but received: NUMBER"),
            ("true", "Expected a JSON object for '{}' but received: BOOLEAN"),
            ("null", "Expected a JSON object for '{}' but received: NULL"),
        ):
            with column(arguments):
                reply = box.execute(ToolCall("write", arguments))
                assert reply.result.error_message == message.format(kind.__name__)

    def test_extra_keys_are_dropped_or_rejected(self, kind):
        call = ToolCall("write", {"path": "a", "content": "", "junk": 1})
        reply = Toolbox([tool_of(kind)]).execute(call)
        assert not reply.is_error
        assert reply.result.attributes["repairs"] == ({"step": "extra", "path": "junk", "from": 1, "to": None},)
        refused = Toolbox([tool_of(kind)], repair=False).execute(call)
        assert refused.text == f"Error: Invalid arguments for '{kind.__name__}': junk: not a parameter of this tool"


class Base(TypedTool[T], Generic[T]):
    description = "Through a generic class"


class Middle(Base[T], Generic[T]):
    pass


class Through(Middle[AsDataclass]):
    name = "through"

    def run(self, input):
        return type(input).__name__


class Inherited(Through):
    name = "inherited"


class ByHand(TypedTool):
    name = "by_hand"
    description = "Sets the type by hand"
    input_type = AsDataclass

    async def run(self, input):
        return type(input).__name__


@pytest.mark.parametrize("tool", [Through(), Inherited(), ByHand()])
def test_finds_inherited_or_explicit_input_type(tool):
    assert tool.input_type is AsDataclass
    assert tool.execute({"path": "", "content": ""}).output == "AsDataclass"


def test_missing_input_type_error_explains_the_fix():
    class Bare(Base):
        name = "bare"

        def run(self, input):
            return input

    class Bold(TypedTool):
        name = "bold"
        description = ""

        def run(self, input):
            return input

    for kind in (Bare, Bold):
        with pytest.raises(ToolDefinitionError, match=rf"{kind.__name__} has no input type; write class"):
            Toolbox([kind()])


@pytest.mark.parametrize("kind", [int, str, list[int], dict])
def test_rejects_type_without_fields(kind):
    with pytest.raises(ToolDefinitionError, match="has no fields; use a dataclass"):
        Toolbox([tool_of(kind)])


def test_rejects_invalid_default_at_definition():
    @dataclasses.dataclass
    class Bad:
        count: int = "many"

    with pytest.raises(
        ToolDefinitionError, match="field 'count' of Bad: the default 'many' is not of the declared type"
    ):
        Toolbox([tool_of(Bad)])


def test_resolves_local_types_that_refer_to_each_other():
    @dataclasses.dataclass
    class Inner:
        size: int

    @dataclasses.dataclass
    class Outer:
        inner: Inner

    class Local(TypedTool[Outer]):
        name = "local"
        description = ""

        def run(self, input):
            return input.inner.size

    assert Local().execute('{"inner": {"size": 3}}').output == "3"


def test_init_var_and_init_false_fields_follow_the_constructor():
    @dataclasses.dataclass
    class Square:
        side: int
        unit: dataclasses.InitVar[str]
        area: int = dataclasses.field(init=False)

        def __post_init__(self, unit):
            if self.side < 0:
                raise TypeError(f"a side of {self.side} {unit} is negative")
            self.area = self.side**2

    class Measure(TypedTool[Square]):
        name = "measure"
        description = ""

        def run(self, input):
            return input.area

    box = Toolbox([Measure()])
    assert list(box.specifications[0].parameters["properties"]) == ["side", "unit"]
    assert box.execute(ToolCall("measure", {"side": 3, "unit": "m"})).text == "9"
    reply = box.execute(ToolCall("measure", {"side": -3, "unit": "m"}))
    assert reply.text == "Error: Invalid arguments for 'Square': $: a side of -3 m is negative"
