"""Requests of AG-UI clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.result import AudioContent, FileContent, ImageContent, Media, ToolResult
from toolsemble.agent.streams._attachment import read_attachment_data, read_attachment_url
from toolsemble.agent.streams._request import UiRequest, load_body, read_id, read_messages, split_prompt
from toolsemble.models._adapter.history import (
    HistoryReader,
    describe,
    iterate_items,
    make_result,
    read_call,
    read_text,
    unsupported,
)
from toolsemble.models._adapter.wire import field
from toolsemble.models._message import AssistantMessage, SystemMessage, UserMessage

_KINDS: dict[str, type] = {"image": ImageContent, "audio": AudioContent, "document": FileContent}
_NAMES = {"image": "an image", "audio": "audio", "document": "a document"}


def read_ag_ui(body: object, *, system: bool = False) -> UiRequest:
    """Return the request of an AG-UI client, a ``RunAgentInput``; raise ``ValueError`` if it is not one.

    Calls without a result, which a client has after it left a run, count as failed. Tools of the client are not
    offered to the model. Images, audio and documents are inline, or at URLs of public hosts, which the provider
    fetches.

    :param body: JSON text, a mapping, or a ``RunAgentInput`` of the package ``ag-ui-protocol``
    :param system: whether system and developer messages of the client are kept; by default they are left out, since
        anybody could give the model other instructions with them

    >>> message = {"id": "m1", "role": "user", "content": "Where is Rome?"}
    >>> read_ag_ui({"threadId": "t1", "runId": "r1", "messages": [message]}).prompt.text
    'Where is Rome?'
    >>> read_ag_ui({"threadId": "t1", "runId": "r1", "messages": [{"role": "user", "content": 7}]})
    Traceback (most recent call last):
    ...
    ValueError: messages[0].content: expected a str or a list, got 7
    """
    values = load_body(body)
    thread_id, run_id = read_id(values, "threadId"), read_id(values, "runId")
    messages = read_messages(values)
    reader = HistoryReader(answer_open_calls=True)
    for place, message in messages:
        _read_message(reader, place, message, system=system)
    prompt, history = split_prompt(reader)
    return UiRequest(thread_id, prompt, history, run_id, tuple(message for _, message in messages), values)


def _read_message(reader: HistoryReader, place: str, message: Mapping[str, Any], *, system: bool) -> None:
    content = message.get("content")
    match message.get("role"):
        case "user":
            reader.add(place, _read_user(content, f"{place}.content"))
        case "assistant":
            reader.add(place, _read_assistant(message, place))
        case "tool":
            call_id = read_text(message.get("toolCallId"), f"{place}.toolCallId")
            reader.add_reply(place, call_id, _read_result(message, place))
        case "system" | "developer":
            if system:
                reader.add(place, SystemMessage(read_text(content, f"{place}.content")))
        case "reasoning" | "activity":
            pass  # for people, not for the model
        case role:
            raise ValueError(f"{place}.role: expected user, assistant, tool, system or developer, got {role!r:.80}")


def _read_user(content: object, place: str) -> UserMessage:
    if isinstance(content, str):
        return UserMessage(content)
    texts: list[str] = []
    contents: list[Media] = []
    for where, part in iterate_items(content, place, "a str or a list"):
        match field(part, "type"):
            case "text":
                texts.append(read_text(field(part, "text"), f"{where}.text"))
            case "image" | "audio" | "document" as kind:
                contents.append(_read_source(field(part, "source"), kind, f"{where}.source"))
            case "binary":
                contents.append(_read_binary(part, where))
            case _:
                raise unsupported(where, part, "a text, an image, audio or a document")
    return UserMessage("\n".join(texts), tuple(contents))


def _read_source(source: object, kind: str, place: str) -> Media:
    """Return an attachment of the kind that its part has."""
    value, media_type = field(source, "value"), field(source, "mimeType")
    match field(source, "type"):
        case "data":
            found = read_attachment_data(value, media_type, None, place)
        case "url":
            found = read_attachment_url(value, media_type, None, place)
        case _:
            raise unsupported(place, source, "a source of the type data or url")
    if not isinstance(found, _KINDS[kind]):
        raise ValueError(f"{place}: expected the media type of {_NAMES[kind]}, got {found.mime_type!r:.80}")
    return found


def _read_binary(part: object, place: str) -> Media:
    """Return an attachment of an older client, inline or at a URL; one that it uploaded before is not known here."""
    url, data = field(part, "url"), field(part, "data")
    details = field(part, "mimeType"), field(part, "filename"), place
    if data is not None:
        return read_attachment_data(data, *details)
    if url is not None:
        return read_attachment_url(url, *details)
    raise ValueError(f"{place}: expected data or a url, got {describe(part)}")


def _read_assistant(message: Mapping[str, Any], place: str) -> AssistantMessage:
    content, sources = message.get("content"), message.get("toolCalls")
    text = "" if content is None else read_text(content, f"{place}.content")
    items = [] if sources is None else list(iterate_items(sources, f"{place}.toolCalls"))
    return AssistantMessage(text, tuple(read_call(ToolCall.from_openai, each, where) for where, each in items))


def _read_result(message: Mapping[str, Any], place: str) -> ToolResult:
    error = message.get("error")
    if error is not None:
        return ToolResult.failure(read_text(error, f"{place}.error"))
    return make_result(read_text(message.get("content"), f"{place}.content"))
