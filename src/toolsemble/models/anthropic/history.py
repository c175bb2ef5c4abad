"""Histories in Anthropic's format, from and to messages of this library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from toolsemble.call import ToolCall
from toolsemble.models.adapter.conversation import system_texts
from toolsemble.models.adapter.history import (
    HistoryReader,
    iterate_items,
    make_result,
    read_base64,
    read_call,
    read_image,
    read_text,
    to_values,
    unsupported,
)
from toolsemble.models.adapter.reply_details import make_details
from toolsemble.models.anthropic.messages import write_messages
from toolsemble.models.message import AssistantMessage, Message, SystemMessage, UserMessage
from toolsemble.models.transcript import Transcript, list_messages
from toolsemble.providers.wire import field
from toolsemble.result import Content, FileContent, ImageContent, TextContent, ToolResult


def messages_from_anthropic(messages: Iterable[object], system: object = None) -> Transcript:
    """Return the conversation in messages of Anthropic; raise ``ValueError`` if it is not one.

    Takes dicts and objects of Anthropic's SDK. Thinking is kept for Anthropic's models. Images must be base64: nothing
    is fetched.

    :param system: the system prompt, a text or a list of text blocks

    >>> messages = messages_from_anthropic([{"role": "user", "content": "hello"}], system="Be brief.")
    >>> [(message.role, message.text) for message in messages]
    [('system', 'Be brief.'), ('user', 'hello')]
    >>> messages_from_anthropic([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1"}]}])
    Traceback (most recent call last):
    ...
    ValueError: messages[0].content[0]: it answers the call 'c1', which was not made just before it
    """
    if isinstance(messages, Mapping) and "messages" in messages:
        raise ValueError("messages: expected a list, got a dict with messages; write messages_from_anthropic(**it)")
    reader = HistoryReader()
    if system is not None:
        reader.add("system", SystemMessage(_read_system(system)))
    for place, message in iterate_items(messages, "messages"):
        role, content = field(message, "role"), field(message, "content")
        text = [(f"{place}.content", {"type": "text", "text": content})]
        items = (
            text if isinstance(content, str) else list(iterate_items(content, f"{place}.content", "a str or a list"))
        )
        if role == "user":
            _read_user(reader, place, items)
        elif role == "assistant":
            reader.add(place, _read_assistant(items))
        else:
            raise ValueError(f"{place}.role: expected user or assistant, got {role!r:.80}")
    return reader.finish()


def messages_to_anthropic(messages: Iterable[Message]) -> dict[str, Any]:
    """Return messages as Anthropic takes them: a dict of ``messages`` and, if there is one, of ``system``.

    >>> messages_to_anthropic([SystemMessage("Be brief."), UserMessage("hello")])
    {'system': 'Be brief.', 'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': 'hello'}]}]}
    """
    listed = list_messages("messages_to_anthropic", messages)
    system = "\n\n".join(system_texts(listed))
    return {**({"system": system} if system else {}), "messages": write_messages(listed)}


def _read_system(system: object) -> str:
    if isinstance(system, str):
        return system
    return "\n\n".join(
        read_text(field(block, "text"), f"{place}.text")
        for place, block in iterate_items(system, "system", "a str or a list")
    )


def _read_user(reader: HistoryReader, place: str, blocks: list[tuple[str, Any]]) -> None:
    """Read a message of the user: the replies to calls first, then the rest as one message."""
    texts: list[str] = []
    images: list[ImageContent] = []
    for where, block in blocks:
        kind = field(block, "type")
        if kind == "tool_result":
            call_id = read_text(field(block, "tool_use_id"), f"{where}.tool_use_id")
            reader.add_reply(where, call_id, _read_result(where, block))
        elif kind == "text":
            texts.append(read_text(field(block, "text"), f"{where}.text"))
        elif kind == "image":
            images.append(_read_image(where, block))
        else:
            raise unsupported(where, block, "a text, an image or a tool_result")
    if texts or images or not blocks:
        reader.add(place, UserMessage("\n".join(texts), tuple(images)))


def _read_assistant(items: list[tuple[str, Any]]) -> AssistantMessage:
    blocks = [to_values(block, where) for where, block in items]
    calls, texts = [], []
    for (where, _), block in zip(items, blocks, strict=True):
        kind = block.get("type")
        if kind == "text":
            texts.append(read_text(block.get("text"), f"{where}.text"))
        elif kind == "tool_use":
            calls.append(read_call(ToolCall.from_anthropic, block, where))
        elif not isinstance(kind, str):
            raise unsupported(where, block, "a block with a type")
    return AssistantMessage("".join(texts), tuple(calls), make_details("anthropic", blocks))


def _read_result(place: str, block: object) -> ToolResult:
    content, is_error = field(block, "content"), bool(field(block, "is_error"))
    if content is None or isinstance(content, str):
        return make_result(content or "", is_error=is_error)
    parts = [_read_part(where, part) for where, part in iterate_items(content, f"{place}.content", "a str or a list")]
    if is_error:
        texts = (part.text for part in parts if isinstance(part, TextContent))
        return make_result("\n".join(texts), is_error=True)
    # The first text is that of the result, as this library writes it.
    if parts and isinstance(parts[0], TextContent):
        return make_result(parts[0].text, parts[1:], is_error=False)
    return make_result("", parts, is_error=False)


def _read_part(place: str, part: object) -> Content:
    match field(part, "type"):
        case "text":
            return TextContent(read_text(field(part, "text"), f"{place}.text"))
        case "image":
            return _read_image(place, part)
        case "document":
            return _read_document(place, part)
    raise unsupported(place, part, "a text, an image or a document")


def _read_image(place: str, block: object) -> ImageContent:
    source = field(block, "source")
    if field(source, "type") != "base64":
        raise unsupported(f"{place}.source", source, "a source of the type base64")
    return read_image(field(source, "data"), field(source, "media_type"), f"{place}.source")


def _read_document(place: str, block: object) -> FileContent:
    source, title = field(block, "source"), field(block, "title")
    name = "" if title is None else read_text(title, f"{place}.title")
    data, where = field(source, "data"), f"{place}.source.data"
    match field(source, "type"):
        case "base64":
            mime_type = read_text(field(source, "media_type"), f"{place}.source.media_type")
            return FileContent(read_base64(data, where), mime_type, name)
        case "text":
            return FileContent(read_text(data, where).encode(errors="replace"), "text/plain", name)
    raise unsupported(f"{place}.source", source, "a source of the type base64 or text")
