"""OpenAI's chat completions: how they are asked for, and how they are read, as a whole or in pieces."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from toolsemble.call import ToolCall
from toolsemble.errors import ModelError
from toolsemble.models.chat import (
    NO_TOKENS,
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
    text_of,
    usage_of,
)
from toolsemble.providers.openai import write_reply
from toolsemble.providers.wire import data_url, field
from toolsemble.shape import escape_surrogates

_LONGEST_ID = 40
_REASONS: dict[str, StopReason] = {
    "stop": "stop",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "content_filter": "refusal",
}
# What servers beside OpenAI want back, so that a model can go on with its thoughts.
_THOUGHTS = ("reasoning_content", "reasoning_details")


def endpoint(client: Any) -> Any:
    """Give the method of an SDK's client that asks for a completion."""
    return client.chat.completions.create


def parameters(request: ChatRequest, origin: str, *, streamed: bool) -> dict[str, Any]:
    """Give what is sent for a request, without the model and the user's own settings.

    >>> parameters(ChatRequest([UserMessage("hello")]), "", streamed=False)
    {'messages': [{'role': 'user', 'content': 'hello'}]}
    """
    pairs = addressed(request.messages, _LONGEST_ID)
    said = [_message(message, calls, origin) for message, calls in pairs if not _is_empty(message)]
    sent: dict[str, Any] = {"messages": said, **offered(request, "chat")}
    if request.output_schema is not None:
        sent["response_format"] = {"type": "json_schema", "json_schema": answer_format(request.output_schema)}
    if streamed:
        sent["stream_options"] = {"include_usage": True}
    return sent


def _is_empty(message: Message) -> bool:
    """Whether a model said nothing at all, which many servers refuse to hear of."""
    return isinstance(message, AssistantMessage) and not message.text and not message.calls


def _message(message: Message, calls: list[ToolCall], origin: str) -> dict[str, Any]:
    if isinstance(message, ToolMessage):
        written = write_reply(addressed_reply(message.reply, calls[0]))
        return {**written, "content": escape_surrogates(written["content"])}
    if isinstance(message, AssistantMessage):
        return _assistant(message, calls, origin)
    if isinstance(message, UserMessage) and message.images:
        text = [{"type": "text", "text": escape_surrogates(message.text)}] if message.text else []
        images = [{"type": "image_url", "image_url": {"url": data_url(image)}} for image in message.images]
        return {"role": "user", "content": [*text, *images]}
    return {"role": message.role, "content": escape_surrogates(message.text)}


def _assistant(message: AssistantMessage, calls: list[ToolCall], origin: str) -> dict[str, Any]:
    own = (message.details or {}).get(origin)
    thoughts = {name: own[name] for name in _THOUGHTS if name in own} if isinstance(own, Mapping) else {}
    text = escape_surrogates(message.text)
    written = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.json}} for call in calls
    ]
    # Only beside calls may the text be missing.
    content = (text or None) if calls else text
    return {"role": "assistant", "content": content, **({"tool_calls": written} if calls else {}), **thoughts}


class _Call:
    """A call whose name may come after its beginning, as some servers do it."""

    def __init__(self, index: int, id: str | None) -> None:
        self.index = index
        self.id = id
        self.name = ""
        self._early: list[str] = []

    def named(self, name: str) -> Iterator[Chunk]:
        """Begin, once there is a name."""
        self.name = name
        yield CallDelta(self.index, name, self.id)
        yield from (ArgumentsDelta(self.index, piece) for piece in self._early)

    def argued(self, piece: str) -> Iterator[Chunk]:
        """Take a piece of the arguments."""
        if self.name:
            yield ArgumentsDelta(self.index, piece)
        else:
            self._early.append(piece)


