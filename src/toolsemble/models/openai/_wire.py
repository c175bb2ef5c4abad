"""The wire formats of OpenAI's chat completions and responses, with and without strict mode."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias, get_args

from toolsemble._vocabulary.result import FileContent, Media
from toolsemble._vocabulary.serialization import compact_json, json_type
from toolsemble._vocabulary.specification import Note
from toolsemble.models._adapter import wire
from toolsemble.models._adapter.dialect import Schema, adapt_strict, ensure_object, rewrite

Api: TypeAlias = Literal["chat", "responses"]

IMAGES = {"image/png", "image/jpeg", "image/webp", "image/gif"}
"""The types of images."""
AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
"""The formats of audio in chat completions, by media type."""
_OFFICE = "application/vnd.openxmlformats-officedocument."
FILES = {
    "application/pdf",
    "application/json",
    "application/xml",
    f"{_OFFICE}wordprocessingml.document",
    f"{_OFFICE}spreadsheetml.sheet",
    f"{_OFFICE}presentationml.presentation",
}
"""The types of files in responses, beside texts."""
_NUMBER = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_BOUNDS_BY_TYPE = {
    "string": ("pattern", "format"),
    "integer": _NUMBER,
    "number": _NUMBER,
    "array": ("minItems", "maxItems"),
}
_BOUNDS = {
    *_NUMBER, "pattern", "format", "minItems", "maxItems", "minLength", "maxLength", "uniqueItems", "minProperties",
    "maxProperties", "contentEncoding", "contentMediaType",
}  # fmt: skip
_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
# Groups with a question mark, word boundaries, back references and Python's anchors, which OpenAI does not document.
_SPECIAL_PATTERN = re.compile(r"\(\?|\\[bBAZ1-9]")
_NULL = {"type": "null"}
_MANY_VALUES = 250


def write_tools(
    offers: Iterable[wire.Offer], api: Api = "chat", *, strict: bool | None = None, bounds: bool = False
) -> list[dict[str, Any]]:
    """Return the ``tools`` argument; ``strict`` takes precedence over the setting of each tool.

    :param bounds: whether the schemas have bounds, patterns and formats as keywords in addition to the description

    >>> from toolsemble import ToolSpecification
    >>> write_tools([ToolSpecification("now", "The time")], "responses")[0]["parameters"]
    {'type': 'object', 'properties': {}}
    """
    return [
        _tool(offer, api, strict=bool(offer.strict if strict is None else strict), bounds=bounds) for offer in offers
    ]


def _tool(offer: wire.Offer, api: Api, *, strict: bool, bounds: bool) -> dict[str, Any]:
    parameters, _ = adapt(wire.parameters_of(offer), strict=strict, bounds=bounds)
    if _is_chat(api):
        return wire.function_tool("openai", offer, parameters, strict=strict)
    named = {"type": "function", "name": offer.name, "description": offer.description}
    more = wire.settings_for("openai", offer)
    return {**named, "parameters": parameters, "strict": strict, **more}  # responses are strict by default


def _is_chat(api: Api) -> bool:
    if api in get_args(Api):
        return api == "chat"
    raise ValueError(f"OpenAI's api is 'chat' or 'responses', not {api!r}")


def adapt(parameters: Schema, *, strict: bool = False, bounds: bool = False) -> tuple[Schema, list[Note]]:
    r"""Return the schema for OpenAI, and notes of the changes; raise ValueError if strict mode does not support it.

    >>> limit = {"type": "integer", "default": 5}
    >>> schema, notes = adapt({"type": "object", "properties": {"limit": limit}}, strict=True)
    >>> schema["properties"]
    {'limit': {'anyOf': [{'type': 'integer'}, {'type': 'null'}], 'description': 'default: 5'}}
    >>> print(*notes, sep="\n")
    $: additionalProperties rewritten: false
    $.limit: required rewritten: may be null instead of missing
    $.limit: default moved into the description: default: 5
    """
    if not strict:
        return rewrite(ensure_object(parameters), _add_items)
    rules = (_drop_unsupported_bounds, _add_types, _require_all) if bounds else (_add_types, _require_all)
    schema, notes = adapt_strict(parameters, *rules)
    _check_limits(schema)
    return schema, notes


def _add_items(schema: Schema, path: str) -> tuple[Schema, list[Note]]:  # noqa: ARG001 - the signature of a rule
    """Return the schema; an array without ``items`` gets the empty ones that OpenAI requires."""
    return ({**schema, "items": {}} if schema.get("type") == "array" and "items" not in schema else schema), []


def _drop_unsupported_bounds(schema: Schema, path: str) -> tuple[Schema, list[Note]]:  # noqa: ARG001 - as above
    """Return the schema with only the bounds that strict mode supports for its type; all are in the description."""
    supported = () if "enum" in schema else _BOUNDS_BY_TYPE.get(str(schema.get("type")), ())
    kept = {name: value for name, value in schema.items() if name not in _BOUNDS or name in supported}
    if "format" in kept and kept["format"] not in _FORMATS:
        del kept["format"]
    if "pattern" in kept and _SPECIAL_PATTERN.search(kept["pattern"]):
        del kept["pattern"]
    return kept, []


def _add_types(schema: Schema, path: str) -> tuple[Schema, list[Note]]:
    """Return allowed values without a type as one option per type."""
    if "enum" not in schema or "type" in schema:
        return schema, []
    by_type: dict[str, list[Any]] = {}
    for value in schema["enum"]:
        by_type.setdefault(json_type(value), []).append(value)
    options: list[Schema] = [{"type": kind, "enum": values} for kind, values in by_type.items()]
    rest = {keyword: value for keyword, value in schema.items() if keyword != "enum"}
    typed = options[0] if len(options) == 1 else {"anyOf": options}
    return {**typed, **rest}, [Note(path, "enum", "rewritten", "with types")]


def _require_all(schema: Schema, path: str) -> tuple[Schema, list[Note]]:
    if schema.get("type") != "object":
        return schema, []
    properties: dict[str, Schema] = schema["properties"]
    optional = [name for name in properties if name not in schema.get("required", ())]
    made = [name for name in optional if not _admits_null(properties[name])]
    nullable = {name: _make_nullable(part) if name in made else part for name, part in properties.items()}
    notes = [Note(f"{path}.{name}", "required", "rewritten", "may be null instead of missing") for name in optional]
    return {**schema, "properties": nullable, "required": list(properties)}, notes


def _admits_null(schema: Schema) -> bool:
    return schema.get("type") == "null" or any(map(_admits_null, schema.get("anyOf", ())))


def _make_nullable(schema: Schema) -> Schema:
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], dict(_NULL)]}
    # The description belongs to the parameter, not to one of its types.
    inner = {keyword: value for keyword, value in schema.items() if keyword != "description"}
    outer = {"description": schema["description"]} if "description" in schema else {}
    return {"anyOf": [inner, dict(_NULL)], **outer}


def _check_limits(schema: Schema) -> None:
    """Raise ValueError for a schema that exceeds the limits of strict mode."""
    parts = list(_parts(schema))
    names = [name for part, _ in parts for name in part.get("properties", ())]
    enums = [part["enum"] for part, _ in parts if "enum" in part]
    long = [_count_chars(enum) for enum in enums if len(enum) > _MANY_VALUES]
    sizes = [
        ("levels of objects", max(level for _, level in parts), 10),
        ("properties", len(names), 5000),
        ("allowed values", sum(map(len, enums)), 1000),
        (f"characters in an enum of more than {_MANY_VALUES} values", max(long, default=0), 15_000),
        ("characters of names and allowed values", _count_chars(names) + sum(map(_count_chars, enums)), 120_000),
    ]
    for what, size, most in sizes:
        if size > most:
            raise ValueError(f"$: strict mode allows at most {most} {what}, not {size}; split the tool")


def _parts(schema: Schema, level: int = 0) -> Iterator[tuple[Schema, int]]:
    """Yield each schema in a schema, with the number of objects around it."""
    level += schema.get("type") == "object"
    yield schema, level
    items = [schema["items"]] if "items" in schema else []
    for part in (*schema.get("anyOf", ()), *items, *schema.get("properties", {}).values()):
        yield from _parts(part, level)


def _count_chars(values: Iterable[object]) -> int:
    return sum(len(value if isinstance(value, str) else compact_json(value)) for value in values)


def read_call(source: object) -> wire.Call:
    """Return the name, arguments and id of an item of ``message.tool_calls``, or of a ``function_call`` item.

    >>> read_call({"type": "function_call", "call_id": "c1", "name": "now", "arguments": "{}"})
    ('now', '{}', 'c1')
    """
    if wire.field(source, "type") == "function_call":
        return wire.make_call(
            wire.field(source, "name"), wire.field(source, "arguments"), wire.field(source, "call_id")
        )
    return wire.read_function_call(source, "an OpenAI call, out of message.tool_calls or of type function_call")


def write_reply(answer: wire.Answer, api: Api = "chat") -> dict[str, Any]:
    """Return the tool message for a chat completion, or the ``function_call_output`` item for a response.

    >>> from types import SimpleNamespace
    >>> answer = SimpleNamespace(call_id="c1", name="now", text="noon", is_error=False, contents=())
    >>> write_reply(answer)
    {'role': 'tool', 'tool_call_id': 'c1', 'content': 'noon'}
    >>> write_reply(answer, "responses")
    {'type': 'function_call_output', 'call_id': 'c1', 'output': 'noon'}
    """
    if _is_chat(api):
        return {"role": "tool", "tool_call_id": answer.call_id or "", "content": wire.join_text(answer)}
    output = wire.write_blocks(answer, _input_text, _input_media) if answer.contents else ""
    return {"type": "function_call_output", "call_id": answer.call_id or "", "output": output or answer.text}


def write_prompt(text: str, contents: Iterable[Media], api: Api = "chat") -> str | list[dict[str, Any]]:
    """Return the content of a user message: its text, or parts if there are other contents.

    >>> write_prompt("hello", ())
    'hello'
    """
    text_part, media_part = (_chat_text, _chat_media) if _is_chat(api) else (_input_text, _prompt_media)
    parts = [
        media_part(content) or text_part(wire.write_as_text(content) or wire.describe_omitted(content))
        for content in contents
    ]
    if not parts:
        return text
    return [text_part(text), *parts] if text else parts


def _chat_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _chat_media(content: Media) -> dict[str, Any] | None:
    kind = wire.media_type(content)
    if kind in IMAGES or (content.url and kind.startswith("image/")):
        return {"type": "image_url", "image_url": {"url": wire.data_url(content)}}
    if kind in AUDIO_FORMATS and not content.url:
        audio = {"data": wire.base64_text(content.data), "format": AUDIO_FORMATS[kind]}
        return {"type": "input_audio", "input_audio": audio}
    if kind == "application/pdf":
        return {"type": "file", "file": {"filename": wire.file_name(content), "file_data": wire.data_url(content)}}
    return None


def _prompt_media(content: Media) -> dict[str, Any] | None:
    part = _input_media(content)
    return {**part, "detail": "auto"} if part and part["type"] == "input_image" else part


def _input_text(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def _input_media(content: Media) -> dict[str, Any] | None:
    kind = wire.media_type(content)
    if kind in IMAGES or (content.url and kind.startswith("image/")):
        return {"type": "input_image", "image_url": wire.data_url(content)}
    if content.url:
        return {"type": "input_file", "file_url": content.url} if isinstance(content, FileContent) else None
    if isinstance(content, FileContent) and (kind in FILES or kind.startswith("text/")):
        return {"type": "input_file", "filename": wire.file_name(content), "file_data": wire.data_url(content)}
    return None
