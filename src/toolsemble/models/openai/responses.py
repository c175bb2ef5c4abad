"""OpenAI's responses: how they are asked for, and how they are read, as a whole or in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolsemble.call import ToolCall
from toolsemble.errors import ModelError
from toolsemble.models.chat import (
    ArgumentsDelta,
    CallDelta,
    ChatRequest,
    Chunk,
    StopReason,
    StreamEnd,
    TextDelta,
)
from toolsemble.models.message import AssistantMessage, Message, ToolMessage, UserMessage
from toolsemble.models.openai.failure import refusal_of
from toolsemble.models.openai.parts import (
    addressed,
    addressed_reply,
    answer_format,
    listed,
    offered,
    plain,
    silence,
    usage_of,
)
from toolsemble.providers.openai import write_reply
from toolsemble.providers.wire import data_url, field
from toolsemble.shape import escape_surrogates

_LONGEST_ID = 64
_REBUILT = {"message", "function_call"}
_REASONS: dict[str, StopReason] = {"max_output_tokens": "length", "content_filter": "refusal"}


def endpoint(client: Any) -> Any:
    """Give the method of an SDK's client that asks for a response."""
    return client.responses.create


def parameters(request: ChatRequest, origin: str, *, streamed: bool) -> dict[str, Any]:  # noqa: ARG001 - as for chat
    """Give what is sent for a request, without the model and the user's own settings.

    >>> parameters(ChatRequest([UserMessage("hello")]), "", streamed=False)
    {'input': [{'role': 'user', 'content': 'hello'}]}
    """
    keep = request.settings.get("store") is not False
    pairs = addressed(request.messages, _LONGEST_ID)
    items = [item for message, calls in pairs for item in _items(message, calls, origin, keep=keep)]
    sent: dict[str, Any] = {"input": items, **offered(request, "responses")}
    if request.output_schema is not None:
        sent["text"] = {"format": {"type": "json_schema", **answer_format(request.output_schema)}}
    return sent


def _items(message: Message, calls: list[ToolCall], origin: str, *, keep: bool) -> list[dict[str, Any]]:
    if isinstance(message, ToolMessage):
        return [_output(write_reply(addressed_reply(message.reply, calls[0]), "responses"))]
    if isinstance(message, AssistantMessage):
        return _assistant(message, calls, origin, keep=keep)
    if isinstance(message, UserMessage) and message.images:
        text = [{"type": "input_text", "text": escape_surrogates(message.text)}] if message.text else []
        images = [{"type": "input_image", "image_url": data_url(image), "detail": "auto"} for image in message.images]
        return [{"role": "user", "content": [*text, *images]}]
    return [{"role": message.role, "content": escape_surrogates(message.text)}]


def _output(item: dict[str, Any]) -> dict[str, Any]:
    output = item["output"]
    if isinstance(output, str):
        return {**item, "output": escape_surrogates(output)}
    return {
        **item,
        "output": [{**part, "text": escape_surrogates(part["text"])} if "text" in part else part for part in output],
    }


def _assistant(message: AssistantMessage, calls: list[ToolCall], origin: str, *, keep: bool) -> list[dict[str, Any]]:
    own = (message.details or {}).get(origin)
    items = list(listed(own.get("items"))) if isinstance(own, Mapping) else []
    while items and field(items[-1], "type") == "reasoning":
        items.pop()  # thoughts of which nothing came would be refused
    if items and _says(items, message.text, calls):
        return [dict(item) for item in items if keep or _is_whole(item)]
    text = [{"role": "assistant", "content": escape_surrogates(message.text)}] if message.text else []
    return [*text, *map(_function_call, calls)]


def _says(items: Sequence[Any], text: str, calls: list[ToolCall]) -> bool:
    """Whether items of an earlier response still are what the message says; a message may have been changed since."""
    known = [item for item in items if isinstance(item, Mapping)]
    functions = [_function_call(ToolCall.from_openai(item)) for item in known if item.get("type") == "function_call"]
    return len(known) == len(items) and functions == list(map(_function_call, calls)) and _text(known) == text


def _is_whole(item: Mapping[str, Any]) -> bool:
    """Whether a server that keeps nothing can make something of an item: of thoughts it needs the content."""
    return item.get("type") != "reasoning" or bool(item.get("encrypted_content") or item.get("content"))


def _function_call(call: ToolCall) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.json}


def _text(items: Sequence[Any]) -> str:
    """Give what the messages among items say, each on lines of its own."""
    said = ("".join(_texts(item)) for item in items if field(item, "type") == "message")
    return "\n".join(text for text in said if text)


