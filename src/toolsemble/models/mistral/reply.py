"""An answer of Mistral's, whole or chunk by chunk: the same pieces come out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toolsemble.call import ToolCall
from toolsemble.errors import ModelError
from toolsemble.models.adapter.kept import Block, grow, kept, settle
from toolsemble.models.chat import (
    NO_TOKENS,
    ArgumentsDelta,
    CallDelta,
    Chunk,
    StopReason,
    StreamEnd,
    TextDelta,
    TokenUsage,
)
from toolsemble.models.mistral.messages import PROVIDER
from toolsemble.providers.wire import field

_STOPS: dict[str, StopReason] = {
    "stop": "stop",
    "tool_calls": "calls",
    "length": "length",
    "model_length": "length",
    "content_filter": "refusal",
}


class Reading:
    """Reads one answer.

    >>> reading = Reading()
    >>> list(reading.part({"choices": [{"message": {"content": "Rome"}, "finish_reason": "stop"}]}))
    [TextDelta(text='Rome')]
    >>> reading.end().stop_reason
    'stop'
    """

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._calls: list[str | None] = []
        self._places: dict[int | None, int] = {}
        self._usage = NO_TOKENS
        self._finish: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the model has said why it stopped."""
        return self._finish is not None

    def part(self, part: object) -> Iterator[Chunk]:
        """Give the pieces of a whole answer, or of one chunk: the package's object, or its dict."""
        usage = field(part, "usage")
        self._usage = self._usage if usage is None else _usage(usage)
        for choice in _listed(field(part, "choices")):
            if not field(choice, "index"):  # further ones are alternatives that nobody asked for
                said = field(choice, "message", "delta")
                yield from self._said(field(said, "content"))
                for call in _listed(field(said, "tool_calls")):
                    yield from self._called(call)
                finish = field(choice, "finish_reason")
                self._finish = self._finish if finish is None else str(finish)

    def end(self) -> StreamEnd:
        """Give the end of the answer, or say why there is none."""
        if self._finish == "error":
            raise ModelError("Mistral broke its answer off with an error", retryable=True)
        for block in settle(self._blocks):
            settle([thought for thought in _listed(block.get("thinking")) if isinstance(thought, dict)])
        stop = _STOPS.get(self._finish or "", "other")
        silent = not self._calls and not any(block.get("text", "").strip() for block in self._blocks)
        if silent and stop == "length":
            raise ModelError(
                "The model's room was used up before it said anything; allow more max_tokens, or send less"
            )
        if silent and stop == "refusal":
            raise ModelError("Mistral withheld the answer: its content filter stopped it")
        return StreamEnd(self._usage, stop, kept(PROVIDER, self._blocks))

    def _said(self, content: object) -> Iterator[Chunk]:
        chunks = [{"type": "text", "text": content}] if isinstance(content, str) else map(_plain, _listed(content))
        for chunk in chunks:
            text = chunk.get("text")
            if chunk.get("type") != "text":
                self._kept(chunk)
            elif isinstance(text, str) and text:
                self._kept(chunk)
                yield TextDelta(text)

    def _kept(self, chunk: Block) -> None:
        """Add a chunk to what was said; a piece of the same text or thought to the last one."""
        last: Block = self._blocks[-1] if self._blocks else {"type": None}
        if last["type"] != chunk.get("type") or last["type"] not in {"text", "thinking"}:
            self._blocks += [dict(chunk)] if isinstance(chunk.get("type"), str) else []
        elif last["type"] == "text":
            grow(last, "text", chunk["text"])
        else:
            thoughts = _longer(_listed(last.get("thinking")), _listed(chunk.get("thinking")))
            last |= {name: value for name, value in chunk.items() if value is not None} | {"thinking": thoughts}

    def _called(self, call: object) -> Iterator[Chunk]:
        """Give the beginning of a call, its arguments, or a further piece of them."""
        if field(call, "function") is None:
            return
        read = ToolCall.from_mistral(call)
        place = _place(call)
        number = self._begun_at(place, read)
        if number is None:
            number = len(self._calls)
            self._calls.append(read.id)
            self._places[place] = number
            yield CallDelta(number, read.name, read.id)
        if field(field(call, "function"), "arguments"):
            yield ArgumentsDelta(number, read.json)

    def _begun_at(self, place: int | None, read: ToolCall) -> int | None:
        """Give which call a piece belongs to; None for a new one.

        Mistral repeats neither name nor id in further pieces. Not all servers say the place, and one and the same
        place with another id is another call.
        """
        number = self._places.get(place)
        if number is None or (place is None and read.name):
            return None
        is_other = read.id is not None and self._calls[number] not in {None, read.id}
        return None if is_other else number


def _place(call: Any) -> int | None:
    """Give the place that a server gave a call; the package makes one up for those that it did not give."""
    place = field(call, "index") if "index" in getattr(call, "model_fields_set", call) else None
    return place if isinstance(place, int) else None


def _plain(chunk: Any) -> Block:
    """Give a chunk as JSON values; of one that the package does not know, what came."""
    if hasattr(chunk, "model_dump"):
        chunk = chunk.raw if hasattr(chunk, "raw") else chunk.model_dump(mode="json", by_alias=True)
    return chunk if isinstance(chunk, dict) else {}


def _longer(thoughts: list[Any], more: list[Any]) -> list[Any]:
    """Return thoughts with further pieces; texts that follow each other are one."""
    for thought in more:
        last = thoughts[-1] if thoughts else None
        if isinstance(last, dict) and field(thought, "type") == last.get("type") == "text":
            grow(last, "text", str(field(thought, "text") or ""))
        else:
            thoughts.append(dict(thought) if isinstance(thought, dict) else thought)
    return thoughts


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _usage(usage: object) -> TokenUsage:
    details = field(usage, "prompt_tokens_details")
    counts = field(usage, "prompt_tokens"), field(usage, "completion_tokens"), field(details, "cached_tokens")
    return TokenUsage(*(count if type(count) is int else 0 for count in counts))
