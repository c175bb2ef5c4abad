"""The reader of Mistral's replies, whole or streamed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toolsemble.call import ToolCall
from toolsemble.errors import ModelError
from toolsemble.models.adapter.details import Block, append_text, join_texts, make_details
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


class ReplyReader:
    """A reader of one reply.

    >>> reader = ReplyReader()
    >>> list(reader.read({"choices": [{"message": {"content": "Rome"}, "finish_reason": "stop"}]}))
    [TextDelta(text='Rome')]
    >>> reader.finish().stop_reason
    'stop'
    """

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._calls: list[str | None] = []
        self._positions: dict[int | None, int] = {}
        self._usage = NO_TOKENS
        self._finish: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the reply has a finish reason."""
        return self._finish is not None

    def read(self, part: object) -> Iterator[Chunk]:
        """Yield the chunks of a whole reply, or of a piece of a stream: the package's object, or a dict."""
        usage = field(part, "usage")
        self._usage = self._usage if usage is None else _usage(usage)
        for choice in _as_list(field(part, "choices")):
            if not field(choice, "index"):  # others are alternatives that were not requested
                message = field(choice, "message", "delta")
                yield from self._read_content(field(message, "content"))
                for call in _as_list(field(message, "tool_calls")):
                    yield from self._read_call(call)
                finish = field(choice, "finish_reason")
                self._finish = self._finish if finish is None else str(finish)

    def finish(self) -> StreamEnd:
        """Return the end of the reply; raise a ``ModelError`` if it failed, or is empty for a known reason."""
        if self._finish == "error":
            raise ModelError("Mistral ended the answer with an error", retryable=True)
        for block in join_texts(self._blocks):
            join_texts([thought for thought in _as_list(block.get("thinking")) if isinstance(thought, dict)])
        stop = _STOPS.get(self._finish or "", "other")
        empty = not self._calls and not any(block.get("text", "").strip() for block in self._blocks)
        if empty and stop == "length":
            raise ModelError("The model reached the token limit before it answered; raise max_tokens, or send less")
        if empty and stop == "refusal":
            raise ModelError("Mistral withheld the answer: its content filter stopped it")
        return StreamEnd(self._usage, stop, make_details(PROVIDER, self._blocks))

    def _read_content(self, content: object) -> Iterator[Chunk]:
        chunks = (
            [{"type": "text", "text": content}] if isinstance(content, str) else map(_to_json_values, _as_list(content))
        )
        for chunk in chunks:
            text = chunk.get("text")
            if chunk.get("type") != "text":
                self._store(chunk)
            elif isinstance(text, str) and text:
                self._store(chunk)
                yield TextDelta(text)

    def _store(self, chunk: Block) -> None:
        """Store a chunk; a piece of the same text or reasoning is added to the last one."""
        last: Block = self._blocks[-1] if self._blocks else {"type": None}
        if last["type"] != chunk.get("type") or last["type"] not in {"text", "thinking"}:
            self._blocks += [dict(chunk)] if isinstance(chunk.get("type"), str) else []
        elif last["type"] == "text":
            append_text(last, "text", chunk["text"])
        else:
            thoughts = _add_reasoning(_as_list(last.get("thinking")), _as_list(chunk.get("thinking")))
            last |= {name: value for name, value in chunk.items() if value is not None} | {"thinking": thoughts}

    def _read_call(self, call: object) -> Iterator[Chunk]:
        """Yield the start of a call, if it is new, and its arguments."""
        if field(call, "function") is None:
            return
        read = ToolCall.from_mistral(call)
        position = _read_position(call)
        number = self._find_call(position, read)
        if number is None:
            number = len(self._calls)
            self._calls.append(read.id)
            self._positions[position] = number
            yield CallDelta(number, read.name, read.id)
        if field(field(call, "function"), "arguments"):
            yield ArgumentsDelta(number, read.json)

    def _find_call(self, position: int | None, read: ToolCall) -> int | None:
        """Return the index of the call that a piece continues, or None if it starts one.

        Mistral repeats neither name nor id in later pieces. Not all servers send the position, and the same position
        with another id is another call.
        """
        number = self._positions.get(position)
        if number is None or (position is None and read.name):
            return None
        is_other = read.id is not None and self._calls[number] not in {None, read.id}
        return None if is_other else number


def _read_position(call: Any) -> int | None:
    """Return the position that the server sent for a call; the package makes up missing ones."""
    position = field(call, "index") if "index" in getattr(call, "model_fields_set", call) else None
    return position if isinstance(position, int) else None


def _to_json_values(chunk: Any) -> Block:
    """Return a chunk as JSON values; the raw one if the package does not know its type."""
    if hasattr(chunk, "model_dump"):
        chunk = chunk.raw if hasattr(chunk, "raw") else chunk.model_dump(mode="json", by_alias=True)
    return chunk if isinstance(chunk, dict) else {}


def _add_reasoning(thoughts: list[Any], more: list[Any]) -> list[Any]:
    """Add pieces of reasoning; consecutive texts are joined. Return the list."""
    for thought in more:
        last = thoughts[-1] if thoughts else None
        if isinstance(last, dict) and field(thought, "type") == last.get("type") == "text":
            append_text(last, "text", str(field(thought, "text") or ""))
        else:
            thoughts.append(dict(thought) if isinstance(thought, dict) else thought)
    return thoughts


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _usage(usage: object) -> TokenUsage:
    details = field(usage, "prompt_tokens_details")
    counts = field(usage, "prompt_tokens"), field(usage, "completion_tokens"), field(details, "cached_tokens")
    return TokenUsage(*(count if type(count) is int else 0 for count in counts))