def _texts(item: object) -> Iterator[str]:
    for part in listed(field(item, "content")):
        text = field(part, "text", "refusal")
        if isinstance(text, str):
            yield text


class Pieces:
    """Reads a response: event by event, or the whole at once."""

    def __init__(self, label: str, origin: str, *, streamed: bool) -> None:  # noqa: ARG002 - as for chat
        self._label = label
        self._origin = origin
        self._calls: dict[str, int] = {}
        self._argued: set[int] = set()
        self._spoke = self._parted = self._refused = False
        self._response: object = None

    def taken(self, event: object) -> Iterator[Chunk]:
        """Give what an event adds."""
        match field(event, "type"):
            case "response.output_text.delta":
                yield from self._said(field(event, "delta"))
            case "response.refusal.delta":
                self._refused = True
                yield from self._said(field(event, "delta"))
            case "response.function_call_arguments.delta":
                yield from self._argue(self._place(field(event, "item_id")), field(event, "delta"))
            case "response.output_item.added":
                yield from self._began(field(event, "item"), field(event, "output_index"))
            case "response.output_item.done":
                yield from self._called(field(event, "item"), field(event, "output_index"))
            case "response.completed" | "response.incomplete" | "response.failed":
                self._response = field(event, "response")
            case "error":
                raise refusal_of(event, self._label)
            case None if field(event, "object") == "response":
                self._response = event

    def ended(self) -> Iterator[Chunk]:
        """Give what was not told in pieces, or raise what is wrong with the response."""
        if self._response is None:
            raise ModelError(f"{self._label} stopped in the middle of the answer", retryable=True)
        items = listed(field(self._response, "output"))
        self._check(items)
        if not self._spoke:
            yield from self._said(_text(items))
        told = bool(self._calls)
        for place, item in enumerate(items):
            if not told or _key(item, place) in self._calls:
                yield from self._called(item, place)
        reason = self._stop_reason(items)
        if not self._calls and not self._spoke and reason in {"length", "refusal"}:
            raise ModelError(silence(self._label, reason))
        yield StreamEnd(usage_of(field(self._response, "usage")), reason, self._details(items))

    def _said(self, text: object) -> Iterator[Chunk]:
        if isinstance(text, str) and text:
            yield TextDelta(f"\n{text}" if self._parted and self._spoke else text)
            self._spoke, self._parted = True, False

    def _began(self, item: object, place: object) -> Iterator[Chunk]:
        """Take the beginning of an item."""
        kind, key = field(item, "type"), _key(item, place)
        self._parted = self._parted or kind == "message"
        if kind == "function_call" and key not in self._calls:
            index = self._calls[key] = len(self._calls)
            name, own = field(item, "name"), field(item, "call_id")
            yield CallDelta(index, str(name or ""), None if own is None else str(own))

    def _called(self, item: object, place: object) -> Iterator[Chunk]:
        """Take a whole item; of a call, everything may be known already."""
        if field(item, "type") == "function_call":
            yield from self._began(item, place)
            index = self._calls[_key(item, place)]
            if index not in self._argued:
                yield from self._argue(index, ToolCall.from_openai(plain(item)).json)

    def _argue(self, index: int, text: object) -> Iterator[Chunk]:
        if isinstance(text, str) and text and index >= 0:
            self._argued.add(index)
            yield ArgumentsDelta(index, text)

    def _place(self, key: object) -> int:
        """Give the call that a piece belongs to: the last one, unless it says which; below 0 when there is none."""
        return self._calls.get(str(key), len(self._calls) - 1)

    def _check(self, items: Sequence[Any]) -> None:
        status, error = field(self._response, "status"), field(self._response, "error")
        if error:
            raise refusal_of(error, self._label)
        if not items and status not in {None, "completed", "incomplete"}:
            raise ModelError(f"{self._label} gave a response that is {status!r:.40}, without an answer in it")

    def _stop_reason(self, items: Sequence[Any]) -> StopReason:
        parts = (part for item in items for part in listed(field(item, "content")))
        if self._refused or any(field(part, "type") == "refusal" for part in parts):
            return "refusal"
        if field(self._response, "status") == "incomplete":
            return _REASONS.get(str(field(field(self._response, "incomplete_details"), "reason")), "other")
        return "calls" if self._calls else "stop"

    def _details(self, items: Sequence[Any]) -> dict[str, Any] | None:
        """Give the items, when there is more in them than text and calls."""
        if any(field(item, "type") not in _REBUILT or field(item, "phase") for item in items):
            return {self._origin: {"items": [plain(item) for item in items]}}
        return None


def _key(item: object, place: object) -> str:
    """Give what tells an item from the others of its response."""
    return str(field(item, "id", "call_id") or f"#{place}")
