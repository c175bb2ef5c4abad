"""The details of a reply, such as signed reasoning, that its provider needs back with the message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from toolsemble._runtime.text import escape_surrogates
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
    """Join the pieces of all texts; return the blocks, to which more can be appended.

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

    Reasoning must be sent back unchanged and in its position, so the details list all blocks. Of texts and calls,
    which are in the message, only the position, the length and the signature are stored.

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
    """Return the content of a message as its provider sent it: the text, these calls, and the blocks in the details.

    Without details of this provider the text comes first. Blank text is omitted, as providers reject it, unless it is
    signed.

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
    """Return the blocks of a provider; details can come from anywhere, so unknown formats are ignored."""
    stored = (details or {}).get(provider)
    blocks = stored if isinstance(stored, list) else []
    return blocks if all(map(_is_stored, blocks)) else []


def _is_stored(block: object) -> bool:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        return False
    length = block.get("length")
    return block["type"] != "text" or (isinstance(length, int) and length >= 0)


def _fit_text(stored: list[Block], length: int) -> list[Block]:
    """Return the blocks, with the whole text before the calls if its length has changed."""
    if sum(block["length"] for block in stored if block["type"] == "text") == length:
        return stored
    others = [block for block in stored if block["type"] != "text"]
    place = next((index for index, block in enumerate(others) if block["type"] == _CALL), len(others))
    return [*others[:place], {"type": "text", "length": length}, *others[place:]]
