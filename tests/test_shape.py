import dataclasses
import datetime
import decimal
import enum
import threading
import uuid

import pydantic
import pytest

from helpers.sample_tools import Function
from toolsemble import FileContent, ImageContent, TextContent, ToolExecutionError, ToolResult, tool
from toolsemble._schema.result_shape import to_exact_json, to_result

IMAGE = ImageContent(b"123", "image/png")


@dataclasses.dataclass
class Point:
    x: int
    y: float


class City(pydantic.BaseModel):
    name: str


class Color(str, enum.Enum):  # noqa: UP042 - the older spelling, whose str() is not its value
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Opaque:
    def __str__(self):
        return "opaque thing"


class Attrs:
    """An imitation of an attrs class."""

    @dataclasses.dataclass
    class Attribute:
        name: str

    __attrs_attrs__ = (Attribute("size"),)
    size = 7


class Struct:
    """An imitation of a msgspec struct."""

    __struct_fields__ = ("size",)
    size = 8


def shape_value(value):
    return Function(lambda _: value).execute("x")


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("text", ToolResult.success("text")),
        ("", ToolResult.success("")),
        (None, ToolResult.success("")),
        (Color.RED, ToolResult.success("red")),
        (ToolResult.failure("no"), ToolResult.failure("no")),
        (ToolResult.success("ünï"), ToolResult.success("ünï")),
        (IMAGE, ToolResult.success("", contents=[IMAGE])),
        ([IMAGE, TextContent("x")], ToolResult.success("", contents=[IMAGE, TextContent("x")])),
        ((FileContent(b"", "a/b", "c"),), ToolResult.success("", contents=[FileContent(b"", "a/b", "c")])),
    ],
)
def test_strings_results_and_contents_are_unchanged(value, result):
    assert shape_value(value) == result


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5"),
        (True, "true"),
        (1.5, "1.5"),
        (float("nan"), '"NaN"'),
        (2**70, str(2**70)),
        ([], "[]"),
        ({}, "{}"),
        ([1, None], "[1,null]"),
        ({"grüße": "ß"}, '{"grüße":"ß"}'),
        (Point(1, 2.5), '{"x":1,"y":2.5}'),
        ([Point(1, 2.5)], '[{"x":1,"y":2.5}]'),
        (City(name="Rome"), '{"name":"Rome"}'),
        (Level.HIGH, "3"),
        (datetime.date(2024, 3, 15), '"2024-03-15"'),
        (decimal.Decimal("1.10"), '"1.10"'),
        (uuid.UUID(int=5), '"00000000-0000-0000-0000-000000000005"'),
        (b"\xff\x00", '"_wA="'),
        ({"a"}, '["a"]'),
        (Attrs(), '{"size":7}'),
        (Struct(), '{"size":8}'),
        ({"deep": [Opaque()]}, '{"deep":["opaque thing"]}'),
        (["\ud800"], '["\\ud800"]'),
    ],
)
def test_other_values_become_json_and_payload(value, text):
    result = shape_value(value)
    assert result.output == text
    assert result.structured_output is value


def test_unserializable_value_is_a_failure():
    circle = []
    circle.append(circle)
    assert "value that JSON cannot hold" in shape_value(circle).error_message


@pytest.mark.parametrize("endless", [iter([1]), (n for n in [1])])
def test_iterator_is_rejected_without_reading_it(endless):
    message = shape_value(endless).error_message
    assert "return a list instead" in message
    assert next(endless) == 1


def test_async_iterator_is_rejected():
    async def numbers():
        yield 1

    assert "return a list instead" in shape_value(numbers()).error_message


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\ud800b", "a\\ud800b"),
        (ToolResult.success("\udfff"), "\\udfff"),
        (ToolResult.failure("caf\u00e9 \udfff"), "Error: café \\udfff"),
    ],
)
def test_lone_surrogate_is_escaped(value, text):
    result = shape_value(value)
    assert result.text == text
    assert result.text.encode()


class Row:
    """An object without its own text."""


@dataclasses.dataclass
class Table:
    rows: list[Row]


class Described:
    def __repr__(self):
        return "Described(1)"


class Searched:
    """An object with a text, whose attributes are searched and not serialized."""

    def __init__(self, inner):
        self.inner = inner

    def __str__(self):
        return "searched"


ROW = Row()


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (object(), "object"),
        (ROW, "test_shape.Row"),
        ([1, ROW], "test_shape.Row at $[1]"),
        ({"a": {"b": (1, ROW)}}, "test_shape.Row at $.a.b[1]"),
        ({5: [ROW]}, "test_shape.Row at $[5][0]"),
        ({ROW: 1}, "test_shape.Row at a key of $"),
        ({"tables": [Table([ROW])]}, "test_shape.Row at $.tables[0].rows[0]"),
        ([Described()], "test_shape.Described at $[0]"),
        ([shape_value], "function at $[0]"),
        ([ROW, "\ud800"], "test_shape.Row at $[0]"),
    ],
)
def test_object_without_a_text_is_a_failure_that_names_its_type_and_place(value, what):
    result = shape_value(value)
    assert result.error_message == (
        f"The tool returned an object of type {what}, which JSON cannot hold; return a dict, a list, a dataclass or a "
        "pydantic model, or a ToolResult with the text for the model"
    )


def test_place_of_an_object_is_left_out_if_it_cannot_be_found():
    hidden = Attrs()
    hidden.__class__ = type("Hidden", (Attrs,), {"size": property(lambda _: ROW)})
    assert "of type test_shape.Row, which" in shape_value(hidden).error_message
    large = [list(range(300, 20_000)), [ROW]]
    assert "of type test_shape.Row, which" in shape_value(large).error_message
    deep = lambda: None  # noqa: E731 - an object with attributes, which are searched and not serialized
    inner = deep
    for _ in range(2000):
        inner.next = inner = lambda: None
    assert "of type function at $[0], which" in shape_value([deep]).error_message
    assert "of type test_shape.Row, which" in shape_value({"a": Searched(deep), "b": [ROW]}).error_message


def test_object_that_json_cannot_hold_can_be_the_payload_of_a_result():
    result = shape_value(ToolResult.success("one row", ROW))
    assert (result.text, result.structured_output) == ("one row", ROW)


def test_next_step_gets_an_object_that_json_cannot_hold():
    lock = threading.Lock()

    @tool
    def find() -> object:
        """Find it."""
        return lock

    @tool
    def look(value: object) -> str:
        """Look at it."""
        return str(value is lock)

    result = (find | look).execute("{}")
    assert result.output == "True"
    assert result.attributes["steps"][0].result.output == "an object of type _thread.lock"
    assert "JSON cannot hold" in str((look | find).execute({"value": 1}).error_message)


def test_object_that_json_cannot_hold_has_no_exact_json():
    with pytest.raises(TypeError, match="object"):
        to_exact_json({"value": object()})


def test_a_coroutine_in_a_result_is_explained():
    async def fetch():
        return 3

    coroutine = fetch()
    told = r"the coroutine of 'fetch' at \$.rows\[0\], which was not awaited; write await"
    with pytest.raises(ToolExecutionError, match=told):
        to_result({"rows": [coroutine]})
    coroutine.close()
