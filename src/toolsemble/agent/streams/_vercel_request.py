"""Requests of the Vercel AI SDK's ``useChat``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolsemble._vocabulary.call import ToolCall, received_call
from toolsemble._vocabulary.result import Media, ToolResult
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.agent.streams._attachment import read_attachment_url
from toolsemble.agent.streams._request import UiRequest, load_body, read_id, read_messages, split_prompt
from toolsemble.models._adapter.history import (
    HistoryReader,
    describe,
    iterate_items,
    read_text,
    unsupported,
)
from toolsemble.models._message import AssistantMessage, SystemMessage, UserMessage

_DYNAMIC = "dynamic-tool"
_PREFIX = "tool-"
_DENIED = "The call was denied"
_ERROR = "The call failed"


def read_vercel(body: object, *, system: bool = False) -> UiRequest:
    """Return the request of ``useChat`` of the Vercel AI SDK 5 and later; raise ``ValueError`` if it is not one.

    Calls without a result, which a client has after it left a run, count as failed. Reasoning, sources and data parts
    are left out. Images, audio and files are inline, or at URLs of public hosts, which the provider fetches.

    :param body: JSON text or a mapping
    :param system: whether system messages of the client are kept; by default they are left out, since anybody could
        give the model other instructions with them

    >>> message = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Where is Rome?"}]}
    >>> read_vercel({"id": "chat_1", "messages": [message]}).prompt.text
    'Where is Rome?'
    """
    values = load_body(body)
    thread_id, messages = read_id(values, "id"), read_messages(values)
    reader = HistoryReader(answer_open_calls=True)
    for place, message in messages:
        _read_message(reader, place, message, system=system)
    prompt, history = split_prompt(reader)
    return UiRequest(thread_id, prompt, history, "", tuple(message for _, message in messages), values)


def _read_message(reader: HistoryReader, place: str, message: Mapping[str, Any], *, system: bool) -> None:
    parts = list(iterate_items(message.get("parts"), f"{place}.parts"))
    for where, part in parts:
        if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
            raise unsupported(where, part, "an object with a type")
    match message.get("role"):
        case "user":
            reader.add(place, _read_user(parts))
        case "assistant":
            _read_assistant(reader, parts)
        case "system":
            if system:
                reader.add(place, SystemMessage("\n".join(_read_texts(parts))))
        case role:
            raise ValueError(f"{place}.role: expected user, assistant or system, got {role!r:.80}")


def _read_texts(parts: list[tuple[str, Any]]) -> list[str]:
    return [read_text(part.get("text"), f"{where}.text") for where, part in parts if part["type"] == "text"]


def _read_user(parts: list[tuple[str, Any]]) -> UserMessage:
    contents: list[Media] = []
    for where, part in parts:
        if part["type"] == "file":
            details = part.get("mediaType"), part.get("filename")
            contents.append(read_attachment_url(part.get("url"), *details, f"{where}.url"))
        elif part["type"] != "text" and not part["type"].startswith("data-"):
            raise unsupported(where, part, "a text or a file")
    return UserMessage("\n".join(_read_texts(parts)), tuple(contents))


def _read_assistant(reader: HistoryReader, parts: list[tuple[str, Any]]) -> None:
    """Read a message of the model, which has several turns if it called tools."""
    texts: list[str] = []
    tools: list[tuple[str, Any]] = []
    for where, part in parts:
        if tools and part["type"] in {"text", "step-start"}:
            _add_turn(reader, texts, tools)
            texts, tools = [], []
        if part["type"] == "text":
            texts += _read_texts([(where, part)])
        elif part["type"].startswith(_PREFIX) or part["type"] == _DYNAMIC:
            tools.append((where, part))
    _add_turn(reader, texts, tools)


def _add_turn(reader: HistoryReader, texts: list[str], tools: list[tuple[str, Any]]) -> None:
    if not texts and not tools:
        return
    calls = [_read_call(where, part) for where, part in tools]
    reader.add(tools[0][0] if tools else "", AssistantMessage("".join(texts), tuple(calls)))
    for (where, part), call in zip(tools, calls, strict=True):
        result = _read_result(where, part)
        if result is not None:
            reader.add_reply(where, call.id, result)


def _read_call(place: str, part: Mapping[str, Any]) -> ToolCall:
    dynamic = part["type"] == _DYNAMIC
    name = read_text(part.get("toolName"), f"{place}.toolName") if dynamic else part["type"].removeprefix(_PREFIX)
    call_id = read_text(part.get("toolCallId"), f"{place}.toolCallId")
    if not name or not call_id:
        raise ValueError(f"{place}: a call needs a name and an id, got {describe(part)}")
    given = part.get("input", part.get("rawInput"))
    arguments = given if given is None or isinstance(given, (str, dict)) else compact_json(given)
    return received_call(name, arguments, call_id)


def _read_result(place: str, part: Mapping[str, Any]) -> ToolResult | None:
    """Return the result of a call; None if it has none yet."""
    match part.get("state"):
        case "output-available":
            output = part.get("output")
            return ToolResult.success(output if isinstance(output, str) else compact_json(output))
        case "output-error":
            return ToolResult.failure(read_text(part.get("errorText", _ERROR), f"{place}.errorText"))
        case "output-denied":
            return ToolResult.failure(_DENIED, error_kind="rejected")
    return None
