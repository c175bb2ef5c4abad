"""The wire format of Google's Gemini.

Its ``parameters`` are an OpenAPI schema: null is ``nullable``, and allowed values are strings.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolsemble._vocabulary.result import Media
from toolsemble._vocabulary.serialization import compact_json, json_type
from toolsemble._vocabulary.specification import Note
from toolsemble.models._adapter import wire
from toolsemble.models._adapter.dialect import Schema, describe, ensure_object, move_default, rewrite

PROMPT_MEDIA = frozenset({
    "image/png", "image/jpeg", "image/webp", "image/heic", "image/heif", "application/pdf",
    "audio/wav", "audio/x-wav", "audio/mpeg", "audio/mp3", "audio/aiff", "audio/aac", "audio/ogg", "audio/flac",
    "video/mp4", "video/mpeg", "video/quicktime", "video/webm",
})  # fmt: skip
"""The types of contents in prompts, beside text files."""
_MEDIA = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})


def write_tools(offers: Iterable[wire.Offer]) -> list[dict[str, Any]]:
    """Return the ``tools`` of the ``config`` argument: one tool with a declaration for each function.

    >>> from toolsemble import ToolSpecification
    >>> write_tools([ToolSpecification("now", "The time")])
    [{'function_declarations': [{'name': 'now', 'description': 'The time'}]}]
    """
    declarations = [_declaration(offer) for offer in offers]
    return [{"function_declarations": declarations}] if declarations else []


def _declaration(offer: wire.Offer) -> dict[str, Any]:
    schema, _ = adapt(wire.parameters_of(offer))
    # An object without properties is rejected; without a description it can be left out.
    taken = {} if schema == {"type": "OBJECT", "properties": {}} else {"parameters": schema}
    return {"name": offer.name, "description": offer.description, **taken, **wire.settings_for("google", offer)}


def adapt(parameters: Schema) -> tuple[Schema, list[Note]]:
    r"""Return the schema for Gemini, and notes of the changes beyond spelling.

    >>> stars = {"type": "integer", "enum": [1, 2, 3]}
    >>> schema, notes = adapt({"type": "object", "properties": {"stars": stars}})
    >>> schema
    {'type': 'OBJECT', 'properties': {'stars': {'type': 'INTEGER', 'description': 'one of 1, 2, 3'}}}
    >>> print(*notes, sep="\n")
    $.stars: enum moved into the description: one of 1, 2, 3
    """
    rules = _split_types, move_default, _move_extra_keys, _move_values, _rewrite_nullable
    schema, notes = rewrite(ensure_object(parameters), *rules)
    return rewrite(schema, _respell)[0], notes


def _split_types(schema: Schema, path: str) -> tuple[Schema, list[Note]]:
    """Return several types as one option for each type."""
    kinds = schema.get("type")
    if not isinstance(kinds, list):
        return schema, []
    rest = {keyword: value for keyword, value in schema.items() if keyword != "type"}
    return {**rest, "anyOf": [{"type": str(kind)} for kind in kinds]}, [Note(path, "type", "rewritten", "anyOf")]


def _move_extra_keys(schema: Schema, path: str) -> tuple[Schema, list[Note]]:
    """Return the schema without ``additionalProperties``, which older releases of the SDK and the service reject."""
    if "additionalProperties" not in schema:
        return schema, []
    extra = schema["additionalProperties"]
    rest = {keyword: value for keyword, value in schema.items() if keyword != "additionalProperties"}
    if extra is False:
        return rest, [Note(path, "additionalProperties", "dropped")]
    words = f"other keys: {'anything' if extra in (True, {}) else compact_json(extra)}"
    return describe(rest, words), [Note(path, "additionalProperties", "moved", words)]


def _move_values(schema: Schema, path: str) -> tuple[Schema, list[Note]]:
    """Return the schema with allowed values in the description, unless all are non-empty strings."""
    values = schema.get("enum")
    if values is None or all(isinstance(value, str) and value for value in values):
        return ({"type": "string", **schema} if values else schema), []
    words = f"one of {', '.join(compact_json(value) for value in values)}"
    rest = {keyword: value for keyword, value in schema.items() if keyword != "enum"}
    types = [{"type": kind} for kind in dict.fromkeys(json_type(value) for value in values)]
    typed: Schema = {} if "type" in rest else types[0] if len(types) == 1 else {"anyOf": types}
    return describe({**typed, **rest}, words), [Note(path, "enum", "moved", words)]


def _rewrite_nullable(schema: Schema, path: str) -> tuple[Schema, list[Note]]:
    """Return the schema with null options as ``nullable``; a single remaining option replaces ``anyOf``."""
    options: list[Schema] = schema.get("anyOf", [])
    left = [option for option in options if option.get("type") != "null"]
    if len(left) in {0, len(options)}:
        return schema, []
    rest = {keyword: value for keyword, value in schema.items() if keyword != "anyOf"}
    merged = _merge(left[0], rest) if len(left) == 1 else {"anyOf": left, **rest}
    words = [f"null: {option['description']}" for option in options if option not in left and "description" in option]
    return {**describe(merged, *words), "nullable": True}, [Note(path, "anyOf", "rewritten", "nullable")]


def _merge(inner: Schema, outer: Schema) -> Schema:
    both = {"description"} <= inner.keys() & outer.keys()
    return describe({**inner, **outer}, *([inner["description"]] if both else []))


def _respell(schema: Schema, path: str) -> tuple[Schema, list[Note]]:  # noqa: ARG001 - the signature of a rule
    """Return the schema in Gemini's spelling; an array without ``items`` gets the empty ones that Gemini requires."""
    spelled = {("any_of" if keyword == "anyOf" else keyword): value for keyword, value in schema.items()}
    if "type" in spelled:
        spelled["type"] = spelled["type"].upper()
    if spelled.get("type") == "ARRAY":
        spelled.setdefault("items", {})
    return spelled, []


