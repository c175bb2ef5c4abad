"""Provider replies: details to send back, calls assembled from pieces, and token counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from toolsemble._runtime.text import escape_surrogates
from toolsemble.models._adapter.wire import field
from toolsemble.models._chat import ArgumentsDelta, CallDelta, Chunk, TokenUsage
from toolsemble.models._message import AssistantMessage

Block: TypeAlias = dict[str, Any]
"""A block of a message's content: JSON values, with a ``type``."""

_CALL = "tool_use"
_SIGNATURE = "signature"


class _Pieces(list[str]):
    """A text under construction."""


def append_text(block: Block, name: str, piece: str) -> None:
    """Append a piece to a text of a block; :func:`join_texts` joins the pieces.

    Concatenating strings would copy the whole text each time, which takes minutes for a stream of many megabytes.

    >>> block = {"type": "text", "text": "to "}
    >>> append_text(block, "text", "Rome")
    >>> join_texts([block])
    [{'type': 'text', 'text': 'to Rome'}]
    """
    pieces = block.get(name)
    if isinstance(pieces, _Pieces):
        pieces.append(piece)
    else:
        block[name] = _Pieces([pieces, piece] if isinstance(pieces, str) else [piece])


def join_texts(blocks: list[Block]) -> list[Block]:
    """Join the pieces of all texts; return the blocks, which stay appendable.

    >>> join_texts([{"type": "tool_use"}])
    [{'type': 'tool_use'}]
    """
    for block in blocks:
        for name, value in block.items():
            if isinstance(value, _Pieces):
                block[name] = "".join(value)
    return blocks


def has_text(blocks: list[Block]) -> bool:
    """Join the pieces of all texts; return whether one of them is not blank.

    >>> has_text([{"type": "text", "text": " "}])
    False
    """
    return any(block.get("text", "").strip() for block in join_texts(blocks))


def make_details(provider: str, blocks: Sequence[Block]) -> dict[str, Any] | None:
    """Return the details of a reply, or None if it consists of plain text and calls.

    Reasoning must be sent back unchanged and in its position, so the details list all blocks. For texts and calls,
    which are in the message, only the position, length and signature are stored.

    :param provider: the provider; with its model, if other models cannot verify the signatures

    >>> make_details("anthropic", [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Rome"}])
    {'anthropic': [{'type': 'thinking', 'thinking': 'Hm.'}, {'type': 'text', 'length': 4}]}
    >>> make_details("anthropic", [{"type": "text", "text": "Rome"}]) is None
    True
    """
    stored = [_compact(block) for block in blocks]
    plain = all(block == {"type": _CALL} or block.keys() == {"type", "length"} for block in stored)
    return None if plain else {provider: stored}


def restore_blocks(provider: str, message: AssistantMessage, calls: Sequence[Block]) -> list[Block]:
    """Return a message's content as sent by its provider: the text, these calls, and the blocks in the details.

    Without details from this provider, the text comes first. Blank text is omitted, because providers reject it, unless
    it is signed.

    >>> details = {"anthropic": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "length": 4}]}
    >>> restore_blocks("anthropic", AssistantMessage("Rome", (), details), [])
    [{'type': 'thinking', 'thinking': 'Hm.'}, {'type': 'text', 'text': 'Rome'}]
    """
    text, left, blocks = message.text, list(calls), []
    for block in _fit_text(_read_stored(provider, message.details), len(text)):
        if block["type"] == "text":
            length = block["length"]
            more = {name: value for name, value in block.items() if name != "length"}
            is_sent = text[:length].strip() or _SIGNATURE in more
            blocks += [{**more, "text": escape_surrogates(text[:length])}] if is_sent else []
            text = text[length:]
        elif block["type"] == _CALL:
            blocks += [{**left.pop(0), **_signature_of(block)}] if left else []
        else:
            blocks.append(block)
    return [*blocks, *left]


def _compact(block: Block) -> Block:
    if block["type"] == "text":
        more = {name: value for name, value in block.items() if name not in {"type", "text"} and value}
        return {"type": "text", "length": len(block["text"]), **more}
    return {"type": _CALL, **_signature_of(block)} if block["type"] == _CALL else block


def _signature_of(block: Block) -> Block:
    return {_SIGNATURE: block[_SIGNATURE]} if _SIGNATURE in block else {}


def _read_stored(provider: str, details: Mapping[str, Any] | None) -> list[Block]:
    """Return a provider's blocks; details are untrusted, so unknown formats are ignored."""
    stored = (details or {}).get(provider)
    blocks = stored if isinstance(stored, list) else []
    return blocks if all(map(_is_stored, blocks)) else []