class Pieces:
    """Reads a completion: piece by piece, or the whole as one piece.

    Servers that speak OpenAI's format differ in what they leave out, and none of it is needed here: ids, indices,
    names after the first piece, numbers of tokens, the reason for the end of a call.
    """

    def __init__(self, label: str, origin: str, *, streamed: bool) -> None:
        self._label = label
        self._origin = origin
        self._streamed = streamed
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._thoughts: list[str] = []
        self._signed: list[Any] = []
        self._usage = NO_TOKENS
        self._reason: str | None = None
        self._spoke = self._refused = self._answered = False

    def taken(self, piece: object) -> Iterator[Chunk]:
        """Give what a piece adds."""
        if field(piece, "error"):
            raise refusal_of(field(piece, "error"), self._label)
        usage = field(piece, "usage")
        self._usage = self._usage if usage is None else usage_of(usage)
        for choice in listed(field(piece, "choices")):
            if field(choice, "index"):
                continue  # a further answer to the same question, which nobody asked for
            self._answered = True
            reason = field(choice, "finish_reason")
            self._reason = str(reason) if reason else self._reason
            yield from self._said(field(choice, "delta", "message"))

    def ended(self) -> Iterator[Chunk]:
        """Give what remains to be said at the end, or raise what is wrong with it."""
        if not self._answered:
            raise ModelError(f"{self._label} answered without any choices", retryable=self._streamed)
        if self._streamed and self._reason is None:
            raise ModelError(f"{self._label} stopped in the middle of the answer", retryable=True)
        for call in self._calls:
            if not call.name:
                yield from call.named("")  # whoever looks for the tool will tell the model that there is none
        reason = self._stop_reason()
        if not self._calls and not self._spoke and reason in {"length", "refusal"}:
            raise ModelError(silence(self._label, reason))
        yield StreamEnd(self._usage, reason, self._details())

    def _stop_reason(self) -> StopReason:
        reason = "stop" if self._reason is None else _REASONS.get(self._reason, "other")
        if self._refused:
            return "refusal"
        return "calls" if self._calls and reason in {"stop", "other"} else reason

    def _said(self, delta: object) -> Iterator[Chunk]:
        for name, text in (("content", text_of(field(delta, "content"))), ("refusal", field(delta, "refusal"))):
            if isinstance(text, str) and text:
                self._spoke = True
                self._refused = self._refused or name == "refusal"
                yield TextDelta(text)
        for call in listed(field(delta, "tool_calls")):
            yield from self._called(call)
        self._think(delta)

    def _called(self, piece: object) -> Iterator[Chunk]:
        function, own = field(piece, "function", "custom"), field(piece, "id")
        name, arguments = str(field(function, "name") or ""), field(function, "arguments", "input")
        call = self._call(field(piece, "index"), None if own is None else str(own), name)
        if name and not call.name:
            yield from call.named(name)
        if arguments:
            yield from call.argued(arguments if isinstance(arguments, str) else json.dumps(plain(arguments)))

    def _call(self, index: object, id: str | None, name: str) -> _Call:
        """Give the call that a piece belongs to, be it a new one."""
        place = index if isinstance(index, int) else None
        call = self._continued(place, id, name) if self._streamed else None
        if call is None:
            call = _Call(len(self._calls), id or None)
            self._calls.append(call)
        if place is not None:
            self._by_index[place] = call
        if id:
            self._by_id[id] = call
        return call

    def _continued(self, index: int | None, id: str | None, name: str) -> _Call | None:
        """Give the call that a piece goes on with; None when it begins one.

        Several servers give every call the same index or none, others every call the same id or none. A piece that
        says nothing of itself belongs to the call before it.
        """
        known = self._by_id.get(id) if id else None
        current = self._by_index.get(index) if index is not None else None
        if known is not None and (known is current or index is None or not name):
            return known
        if current is not None:
            begins = bool(name and current.name) and (bool(id) or name != current.name)
            return None if begins else current
        return None if id or name or not self._calls else self._calls[-1]

    def _think(self, delta: object) -> None:
        """Keep a piece of what the server wants back."""
        text = field(delta, "reasoning_content")
        if isinstance(text, str) and text:
            self._thoughts.append(text)
        self._signed += map(plain, listed(field(delta, "reasoning_details")))

    def _details(self) -> dict[str, Any] | None:
        thoughts = {"reasoning_content": "".join(self._thoughts), "reasoning_details": self._signed}
        said = {name: value for name, value in thoughts.items() if value}
        return {self._origin: said} if said else None
