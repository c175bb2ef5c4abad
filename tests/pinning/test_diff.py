"""The diff of a lock: every change is found, and called compatible, breaking or weaker."""

import random
from copy import deepcopy

import pytest

from toolsemble import ToolDefinitionError
from toolsemble.catalog._pinning.diff import Change, Difference, compare_tools
from toolsemble.catalog._pinning.pins import PinnedTool, pin_tool


def compare(before, after):
    """Return the differences between two versions of a tool as pairs of place and effect."""
    changes = list(compare_tools({"t": PinnedTool("t", **before)}, {"t": PinnedTool("t", **after)}))
    return [(each.place, each.effect) for change in changes for each in change.differences]


def effects_of(before, after, *, output=False):
    """Return the effects of a change of the schema of a parameter, or of a result."""
    name = "output_schema" if output else "input_schema"
    return [effect for _, effect in compare({name: before}, {name: after})]


def prop(schema):
    return {"type": "object", "properties": {"x": schema}}


@pytest.mark.parametrize(
    ("before", "after", "effect"),
    [
        ({"type": "string"}, {"type": "integer"}, "breaking"),
        ({"type": "integer"}, {"type": "number"}, "compatible"),
        ({"type": "number"}, {"type": "integer"}, "breaking"),
        ({"type": "string"}, {"type": ["string", "null"]}, "compatible"),
        ({"type": ["string", "null"]}, {"type": "string"}, "breaking"),
        ({"type": "string"}, {}, "compatible"),
        ({}, {"type": "string"}, "breaking"),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, "compatible"),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, "breaking"),
        ({"enum": [1]}, {"enum": [True]}, "breaking"),
        ({"const": 1}, {"const": 2}, "breaking"),
        ({"minimum": 1}, {"minimum": 2}, "breaking"),
        ({"minimum": 2}, {"minimum": 1}, "compatible"),
        ({"maxLength": 2}, {"maxLength": 1}, "breaking"),
        ({"maxLength": 1}, {"maxLength": 2}, "compatible"),
        ({"maximum": "odd"}, {"maximum": True}, "breaking"),
        ({"maximum": 1}, {"maximum": True}, "breaking"),
        ({"pattern": "a"}, {"pattern": "b"}, "breaking"),
        ({"pattern": "a"}, {}, "compatible"),
        ({}, {"format": "date"}, "breaking"),
        ({"description": "a"}, {"description": "b"}, "compatible"),
        ({}, {"default": 1}, "compatible"),
        ({"x-odd": 1}, {"x-odd": 2}, "breaking"),
        ({"$ref": "#/$defs/a"}, {}, "breaking"),
        ({"not": {"type": "string"}}, {"not": {}}, "breaking"),
        ({"items": {"type": "integer"}}, {"items": {"type": "number"}}, "compatible"),
        ({"items": [{}]}, {"items": [{"type": "string"}]}, "breaking"),
        ({"additionalProperties": True}, {"additionalProperties": False}, "breaking"),
        ({"additionalProperties": False}, {"additionalProperties": {"type": "string"}}, "compatible"),
        ({}, {"additionalProperties": False}, "breaking"),
        ({"additionalProperties": False}, {}, "compatible"),
        ({}, {"additionalProperties": True}, "compatible"),
        ({"anyOf": [{"type": "string"}]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}, "compatible"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"anyOf": [{"type": "string"}]}, "breaking"),
        ({"anyOf": [{"type": "null"}, {"minimum": 2}]}, {"anyOf": [{"minimum": 1}, {"type": "null"}]}, "compatible"),
        ({"oneOf": [{}]}, {"oneOf": "odd"}, "breaking"),
        ({"properties": {}}, {"properties": []}, "breaking"),
        ({"required": []}, {"required": 7}, "breaking"),
        ({"required": []}, {"required": [7]}, "breaking"),
        ({"$defs": {"a": {"maximum": 1}}}, {"$defs": {"a": {"maximum": 2}}}, "compatible"),
        ({"$defs": {"a": {}}}, {"$defs": {}}, "compatible"),
        ({"patternProperties": {}}, {"patternProperties": {"a": {}}}, "breaking"),
    ],
)  # fmt: skip
def test_calls_a_change_of_a_parameter(before, after, effect):
    assert effects_of(prop(before), prop(after)) == [effect]


