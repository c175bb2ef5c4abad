"""No text that a person cannot see reaches a model, from any place of a server's definition."""

import json

from toolsemble import Toolbox

HIDDEN = ["\U000e0041\U000e0042", "\u200b", "\u202e", "\u2066", "\ufeff", "\x1b"]
LONG = "x" * 50_000


def define(name, schema=None, field=None, **more):
    """Return the definition of a tool with a field `a`; the keywords of the field are given, or the whole schema."""
    properties = {"a": {"type": "string", **(field or {})}}
    return {"name": name, "inputSchema": {"type": "object", "properties": properties, **(schema or {})}, **more}


def tagged(keyword, value):
    return lambda name, text: define(name, field={keyword: value(text)})


def placed(schema):
    return lambda name, text: define(name, schema(text))


TEXTS = {
    "description of the tool": lambda name, text: define(name, description=f"Pay{text}"),
    "title of the tool": lambda name, text: define(name, title=f"Pay{text}"),
    "title in the annotations": lambda name, text: define(name, annotations={"title": f"Pay{text}"}),
    "description": tagged("description", lambda text: f"a{text}"),
    "title": tagged("title", lambda text: f"a{text}"),
    "format": tagged("format", lambda text: f"a{text}"),
    "default": tagged("default", lambda text: f"a{text}"),
    "dict in default": tagged("default", lambda text: {f"a{text}": [f"b{text}"]}),
    "examples": tagged("examples", lambda text: [f"a{text}", {f"b{text}": text}]),
    "example": tagged("example", lambda text: f"a{text}"),
    "extension": tagged("x-note", lambda text: f"a{text}"),
    "dict in an extension": tagged("x-note", lambda text: {f"a{text}": text}),
    "names of members": tagged("x-enum-varnames", lambda text: [f"a{text}"]),
    "comment": tagged("$comment", lambda text: f"a{text}"),
    "unknown keyword": tagged("note", lambda text: f"a{text}"),
    "name of an unknown keyword": lambda name, text: define(name, field={f"note{text}": 1}),
    "description of the schema": placed(lambda text: {"description": f"a{text}"}),
    "description of an item": tagged("items", lambda text: {"description": f"a{text}"}),
    "description in a choice": tagged("anyOf", lambda text: [{"description": f"a{text}"}, {"title": f"b{text}"}]),
    "default in a definition": placed(lambda text: {"$defs": {"D": {"default": f"a{text}"}}}),
    "schema": placed(lambda text: {"$schema": f"https://json-schema.org/{text}"}),
}
FIXED = {
    "pattern": tagged("pattern", lambda text: f"a{text}"),
    "value": tagged("enum", lambda text: [f"a{text}"]),
    "dict among values": tagged("enum", lambda text: [{"k": f"a{text}"}]),
    "key among values": tagged("enum", lambda text: [{f"k{text}": 1}]),
    "list among values": tagged("enum", lambda text: [[[f"a{text}"]]]),
    "constant": tagged("const", lambda text: f"a{text}"),
    "dict as a constant": tagged("const", lambda text: {"k": {f"a{text}": [text]}}),
    "media type": tagged("contentMediaType", lambda text: f"a{text}"),
    "encoding": tagged("contentEncoding", lambda text: f"a{text}"),
    "schema of a content": tagged("contentSchema", lambda text: {"description": f"a{text}"}),
    "type": tagged("type", lambda text: f"string{text}"),
    "anchor": tagged("$anchor", lambda text: f"a{text}"),
    "reference": tagged("$ref", lambda text: f"#/$defs/{text}"),
    "id": placed(lambda text: {"$id": f"https://example.com/{text}"}),
    "required": placed(lambda text: {"required": [f"a{text}"]}),
    "property": placed(lambda text: {"properties": {f"a{text}": {}}}),
    "nested property": tagged("properties", lambda text: {f"a{text}": {}}),
    "definition": placed(lambda text: {"$defs": {f"D{text}": {"type": "string"}}}),
    "old definition": placed(lambda text: {"definitions": {f"D{text}": {"type": "string"}}}),
    "pattern of properties": placed(lambda text: {"patternProperties": {f"^a{text}": {"type": "string"}}}),
    "dependent fields": placed(lambda text: {"dependentRequired": {f"a{text}": ["b"], "b": [f"c{text}"]}}),
    "dependent schemas": placed(lambda text: {"dependentSchemas": {f"a{text}": {"type": "object"}}}),
    "pattern of names": placed(lambda text: {"propertyNames": {"pattern": f"a{text}"}}),
    "name of an extension": lambda name, text: define(name, field={f"x-note{text}": 1}),
}
PLACES = {**TEXTS, **FIXED}


def show(tools):
    """Return what a model is shown of some tools, in every format, with the names of the tools."""
    box = Toolbox(tools)
    forms = [
        box.to_openai(),
        box.to_openai(api="responses"),
        box.to_anthropic(),
        box.to_google(),
        box.to_bedrock(),
        box.to_mistral(),
        box.to_ollama(),
        box.to_mcp(),
        [each.to_json() for each in box.specifications],
        [str(each.metadata) for each in box.specifications],
    ]
    return [json.dumps(each, ensure_ascii=False) for each in forms]


def list_tools(plain, tmp_path, listed, **options):
    (tmp_path / "tools.json").write_text(json.dumps(listed))
    with plain("json", tmp_path / "tools.json", **options) as client:
        return {tool.name: tool for tool in client}


def test_no_hidden_character_of_a_definition_reaches_a_model(plain, tmp_path, caplog):
    assert len(PLACES) >= 40
    numbered = [(place, text) for place in PLACES for text in HIDDEN]
    listed = [PLACES[place](f"t{number}", text) for number, (place, text) in enumerate(numbered)]
    tools = list_tools(plain, tmp_path, listed)
    for shown in show(tools.values()):
        assert [
            hex(ord(each)) for text in HIDDEN for each in text if each in shown or f"\\u{ord(each):04x}" in shown
        ] == []
    left_out = {place for number, (place, _) in enumerate(numbered) if f"t{number}" not in tools}
    assert left_out == set(FIXED)
    assert caplog.text.count("Skipped a tool of plain") == len(FIXED) * len(HIDDEN)


def test_no_text_of_a_definition_is_longer_than_a_description(plain, tmp_path):
    numbered = dict(enumerate(PLACES))
    tools = list_tools(plain, tmp_path, [PLACES[place](f"t{number}", LONG) for number, place in numbered.items()])
    for shown in show(tools.values()):
        assert "x" * 4001 not in shown
    left_out = {place for number, place in numbered.items() if f"t{number}" not in tools}
    assert left_out == set(FIXED)


def test_a_visible_definition_stays_as_it_is(plain, tmp_path):
    listed = [
        PLACES[place](f"t{number}", "é 日本") for number, place in enumerate(PLACES) if place not in {"type", "$ref"}
    ]
    tools = list_tools(plain, tmp_path, listed)
    assert {"pattern", "value", "constant", "property"} <= {
        place for number, place in enumerate(PLACES) if f"t{number}" in tools
    }
