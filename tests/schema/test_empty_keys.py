"""An empty key is shown in errors, and is not mistaken for the whole."""

import pytest

from toolsemble import SchemaTool, Toolbox, ToolCall

INNER = {"type": "object", "properties": {"": {"type": "integer"}}, "required": [""]}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"": "x", "in": {"": 1}}, """Error: Invalid arguments for 'count': [""]: expected an integer"""),
        ({"in": {"": 1}}, """Error: Missing required parameter(s) for 'count': [""]"""),
        ({"": 1, "in": {"": "x"}}, """Error: Invalid arguments for 'count': in[""]: expected an integer"""),
    ],
)
def test_empty_key_is_shown_as_a_key(arguments, text):
    schema = {"type": "object", "properties": {"": {"type": "integer"}, "in": INNER}, "required": ["", "in"]}
    box = Toolbox([SchemaTool("count", "Counts", lambda values: "ok", schema)])
    assert box.execute(ToolCall("count", arguments)).text == text
    assert box.execute(ToolCall("count", {"": 1, "in": {"": 2}})).text == "ok"


def test_empty_keys_on_every_level_do_not_double_the_work():
    option = {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "integer"}]}
    node = {"type": "object", "properties": {"": option, "a": option}}
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}}
    inner = {"": {"": ["bad"]}}
    for _ in range(40):
        inner = {"": inner, "a": 1}
    box = Toolbox([SchemaTool("count", "Counts", lambda values: "ok", schema)])
    path = "x" + '[""]' * 42
    text = box.execute(ToolCall("count", {"x": inner})).text
    assert text == f"Error: Invalid arguments for 'count': {path}: expected an object or an integer"
