"""Messages and tools as attributes of spans, in the JSON form of OpenTelemetry's conventions for generative AI."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from toolsemble._vocabulary.media_url import hide_query
from toolsemble._vocabulary.result import Content, TextContent
from toolsemble.models._adapter.wire import media_type

_MODALITIES = {"image", "audio", "video"}

Attributes = Iterator[tuple[str, Any]]


def _write_input(messages: Iterable[Any]) -> Attributes:
    """Yield the instructions, if there are any, and the other messages."""
    every = list(messages)
    instructions = [each for each in every if each.role == "system"]
    if instructions:
        yield "gen_ai.system_instructions", [_text(each.text) for each in instructions]
    yield "gen_ai.input.messages", [write_message(each) for each in every if each.role != "system"]


def _write_output(messages: Iterable[Any]) -> Attributes:
    yield "gen_ai.output.messages", [write_message(each) for each in messages]


def _write_tools(specifications: Iterable[Any]) -> Attributes:
    definitions = [{"type": "function", "name": each.name, "description": each.description} for each in specifications]
    if definitions:
        yield "gen_ai.tool.definitions", definitions


CONTENT_ATTRIBUTES: Mapping[str, Callable[[Any], Attributes]] = {
    "gen_ai.input.messages": _write_input,
    "gen_ai.output.messages": _write_output,
    "gen_ai.tool.definitions": _write_tools,
}
"""How messages and tools are written, by the name of the attribute that has them."""


def write_message(message: Any) -> dict[str, Any]:
    """Return a message as JSON values.

    >>> from toolsemble.models import UserMessage
    >>> write_message(UserMessage("hello"))
    {'role': 'user', 'parts': [{'type': 'text', 'content': 'hello'}]}
    """
    return {"role": message.role, "parts": list(_parts(message))}


def _parts(message: Any) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        yield {"type": "tool_call_response", "id": message.call.id, "response": message.text}
        yield from map(_write_content, message.reply.contents)
        return
    if message.text:
        yield _text(message.text)
    yield from map(_write_content, getattr(message, "contents", ()))
    for call in getattr(message, "calls", ()):
        yield {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}


def _write_content(content: Content) -> dict[str, Any]:
    """Return a text, or what kind of media there are; their bytes would be larger than all the rest."""
    if isinstance(content, TextContent):
        return _text(content.text)
    kind = media_type(content)
    family = kind.partition("/")[0]
    modality = family if family in _MODALITIES else "document"
    known = {} if "*" in kind else {"mime_type": kind}
    if content.url:
        return {"type": "uri", "modality": modality, **known, "uri": hide_query(content.url)}
    return {"type": "blob", "modality": modality, **known}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}
