"""The Vercel AI SDK: its requests as runs, and runs as its stream of parts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal

from toolsemble._vocabulary.call import ToolCall, new_id, received_call
from toolsemble._vocabulary.result import Media, ToolResult
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.agent._event import Event
from toolsemble.agent._result import ToolCallRecord
from toolsemble.agent.streams import _ui_request as requests
from toolsemble.agent.streams._browser_view import BrowserView, ShownCall, TurnText, find_edited, view_result
from toolsemble.agent.streams._delivery import PING, SSE_HEADERS, deliver
from toolsemble.models._adapter.history_reader import HistoryReader, describe, iterate_items, read_text, unsupported
from toolsemble.models._message import AssistantMessage, SystemMessage, UserMessage

_DYNAMIC = "dynamic-tool"
_PREFIX = "tool-"
_DENIED = "The call was denied"
_ERROR = "The call failed"


def read_vercel(body: object, *, system: bool = False) -> requests.UiRequest:
    """Return the request of ``useChat`` of the Vercel AI SDK 5 and later; raise ``ValueError`` if it is not one.

    Calls without a result, from a run that the client disconnected from, count as failed. Reasoning, sources and data
    parts are dropped. Images, audio and files are inline, or at URLs of public hosts, which the provider fetches.

    :param body: JSON text or a mapping
    :param system: whether the client's system messages are kept; by default they are dropped, since any client could
        override the model's instructions

    >>> message = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Where is Rome?"}]}
    >>> read_vercel({"id": "chat_1", "messages": [message]}).prompt.text
    'Where is Rome?'
    """
    values = requests.load_body(body)
    thread_id, messages = requests.read_id(values, "id"), requests.read_messages(values)
    reader = HistoryReader(answer_open_calls=True)
    for place, message in messages:
        _read_message(reader, place, message, system=system)
    prompt, history = requests.split_prompt(reader)
    return requests.UiRequest(thread_id, prompt, history, "", tuple(message for _, message in messages), values)


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
            contents.append(requests.read_attachment_url(part.get("url"), *details, f"{where}.url"))
        elif part["type"] != "text" and not part["type"].startswith("data-"):
            raise unsupported(where, part, "a text or a file")
    return UserMessage("\n".join(_read_texts(parts)), tuple(contents))


def _read_assistant(reader: HistoryReader, parts: list[tuple[str, Any]]) -> None:
    """Read an assistant message, which has several turns if it called tools."""
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


VERCEL_HEADERS: Mapping[str, str] = MappingProxyType({**SSE_HEADERS, "x-vercel-ai-ui-message-stream": "v1"})
"""The headers of a response in the protocol of the Vercel AI SDK."""

_VERSIONS = (5, 6, 7)
_VERSION_WITH_RESET = 7


def to_vercel(
    events: AsyncIterator[Event],
    *,
    version: Literal[5, 6, 7] = 7,
    show_failures: bool = False,
    show_thoughts: bool = False,
    on_error: Callable[[Exception], str] | None = None,
    ping: float | None = PING,
) -> AsyncGenerator[str, None]:
    r"""Yield the events of a run for the Vercel AI SDK, for a response with :data:`VERCEL_HEADERS`.

    Text, calls, results and thoughts are parts of the message; progress and review requests are transient
    parts ``data-prompt-progress``, ``data-call-progress``, ``data-review-requested`` and ``data-review-decided``. A
    typed answer, and the calls of a paused run that wait for approval, are in the part ``data-result``. When a reply
    breaks off and restarts, ``reset-step`` removes its parts; versions 5 and 6 of the SDK do not support it, and get a
    part ``data-model-retried`` after the discarded text. Errors and disconnects are handled as in :func:`sse`.

    :param version: the major version of the SDK in the browser
    :param show_failures: whether the texts of failed calls are shown
    :param show_thoughts: whether the model's reasoning is shown; it may repeat the system prompt and tool results
    :param on_error: returns the browser's message for the exception that ended the run
    :param ping: idle seconds before a keep-alive comment is sent; None: no comments

    >>> import asyncio
    >>> from toolsemble import Agent
    >>> from toolsemble.testing import ScriptedModel
    >>> async def chunks():
    ...     return [chunk async for chunk in to_vercel(Agent(ScriptedModel(["Rome"])).stream("Where?"))]
    >>> asyncio.run(chunks())[-2:]
    ['data: {"type":"finish"}\n\n', 'data: [DONE]\n\n']
    """
    if version not in _VERSIONS:
        raise ValueError(f"to_vercel version must be 5, 6 or 7, the major version of the SDK, not {version!r:.80}")
    view = BrowserView(show_failures=show_failures, show_thoughts=show_thoughts)
    encoder = _VercelEncoder(view, has_reset=version >= _VERSION_WITH_RESET)
    return deliver(events, encoder, on_error, ping)


class _VercelEncoder:
    """Encodes the parts of the protocol."""

    def __init__(self, view: BrowserView, *, has_reset: bool) -> None:
        self._view = view
        self._has_reset = has_reset
        self._answer = TurnText()
        self._in_step = False
        self._part_kind = ""  # of the current part
        self._part_id = ""
        self._has_thoughts = False  # in a reply that may still restart
        self._writers: dict[str, Callable[[Any], Iterable[Any]]] = {
            "text_delta": lambda event: self._write_piece("text", event.text),
            "thought_delta": lambda event: self._write_piece("reasoning", self._view.view_thought(event)),
            "call_requested": lambda event: self._write_call(event.call, event.arguments),
            "call_replied": lambda event: self._write_reply(event.record),
            "model_retried": self._reset,
            "turn_ended": self._end_turn,
            "final": self._finish,
            "parked": self._stop,
            "interrupted": self._stop,
            "cancelled": self._stop,
            "prompt_progress": self._write_data,
            "call_progress": self._write_data,
            "review_requested": self._write_data,
            "review_decided": self._write_data,
        }

    def start(self) -> Iterable[Any]:
        return ({"type": "start", "messageId": new_id()},)

    def write(self, event: Event) -> Iterable[Any]:
        writer = self._writers.get(event.kind)
        return () if writer is None else writer(event)

    def fail(self, message: str) -> Iterable[Any]:
        yield from self._end_step()
        yield {"type": "error", "errorText": message}

    def end(self) -> Iterable[Any]:
        return ("[DONE]",)

    def _write_piece(self, kind: Literal["text", "reasoning"], text: str) -> Iterator[Any]:
        """Write a delta of a part; end a part of the other kind first."""
        if not text:
            return
        yield from self._start_step()
        if kind != self._part_kind:
            yield from self._end_part()
            self._part_kind, self._part_id = kind, new_id()
            yield {"type": f"{kind}-start", "id": self._part_id}
        self._has_thoughts = self._has_thoughts or kind == "reasoning"
        yield {"type": f"{kind}-delta", "id": self._part_id, "delta": text}

    def _end_part(self) -> Iterator[Any]:
        if self._part_kind:
            yield {"type": f"{self._part_kind}-end", "id": self._part_id}
            self._part_kind = ""

    def _end_reply(self) -> Iterator[Any]:
        """End the current part; the reply can no longer restart, or restarts now."""
        yield from self._end_part()
        self._has_thoughts = False

    def _write_call(self, call: ToolCall, arguments: dict[str, Any] | None) -> Iterator[Any]:
        yield from self._start_step()
        yield from self._end_reply()
        shown = self._view.request(call, arguments)
        yield _write_input(shown, shown.arguments)

    def _write_reply(self, record: ToolCallRecord) -> Iterator[Any]:
        call = self._view.answer(record.call)
        if call is None:  # answered without being run
            yield from self._write_call(record.call, record.reply.arguments)
            call = self._view.answer(record.call)
        assert call is not None  # noqa: S101 - it was requested above
        if (edited := find_edited(record)) is not None:
            yield _write_input(call, edited)  # replaces the input with the same id
        kind, name = ("error", "errorText") if record.reply.is_error else ("available", "output")
        yield {"type": f"tool-output-{kind}", "toolCallId": call.id, name: self._view.view_text(record)}

    def _reset(self, event: Any) -> Iterator[Any]:
        if event.discarded or self._has_thoughts:  # else there is nothing to discard, or a nested agent retries
            yield from self._end_reply()
            yield {"type": "reset-step"} if self._has_reset else self._data(event)

    def _end_turn(self, event: Any) -> Iterator[Any]:
        yield from self._end_step()
        self._answer.end_turn(event)

    def _finish(self, event: Any) -> Iterator[Any]:
        yield from self._write_piece("text", self._answer.find_missing(event))
        yield from self._end_step()
        result = view_result(event.result)
        if "output" in result or "pending" in result:
            yield {"type": "data-result", "data": result}
        yield {"type": "finish"}

    def _stop(self, event: Event) -> Iterator[Any]:
        """End a message without an answer; the part stays in it, so that a page can restore it."""
        yield from self._end_step()
        yield self._data(event)
        yield {"type": "finish"}

    def _write_data(self, event: Event) -> Iterator[Any]:
        yield {**self._data(event), "transient": True}

    def _data(self, event: Event) -> dict[str, Any]:
        data = self._view.write(event) or {}
        return {"type": "data-" + data.pop("kind").replace("_", "-"), "data": data}

    def _start_step(self) -> Iterator[Any]:
        if not self._in_step:
            self._in_step = True
            yield {"type": "start-step"}

    def _end_step(self) -> Iterator[Any]:
        yield from self._end_reply()
        if self._in_step:
            self._in_step = False
            yield {"type": "finish-step"}


def _write_input(call: ShownCall, arguments: Any) -> dict[str, Any]:
    return {"type": "tool-input-available", "toolCallId": call.id, "toolName": call.name, "input": arguments}