@pytest.mark.parametrize(
    ("before", "after", "effect"),
    [
        ({"type": "integer"}, {"type": "number"}, "breaking"),
        ({"type": "number"}, {"type": "integer"}, "compatible"),
        ({"maximum": 1}, {"maximum": 2}, "breaking"),
        ({"maximum": 1}, {}, "breaking"),
        ({}, {"maximum": 1}, "compatible"),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, "compatible"),
        ({"additionalProperties": True}, {"additionalProperties": False}, "compatible"),
        ({"required": ["a"]}, {"required": []}, "breaking"),
        ({"required": []}, {"required": ["a"]}, "compatible"),
        ({"properties": {"a": {}}}, {"properties": {}}, "breaking"),
        ({"properties": {}}, {"properties": {"a": {}}}, "compatible"),
        (None, {"type": "string"}, "compatible"),
        ({"type": "string"}, None, "breaking"),
    ],
)
def test_calls_a_change_of_a_result(before, after, effect):
    assert effects_of(before, after, output=True) == [effect]


def test_parameters_of_any_value_can_stay():
    old = {"type": "object", "properties": {"a": True, "b": {"type": "string"}}}
    new = {"type": "object", "properties": {"a": True, "b": False}}
    assert compare({"input_schema": old}, {"input_schema": new}) == [("input.b", "breaking")]


def test_a_new_parameter_is_breaking_if_it_is_required():
    old = {"type": "object", "properties": {"a": {}}, "required": ["a"]}
    optional = {**old, "properties": {"a": {}, "b": {}}}
    assert compare({"input_schema": old}, {"input_schema": optional}) == [("input.b", "compatible")]
    needed = {**optional, "required": ["a", "b"]}
    assert compare({"input_schema": old}, {"input_schema": needed}) == [
        ("input.b", "compatible"),
        ("input.b", "breaking"),
    ]
    assert compare({"input_schema": needed}, {"input_schema": old}) == [
        ("input.b", "breaking"),
        ("input.b", "compatible"),
    ]


@pytest.mark.parametrize(
    ("before", "after", "effect"),
    [
        ({"destructiveHint": True}, {"destructiveHint": False}, "weaker"),
        ({"destructiveHint": True}, {}, "weaker"),
        ({}, {"destructiveHint": False}, "weaker"),
        ({}, {"destructiveHint": True}, "compatible"),
        ({"destructiveHint": False}, {"destructiveHint": True}, "breaking"),
        ({"readOnlyHint": False}, {"readOnlyHint": True}, "weaker"),
        ({}, {"readOnlyHint": True}, "weaker"),
        ({"readOnlyHint": True}, {}, "breaking"),
        ({}, {"readOnlyHint": False}, "compatible"),
        ({"readOnlyHint": False}, {}, "compatible"),
        ({}, {"idempotentHint": True}, "weaker"),
        ({}, {"openWorldHint": False}, "weaker"),
        ({"title": "a"}, {"title": "b"}, "compatible"),
        ({}, {"readOnlyHint": 1}, "compatible"),
    ],
)
def test_calls_a_change_of_a_hint(before, after, effect):
    assert [each for _, each in compare({"annotations": before}, {"annotations": after})] == [effect]


def test_shows_where_long_texts_differ():
    text = "Read a file. " * 500
    (change,) = compare_tools(
        {"t": PinnedTool("t", description=text)}, {"t": PinnedTool("t", description=f"{text}Evil")}
    )
    lines = str(change).split("\n")
    assert lines[2] == "    - ... " + text[len(text) - 40 :]
    assert lines[3] == "    + ... " + text[len(text) - 40 :] + "Evil"


def test_shows_only_the_lines_that_differ():
    before, after = "one\ntwo\nthree\nfour", "one\n2\nthree\nfour"
    (change,) = compare_tools({"t": PinnedTool("t", description=before)}, {"t": PinnedTool("t", description=after)})
    assert str(change).split("\n")[2:] == ["    - two", "    + 2"]


