"""Tools and replies in the format of MCP, without a server: what is declared, and what is structured, is sent."""

from dataclasses import dataclass
from typing import Annotated

import jsonschema_rs
import pytest
from pydantic import Field

from toolsemble import Toolbox, ToolCall, ToolResult, tool
from toolsemble.mcp._server.calls import Listing


@dataclass
class Order:
    number: int
    state: str


@tool
def find(number: int) -> Order:
    """Find an order."""
    return Order(number, "shipped")


@tool
def count(text: str) -> int:
    """Count the characters."""
    return len(text)


@tool
def split(text: str) -> list[str]:
    """Split a text."""
    return text.split()


@tool
def describe(number: int) -> dict[str, int]:
    """Describe an order."""
    return {"number": number}


@tool
def find_if(number: int) -> Order | None:
    """Find an order, if there is one."""
    return None


@tool
def say(text: str) -> str:
    """Say it."""
    return text


@tool
def measure() -> ToolResult:
    """Measure something."""
    return ToolResult.success("sunny", structured_output={"celsius": 21})


@tool
def break_off() -> int:
    """Fail."""
    raise ValueError("broken")


@pytest.mark.parametrize(
    ("made", "arguments", "content"),
    [
        (find, {"number": 7}, {"number": 7, "state": "shipped"}),
        (count, {"text": "tea"}, {"result": 3}),
        (split, {"text": "a b"}, {"result": ["a", "b"]}),
        (describe, {"number": 7}, {"number": 7}),
    ],
)
def test_a_declared_type_is_the_output_schema_and_a_reply_fits_it(made, arguments, content):
    box = Toolbox([made])
    (listed,) = box.to_mcp()
    assert listed["outputSchema"] == Listing(box).result.tools[0].output_schema
    structured = box.execute(ToolCall(made.name, arguments)).to_mcp()["structuredContent"]
    assert structured == content
    jsonschema_rs.validate(listed["outputSchema"], structured)


@pytest.mark.parametrize(
    ("made", "arguments", "content"),
    [
        (say, {"text": "3"}, None),
        (find_if, {"number": 7}, None),
        (measure, {}, {"celsius": 21}),
        (break_off, {}, None),
    ],
)
def test_what_a_reply_alone_cannot_promise_is_not_declared(made, arguments, content):
    box = Toolbox([made])
    assert made is break_off or "outputSchema" not in box.to_mcp()[0]
    assert box.execute(ToolCall(made.name, arguments)).to_mcp().get("structuredContent") == content


def test_a_limited_text_has_no_whole_value_beside_it():
    box = Toolbox([split], max_output=5)
    assert "outputSchema" not in box.to_mcp()[0]
    assert "structuredContent" not in box.execute(ToolCall("split", {"text": "a b c d"})).to_mcp()


@pytest.mark.parametrize(
    ("result", "content"),
    [
        (ToolResult.success("sunny", structured_output=Order(7, "lost")), None),
        (ToolResult.success("3", structured_output=Order(7, "lost")), None),
        (ToolResult.success("much", structured_output=float("nan")), None),
    ],
)
def test_a_value_that_json_cannot_hold_is_left_out(result, content):
    @tool
    def odd() -> ToolResult:
        """Return something odd."""
        return result

    assert Toolbox([odd]).execute(ToolCall("odd")).to_mcp().get("structuredContent") == content


def test_bounds_that_mcp_keeps_are_not_explained():
    @tool
    def plan(days: Annotated[int, Field(ge=1, le=7)], code: Annotated[str, Field(pattern="^[A-Z]+$")]) -> str:
        """Plan a trip."""
        return code

    assert (plan.explain("mcp"), len(plan.explain("anthropic")) > 0) == ([], True)
    assert Toolbox([plan]).to_mcp()[0]["inputSchema"]["properties"]["days"]["maximum"] == 7
