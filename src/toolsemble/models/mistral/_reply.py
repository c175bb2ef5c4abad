"""The reader of Mistral's replies, whole or streamed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.errors import ModelError
from toolsemble.models._adapter.reply_details import Block, append_text, has_text, join_texts, make_details
from toolsemble.models._adapter.stop_reasons import StopReasons
from toolsemble.models._adapter.streamed_calls import StreamedCalls
from toolsemble.models._adapter.usage import read_usage
from toolsemble.models._adapter.wire import as_list, field
from toolsemble.models._chat import NO_TOKENS, Chunk, StreamEnd, TextDelta, ThoughtDelta

_STOP_REASONS = StopReasons(
    "Mistral",
    {"stop": "stop", "tool_calls": "calls", "length": "length", "model_length": "length", "content_filter": "refusal"},
    may_be_empty=True,
)


class ReplyReader:
    """A reader of one reply.

    >>> reader = ReplyReader()
    >>> list(reader.read({"choices": [{"message": {"content": "Rome"}, "finish_reason": "stop"}]}))
    [TextDelta(text='Rome')]
    >>> [end.stop_reason for end in reader.finish()]
    ['stop']
    """

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._calls = StreamedCalls()
        self._usage = NO_TOKENS
        self._reason = ""

    @property
    def is_complete(self) -> bool:
        """Whether the reply has a finish reason."""
        return bool(self._reason)

    def read(self, part: object) -> Iterator[Chunk]:
        """Yield the chunks of a whole reply, or of a piece of a stream: the package's object, or a dict."""
        usage = field(part, "usage")
        self._usage = self._usage if usage is None else read_usage(usage)
        for choice in as_list(field(part, "choices")):
            if not field(choice, "index"):  # others are alternatives that were not requested
                message = field(choice, "message", "delta")
                yield from self._read_content(field(message, "content"))
                for call in as_list(field(message, "tool_calls")):
                    yield from self._read_call(call, is_whole=field(choice, "message") is not None)
                self._reason = str(field(choice, "finish_reason") or self._reason)

    def finish(self) -> Iterator[Chunk]:
        """Yield the remaining chunks; raise a ``ModelError`` if the reply failed, or is incomplete or empty."""
        if self._reason == "error":
            raise ModelError("Mistral ended the answer with an error", retryable=True)
        yield from self._calls.finish()
        is_text = has_text(self._blocks)
        for block in self._blocks:
            join_texts([thought for thought in as_list(block.get("thinking")) if isinstance(thought, dict)])
        stop = _STOP_REASONS.read(self._reason, has_calls=len(self._calls) > 0, has_text=is_text)
        yield StreamEnd(self._usage, stop, make_details("mistral", self._blocks))

    def _read_content(self, content: object) -> Iterator[Chunk]:
        chunks = (
            [{"type": "text", "text": content}] if isinstance(content, str) else map(_to_json_values, as_list(content))
        )
        for chunk in chunks:
            text = chunk.get("text")
            if chunk.get("type") != "text":
                self._store(chunk)
                yield from _read_thoughts(chunk)
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
            thoughts = _add_reasoning(as_list(last.get("thinking")), as_list(chunk.get("thinking")))
            last |= {name: value for name, value in chunk.items() if value is not None} | {"thinking": thoughts}

    def _read_call(self, call: object, *, is_whole: bool) -> Iterator[Chunk]:
        """Yield the chunks of a call, or of a piece of one."""
        if field(call, "function") is None:
            return
        read = ToolCall.from_mistral(call)
        arguments = read.json if field(field(call, "function"), "arguments") else ""
        if is_whole:
            yield from self._calls.add(read.id, read.name, arguments)
        else:
            yield from self._calls.add_piece(_read_position(call), read.id, read.name, arguments)


def _read_thoughts(chunk: Block) -> Iterator[Chunk]:
    for thought in as_list(chunk.get("thinking")):
        text = field(thought, "text")
        if isinstance(text, str) and text:
            yield ThoughtDelta(text)


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