def _is_stored(block: object) -> bool:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        return False
    length = block.get("length")
    return block["type"] != "text" or (isinstance(length, int) and length >= 0)


def _fit_text(stored: list[Block], length: int) -> list[Block]:
    """Return the blocks, with the full text before the calls if its length has changed."""
    if sum(block["length"] for block in stored if block["type"] == "text") == length:
        return stored
    others = [block for block in stored if block["type"] != "text"]
    place = next((index for index, block in enumerate(others) if block["type"] == _CALL), len(others))
    return [*others[:place], {"type": "text", "length": length}, *others[place:]]


class _Call:
    """A call in a reply; some servers send its name after other parts."""

    def __init__(self, index: int, id: str | None) -> None:
        self.index = index
        self.id = id
        self.name = ""
        self.is_started = False
        self._early: list[str] = []

    def start(self, name: str) -> Iterator[Chunk]:
        """Set the name; yield the start of the call and the arguments received so far."""
        self.name, self.is_started = name, True
        yield CallDelta(self.index, name, self.id)
        yield from (ArgumentsDelta(self.index, piece) for piece in self._early)

    def add_arguments(self, piece: str) -> Iterator[Chunk]:
        """Add a piece of the arguments; yield it if the call has started."""
        if piece and self.is_started:
            yield ArgumentsDelta(self.index, piece)
        elif piece:
            self._early.append(piece)


class StreamedCalls:
    """The calls of one reply, assembled from pieces.

    Servers omit different parts of a piece, all of which are optional here: the index, the id, and the name after the
    first piece.

    >>> calls = StreamedCalls()
    >>> list(calls.add_piece(0, "c1", "weather", '{"city": '))
    [CallDelta(index=0, name='weather', id='c1'), ArgumentsDelta(index=0, text='{"city": ')]
    >>> list(calls.add_piece(0, None, "", '"Rome"}'))
    [ArgumentsDelta(index=0, text='"Rome"}')]
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, id: str | None, name: str, arguments: str) -> Iterator[Chunk]:
        """Add a whole call; yield its chunks."""
        call = self._create(id)
        yield from call.start(name)
        yield from call.add_arguments(arguments)

    def add_piece(self, index: object, id: str | None, name: str, arguments: str) -> Iterator[Chunk]:
        """Add a piece of a call; yield its chunks once the call's name is known."""
        place = index if isinstance(index, int) else None
        call = self._find(place, id, name) or self._create(id)
        if place is not None:
            self._by_index[place] = call
        if id:
            self._by_id[id] = call
        if name and not call.is_started:
            yield from call.start(name)
        yield from call.add_arguments(arguments)

    def finish(self) -> Iterator[Chunk]:
        """Yield the chunks of calls without a name; the model is told later that the tool is unknown."""
        for call in self._calls:
            if not call.is_started:
                yield from call.start("")

    def _create(self, id: str | None) -> _Call:
        self._calls.append(_Call(len(self._calls), id or None))
        return self._calls[-1]

    def _find(self, index: int | None, id: str | None, name: str) -> _Call | None:
        """Return the call that a piece continues, or None if it starts one.

        Some servers give all calls the same index or none, others the same id or none. A piece with neither belongs to
        the last call.
        """
        known = self._by_id.get(id) if id else None
        current = self._by_index.get(index) if index is not None else None
        if known is not None and (known is current or index is None or not name):
            return known
        if current is not None:
            starts = bool(name and current.name) and (bool(id) or name != current.name)
            return None if starts else current
        return None if id or name or not self._calls else self._calls[-1]


def read_usage(usage: object) -> TokenUsage:
    """Return the token usage; invalid counts are 0.

    >>> read_usage({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}})
    TokenUsage(input=9, output=2, cached=4, reasoning=0, cache_write=0)
    """
    details = field(usage, "input_tokens_details", "prompt_tokens_details")
    produced = field(usage, "output_tokens_details", "completion_tokens_details")
    return TokenUsage(
        _count(field(usage, "input_tokens", "prompt_tokens")),
        _count(field(usage, "output_tokens", "completion_tokens")),
        _count(field(details, "cached_tokens")),
        _count(field(produced, "reasoning_tokens")),
        _count(field(details, "cache_write_tokens")),
    )


def _count(value: object) -> int:
    return value if type(value) is int and value > 0 else 0
