"""Texts that are too long for a model, page by page."""

from __future__ import annotations

import os
import unicodedata
from collections import OrderedDict
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from toolsemble.context import ToolContext
from toolsemble.definition.definition import check_name
from toolsemble.errors import ToolDefinitionError, ToolExecutionError
from toolsemble.param import Param
from toolsemble.runtime.checks import check_count
from toolsemble.runtime.fork_locks import fork_safe_lock
from toolsemble.runtime.text import preview
from toolsemble.tools.function import FunctionTool, tool

_MOST_PAGES = 10_000
_LONGEST_CHARACTER = 16
_JOINER = "\u200d"
_NOBODY = ToolContext().memory_id


@dataclass(frozen=True, slots=True)
class Pages:
    """How the rest of a text that was cut is offered to the model, and how much of it is kept.

    >>> Pages(results=10).name
    'read_more'
    """

    name: str = "read_more"
    """The name of the tool that gives the pages."""
    results: int = 100
    """How many texts are kept; the oldest go first."""
    characters: int = 10_000_000
    """How many characters they may have together."""

    def __post_init__(self) -> None:
        check_name(self.name)
        check_count("Pages results", self.results, least=1)
        check_count("Pages characters", self.characters, least=1)

    @classmethod
    def of(cls, said: object) -> Pages | None:
        """Give what a toolbox says about pages; refuse what is unclear.

        >>> Pages.of(True).results, Pages.of(False)
        (100, None)
        """
        if isinstance(said, Pages):
            return said
        if not isinstance(said, bool):
            raise ToolDefinitionError(f"Toolbox pages must be True, False or Pages(...), not {said!r:.80}")
        return cls() if said else None


class Reader(NamedTuple):
    """Whose model may read a text.

    >>> Reader("ada", None).matches("ada", "run 2"), Reader("ada", None).matches("bob", "run 1")
    (True, False)
    """

    memory_id: str
    """The conversation or user that the result belongs to."""
    run_id: str | None
    """The run that it belongs to; None where nobody named one."""

    def matches(self, memory_id: str, run_id: str) -> bool:
        """Whether a call is made by the same; where nobody said whose calls they are, only their run tells."""
        if memory_id != self.memory_id:
            return False
        return memory_id != _NOBODY or self.run_id is None or run_id == self.run_id


class _Text(NamedTuple):
    text: str
    starts: list[int]
    reader: Reader


class PageStore:
    r"""Texts of one toolbox, each with the reader that it is for, and the tool that gives their pages.

    >>> book = PageStore(Pages())
    >>> cut, note = book.keep("one\ntwo\nthree", 8, Reader("ada", None))
    >>> cut, note[:57]
    (8, ' [page 1 of 2; for the next one call read_more with resul')
    """

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._lock = fork_safe_lock(self)
        self._texts: OrderedDict[str, _Text] = OrderedDict()
        self._room = pages.characters

    @property
    def name(self) -> str:
        """The name of the tool that gives pages."""
        return self._pages.name

    def keep(self, text: str, limit: int, reader: Reader) -> tuple[int, str]:
        """Give where the first page of a text ends, and what the model is told about the others."""
        starts = page_starts(text, limit) if len(text) <= self._pages.characters else None
        if starts is None:
            return limit, ""
        made = os.urandom(16).hex()
        with self._lock:
            self._texts[made] = _Text(text, starts, reader)
            self._room -= len(text)
            while self._room < 0 or len(self._texts) > self._pages.results:
                self._room += len(self._texts.popitem(last=False)[1].text)
        return starts[1], f" {self._note(made, 1, len(starts))}"

    def page(self, id: str, number: int, context: ToolContext) -> str:
        """Give a page of a text to its reader, with a note about the next one; refuse everybody else."""
        with self._lock:
            found = self._texts.get(id)
        if found is None or not found.reader.matches(context.memory_id, context.run_id):
            # Whether somebody else has it is nobody's business.
            raise ToolExecutionError(
                f"There is no result '{preview(id, 64)}' to read more of: it is not kept any more, or never was; "
                "call the tool that gave it again"
            )
        count = len(found.starts)
        if not 1 <= number <= count:
            raise ToolExecutionError(f"The result has pages 1 to {count}, not {preview(str(number), 20)}")
        start, end = found.starts[number - 1], [*found.starts, len(found.text)][number]
        return f"{found.text[start:end]}\n{self._note(id, number, count)}"

    def tool(self) -> FunctionTool[..., str]:
        """Give the tool that models read pages with."""

        @tool(self._pages.name, "Reads a further page of a result that was too long to be shown whole.", effects="read")
        def read_more(
            result: Annotated[str, Param("The id of the result, from the note at its end")],
            page: Annotated[int, Param("The number of the page, from 1 on")],
            context: ToolContext,
        ) -> str:
            return self.page(result, page, context)

        return read_more

    def _note(self, id: str, number: int, count: int) -> str:
        if number == count:
            return f"[page {number} of {count}, the last one]"
        name = self._pages.name
        return f'[page {number} of {count}; for the next one call {name} with result="{id}" and page={number + 1}]'


def page_starts(text: str, limit: int) -> list[int] | None:
    r"""Give where the pages of a text begin, none longer than the limit; None when they would be far too many.

    >>> page_starts("one\ntwo\nthree", 8)
    [0, 8]
    """
    if limit < 1 or len(text) > limit * _MOST_PAGES // 2:  # a page is filled at least by half
        return None
    starts = [0]
    while len(text) - starts[-1] > limit:
        starts.append(_end(text, starts[-1], limit))
    return starts


def _end(text: str, start: int, limit: int) -> int:
    """Give where a page ends: after a line or a word in its second half, or else between two characters."""
    end, half = start + limit, start + limit // 2
    for mark in ("\n", " "):
        found = text.rfind(mark, half, end)
        if found >= 0:
            return found + 1
    for cut in range(end, max(start, end - _LONGEST_CHARACTER), -1):
        if not _joined(text[cut - 1], text[cut]):
            return cut
    return end


def _joined(before: str, after: str) -> bool:
    """Whether two code points are, or are likely to be, parts of one character for the reader."""
    if after.isascii():
        return before == "\r" and after == "\n"
    if _JOINER in (before, after) or "\U0001f3fb" <= after <= "\U0001f3ff":
        return True
    return unicodedata.category(after).startswith("M")