def test_long_changes_are_cut_and_say_so():
    after = PinnedTool("t", "T" * 1100, "\n".join(map(str, range(40))), {f"x{n}": n for n in range(200)})
    (change,) = compare_tools({"t": PinnedTool("t")}, {"t": after})
    lines = str(change).split("\n")
    assert lines[3] == "    + " + "T" * 1000 + " ... and 100 more characters"
    assert "    + ... and 10 more lines" in lines
    assert lines[-1] == "  and 102 more differences"


def test_a_hostile_name_stays_on_its_line():
    assert str(Change("a\nb\u202e", "added")) == r"'a\nb\u202e' added: compatible"
    difference = Difference("input.\x1b[2J\n", "breaking", None, None, "'\x1b' was added")
    assert str(Change("t", "changed", (difference,))).split("\n") == [
        "'t' changed: breaking",
        r"  breaking: input.\x1b[2J\n: '\x1b' was added",
    ]


def nest(depth, innermost):
    for _ in range(depth):
        innermost = {"items": innermost}
    return innermost


def test_finds_a_change_deep_inside():
    ((place, effect),) = compare({"input_schema": nest(90, {})}, {"input_schema": nest(90, {"maximum": 1})})
    assert (place, effect) == (f"input{'.items' * 90}.maximum", "breaking")


@pytest.mark.parametrize(
    ("depth", "reason"),
    [(100, "it is nested more than 100 levels deep"), (100_000, "(recursion depth exceeded|Stack overflow)")],
)
def test_refuses_a_schema_that_is_too_deep(depth, reason):
    with pytest.raises(ToolDefinitionError, match=f"^Tool 't': input_schema cannot be pinned: .*{reason}"):
        PinnedTool("t", input_schema=nest(depth, {"type": "string"}))


def test_other_objects_are_refused():
    with pytest.raises(ToolDefinitionError, match="not int"):
        pin_tool(7)


SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "Which file", "maxLength": 100},
        "mode": {"enum": ["text", "bytes", 1.0, None]},
        "lines": {"type": "array", "items": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}},
        "options": {"type": "object", "properties": {"deep": {"type": ["string", "number"]}}, "required": ["deep"]},
    },
    "required": ["path", "mode"],
    "additionalProperties": False,
}


def shuffle(value, chance):
    """Return a value with its keys, and the lists that are sets, in another order."""
    if isinstance(value, dict):
        keys = chance.sample(list(value), len(value))
        return {key: shuffle(value[key], chance) for key in keys}
    if isinstance(value, list):
        return chance.sample([shuffle(each, chance) for each in value], len(value))
    return float(value) if type(value) is int else value


@pytest.mark.parametrize("seed", range(50))
def test_another_order_is_not_a_change(seed):
    turned = shuffle(SCHEMA, random.Random(seed))  # noqa: S311 - not for cryptography
    assert PinnedTool("t", input_schema=turned) == PinnedTool("t", input_schema=SCHEMA)
    assert PinnedTool("t", input_schema=turned).digest == PinnedTool("t", input_schema=SCHEMA).digest


def places(value, path=()):
    """Yield the paths of all values."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from places(each, (*path, key))


@pytest.mark.parametrize("path", [path for path in places(SCHEMA) if path])
def test_every_mutation_is_found_and_called(path):
    for mutate in (lambda holder: holder.pop(path[-1]), lambda holder: holder.__setitem__(path[-1], "mutated")):
        mutated = deepcopy(SCHEMA)
        holder = mutated
        for key in path[:-1]:
            holder = holder[key]
        mutate(holder)
        found = effects_of(SCHEMA, mutated)
        assert found
        assert set(found) <= {"compatible", "breaking"}


def test_unicode_forms_differ():
    assert compare({"description": "caf\u00e9"}, {"description": "cafe\u0301"}) == [("description", "compatible")]


@pytest.mark.parametrize("schema", [None, {"type": "object"}, {"type": "object", "properties": {}}, {}])
def test_a_tool_without_parameters_has_one_form(schema):
    assert PinnedTool("t", input_schema=schema) == PinnedTool("t")


def test_pins_can_be_put_into_sets():
    assert len({PinnedTool("t"), PinnedTool("t", input_schema={"type": "object"})}) == 1
