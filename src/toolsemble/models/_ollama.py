"""The wire format of Ollama's chat: like OpenAI's, with a reduced schema.

Its SDK keeps the type, the items, the description and the enum of each parameter, and silently drops everything else,
so the other keywords are moved into the description.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolsemble._vocabulary.serialization import compact_json
from toolsemble._vocabulary.specification import Note
from toolsemble.models._adapter import wire
from toolsemble.models._adapter.dialect import Schema, describe, ensure_object, rewrite

_IMAGES = frozenset({"image/png", "image/jpeg", "image/webp"})
_KEPT = ("type", "items", "description", "enum")
_ROOT = ("type", "properties", "required")


def write_tools(offers: Iterable[wire.Offer]) -> list[dict[str, Any]]:
    """Return the ``tools`` argument.

    >>> from toolsemble import ToolSpecification
    >>> write_tools([ToolSpecification("now", "The time")])[0]["function"]["parameters"]
    {'type': 'object', 'properties': {}}
    """
    return [wire.function_tool("ollama", offer, adapt(wire.parameters_of(offer))[0]) for offer in offers]


def adapt(parameters: Schema) -> tuple[Schema, list[Note]]:
    r"""Return the schema for Ollama's SDK, and notes of the changes.

    >>> limit = {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    >>> schema, notes = adapt({"type": "object", "properties": {"limit": limit}})
    >>> schema["properties"]
    {'limit': {'type': ['integer', 'null'], 'description': 'default: null'}}
    >>> print(*notes, sep="\n")
    $.limit: anyOf rewritten: type
    $.limit: default moved into the description: default: null
    """
    root, _ = rewrite(ensure_object(parameters))
    notes = [Note("$", keyword, "dropped") for keyword in root if keyword not in _ROOT]
    schema = {keyword: root[keyword] for keyword in _ROOT if keyword in root}
    for name, part in schema.get("properties", {}).items():
        schema["properties"][name], changed = _property(part, f"$.{name}")
        notes += changed
    return schema, notes


def _property(schema: Schema, path: str) -> tuple[Schema, list[Note]]:
    schema, notes = _type_list(schema, path)
    words = {keyword: _words(keyword, value) for keyword, value in schema.items() if keyword not in _KEPT}
    kept = {keyword: value for keyword, value in schema.items() if keyword in _KEPT}
    notes += [Note(path, keyword, "moved", phrase) for keyword, phrase in words.items()]
    return describe(kept, *words.values()), notes


def _type_list(schema: Schema, path: str) -> tuple[Schema, list[Note]]:
    """Return the types of the options as a list; options with more than a type are also kept."""
    options: list[Schema] = schema.get("anyOf", [])
    if not options or "type" in schema or not all("type" in option for option in options):
        return schema, []
    types = list(dict.fromkeys(option["type"] for option in options))
    listed = {"type": types[0] if len(types) == 1 else types, **schema}
    if any(option.keys() != {"type"} for option in options):
        return listed, []
    return {key: value for key, value in listed.items() if key != "anyOf"}, [Note(path, "anyOf", "rewritten", "type")]


def _words(keyword: str, value: object) -> str:
    names = {"additionalProperties": "other properties", "anyOf": "any of"}
    return f"{names.get(keyword, keyword)}: {compact_json(value)}"


def read_call(source: object) -> wire.Call:
    """Return the name, arguments and id of an item of ``message.tool_calls``; the id is None if there is none.

    >>> read_call({"function": {"name": "weather", "arguments": {"city": "Rome"}}})
    ('weather', {'city': 'Rome'}, None)
    """
    return wire.read_function_call(source, "an Ollama call, out of message.tool_calls")


def write_reply(answer: wire.Answer) -> dict[str, Any]:
    """Return the tool message.

    >>> from types import SimpleNamespace
    >>> answer = SimpleNamespace(call_id="c1", name="now", text="noon", is_error=False, contents=())
    >>> write_reply(answer)
    {'role': 'tool', 'tool_name': 'now', 'content': 'noon'}
    """
    message = {"role": "tool", "tool_name": answer.name, "content": wire.join_text(answer, _IMAGES)}
    images = [wire.base64_text(image.data) for image in wire.select_media(answer, _IMAGES)]
    return {**message, "images": images} if images else message
