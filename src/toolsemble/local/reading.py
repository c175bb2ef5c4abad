"""From what the model writes to the pieces of a reply, while it is still being written."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence

from toolsemble.call import new_id
from toolsemble.local.grammar import opening
from toolsemble.models.chat import ArgumentsDelta, CallDelta, Chunk, TextDelta

_TEXT = '{"text": "'
_BEFORE = ('{"plan": ', '{"note": ')
_AFTER = ", "
_DECODER = json.JSONDecoder()
_ESCAPED = re.compile(r'\\(?:u[0-9a-fA-F]{4}|[^u])|[^"\\]')


class PlainReading:
    """Reads an answer that is nothing but text."""

    called = False
    repeated = False
    plan: Sequence[str] = ()
    note = ""
    tokens = 0

    def add(self, piece: str) -> Iterator[Chunk]:
        """Take the next piece."""
        if piece:
            yield TextDelta(piece)

    def end(self) -> Iterator[Chunk]:
        """Give what was held back."""
        yield from ()


class StepReading:
    r"""Reads one step: a call of a tool, or the answer.

    >>> reading = StepReading(["weather"], "final_answer")
    >>> list(reading.add('{"name": "final_answer", "arguments": {"text": "It is \\u0034'))
    [TextDelta(text='It is 4')]

    :param tools: the names of the tools
    :param final: the name by which the model answers
    :param structured: whether the answer is the JSON text of the arguments; else it is their one text
    :param made: calls that were made before, as the model would write them; such a one is held back until it differs
    """

    def __init__(
        self,
        tools: Collection[str],
        final: str,
        *,
        structured: bool = False,
        made: Collection[str] = (),
    ) -> None:
        self._openings = {opening(name): name for name in tools}
        self._answer = opening(final)
        self._structured = structured
        self._made = made
        self._text = ""
        self._read = 0
        self._name: str | None = None
        self._final = False
        self._thinks = True
        self.plan: Sequence[str] = ()
        self.note = ""
        self.tokens = 0

    @property
    def called(self) -> bool:
        """Whether it is a call."""
        return self._name is not None and not self._final

    @property
    def repeated(self) -> bool:
        """Whether it is a call that was made before."""
        return self._text in self._made

    def add(self, piece: str) -> Iterator[Chunk]:
        """Take the next piece, and give what can be told of it."""
        self._text += piece
        if not self._thought() or any(made.startswith(self._text) for made in self._made):
            return
        yield from self._begin()
        if self._name is not None:
            yield from self._answered() if self._final and not self._structured else self._given(len(self._text) - 1)

    def end(self) -> Iterator[Chunk]:
        """Give what was held back; the brace that closes a step belongs to nobody."""
        if self._name is not None and (self._structured or not self._final):
            yield from self._given(len(self._text) - _is_whole(self._text))

    def _thought(self) -> bool:
        """Whether what stands before the call is known; it is taken off, and the rest is a step like any other."""
        if not self._thinks:
            return True
        head = next((head for head in _BEFORE if self._text.startswith(head)), None)
        if head is None:
            self._thinks = any(head.startswith(self._text) for head in _BEFORE)
            return not self._thinks
        try:
            thought, end = _DECODER.raw_decode(self._text, len(head))
        except ValueError:
            return False
        if len(self._text) < end + len(_AFTER):
            return False
        if isinstance(thought, str):
            self.note = thought
        else:
            self.plan = thought
        self._thinks = False
        self._text = "{" + self._text[end + len(_AFTER) :]
        return True

    def _begin(self) -> Iterator[Chunk]:
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

    def _given(self, end: int) -> Iterator[Chunk]:
        piece = self._text[self._read : end]
        if piece:
            self._read = end
            yield TextDelta(piece) if self._final else ArgumentsDelta(0, piece)

    def _answered(self) -> Iterator[Chunk]:
        """Give the text without its escapes; half an escape waits for its other half."""
        letters: list[str] = []
        while found := _ESCAPED.match(self._text, self._read):
            letters.append(found[0])
            self._read = found.end()
        if letters:
            yield TextDelta(json.loads(f'"{"".join(letters)}"'))


def _is_whole(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
