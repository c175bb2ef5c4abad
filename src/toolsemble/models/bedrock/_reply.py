"""The reader of Bedrock's replies, whole or streamed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolsemble._vocabulary.call import ToolCall
from toolsemble.models._adapter.reply_details import Block, append_text, has_text, make_details
from toolsemble.models._adapter.stop_reasons import StopReasons
from toolsemble.models._adapter.wire import base64_text
from toolsemble.models._chat import (
    NO_TOKENS,
    ArgumentsDelta,
    CallDelta,
    Chunk,
    StreamEnd,
    TextDelta,
    ThoughtDelta,
    TokenUsage,
)

_REASONING = {"text", "signature", "redactedContent"}
_STOP_REASONS = StopReasons(
    "Bedrock",
    {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "tool_use": "calls",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "guardrail_intervened": "refusal",
        "content_filtered": "refusal",
    },
    {"malformed_tool_use", "malformed_model_output"},
    may_be_empty=True,
)


class ReplyReader:
    """A reader of one reply, from a whole response or the events of a stream.

    >>> reader = ReplyReader("amazon.nova-lite-v1:0")
    >>> list(reader.read_event({"contentBlockDelta": {"delta": {"text": "Rome"}, "contentBlockIndex": 0}}))
    [TextDelta(text='Rome')]
    >>> list(reader.read_event({"messageStop": {"stopReason": "end_turn"}}))
    []
    >>> reader.finish().stop_reason
    'stop'
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._blocks: list[Block] = []
        self._calls: set[int] = set()
        self._reasoning: dict[int, dict[str, list[Any]]] = {}
        self._usage = NO_TOKENS
        self._reason = ""

    def read_response(self, response: Mapping[str, Any]) -> Iterator[Chunk]:
        """Yield the chunks of a whole response."""
        message = (response.get("output") or {}).get("message") or {}
        for index, block in enumerate(message.get("content") or ()):
            cited = (block.get("citationsContent") or {}).get("content") or ()
            yield from self._add_text(block.get("text") or "".join(each.get("text", "") for each in cited))
            yield from self._start_call(index, block.get("toolUse"))
            if index in self._calls:
                yield ArgumentsDelta(index, ToolCall.from_bedrock(block).json)
            thought = block.get("reasoningContent") or {}
            yield from self._add_reasoning(index, {**thought, **(thought.get("reasoningText") or {})})
            self._store_reasoning(index)
        self._reason = response.get("stopReason") or ""
        self._read_usage(response)

    def read_event(self, event: Mapping[str, Any]) -> Iterator[Chunk]:
        """Yield the chunks of an event of a stream; unknown events have none."""
        for kind, fields in event.items():
            index = fields.get("contentBlockIndex", 0)
            if kind == "contentBlockStart":
                yield from self._start_call(index, fields["start"].get("toolUse"))
            elif kind == "contentBlockDelta":
                yield from self._read_delta(index, fields["delta"])
            elif kind == "contentBlockStop":
                self._store_reasoning(index)
            elif kind == "messageStop":
                self._reason = fields.get("stopReason") or ""
            elif kind == "metadata":
                self._read_usage(fields)

    def finish(self) -> StreamEnd:
        """Return the end of the reply; raise a ``ModelError`` if it is incomplete or empty."""
        stop = _STOP_REASONS.read(self._reason, has_calls=bool(self._calls), has_text=has_text(self._blocks))
        return StreamEnd(self._usage, stop, make_details(f"bedrock:{self._model}", self._blocks))

    def _start_call(self, index: int, use: Mapping[str, Any] | None) -> Iterator[Chunk]:
        # A tool with a type is executed by Bedrock.
        if use and not use.get("type"):
            self._calls.add(index)
            self._blocks.append({"type": "tool_use"})
            yield CallDelta(index, use.get("name", ""), use.get("toolUseId"))

    def _read_delta(self, index: int, delta: Mapping[str, Any]) -> Iterator[Chunk]:
        yield from self._add_text(delta.get("text", ""))
        if index in self._calls and "toolUse" in delta:
            yield ArgumentsDelta(index, delta["toolUse"]["input"])
        yield from self._add_reasoning(index, delta.get("reasoningContent") or {})

    def _add_text(self, text: str) -> Iterator[Chunk]:
        last = self._blocks[-1] if self._blocks else {}
        if text and last.get("type") == "text":
            append_text(last, "text", text)
        elif text:
            self._blocks.append({"type": "text", "text": text})
        if text:
            yield TextDelta(text)

    def _add_reasoning(self, index: int, piece: Mapping[str, Any]) -> Iterator[Chunk]:
        if piece.get("text"):
            yield ThoughtDelta(piece["text"])
        thought = self._reasoning.setdefault(index, {})
        for name in _REASONING & piece.keys():
            thought.setdefault(name, []).append(piece[name])

    def _store_reasoning(self, index: int) -> None:
        """Store reasoning if it is signed; other reasoning need not be sent back."""
        pieces = self._reasoning.pop(index, {})
        thought = {name: type(parts[0])().join(parts) for name, parts in pieces.items()}
        if "redactedContent" in thought:
            self._blocks.append({"type": "reasoning", "redactedContent": base64_text(thought["redactedContent"])})
        elif "signature" in thought:
            self._blocks.append({"type": "reasoning", "reasoningText": {"text": "", **thought}})

    def _read_usage(self, fields: Mapping[str, Any]) -> None:
        used = fields.get("usage") or {}
        cached, written = used.get("cacheReadInputTokens") or 0, used.get("cacheWriteInputTokens") or 0
        total = (used.get("inputTokens") or 0) + cached + written
        # The API does not tell how many of the output tokens were reasoning.
        self._usage = TokenUsage(total, used.get("outputTokens") or 0, cached, cache_write=written)
