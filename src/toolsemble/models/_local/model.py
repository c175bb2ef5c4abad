"""The embedded model: llama.cpp in this process, without an API key or a network.

The model's chat template is applied to placeholders instead of the texts. So a text cannot imitate the template: an
end-of-turn marker in a text is tokenized as plain text, and only the template can end a turn.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import chain, groupby
from os import PathLike
from pathlib import Path
from typing import Any

from toolsemble._runtime.checks import check_count
from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.threads import THREADS
from toolsemble._vocabulary.errors import ModelError
from toolsemble.models import _chat as chat
from toolsemble.models._adapter.dialect import reasoning_refusal
from toolsemble.models._local.embedded_server import find_weights, load_library
from toolsemble.models._local.engine import Engine, Setup, shared_engine
from toolsemble.models._local.prompt import LocalRequest
from toolsemble.models._local.reply_reader import PlainReader, StepReader
from toolsemble.models._local.steps import NOTE, PLAN, PromptMessage, Turn, find_described
from toolsemble.models._local.weights.cache import cache_directory

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
            # Tools described in dropped turns are still offered, so they move to the others.
            described -= lost
            continue
        prompt = await _apply_template(engine, (*chain(*opening),), (*chain(*kept),))
        if len(prompt.tokens) <= room:
            return prompt
        written = len(prompt.tokens) - await _count_tokens(engine, [*opening, *kept], 0)
        # The estimate grows with each attempt, so that the loop ends: either the prompt fits, or there is no room left.
        around += max(1, math.ceil(written / sum(map(len, [*opening, *kept]))) - around)


async def _count_tokens(engine: Engine, turns: Sequence[Turn], around: int) -> int:
    """Return the token count of turns, with ``around`` tokens added to each message."""
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
    """Return a turn, truncating results that would take more than half of the room."""
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


_MIN_CONTEXT = 256


class LocalModel(chat.ChatModel):
    """A model in this process, by the name of its weights or the path of a GGUF file.

    Models with the same weights and settings share one engine, which is loaded on the first request and unloaded with
    the last model. It handles one request at a time; others wait.

    :param name: ``""`` for the default, ``"small"``, or a path
    :param context: the context size in tokens, for the prompt and the answer
    :param threads: the number of threads; the number of cores by default
    :param max_tokens: the maximum number of tokens of an answer

    >>> LocalModel("/nowhere/model.gguf")
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: There is no file '/nowhere/model.gguf'; pass the path of a .gguf file
    """

    native_output = True

    def __init__(
        self,
        name: str | PathLike[str] = "",
        *,
        context: int = 8192,
        threads: int | None = None,
        max_tokens: int = 1024,
    ) -> None:
        for setting, value, least in (("context", context, _MIN_CONTEXT), ("max_tokens", max_tokens, 1)):
            check_count(f"LocalModel {setting}", value, least=least)
        check_count("LocalModel threads", threads or 1, least=1)
        self._library = load_library(type(self).__name__)
        import_extra("httpcore2", extra="local", user=type(self).__name__)
        self._setup = Setup(find_weights(str(name)), context, threads or 0, cache_directory() / "prefixes")
        self._max_tokens = max_tokens
        self._engine: Engine | None = None

    def __repr__(self) -> str:
        return f"LocalModel({self.path.name!r})"

    @property
    def path(self) -> Path:
        """The file of the weights."""
        return self._setup.path

    async def reply(self, request: chat.ChatRequest) -> chat.ChatReply:
        """Return the complete reply."""
        assembly = chat.Assembly()
        async with aclosing(self.stream(request)) as chunks:
            async for chunk in chunks:
                assembly.add(chunk)
        return assembly.reply()

    async def stream(self, request: chat.ChatRequest) -> AsyncGenerator[chat.Chunk, None]:
        """Yield the reply in pieces; closing the generator stops the computation."""
        if request.reasoning is not None:
            raise reasoning_refusal("The local model")
        local = LocalRequest(request)
        engine = await self._load_engine()
        async with engine.turn():
            room = min(self._setup.context, await engine.context_size())
            prompt = await build_prompt(
                engine, local.opening_turns, local.history.turns, room - min(self._max_tokens, room // 4)
            )
            async with aclosing(engine.prepare(prompt.tokens[: prompt.prefix])) as events:
                async for event in events:
                    for chunk in _read_progress(event, prompt):
                        yield chunk
            settings = {"temperature": 0, "max_tokens": self._max_tokens, **request.settings}
            settings["n_predict"] = min(settings.pop("max_tokens"), room - len(prompt.tokens))
            attempts, repeated, spent = iter(local.attempts()), True, 0
            while repeated:
                attempt = next(attempts)
                reader, options = local.make_reader(attempt), {**settings, **local.settings(attempt)}
                async with aclosing(_generate(engine, prompt, options, reader, spent)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                repeated = reader.repeated
                spent += reader.tokens

    async def _load_engine(self) -> Engine:
        if self._engine is None:
            # In a thread, because reading the file may take long.
            self._engine = await asyncio.wrap_future(THREADS.submit(shared_engine, self._setup, self._library))
        return self._engine


def model_from_name(_provider: str, rest: str) -> chat.ChatModel:
    """Return the model with a name such as ``local``, ``local:small`` or ``local:/path/to/x.gguf``."""
    return LocalModel(rest)


async def _generate(
    engine: Engine, prompt: Prompt, settings: dict[str, Any], reader: PlainReader | StepReader, spent: int
) -> AsyncGenerator[chat.Chunk, None]:
    async with aclosing(engine.generate(prompt.tokens, settings)) as events:
        async for event in events:
            for chunk in (*_read_progress(event, prompt), *reader.add(event["content"])):
                yield chunk
            if event["stop"]:
                for chunk in _end_chunks(reader, event, spent):
                    yield chunk


def _read_progress(event: Mapping[str, Any], prompt: Prompt) -> Iterator[chat.Chunk]:
    """Yield the prompt progress until it is complete."""
    processed = (event.get("prompt_progress") or {}).get("processed", 0)
    if 0 < processed < len(prompt.tokens):
        yield chat.PromptProgress(processed / len(prompt.tokens))


def _end_chunks(reader: PlainReader | StepReader, end: Mapping[str, Any], spent: int) -> Iterator[chat.Chunk]:
    reader.tokens = end["tokens_predicted"]
    if reader.repeated:
        return
    yield from reader.end()
    cut = end["stop_type"] == "limit"
    reason: chat.StopReason = "length" if cut else "calls" if reader.called else "stop"
    usage = chat.TokenUsage(end["tokens_evaluated"], spent + reader.tokens, end["timings"]["cache_n"])
    yield chat.StreamEnd(usage, reason, _details(reader) if reader.called else None)


def _details(reader: PlainReader | StepReader) -> dict[str, Any] | None:
    """Return the model's plan and note before a call; the last entry of a plan is the answer, which is omitted."""
    thoughts = {PLAN: list(reader.plan[:-1]), NOTE: reader.note}
    return {name: thought for name, thought in thoughts.items() if thought} or None
