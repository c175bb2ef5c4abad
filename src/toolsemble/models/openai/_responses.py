"""OpenAI's responses: the parameters of a request, and the reader of whole and streamed replies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolsemble._runtime.text import escape_surrogates
from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.errors import ModelError
from toolsemble.models import _chat as chat
from toolsemble.models._adapter.dialect import require_level
from toolsemble.models._adapter.errors import StopReasons, cut_off_error
from toolsemble.models._adapter.replies import read_usage
from toolsemble.models._adapter.wire import as_list, field
from toolsemble.models._message import AssistantMessage, Message, ToolMessage, UserMessage
from toolsemble.models.openai._parts import (
    pair_with_calls,
    to_json_values,
    write_answer_format,
    write_tool_parameters,
)
from toolsemble.models.openai._site import error_from_body
from toolsemble.models.openai._wire import write_prompt, write_reply

_MAX_ID = 64
_REBUILT = {"message", "function_call"}
_REASONS: dict[str, chat.StopReason] = {"stop": "stop", "max_output_tokens": "length", "content_filter": "refusal"}


def write_parameters(request: chat.ChatRequest, origin: str, *, streamed: bool) -> dict[str, Any]:  # noqa: ARG001 - as in chat
    """Return the parameters of a request, without the model and the user's settings.

    >>> write_parameters(chat.ChatRequest([UserMessage("hello")]), "", streamed=False)
    {'input': [{'role': 'user', 'content': 'hello'}]}
    """
    keep = request.settings.get("store") is not False
    pairs = pair_with_calls(request.messages, _MAX_ID)
    items = [item for message, calls in pairs for item in _write_items(message, calls, origin, keep=keep)]
    sent: dict[str, Any] = {"input": items, **write_tool_parameters(request, "responses")}
    if request.output_schema is not None:
        sent["text"] = {"format": {"type": "json_schema", **write_answer_format(request.output_schema)}}
    if request.reasoning is not None:
        sent["reasoning"] = {"effort": require_level(request.reasoning, "OpenAI"), "summary": "auto"}
    return sent


def _write_items(message: Message, calls: list[ToolCall], origin: str, *, keep: bool) -> list[dict[str, Any]]:
    if isinstance(message, ToolMessage):
        return [_clean_output(write_reply(replace(message.reply, call=calls[0]), "responses"))]
    if isinstance(message, AssistantMessage):
        return _write_answer(message, calls, origin, keep=keep)
    if isinstance(message, UserMessage):
        return [
            {"role": "user", "content": write_prompt(escape_surrogates(message.text), message.contents, "responses")}
        ]
    return [{"role": message.role, "content": escape_surrogates(message.text)}]


def _clean_output(item: dict[str, Any]) -> dict[str, Any]:
    output = item["output"]
    if isinstance(output, str):
        return {**item, "output": escape_surrogates(output)}
    return {
        **item,
        "output": [{**part, "text": escape_surrogates(part["text"])} if "text" in part else part for part in output],
    }


def _write_answer(message: AssistantMessage, calls: list[ToolCall], origin: str, *, keep: bool) -> list[dict[str, Any]]:
    own = (message.details or {}).get(origin)
    items = list(as_list(own.get("items"))) if isinstance(own, Mapping) else []
    while items and field(items[-1], "type") == "reasoning":
        items.pop()  # the API rejects trailing reasoning
    if items and _matches(items, message.text, calls):
        return [dict(item) for item in items if keep or _is_usable(item)]
    text = [{"role": "assistant", "content": escape_surrogates(message.text)}] if message.text else []
    return [*text, *map(_function_call, calls)]


def _matches(items: Sequence[Any], text: str, calls: list[ToolCall]) -> bool:
    """Return whether stored items still match the message, which may have been edited since."""
    known = [item for item in items if isinstance(item, Mapping)]
    functions = [_function_call(ToolCall.from_openai(item)) for item in known if item.get("type") == "function_call"]
    return len(known) == len(items) and functions == list(map(_function_call, calls)) and _join_messages(known) == text


def _is_usable(item: Mapping[str, Any]) -> bool:
    """Return whether an item is usable by a stateless server, for which reasoning needs its content."""
    return item.get("type") != "reasoning" or bool(item.get("encrypted_content") or item.get("content"))


def _function_call(call: ToolCall) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.json}


def _join_messages(items: Sequence[Any]) -> str:
    """Return the text of the messages among items, joined by newlines."""
    texts = ("".join(_iterate_texts(item)) for item in items if field(item, "type") == "message")
    return "\n".join(text for text in texts if text)


def _iterate_texts(item: object) -> Iterator[str]:
    for part in as_list(field(item, "content")):
        text = field(part, "text", "refusal")
        if isinstance(text, str):
            yield text


class ReplyReader:
    """A reader of responses, streamed or whole."""

    def __init__(self, label: str, origin: str, *, streamed: bool) -> None:
        self._label = label
        self._origin = origin
        self._calls: dict[str, int] = {}
        self._with_arguments: set[int] = set()
        self._has_text = self._needs_newline = self._refused = False
        self._response: object = None

    def read(self, event: object) -> Iterator[chat.Chunk]:
        """Yield the chunks of an event, or store a whole response."""
        match field(event, "type"):
            case "response.output_text.delta":
                yield from self._read_text(field(event, "delta"))
            case "response.refusal.delta":
                self._refused = True
                yield from self._read_text(field(event, "delta"))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                yield from _read_thought(field(event, "delta"))
            case "response.function_call_arguments.delta":
                # An unknown item belongs to the last call; -1 if there is none.
                index = self._calls.get(str(field(event, "item_id")), len(self._calls) - 1)
                yield from self._read_arguments(index, field(event, "delta"))
            case "response.output_item.added":
                yield from self._read_start(field(event, "item"), field(event, "output_index"))
            case "response.output_item.done":
                yield from self._read_item(field(event, "item"), field(event, "output_index"))
            case "response.completed" | "response.incomplete" | "response.failed":
                self._response = field(event, "response")
            case "error":
                raise error_from_body(event, self._label)
            case None if field(event, "object") == "response":
                self._response = event

    def finish(self) -> Iterator[chat.Chunk]:
        """Yield the remaining chunks; raise a ``ModelError`` if the response failed or is empty."""
        if self._response is None:
            raise cut_off_error(self._label)
        items = as_list(field(self._response, "output"))
        self._check(items)
        if not self._has_text:
            yield from self._read_text(_join_messages(items))
        streamed = bool(self._calls)
        for place, item in enumerate(items):
            if not streamed or _key(item, place) in self._calls:
                yield from self._read_item(item, place)
        stop = self._stop_reason(items)
        yield chat.StreamEnd(read_usage(field(self._response, "usage")), stop, self._details(items))

    def _read_text(self, text: object) -> Iterator[chat.Chunk]:
        if isinstance(text, str) and text:
            yield chat.TextDelta(f"\n{text}" if self._needs_newline and self._has_text else text)
            self._has_text, self._needs_newline = True, False

    def _read_start(self, item: object, place: object) -> Iterator[chat.Chunk]:
        """Read the start of an item."""
        kind, key = field(item, "type"), _key(item, place)
        self._needs_newline = self._needs_newline or kind == "message"
        if kind == "function_call" and key not in self._calls:
            index = self._calls[key] = len(self._calls)
            name, own = field(item, "name"), field(item, "call_id")
            yield chat.CallDelta(index, str(name or ""), None if own is None else str(own))

    def _read_item(self, item: object, place: object) -> Iterator[chat.Chunk]:
        """Read a whole item; a call may have been streamed already."""
        if field(item, "type") == "function_call":
            yield from self._read_start(item, place)
            index = self._calls[_key(item, place)]
            if index not in self._with_arguments:
                yield from self._read_arguments(index, ToolCall.from_openai(to_json_values(item)).json)

    def _read_arguments(self, index: int, text: object) -> Iterator[chat.Chunk]:
        if isinstance(text, str) and text and index >= 0:
            self._with_arguments.add(index)
            yield chat.ArgumentsDelta(index, text)

    def _check(self, items: Sequence[Any]) -> None:
        status, error = field(self._response, "status"), field(self._response, "error")
        if error:
            raise error_from_body(error, self._label)
        if not items and status not in {None, "completed", "incomplete"}:
            raise ModelError(f"{self._label} returned a response with status {status!r:.40} and no answer")

    def _stop_reason(self, items: Sequence[Any]) -> chat.StopReason:
        is_cut = field(self._response, "status") == "incomplete"
        reason = str(field(field(self._response, "incomplete_details"), "reason")) if is_cut else "stop"
        reasons = StopReasons(self._label, _REASONS, may_be_empty=True)
        stop = reasons.read(reason, has_calls=bool(self._calls), has_text=self._has_text)
        parts = (part for item in items for part in as_list(field(item, "content")))
        is_refused = self._refused or any(field(part, "type") == "refusal" for part in parts)
        return "refusal" if is_refused else stop

    def _details(self, items: Sequence[Any]) -> dict[str, Any] | None:
        """Return the items if they contain more than text and calls."""
        if any(field(item, "type") not in _REBUILT or field(item, "phase") for item in items):
            return {self._origin: {"items": [to_json_values(item) for item in items]}}
        return None


def _read_thought(text: object) -> Iterator[chat.Chunk]:
    if isinstance(text, str) and text:
        yield chat.ThoughtDelta(text)


def _key(item: object, place: object) -> str:
    """Return a key that is unique among the items of a response."""
    return str(field(item, "id", "call_id") or f"#{place}")
