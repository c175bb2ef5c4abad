"""AG-UI: its requests as runs, and runs as its events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any

from toolsemble._vocabulary.call import ToolCall, new_id
from toolsemble._vocabulary.result import AudioContent, FileContent, ImageContent, Media, ToolResult
from toolsemble.agent._event import Event, RunParked
from toolsemble.agent._result import ToolCallRecord
from toolsemble.agent.streams import _ui_request as requests
from toolsemble.agent.streams._browser_view import BrowserView, ShownCall, TurnText, find_edited, view_result
from toolsemble.agent.streams._delivery import PING, deliver
from toolsemble.models._adapter import history_reader as provider_history
from toolsemble.models._adapter.wire import field
from toolsemble.models._message import AssistantMessage, SystemMessage, UserMessage

_KINDS: dict[str, type] = {"image": ImageContent, "audio": AudioContent, "document": FileContent}
_NAMES = {"image": "an image", "audio": "audio", "document": "a document"}


def read_ag_ui(body: object, *, system: bool = False) -> requests.UiRequest:
    """Return the request of an AG-UI client, a ``RunAgentInput``; raise ``ValueError`` if it is not one.

    Calls without a result, from a run that the client disconnected from, count as failed. The client's tools are not
    offered to the model. Images, audio and documents are inline, or at URLs of public hosts, which the provider
    fetches.

    :param body: JSON text, a mapping, or a ``RunAgentInput`` of the package ``ag-ui-protocol``
    :param system: whether the client's system and developer messages are kept; by default they are dropped, since
        any client could override the model's instructions

    >>> message = {"id": "m1", "role": "user", "content": "Where is Rome?"}
    >>> read_ag_ui({"threadId": "t1", "runId": "r1", "messages": [message]}).prompt.text
    'Where is Rome?'
    >>> read_ag_ui({"threadId": "t1", "runId": "r1", "messages": [{"role": "user", "content": 7}]})
    Traceback (most recent call last):
    ...
    ValueError: messages[0].content: expected a str or a list, got 7
    """
    values = requests.load_body(body)
    thread_id, run_id = requests.read_id(values, "threadId"), requests.read_id(values, "runId")
    messages = requests.read_messages(values)
    reader = provider_history.HistoryReader(answer_open_calls=True)
    for place, message in messages:
        _read_message(reader, place, message, system=system)
    prompt, history = requests.split_prompt(reader)
    return requests.UiRequest(thread_id, prompt, history, run_id, tuple(message for _, message in messages), values)


def _read_message(
    reader: provider_history.HistoryReader, place: str, message: Mapping[str, Any], *, system: bool
) -> None:
    content = message.get("content")
    match message.get("role"):
        case "user":
            reader.add(place, _read_user(content, f"{place}.content"))
        case "assistant":
            reader.add(place, _read_assistant(message, place))
        case "tool":
            call_id = provider_history.read_text(message.get("toolCallId"), f"{place}.toolCallId")
            reader.add_reply(place, call_id, _read_result(message, place))
        case "system" | "developer":
            if system:
                reader.add(place, SystemMessage(provider_history.read_text(content, f"{place}.content")))
        case "reasoning" | "activity":
            pass  # for display only
        case role:
            raise ValueError(f"{place}.role: expected user, assistant, tool, system or developer, got {role!r:.80}")


def _read_user(content: object, place: str) -> UserMessage:
    if isinstance(content, str):
        return UserMessage(content)
    texts: list[str] = []
    contents: list[Media] = []
    for where, part in provider_history.iterate_items(content, place, "a str or a list"):
        match field(part, "type"):
            case "text":
                texts.append(provider_history.read_text(field(part, "text"), f"{where}.text"))
            case "image" | "audio" | "document" as kind:
                contents.append(_read_source(field(part, "source"), kind, f"{where}.source"))
            case "binary":
                contents.append(_read_binary(part, where))
            case _:
                raise provider_history.unsupported(where, part, "a text, an image, audio or a document")
    return UserMessage("\n".join(texts), tuple(contents))


def _read_source(source: object, kind: str, place: str) -> Media:
    """Return an attachment of its part's kind."""
    value, media_type = field(source, "value"), field(source, "mimeType")
    match field(source, "type"):
        case "data":
            found = requests.read_attachment_data(value, media_type, None, place)
        case "url":
            found = requests.read_attachment_url(value, media_type, None, place)
        case _:
            raise provider_history.unsupported(place, source, "a source of the type data or url")
    if not isinstance(found, _KINDS[kind]):
        raise ValueError(f"{place}: expected the media type of {_NAMES[kind]}, got {found.mime_type!r:.80}")
    return found


