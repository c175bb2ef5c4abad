"""Readers that turn the model's output into the chunks of a reply while it is generated."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence

from toolsemble._vocabulary.call import new_id
from toolsemble.models._chat import ArgumentsDelta, CallDelta, Chunk, TextDelta
from toolsemble.models._local.grammar import format_opening

_TEXT = '{"text": "'
_THOUGHTS = ('{"plan": ', '{"note": ')
_SEPARATOR = ", "
_DECODER = json.JSONDecoder()
_ESCAPED = re.compile(r'\\(?:u[0-9a-fA-F]{4}|[^u])|[^"\\]')


class PlainReader:
    """A reader of an answer in plain text."""

    called = False
    repeated = False
    plan: Sequence[str] = ()
    note = ""
    tokens = 0

    def add(self, piece: str) -> Iterator[Chunk]:
        """Yield the chunks of the next piece."""
        if piece:
            yield TextDelta(piece)

    def end(self) -> Iterator[Chunk]:
        """Yield the buffered chunks."""
        yield from ()


class StepReader:
    r"""A reader of one step: a call of a tool, or the answer.

    >>> reader = StepReader(["weather"], "final_answer")
    >>> list(reader.add('{"name": "final_answer", "arguments": {"text": "It is \\u0034'))
    [TextDelta(text='It is 4')]

    :param tools: the names of the tools
    :param final: the name of the call that answers
    :param structured: whether the answer is the JSON text of the arguments; else it is their only text
    :param made: earlier calls, as the model would write them; chunks are buffered until the step differs from them
    """

    def __init__(
        self,
        tools: Collection[str],
        final: str,
        *,
        structured: bool = False,
        made: Collection[str] = (),
    ) -> None:
        self._openings = {format_opening(name): name for name in tools}
        self._answer = format_opening(final)
        self._structured = structured
        self._made = made
        self._text = ""
        self._read = 0
        self._name: str | None = None
        self._final = False
        self._expects_thought = True
        self.plan: Sequence[str] = ()
        self.note = ""
        self.tokens = 0

    @property
    def called(self) -> bool:
        """Whether the step is a call."""
        return self._name is not None and not self._final

    @property
    def repeated(self) -> bool:
        """Whether the step repeats an earlier call."""
        return self._text in self._made

    def add(self, piece: str) -> Iterator[Chunk]:
        """Yield the chunks of the next piece."""
        self._text += piece
        if not self._read_thought() or any(made.startswith(self._text) for made in self._made):
            return
        yield from self._read_name()
        if self._name is not None:
            is_text = self._final and not self._structured
            yield from self._read_text() if is_text else self._read_raw(len(self._text) - 1)

    def end(self) -> Iterator[Chunk]:
        """Yield the buffered chunks, without the step's closing brace."""
        if self._name is not None and (self._structured or not self._final):
            yield from self._read_raw(len(self._text) - _is_complete(self._text))

    def _read_thought(self) -> bool:
        """Return whether the plan or note before the call is complete; it is removed, and the rest is a plain step."""
        if not self._expects_thought:
            return True
        head = next((head for head in _THOUGHTS if self._text.startswith(head)), None)
        if head is None:
            self._expects_thought = any(head.startswith(self._text) for head in _THOUGHTS)
            return not self._expects_thought
        try:
            thought, end = _DECODER.raw_decode(self._text, len(head))
        except ValueError:
            return False
        if len(self._text) < end + len(_SEPARATOR):
            return False
        if isinstance(thought, str):
            self.note = thought
        else:
            self.plan = thought
        self._expects_thought = False
        self._text = "{" + self._text[end + len(_SEPARATOR) :]
        return True

    def _read_name(self) -> Iterator[Chunk]:
        if self._name is not None:
            return
        if self._text.startswith(self._answer + ("" if self._structured else _TEXT)):
            self._name, self._final = "", True
            self._read = len(self._answer) + (0 if self._structured else len(_TEXT))
            return
        for begin, name in self._openings.items():
            if self._text.startswith(begin):
                self._name, self._read = name, len(begin)
                yield CallDelta(0, name, new_id())

    def _read_raw(self, end: int) -> Iterator[Chunk]:
        piece = self._text[self._read : end]
        if piece:
            self._read = end
            yield TextDelta(piece) if self._final else ArgumentsDelta(0, piece)

    def _read_text(self) -> Iterator[Chunk]:
        """Yield the text without escapes; an incomplete escape waits for the next piece."""
        parts: list[str] = []
        while found := _ESCAPED.match(self._text, self._read):
            parts.append(found[0])
            self._read = found.end()
        if parts:
            yield TextDelta(json.loads(f'"{"".join(parts)}"'))


def _is_complete(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
