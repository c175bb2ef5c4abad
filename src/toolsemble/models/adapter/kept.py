"""What stands around the text and the calls of a reply, such as signed thoughts, kept for its provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from toolsemble.models.message import AssistantMessage
from toolsemble.shape import escape_surrogates

Block: TypeAlias = dict[str, Any]
"""One piece of a message's content: JSON values, with a ``type``."""

_CALL = "tool_use"
_SIGNED = "signature"


class _Pieces(list[str]):
    """A text that still grows."""


def grow(block: Block, name: str, piece: str) -> None:
    """Add a piece to a text of a block; :func:`settle` puts the pieces together.

    Adding to the text itself would copy all of it each time, which takes minutes for a stream of many megabytes.

    >>> block = {"type": "text", "text": "to "}
    >>> grow(block, "text", "Rome")
    >>> settle([block])
    [{'type': 'text', 'text': 'to Rome'}]
    """
    pieces = block.get(name)
    if isinstance(pieces, _Pieces):
        pieces.append(piece)
    else:
        block[name] = _Pieces([pieces, piece] if isinstance(pieces, str) else [piece])


def settle(blocks: list[Block]) -> list[Block]:
    """Put the pieces of all texts together that have grown; return the blocks, which can go on growing.

    >>> settle([{"type": "tool_use"}])
    [{'type': 'tool_use'}]
    """
    for block in blocks:
        for name, value in block.items():
            if isinstance(value, _Pieces):
                block[name] = "".join(value)
    return blocks


def kept(provider: str, blocks: Sequence[Block]) -> dict[str, Any] | None:
    """Give the details of a reply; None when it is nothing but text and calls.

    Thoughts have to go back unchanged and in their place, so all blocks are noted; texts and calls, which the message
    has already, only by their length and their place, and by a signature if they have one.

    >>> kept("anthropic", [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Rome"}])
    {'anthropic': [{'type': 'thinking', 'thinking': 'Hm.'}, {'type': 'text', 'length': 4}]}
    >>> kept("anthropic", [{"type": "text", "text": "Rome"}]) is None
    True
    """
    noted = [_noted(block) for block in blocks]
    plain = all(block == {"type": _CALL} or block.keys() == {"type", "length"} for block in noted)
    return None if plain else {provider: noted}


def restored(provider: str, message: AssistantMessage, calls: Sequence[Block]) -> list[Block]:
    """Give the content of a message as its provider had sent it: the text, these calls, and what was kept.

    Where nothing was kept by this provider, the text comes first. Blank text is left out, as providers refuse it; not
    if it was signed.

    >>> details = {"anthropic": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "length": 4}]}
    >>> restored("anthropic", AssistantMessage("Rome", (), details), [])
    [{'type': 'thinking', 'thinking': 'Hm.'}, {'type': 'text', 'text': 'Rome'}]
    """
    text, left, blocks = message.text, list(calls), []
    for block in _whole(_own(provider, message.details), len(text)):
        if block["type"] == "text":
            length = block["length"]
            more = {name: value for name, value in block.items() if name != "length"}
            says = text[:length].strip() or _SIGNED in more
            blocks += [{**more, "text": escape_surrogates(text[:length])}] if says else []
            text = text[length:]
        elif block["type"] == _CALL:
            blocks += [{**left.pop(0), **_signed(block)}] if left else []
        else:
            blocks.append(block)
    return [*blocks, *left]


def _noted(block: Block) -> Block:
    if block["type"] == "text":
        more = {name: value for name, value in block.items() if name not in {"type", "text"} and value}
        return {"type": "text", "length": len(block["text"]), **more}
    return {"type": _CALL, **_signed(block)} if block["type"] == _CALL else block


def _signed(block: Block) -> Block:
    return {_SIGNED: block[_SIGNED]} if _SIGNED in block else {}


def _own(provider: str, details: Mapping[str, Any] | None) -> list[Block]:
    """Give what a provider noted; details may come from anywhere, so others' and unknown shapes count as none."""
    noted = (details or {}).get(provider)
    blocks = noted if isinstance(noted, list) else []
    return blocks if all(map(_is_noted, blocks)) else []


def _is_noted(block: object) -> bool:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        return False
    length = block.get("length")
    return block["type"] != "text" or (isinstance(length, int) and length >= 0)


def _whole(noted: list[Block], length: int) -> list[Block]:
    """Give the blocks with all of the text in one place, before the calls, if it is not as long as it was."""
    if sum(block["length"] for block in noted if block["type"] == "text") == length:
        return noted
    others = [block for block in noted if block["type"] != "text"]
    place = next((index for index, block in enumerate(others) if block["type"] == _CALL), len(others))
    return [*others[:place], {"type": "text", "length": length}, *others[place:]]
