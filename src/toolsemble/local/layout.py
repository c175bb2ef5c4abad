"""From turns to the tokens of a prompt that has room in the context.

The model's own chat template is given marks in place of the words. So the words never meet the template: what looks
like the end of a turn in somebody's text is letters, and only the template can write such an end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby

from toolsemble.errors import ModelError
from toolsemble.local.engine import Engine
from toolsemble.local.history import Said, Turn

_MARK = re.compile(r"\[mark-5e1c7a-(\d+)\]")
_BETWEEN = "\n\n"  # of what one side says twice in a row
_AROUND = 8  # tokens that a template usually writes around what is said


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt, as the model reads it."""

    tokens: tuple[int, ...]
    """All of it."""
    prefix: int
    """How many of them come before the conversation."""


async def laid_out(engine: Engine, opening: Sequence[Turn], conversation: Sequence[Turn], room: int) -> Prompt:
    """Give the prompt of a conversation, without its oldest turns if it has to be; refuse what cannot fit."""
    around = _AROUND
    while True:
        left = room - await _words(engine, opening, around)
        if left <= 0:
            raise ModelError(
                f"What the model is told before a conversation takes {room - left} tokens of {room}: "
                "offer fewer tools, or give the model a larger context: LocalModel(context=...)"
            )
        kept = [await _cut(engine, turn, left) for turn in await _window(engine, conversation, left, around)]
        prompt = await _templated(engine, [*chain(*opening)], [*chain(*kept)])
        if len(prompt.tokens) <= room:
            return prompt
        written = len(prompt.tokens) - await _words(engine, [*opening, *kept], 0)
        # It grows with each try, so that in the end there is room, or there is known to be none.
        around += max(1, math.ceil(written / sum(map(len, [*opening, *kept]))) - around)


async def _words(engine: Engine, turns: Sequence[Turn], around: int) -> int:
    """Give how many tokens turns take, with so many around each saying."""
    return sum([len(await engine.tokens(said.text)) + around for said in chain(*turns)])


async def _window(engine: Engine, turns: Sequence[Turn], room: int, around: int) -> list[Turn]:
    """Give the last turns that fit; the current question stays, and the turn after which the model is to go on."""
    questions = [index for index, turn in enumerate(turns) if turn[0].role == "user"]
    question = questions[-1] if questions else -1
    begin, left = len(turns), room
    while begin > 0:
        left -= await _weight(engine, turns[begin - 1], room, around)
        if left < 0:
            break
        begin -= 1
    else:
        return list(turns)
    if begin <= question:
        return list(turns[next(index for index in questions if index >= begin) :])
    asked = list(turns[question : question + 1]) if question >= 0 else []
    left = room - sum([await _weight(engine, turn, room, around) for turn in asked])
    return asked + await _last(engine, turns[question + 1 :], left, (room, around))


async def _last(engine: Engine, turns: Sequence[Turn], left: int, weighing: tuple[int, int]) -> list[Turn]:
    """Give as many of the last turns as fit; refuse when not even the last one does."""
    kept: list[Turn] = []
    for turn in reversed(turns):
        left -= await _weight(engine, turn, *weighing)
        if left < 0:
            break
        kept.insert(0, turn)
    if left < 0 and not kept:
        raise ModelError(
            f"The question alone has {weighing[0] - left} tokens with its last step, and there is room for "
            f"{weighing[0]}; ask for less, or give the model a larger context: LocalModel(context=...)"
        )
    return kept


async def _weight(engine: Engine, turn: Turn, room: int, around: int) -> int:
    return await _words(engine, [await _cut(engine, turn, room)], around)


async def _cut(engine: Engine, turn: Turn, room: int) -> Turn:
    """Give a turn with those results shortened that would take more than half of the room."""
    most = room // 2 // max(1, sum(said.is_result for said in turn))
    return tuple([await _shortened(engine, said, most) if said.is_result else said for said in turn])


async def _shortened(engine: Engine, said: Said, most: int) -> Said:
    tokens = await engine.tokens(said.text)
    if len(tokens) <= most:
        return said
    note = f"\n[... {len(tokens) - most} of {len(tokens)} tokens are left out here: too long for this model ...]\n"
    left = most - len(await engine.tokens(note))
    if left < most // 2:  # so little room that the note would be the most of it
        return Said(said.role, await engine.text(tokens[: max(1, most - 1)]) + "…", is_result=True)
    begin, end = await engine.text(tokens[: left - left // 4]), await engine.text(tokens[-(left // 4) :])
    return Said(said.role, f"{begin}{note}{end}", is_result=True)


async def _templated(engine: Engine, opening: Sequence[Said], conversation: Sequence[Said]) -> Prompt:
    said = [*opening, *conversation]
    parts = await _parts(engine, said)
    tokens: list[int] = []
    prefix = 0
    for part in parts:
        if isinstance(part, int):
            prefix = prefix or (len(tokens) if part >= len(opening) else 0)
            tokens += await engine.tokens(said[part].text)
        elif part:
            tokens += await engine.tokens(part, special=True, first=not tokens)
    return Prompt(tuple(tokens), prefix)


async def _parts(engine: Engine, said: Sequence[Said]) -> list[str | int]:
    """Give what the template writes, with the number of each saying where its words belong."""
    marked = [(each.role, f"[mark-5e1c7a-{index}]") for index, each in enumerate(said)]
    problem: object = "it leaves words out"
    for roles in ({}, {"system": "user"}):  # some templates know of no system message
        try:
            text = await engine.templated(_joined([(roles.get(role, role), mark) for role, mark in marked]))
        except ModelError as error:
            problem = error
            continue
        parts = _split(text)
        if [part for part in parts if isinstance(part, int)] == list(range(len(said))):
            return parts
    raise ModelError(f"The chat template of this model cannot write this conversation: {problem}")


def _joined(marked: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """Give messages in which nobody speaks twice in a row, as many templates insist."""
    return [
        {"role": role, "content": _BETWEEN.join(mark for _, mark in group)}
        for role, group in groupby(marked, key=lambda each: each[0])
    ]


def _split(text: str) -> list[str | int]:
    return [int(part) if index % 2 else part for index, part in enumerate(_MARK.split(text))]
