"""The wire format of Mistral's chat completions: like OpenAI's, with images in tool messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolsemble._vocabulary.result import Media
from toolsemble.models._adapter import wire
from toolsemble.models._adapter.dialect import adapt

IMAGES = {"image/png", "image/jpeg", "image/webp", "image/gif"}
"""The types of images."""
AUDIO = {"audio/wav", "audio/x-wav", "audio/mpeg", "audio/mp3", "audio/flac", "audio/ogg", "audio/mp4"}
"""The types of audio."""
_OFFICE = "application/vnd.openxmlformats-officedocument."
DOCUMENTS = {"application/pdf", f"{_OFFICE}wordprocessingml.document", f"{_OFFICE}presentationml.presentation"}
"""The types of documents."""


def write_tools(offers: Iterable[wire.Offer]) -> list[dict[str, Any]]:
    """Return the ``tools`` argument.

    >>> from toolsemble import ToolSpecification
    >>> write_tools([ToolSpecification("now", "The time")])[0]["function"]["parameters"]
    {'type': 'object', 'properties': {}}
    """
    return [_tool(offer) for offer in offers]


def _tool(offer: wire.Offer) -> dict[str, Any]:
    strict = bool(offer.strict)
    schema, _ = adapt(wire.parameters_of(offer), strict=strict)
    return wire.function_tool("mistral", offer, schema, strict=strict)


def read_call(source: object) -> wire.Call:
    """Return the name, arguments and id of an item of ``message.tool_calls``.

    >>> read_call({"id": "abcdefghi", "function": {"name": "weather", "arguments": {"city": "Rome"}}})
    ('weather', {'city': 'Rome'}, 'abcdefghi')
    """
    name, arguments, call_id = wire.read_function_call(source, "a Mistral call, out of message.tool_calls")
    return name, arguments, None if call_id == "null" else call_id  # the SDK's text for a missing id


def write_reply(answer: wire.Answer) -> dict[str, Any]:
    """Return the tool message.

    >>> from types import SimpleNamespace
    >>> answer = SimpleNamespace(call_id="c1", name="now", text="noon", is_error=False, contents=())
    >>> write_reply(answer)
    {'role': 'tool', 'tool_call_id': 'c1', 'name': 'now', 'content': 'noon'}
    """
    content = wire.write_blocks(answer, _text, _image) if answer.contents else ""
    found = {"tool_call_id": answer.call_id} if answer.call_id else {}
    return {"role": "tool", **found, "name": answer.name, "content": content or answer.text}


def write_prompt(text: str, contents: Iterable[Media] = ()) -> str | list[dict[str, Any]]:
    """Return the content of a user message: its text, or chunks if there are other contents.

    >>> write_prompt("hello")
    'hello'
    """
    chunks = [
        _chunk(content) or _text(wire.write_as_text(content) or wire.describe_omitted(content)) for content in contents
    ]
    if not chunks:
        return text
    return [_text(text), *chunks] if text.strip() else chunks


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _chunk(content: Media) -> dict[str, Any] | None:
    kind = wire.media_type(content)
    if kind in AUDIO:
        return {"type": "input_audio", "input_audio": content.url or wire.base64_text(content.data)}
    if kind in DOCUMENTS:
        return {
            "type": "document_url",
            "document_url": wire.data_url(content),
            "document_name": wire.file_name(content),
        }
    return _image(content)


def _image(content: Media) -> dict[str, Any] | None:
    kind = wire.media_type(content)
    is_image = kind in IMAGES or (content.url and kind.startswith("image/"))
    return {"type": "image_url", "image_url": wire.data_url(content)} if is_image else None