def _read_binary(part: object, place: str) -> Media:
    """Return an attachment of an older client, inline or at a URL; earlier uploads are not supported."""
    url, data = field(part, "url"), field(part, "data")
    details = field(part, "mimeType"), field(part, "filename"), place
    if data is not None:
        return requests.read_attachment_data(data, *details)
    if url is not None:
        return requests.read_attachment_url(url, *details)
    raise ValueError(f"{place}: expected data or a url, got {provider_history.describe(part)}")


def _read_assistant(message: Mapping[str, Any], place: str) -> AssistantMessage:
    content, sources = message.get("content"), message.get("toolCalls")
    text = "" if content is None else provider_history.read_text(content, f"{place}.content")
    items = [] if sources is None else list(provider_history.iterate_items(sources, f"{place}.toolCalls"))
    return AssistantMessage(
        text, tuple(provider_history.read_call(ToolCall.from_openai, each, where) for where, each in items)
    )


def _read_result(message: Mapping[str, Any], place: str) -> ToolResult:
    error = message.get("error")
    if error is not None:
        return ToolResult.failure(provider_history.read_text(error, f"{place}.error"))
    return provider_history.make_result(provider_history.read_text(message.get("content"), f"{place}.content"))


def to_ag_ui(
    events: AsyncIterator[Event],
    request: requests.UiRequest,
    *,
    show_failures: bool = False,
    show_thoughts: bool = False,
    on_error: Callable[[Exception], str] | None = None,
    ping: float | None = PING,
) -> AsyncGenerator[str, None]:
    """Yield the events of a run in the AG-UI protocol, for a response with :data:`SSE_HEADERS`.

    Text, calls, results and thoughts are the events of the protocol; progress and questions to a reviewer are
    ``CUSTOM`` events.
    When a reply breaks off and restarts, a ``MESSAGES_SNAPSHOT`` without it replaces the client's messages. Errors
    and disconnects are handled as in :func:`sse`.

    :param request: the request of :func:`read_ag_ui`
    :param show_failures: whether the texts of failed calls are shown
    :param show_thoughts: whether the model's reasoning is shown; it may repeat the system prompt and tool results
    :param on_error: returns the browser's message for the exception that ended the run
    :param ping: idle seconds before a keep-alive comment is sent; None: no comments

    >>> import asyncio, json
    >>> from toolsemble import Agent
    >>> from toolsemble.agent.streams import read_ag_ui
    >>> from toolsemble.testing import ScriptedModel
    >>> request = read_ag_ui({"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "?"}]})
    >>> async def chunks():
    ...     agent = Agent(ScriptedModel(["Rome"]))
    ...     return [chunk async for chunk in to_ag_ui(agent.stream(request.prompt), request)]
    >>> [json.loads(chunk.removeprefix("data: "))["type"] for chunk in asyncio.run(chunks())][:3]
    ['RUN_STARTED', 'TEXT_MESSAGE_START', 'TEXT_MESSAGE_CONTENT']
    """
    if not isinstance(request, requests.UiRequest):
        raise TypeError(f"to_ag_ui takes the UiRequest that read_ag_ui returns, not {request!r:.80}")
    view = BrowserView(show_failures=show_failures, show_thoughts=show_thoughts)
    return deliver(events, _AgUiEncoder(request, view), on_error, ping)


