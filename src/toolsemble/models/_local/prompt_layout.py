"""The tokens of a prompt, shortened to fit the context.

The model's chat template is applied to placeholders instead of the texts. So a text cannot imitate the template: what
looks like the end of a turn in a text is tokenized as plain text, and only the template can write such an end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

from toolsemble._vocabulary.errors import ModelError
from toolsemble.models._local.engine import Engine
from toolsemble.models._local.history import PromptMessage, Turn, find_described

_MARK = re.compile(r"\[mark-5e1c7a-(\d+)\]")
_SEPARATOR = "\n\n"  # between consecutive messages of one role
_TOKENS_PER_MESSAGE = 8  # tokens that a template usually adds to a message


@dataclass(frozen=True, slots=True)
class Prompt:
    """The tokens of a prompt."""

    tokens: tuple[int, ...]
    prefix: int
    """The number of tokens before the conversation."""


async def build_prompt(
    engine: Engine, write_opening: Callable[[Collection[str]], Sequence[Turn]], conversation: Sequence[Turn], room: int
) -> Prompt:
    """Return the prompt of a conversation, without its oldest turns if necessary; raise if it cannot fit.

    :param write_opening: returns the turns before the conversation, with all tools that it does not describe
    """
    around, described = _TOKENS_PER_MESSAGE, find_described(conversation)
    while True:
        opening = write_opening(described)
        left = room - await _count_tokens(engine, opening, around)
        if left <= 0:
            raise ModelError(
                f"The system prompt takes {room - left} tokens of {room}; offer fewer tools, or use a larger context: "
                "LocalModel(context=...)"
            )
        turns = await _select_turns(engine, conversation, left, around)
        kept = [await _shorten_results(engine, turn, left) for turn in turns]
        if lost := described - find_described(kept):
            # Tools that were described in what is left out are still offered, so they move to the others.
            described -= lost
            continue
        prompt = await _apply_template(engine, (*chain(*opening),), (*chain(*kept),))
        if len(prompt.tokens) <= room:
            return prompt
        written = len(prompt.tokens) - await _count_tokens(engine, [*opening, *kept], 0)
        # The estimate grows with each attempt, so that the loop ends: either the prompt fits, or there is no room left.
        around += max(1, math.ceil(written / sum(map(len, [*opening, *kept]))) - around)


async def _count_tokens(engine: Engine, turns: Sequence[Turn], around: int) -> int:
    """Return how many tokens turns take, with ``around`` tokens added to each message."""
    return sum([len(await engine.tokenize(message.text)) + around for message in chain(*turns)])


async def _select_turns(engine: Engine, turns: Sequence[Turn], room: int, around: int) -> list[Turn]:
    """Return the last turns that fit; the current question and the last turn always stay."""
    questions = [index for index, turn in enumerate(turns) if turn[0].role == "user"]
    question = questions[-1] if questions else -1
    begin, left = len(turns), room
    while begin > 0:
        left -= await _count_turn(engine, turns[begin - 1], room, around)
        if left < 0:
            break
        begin -= 1
    else:
        return list(turns)
    if begin <= question:
        return list(turns[next(index for index in questions if index >= begin) :])
    asked = list(turns[question : question + 1]) if question >= 0 else []
    left = room - sum([await _count_turn(engine, turn, room, around) for turn in asked])
    return asked + await _select_last(engine, turns[question + 1 :], left, (room, around))


async def _select_last(engine: Engine, turns: Sequence[Turn], left: int, weighing: tuple[int, int]) -> list[Turn]:
    """Return as many of the last turns as fit; raise if the last one does not."""
    kept: list[Turn] = []
    for turn in reversed(turns):
        left -= await _count_turn(engine, turn, *weighing)
        if left < 0:
            break
        kept.insert(0, turn)
    if left < 0 and not kept:
        raise ModelError(
            f"The question and its last step have {weighing[0] - left} tokens, and there is room for {weighing[0]}; "
            "shorten the question, or use a larger context: LocalModel(context=...)"
        )
    return kept


async def _count_turn(engine: Engine, turn: Turn, room: int, around: int) -> int:
    return await _count_tokens(engine, [await _shorten_results(engine, turn, room)], around)


async def _shorten_results(engine: Engine, turn: Turn, room: int) -> Turn:
    """Return a turn with those results shortened that would take more than half of the room."""
    most = room // 2 // max(1, sum(message.is_result for message in turn))
    return tuple([await _shorten(engine, message, most) if message.is_result else message for message in turn])


async def _shorten(engine: Engine, message: PromptMessage, most: int) -> PromptMessage:
    tokens = await engine.tokenize(message.text)
    if len(tokens) <= most:
        return message
    note = f"\n[... {len(tokens) - most} of {len(tokens)} tokens are left out here: too long for this model ...]\n"
    left = most - len(await engine.tokenize(note))
    if left < most // 2:  # the note would take more room than the text
        return PromptMessage(message.role, await engine.detokenize(tokens[: max(1, most - 1)]) + "…", is_result=True)
    begin, end = await engine.detokenize(tokens[: left - left // 4]), await engine.detokenize(tokens[-(left // 4) :])
    return PromptMessage(message.role, f"{begin}{note}{end}", is_result=True)


async def _apply_template(engine: Engine, opening: Turn, conversation: Turn) -> Prompt:
    messages = (*opening, *conversation)
    parts = await _template_parts(engine, messages)
    tokens: list[int] = []
    prefix = 0
    for part in parts:
        if isinstance(part, int):
            prefix = prefix or (len(tokens) if part >= len(opening) else 0)
            tokens += await engine.tokenize(messages[part].text)
        elif part:
            tokens += await engine.tokenize(part, special=True, first=not tokens)
    return Prompt(tuple(tokens), prefix)


async def _template_parts(engine: Engine, messages: Sequence[PromptMessage]) -> list[str | int]:
    """Return the output of the template, with the index of each message in place of its text."""
    marked = [(each.role, f"[mark-5e1c7a-{index}]") for index, each in enumerate(messages)]
    problem: object = "it leaves text out"
    for roles in ({}, {"system": "user"}):  # some templates do not support system messages
        try:
            text = await engine.apply_template(_merge_roles([(roles.get(role, role), mark) for role, mark in marked]))
        except ModelError as error:
            problem = error
            continue
        parts = _split(text)
        if [part for part in parts if isinstance(part, int)] == list(range(len(messages))):
            return parts
    raise ModelError(f"The chat template of this model cannot format this conversation: {problem}")


def _merge_roles(marked: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """Return messages with alternating roles, as many templates require."""
    return [
        {"role": role, "content": _SEPARATOR.join(mark for _, mark in group)}
        for role, group in groupby(marked, key=lambda each: each[0])
    ]


def _split(text: str) -> list[str | int]:
    return [int(part) if index % 2 else part for index, part in enumerate(_MARK.split(text))]
