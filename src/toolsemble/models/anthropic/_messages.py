"""Conversations and histories in Anthropic's format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolsemble._runtime.text import escape_surrogates
from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.result import Content, FileContent, ImageContent, TextContent, ToolResult
from toolsemble.models._adapter import conversation, history
from toolsemble.models._adapter.replies import Block, make_details, restore_blocks
from toolsemble.models._adapter.wire import field
from toolsemble.models._message import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from toolsemble.models._transcript import Transcript, list_messages
from toolsemble.models.anthropic._wire import write_prompt, write_reply

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def write_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the conversation; consecutive messages of one role are merged, including the replies to calls.

    >>> write_messages([UserMessage("hello"), UserMessage("there?")])
    [{'role': 'user', 'content': [{'type': 'text', 'text': 'hello'}, {'type': 'text', 'text': 'there?'}]}]
    """
    ids = conversation.CallIds(messages, _ID, "call_{}".format)
    return conversation.merge_turns(_write_message(message, ids) for message in messages)


def _write_message(message: Message, ids: conversation.CallIds) -> tuple[str, list[Block]]:
    if isinstance(message, AssistantMessage):
        calls = [_write_call(call, ids.assign(call)) for call in message.calls]
        return "assistant", restore_blocks("anthropic", message, calls)
    if isinstance(message, ToolMessage):
        return "user", [{**write_reply(message.reply), "tool_use_id": ids.take(message.call)}]
    if isinstance(message, UserMessage):
        return "user", write_prompt(escape_surrogates(message.text), message.contents)
    return "user", []  # a system message, which is sent separately


def _write_call(call: ToolCall, id: str) -> Block:
    return {
        "type": "tool_use",
        "id": id,
        "name": conversation.sanitize_name(call.name),
        "input": conversation.sanitize_arguments(call),
    }


_PARTS = "a text, an image or a document"


def messages_from_anthropic(messages: Iterable[object], system: object = None) -> Transcript:
    """Return the conversation in messages of Anthropic; raise ``ValueError`` if it is not one.

    Takes dicts and objects of Anthropic's SDK. Thinking is kept for Anthropic's models. Images and documents are read;
    nothing is fetched from URLs. Files by their id are refused, since only Anthropic has them.

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
    reader = history.HistoryReader()
    if system is not None:
        reader.add("system", SystemMessage(_read_system(system)))
    for place, message in history.iterate_items(messages, "messages"):
        role, content = field(message, "role"), field(message, "content")
        text = [(f"{place}.content", {"type": "text", "text": content})]
        items = (
            text
            if isinstance(content, str)
            else list(history.iterate_items(content, f"{place}.content", "a str or a list"))
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

    A text, such as ``[audio/wav, 3 bytes, not shown]``, replaces contents that the format does not have.

    >>> from toolsemble.models import UserMessage
    >>> messages_to_anthropic([SystemMessage("Be brief."), UserMessage("hello")])
    {'system': 'Be brief.', 'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': 'hello'}]}]}
    """
    listed = list_messages("messages_to_anthropic", messages)
    system = "\n\n".join(conversation.system_texts(listed))
    return {**({"system": system} if system else {}), "messages": write_messages(listed)}


def _read_system(system: object) -> str:
    if isinstance(system, str):
        return system
    return "\n\n".join(
        history.read_text(field(block, "text"), f"{place}.text")
        for place, block in history.iterate_items(system, "system", "a str or a list")
    )


def _read_user(reader: history.HistoryReader, place: str, blocks: list[tuple[str, Any]]) -> None:
    """Read a message of the user: the replies to calls first, then the rest as one message."""
    parts: list[Content] = []
    for where, block in blocks:
        if field(block, "type") == "tool_result":
            call_id = history.read_text(field(block, "tool_use_id"), f"{where}.tool_use_id")
            reader.add_reply(where, call_id, _read_result(where, block))
        else:
            parts.append(_read_part(where, block, "a text, an image, a document or a tool_result"))
    if parts or not blocks:
        reader.add(place, history.make_prompt(parts))


def _read_assistant(items: list[tuple[str, Any]]) -> AssistantMessage:
    blocks = [history.to_values(block, where) for where, block in items]
    calls, texts = [], []
    for (where, _), block in zip(items, blocks, strict=True):
        kind = block.get("type")
        if kind == "text":
            texts.append(history.read_text(block.get("text"), f"{where}.text"))
        elif kind == "tool_use":
            calls.append(history.read_call(ToolCall.from_anthropic, block, where))
        elif not isinstance(kind, str):
            raise history.unsupported(where, block, "a block with a type")
    return AssistantMessage("".join(texts), tuple(calls), make_details("anthropic", blocks))


def _read_result(place: str, block: object) -> ToolResult:
    content, is_error = field(block, "content"), bool(field(block, "is_error"))
    if content is None or isinstance(content, str):
        return history.make_result(content or "", is_error=is_error)
    items = history.iterate_items(content, f"{place}.content", "a str or a list")
    return history.make_result_of((_read_part(where, part, _PARTS) for where, part in items), is_error=is_error)


def _read_part(place: str, part: object, expected: str) -> Content:
    match field(part, "type"):
        case "text":
            return TextContent(history.read_text(field(part, "text"), f"{place}.text"))
        case "image":
            return _read_image(place, part)
        case "document":
            return _read_document(place, part)
    raise history.unsupported(place, part, expected)


def _read_image(place: str, block: object) -> ImageContent:
    source = field(block, "source")
    match field(source, "type"):
        case "base64":
            return history.read_image(field(source, "data"), field(source, "media_type"), f"{place}.source")
        case "url":
            return history.read_image_url(field(source, "url"), f"{place}.source.url")
    raise history.unsupported(f"{place}.source", source, "a source of the type base64 or url")


def _read_document(place: str, block: object) -> FileContent:
    source, title = field(block, "source"), field(block, "title")
    name = "" if title is None else history.read_text(title, f"{place}.title")
    data, where = field(source, "data"), f"{place}.source.data"
    match field(source, "type"):
        case "base64":
            mime_type = history.read_text(field(source, "media_type"), f"{place}.source.media_type")
            return FileContent(history.read_base64(data, where), mime_type, name)
        case "text":
            return FileContent(history.read_text(data, where).encode(errors="replace"), "text/plain", name)
        case "url":
            return history.read_file_url(field(source, "url"), name, f"{place}.source.url")
    raise history.unsupported(f"{place}.source", source, "a source of the type base64, text or url")
