"""The reader of Anthropic's replies, whole or streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolsemble._runtime.text import preview
from toolsemble._vocabulary.call import ToolCall
from toolsemble.models._adapter.reply_details import Block, append_text, has_text, join_texts, make_details
from toolsemble.models._adapter.stop_reasons import StopReasons
from toolsemble.models._chat import ArgumentsDelta, CallDelta, Chunk, StreamEnd, TextDelta, ThoughtDelta, TokenUsage

_STOP_REASONS = StopReasons(
    "Anthropic",
    {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "tool_use": "calls",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "refusal": "refusal",
    },
    may_be_empty=True,
)


@dataclass(slots=True)
class _Part:
    """A block that may still be incomplete."""

    block: Block
    number: int | None = None
    """The index of the call; None if it is not a call."""
    json: list[str] = field(default_factory=list)
    """The streamed pieces of its input."""


class ReplyReader:
    """A reader of one reply, which has several messages if the model pauses for Anthropic's own tools.

    >>> reader = ReplyReader()
    >>> list(reader.read_message({"content": [{"type": "text", "text": "Rome"}], "stop_reason": "end_turn"}))
    [TextDelta(text='Rome')]
    >>> reader.finish().stop_reason
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
        """Whether the message is complete."""

    @property
    def is_paused(self) -> bool:
        """Whether the model waits for a request to continue."""
        return self.is_complete and self._last.get("stop_reason") == "pause_turn"

    def resume(self) -> list[Block]:
        """Return the content so far, to be sent to a paused model, and prepare to read the next message."""
        self._done = [*self._done, *self._parts.values()]
        self._before, self._counts = self._usage(), {}
        self._parts, self._last, self.is_complete = {}, {}, False
        return [block for block in self._content() if block["type"] != "text" or block["text"].strip()]

    def read_message(self, message: Mapping[str, Any]) -> Iterator[Chunk]:
        """Yield the chunks of a whole message."""
        for index, block in enumerate(message["content"]):
            yield from self._start_block(index, block)
            yield from self._end_block(self._parts.get(index))
        self._counts, self._last = _counts(message.get("usage")), message
        self.is_complete = True

    def read_event(self, event: Mapping[str, Any]) -> Iterator[Chunk]:
        """Yield the chunks of an event; unknown events have none."""
        index = event["index"] if isinstance(event.get("index"), int) else None
        match event.get("type"):
            case "message_start":
                self._counts = _counts(_as_mapping(event.get("message")).get("usage"))
            case "content_block_start":
                yield from self._start_block(index, event.get("content_block"))
            case "content_block_delta" if index in self._parts:
                yield from _add_delta(self._parts[index], _as_mapping(event.get("delta")))
            case "content_block_stop":
                yield from self._end_block(self._parts.get(index))
            case "message_delta":
                self._counts |= _counts(event.get("usage"))
                self._last = _as_mapping(event.get("delta"))
            case "message_stop":
                self.is_complete = True

    def finish(self) -> StreamEnd:
        """Return the end of the reply; raise a ``ModelError`` if it is empty for a known reason."""
        content, reason = self._content(), str(self._last.get("stop_reason"))
        details = _as_mapping(self._last.get("stop_details"))
        why = preview(str(details.get("explanation") or details.get("category") or ""))
        stop = _STOP_REASONS.read(reason, has_calls=self._calls > 0, has_text=has_text(content), why=why)
        return StreamEnd(self._usage(), stop, make_details("anthropic", content))

    def _start_block(self, index: int | None, block: object) -> Iterator[Chunk]:
        fields = {name: value for name, value in _as_mapping(block).items() if value is not None}
        if fields.get("type") == "text":
            part = self._parts[index] = _Part({**fields, "text": ""})
            yield from _add_delta(part, {"type": "text_delta", "text": fields.get("text")})
        elif fields.get("type") == "tool_use":
            call = ToolCall.from_anthropic(fields)
            self._parts[index] = _Part(fields, self._calls)
            yield CallDelta(self._calls, call.name, call.id)
            self._calls += 1
        elif isinstance(fields.get("type"), str):
            self._parts[index] = _Part(fields)
            if fields["type"] == "thinking" and isinstance(fields.get("thinking"), str) and fields["thinking"]:
                yield ThoughtDelta(fields["thinking"])

    def _end_block(self, part: _Part | None) -> Iterator[Chunk]:
        if part is not None and part.number is not None and not part.json:
            part.json.append(ToolCall.from_anthropic(part.block).json)
            yield ArgumentsDelta(part.number, part.json[0])

    def _content(self) -> list[Block]:
        """Return the blocks without unsigned reasoning, which the API rejects."""
        blocks = map(_complete_block, (*self._done, *self._parts.values()))
        return [block for block in blocks if block["type"] != "thinking" or block.get("signature")]

    def _usage(self) -> TokenUsage:
        counts, before = self._counts, self._before
        cached, written = counts.get("cache_read_input_tokens", 0), counts.get("cache_creation_input_tokens", 0)
        return TokenUsage(
            before.input + counts.get("input_tokens", 0) + cached + written,
            before.output + counts.get("output_tokens", 0),
            before.cached + cached,
            before.reasoning + counts.get("thinking_tokens", 0),
            before.cache_write + written,
        )


def _add_delta(part: _Part, delta: Mapping[str, Any]) -> Iterator[Chunk]:
    """Add a delta to a block; yield its chunk, if any."""
    piece = _read_piece(delta)
    match delta.get("type"):
        case "text_delta" if piece:
            append_text(part.block, "text", piece)
            yield TextDelta(piece)
        case "input_json_delta" if piece:
            part.json.append(piece)
            if part.number is not None:
                yield ArgumentsDelta(part.number, piece)
        case "thinking_delta" if piece:
            append_text(part.block, "thinking", piece)
            yield ThoughtDelta(piece)
        case "signature_delta":
            part.block["signature"] = piece
        case "citations_delta":
            part.block["citations"] = [*part.block.get("citations", ()), delta.get("citation")]


def _read_piece(delta: Mapping[str, Any]) -> str:
    names = ("text", "partial_json", "thinking", "signature")
    return next((delta[name] for name in names if isinstance(delta.get(name), str)), "")


def _complete_block(part: _Part) -> Block:
    """Return a block with its streamed input; the input of calls is in the message."""
    join_texts([part.block])
    if part.json and part.number is None:
        try:
            return {**part.block, "input": json.loads("".join(part.json))}
        except ValueError:
            return {**part.block, "input": {}}
    return part.block


def _counts(usage: object) -> dict[str, int]:
    fields = _as_mapping(usage)
    all_fields = {**fields, **_as_mapping(fields.get("output_tokens_details"))}
    return {name: count for name, count in all_fields.items() if type(count) is int}


def _as_mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