def read_call(source: object) -> wire.Call:
    """Return the name, arguments and id of a function call, or of the part around it.

    >>> read_call({"functionCall": {"name": "weather", "args": {"city": "Rome"}}})
    ('weather', {'city': 'Rome'}, None)
    """
    part = wire.field(source, "function_call", "functionCall")
    call = source if part is None else part
    if part is None and not isinstance(wire.field(call, "name"), str):
        raise wire.unexpected_source(source, "a Gemini function call, or the part around it")
    return wire.make_call(wire.field(call, "name"), wire.field(call, "args"), wire.field(call, "id"))


def write_reply(answer: wire.Answer) -> dict[str, Any]:
    """Return the part with the function response, for a content with the role user.

    >>> from types import SimpleNamespace
    >>> answer = SimpleNamespace(call_id="c1", name="now", text="noon", is_error=False, contents=())
    >>> write_reply(answer)
    {'function_response': {'id': 'c1', 'name': 'now', 'response': {'output': 'noon'}}}
    """
    response = {"error" if answer.is_error else "output": wire.join_text(answer, _MEDIA)}
    parts = [_inline(content) for content in wire.select_media(answer, _MEDIA)]
    found = {"id": answer.call_id} if answer.call_id else {}
    beside = {"parts": parts} if parts else {}
    return {"function_response": {**found, "name": answer.name, "response": response, **beside}}


def write_prompt(text: str, contents: Iterable[Media] = ()) -> list[dict[str, Any]]:
    """Return the parts of a user message; empty text has no part.

    >>> write_prompt("hello")
    [{'text': 'hello'}]
    """
    shown = [_prompt_part(content) for content in contents]
    return [{"text": text}, *shown] if text else shown


def _prompt_part(content: Media) -> dict[str, Any]:
    if content.url:
        return {"file_data": {"file_uri": content.url, "mime_type": wire.media_type(content)}}
    if content.data and wire.media_type(content) in PROMPT_MEDIA:
        return _inline(content)
    return {"text": wire.write_as_text(content) or wire.describe_omitted(content)}


def _inline(content: Media) -> dict[str, Any]:
    return {"inline_data": {"mime_type": wire.media_type(content), "data": content.data}}
