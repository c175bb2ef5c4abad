"""What programs read of a result survives the JSON of a message; models never see it."""

import json
from dataclasses import dataclass

import pytest

from toolsemble import Agent, ConversationMemory, ToolCall, ToolReply, ToolResult, tool
from toolsemble.models import ScriptedModel, ToolMessage, message_from_json, message_to_json

LONGEST = 65_536


@dataclass
class Point:
    x: int
    y: int


def read_back(result):
    return message_from_json(message_to_json(ToolMessage(ToolReply(ToolCall("now", id="c1"), result)))).reply.result


@pytest.mark.parametrize(
    ("payload", "kept"),
    [
        ({"hour": 12}, {"hour": 12}),
        ([1, (2, 3)], [1, [2, 3]]),
        (Point(1, 2), {"x": 1, "y": 2}),
        (0, 0),
        (float("nan"), "NaN"),
        (object(), None),
        ("x" * (LONGEST - 2), "x" * (LONGEST - 2)),
        ("x" * (LONGEST - 1), None),
    ],
)
def test_structured_output_is_kept_as_json_values(payload, kept):
    assert read_back(ToolResult.success("noon", payload)) == ToolResult.success("noon", kept)


def test_circular_output_is_left_out():
    circle = []
    circle.append(circle)
    assert read_back(ToolResult.success("noon", circle, attributes={"a": circle})) == ToolResult.success("noon")


def test_attributes_are_kept_one_by_one():
    attributes = {"page": 2, "point": Point(1, 2), "lock": object(), "long": "x" * LONGEST}
    kept = read_back(ToolResult.failure("no", attributes=attributes)).attributes
    assert dict(kept) == {"page": 2, "point": {"x": 1, "y": 2}}
    with pytest.raises(TypeError):
        kept["page"] = 3


@pytest.mark.parametrize("attributes", [5, "text", ["a"]])
def test_attributes_that_are_not_an_object_are_refused(attributes):
    fields = json.loads(message_to_json(ToolMessage(ToolReply(ToolCall("now"), ToolResult.success("noon")))))
    with pytest.raises(ValueError, match="This is not a message"):
        message_from_json(json.dumps({**fields, "attributes": attributes}))


def test_stored_conversation_keeps_what_programs_read(tmp_path):
    @tool
    def locate() -> Point:
        return Point(1, 2)

    path = tmp_path / "memory.db"
    model = ScriptedModel([ToolCall("locate"), "There.", "Still there."])
    Agent(model, [locate], memory=ConversationMemory(path), memory_id="ada").run_sync("Where?")
    result = Agent(model, [locate], memory=ConversationMemory(path), memory_id="ada").run_sync("And now?")
    (reply,) = [message.reply for message in result.messages if isinstance(message, ToolMessage)]
    assert reply.result == ToolResult.success('{"x":1,"y":2}', {"x": 1, "y": 2})