class _AgUiEncoder:
    """Encodes events in the AG-UI protocol."""

    def __init__(self, request: requests.UiRequest, view: BrowserView) -> None:
        self._ids = {"threadId": request.thread_id, "runId": request.run_id}
        self._view = view
        self._answer = TurnText()
        self._messages = [dict(message) for message in request.messages]  # the client's copy, for a snapshot
        self._turn: dict[str, Any] = {}  # the assistant's message of this turn
        self._is_writing = False
        self._thought: dict[str, Any] = {}  # the current reasoning message
        self._thoughts: list[dict[str, Any]] = []  # of a reply that may still restart
        self._writers: dict[str, Callable[[Any], Iterable[Any]]] = {
            "text_delta": lambda event: self._write_text(event.text),
            "thought_delta": lambda event: self._write_thought(self._view.view_thought(event)),
            "call_requested": lambda event: self._write_call(event.call, event.arguments),
            "call_replied": lambda event: self._write_reply(event.record),
            "model_retried": lambda event: self._reset(event.discarded),
            "turn_ended": self._end_turn,
            "final": self._finish,
            "parked": self._stop,
            "interrupted": self._stop,
            "cancelled": self._stop,
            "prompt_progress": self._write_custom,
            "call_progress": self._write_custom,
            "review_requested": self._write_custom,
            "review_decided": self._write_custom,
        }

    def start(self) -> Iterable[Any]:
        return ({"type": "RUN_STARTED", **self._ids},)

    def write(self, event: Event) -> Iterable[Any]:
        writer = self._writers.get(event.kind)
        return () if writer is None else writer(event)

    def fail(self, message: str) -> Iterable[Any]:
        yield from self._end_reply()
        yield {"type": "RUN_ERROR", "message": message}

    def end(self) -> Iterable[Any]:
        return ()

    def _write_text(self, text: str) -> Iterator[Any]:
        if not text:
            return  # the protocol has no empty deltas
        yield from self._end_thought()
        message = self._open_turn()
        if not self._is_writing:
            self._is_writing = True
            yield {"type": "TEXT_MESSAGE_START", "messageId": message["id"], "role": "assistant"}
        message["content"] = message.get("content", "") + text
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": message["id"], "delta": text}

    def _end_text(self) -> Iterator[Any]:
        if self._is_writing:
            self._is_writing = False
            yield {"type": "TEXT_MESSAGE_END", "messageId": self._turn["id"]}

    def _write_thought(self, text: str) -> Iterator[Any]:
        if not text:
            return
        if not self._thought:
            self._thought = {"id": new_id(), "role": "reasoning", "content": ""}
            self._thoughts.append(self._thought)
            self._messages.append(self._thought)
            yield {"type": "REASONING_START", "messageId": self._thought["id"]}
            yield {"type": "REASONING_MESSAGE_START", "messageId": self._thought["id"], "role": "reasoning"}
        self._thought["content"] += text
        yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": self._thought["id"], "delta": text}

    def _end_thought(self) -> Iterator[Any]:
        if self._thought:
            yield {"type": "REASONING_MESSAGE_END", "messageId": self._thought["id"]}
            yield {"type": "REASONING_END", "messageId": self._thought["id"]}
            self._thought = {}

    def _end_reply(self) -> Iterator[Any]:
        yield from self._end_thought()
        yield from self._end_text()

    def _write_call(self, call: ToolCall, arguments: dict[str, Any] | None) -> Iterator[Any]:
        yield from self._end_reply()
        self._thoughts = []
        message, shown = self._open_turn(), self._view.request(call, arguments)
        text = call.json if arguments is None else shown.text
        function = {"name": call.name, "arguments": text}
        message.setdefault("toolCalls", []).append({"id": shown.id, "type": "function", "function": function})
        parent = {"parentMessageId": message["id"]}
        yield {"type": "TOOL_CALL_START", "toolCallId": shown.id, "toolCallName": call.name, **parent}
        if text:
            yield {"type": "TOOL_CALL_ARGS", "toolCallId": shown.id, "delta": text}
        yield {"type": "TOOL_CALL_END", "toolCallId": shown.id}

    def _write_reply(self, record: ToolCallRecord) -> Iterator[Any]:
        call = self._view.answer(record.call)
        if call is None:  # answered without being run
            yield from self._write_call(record.call, record.reply.arguments)
            call = self._view.answer(record.call)
        assert call is not None  # noqa: S101 - it was requested above
        if (edited := find_edited(record)) is not None:
            yield self._replace_arguments(call._replace(arguments=edited))
        message = {"id": new_id(), "role": "tool", "toolCallId": call.id, "content": self._view.view_text(record)}
        self._messages.append(message)
        rest = {name: value for name, value in message.items() if name != "id"}
        yield {"type": "TOOL_CALL_RESULT", "messageId": message["id"], **rest}

    def _replace_arguments(self, call: ShownCall) -> dict[str, Any]:
        """Return a snapshot of the messages with a call's edited arguments: a sent call cannot be changed."""
        function = {"name": call.name, "arguments": call.text}
        calls = [{**each, "function": function} if each["id"] == call.id else each for each in self._turn["toolCalls"]]
        self._turn["toolCalls"] = calls
        return self._take_snapshot()

    def _take_snapshot(self) -> dict[str, Any]:
        return {"type": "MESSAGES_SNAPSHOT", "messages": [dict(message) for message in self._messages]}

    def _reset(self, discarded: str) -> Iterator[Any]:
        """Remove the messages of this turn, which has no calls yet; if there are none, a nested agent retries."""
        removed = [*self._thoughts, *([self._turn] if discarded else [])]
        if removed:
            yield from self._end_reply()
            self._messages = [message for message in self._messages if message not in removed]
            self._turn, self._thoughts = {}, []
            yield self._take_snapshot()

    def _end_turn(self, event: Any) -> Iterator[Any]:
        yield from self._end_reply()
        self._answer.end_turn(event)
        self._turn, self._thoughts = {}, []

    def _finish(self, event: Any) -> Iterator[Any]:
        yield from self._write_text(self._answer.find_missing(event))
        yield from self._end_reply()
        yield {"type": "RUN_FINISHED", **self._ids, "result": view_result(event.result)}

    def _stop(self, event: Event) -> Iterator[Any]:
        """End a run without an answer; clients without support for outcomes read the custom event."""
        yield from self._end_reply()
        yield from self._write_custom(event)
        outcome: dict[str, Any] = {"type": "cancelled"}  # the protocol's term for a run that was stopped, not failed
        if isinstance(event, RunParked):
            outcome = {"type": "interrupt", "interrupts": self._list_interrupts(event)}
        yield {"type": "RUN_FINISHED", **self._ids, "outcome": outcome, "result": {"stop_reason": event.kind}}

    def _list_interrupts(self, event: RunParked) -> list[dict[str, Any]]:
        """Return the interrupts that a run waits for: approvals, or an operator who settles a call."""
        shown = self._view.write(event) or {}
        asked = [
            {"id": each["id"], "reason": "tool_call", "message": each["description"], "toolCallId": each["call_id"]}
            for each in shown["pending"]
        ]
        return asked or [{"id": event.run_id, "reason": "unknown_outcome"}]

    def _write_custom(self, event: Event) -> Iterator[Any]:
        value = self._view.write(event) or {}
        yield {"type": "CUSTOM", "name": value.pop("kind"), "value": value}

    def _open_turn(self) -> dict[str, Any]:
        if not self._turn:
            self._turn = {"id": new_id(), "role": "assistant"}
            self._messages.append(self._turn)
        return self._turn
