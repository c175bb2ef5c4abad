"""An answer of Anthropic's, whole or event by event: the same pieces come out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolsemble.call import ToolCall
from toolsemble.errors import ModelError
from toolsemble.models.adapter.kept import Block, grow, kept, settle
from toolsemble.models.anthropic.messages import PROVIDER
from toolsemble.models.chat import ArgumentsDelta, CallDelta, Chunk, StopReason, StreamEnd, TextDelta, TokenUsage
from toolsemble.runtime.text import preview

_STOPS: dict[object, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


@dataclass(slots=True)
class _Part:
    """A block that may still grow."""

    block: Block
    """The block, as it is so far."""
    number: int | None = None
    """Which call of the answer it is; None when it is no call."""
    json: list[str] = field(default_factory=list)
    """The pieces of the text of its input, as far as it came in pieces."""


class Reading:
    """Reads one answer; it comes in several messages when the model pauses for Anthropic's own tools.

    >>> reading = Reading()
    >>> list(reading.message({"content": [{"type": "text", "text": "Rome"}], "stop_reason": "end_turn"}))
    [TextDelta(text='Rome')]
    >>> reading.end().stop_reason
    'stop'
    """

    def __init__(self) -> None:
        self._done: list[_Part] = []
        self._parts: dict[int | None, _Part] = {}
        self._calls = 0
        self._before = TokenUsage()
        self._counts: dict[str, int] = {}
        self._last: Mapping[str, Any] = {}
        self.is_complete = False
        """Whether the message has come to its end."""

    @property
    def is_paused(self) -> bool:
        """Whether the model waits to be asked to go on."""
        return self.is_complete and self._last.get("stop_reason") == "pause_turn"

    def resume(self) -> list[Block]:
        """Give what was said so far, to be sent back to a model that paused; the next message can be read then."""
        self._done = [*self._done, *self._parts.values()]
        self._before, self._counts = self._usage(), {}
        self._parts, self._last, self.is_complete = {}, {}, False
        return [block for block in self._content() if block["type"] != "text" or block["text"].strip()]

    def message(self, message: Mapping[str, Any]) -> Iterator[Chunk]:
        """Give the pieces of a whole message."""
        for index, block in enumerate(message["content"]):
            yield from self._begun(index, block)
            yield from self._ended(self._parts.get(index))
        self._counts, self._last = _counts(message.get("usage")), message
        self.is_complete = True

    def event(self, event: Mapping[str, Any]) -> Iterator[Chunk]:
        """Give the pieces of one event; of unknown ones there are none."""
        index = event["index"] if isinstance(event.get("index"), int) else None
        match event.get("type"):
            case "message_start":
                self._counts = _counts(_mapping(event.get("message")).get("usage"))
            case "content_block_start":
                yield from self._begun(index, event.get("content_block"))
            case "content_block_delta" if index in self._parts:
                yield from _grown(self._parts[index], _mapping(event.get("delta")))
            case "content_block_stop":
                yield from self._ended(self._parts.get(index))
            case "message_delta":
                self._counts |= _counts(event.get("usage"))
                self._last = _mapping(event.get("delta"))
            case "message_stop":
                self.is_complete = True

    def end(self) -> StreamEnd:
        """Give the end of the answer, or say why there is none."""
        content, stop = self._content(), _STOPS.get(self._last.get("stop_reason"), "other")
        if not any(block["type"] == "tool_use" or block.get("text", "").strip() for block in content):
            self._refuse(stop)
        return StreamEnd(self._usage(), stop, kept(PROVIDER, content))

    def _refuse(self, stop: StopReason) -> None:
        """Raise where an answer without a word needs an explanation; a model may also have nothing to add."""
        if stop == "refusal":
            details = _mapping(self._last.get("stop_details"))
            why = details.get("explanation") or details.get("category") or "it gives no reason"
            raise ModelError(f"The model refused to answer: {preview(str(why))}")
        if stop == "length":
            raise ModelError(
                "The model's room was used up before it said anything; allow more max_tokens, or send less"
            )

    def _begun(self, index: int | None, block: object) -> Iterator[Chunk]:
        fields = {name: value for name, value in _mapping(block).items() if value is not None}
        if fields.get("type") == "text":
            part = self._parts[index] = _Part({**fields, "text": ""})
            yield from _grown(part, {"type": "text_delta", "text": fields.get("text")})
        elif fields.get("type") == "tool_use":
            call = ToolCall.from_anthropic(fields)
            self._parts[index] = _Part(fields, self._calls)
            yield CallDelta(self._calls, call.name, call.id)
            self._calls += 1
        elif isinstance(fields.get("type"), str):
            self._parts[index] = _Part(fields)

    def _ended(self, part: _Part | None) -> Iterator[Chunk]:
        if part is not None and part.number is not None and not part.json:
            part.json.append(ToolCall.from_anthropic(part.block).json)
            yield ArgumentsDelta(part.number, part.json[0])

    def _content(self) -> list[Block]:
        """Give the blocks; without thoughts that nobody signed, which the API would refuse."""
        blocks = map(_complete, (*self._done, *self._parts.values()))
        return [block for block in blocks if block["type"] != "thinking" or block.get("signature")]

    def _usage(self) -> TokenUsage:
        counts, before = self._counts, self._before
        cached = counts.get("cache_read_input_tokens", 0)
        fresh = counts.get("input_tokens", 0) + counts.get("cache_creation_input_tokens", 0)
        output = counts.get("output_tokens", 0)
        return TokenUsage(before.input + fresh + cached, before.output + output, before.cached + cached)


def _grown(part: _Part, delta: Mapping[str, Any]) -> Iterator[Chunk]:
    """Let a block grow by a piece, and give what of it is for others."""
    piece = _piece(delta)
    match delta.get("type"):
        case "text_delta" if piece:
            grow(part.block, "text", piece)
            yield TextDelta(piece)
        case "input_json_delta" if piece:
            part.json.append(piece)
            if part.number is not None:
                yield ArgumentsDelta(part.number, piece)
        case "thinking_delta":
            grow(part.block, "thinking", piece)
        case "signature_delta":
            part.block["signature"] = piece
        case "citations_delta":
            part.block["citations"] = [*part.block.get("citations", ()), delta.get("citation")]


def _piece(delta: Mapping[str, Any]) -> str:
    names = ("text", "partial_json", "thinking", "signature")
    return next((delta[name] for name in names if isinstance(delta.get(name), str)), "")


def _complete(part: _Part) -> Block:
    """Give a block with the input that came in pieces; of calls, the message has it."""
    settle([part.block])
    if part.json and part.number is None:
        try:
            return {**part.block, "input": json.loads("".join(part.json))}
        except ValueError:
            return {**part.block, "input": {}}
    return part.block


def _counts(usage: object) -> dict[str, int]:
    return {name: count for name, count in _mapping(usage).items() if type(count) is int}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
