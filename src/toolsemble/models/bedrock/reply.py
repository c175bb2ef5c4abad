"""An answer of Bedrock's, whole or event by event: the same pieces come out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolsemble.call import ToolCall
from toolsemble.models.adapter.ending import Endings
from toolsemble.models.adapter.kept import Block, grow, kept, settle
from toolsemble.models.bedrock.messages import owner
from toolsemble.models.chat import NO_TOKENS, ArgumentsDelta, CallDelta, Chunk, StreamEnd, TextDelta, TokenUsage
from toolsemble.providers.wire import base64_text

_THOUGHT = {"text", "signature", "redactedContent"}
_ENDINGS = Endings(
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
    may_be_silent=True,
)


class Reading:
    """Reads one answer, from one response or from the events of a stream.

    >>> reading = Reading("amazon.nova-lite-v1:0")
    >>> list(reading.event({"contentBlockDelta": {"delta": {"text": "Rome"}, "contentBlockIndex": 0}}))
    [TextDelta(text='Rome')]
    >>> list(reading.event({"messageStop": {"stopReason": "end_turn"}}))
    []
    >>> reading.end().stop_reason
    'stop'
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._blocks: list[Block] = []
        self._calls: set[int] = set()
        self._thoughts: dict[int, dict[str, list[Any]]] = {}
        self._usage = NO_TOKENS
        self._reason = ""

    def response(self, response: Mapping[str, Any]) -> Iterator[Chunk]:
        """Give the pieces of a whole response."""
        message = (response.get("output") or {}).get("message") or {}
        for index, block in enumerate(message.get("content") or ()):
            cited = (block.get("citationsContent") or {}).get("content") or ()
            yield from self._said(block.get("text") or "".join(each.get("text", "") for each in cited))
            yield from self._begun(index, block.get("toolUse"))
            if index in self._calls:
                yield ArgumentsDelta(index, ToolCall.from_bedrock(block).json)
            thought = block.get("reasoningContent") or {}
            self._thinks(index, {**thought, **(thought.get("reasoningText") or {})})
            self._thought(index)
        self._stopped(response)
        self._counted(response)

    def event(self, event: Mapping[str, Any]) -> Iterator[Chunk]:
        """Give the pieces of one event of a stream; of unknown ones there are none."""
        for kind, said in event.items():
            index = said.get("contentBlockIndex", 0)
            if kind == "contentBlockStart":
                yield from self._begun(index, said["start"].get("toolUse"))
            elif kind == "contentBlockDelta":
                yield from self._grown(index, said["delta"])
            elif kind == "contentBlockStop":
                self._thought(index)
            elif kind == "messageStop":
                self._stopped(said)
            elif kind == "metadata":
                self._counted(said)

    def end(self) -> StreamEnd:
        """Give the end of the answer, or say why there is none."""
        settle(self._blocks)
        has_text = any(block.get("text", "").strip() for block in self._blocks)
        stop = _ENDINGS.stop(self._reason, has_calls=bool(self._calls), has_text=has_text)
        return StreamEnd(self._usage, stop, kept(owner(self._model), self._blocks))

    def _begun(self, index: int, use: Mapping[str, Any] | None) -> Iterator[Chunk]:
        # A tool with a type runs on Bedrock's side, and is no business of ours.
        if use and not use.get("type"):
            self._calls.add(index)
            self._blocks.append({"type": "tool_use"})
            yield CallDelta(index, use.get("name", ""), use.get("toolUseId"))

    def _grown(self, index: int, delta: Mapping[str, Any]) -> Iterator[Chunk]:
        yield from self._said(delta.get("text", ""))
        if index in self._calls and "toolUse" in delta:
            yield ArgumentsDelta(index, delta["toolUse"]["input"])
        self._thinks(index, delta.get("reasoningContent") or {})

    def _said(self, text: str) -> Iterator[Chunk]:
        last = self._blocks[-1] if self._blocks else {}
        if text and last.get("type") == "text":
            grow(last, "text", text)
        elif text:
            self._blocks.append({"type": "text", "text": text})
        if text:
            yield TextDelta(text)

    def _thinks(self, index: int, piece: Mapping[str, Any]) -> None:
        thought = self._thoughts.setdefault(index, {})
        for name in _THOUGHT & piece.keys():
            thought.setdefault(name, []).append(piece[name])

    def _thought(self, index: int) -> None:
        """Keep what was thought, if it is signed: what is not, nobody wants back."""
        pieces = self._thoughts.pop(index, {})
        thought = {name: type(said[0])().join(said) for name, said in pieces.items()}
        if "redactedContent" in thought:
            self._blocks.append({"type": "reasoning", "redactedContent": base64_text(thought["redactedContent"])})
        elif "signature" in thought:
            self._blocks.append({"type": "reasoning", "reasoningText": {"text": "", **thought}})

    def _stopped(self, said: Mapping[str, Any]) -> None:
        self._reason = said.get("stopReason") or ""

    def _counted(self, said: Mapping[str, Any]) -> None:
        used = said.get("usage") or {}
        cached = used.get("cacheReadInputTokens") or 0
        given = (used.get("inputTokens") or 0) + cached + (used.get("cacheWriteInputTokens") or 0)
        self._usage = TokenUsage(given, used.get("outputTokens") or 0, cached)
