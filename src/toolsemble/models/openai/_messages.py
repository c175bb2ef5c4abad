"""Histories in OpenAI's formats, chat completions and responses, from and to messages of this library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.media_url import guess_media_type
from toolsemble._vocabulary.result import AudioContent, Content, FileContent, TextContent
from toolsemble.models._adapter import history_reader
from toolsemble.models._adapter.wire import field
from toolsemble.models._chat import ChatRequest
from toolsemble.models._message import AssistantMessage, Message, SystemMessage, Transcript, list_messages
from toolsemble.models.openai import _chat as chat, _responses as responses

_TEXTS = {"text", "input_text", "output_text", "refusal"}
_AUDIO = {"wav": "audio/wav", "mp3": "audio/mpeg"}


def messages_from_openai(messages: Iterable[object]) -> Transcript:
    """Return the conversation in messages of chat completions, or in input items of responses; raise ``ValueError``.

    Takes dicts and objects of OpenAI's SDK. A developer message becomes a system message. Reasoning is omitted, since
    only its own model can use it. Images, audio and files are converted; nothing is fetched from URLs. Files referenced
    by id are rejected, since only OpenAI has them.

    >>> messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hello"}]
    >>> [(message.role, message.text) for message in messages_from_openai(messages)]
    [('system', 'Be brief.'), ('user', 'hello')]
    >>> messages_from_openai([{"role": "user", "content": [{"type": "video"}]}])
    Traceback (most recent call last):
    ...
    ValueError: messages[0].content[0]: expected a text, an image, audio or a file, got the type 'video'
    """
    reader = history_reader.HistoryReader()
    for place, message in history_reader.iterate_items(messages, "messages"):
        _read_item(reader, place, message)
    return reader.finish()


def messages_to_openai(messages: Iterable[Message], api: Literal["chat", "responses"] = "chat") -> list[dict[str, Any]]:
    """Return messages in OpenAI's format: ``messages`` of chat completions, or the ``input`` of responses.

    A text, such as ``[a.zip, application/zip, 3 bytes, not shown]``, replaces unsupported contents.

    >>> from toolsemble.models import UserMessage
    >>> messages_to_openai([UserMessage("hello")])
    [{'role': 'user', 'content': 'hello'}]
    """
    if api not in {"chat", "responses"}:
        raise ValueError(f"OpenAI's api is 'chat' or 'responses', not {api!r}")
    request = ChatRequest(list_messages("messages_to_openai", messages))
    wire, key = (chat, "messages") if api == "chat" else (responses, "input")
    written: list[dict[str, Any]] = wire.write_parameters(request, "", streamed=False)[key]
    return written


def _read_item(reader: history_reader.HistoryReader, place: str, item: object) -> None:
    """Read a message, or an item of a response that is not a message."""
    role, kind = field(item, "role"), field(item, "type")
    if role is not None:
        _read_message(reader, place, item, role)
    elif kind == "function_call":
        reader.add_call(place, history_reader.read_call(ToolCall.from_openai, item, place))
    elif kind == "function_call_output":
        result = history_reader.make_result_of(_read_content(field(item, "output"), f"{place}.output"))
        reader.add_reply(place, history_reader.read_text(field(item, "call_id"), f"{place}.call_id"), result)
    elif kind != "reasoning":
        raise history_reader.unsupported(
            place, item, "a message with a role, a function_call or a function_call_output"
        )


def _read_message(reader: history_reader.HistoryReader, place: str, message: object, role: object) -> None:
    content = field(message, "content")
    if role != "tool" and field(message, "name") is not None:  # a tool message's name is its call's name
        raise ValueError(f"{place}.name: the name of a participant is not supported; write it into the content")
    match role:
        case "system" | "developer":
            reader.add(place, SystemMessage(_read_plain(content, f"{place}.content")))
        case "user":
            reader.add(place, history_reader.make_prompt(_read_content(content, f"{place}.content")))
        case "assistant":
            reader.add(place, _read_assistant(place, message))
        case "tool":
            call_id = history_reader.read_text(field(message, "tool_call_id"), f"{place}.tool_call_id")
            reader.add_reply(place, call_id, history_reader.make_result(_read_plain(content, f"{place}.content")))
        case _:
            raise ValueError(f"{place}.role: expected system, developer, user, assistant or tool, got {role!r:.80}")


def _read_assistant(place: str, message: object) -> AssistantMessage:
    if field(message, "function_call") is not None or field(message, "audio") is not None:
        raise ValueError(f"{place}: function_call and audio of an assistant are not supported; use tool_calls and text")
    content, refusal = field(message, "content"), field(message, "refusal")
    text = "" if content is None else _read_plain(content, f"{place}.content")
    text += "" if refusal is None else history_reader.read_text(refusal, f"{place}.refusal")
    sources = field(message, "tool_calls")
    items: Sequence[tuple[str, Any]] = (
        [] if sources is None else [*history_reader.iterate_items(sources, f"{place}.tool_calls")]
    )
    return AssistantMessage(
        text, tuple(history_reader.read_call(ToolCall.from_openai, each, where) for where, each in items)
    )


def _read_plain(content: object, place: str) -> str:
    """Return text-only content, joined by newlines."""
    prompt = history_reader.make_prompt(_read_content(content, place))
    if prompt.contents:
        raise ValueError(f"{place}: expected text only, got {prompt.contents[0]!r:.80}")
    return prompt.text


def _read_content(content: object, place: str) -> list[Content]:
    if isinstance(content, str):
        return [TextContent(content)]
    return [_read_part(part, where) for where, part in history_reader.iterate_items(content, place, "a str or a list")]


def _read_part(part: object, place: str) -> Content:
    kind = field(part, "type")
    if kind in _TEXTS:
        return TextContent(history_reader.read_text(field(part, "text", "refusal"), f"{place}.text"))
    match kind:
        case "image_url":
            return history_reader.read_image_url(field(field(part, "image_url"), "url"), f"{place}.image_url.url")
        case "input_image":
            return history_reader.read_image_url(field(part, "image_url"), f"{place}.image_url")
        case "input_audio":
            return _read_audio(field(part, "input_audio"), f"{place}.input_audio")
        case "file":
            return _read_file(field(part, "file"), f"{place}.file")
        case "input_file":
            return _read_file(part, place)
    raise history_reader.unsupported(place, part, "a text, an image, audio or a file")


def _read_audio(audio: object, place: str) -> AudioContent:
    form = field(audio, "format")
    if not isinstance(form, str) or form not in _AUDIO:
        raise ValueError(f"{place}.format: expected wav or mp3, got {form!r:.80}")
    return AudioContent(history_reader.read_base64(field(audio, "data"), f"{place}.data"), _AUDIO[form])


def _read_file(file: object, place: str) -> FileContent:
    """Return a file: a data URL, base64 text, or a URL."""
    given, data, url = field(file, "filename"), field(file, "file_data"), field(file, "file_url")
    name = "" if given is None else history_reader.read_text(given, f"{place}.filename")
    if url is not None:
        return history_reader.read_file_url(url, name, f"{place}.file_url")
    if data is None:
        raise ValueError(f"{place}: expected file_data or file_url; a file by its id cannot be read")
    if ":" in history_reader.read_text(data, f"{place}.file_data"):
        return history_reader.read_file_url(data, name, f"{place}.file_data")
    return FileContent(
        history_reader.read_base64(data, f"{place}.file_data"),
        guess_media_type(name) or history_reader.PDF,
        name or "file",
    )
